//! What TLS to Redis and TLS to an endpoint have in common.

use std::sync::Arc;

use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// The cryptography of `ring`, by name: a default of the process would be shared with other crates of a library user.
pub(crate) fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
}

/// The authorities that Mozilla trusts.
pub(crate) fn public_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    roots
}

//! Is the certificate of an endpoint believed? rustls decides; this adds the certificate that is itself named as an
//! authority, and says what rustls does not say in its errors.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::model::Certificate;
use crate::polling::http::tls::words::{Told, ago};

/// Whom a poll believes.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: CryptoProvider,
    /// `None`: everybody.
    believed: Option<Believed>,
}

#[derive(Debug)]
struct Believed {
    chains: Arc<WebPkiServerVerifier>,
    /// Certificates that are believed as they are.
    itself: Vec<Vec<u8>>,
}

impl Verifier {
    /// Believes `roots` and `more`, which are in DER.
    pub(super) fn of(mut roots: RootCertStore, more: &[Vec<u8>]) -> Result<Self, String> {
        for der in more {
            let added = roots.add(CertificateDer::from_slice(der));
            added.map_err(|it| format!("an authority cannot be used: {it}"))?;
        }
        let provider = rustls::crypto::ring::default_provider();
        let chains = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(provider.clone()),
        );
        let chains = chains.build().map_err(|it| format!("no authority can be used: {it}"))?;
        Ok(Self { provider, believed: Some(Believed { chains, itself: more.to_vec() }) })
    }

    /// Believes everybody, and still demands that the peer has the key of its certificate.
    pub(super) fn of_nothing() -> Self {
        Self { provider: rustls::crypto::ring::default_provider(), believed: None }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(believed) = &self.believed else { return Ok(ServerCertVerified::assertion()) };
        let verdict = believed.chains.verify_server_cert(shown, intermediates, name, ocsp, now);
        verdict.or_else(|error| match &error {
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_),
            ) if believed.itself.iter().any(|it| **it == **shown) => {
                verify_itself(shown, name, now)
            }
            _ => Err(explained(error, shown, now)),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate is one of those that are believed, byte by byte. `openssl req -x509` makes such a certificate an
/// authority, which rustls does not take for that of an endpoint. Its name and its dates count all the same.
fn verify_itself(
    shown: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
    let now_s = seconds(now);
    match Certificate::parse(shown) {
        Some(it) if it.is_valid_at(now_s) => Ok(ServerCertVerified::assertion()),
        Some(it) if it.not_after_s < now_s => {
            Err(told(format!("the certificate expired {}", ago(now_s - it.not_after_s))))
        }
        _ => Err(told("the certificate is not valid yet".into())),
    }
}

/// What the error of rustls does not say.
fn explained(error: Error, shown: &CertificateDer<'_>, now: UnixTime) -> Error {
    let (Error::InvalidCertificate(why), Some(it)) = (&error, Certificate::parse(shown)) else {
        return error;
    };
    let now_s = seconds(now);
    match why {
        CertificateError::UnknownIssuer | CertificateError::Other(_) if it.is_self_signed => {
            told("the certificate is self-signed: name it in tlsCa or --poll-ca".into())
        }
        CertificateError::ExpiredContext { time, not_after } if it.is_valid_at(now_s) => {
            let since = ago(seconds(*time) - seconds(*not_after));
            told(format!("the certificate of an authority above it expired {since}"))
        }
        _ => error,
    }
}

fn told(sentence: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Told(sentence)))))
}

/// As certificates count time.
pub(super) fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::certificates_in;
    use crate::polling::http::tls::words::in_words;

    /// rustls looks at the dates before it finds no chain, but does not promise that.
    #[test]
    fn a_certificate_that_is_named_counts_for_its_name_and_its_time() {
        let pem = include_str!("../../../../tests/it/store/certificates/server.pem");
        let der = CertificateDer::from(certificates_in(pem).unwrap().remove(0));
        let dates = Certificate::parse(&der).unwrap();
        let verdict = |name: &str, now_s: i64| {
            let now = Duration::from_secs(u64::try_from(now_s).unwrap());
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let verdict = verify_itself(&der, &name, UnixTime::since_unix_epoch(now));
            verdict.map_err(|it| in_words(std::io::Error::other(it)).to_string())
        };
        assert!(verdict("127.0.0.1", dates.not_before_s).is_ok());
        assert!(verdict("127.0.0.1", dates.not_after_s).is_ok());
        for (name, now_s, why) in [
            ("127.0.0.1", dates.not_before_s - 1, "the certificate is not valid yet"),
            ("127.0.0.1", dates.not_after_s + 86_400, "the certificate expired 1 day ago"),
            ("127.0.0.2", dates.not_after_s, "the certificate is for "),
        ] {
            let error = verdict(name, now_s).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}

//! What may polls of this host believe and read? Authorities, secrets for headers, and whether a session may do without TLS's
//! proof.

use std::fs;
use std::path::PathBuf;

use crate::config::access::{AccessError, PemFile};
use crate::config::setting::Setting;
use crate::model::certificates_in;

/// Settings of this host for the checks that sessions describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollAccess {
    /// Authorities that are believed beside the public ones.
    pub ca: Option<PathBuf>,
    /// The directory whose files the headers of sessions may name.
    pub secrets_dir: Option<PathBuf>,
    /// Whether a session may have `tlsInsecure`.
    pub allow_insecure: bool,
    /// A certificate with fewer days left than this deserves attention.
    pub cert_warn_days: u32,
}

impl Default for PollAccess {
    fn default() -> Self {
        Self { ca: None, secrets_dir: None, allow_insecure: false, cert_warn_days: 14 }
    }
}

impl PollAccess {
    /// Opens what is named, so that a missing file is an error at the start.
    pub(crate) fn check(&self) -> Result<(), AccessError> {
        self.authorities()?;
        let Some(dir) = &self.secrets_dir else { return Ok(()) };
        let unreadable = |source| AccessError::SecretsDirUnreadable { path: dir.clone(), source };
        fs::read_dir(dir).map(drop).map_err(unreadable)
    }

    /// The authorities of the file, in DER, as they are now.
    pub(crate) fn authorities(&self) -> Result<Vec<Vec<u8>>, AccessError> {
        let Some(path) = &self.ca else { return Ok(Vec::new()) };
        let file = PemFile { setting: Setting::PollCa, path };
        let text = String::from_utf8_lossy(&file.read()?).into_owned();
        certificates_in(&text).ok_or_else(|| file.useless())
    }
}

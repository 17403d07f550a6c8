//! How does this process authenticate to Redis? With a password and certificates, all in files.
//!
//! The files are read for every connection that is made, so that they can be exchanged while the program
//! runs: a connection stays, and a new connection uses what is in the files then.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::config::setting::{Names, Setting};

/// Far more than any password, and any bundle of certificates.
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;
const PEM_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The files it takes to get in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct Access {
    /// Its one line is the password.
    pub password: Option<PathBuf>,
    /// Whose signature on the server's certificate is believed; without one, the public authorities'.
    pub ca: Option<PathBuf>,
    /// Our own certificate.
    pub cert: Option<PathBuf>,
    /// And its key.
    pub key: Option<PathBuf>,
}

impl Access {
    /// Opens every file, so that a missing file is an error at the start.
    pub(crate) fn check(&self) -> Result<(), AccessError> {
        self.password()?;
        for file in [self.ca(), self.cert(), self.key()] {
            file.map(|it| it.read()).transpose()?;
        }
        Ok(())
    }

    /// The password, as it is in the file now.
    pub(crate) fn password(&self) -> Result<Option<String>, AccessError> {
        let Some(path) = &self.password else { return Ok(None) };
        let bytes = bytes_of(path, PASSWORD_BYTES_MAX)
            .map_err(|source| AccessError::PasswordFileUnreadable { path: path.clone(), source })?;
        let text = bytes.and_then(|it| String::from_utf8(it).ok());
        let password = text.as_deref().map(|it| it.trim_end_matches(['\n', '\r']));
        match password.filter(|it| !it.is_empty()) {
            Some(password) => Ok(Some(password.into())),
            None => Err(AccessError::PasswordFileUseless { path: path.clone() }),
        }
    }

    pub(crate) fn ca(&self) -> Option<PemFile<'_>> {
        self.ca.as_deref().map(|path| PemFile { setting: Setting::RedisCa, path })
    }

    pub(crate) fn cert(&self) -> Option<PemFile<'_>> {
        self.cert.as_deref().map(|path| PemFile { setting: Setting::RedisCert, path })
    }

    pub(crate) fn key(&self) -> Option<PemFile<'_>> {
        self.key.as_deref().map(|path| PemFile { setting: Setting::RedisKey, path })
    }
}

/// A file with certificates or a key, and the setting that names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PemFile<'a> {
    pub(crate) setting: Setting,
    pub(crate) path: &'a Path,
}

impl PemFile<'_> {
    pub(crate) fn read(self) -> Result<Vec<u8>, AccessError> {
        let Self { setting, path } = self;
        let unreadable =
            |source| AccessError::PemFileUnreadable { setting, path: path.to_owned(), source };
        bytes_of(path, PEM_BYTES_MAX).map_err(unreadable)?.ok_or_else(|| self.useless())
    }

    pub(crate) fn useless(self) -> AccessError {
        AccessError::PemFileUseless { setting: self.setting, path: self.path.to_owned() }
    }
}

/// All of a file; `None` if it is longer than `max`.
fn bytes_of(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|it| it.len() as u64 <= max))
}

/// Why one cannot get in.
#[derive(Debug)]
pub(crate) enum AccessError {
    /// A build without TLS.
    TlsUnsupported,
    /// A file for TLS, and a URL without.
    NoTls { setting: Setting },
    /// A certificate without its key, or the other way round.
    HalfACertificate,
    /// A password in the URL and another in a file.
    TwoPasswords { path: PathBuf },
    /// The password file cannot be read.
    PasswordFileUnreadable { path: PathBuf, source: io::Error },
    /// The password file is empty, huge, or not text.
    PasswordFileUseless { path: PathBuf },
    /// A file with certificates or a key cannot be read.
    PemFileUnreadable { setting: Setting, path: PathBuf, source: io::Error },
    /// It holds none.
    PemFileUseless { setting: Setting, path: PathBuf },
    /// The directory of secrets cannot be read.
    SecretsDirUnreadable { path: PathBuf, source: io::Error },
}

impl AccessError {
    /// A sentence that calls the settings by `names`.
    pub(super) fn told(&self, names: Names) -> String {
        let name = |setting| names.of(setting);
        match self {
            Self::TlsUnsupported => {
                let redis = name(Setting::Redis);
                format!(
                    "{redis} rediss://… needs TLS, which this build was made without: build it with the \
                     feature https"
                )
            }
            Self::NoTls { setting } => {
                let (file, redis) = (name(*setting), name(Setting::Redis));
                format!(
                    "{file} is for TLS, and {redis} is a URL without: write rediss://… \
                     (rediss+sentinel://, rediss+cluster://), or leave {file} out"
                )
            }
            Self::HalfACertificate => {
                let (cert, key) = (name(Setting::RedisCert), name(Setting::RedisKey));
                format!("{cert} and {key} belong together: give both or neither")
            }
            Self::TwoPasswords { path } => {
                let (redis, file) = (name(Setting::Redis), name(Setting::RedisPasswordFile));
                let path = shown(path);
                format!(
                    "{redis} has a password, and {file}{path} names another: leave one of them out"
                )
            }
            Self::PasswordFileUnreadable { path, source } => {
                let (file, path) = (name(Setting::RedisPasswordFile), shown(path));
                format!("cannot read {file}{path}: {source}")
            }
            Self::PasswordFileUseless { path } => {
                let (file, path) = (name(Setting::RedisPasswordFile), shown(path));
                format!(
                    "{file}{path} holds no password: write it as one line of text, or leave the \
                     option out"
                )
            }
            Self::PemFileUnreadable { setting, path, source } => {
                format!("cannot read {} {path:?}: {source}", name(*setting))
            }
            Self::PemFileUseless { setting, path } => {
                let what = if *setting == Setting::RedisKey { "key" } else { "certificate" };
                let file = name(*setting);
                format!("{file} {path:?} holds no {what} that can be used: give a PEM file")
            }
            Self::SecretsDirUnreadable { path, source } => {
                format!("cannot read {} {path:?}: {source}", name(Setting::SecretsDir))
            }
        }
    }

    pub(super) fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::PasswordFileUnreadable { source, .. }
            | Self::PemFileUnreadable { source, .. }
            | Self::SecretsDirUnreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A path that does not look like one is not repeated: people put the password itself there.
fn shown(path: &Path) -> String {
    let certain = path.is_absolute() || path.starts_with(".") || path.starts_with("..");
    if certain { format!(" {path:?}") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn holding(name: &str, bytes: &[u8]) -> Self {
            let path =
                std::env::temp_dir().join(format!("leasehold-{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }

        fn read(&self) -> Result<Option<String>, AccessError> {
            Access { password: Some(self.0.clone()), ..Access::default() }.password()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_password_file_is_read_without_its_last_newline_and_as_it_is_now() {
        let file = Scratch::holding("password", b"hunter2\n");
        assert_eq!(file.read().unwrap().as_deref(), Some("hunter2"));
        std::fs::write(&file.0, b"hunter3\r\n").unwrap();
        assert_eq!(file.read().unwrap().as_deref(), Some("hunter3"));
    }

    #[test]
    fn a_password_given_in_place_of_its_file_is_not_repeated() {
        let access = Access { password: Some("hunter2".into()), ..Access::default() };
        let error = access.check().unwrap_err().told(Names::default());
        assert!(error.starts_with("cannot read access.password: "), "{error}");
    }

    #[test]
    fn a_password_file_that_is_missing_empty_huge_or_not_text_is_refused_by_name() {
        let missing = Access { password: Some("/nowhere/secret".into()), ..Access::default() };
        let error = missing.check().unwrap_err().told(Names::default());
        assert!(error.starts_with("cannot read access.password \"/nowhere/secret\""), "{error}");
        for (name, bytes) in
            [("empty", &b"\n"[..]), ("binary", b"hunter2\xff"), ("huge", &[b'x'; 70_000])]
        {
            let error = Scratch::holding(name, bytes).read().unwrap_err().told(Names::default());
            assert!(error.contains("holds no password"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let endless = Scratch(PathBuf::from("/dev/zero"));
        assert!(endless.read().is_err());
        std::mem::forget(endless); // not ours to remove
    }

    #[test]
    fn certificates_that_cannot_be_read_are_refused_by_name() {
        let access = Access { ca: Some("/nowhere/ca.pem".into()), ..Access::default() };
        let error = access.check().unwrap_err().told(Names::default());
        assert!(error.starts_with("cannot read access.ca \"/nowhere/ca.pem\""), "{error}");
    }
}

//! How does this process authenticate to Redis? With a password and certificates, all in files.
//!
//! The files are read for every connection that is made, so that they can be exchanged while the program
//! runs: a connection stays, and a new connection uses what is in the files then.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Far more than any password, and any bundle of certificates.
const PASSWORD_BYTES_MAX: u64 = 64 * 1024;
const PEM_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The files it takes to get in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub fn check(&self) -> Result<(), AccessError> {
        self.password()?;
        for file in [self.ca(), self.cert(), self.key()] {
            file.map(|it| it.read()).transpose()?;
        }
        Ok(())
    }

    /// The password, as it is in the file now.
    pub fn password(&self) -> Result<Option<String>, AccessError> {
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
        self.ca.as_deref().map(|path| PemFile { flag: "--redis-ca", path })
    }

    pub(crate) fn cert(&self) -> Option<PemFile<'_>> {
        self.cert.as_deref().map(|path| PemFile { flag: "--redis-cert", path })
    }

    pub(crate) fn key(&self) -> Option<PemFile<'_>> {
        self.key.as_deref().map(|path| PemFile { flag: "--redis-key", path })
    }
}

/// A file with certificates or a key, and the flag that names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PemFile<'a> {
    pub(crate) flag: &'static str,
    pub(crate) path: &'a Path,
}

impl PemFile<'_> {
    pub(crate) fn read(self) -> Result<Vec<u8>, AccessError> {
        let Self { flag, path } = self;
        let unreadable =
            |source| AccessError::PemFileUnreadable { flag, path: path.to_owned(), source };
        bytes_of(path, PEM_BYTES_MAX).map_err(unreadable)?.ok_or_else(|| self.useless())
    }

    pub(crate) fn useless(self) -> AccessError {
        AccessError::PemFileUseless { flag: self.flag, path: self.path.to_owned() }
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
pub enum AccessError {
    /// A build without TLS.
    TlsUnsupported,
    /// A file for TLS, and a URL without.
    NoTls { flag: &'static str },
    /// A certificate without its key, or the other way round.
    HalfACertificate,
    /// A password in the URL and another in a file.
    TwoPasswords { path: PathBuf },
    /// The password file cannot be read.
    PasswordFileUnreadable { path: PathBuf, source: io::Error },
    /// The password file is empty, huge, or not text.
    PasswordFileUseless { path: PathBuf },
    /// A file with certificates or a key cannot be read.
    PemFileUnreadable { flag: &'static str, path: PathBuf, source: io::Error },
    /// It holds none.
    PemFileUseless { flag: &'static str, path: PathBuf },
    /// The directory of `--secrets-dir` cannot be read.
    SecretsDirUnreadable { path: PathBuf, source: io::Error },
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TlsUnsupported => {
                write!(f, "--redis rediss://… needs TLS, which this build was made without: ")?;
                write!(f, "build it with the feature https")
            }
            Self::NoTls { flag } => {
                write!(f, "{flag} is for TLS, and --redis is a URL without: write rediss://… ")?;
                write!(f, "(rediss+sentinel://, rediss+cluster://), or leave {flag} out")
            }
            Self::HalfACertificate => {
                write!(f, "--redis-cert and --redis-key belong together: give both or neither")
            }
            Self::TwoPasswords { path } => {
                write!(
                    f,
                    "--redis has a password, and --redis-password-file{} names ",
                    named(path)
                )?;
                write!(f, "another: leave one of them out")
            }
            Self::PasswordFileUnreadable { path, source } => {
                write!(f, "cannot read --redis-password-file{}: {source}", named(path))
            }
            Self::PasswordFileUseless { path } => {
                write!(f, "--redis-password-file{} holds no password: write it ", named(path))?;
                write!(f, "as one line of text, or leave the option out")
            }
            Self::PemFileUnreadable { flag, path, source } => {
                write!(f, "cannot read {flag} {path:?}: {source}")
            }
            Self::PemFileUseless { flag, path } => {
                let what = if *flag == "--redis-key" { "key" } else { "certificate" };
                write!(f, "{flag} {path:?} holds no {what} that can be used: give a PEM file")
            }
            Self::SecretsDirUnreadable { path, source } => {
                write!(f, "cannot read --secrets-dir {path:?}: {source}")
            }
        }
    }
}

/// A path that does not look like one is not repeated: people put the password itself there.
fn named(path: &Path) -> String {
    let certain = path.is_absolute() || path.starts_with(".") || path.starts_with("..");
    if certain { format!(" {path:?}") } else { String::new() }
}

impl std::error::Error for AccessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::PasswordFileUnreadable { source, .. }
            | Self::PemFileUnreadable { source, .. }
            | Self::SecretsDirUnreadable { source, .. } => Some(source),
            _ => None,
        }
    }
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
        let error = access.check().unwrap_err().to_string();
        assert!(error.starts_with("cannot read --redis-password-file: "), "{error}");
    }

    #[test]
    fn a_password_file_that_is_missing_empty_huge_or_not_text_is_refused_by_name() {
        let missing = Access { password: Some("/nowhere/secret".into()), ..Access::default() };
        let error = missing.check().unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read --redis-password-file \"/nowhere/secret\""),
            "{error}"
        );
        for (name, bytes) in
            [("empty", &b"\n"[..]), ("binary", b"hunter2\xff"), ("huge", &[b'x'; 70_000])]
        {
            let error = Scratch::holding(name, bytes).read().unwrap_err().to_string();
            assert!(error.contains("holds no password"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let endless = Scratch(PathBuf::from("/dev/zero"));
        assert!(endless.read().is_err());
        std::mem::forget(endless); // not ours to remove
    }

    #[test]
    fn certificates_that_cannot_be_read_are_refused_by_their_flag() {
        let access = Access { ca: Some("/nowhere/ca.pem".into()), ..Access::default() };
        let error = access.check().unwrap_err().to_string();
        assert!(error.starts_with("cannot read --redis-ca \"/nowhere/ca.pem\""), "{error}");
    }
}

//! What is the value of a header that a session only names? The contents of a file of `--secrets-dir`, as they are now.
//!
//! No message repeats any of them.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::fcntl::OFlag;

use crate::model::{VALUE_MAX_BYTES, is_header_value};
use crate::net::wait::plain;

/// Where the secrets of polls are.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets(pub(super) Option<PathBuf>);

/// Why there is no value.
#[derive(Debug)]
pub(super) enum NoSecret {
    NoDirectory,
    Unreadable(io::Error),
    /// Empty, too long, not UTF-8, or with a line break inside.
    Useless,
}

impl Secrets {
    /// The value of the file of this name, which is a name without a path (`model::check`).
    pub(super) fn value(&self, file: &str) -> Result<String, NoSecret> {
        let dir = self.0.as_ref().ok_or(NoSecret::NoDirectory)?;
        // Anything but a file, such as a pipe, could block.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let opened = options.open(dir.join(file)).map_err(NoSecret::Unreadable)?;
        if !opened.metadata().map_err(NoSecret::Unreadable)?.is_file() {
            return Err(NoSecret::Useless);
        }
        let mut bytes = Vec::new();
        let limit = VALUE_MAX_BYTES as u64 + 2;
        opened.take(limit).read_to_end(&mut bytes).map_err(NoSecret::Unreadable)?;
        let text = String::from_utf8(bytes).map_err(|_| NoSecret::Useless)?;
        let value = text.trim_end_matches(['\r', '\n']).trim();
        match !value.is_empty() && is_header_value(value) {
            true => Ok(value.to_owned()),
            false => Err(NoSecret::Useless),
        }
    }
}

impl NoSecret {
    /// About the header `name`, whose value is in `file`.
    pub(super) fn sentence(&self, name: &str, file: &str) -> String {
        let header = format!("the header {name} needs the file {file}");
        match self {
            Self::NoDirectory => format!("{header}, and this instance has no --secrets-dir"),
            Self::Unreadable(why) => {
                format!("{header} of --secrets-dir, which cannot be read: {}", plain(why))
            }
            Self::Useless => format!(
                "{header} of --secrets-dir, which holds no value: one line, at most {VALUE_MAX_BYTES} bytes"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_line_of_a_plain_file() {
        let dir = std::env::temp_dir().join(format!("leasehold-secrets-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let secrets = Secrets(Some(dir.clone()));
        let long = "x".repeat(VALUE_MAX_BYTES + 1);
        for (text, value) in [
            ("Bearer hunter2\n", Some("Bearer hunter2")),
            ("hunter2\r\n", Some("hunter2")),
            (&long[1..], Some(&long[1..])),
            (&long, None),
            ("hunter2\nX: y\n", None),
            ("hunter2\0", None),
            ("\n", None),
            ("", None),
        ] {
            std::fs::write(dir.join("a"), text).unwrap();
            let found = secrets.value("a");
            assert_eq!(found.as_deref().ok(), value, "{text:?}");
            if let Err(why) = found {
                assert!(!why.sentence("A", "a").contains("hunter2"));
            }
        }
        std::fs::write(dir.join("a"), b"\xff").unwrap();
        assert!(matches!(secrets.value("a"), Err(NoSecret::Useless)));
        let fifo = dir.join("fifo");
        let _ = nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU);
        assert!(matches!(secrets.value("fifo"), Err(NoSecret::Useless)), "it does not wait");
        let error = secrets.value("missing").unwrap_err().sentence("X-Key", "missing");
        let wanted =
            "the header X-Key needs the file missing of --secrets-dir, which cannot be read: ";
        assert!(error.starts_with(wanted), "{error}");
        let error = Secrets(None).value("a").unwrap_err().sentence("A", "a");
        assert!(error.ends_with("has no --secrets-dir"), "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}

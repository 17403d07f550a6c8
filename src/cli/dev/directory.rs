//! Where do the parts keep what they write? A directory that is removed at the end, or one that the user named.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Removed when dropped, unless the user named it.
pub(super) struct Directory {
    path: PathBuf,
    /// Only one fleet may use a directory that is kept.
    lock: Option<Flock<File>>,
}

impl Directory {
    pub(super) fn open(kept: Option<&Path>) -> Result<Self, String> {
        match kept {
            Some(path) => Self::keep(path),
            None => Self::temporary(),
        }
    }

    fn keep(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let cannot = |error| format!("cannot use the directory {shown}: {error}");
        fs::create_dir_all(path).map_err(cannot)?;
        let path = path.canonicalize().map_err(cannot)?;
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false);
        let file = open.open(path.join("dev.lock")).map_err(cannot)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            format!("another leasehold dev uses {shown}: end it, or name another directory")
        })?;
        Ok(Self { path, lock: Some(lock) })
    }

    /// Nobody else may look into it, and nobody can have put anything there.
    fn temporary() -> Result<Self, String> {
        let base = env::temp_dir();
        for n in 0.. {
            let path = base.join(format!("leasehold-dev-{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, lock: None }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
                Err(error) => {
                    let path = path.display();
                    return Err(format!("cannot make the directory {path}: {error}"));
                }
            }
        }
        Err("there is no name left for a directory".into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.lock.is_none()
    }

    /// What is left of it all.
    pub(super) fn farewell(&self) -> String {
        match &self.lock {
            None => "everything has ended and is removed\n".into(),
            Some(_) => format!("everything has ended; {} is kept\n", self.path.display()),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_temporary() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

//! Which instance runs here? A file that holds its id, and a lock that proves it is alive (R12).
//!
//! The lock is inherited by every command a poll runs. Whoever gets it knows that the process and its
//! commands are gone, however they ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};

use crate::daemon::thread::stop;
use crate::model::InstanceId;

const NAME: &str = "instance";
const RETRY: Duration = Duration::from_millis(50);

/// The locked state file of this process.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    file: Flock<File>,
}

impl StateFile {
    /// Locks the file in `dir`, waiting at most `patience` for its last holder to be gone.
    pub fn lock(dir: &Path, patience: Duration) -> io::Result<Self> {
        let path = dir.join(NAME);
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(|error| at(&path, "open", &error))?;
        let (_never, stop) = stop();
        let mut waited = Duration::ZERO;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => return Ok(Self { path, file }),
                Err((again, nix::errno::Errno::EWOULDBLOCK)) if waited < patience => file = again,
                Err((_, error)) => return Err(at(&path, "lock", &error.into())),
            }
            stop.within(RETRY);
            waited += RETRY;
        }
    }

    /// The instances that may still have something to be given back.
    pub fn instances(&mut self) -> io::Result<Vec<InstanceId>> {
        let mut text = String::new();
        self.file.rewind()?;
        (&*self.file).take(16 * 1_024).read_to_string(&mut text)?;
        let ids = text.lines().map(str::trim).filter(|it| !it.is_empty());
        Ok(ids.map(InstanceId::new).collect())
    }

    /// Writes who may have something to be given back, and lets commands inherit the lock.
    pub fn write(&mut self, instances: &[InstanceId]) -> io::Result<()> {
        fcntl(&*self.file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let text: String = instances.iter().map(|it| format!("{it}\n")).collect();
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }

    /// Everything is given back: nothing is left for `release` to do.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Whether there is a file in `dir` at all.
    pub fn exists(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }
}

fn at(path: &Path, verb: &str, error: &io::Error) -> io::Error {
    let hint = if error.kind() == io::ErrorKind::WouldBlock {
        " (another leasehold runs here)"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}{hint}", path.display()))
}

//! Which instance runs here? A file that holds its id, and a lock that proves it is alive (R12).
//!
//! The lock is inherited by every command a poll runs. A process that gets it knows that the former process and its
//! commands are gone, however they ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};

use crate::model::InstanceId;
use crate::thread::stop;

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
        let (_never, stop) = stop();
        let mut waited = Duration::ZERO;
        loop {
            match Self::try_lock(&path) {
                Ok(Some(file)) => return Ok(Self { path, file }),
                Ok(None) if waited < patience => (),
                Ok(None) => {
                    let why = "another leasehold runs here, or a command of one that ran";
                    return Err(io::Error::other(format!("{} is locked: {why}", path.display())));
                }
                Err(error) => {
                    let why = format!("cannot lock {}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), why));
                }
            }
            stop.within(RETRY);
            waited += RETRY;
        }
    }

    /// `None` while another process has it.
    fn try_lock(path: &Path) -> io::Result<Option<Flock<File>>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        };
        // Its last holder may have removed it meanwhile: a lock on a file without a name proves nothing.
        let (locked, named) = (file.metadata()?, fs::metadata(path));
        let same = named.is_ok_and(|it| (it.dev(), it.ino()) == (locked.dev(), locked.ino()));
        Ok(same.then_some(file))
    }

    /// The instances that may still hold leases or roles.
    pub fn instances(&mut self) -> io::Result<Vec<InstanceId>> {
        let mut text = String::new();
        self.file.rewind()?;
        (&*self.file).take(16 * 1_024).read_to_string(&mut text)?;
        let ids = text.lines().map(str::trim).filter(|it| !it.is_empty());
        Ok(ids.map(InstanceId::new).collect())
    }

    /// Writes these ids, and lets commands inherit the lock.
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

//! Where do clients connect? A socket that is never open to more users than its mode says, and that belongs to one agent.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The socket of this agent. Its end removes the file.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Proves that the agent lives, also while it is frozen and its backlog is full.
    _lock: Flock<File>,
}

impl Socket {
    /// Listens at `path`. A socket that a dead agent left there is replaced, and that of a live one is not.
    pub(crate) fn listen(path: &Path, mode: u32) -> Result<(Self, UnixListener), String> {
        let shown = path.display();
        let lock = lock(&beside(path, "lock")).map_err(|error| match error {
            Errno::EWOULDBLOCK => format!("another agent listens at {shown}: stop it first"),
            error => format!("cannot lock {shown}.lock: {}", error.desc()),
        })?;
        let failed = |error: io::Error| format!("cannot listen at {shown}: {error}");
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(format!("{shown} is there and is no socket: name another path"));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => (),
        }
        // Made in a directory that only this user can enter, and moved once its mode is right. The move replaces a socket of a
        // dead agent in one step.
        let private = private_dir(&beside(path, "new")).map_err(failed)?;
        let made = private.join("s");
        let listener = UnixListener::bind(&made).and_then(|listener| {
            fs::set_permissions(&made, Permissions::from_mode(mode))?;
            listener.set_nonblocking(true)?;
            fs::rename(&made, path)?;
            Ok(listener)
        });
        let _ = fs::remove_file(&made);
        let _ = fs::remove_dir(&private);
        Ok((Self { path: path.into(), _lock: lock }, listener.map_err(failed)?))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A directory that only this user can enter. One that a dead agent left there is made anew.
fn private_dir(path: &Path) -> io::Result<PathBuf> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.is_dir()) {
        let _ = fs::remove_file(path.join("s"));
        fs::remove_dir(path)?;
    }
    DirBuilder::new().mode(0o700).create(path)?;
    Ok(path.into())
}

/// `path` with another ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// The file stays: one that is removed while another process waits for it proves nothing.
fn lock(path: &Path) -> Result<Flock<File>, Errno> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = file.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)
}

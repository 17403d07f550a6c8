//! How does a poll wait for descriptors and for its abort at the same time?

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};

use crate::net::abort::Abort;

/// A descriptor that becomes readable when the switch fires. Waiting in slices instead would either
/// burn processor time or stop late.
#[derive(Debug)]
pub(crate) struct Wake(PipeReader);

impl Wake {
    /// Arms `abort`; whatever it was armed with before is forgotten.
    pub(crate) fn on(abort: &Abort) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        abort.arm(move || drop(writer));
        Ok(Self(reader))
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `fds` is ready, at most for `left`. May return early with none of them ready.
pub(crate) fn wait(fds: &mut [PollFd<'_>], left: Duration) -> io::Result<()> {
    // Rounded up: a wait of 0 ms for the last half millisecond would spin.
    let millis = left.as_millis() + u128::from(!left.subsec_nanos().is_multiple_of(1_000_000));
    let timeout = PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX));
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a wait found anything to do with this descriptor: data, room, an end or an error.
pub(crate) fn is_ready(fd: &PollFd<'_>) -> bool {
    fd.any().unwrap_or(false)
}

/// What the operating system said, without the error number.
pub(crate) fn plain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().into(),
        None => error.to_string(),
    }
}

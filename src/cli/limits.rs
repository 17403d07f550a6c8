//! How many files may this process open? `run` raises the soft limit to the hard one; nobody else does, least of all the
//! library, whose process belongs to the program around it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limits of open files after [`raise_files`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    /// What this process may open now.
    pub(crate) limit: u64,
    /// The soft limit that the process was started with, if it was raised: commands get it back.
    pub(crate) before: Option<u64>,
}

/// Raises the soft limit to the hard one.
pub(crate) fn raise_files() -> Files {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Files { limit: u64::MAX, before: None };
    };
    match soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        true => Files { limit: hard, before: Some(soft) },
        false => Files { limit: soft, before: None },
    }
}

/// What `run` could have here.
pub(crate) fn hard_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |it| it.1)
}

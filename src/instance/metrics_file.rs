//! Puts the numbers of this process where node_exporter finds them: one file, always whole.
//!
//! A disk that is full or hangs costs a line in the log and old numbers, nothing else: nobody waits for
//! this thread, not even a stop for long.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::event::Event;
use crate::instance::exposition::Exposition;
use crate::lease::trouble::{Change, Trouble};
use crate::model::InstanceId;
use crate::thread::group::ThreadGroup;
use crate::thread::{StopSource, Thread, stop};

/// Half of what Prometheus usually waits between two looks, or less.
const EVERY: Duration = Duration::from_secs(5);
/// How long a stop waits for a disk.
const PATIENCE: Duration = Duration::from_secs(1);
/// For everybody: the collector of the file is another user, whatever the umask says.
const MODE: u32 = 0o644;

/// The thread `metrics`. Dropping it takes the file away: numbers that nobody keeps up to date lie.
pub struct MetricsFile {
    stop: Option<StopSource>,
    threads: ThreadGroup,
}

impl MetricsFile {
    /// Writes the file of `config`, if there is one.
    pub fn of(
        config: &Config,
        me: &InstanceId,
        exposition: &Arc<Exposition>,
    ) -> io::Result<Option<Self>> {
        let Some(path) = config.metrics_file.clone() else { return Ok(None) };
        let (source, when) = stop();
        let mut threads = ThreadGroup::new();
        let exposition = Arc::clone(exposition);
        let mut trouble = MetricsTrouble::of(me, format!("cannot write {}", path.display()));
        let body = move || {
            loop {
                let written = replace(&path, exposition.text().as_bytes());
                trouble.tell(written.err().as_ref());
                if when.within(EVERY) {
                    break;
                }
            }
            // What cannot be removed says itself how old it is.
            let _ = fs::remove_file(&path);
        };
        threads.spawn(|body| Thread::spawn("metrics", body), body)?;
        Ok(Some(Self { stop: Some(source), threads }))
    }
}

impl Drop for MetricsFile {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A disk that hangs keeps nobody from stopping.
        self.threads.join_within(PATIENCE);
    }
}

/// Reports why the numbers cannot be shown, once per change of the reason.
pub(crate) struct MetricsTrouble {
    me: InstanceId,
    what: String,
    trouble: Trouble,
}

impl MetricsTrouble {
    /// None yet. `what` is what cannot be done when there is some.
    pub(crate) fn of(me: &InstanceId, what: String) -> Self {
        Self { me: me.clone(), what, trouble: Trouble::default() }
    }

    pub(crate) fn tell(&mut self, error: Option<&io::Error>) {
        match self.trouble.update(error.map(|error| format!("{}: {error}", self.what))) {
            Some(Change::Failed(error)) => Event::MetricsFailed { error: &error }.log(&self.me),
            Some(Change::Resumed) => Event::MetricsResumed.log(&self.me),
            None => (),
        }
    }
}

/// A reader of `path` finds the old bytes or the new ones, never some of both.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path)?;
    let written = write_new(&new, bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// A name in the same directory, of this process alone, that no collector looks at.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{}.tmp", std::process::id())))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Left behind by a namesake that was killed.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(bytes)
}

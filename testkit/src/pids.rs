//! Scripts that write down their process ids, and what became of those.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};

/// For anything at all, on a machine that is busy.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Looks again and again, until there is something.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let never = crossbeam_channel::never::<()>();
    let deadline = BootClock.now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(BootClock.now() < deadline, "not within {LIMIT:?}: {what}");
        let _ = never.recv_timeout(Duration::from_millis(2));
    }
}

/// The process ids a script has written to `path`, once there are `count`.
pub fn pids(path: &Path, count: usize) -> Vec<String> {
    eventually(&format!("{count} process ids in {}", path.display()), || {
        let pids: Vec<String> =
            fs::read_to_string(path).ok()?.split_whitespace().map(Into::into).collect();
        (pids.len() == count).then_some(pids)
    })
}

/// Gone, or a zombie that its parent has not reaped yet.
pub fn is_gone(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_or(true, |it| it.rsplit(')').next().is_some_and(|it| it.starts_with(" Z")))
}

#[track_caller]
pub fn all_gone(pids: &[String]) {
    eventually(&format!("the end of {pids:?}"), || pids.iter().all(|it| is_gone(it)).then_some(()));
}

/// Writes its own id, a child's and a grandchild's; all of them are deaf to TERM.
pub fn family(file: &Path) -> String {
    let file = file.display();
    format!(
        "trap '' TERM; echo $$ >> {file}; sh -c 'echo $$ >> {file}; \
         sh -c \"echo \\$\\$ >> {file}; exec sleep 1000\" & wait' & wait; sleep 1000"
    )
}

//! Where faults harm nobody else: a network, mounts and process ids of our own. Whatever is left in
//! there ends with the process that entered, however that ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::groups;
use crate::temp_dir::TempDir;

const INSIDE: &str = "FAULTS_INSIDE";

pub enum Place {
    Inside,
    /// Everything was done inside, and this came of it.
    Left(ExitCode),
    Nowhere(String),
}

/// Starts this very program again, apart, and waits for it; inside, says so.
pub fn enter() -> Place {
    if std::env::var_os(INSIDE).is_some() {
        // The first process of a namespace gets only those signals that it asks for: a Ctrl-C.
        ctrlc::set_handler(|| std::process::exit(130)).unwrap();
        return Place::Inside;
    }
    if let Some(why) = hindrance() {
        return Place::Nowhere(why);
    }
    groups::remove_leftovers(); // of a run that was killed together with its cleaner
    let dir = TempDir::new();
    let mut child = unshare()
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args_os().skip(1))
        .envs([(INSIDE, Path::new("1")), ("TMPDIR", dir.path())])
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    // After the child was started, which would inherit what this blocks.
    let signalled = leasehold::stop_on_signal().unwrap();
    std::thread::spawn(move || {
        let _ = signalled.receiver().recv();
        kill(pid, Signal::SIGKILL).unwrap_or(());
    });
    let status = child.wait().unwrap();
    groups::remove_leftovers();
    Place::Left(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command
}

/// Why there can be no namespaces here.
fn hindrance() -> Option<String> {
    for tool in ["unshare", "ip", "iptables", "tc"] {
        if find(tool).is_none() {
            return Some(format!(
                "{tool} is not installed (packages util-linux, iproute2, iptables)"
            ));
        }
    }
    let tried = unshare().args(["ip", "link", "add", "br0", "type", "bridge"]).output();
    let tried = tried.map_err(|it| it.to_string()).and_then(|it| {
        if it.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&it.stderr).into()) }
    });
    tried.err().map(|it| format!("{} (are you root?)", it.trim()))
}

/// Where a program is.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|it| it.join(program));
    places.find(|it| fs::metadata(it).is_ok())
}

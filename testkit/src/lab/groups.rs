//! Control groups of our own: to freeze, to starve, to run out of memory in. Version 1 or 2, wherever
//! this machine has the controller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NAME: &str = "leasehold-faults";
const ROOT: &str = "/sys/fs/cgroup";

/// A group with one controller. Empty it before it is dropped.
pub struct Group {
    path: PathBuf,
    v2: bool,
}

#[derive(Clone, Copy)]
pub enum Kind {
    Freezer,
    Memory,
    Cpu,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Freezer => "freezer",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// The group this process is in, below one hierarchy.
fn own(hierarchy: &Path, controller: &str) -> PathBuf {
    let lines = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = lines.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
    });
    hierarchy.join(path.unwrap_or_default())
}

impl Group {
    /// `Err` says why there is none to be had.
    pub fn new(kind: Kind) -> Result<Self, String> {
        let (path, v2) = place(kind)?;
        let path = path.join(format!("{NAME}-{}", kind.name()));
        let made = fs::create_dir(&path).or_else(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        });
        made.map_err(|error| format!("no cgroup of our own: {error}"))?;
        Ok(Self { path, v2 })
    }

    /// Where a process writes its id to join.
    pub fn door(&self) -> String {
        self.path.join("cgroup.procs").display().to_string()
    }

    fn set(&self, file: &str, value: &str) {
        let path = self.path.join(file);
        fs::write(&path, value).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    }

    pub fn freeze(&self, frozen: bool) {
        match (self.v2, frozen) {
            (true, _) => self.set("cgroup.freeze", if frozen { "1" } else { "0" }),
            (false, true) => self.set("freezer.state", "FROZEN"),
            (false, false) => self.set("freezer.state", "THAWED"),
        }
    }

    pub fn limit_memory(&self, bytes: u64) {
        self.set(if self.v2 { "memory.max" } else { "memory.limit_in_bytes" }, &bytes.to_string());
    }

    /// So much of every 100 ms, in µs; all of it if `None`.
    pub fn limit_cpu(&self, quota: Option<u32>) {
        if self.v2 {
            let quota = quota.map_or("max".into(), |it| it.to_string());
            return self.set("cpu.max", &format!("{quota} 100000"));
        }
        self.set("cpu.cfs_quota_us", &quota.map_or("-1".into(), |it| it.to_string()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// A process in a group, beside the process under test. Dropping it ends it.
pub struct Neighbour(Child);

impl Neighbour {
    /// Runs a shell script in `group`.
    pub fn start(group: &Group, script: &str) -> Self {
        let script = format!("echo 0 >{} && {script}", group.door());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null()).stderr(Stdio::null());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A killed process takes a moment to be gone, and a frozen one has to be thawed first.
fn remove(path: &Path) {
    for (file, thawed) in [("cgroup.freeze", "0"), ("freezer.state", "THAWED")] {
        if path.join(file).exists() {
            drop(fs::write(path.join(file), thawed));
        }
    }
    for _ in 0..100 {
        if fs::remove_dir(path).is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Where groups with this controller are made.
fn place(kind: Kind) -> Result<(PathBuf, bool), String> {
    let name = kind.name();
    for hierarchy in [Path::new(ROOT).to_owned(), Path::new(ROOT).join("unified")] {
        // Freezing needs no controller there.
        let enabled = match kind {
            Kind::Freezer => hierarchy.join("cgroup.controllers").exists(),
            Kind::Memory | Kind::Cpu => {
                fs::read_to_string(hierarchy.join("cgroup.subtree_control"))
                    .is_ok_and(|it| it.split_whitespace().any(|it| it == name))
            }
        };
        if enabled {
            return Ok((hierarchy, true));
        }
    }
    let v1 = Path::new(ROOT).join(name);
    if v1.join("cgroup.procs").exists() {
        return Ok((own(&v1, name), false));
    }
    Err(format!("no cgroup controller {name} here"))
}

/// Removes what a run has left that was ended from outside.
pub fn remove_leftovers() {
    for kind in [Kind::Freezer, Kind::Memory, Kind::Cpu] {
        if let Ok((path, _)) = place(kind) {
            remove(&path.join(format!("{NAME}-{}", kind.name())));
        }
    }
}

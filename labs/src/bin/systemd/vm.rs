//! A VM with a systemd of its own, and `leasehold.service` on it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::paths::root;
use testkit::process::{SOON, binary, eventually};

/// One box, gone when dropped.
pub(crate) struct Vm {
    pub(crate) name: String,
    dir: PathBuf,
}

fn script() -> PathBuf {
    root().join("scripts/systemd-box")
}

fn unit(name: &str) -> Vec<u8> {
    std::fs::read(root().join("systemd").join(name)).unwrap()
}

impl Vm {
    /// Boots one with the unit as it is in the repository, and these settings.
    pub(crate) fn boot(name: &str, dir: &Path, settings: &str) -> Result<Self, String> {
        let vm = Self { name: name.into(), dir: dir.into() };
        let output = vm.call("up", &[], &[]);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        vm.put_binary();
        vm.put("/etc/systemd/system/leasehold.service", 644, &unit("leasehold.service"));
        vm.put("/etc/systemd/system/leasehold@.service", 644, &unit("leasehold@.service"));
        vm.configure(settings);
        vm.run(&["systemctl", "daemon-reload"]);
        Ok(vm)
    }

    /// As an upgrade does: a new file under the old name, while the old one runs.
    pub(crate) fn put_binary(&self) {
        let new = "/usr/local/bin/leasehold.new";
        self.put(new, 755, &std::fs::read(binary()).unwrap());
        self.run(&["mv", new, "/usr/local/bin/leasehold"]);
    }

    /// Mode 600, as the example says.
    pub(crate) fn configure(&self, settings: &str) {
        self.run(&["mkdir", "-p", "/etc/leasehold"]);
        self.put("/etc/leasehold/leasehold.env", 600, settings.as_bytes());
    }

    fn call(&self, verb: &str, words: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(script());
        command.env("BOX_DIR", &self.dir).arg(verb).arg(&self.name).args(words);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        drop(child.stdin.take().unwrap().write_all(input));
        child.wait_with_output().unwrap()
    }

    /// Puts a file into it.
    pub(crate) fn put(&self, path: &str, mode: u32, bytes: &[u8]) {
        let line = format!("cat >{path} && chmod {mode} {path}");
        let output = self.call("exec", &["sh", "-c", &line], bytes);
        assert!(output.status.success(), "{path}: {output:?}");
    }

    pub(crate) fn try_run(&self, words: &[&str]) -> Output {
        self.call("exec", words, &[])
    }

    /// Runs a command in it, which must succeed; what it says.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        assert!(
            output.status.success(),
            "{}: {words:?}: {output:?}\n{}",
            self.name,
            self.journal()
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// How long that took.
    pub(crate) fn timed(&self, words: &[&str]) -> Duration {
        let began = Instant::now();
        self.run(words);
        began.elapsed()
    }

    pub(crate) fn property(&self, name: &str) -> String {
        self.run(&["systemctl", "show", "leasehold", "--value", "-p", name])
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str, wanted: impl Fn(&str) -> bool) {
        let get = || self.property(name);
        eventually(SOON * 4, &format!("{name} on {}", self.name), get, || wanted(&get()));
    }

    /// To the service's main process.
    pub(crate) fn signal(&self, signal: &str) -> Instant {
        let pid = self.property("MainPID");
        let at = Instant::now();
        self.run(&["kill", "-s", signal, &pid]);
        at
    }

    pub(crate) fn journal(&self) -> String {
        let words = ["journalctl", "-u", "leasehold", "-o", "cat", "--no-pager"];
        let output = self.try_run(&words);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The plug is pulled.
    pub(crate) fn off(&self) -> Instant {
        let at = Instant::now();
        assert!(self.call("off", &[], &[]).status.success());
        at
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.call("down", &[], &[]);
    }
}

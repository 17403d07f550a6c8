//! Does the unit do what it says, under a real systemd? `make systemd`: two minutes, as root.
//!
//! Five VMs, each with a systemd of its own (`scripts/systemd-box`), the unit as it is in the repository,
//! a Redis, and an endpoint that records every poll. Prints the table of docs/systemd.md.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod vm;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::vm::Vm;
use testkit::bounds::Verdict;
use testkit::measure::{Measured, Stalls, gaps};
use testkit::process::{Scene, TempDir, eventually, ms};

const VMS: usize = 5;
const ENDPOINTS: usize = 40;
const INSIDE: &str = "SYSTEMD_INSIDE";
/// Of the unit and of the settings.
const WATCHDOG: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_some() {
        return play();
    }
    let dir = TempDir::new();
    // Whatever is left in there ends with it.
    let line = "ip link set lo up && exec \"$0\" \"$@\"";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .args(["sh", "-c", line])
        .arg(std::env::current_exe().unwrap())
        .envs([(INSIDE, Path::new("1")), ("TMPDIR", dir.path())])
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        other => {
            println!("{other:?} (it needs root, unshare and ip)");
            ExitCode::FAILURE
        }
    }
}

/// The scene, who plays in it, and what came of it.
struct Lab {
    scene: Scene,
    stalls: Stalls,
    vms: Vec<Vm>,
    verdict: Verdict,
    rows: Vec<[String; 3]>,
}

fn play() -> ExitCode {
    let dir = TempDir::new();
    let scene = Scene::new(ENDPOINTS);
    let stalls = Stalls::watch(&scene.redis);
    let settings = settings(&scene);
    let vms: Result<Vec<Vm>, String> =
        (1..=VMS).map(|n| Vm::boot(&format!("vm{n}"), dir.path(), &settings)).collect();
    let vms = match vms {
        Ok(vms) => vms,
        Err(why) => {
            println!("no systemd can be booted here: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut lab = Lab { scene, stalls, vms, verdict: Verdict::default(), rows: Vec::new() };
    lab.start();
    lab.reload();
    lab.kill();
    lab.freeze();
    lab.restart();
    lab.upgrade();
    lab.stop_and_return();
    lab.pull_the_plug();
    lab.verdict.sound(&lab.scene.target);
    println!("\n| what | measured | bound |\n|---|---|---|");
    for [what, measured, bound] in &lab.rows {
        println!("| {what} | {measured} | {bound} |");
    }
    lab.verdict.code()
}

/// Default timings but for the interval of the polls.
fn settings(scene: &Scene) -> String {
    format!("LEASEHOLD_REDIS={}\nLEASEHOLD_INTERVAL=200ms\n", scene.redis.url())
}

impl Lab {
    /// Waits until those that run share everything, and every endpoint is polled.
    fn settle(&self, running: usize) {
        let counts = || {
            let owners = self.scene.owners();
            let hosts: BTreeSet<&String> = owners.values().collect();
            let of = |it: &&String| owners.values().filter(|owner| owner == it).count();
            (owners.len(), hosts.iter().map(of).collect::<Vec<usize>>())
        };
        let balanced = |(all, each): (usize, Vec<usize>)| {
            all == ENDPOINTS
                && each.len() == running
                && each.iter().all(|it| it.abs_diff(ENDPOINTS / running) <= 1)
        };
        let told = || format!("{:?}", counts());
        eventually(Duration::from_secs(60), "balance", told, || balanced(counts()));
        self.polled();
    }

    fn polled(&self) {
        let (endpoints, target) = (&self.scene.endpoints, &self.scene.target);
        target.wait_for_polls(endpoints, Instant::now(), Duration::from_secs(60));
    }

    fn owned_by(&self, vm: usize) -> Vec<String> {
        let name = format!("{}-", self.vms[vm].name);
        let owners = self.scene.owners().into_iter();
        owners.filter(|it| it.1.starts_with(&name)).map(|it| it.0).collect()
    }

    fn row(&mut self, what: &str, measured: &Measured, bound: Duration) {
        self.verdict.within(measured, bound);
        let text =
            format!("{} ms at most, {} ms in the median", measured.at(1.0), measured.at(0.5));
        self.rows.push([what.into(), text, format!("{bound:?}")]);
    }

    /// From `at` to the first poll of each of `endpoints` by another instance than those of `vm`.
    fn taken_over(&self, what: &str, vm: usize, endpoints: &[String], at: Instant) -> Measured {
        let name = format!("{}-", self.vms[vm].name);
        let mut measured = Measured::new(what);
        for endpoint in endpoints {
            let path = format!("/{endpoint}");
            let by_others = |it: &&testkit::target::Request| {
                it.path == path && it.start > at && !it.instance.starts_with(&name)
            };
            self.scene.target.wait_until(Duration::from_secs(90), what, |requests| {
                requests.iter().any(|it| by_others(&it))
            });
            let requests = self.scene.target.requests();
            let first = requests.iter().find(by_others).unwrap().start;
            measured.add(first - at, self.stalls.within(at..first), endpoint);
        }
        measured
    }

    /// From one poll of an endpoint to the next, of all since `began`.
    fn gaps(&self, what: &str, began: Instant) -> Measured {
        self.polled();
        let mut measured = Measured::new(what);
        for (path, span) in gaps(&self.scene.target.requests(), began) {
            measured.add(span.end - span.start, self.stalls.within(span.clone()), path);
        }
        measured
    }

    /// `systemctl start` returns with READY=1.
    fn start(&mut self) {
        let mut measured = Measured::new("start to READY");
        let new_fleet = format!("{}LEASEHOLD_NEW_FLEET=on\n", settings(&self.scene));
        self.vms[0].configure(&new_fleet);
        for vm in &self.vms {
            let began = Instant::now();
            let took = vm.timed(&["systemctl", "start", "leasehold"]);
            measured.add(took, self.stalls.within(began..Instant::now()), &vm.name);
            assert_eq!(vm.property("SubState"), "running");
        }
        self.vms[0].configure(&settings(&self.scene));
        self.row("`systemctl start` → `READY=1`", &measured, ms(3_000));
        self.settle(VMS);
        self.vms[1]
            .wait_for("StatusText", |it| it == "polling 8 of 40 endpoints; 5 instances; Redis ok");
        println!("status: {}", self.vms[1].property("StatusText"));
        let vm = &self.vms[1];
        vm.run(&["systemctl", "is-active", "leasehold"]);
        let exposure = vm.run(&["systemd-analyze", "security", "--no-pager", "leasehold"]);
        println!("{}", exposure.lines().last().unwrap_or_default());
        // Priorities are taken off again, and can be asked for.
        assert!(!vm.journal().contains("<6>"), "{}", vm.journal());
        let quiet = ["journalctl", "-u", "leasehold", "-o", "cat", "-p", "warning", "--no-pager"];
        assert!(!vm.run(&quiet).contains(" INFO "), "{}", vm.run(&quiet));
        let all = ["journalctl", "-u", "leasehold", "-o", "cat", "-p", "info", "--no-pager"];
        assert!(vm.run(&all).contains("event=lease.acquired"));
    }

    /// From a file that only root may read.
    fn reload(&mut self) {
        let vm = &self.vms[1];
        vm.configure(&format!(
            "{}LEASEHOLD_WEIGHT=3\nLEASEHOLD_PREFIX=no\n",
            settings(&self.scene)
        ));
        let pid = vm.property("MainPID");
        vm.run(&["systemctl", "reload", "leasehold"]);
        let told = || vm.journal();
        eventually(SECOND * 5, "a reload", told, || told().contains("changed=--weight"));
        assert!(told().contains("event=daemon.needs_restart"), "{}", told());
        assert!(told().contains("options=--prefix"), "{}", told());
        vm.wait_for("SubState", |it| it == "running");
        assert_eq!(vm.property("MainPID"), pid);
        eventually(SECOND * 10, "three shares of seven", told, || self.owned_by(1).len() >= 16);
        vm.configure(&settings(&self.scene));
        vm.run(&["systemctl", "reload", "leasehold"]);
        self.settle(VMS);
        let text = "the weight changes, in the same process; `--prefix` is named".into();
        self.rows.push(["`systemctl reload`".into(), text, String::new()]);
    }

    fn kill(&mut self) {
        let owned = self.owned_by(1);
        let at = self.vms[1].signal("KILL");
        let what = "`kill -9` → another VM polls";
        let measured = self.taken_over(what, 1, &owned, at);
        self.row(what, &measured, SECOND);
        self.vms[1].wait_for("NRestarts", |it| it == "1");
        self.settle(VMS);
    }

    fn freeze(&mut self) {
        let owned = self.owned_by(2);
        let at = self.vms[2].signal("STOP");
        let what = "SIGSTOP → the watchdog ends it → another VM polls";
        let measured = self.taken_over(what, 2, &owned, at);
        self.row(what, &measured, WATCHDOG + SECOND);
        self.vms[2].wait_for("NRestarts", |it| it == "1");
        let journal = self.vms[2].run(&["journalctl", "--no-pager", "-u", "leasehold"]);
        assert!(journal.contains("Watchdog timeout"), "{journal}");
        self.settle(VMS);
    }

    fn restart(&mut self) {
        let began = Instant::now();
        self.vms[3].run(&["systemctl", "restart", "leasehold"]);
        self.settle(VMS);
        let what = "`systemctl restart` → longest time without a poll";
        let measured = self.gaps(what, began);
        self.row(what, &measured, SECOND);
    }

    /// A new binary and a restart, one VM after the other, each as soon as the one before is ready.
    fn upgrade(&mut self) {
        let began = Instant::now();
        for vm in &self.vms {
            vm.put_binary();
            vm.run(&["systemctl", "restart", "leasehold"]);
        }
        println!("measured: all upgraded in {:?}", began.elapsed());
        self.settle(VMS);
        let what = "upgrade of all five, one after the other → longest time without a poll";
        let measured = self.gaps(what, began);
        self.row(what, &measured, SECOND);
    }

    fn stop_and_return(&mut self) {
        let began = Instant::now();
        let vm = &self.vms[3];
        vm.run(&["systemctl", "stop", "leasehold"]);
        assert_eq!(vm.property("Result"), "success");
        assert!(!vm.try_run(&["test", "-e", "/run/leasehold/settings"]).status.success());
        // Two on one VM, each with settings of its own.
        vm.put("/etc/leasehold/a.env", 600, b"LEASEHOLD_WEIGHT=2\n");
        vm.run(&["systemctl", "start", "leasehold@a", "leasehold@b"]);
        eventually(SECOND * 15, "a larger share", String::new, || self.owned_by(3).len() >= 15);
        vm.run(&["systemctl", "stop", "leasehold@a", "leasehold@b"]);
        vm.run(&["systemctl", "start", "leasehold"]);
        self.settle(VMS);
        let what = "stop, two instances of `leasehold@`, stop, start → longest time without a poll";
        let measured = self.gaps(what, began);
        self.row(what, &measured, SECOND);
    }

    fn pull_the_plug(&mut self) {
        let owned = self.owned_by(4);
        let at = self.vms[4].off();
        let what = "the VM is gone → another VM polls";
        let measured = self.taken_over(what, 4, &owned, at);
        self.row(what, &measured, TTL + ms(500));
        self.settle(VMS - 1);
    }
}

//! A process is killed, stopped, starved, or left without what it needs.

use std::fs;
use std::process::Command;

use crate::lab::{LONG, Lab, RECOVERY, Setup, TAKEOVER};
use testkit::lab::apart::find;
use testkit::lab::groups::{Group, Kind, Neighbour};
use testkit::lab::net::Net;
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{TTL, TempDir, ms};

pub(crate) const SCENES: &[Scenario] = &[
    ("sigkill", "an instance is killed, and another started", sigkill),
    ("power-cut", "all instances are killed at once, and started again", power_cut),
    ("sigstop", "an instance is stopped for longer than a lease, and goes on", sigstop),
    ("sigstop-short", "an instance is stopped for half a lease", sigstop_short),
    ("freeze", "an instance's cgroup is frozen for longer than a lease", freeze),
    ("oom-kill", "the kernel kills an instance for its memory", oom_kill),
    ("starved", "an instance has 2 % of a CPU, and neighbours that want it, too", starved),
    ("descriptors", "an instance has no file descriptors left", descriptors),
    ("stderr-closed", "nobody reads an instance's log any more", stderr_closed),
    ("disk-full", "the disk with an instance's log and state is full", disk_full),
];

fn sigkill(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    let url = lab.url();
    lab.fault();
    lab.fleet.remove(0).kill9();
    lab.pass(LONG);
    lab.start(0, &[], &url, &[]);
    lab.healed();
    Ok(lab.judge(TAKEOVER))
}

fn power_cut(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    let url = lab.url();
    lab.fault();
    lab.fleet.iter_mut().for_each(|it| it.kill9());
    lab.fleet.clear();
    (0..3).for_each(|n| lab.start(n, &[], &url, &[]));
    lab.healed();
    Ok(lab.judge(TAKEOVER + RECOVERY))
}

fn sigstop(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.fleet[0].freeze();
    lab.pass(LONG);
    lab.fleet[0].thaw();
    lab.healed();
    Ok(lab.judge(TAKEOVER))
}

fn sigstop_short(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.fleet[0].freeze();
    lab.pass(TTL / 2);
    lab.fleet[0].thaw();
    lab.healed();
    let lost = lab.said(0, "event=lease.lost");
    lab.expect(lost == 0, format!("{lost} leases were lost"));
    Ok(lab.judge(TTL / 2 + ms(1_500)))
}

/// The machine 0's instance in a group of its own.
fn grouped<'a>(net: Option<&'a Net>, group: &Group) -> Lab<'a> {
    let join = format!("echo 0 >{} && exec \"$@\"", group.door());
    Lab::with(net, &Setup { wrapper: &["sh", "-c", &join, "sh"], ..Setup::default() })
}

fn freeze(net: Option<&Net>) -> Result<Verdict, String> {
    let group = Group::new(Kind::Freezer)?;
    let mut lab = grouped(net, &group);
    lab.fault();
    group.freeze(true);
    lab.pass(LONG);
    group.freeze(false);
    lab.healed();
    Ok(lab.judge(TAKEOVER))
}

fn oom_kill(net: Option<&Net>) -> Result<Verdict, String> {
    let group = Group::new(Kind::Memory)?;
    group.limit_memory(64 << 20);
    let mut lab = grouped(net, &group);
    let (url, pid) = (lab.url(), lab.fleet[0].pid());
    // So that the kernel chooses it, and not who takes the memory.
    fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").unwrap();
    lab.fault();
    let greedy = Neighbour::start(&group, "exec tail /dev/zero");
    let status = lab.fleet.remove(0).wait();
    drop(greedy);
    lab.expect(!status.success(), format!("it ended with {status}"));
    lab.pass(LONG);
    lab.start(0, &[], &url, &[]);
    lab.healed();
    Ok(lab.judge(TAKEOVER))
}

/// It may be too slow to poll and still fast enough to renew, now and then.
fn starved(net: Option<&Net>) -> Result<Verdict, String> {
    let group = Group::new(Kind::Cpu)?;
    let mut lab = grouped(net, &group);
    lab.fault();
    let neighbours = [(); 3].map(|()| Neighbour::start(&group, "while :; do :; done"));
    group.limit_cpu(Some(2_000));
    lab.pass(3 * TTL);
    group.limit_cpu(None);
    drop(neighbours);
    lab.healed();
    Ok(lab.judge(TAKEOVER + TTL))
}

fn descriptors(net: Option<&Net>) -> Result<Verdict, String> {
    find("prlimit").ok_or("prlimit is not installed (package util-linux)")?;
    let mut lab = Lab::new(net);
    let pid = lab.fleet[0].pid().to_string();
    let limit = |n: &str| {
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={n}:")]).status();
        assert!(set.unwrap().success());
    };
    lab.fault();
    limit("4");
    lab.pass(LONG);
    limit("1024");
    lab.healed();
    // It polls nothing, but can renew on the connections it has: no longer than it is out of them.
    Ok(lab.judge(LONG + RECOVERY))
}

fn stderr_closed(net: Option<&Net>) -> Result<Verdict, String> {
    find("bash").ok_or("bash is not installed")?;
    // The reader goes away after a few lines.
    let wrapper = ["bash", "-c", "exec \"$@\" 2> >(head -n 3 >&2)", "bash"];
    let mut lab = Lab::with(net, &Setup { wrapper: &wrapper, ..Setup::default() });
    lab.fault();
    lab.pass(LONG);
    lab.healed();
    Ok(lab.judge(ms(1_500)))
}

fn disk_full(net: Option<&Net>) -> Result<Verdict, String> {
    net.ok_or("needs mounts of its own")?;
    let disk = TempDir::new();
    let path = disk.path().display().to_string();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &path]).status();
    assert!(mount.unwrap().success());
    let keep = format!("exec \"$@\" --runtime-dir={path} --log-level=trace 2>>{path}/log");
    let setup = Setup { wrapper: &["sh", "-c", &keep, "sh"], ..Setup::default() };
    let mut lab = Lab::with(net, &setup);
    lab.fault();
    // With whatever fits.
    drop(Command::new("dd").args(["if=/dev/zero", &format!("of={path}/fill")]).output());
    lab.pass(LONG);
    lab.healed();
    let verdict = lab.judge(ms(1_500));
    drop(Command::new("umount").arg(&path).status());
    Ok(verdict)
}

//! `lead` and `once` are killed: their supervisor ends the command, and gives the role back as soon as that is safe (R12).
//!
//! The TTL is 30 s in most tests, so that a role that is free sooner was given back by the supervisor.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use testkit::lead::{Hosts, TTL, is_alive, leading, send, supervisor_of, wait_for_death, wall_ns};
use testkit::process::{Instance, SOON, binary, eventually, ms};
use testkit::proxy::Proxy;
use testkit::redis::USER_PASSWORD;

const LONG: &str = "--lease-ttl=30s";
/// Far below the TTL, on a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(5);
const FREE: &str = "(nil)";

#[track_caller]
fn wait_until_free(hosts: &Hosts) {
    eventually(AT_ONCE, "a free role", || hosts.leader(), || hosts.leader() == FREE);
    assert_eq!(hosts.redis.cli(&["KEYS", "leader:heartbeat:*"]), "", "its heartbeat goes with it");
}

/// A supervisor that has ended can release nothing any more.
#[track_caller]
fn assert_kept(hosts: &Hosts, supervisor: u32, leader: &str) {
    eventually(SOON, "the supervisor's end", String::new, || !is_alive(supervisor));
    assert_eq!(hosts.leader(), leader);
}

/// The kernel lets a frozen process group go on when the last parent outside of it dies, so the supervisor may be gone by now. That
/// holds only for a group that has stopped by then.
fn thaw(supervisor: u32) {
    let _ = kill(Pid::from_raw(i32::try_from(supervisor).unwrap()), Signal::SIGCONT);
}

fn once(hosts: &Hosts, args: &[&str], script: &str) -> Instance {
    let mut once = Command::new(binary());
    once.args(["once", "job", LONG, &format!("--redis={}", hosts.redis.url())]).args(args);
    Instance::spawn(once.args(["--", "sh", "-c", script]))
}

/// Waits until the script of this host has written its process id to the file `pid`.
#[track_caller]
fn pid(hosts: &Hosts) -> u32 {
    let read = || fs::read_to_string(hosts.file("pid")).unwrap_or_default().trim().parse().ok();
    eventually(SOON, "the command", String::new, || read().is_some());
    read().unwrap()
}

/// Writes its process id to the file `pid`, and runs until there is a file `go`, or for ever.
fn until_go(hosts: &Hosts, code: u8) -> String {
    let (pid, go) = (hosts.file("pid"), hosts.file("go"));
    format!(
        "echo $$ >{}; until [ -e {} ]; do sleep 0.02; done; exit {code}",
        pid.display(),
        go.display()
    )
}

/// "the `lead` child is started on another host ≤ 1 s after SIGKILL of `leasehold`".
#[test]
fn a_killed_lead_is_replaced_at_once_and_never_by_two() {
    let hosts = Hosts::new();
    let mut fleet: Vec<Instance> = (0..3).map(|_| hosts.lead(&[LONG])).collect();
    for n in 0..3 {
        hosts.wait_for_life(n);
        let leader = leading(&hosts, &fleet);
        for other in (0..3).filter(|it| *it != leader) {
            fleet[other].wait_for("event=leader.follower");
        }
        let killed_ns = wall_ns();
        fleet[leader].kill9();
        let next_ns = hosts.wait_for_life(n + 1).first_ns;
        let took = Duration::from_nanos(next_ns - killed_ns);
        println!("from SIGKILL to the next command: {took:?}");
        assert!(took <= AT_ONCE, "{took:?}");
        fleet[leader] = hosts.lead(&[LONG]);
    }
    hosts.longest_vacancy();
}

/// The role is no other host's before the last process of the group is dead, however long that takes.
#[test]
fn a_command_that_is_deaf_to_term_is_killed_before_its_role_is_given_back() {
    let hosts = Hosts::new();
    let script = format!("trap '' TERM; {}", until_go(&hosts, 0));
    let args = [LONG, "--drain-timeout=1s"];
    let mut host = hosts.lead_with(&hosts.redis.url(), &args, &["sh", "-c", &script]);
    let command = pid(&hosts);
    let killed = Instant::now();
    host.kill9();
    wait_until_free(&hosts);
    assert!(!is_alive(command), "the role is free, and the command runs");
    assert!(killed.elapsed() >= ms(950), "{:?}: not before its time", killed.elapsed());
}

#[test]
fn a_lead_that_is_killed_together_with_its_command_gives_the_role_back() {
    let hosts = Hosts::new();
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&hosts.redis.url(), &[LONG], &["sh", "-c", &script]);
    let (command, supervisor) = (pid(&hosts), supervisor_of(&host));
    send(supervisor, Signal::SIGSTOP);
    send(command, Signal::SIGKILL);
    host.kill9();
    thaw(supervisor);
    wait_until_free(&hosts);
}

/// The supervisor may notice the end of the command before that of `leasehold`.
#[test]
fn a_lead_that_dies_right_after_its_command_gives_the_role_back() {
    let hosts = Hosts::new();
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&hosts.redis.url(), &[LONG], &["sh", "-c", &script]);
    let command = pid(&hosts);
    host.freeze();
    fs::write(hosts.file("go"), "").unwrap();
    wait_for_death(command);
    host.kill9();
    wait_until_free(&hosts);
}

/// R12: its threads may go on at any moment, and then believe that they lead.
#[test]
fn a_frozen_lead_keeps_its_role_when_its_command_ends() {
    let hosts = Hosts::new();
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&hosts.redis.url(), &[LONG], &["sh", "-c", &script]);
    let (command, supervisor) = (pid(&hosts), supervisor_of(&host));
    let leader = hosts.leader();
    host.freeze();
    fs::write(hosts.file("go"), "").unwrap();
    wait_for_death(command);
    assert_kept(&hosts, supervisor, &leader);
    host.thaw();
    assert!(host.wait().success());
    assert_eq!(hosts.leader(), FREE, "given up by itself");
}

/// R4: the same owner may lead again by the time at which the release is executed.
#[test]
fn a_later_term_of_the_same_leader_is_not_released() {
    let hosts = Hosts::new();
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&hosts.redis.url(), &[LONG], &["sh", "-c", &script]);
    let supervisor = (pid(&hosts), supervisor_of(&host)).1;
    let leader = hosts.leader();
    let term: u64 = hosts.redis.cli(&["HGET", "leader:epoch", "term:job"]).parse().unwrap();
    host.freeze();
    hosts.redis.cli(&["HSET", "leader:epoch", "term:job", &(term + 1).to_string()]);
    host.kill9();
    assert_kept(&hosts, supervisor, &leader);
}

/// The command sees neither, and the supervisor needs both.
#[test]
fn the_supervisor_has_the_password_where_the_command_cannot_see_it() {
    let hosts = Hosts::new();
    let url = hosts.redis.give_rule("elector");
    // Nobody else may release.
    assert_eq!(hosts.redis.cli(&["ACL", "SETUSER", "default", "-del"]), "OK");
    let seen = hosts.file("seen");
    let script = format!(
        "cat /proc/self/environ /proc/$PPID/environ /proc/$PPID/cmdline >{}; {}",
        seen.display(),
        until_go(&hosts, 0)
    );
    let mut lead = Command::new(binary());
    lead.args(["lead", "job", LONG, "--", "sh", "-c", &script]).env("LEASEHOLD_REDIS", url);
    let mut host = Instance::spawn_with_env(&mut lead);
    pid(&hosts);
    let seen = String::from_utf8_lossy(&fs::read(seen).unwrap()).into_owned();
    assert!(seen.contains("LEASEHOLD_ROLE=job") && seen.contains("supervisor"), "{seen:?}");
    assert!(!seen.contains(USER_PASSWORD), "{seen:?}");
    host.kill9();
    wait_until_free(&hosts);
}

#[test]
fn a_release_waits_for_redis_to_come_back() {
    let hosts = Hosts::new();
    let proxy = Proxy::start(hosts.redis.port());
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&proxy.url(), &[LONG], &["sh", "-c", &script]);
    let (command, supervisor) = (pid(&hosts), supervisor_of(&host));
    proxy.cut();
    host.kill9();
    wait_for_death(command);
    let cut = Instant::now();
    while cut.elapsed() < ms(700) {
        assert!(is_alive(supervisor), "gave up after {:?}", cut.elapsed());
        let _ = crossbeam_channel::never::<()>().recv_timeout(ms(20));
    }
    assert_ne!(hosts.leader(), FREE);
    proxy.heal();
    wait_until_free(&hosts);
    eventually(AT_ONCE, "the supervisor's end", String::new, || !is_alive(supervisor));
}

/// No further attempt could succeed.
#[test]
fn a_supervisor_whose_redis_user_was_deleted_gives_up_at_once() {
    let hosts = Hosts::new();
    let url = hosts.redis.give_rule("elector");
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&url, &[LONG], &["sh", "-c", &script]);
    let supervisor = (pid(&hosts), supervisor_of(&host)).1;
    let leader = hosts.leader();
    host.freeze();
    hosts.redis.cli(&["ACL", "DELUSER", "elector"]);
    host.kill9();
    assert_kept(&hosts, supervisor, &leader);
}

/// Then the role has expired by itself.
#[test]
fn a_supervisor_gives_up_when_the_right_of_its_leader_is_over() {
    let hosts = Hosts::new();
    let proxy = Proxy::start(hosts.redis.port());
    let script = until_go(&hosts, 0);
    let mut host = hosts.lead_with(&proxy.url(), &[], &["sh", "-c", &script]);
    let supervisor = (pid(&hosts), supervisor_of(&host)).1;
    proxy.cut();
    host.kill9();
    let limit = TTL + Duration::from_secs(2);
    eventually(limit, "the supervisor's end", String::new, || !is_alive(supervisor));
}

#[test]
fn a_killed_once_gives_its_role_back_at_once() {
    let hosts = Hosts::new();
    let mut host = once(&hosts, &[], &until_go(&hosts, 0));
    pid(&hosts);
    host.kill9();
    wait_until_free(&hosts);
}

/// A VM whose clock is behind would run the job again.
#[test]
fn a_killed_once_keeps_its_role_for_as_long_as_it_promised() {
    let hosts = Hosts::new();
    let mut host = once(&hosts, &["--at-least-for=10m"], &until_go(&hosts, 0));
    let supervisor = (pid(&hosts), supervisor_of(&host)).1;
    let leader = hosts.leader();
    host.kill9();
    assert_kept(&hosts, supervisor, &leader);
}

#[test]
fn a_killed_once_gives_its_role_back_when_its_promise_is_kept() {
    let hosts = Hosts::new();
    let began = Instant::now();
    let mut host = once(&hosts, &["--at-least-for=3s"], &until_go(&hosts, 0));
    let command = pid(&hosts);
    host.kill9();
    wait_for_death(command);
    wait_until_free(&hosts);
    assert!(began.elapsed() >= ms(3_000), "{:?}", began.elapsed());
}

/// `--retry`: the promise is for a success. The command of a killed `once` may have succeeded right before.
#[test]
fn with_retry_a_killed_once_keeps_its_role_only_for_a_success() {
    for (code, kept) in [(0, true), (3, false)] {
        let hosts = Hosts::new();
        let args = ["--at-least-for=10m", "--retry=1"];
        let mut host = once(&hosts, &args, &until_go(&hosts, code));
        let (command, supervisor) = (pid(&hosts), supervisor_of(&host));
        let leader = hosts.leader();
        send(supervisor, Signal::SIGSTOP);
        fs::write(hosts.file("go"), "").unwrap();
        wait_for_death(command);
        host.kill9();
        thaw(supervisor);
        if kept {
            assert_kept(&hosts, supervisor, &leader);
        } else {
            wait_until_free(&hosts);
        }
    }
}

/// With an exit code of 0, too: a command that was told to end has not done its work.
#[test]
fn with_retry_a_killed_once_gives_the_role_of_a_command_that_it_ended_back() {
    let hosts = Hosts::new();
    let script = format!("trap 'exit 0' TERM; {}", until_go(&hosts, 0));
    let mut host = once(&hosts, &["--at-least-for=10m", "--retry=1"], &script);
    pid(&hosts);
    host.kill9();
    wait_until_free(&hosts);
}

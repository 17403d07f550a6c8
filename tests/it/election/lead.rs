//! `leasehold lead` on real processes and a real Redis. The judge is what the command itself wrote down.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use testkit::lead::{Hosts, PACE, TTL, is_alive, kill_with_supervisor, leading, wait_for_death};
use testkit::pids::{all_gone, pids};
use testkit::process::{Instance, SOON, TempDir, binary, eventually, leasehold, ms};
use testkit::proxy::Proxy;

const SECOND: Duration = Duration::from_secs(1);

fn resign(hosts: &Hosts) -> String {
    let redis = format!("--redis={}", hosts.redis.url());
    let done = leasehold(&["resign", "job", &redis]);
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// "over twenty kills, freezes and resigns, no two children's lifetimes overlap and the longest
/// vacancy is within TTL + 1 s for kills, 1 s for resigns".
#[test]
fn twenty_one_kills_freezes_and_resigns_never_two_at_once() {
    let hosts = Hosts::new();
    let mut fleet: Vec<Instance> = (0..3).map(|_| hosts.lead(&[])).collect();
    hosts.wait_for_life(0);
    let mut longest = [Duration::ZERO; 3];
    for n in 0..21 {
        let before = hosts.wait_for_life(n);
        let leader = leading(&hosts, &fleet);
        match n % 3 {
            0 => {
                fleet[leader].kill9();
                wait_for_death(before.pid);
                fleet[leader] = hosts.lead(&[]);
            }
            1 => fleet[leader].freeze(),
            _ => drop(resign(&hosts)),
        }
        let after = hosts.wait_for_life(n + 1);
        if n % 3 == 1 {
            fleet[leader].thaw();
        }
        assert!(before.last_ns < after.first_ns, "{before:?} {after:?}");
        let before = hosts.lives().into_iter().find(|it| it.term == before.term).unwrap();
        let vacancy = Duration::from_nanos(after.first_ns - before.last_ns);
        longest[n % 3] = longest[n % 3].max(vacancy);
    }
    hosts.longest_vacancy();
    println!("longest vacancy after kills, freezes, resigns: {longest:?}");
    assert!(longest[0] <= TTL + SECOND, "after a kill {longest:?}");
    assert!(longest[1] <= TTL + SECOND, "after a freeze {longest:?}");
    assert!(longest[2] <= SECOND, "after a resignation {longest:?}");
}

#[test]
fn a_redis_that_hangs_for_longer_than_the_ttl_ends_the_command_first() {
    let hosts = Hosts::new();
    let _fleet: Vec<Instance> = (0..3).map(|_| hosts.lead(&[])).collect();
    let before = hosts.wait_for_life(0);
    hosts.redis.pause();
    // The last renewal may just have been answered.
    let limit = TTL + SECOND;
    eventually(limit, "the end of the command", String::new, || !is_alive(before.pid));
    hosts.redis.resume();
    let resumed = Instant::now();
    hosts.wait_for_life(1);
    let waited = resumed.elapsed();
    assert!(waited <= 2 * SECOND, "{waited:?} after the end of the outage");
    hosts.longest_vacancy();
}

/// R6: the leader has it back before anybody else could have it, and the command goes on.
#[test]
fn a_redis_that_restarts_empty_does_not_disturb_the_command() {
    let mut hosts = Hosts::new();
    let fleet: Vec<Instance> = (0..3).map(|_| hosts.lead(&[])).collect();
    let before = hosts.wait_for_life(0);
    let leader = leading(&hosts, &fleet);
    hosts.redis.restart_empty();
    fleet[leader].wait_for("event=leader.reclaimed");
    hosts.wait_for_work(Instant::now());
    let lives = hosts.lives();
    assert_eq!((lives.len(), lives[0].term, lives[0].pid), (1, before.term, before.pid));
    // An operator who kills it in the hold-off waits for the hold-off to end; there are never two leaders.
    resign(&hosts);
    let after = hosts.wait_for_life(1);
    assert!(hosts.longest_vacancy() <= TTL + TTL / 2 + SECOND, "{before:?} {after:?}");
}

#[test]
fn a_leader_that_is_cut_off_ends_its_command_before_another_starts_one() {
    let hosts = Hosts::new();
    let proxy = Proxy::start(hosts.redis.port());
    let first = hosts.lead_at(&proxy.url(), &[]);
    let before = hosts.wait_for_life(0);
    let _others: Vec<Instance> = (0..2).map(|_| hosts.lead(&[])).collect();
    proxy.cut();
    let after = hosts.wait_for_life(1);
    assert!(!is_alive(before.pid), "{after:?}");
    first.wait_for("event=leader.lost");
    proxy.heal();
    let vacancy = hosts.longest_vacancy();
    assert!(vacancy <= TTL + SECOND, "{vacancy:?}");
}

#[test]
fn a_higher_priority_takes_over_gracefully_and_an_equal_one_does_not() {
    let hosts = Hosts::new();
    let low = hosts.lead(&[]);
    let first = hosts.wait_for_life(0);
    let equal = hosts.lead(&[]);
    equal.wait_for("event=leader.follower");
    let high = hosts.lead(&["--priority=10"]);
    let second = hosts.wait_for_life(1);
    high.wait_for("event=leader.elected");
    assert!(low.says("event=leader.resigned"));
    assert!(!low.says("event=leader.lost"));
    assert!(!is_alive(first.pid));
    let vacancy = hosts.longest_vacancy();
    assert!(vacancy <= SECOND, "{vacancy:?}");
    // The same priority as the leader's is no reason to move.
    let rival = hosts.lead(&["--priority=10"]);
    rival.wait_for("event=leader.follower");
    hosts.wait_for_work(Instant::now() + PACE);
    assert_eq!(hosts.lives().last().map(|it| it.pid), Some(second.pid));
}

#[test]
fn an_observer_never_leads() {
    let hosts = Hosts::new();
    let observer = hosts.lead(&["--no-candidate"]);
    let mut leader = hosts.lead(&[]);
    hosts.wait_for_life(0);
    assert!(leader.term().code() == Some(128 + 15));
    eventually(SOON, "a vacant role", || hosts.leader(), || hosts.leader() == "(nil)");
    hosts.lead(&[]).wait_for("event=leader.elected");
    assert!(!observer.says("event=leader.elected") && !observer.says("event=leader.candidate"));
}

#[test]
fn a_stop_hands_over_at_once_and_waits_for_the_command() {
    let hosts = Hosts::new();
    let mut fleet: Vec<Instance> = (0..2).map(|_| hosts.lead(&[])).collect();
    hosts.wait_for_life(0);
    let leader = leading(&hosts, &fleet);
    let ended = fleet[leader].term();
    assert_eq!(ended.code(), Some(128 + 15), "the command died of the signal that was passed on");
    hosts.wait_for_life(1);
    let vacancy = hosts.longest_vacancy();
    assert!(vacancy <= SECOND, "{vacancy:?}");
}

#[test]
fn one_that_follows_stops_at_once_with_success() {
    let hosts = Hosts::new();
    let _leader = hosts.lead(&[]);
    hosts.wait_for_life(0);
    // More than once: right after it has begun to follow, a signal may meet it anywhere.
    for _ in 0..10 {
        let mut follower = hosts.lead(&[]);
        follower.wait_for("event=leader.follower");
        assert!(follower.term().success());
    }
}

#[test]
fn a_lost_host_leaves_no_process_behind() {
    let hosts = Hosts::new();
    let mut leader = hosts.lead(&[]);
    let life = hosts.wait_for_life(0);
    leader.kill9();
    wait_for_death(life.pid);
}

/// R12: with a runtime directory, as under systemd, `release` proves the death of the leader and of its
/// command, and the next host need not wait for the TTL. The supervisor is gone, too: alone it would have released the role.
#[test]
fn after_a_kill_release_hands_over_at_once() {
    let hosts = Hosts::new();
    let dir = TempDir::new();
    let runtime = dir.option("runtime-dir");
    let mut first = hosts.lead(&[&runtime]);
    let before = hosts.wait_for_life(0);
    let second = hosts.lead(&[]);
    second.wait_for("event=leader.follower");
    kill_with_supervisor(&mut first);
    let done = leasehold(&["release", &runtime, &format!("--redis={}", hosts.redis.url())]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("and 1 role of"), "{done:?}");
    hosts.wait_for_life(1);
    assert!(!is_alive(before.pid));
    let vacancy = hosts.longest_vacancy();
    assert!(vacancy <= SECOND, "{vacancy:?}");
}

#[test]
fn started_while_redis_is_away_it_waits_for_it() {
    let mut hosts = Hosts::new();
    hosts.redis.kill();
    let host = hosts.lead(&["--new-fleet"]);
    host.wait_for("event=store.unreachable");
    hosts.redis.restart_empty();
    host.wait_for("event=store.reachable");
    hosts.wait_for_life(0);
}

#[test]
fn another_ttl_than_the_roles_is_refused_with_both() {
    let hosts = Hosts::new();
    let _leader = hosts.lead(&[]);
    hosts.wait_for_life(0);
    let mut other = hosts.lead(&["--lease-ttl=4s"]);
    assert_eq!(other.wait().code(), Some(1));
    let said = other.log().join("\n");
    for part in ["4000ms", "3000ms", "HDEL leader:epoch lease_ttl_ms:job"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The code of a command that ends by itself; the role is free at once.
fn code_of(hosts: &Hosts, command: &[&str]) -> i32 {
    let mut host = hosts.lead_with(&hosts.redis.url(), &[], command);
    let code = host.wait().code().unwrap();
    assert_eq!(hosts.leader(), "(nil)", "given up at the end");
    code
}

#[test]
fn the_commands_own_exit_code_is_passed_on() {
    let hosts = Hosts::new();
    assert_eq!(code_of(&hosts, &["sh", "-c", "exit 0"]), 0);
    assert_eq!(code_of(&hosts, &["sh", "-c", "exit 42"]), 42);
    assert_eq!(code_of(&hosts, &["sh", "-c", "kill -KILL $$"]), 128 + 9);
    assert_eq!(code_of(&hosts, &["/nonexistent"]), 127);
    let own = r#"test "$LEASEHOLD_ROLE" = job && test "$LEASEHOLD_TERM" -gt 0"#;
    assert_eq!(code_of(&hosts, &["sh", "-c", own]), 0, "role and term in the environment");
}

/// Everything that the surroundings say, except what Leasehold sets itself and what may hold a password.
#[test]
fn the_command_of_lead_and_once_has_the_environment_of_leasehold() {
    let hosts = Hosts::new();
    let url = hosts.redis.url();
    for verb in ["lead", "once"] {
        let file = hosts.file(verb);
        let mut command = Command::new(binary());
        command.args([verb, "job", "--redis", &url, "--", "sh", "-c"]);
        command.arg(format!("env >{}", file.display()));
        command.env("OF_THE_JOB", "kept as it is").env("LEASEHOLD_WORKERS", "3");
        command.env("LEASEHOLD_REDIS", "redis://:hunter2@h/0").env("LEASEHOLD_ROLE", "forged");
        command.env("LEASEHOLD_TERM", "1").env("LEASEHOLD_INSTANCE", "forged");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let env = std::fs::read_to_string(file).unwrap();
        for line in ["OF_THE_JOB=kept as it is", "LEASEHOLD_WORKERS=3", "LEASEHOLD_ROLE=job"] {
            assert_eq!(env.lines().filter(|it| *it == line).count(), 1, "{verb}: {line}: {env}");
        }
        for name in ["LEASEHOLD_TERM", "LEASEHOLD_INSTANCE"] {
            assert_eq!(env.matches(&format!("{name}=")).count(), 1, "{verb}: {env}");
        }
        let own = !env.contains("forged") && !env.contains("LEASEHOLD_TERM=1\n");
        assert!(own && !env.contains("hunter2"), "{verb}: {env}");
    }
}

#[test]
fn a_command_that_ends_is_started_again_if_so_wished() {
    let hosts = Hosts::new();
    let log = hosts.file("starts");
    let start = format!("echo $LEASEHOLD_TERM >>{}; exit 3", log.display());
    let mut host = hosts.lead_with(&hosts.redis.url(), &["--restart"], &["sh", "-c", &start]);
    let starts = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually(SOON, "three starts", starts, || starts().lines().count() >= 3);
    let terms = starts();
    assert!(terms.lines().all(|it| Some(it) == terms.lines().next()), "one term: {terms}");
    assert_eq!(host.term().code(), Some(3));
}

#[test]
fn signals_are_passed_on_by_name() {
    let hosts = Hosts::new();
    let log = hosts.file("signals");
    let traps = format!(
        "for s in HUP USR1 USR2 QUIT INT; do trap \"echo $s >>{0}\" $s; done; \
         trap 'echo TERM >>{0}; exit 5' TERM; echo ready >>{0}; while :; do sleep 0.05; done",
        log.display()
    );
    let mut host = hosts.lead_with(&hosts.redis.url(), &[], &["sh", "-c", &traps]);
    let heard = || std::fs::read_to_string(&log).unwrap_or_default();
    let wait_for = |word: &str| {
        eventually(SOON, word, heard, || heard().lines().any(|it| it == word));
    };
    wait_for("ready");
    for (signal, name) in [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGTERM, "TERM"),
    ] {
        host.signal(signal);
        wait_for(name);
    }
    assert_eq!(host.wait().code(), Some(5));
}

/// TERM, then KILL: a command that will not go does not keep the role from moving for ever.
#[test]
fn a_stubborn_command_is_killed_in_the_end() {
    let hosts = Hosts::new();
    let log = hosts.file("pid");
    let stubborn =
        format!("trap '' TERM INT; echo $$ >{}; while :; do sleep 0.05; done", log.display());
    let args = ["--drain-timeout=500ms"];
    let mut host = hosts.lead_with(&hosts.redis.url(), &args, &["sh", "-c", &stubborn]);
    let pid = || std::fs::read_to_string(&log).unwrap_or_default().trim().parse::<u32>().ok();
    eventually(SOON, "its pid", String::new, || pid().is_some());
    let asked = Instant::now();
    assert_eq!(host.term().code(), Some(128 + 9));
    assert!(asked.elapsed() >= ms(500), "not before its time");
    assert!(!is_alive(pid().unwrap()));
}

/// Whose command line has `word`, among these and all that they started: as `pgrep -f` would find them.
fn matching(word: &str, pids: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for pid in pids {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(word) {
            found.push(pid.clone());
        }
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.map(|it| std::fs::read_to_string(it.path().join("children")));
        let children: String = lists.map(Result::unwrap_or_default).collect();
        let children: Vec<String> = children.split_whitespace().map(Into::into).collect();
        found.extend(matching(word, &children));
    }
    found
}

/// `pkill -9 -f leasehold` leaves nothing of a command running, whatever the command has started.
#[test]
fn a_kill_of_all_that_is_named_leasehold_leaves_nothing_of_the_command() {
    let hosts = Hosts::new();
    let file = hosts.file("pids");
    // Not by name: a command line with the word would be killed itself.
    let work = r#"echo $$ >>"$PIDS"; sh -c 'echo $$ >>"$PIDS"; sleep 1000' & wait"#;
    let mut lead = std::process::Command::new(binary());
    lead.args(["lead", "job", &format!("--redis={}", hosts.redis.url()), "--lease-ttl=30s"]);
    lead.args(["--", "sh", "-c", work]).env("PIDS", &file);
    let host = Instance::spawn(&mut lead);
    let family = pids(&file, 2);
    let named = matching("leasehold", &[host.pid().to_string()]);
    assert_eq!(named, [host.pid().to_string()], "the supervisor has that word in its command line");
    for pid in &named {
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    all_gone(&family);
}

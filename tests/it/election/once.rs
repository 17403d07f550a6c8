//! `leasehold once`, `leaders`, `run --lead`: roles from the command line, real processes.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use testkit::lead::{Hosts, is_alive};
use testkit::process::{Instance, SOON, Scene, TempDir, binary, eventually, field, leasehold, ms};
use testkit::redis::RedisServer;

fn once(redis: &RedisServer, args: &[&str], command: &[&str]) -> Instance {
    let mut once = Command::new(binary());
    once.args(["once", "job", &format!("--redis={}", redis.url())]).args(args);
    Instance::spawn(once.arg("--").args(command))
}

/// A job that says when it began and when it ended.
fn job(log: &Path, seconds: &str) -> [String; 3] {
    let log = log.display();
    let work = format!("date +%s%N >>{log}; sleep {seconds}; echo done >>{log}");
    ["sh".into(), "-c".into(), work]
}

/// Fifty hosts whose cron fires within a second.
fn fifty(hosts: &Hosts, args: &[&str], command: &[String]) -> Vec<Instance> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    (0..50).map(|_| once(&hosts.redis, args, &command)).collect()
}

fn all_ended(mut fleet: Vec<Instance>) -> Vec<ExitStatus> {
    fleet.iter_mut().map(Instance::wait).collect()
}

fn starts(log: &Path) -> Vec<u64> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|it| it.parse().ok()).collect()
}

/// "Fifty `once` started within a second on a five-second job: it runs once."
#[test]
fn fifty_at_once_run_a_five_second_job_once() {
    let hosts = Hosts::new();
    let log = hosts.file("log");
    let began = Instant::now();
    let fleet = fifty(&hosts, &["--lease-ttl=3s"], &job(&log, "5"));
    println!("fifty started within {:?}", began.elapsed());
    assert!(all_ended(fleet).iter().all(ExitStatus::success));
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2, "begun once and ended once");
    assert_eq!(hosts.leader(), "(nil)", "given up at the end");
}

/// "A one-millisecond job with `--at-least-for 10s`: once."
#[test]
fn fifty_at_once_run_a_short_job_once_if_it_is_to_last_ten_seconds() {
    let hosts = Hosts::new();
    let log = hosts.file("log");
    let args = ["--at-least-for=10s", "--skip-code=9", "--lease-ttl=3s"];
    let fleet = fifty(&hosts, &args, &job(&log, "0.001"));
    let done = || fs::read_to_string(&log).unwrap_or_default().contains("done");
    eventually(SOON, "the end of the job", String::new, done);
    // And one whose clock is late.
    let late = once(&hosts.redis, &args, &["sh", "-c", "exit 7"]).wait();
    assert_eq!(late.code(), Some(9), "the job is done, but its time is not over");
    let codes = all_ended(fleet);
    let skipped = codes.iter().filter(|it| it.code() == Some(9)).count();
    assert_eq!((starts(&log).len(), skipped), (1, 49), "{codes:?}");
}

#[test]
fn the_role_is_kept_for_the_time_and_no_longer() {
    let hosts = Hosts::new();
    let log = hosts.file("log");
    let [sh, c, work] = job(&log, "0");
    let args = ["--at-least-for=4s", "--lease-ttl=2s"];
    let mut first = once(&hosts.redis, &args, &[&sh, &c, &work]);
    eventually(SOON, "the first run", String::new, || starts(&log).len() == 1);
    let again = || {
        let status = once(&hosts.redis, &args[1..], &[&sh, &c, &work]).wait();
        assert!(status.success(), "{status:?}");
        starts(&log).len()
    };
    eventually(SOON, "a second run", String::new, || again() == 2);
    let starts = starts(&log);
    let apart = Duration::from_nanos(starts[1] - starts[0]);
    assert!(apart >= ms(3_900) && apart <= ms(6_000), "{apart:?}");
    assert!(first.wait().success());
}

/// To give the role up early would break the promise that it is kept.
#[test]
fn a_signal_ends_the_waiting_but_not_the_promise() {
    let hosts = Hosts::new();
    let log = hosts.file("log");
    let [sh, c, work] = job(&log, "0");
    let args = ["--at-least-for=10m", "--lease-ttl=3s"];
    let mut first = once(&hosts.redis, &args, &[&sh, &c, &work]);
    let done = || fs::read_to_string(&log).unwrap_or_default().contains("done");
    eventually(SOON, "the run", String::new, done);
    let asked = Instant::now();
    assert!(first.term().success());
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_ne!(hosts.leader(), "(nil)", "ends with its TTL");
}

#[test]
fn the_role_is_renewed_while_the_command_runs() {
    let hosts = Hosts::new();
    let log = hosts.file("log");
    let [sh, c, work] = job(&log, "5");
    let mut first = once(&hosts.redis, &["--lease-ttl=1s"], &[&sh, &c, &work]);
    eventually(SOON, "the run", String::new, || starts(&log).len() == 1);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let mut other = once(&hosts.redis, &["--lease-ttl=1s"], &[&sh, &c, &work]);
        assert!(other.wait().success());
    }
    assert!(first.wait().success());
    assert_eq!(starts(&log).len(), 1);
}

#[test]
fn a_command_that_ends_with_a_code_passes_it_on_and_leaves_the_role_free() {
    let hosts = Hosts::new();
    for (command, code) in [("exit 0", 0), ("exit 33", 33), ("kill -TERM $$", 128 + 15)] {
        let status = once(&hosts.redis, &[], &["sh", "-c", command]).wait();
        assert_eq!(status.code(), Some(code), "{command}");
    }
    assert_eq!(once(&hosts.redis, &[], &["/nonexistent"]).wait().code(), Some(127));
}

/// R5: waits, then tries; says so once, on stderr.
#[test]
fn on_a_store_that_knows_nothing_it_waits_out_the_hold_off() {
    let redis = RedisServer::start();
    let mut early = once(&redis, &["--lease-ttl=2s"], &["true"]);
    early.wait_for("event=store.holdoff");
    early.signal(Signal::SIGINT);
    assert_eq!(early.wait().code(), Some(128 + 2));
    // It lasts as long as a leader with the default TTL could lead, which nobody here has time for.
    let since = redis.cli(&["HGET", "leader:epoch", "since_ms"]).parse::<u64>().unwrap();
    redis.cli(&["HSET", "leader:epoch", "since_ms", &(since - 27_000).to_string()]);
    let asked = Instant::now();
    let mut first = once(&redis, &["--lease-ttl=2s"], &["true"]);
    assert!(first.wait().success());
    assert!(asked.elapsed() >= ms(2_000), "{:?}", asked.elapsed());
    assert_eq!(first.lines(&["event=store.holdoff"]).len(), 1, "{:?}", first.log());
}

#[test]
fn a_signal_while_it_waits_ends_it_with_its_code() {
    let redis = RedisServer::start();
    let mut first = once(&redis, &["--lease-ttl=1m"], &["true"]);
    first.wait_for("event=store.holdoff");
    first.signal(Signal::SIGINT);
    assert_eq!(first.wait().code(), Some(128 + 2));
}

#[test]
fn without_a_store_it_fails_with_a_sentence() {
    let mut redis = RedisServer::start();
    redis.kill();
    let mut first = once(&redis, &[], &["true"]);
    assert_eq!(first.wait().code(), Some(1));
    let said = first.log().join("\n");
    assert!(said.contains("leasehold: cannot") && said.contains("redis://"), "{said}");
}

#[test]
fn a_role_that_is_lost_ends_the_command_and_says_so() {
    let hosts = Hosts::new();
    let log = hosts.file("pid");
    let work = format!("echo $$ >{}; exec sleep 60", log.display());
    let mut host = once(&hosts.redis, &["--lease-ttl=2s"], &["sh", "-c", &work]);
    let pid = || fs::read_to_string(&log).unwrap_or_default().trim().parse::<u32>().ok();
    eventually(SOON, "its pid", String::new, || pid().is_some());
    hosts.redis.cli(&["SET", "leader:job", "somebody-else"]);
    assert_eq!(host.wait().code(), Some(1));
    assert!(host.says("the role job was lost"), "{:?}", host.log());
    assert!(!is_alive(pid().unwrap()));
}

fn leaders(redis: &RedisServer) -> (String, Value) {
    let redis = format!("--redis={}", redis.url());
    let page = leasehold(&["leaders", &redis]);
    let json = leasehold(&["leaders", &redis, "--json"]);
    assert!(page.status.success() && json.status.success(), "{page:?} {json:?}");
    (String::from_utf8(page.stdout).unwrap(), serde_json::from_slice(&json.stdout).unwrap())
}

#[test]
fn leaders_tells_who_leads_what_since_when_and_under_which_term() {
    let redis = RedisServer::start();
    assert_eq!(leaders(&redis).0, "no role has ever been led here\n");
    let hosts = Hosts::new();
    let leader = hosts.lead(&[]);
    let life = hosts.wait_for_life(0);
    let id = field(&leader.wait_for("event=leader.elected"), "instance").unwrap();
    let (page, json) = leaders(&hosts.redis);
    assert!(page.contains(&id) && page.contains(&life.term.to_string()), "{page}");
    assert!(page.lines().any(|it| it.starts_with("warm-up") && it.contains("nobody")), "{page}");
    let job = &json["leaders"][0];
    assert_eq!((job["role"].as_str(), job["leader"].as_str()), (Some("job"), Some(id.as_str())));
    assert_eq!(job["term"].as_u64(), Some(life.term));
    assert!(job["leftMs"].as_u64().unwrap() <= 3_000 && job["ledForMs"].as_u64().unwrap() < 60_000);
}

#[test]
fn what_others_wrote_into_the_keys_is_shown_harmlessly() {
    let redis = RedisServer::start();
    redis.cli(&["HSET", "leader:epoch", "term:odd", "garbage", "term:list", "5", "term:a b", "1"]);
    redis.cli(&["SET", "leader:odd", "\u{1b}[31mred\nline"]);
    redis.cli(&["RPUSH", "leader:list", "x"]);
    let (page, json) = leaders(&redis);
    assert!(!page.contains('\u{1b}'), "{page:?}");
    assert_eq!(page.lines().count(), 3, "{page}");
    assert_eq!(json["leaders"].as_array().unwrap().len(), 2);
}

#[test]
fn nobody_need_resign_where_nobody_leads() {
    let redis = RedisServer::start();
    let redis = format!("--redis={}", redis.url());
    let never = leasehold(&["resign", "job", &redis]);
    assert_eq!(never.status.code(), Some(1), "a slip of the finger: {never:?}");
    let why = String::from_utf8(never.stderr).unwrap();
    assert_eq!(why, "leasehold: job was never led here: see leasehold leaders\n");
    assert!(leasehold(&["once", "job", "--new-fleet", &redis, "--", "true"]).status.success());
    let done = leasehold(&["resign", "job", &redis]);
    assert!(done.status.success());
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "nobody leads job\n");
}

/// "`--lead ROLE` lets an instance of `run` also stand for roles".
#[test]
fn an_instance_of_run_leads_too_and_hands_over_when_it_stops() {
    let scene = Scene::new(2);
    let mut first = scene.first(&["--lead=alpha,beta"]);
    first.wait_for("event=leader.elected");
    let second = scene.join(&["--lead=alpha", "--lead=beta"]);
    let leader = |role: &str| scene.redis.cli(&["GET", &format!("leader:{role}")]);
    let both = |id: &str| leader("alpha") == id && leader("beta") == id;
    let told = || format!("{} {}", leader("alpha"), leader("beta"));
    eventually(SOON, "one leader of both", told, || both(&first.id()));
    assert!(first.term().success());
    eventually(Duration::from_secs(2), "the other as leader", told, || both(&second.id()));
    assert_eq!(second.lines(&["event=leader.elected"]).len(), 2);
}

/// R12: what a killed instance led is free as soon as its state file says that it is dead.
#[test]
fn release_gives_back_roles_too() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let runtime = dir.option("runtime-dir");
    let mut first = scene.first(&["--lead=alpha", &runtime]);
    first.wait_for("event=leader.elected");
    first.kill9();
    let redis = format!("--redis={}", scene.redis.url());
    let done = leasehold(&["release", &runtime, &redis]);
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains("released 1 lease and 1 role of "), "{said} {:?}", done.stderr);
    assert_eq!(scene.redis.cli(&["GET", "leader:alpha"]), "(nil)");
}

/// The lines for cron in docs/elections.md, as pasted, on two hosts at once; only the job itself is another.
#[test]
fn the_pages_cron_line_runs_once() {
    let hosts = Hosts::new();
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/elections.md"));
    let line = page.lines().find(|it| it.contains("leasehold once nightly")).unwrap();
    let command = line.split_once(" root ").unwrap().1;
    let log = hosts.file("log");
    let job = command.rsplit_once("logger ").unwrap();
    let pasted = job.0.replacen("leasehold", binary(), 1);
    // The promise of ten minutes would keep the test that long; a signal ends the waiting.
    let pasted = format!("exec {pasted} sh -c 'echo ran >>{}'", log.display());
    let host = || {
        let mut cron = Command::new("sh");
        cron.args(["-c", &pasted]).env("LEASEHOLD_REDIS", hosts.redis.url());
        Instance::spawn(&mut cron)
    };
    let mut both = [host(), host()];
    let ran = || fs::read_to_string(&log).unwrap_or_default();
    eventually(SOON, "one run", ran, || ran() == "ran\n");
    eventually(SOON, "the end of the other", ran, || both.iter_mut().any(|it| !it.is_running()));
    both.iter_mut().filter_map(still_running).for_each(|it| it.signal(Signal::SIGTERM));
    assert!(both.iter_mut().all(|it| it.wait().success()));
    assert_eq!(ran(), "ran\n");
}

fn still_running(host: &mut Instance) -> Option<&Instance> {
    host.is_running().then_some(host)
}

/// The rule of docs/redis.md is enough for elections, too.
#[test]
fn a_user_with_just_the_rights_of_the_page_can_lead_and_look() {
    let redis = RedisServer::start();
    let url = redis.give_rule("leasehold");
    let mut lead = Command::new(binary());
    lead.args(["lead", "job", &format!("--redis={url}"), "--new-fleet", "--", "sleep", "60"]);
    let mut leader = Instance::spawn(&mut lead);
    leader.wait_for("event=leader.elected");
    let url = format!("--redis={url}");
    let listed = leasehold(&["leaders", &url]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("job"), "{listed:?}");
    let resigned = leasehold(&["resign", "job", &url]);
    assert!(String::from_utf8_lossy(&resigned.stdout).contains("gave up job"), "{resigned:?}");
    leader.wait_for("event=leader.resigned");
    leader.term();
}

/// `--lead` is exposed in `status`.
#[test]
fn status_tells_who_leads() {
    let scene = Scene::new(1);
    let first = scene.first(&["--lead=alpha"]);
    first.wait_for("event=leader.elected");
    let redis = format!("--redis={}", scene.redis.url());
    let page = leasehold(&["status", &redis]);
    let page = String::from_utf8(page.stdout).unwrap();
    let line = page.lines().find(|it| it.starts_with("alpha")).unwrap_or_else(|| panic!("{page}"));
    assert!(line.contains(&first.id()), "{page}");
    let json = leasehold(&["status", &redis, "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["leaders"][0]["leader"].as_str(), Some(first.id().as_str()), "{json}");
}

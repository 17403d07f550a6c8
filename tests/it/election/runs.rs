//! Who ran a command when, what came of it, and who tries again: `history --role`, `once --retry`, `once --catch-up`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use testkit::lead::Hosts;
use testkit::process::{Instance, SOON, binary, eventually, leasehold, run, said};
use testkit::redis::RedisServer;

fn once(redis: &RedisServer, host: &str, args: &[&str], command: &str) -> Instance {
    let mut once = Command::new(binary());
    once.args(["once", "job", "--lease-ttl=3s"]).arg(format!("--redis={}", redis.url()));
    once.arg(format!("--host-name={host}")).args(args);
    Instance::spawn(once.args(["--", "sh", "-c", command]))
}

fn entries(redis: &RedisServer, role: &str) -> Vec<Value> {
    let told = said(&run(redis, &["history", "--role", role, "--json"]));
    serde_json::from_str::<Value>(&told).unwrap()["entries"].as_array().unwrap().clone()
}

/// Event, host and exit code of each entry.
fn story(redis: &RedisServer) -> Vec<String> {
    let host = |it: &Value| it["instance"].as_str().unwrap().split('-').next().unwrap().to_owned();
    let line = |it: &Value| match &it["code"] {
        Value::Null => format!("{} {}", it["event"].as_str().unwrap(), host(it)),
        code => format!("{} {} {code}", it["event"].as_str().unwrap(), host(it)),
    };
    entries(redis, "job").iter().map(line).collect()
}

fn wait_for(redis: &RedisServer, wanted: &str) {
    let found = || format!("{:#?}", story(redis));
    eventually(SOON, wanted, found, || story(redis).iter().any(|it| it == wanted));
}

/// Runs that began, by the lines that they wrote.
fn runs(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

#[test]
fn the_history_tells_who_ran_it_when_and_what_came_of_it() {
    let hosts = Hosts::new();
    let redis = &hosts.redis;
    let page = said(&run(redis, &["history", "--role=job"]));
    assert_eq!(page, "Nothing is remembered of a run of job.\n");
    assert_eq!(once(redis, "vm1", &[], "exit 3").wait().code(), Some(3));
    let mut first = once(redis, "vm2", &[], "sleep 60");
    wait_for(redis, "started vm2");
    assert!(once(redis, "vm3", &[], "exit 7").wait().success());
    assert_eq!(first.term().code(), Some(128 + 15));
    let wanted = ["started vm1", "ended vm1 3", "started vm2", "skipped vm3", "ended vm2 143"];
    assert_eq!(story(redis), wanted);
    let told = entries(redis, "job");
    let names: Vec<&String> = told[0].as_object().unwrap().keys().collect();
    let all = ["atMs", "code", "event", "id", "instance", "owner", "reason", "role", "term"];
    assert_eq!(names, all);
    assert_eq!((&told[0]["role"], &told[0]["term"]), (&json!("job"), &told[1]["term"]));
    assert!(told[2]["term"].as_u64() > told[0]["term"].as_u64(), "{told:#?}");
    assert_eq!((&told[3]["owner"], &told[3]["term"]), (&told[2]["instance"], &Value::Null));
    let page = said(&run(redis, &["history", "--role=job"]));
    for words in ["ended    vm1", "exit code 3", "skipped  vm3", "vm2 led"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let last = said(&run(redis, &["history", "--role=job", "--limit=1"]));
    assert_eq!(last.lines().count(), 2, "{last}");
    let mut lead = Command::new(binary());
    lead.args(["lead", "job", "--lease-ttl=3s", &format!("--redis={}", redis.url())]);
    let mut lead = Instance::spawn(lead.args(["--host-name=vm4", "--", "true"]));
    assert!(lead.wait().success());
    assert_eq!(story(redis)[5..], ["started vm4", "ended vm4 0"]);
    assert_eq!(entries(redis, "other").len(), 0);
    let output = run(redis, &["history", "e1", "--role=job"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn another_host_runs_it_when_the_first_one_failed_and_none_when_it_succeeded() {
    let hosts = Hosts::new();
    let (redis, log, go) = (&hosts.redis, hosts.file("log"), hosts.file("go"));
    let work = |code: u8| {
        let (log, go) = (log.display(), go.display());
        format!("echo x >>{log}; until [ -e {go} ]; do sleep 0.05; done; exit {code}")
    };
    let args = ["--retry=2", "--skip-code=9", "--at-least-for=1m"];
    let mut first = once(redis, "vm1", &args, &work(4));
    wait_for(redis, "started vm1");
    let mut others = ["vm2", "vm3"].map(|it| once(redis, it, &args, &work(0)));
    // Each of them has found the role led: it asks for the status of the role and waits.
    let asks = || redis.cli(&["INFO", "commandstats"]);
    redis.cli(&["CONFIG", "RESETSTAT"]);
    let asked = || asks().contains("cmdstat_hmget") || asks().contains("cmdstat_hget");
    eventually(SOON, "a host that waits", asks, asked);
    fs::write(&go, "").unwrap();
    assert_eq!(first.wait().code(), Some(4), "at once: its minute is for a success");
    // One of them runs it and succeeds, and the other one waits for that and for the rest of the minute.
    let found = || format!("{:#?}", story(redis));
    let ended = |it: &String| it.starts_with("ended") && it.ends_with(" 0");
    eventually(SOON, "a success", found, || story(redis).iter().any(ended));
    assert_eq!(runs(&log), 2, "{:#?}", story(redis));
    let winner = usize::from(story(redis).iter().any(|it| it == "ended vm3 0"));
    // The minute of the winner is cut short: its role ends.
    others[winner].kill9();
    assert_eq!(others[1 - winner].wait().code(), Some(9));
    assert_eq!(runs(&log), 2, "{:#?}", story(redis));
}

#[test]
fn another_host_runs_it_when_the_first_one_died() {
    let hosts = Hosts::new();
    let (redis, log) = (&hosts.redis, hosts.file("log"));
    let mut first = once(redis, "vm1", &["--retry=1"], "sleep 60");
    wait_for(redis, "started vm1");
    let work = format!("echo x >>{}", log.display());
    let mut second = once(redis, "vm2", &["--retry=1"], &work);
    let mut plain = once(redis, "vm3", &["--skip-code=9"], &work);
    assert_eq!(plain.wait().code(), Some(9), "without the option it does not wait");
    first.kill9();
    assert!(second.wait().success());
    assert_eq!(runs(&log), 1, "{:#?}", story(redis));
}

#[test]
fn no_more_hosts_try_than_were_asked_for() {
    let hosts = Hosts::new();
    let (redis, log) = (&hosts.redis, hosts.file("log"));
    let args = ["--retry=1", "--skip-code=9"];
    let work = format!("echo x >>{}; sleep 2; exit 5", log.display());
    let mut first = once(redis, "vm1", &args, &work);
    wait_for(redis, "started vm1");
    let mut others: Vec<Instance> =
        ["vm2", "vm3", "vm4"].iter().map(|it| once(redis, it, &args, &work)).collect();
    assert_eq!(first.wait().code(), Some(5));
    let mut codes: Vec<i32> = others.iter_mut().map(|it| it.wait().code().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!((codes, runs(&log)), (vec![5, 9, 9], 2), "{:#?}", story(redis));
}

#[test]
fn what_was_missed_is_caught_up_and_what_ran_is_not_repeated() {
    let hosts = Hosts::new();
    let (redis, log) = (&hosts.redis, hosts.file("log"));
    let work = format!("echo x >>{}", log.display());
    let failing = format!("{work}; exit 6");
    let once = |args: &[&str], command: &str| {
        once(redis, "vm1", &[&["--skip-code=9"], args].concat(), command).wait().code().unwrap()
    };
    assert_eq!(once(&["--catch-up=1h"], &failing), 6, "it never ran");
    assert_eq!(once(&["--catch-up=1h"], &work), 0, "it never succeeded");
    assert_eq!(once(&["--catch-up=1h"], &work), 9, "it is done");
    assert_eq!(runs(&log), 2);
    assert_eq!(once(&[], &work), 0, "the usual line of the crontab runs it whatever was before");
    assert_eq!(once(&["--catch-up=1ms"], &work), 0, "long ago");
    assert_eq!(runs(&log), 4);
    let told = entries(redis, "job");
    assert!(told.iter().all(|it| it["event"] != "skipped"), "not due is no run: {told:#?}");
}

/// Others decide by the record: where none can be written, a retry would run a command that succeeded.
#[test]
fn a_run_that_others_may_repeat_is_not_started_without_a_record() {
    let hosts = Hosts::new();
    let log = hosts.file("log");
    let url = hosts.redis.give_rule("elector");
    hosts.redis.cli(&["ACL", "SETUSER", "elector", "-xadd"]);
    let work = format!("echo x >>{}", log.display());
    let redis = format!("--redis={url}");
    let once = |option: &[&str]| {
        let args = [&["once", "job", &redis, "--lease-ttl=3s"], option, &["--", "sh", "-c", &work]];
        leasehold(&args.concat())
    };
    let output = once(&["--retry=1"]);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("was not started, because that cannot be recorded"), "{why}");
    assert_eq!(runs(&log), 0);
    assert!(once(&[]).status.success(), "without it nothing depends on the record");
    assert_eq!(runs(&log), 1);
}

//! A shortage of our own is never the result of an endpoint, real processes with few descriptors.

use std::cell::RefCell;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use testkit::process::{
    Instance, SOON, Scene, TempDir, alone, binary, eventually, field, leasehold, ms, run_args,
};
use testkit::target::Answer;

/// `leasehold run` whose soft and hard limits of open files are these.
fn start_with(scene: &Scene, (soft, hard): (u32, u32), args: &[&str]) -> Instance {
    let mut command = Command::new("sh");
    let limit = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    command.args(["-c", &limit, binary()]).args(run_args(&scene.redis.url(), args));
    let one = Instance::spawn(&mut command);
    one.wait_for("event=daemon.ready");
    one
}

const ENDPOINTS: usize = 40;
const FEW: [&str; 4] = ["--new-fleet", "--workers=40", "--interval=1s", "--log-level=debug"];

/// Every endpoint that has a result, and whether it is a good one. On one connection: ports may be few.
fn results(scene: &Scene, redis: &RefCell<redis::Connection>) -> Vec<(String, bool)> {
    let result = |id: &String| {
        let ok: Option<String> = redis::cmd("HGET")
            .arg(format!("poll:result:{id}"))
            .arg("ok")
            .query(&mut *redis.borrow_mut())
            .unwrap();
        Some((id.clone(), ok? == "1"))
    };
    scene.endpoints.iter().filter_map(result).collect()
}

/// All endpoints are healthy, and 40 workers would like to poll them with 48 descriptors, or with two dozen ports.
#[track_caller]
fn assert_nobody_is_blamed(scene: &Scene, one: &mut Instance, lacks: &str) {
    let redis = RefCell::new(scene.redis.connect().unwrap());
    eventually(
        4 * SOON,
        "a result of every endpoint",
        || format!("{:?}", results(scene, &redis)),
        || results(scene, &redis).len() == ENDPOINTS,
    );
    let line = one.wait_for("event=poll.deferred");
    assert!(line.contains(" WARN "), "{line}");
    assert!(field(&line, "endpoint").is_some(), "{line}");
    assert!(field(&line, "reason").is_some_and(|it| it.contains(lacks)), "{line}");
    let blamed = one.lines(&["event=poll.failed"]);
    assert!(blamed.is_empty(), "{} are published as failed: {:?}", blamed.len(), blamed.first());
    assert!(results(scene, &redis).iter().all(|it| it.1), "{:?}", results(scene, &redis));
    let told = one.lines(&["event=poll.deferred"]);
    assert!(told.len() <= 3, "once per reason, not once per poll: {told:#?}");
    assert!(!one.says("event=lease.lost") && !one.says("event=store.unreachable"));
    assert!(one.term().success());
}

/// Half of them by name: a lookup needs descriptors, too, and its errors do not say that it had none.
#[test]
fn healthy_endpoints_are_not_blamed_for_descriptors_that_we_lack() {
    let scene = Scene::new(ENDPOINTS);
    let owner_only = scene.target.address().replace("127.0.0.1", "localhost");
    for (n, id) in scene.endpoints.iter().enumerate() {
        scene.target.answer(id, Answer { delay: ms(300), ..Answer::default() });
        if n % 2 == 0 {
            scene.put_session(id, json!({"address": owner_only}));
        }
    }
    let dir = TempDir::new();
    let metrics = dir.path().join("m.prom");
    let option = format!("--metrics-file={}", metrics.display());
    let mut one = start_with(&scene, (48, 48), &[&FEW[..], &[&option]].concat());
    let odd = one.wait_for("event=settings.odd");
    assert!(odd.contains("--workers 40") && odd.contains("48"), "{odd}");
    let counted = || {
        let text = fs::read_to_string(&metrics).unwrap_or_default();
        let line = text.lines().find(|it| it.starts_with("leasehold_polls_deferred_total"));
        line.and_then(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    eventually(SOON, "they are counted", || one.log().join("\n"), || counted() >= 1.0);
    assert_nobody_is_blamed(&scene, &mut one, "open files");
    scene.target.assert_sound();
}

#[test]
fn healthy_endpoints_are_not_blamed_for_commands_that_we_cannot_start() {
    let scene = Scene::new(ENDPOINTS);
    let args = [&FEW[..], &["--poll-command=sleep 0.3"]].concat();
    let mut one = start_with(&scene, (48, 48), &args);
    assert_nobody_is_blamed(&scene, &mut one, "open files");
}

/// A command as a user of its own who may have this many threads and processes; `None` where that is not allowed.
fn with_threads(n: u32) -> Option<Command> {
    // The kernel counts the threads of a user, and tests run side by side.
    static USERS: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 2 + USERS.fetch_add(1, Ordering::Relaxed);
    let user = format!("--reuid={}", 1_000_000 + number);
    let command = |program: &[&str]| {
        let mut command = Command::new("prlimit");
        let limit = format!("--nproc={n}");
        command.args([&*limit, "setpriv", &user, "--regid=54321", "--clear-groups"]).args(program);
        command
    };
    let is_allowed = command(&["test", "-x", binary()]).status().is_ok_and(|it| it.success());
    is_allowed.then(|| command(&[binary()]))
}

/// EAGAIN of the kernel. Half of the endpoints by name: a lookup needs a thread, too.
#[test]
fn healthy_endpoints_are_not_blamed_for_threads_that_we_lack() {
    let Some(mut command) = with_threads(20) else { return eprintln!("only root may do that") };
    let scene = Scene::new(ENDPOINTS);
    let by_name = scene.target.address().replace("127.0.0.1", "localhost");
    for (n, id) in scene.endpoints.iter().enumerate() {
        scene.target.answer(id, Answer { delay: ms(300), ..Answer::default() });
        if n % 2 == 0 {
            scene.put_session(id, json!({"address": by_name}));
        }
    }
    let mut one = Instance::spawn(command.args(run_args(&scene.redis.url(), &FEW)));
    one.wait_for("event=daemon.ready");
    assert_nobody_is_blamed(&scene, &mut one, "thread");
    assert!(!one.says("panicked"), "{:?}", one.log());
}

#[test]
fn healthy_endpoints_are_not_blamed_for_processes_that_we_lack() {
    let Some(mut command) = with_threads(40) else { return eprintln!("only root may do that") };
    let scene = Scene::new(ENDPOINTS);
    let args = [&FEW[..], &["--poll-command=sleep 0.3"]].concat();
    let mut one = Instance::spawn(command.args(run_args(&scene.redis.url(), &args)));
    one.wait_for("event=daemon.ready");
    assert_nobody_is_blamed(&scene, &mut one, "no more processes or threads");
    assert!(!one.says("panicked"), "{:?}", one.log());
}

/// EADDRNOTAVAIL of the kernel: in a network of its own, with two dozen ports for connections to the same target.
#[test]
fn healthy_endpoints_are_not_blamed_for_ports_that_we_lack() {
    const INSIDE: &str = "LACKS_PORTS";
    if env::var_os(INSIDE).is_none() {
        let enter = "ip link set lo up && echo 60000 60023 >/proc/sys/net/ipv4/ip_local_port_range";
        let enter = format!("{enter} && exec \"$0\" \"$@\"");
        let unshared = |program: &[&OsStr]| {
            let mut command = Command::new("unshare");
            command.args(["-rn", "sh", "-c", &enter]).args(program).env(INSIDE, "1");
            command.output()
        };
        if !unshared(&[OsStr::new("true")]).is_ok_and(|it| it.status.success()) {
            eprintln!("no network namespaces here");
            return;
        }
        let name = "healthy_endpoints_are_not_blamed_for_ports_that_we_lack";
        let again = alone(module_path!(), name);
        let program: Vec<&OsStr> =
            [again.get_program()].into_iter().chain(again.get_args()).collect();
        let output = unshared(&program).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let scene = Scene::new(ENDPOINTS);
    for id in &scene.endpoints {
        scene.target.answer(id, Answer { delay: ms(900), ..Answer::default() });
    }
    let mut one = Instance::start(&scene.redis, &FEW);
    one.wait_for("event=daemon.ready");
    assert_nobody_is_blamed(&scene, &mut one, "no local port is free");
}

/// Before anything runs: `doctor`, given the settings of `run`, and the limit of its own process.
#[test]
fn doctor_compares_the_limit_of_open_files_with_the_workers() {
    let scene = Scene::new(0);
    let doctor = |limit: &str| {
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        let redis = format!("--redis={}", scene.redis.url());
        let args = ["doctor", "--for=10ms", "--workers=200", &redis];
        let output =
            Command::new("sh").args(["-c", &script, binary()]).args(args).output().unwrap();
        let page = String::from_utf8_lossy(&output.stdout).into_owned();
        page.lines().find(|it| it.contains(" descriptors ")).unwrap_or_default().to_owned()
    };
    let (few, enough) = (doctor("863"), doctor("864"));
    assert!(few.starts_with("warn") && few.contains("--workers 200"), "{few}");
    assert!(few.contains("LimitNOFILE=864"), "{few}");
    assert!(enough.starts_with("ok"), "{enough}");
}

/// The command keeps the limit it would have had: programs that use select(2) break above 1,024.
#[test]
fn the_daemon_raises_its_own_limit_and_not_that_of_its_commands() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let script = dir.path().join("limits");
    fs::write(&script, "#!/bin/sh\nulimit -Sn\nulimit -Hn\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let option = format!("--poll-command={}", script.display());
    let one = start_with(&scene, (100, 700), &["--new-fleet", &option]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", one.pid())).unwrap();
    let files = limits.lines().find(|it| it.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[3..5], ["700", "700"], "{files}");
    let body = || scene.result("e1").get("body").cloned().unwrap_or_default();
    eventually(SOON, "a result", body, || body() == "100\n700\n");
}

/// An endpoint that says the words of a shortage has failed all the same.
#[test]
fn words_of_a_shortage_are_no_shortage() {
    let scene = Scene::new(1);
    let body = "Too many open files (os error 24)".to_owned();
    scene.target.answer("e1", Answer { status: 503, body, ..Answer::default() });
    let one = scene.first(&[]);
    let ok = || scene.result("e1").get("ok").cloned();
    eventually(SOON, "a result", String::new, || ok().as_deref() == Some("0"));
    assert!(!one.says("event=poll.deferred"));
}

/// CONTRACT: a setting that is wrong ends it with exit code 2.
#[test]
fn a_poll_command_that_cannot_run_is_refused_at_the_start() {
    let dir = TempDir::new();
    let write = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let plain = write("plain", "#!/bin/sh\n", 0o644);
    let orphan = write("orphan", "#!/no/such/interpreter -x\n", 0o755);
    let here = dir.path().display().to_string();
    for (command, words) in [
        ("/nonexistent --fast", "/nonexistent: there is no such file"),
        ("no-such-program-anywhere", "no-such-program-anywhere: no directory of PATH has it"),
        (&*here, "is a directory"),
        (&*plain, "is not executable"),
        (&*orphan, "/no/such/interpreter"),
        ("/etc/passwd/x", "there is no such file"),
    ] {
        let option = format!("--poll-command={command}");
        let output = leasehold(&["run", "--redis=redis://127.0.0.1:1", &option]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("--poll-command") && said.contains(words), "{command}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    // As exec finds it: by PATH, or where it is.
    let good = write("good", "#!/bin/sh -e\n", 0o755);
    for command in ["true", "/bin/sh -c x", &good] {
        let option = format!("--poll-command={command}");
        let mut one = Instance::start_at("redis://127.0.0.1:1", &[&option]);
        one.wait_for("event=store.unreachable");
        assert!(one.term().success());
    }
}

/// R11: a second signal ends the wait for running polls, and nothing else.
#[test]
fn a_second_signal_hurries_a_stop_and_leases_are_given_back_all_the_same() {
    use nix::sys::signal::Signal;
    let scene = Scene::new(3);
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    scene.put_session("e1", json!({"timeoutMs": 60_000}));
    let mut one = scene.first(&["--drain-timeout=60s"]);
    scene.target.wait_until(SOON, "a poll that hangs", |it| it.iter().any(|it| it.path == "/e1"));
    one.signal(Signal::SIGINT);
    one.wait_for("event=daemon.stopping");
    scene.target.observe(ms(500));
    assert!(one.is_running(), "the first waits for polls that run");
    one.signal(Signal::SIGINT);
    assert_eq!(one.wait().code(), Some(0));
    assert!(one.says("event=poll.aborted"), "{:?}", one.log());
    assert!(scene.owners().is_empty(), "{:?}", scene.owners());
    assert_eq!(scene.redis.cli(&["KEYS", "poll:node:*"]).trim(), "");
    scene.target.assert_sound();
    assert!(Duration::from_secs(60) > SOON, "or nothing was hurried");
}

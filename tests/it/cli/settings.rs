//! Settings for every command, and errors that say what was tried, on what, and the way out.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use testkit::process::{
    Instance, SOON, Scene, TempDir, binary, eventually, field, leasehold, leasehold_with, run, said,
};
use testkit::redis::RedisServer;

#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A settings file with these lines, and the option that names it.
fn settings(dir: &TempDir, lines: &str) -> String {
    let path = dir.path().join("leasehold.env");
    fs::write(&path, lines).unwrap();
    format!("--settings={}", path.display())
}

/// Everything that asks Redis, with the words that it needs.
const ASKING: [&[&str]; 15] = [
    &["status", "--json"],
    &["top", "--json"],
    &["plan", "--json"],
    &["history", "--json"],
    &["sessions", "list", "--json"],
    &["leaders", "--json"],
    &["drain", "for-a-moment", "--force", "--absent"],
    &["undrain", "for-a-moment"],
    &["drain", "elsewhere", "--force", "--absent"],
    &["sessions", "add", "h:1", "--id", "e1"],
    &["explain", "e1", "--json"],
    &["get", "e1", "--json"],
    &["once", "tea", "--", "true"],
    &["resign", "tea"],
    &["release", "--runtime-dir=/nowhere"],
];

/// The service's own file does for every command: what does not concern it is passed over.
#[test]
fn every_command_takes_the_settings_of_the_service() {
    let redis = RedisServer::start();
    let dir = TempDir::new();
    let lines = format!(
        "# as the service has them\nTZ=UTC\nLEASEHOLD_REDIS={}\nLEASEHOLD_PREFIX=mine\n\
         LEASEHOLD_WORKERS=4\nLEASEHOLD_POLL_COMMAND=/bin/true\nLEASEHOLD_INTERVAL=1s\n\
         LEASEHOLD_NEW_FLEET=on\nLEASEHOLD_SETTINGS=/nowhere\n",
        redis.url()
    );
    let file = settings(&dir, &lines);
    for args in ASKING {
        let at = args.iter().position(|it| *it == "--").unwrap_or(args.len());
        let args = [&args[..at], &[&file], &args[at..]].concat();
        said(&leasehold(&args));
    }
    assert_eq!(redis.cli(&["SMEMBERS", "mine:drain"]), "elsewhere", "its prefix, too");
    let name = dir.path().join("leasehold.env").display().to_string();
    let env = [("LEASEHOLD_SETTINGS", name.as_str()), ("LEASEHOLD_PREFIX", "other")];
    let status: Value =
        serde_json::from_str(&said(&leasehold_with(&["status", "--json"], &env))).unwrap();
    assert_eq!(status["redis"], redis.url(), "where it was read");
    assert_eq!(status["drained"][0], "elsewhere", "a file wins over the environment, as for run");
    let status = said(&leasehold(&["status", &file, "--prefix=other"]));
    assert!(!status.contains("elsewhere"), "the command line wins over all: {status}");
    assert!(status.ends_with(&format!("As read from {}.\n", redis.url())), "{status}");
}

/// A command that was told of no Redis asks that of the service, and says so; and what was said comes first.
#[test]
fn without_a_word_about_redis_the_settings_of_the_service_count() {
    let (redis, dir) = (RedisServer::start(), TempDir::new());
    let path = dir.path().join("leasehold.env").display().to_string();
    let lines = format!(
        "LEASEHOLD_REDIS=redis://:hunter2@127.0.0.1:{}/0\nLEASEHOLD_PREFIX=mine\n\
         LEASEHOLD_WORKERS=4\nLEASEHOLD_METRICS_FILE={}/no.prom\n",
        redis.port(),
        dir.path().display()
    );
    redis.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let redis_cli = |args: &[&str]| {
        let url = format!("redis://:hunter2@127.0.0.1:{}/0", redis.port());
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd(args[0]).arg(&args[1..]).query::<Vec<String>>(&mut connection).unwrap()
    };
    fs::write(&path, &lines).unwrap();
    let env = [("LEASEHOLD_SERVICE_SETTINGS", &*path)];
    let asking =
        format!("leasehold: asking redis://:***@127.0.0.1:{}/0, as {path} says\n", redis.port());
    for args in ASKING {
        // Its own, because new-fleet is no matter of the connection.
        let new: &[&str] = if args[0] == "once" { &["--new-fleet"] } else { &[] };
        let output = leasehold_with(&[&args[..1], new, &args[1..]].concat(), &env);
        let why = String::from_utf8(output.stderr.clone()).unwrap();
        said(&output);
        // Cron mails what once prints.
        assert_eq!(why, if args[0] == "once" { "" } else { &asking }, "{args:?}");
    }
    assert_eq!(redis_cli(&["SMEMBERS", "mine:drain"]), ["elsewhere"], "its prefix, too");
    assert!(!dir.path().join("no.prom").exists(), "once has no metrics file of the service");
    // What was said wins: an option, a file, a variable.
    let other = RedisServer::start();
    let url = other.url();
    let files = TempDir::new();
    let file = settings(&files, &format!("LEASEHOLD_REDIS={url}\n"));
    for (args, more) in [
        (&["status", &format!("--redis={url}")][..], None),
        (&["status", &file], None),
        (&["status"], Some(("LEASEHOLD_REDIS", &*url))),
    ] {
        let env: Vec<(&str, &str)> = env.into_iter().chain(more).collect();
        let output = leasehold_with(args, &env);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert!(said(&output).ends_with(&format!("As read from {url}.\n")), "{args:?}");
    }
    let prefix = [env[0], ("LEASEHOLD_PREFIX", "theirs")];
    said(&leasehold_with(&["drain", "x", "--force", "--absent"], &prefix));
    assert_eq!(redis_cli(&["SMEMBERS", "theirs:drain"]), ["x"], "a variable wins over the file");
    // A file with a mistake is no reason to ask another Redis.
    fs::write(&path, "LEASEHOLD_REDS=x\n").unwrap();
    let why = refused(&leasehold_with(&["status"], &env), 2);
    assert!(why.contains(&path) && why.contains("did you mean LEASEHOLD_REDIS?"), "{why}");
    fs::write(&path, "LEASEHOLD_REDIS=redis://127.0.0.1:6379/0\nLEASEHOLD_STORE_TIMEOUT=1ms\n")
        .unwrap();
    let output = leasehold_with(&["status"], &env);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("asking"), "that is the default");
    // Nothing there, and nothing asked for.
    let output = leasehold_with(&["run", "--weight=x"], &env);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for nothing in ["", "/nowhere/at/all"] {
        let output = leasehold_with(&["status"], &[("LEASEHOLD_SERVICE_SETTINGS", nothing)]);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("asking"), "{output:?}");
    }
}

/// `doctor` judges with the timing that `run` will have.
#[test]
fn doctor_looks_with_the_timing_of_the_service() {
    let scene = Scene::new(1);
    let _first = scene.first(&[]);
    let dir = TempDir::new();
    let lines =
        |ttl: &str| format!("LEASEHOLD_REDIS={}\nLEASEHOLD_LEASE_TTL={ttl}\n", scene.redis.url());
    let timing = |ttl: &str| {
        let output = leasehold(&["doctor", "--json", "--for=100ms", &settings(&dir, &lines(ttl))]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = document["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|it| it["check"] == "fleet").unwrap()["grade"].clone()
    };
    assert_eq!((timing("3s"), timing("30s")), ("ok".into(), "fail".into()));
}

#[test]
fn a_name_that_means_nothing_is_refused_by_file_line_and_what_was_meant() {
    let dir = TempDir::new();
    let file = settings(&dir, "LEASEHOLD_REDIS=redis://h\n\nLEASEHOLD_LEASE_TLL=hunter2\n");
    for command in ["run", "status", "doctor", "leaders"] {
        let why = refused(&leasehold(&[command, &file]), 2);
        let path = file.trim_start_matches("--settings=");
        for part in [path, "line 3", "LEASEHOLD_LEASE_TLL", "did you mean LEASEHOLD_LEASE_TTL?"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(!why.contains("hunter2"), "{why}");
    }
}

#[test]
fn what_is_odd_about_the_settings_of_run_is_a_warning_each() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let metrics = dir.path().join("metrics.txt");
    let mut command = Command::new(binary());
    command.args(["run", "--redis", &scene.redis.url(), "--new-fleet", "--lease-ttl=3s"]);
    command.args(["--renew-interval=1s", "--heartbeat-ttl=20s", "--heartbeat-interval=1s"]);
    command.arg("--metrics-file").arg(&metrics);
    command.env_remove("LEASEHOLD_BLESS").env_remove("LEASEHOLD_SEEDS");
    command.env("LEASEHOLD_TYPO", "hunter2").env("LEASEHOLD_REDIS_PASSWORD_FIL", "x");
    command.env("LEASEHOLD_FENCE", "1").env("LEASEHOLD_JSON", "on");
    let one = Instance::spawn_with_env(&mut command);
    one.wait_for("event=daemon.ready");
    let odd = one.lines(&["event=settings.odd", " WARN "]);
    let reasons: Vec<String> = odd.iter().map(|it| field(it, "reason").unwrap()).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert_eq!(reasons[0], "--heartbeat-ttl 20s is longer than --lease-ttl 3.0s, so 3.0s is used");
    assert!(reasons[1].contains("metrics.txt does not end in .prom"), "{reasons:?}");
    let names = "LEASEHOLD_REDIS_PASSWORD_FIL (did you mean LEASEHOLD_REDIS_PASSWORD_FILE?), LEASEHOLD_TYPO";
    assert_eq!(reasons[2], format!("in the environment, but no setting: {names}"));
    // A heartbeat that nobody asked for follows the lease in silence.
    let two = scene.join(&["--metrics-file=/nowhere/metrics.prom"]);
    assert!(!two.says("settings.odd"));
}

#[test]
fn a_key_that_holds_something_else_is_named() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "poll:history", "hello"]);
    redis.cli(&["SET", "poll:drain", "hello"]);
    for (args, parts) in [
        (&["history"][..], ["cannot read history on", "poll:history is not a stream"]),
        (&["drain", "h", "--force", "--absent"], ["cannot drain on", "poll:drain is not a set"]),
        (&["undrain", "h"], ["cannot undrain on", "poll:drain is not a set"]),
    ] {
        let why = refused(&run(&redis, args), 1);
        assert!(parts.iter().all(|it| why.contains(it)), "{args:?}: {why}");
        assert!(why.contains("rename or delete it"), "{args:?}: {why}");
    }
    let mut command = Command::new(binary());
    let watch = Instance::spawn(command.args(["watch", "--redis", &redis.url()]));
    let line = watch.wait_for("lease events are not shown");
    assert!(line.contains("poll:history is not a stream") && !line.contains("lacks"), "{line}");
}

#[test]
fn a_server_that_is_not_redis_and_a_database_that_is_not_there_are_said_to_be() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let url = format!("--redis=redis://127.0.0.1:{port}");
    for args in
        [&["status", &url][..], &["history", &url], &["leaders", &url], &["undrain", "h", &url]]
    {
        let why = refused(&leasehold(args), 1);
        assert!(why.contains("does not speak Redis; check host and port of --redis"), "{why}");
        assert!(why.contains(&format!("redis://127.0.0.1:{port}")), "{why}");
    }
    let redis = RedisServer::start();
    let url = format!("--redis=redis://127.0.0.1:{}/99", redis.port());
    let why = refused(&leasehold(&["status", &url]), 1);
    assert!(why.contains("out of range: choose another database in --redis"), "{why}");
    // No use to wait for that.
    let mut one = Instance::start_at(&format!("redis://127.0.0.1:{}/99", redis.port()), &[]);
    assert_eq!(one.wait().code(), Some(1));
    one.wait_for("choose another database");
}

#[test]
fn a_release_says_what_is_in_its_way() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let nowhere = dir.path().join("nowhere").display().to_string();
    let told = said(&run(&scene.redis, &["release", "--runtime-dir", &nowhere]));
    assert!(told.contains("there is no directory") && told.contains(&nowhere), "{told}");
    let mut one = Instance::start(&scene.redis, &["--runtime-dir", &nowhere]);
    assert_eq!(one.wait().code(), Some(1));
    let line = one.wait_for("make the directory");
    assert!(line.contains(&nowhere) && line.contains("RuntimeDirectory="), "{line}");
    let one = scene.first(&[&dir.option("runtime-dir")]);
    let held = || scene.owned_by(&one).len();
    eventually(SOON, "a lease", || held().to_string(), || held() == 1);
    // It waits ten seconds for the other to be gone, and longer on a machine that is busy.
    let mut command = Command::new(binary());
    command.args(["release", &dir.option("runtime-dir"), "--redis", &scene.redis.url()]);
    let mut release = Instance::spawn(&mut command);
    let why =
        release.wait_for_line(4 * SOON, "a refusal", |it| it.contains("nothing was released"));
    assert!(why.contains("another leasehold runs here") && why.contains("stop it first"), "{why}");
    assert_eq!(release.wait().code(), Some(1));
    assert_eq!(held(), 1);
}

#[test]
fn a_release_of_one_that_nobody_knows_fails_and_says_who_may_be_meant() {
    let scene = Scene::new(2);
    let mut one = scene.first(&[]);
    let id = one.id();
    let held = || scene.owned_by(&one).len();
    eventually(SOON, "two leases", || held().to_string(), || held() == 2);
    let typo = format!("{}x", &id[..id.len() - 1]);
    let why = refused(&run(&scene.redis, &["release", "--instance", &typo]), 1);
    assert!(why.contains("no instance") && why.contains(&format!("did you mean {id}?")), "{why}");
    let why = refused(&run(&scene.redis, &["release", "--instance", "nobody"]), 1);
    assert!(why.contains("leasehold status"), "{why}");
    let remembered = || scene.redis.cli(&["XLEN", "poll:history"]);
    let told = || remembered().parse().is_ok_and(|it: usize| it >= 2);
    eventually(SOON, "history", remembered, told);
    one.kill9();
    let began = Instant::now();
    let told = said(&run(&scene.redis, &["release", "--instance", &id, "--force"]));
    assert_eq!(told, format!("released 2 leases of {id}\n"), "after {:?}", began.elapsed());
    // Once more is harmless: it is remembered, and has nothing.
    let told = said(&run(&scene.redis, &["release", "--instance", &id]));
    assert_eq!(told, format!("released 0 leases of {id}\n"));
}

//! The binary as people and scripts meet it.

use std::net::TcpListener;
use std::process::Output;
use std::time::Instant;

use testkit::process::{Instance, SOON, Scene, TempDir, leasehold, leasehold_with, ms};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_goes_to_stdout_fits_eighty_columns_and_shows_defaults() {
    for args in [&["--help"][..], &["run", "--help"], &["release", "--help"], &["status", "--help"]]
    {
        let output = leasehold(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
        let wide: Vec<String> =
            out(&output).lines().filter(|it| it.chars().count() > 80).map(String::from).collect();
        assert!(wide.is_empty(), "{args:?}: {wide:#?}");
    }
    let run = out(&leasehold(&["run", "--help"]));
    for option in [
        "--redis",
        "--prefix",
        "--session-prefix",
        "--lease-ttl",
        "--renew-interval",
        "--heartbeat-ttl",
        "--heartbeat-interval",
        "--reconcile-interval",
        "--store-timeout",
        "--workers",
        "--interval",
        "--timeout",
        "--light-after",
        "--light-interval",
        "--poll-command",
        "--allow-targets",
        "--deny-targets",
        "--max-body",
        "--weight",
        "--host-name",
        "--drain-timeout",
        "--min-replicas",
        "--new-fleet",
        "--runtime-dir",
        "--metrics-file",
        "--log-level",
        "--log-renewals",
    ] {
        assert!(run.contains(option), "{option} is not in run --help");
    }
    for default in ["redis://127.0.0.1:6379/0", "session:", "30s", "10s", "65536", "info"] {
        assert!(run.contains(default), "{default} is not in run --help");
    }
}

#[test]
fn version_prints_the_version() {
    let output = leasehold(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(out(&output), concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_wrong_command_line_is_refused_with_code_two_and_one_sentence() {
    for (args, words) in [
        (&[][..], "no command"),
        (&["rum"], "did you mean run"),
        (&["run", "--lease-tll", "3s"], "--lease-ttl"),
        (&["run", "--lease-ttl", "soon"], "--lease-ttl"),
        (&["run", "--lease-ttl", "3s", "--renew-interval", "3s"], "--renew-interval"),
        (&["run", "--workers", "0"], "--workers"),
        (&["run", "--allow-targets", "10.0.0.0/33"], "--allow-targets"),
        (&["run", "--redis", "http://x"], "--redis"),
        (&["run", "extra"], "extra"),
        (&["release"], "--instance"),
        (&["release", "--weight", "1"], "--weight"),
    ] {
        let output = leasehold(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", err(&output));
        assert!(out(&output).is_empty(), "{args:?}");
        assert_eq!(err(&output).lines().count(), 1, "{args:?}: {}", err(&output));
        assert!(err(&output).contains(words), "{args:?}: {}", err(&output));
    }
}

#[test]
fn settings_come_from_the_environment_and_the_command_line_wins() {
    let bad = leasehold_with(&["run"], &[("LEASEHOLD_LEASE_TTL", "soon")]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(err(&bad).contains("LEASEHOLD_LEASE_TTL"), "{}", err(&bad));
    // An environment alone is enough to find the server; the command line overrides it.
    let scene = Scene::new(0);
    let url = scene.redis.url();
    let nobody = leasehold_with(&["undrain", "a-1-b"], &[("LEASEHOLD_REDIS", &url)]);
    assert_eq!(nobody.status.code(), Some(1), "{}", err(&nobody));
    assert!(err(&nobody).starts_with("leasehold: a-1-b is not drained"), "{}", err(&nobody));
    let wins = leasehold_with(
        &["undrain", "a-1-b", "--redis", &url],
        &[("LEASEHOLD_REDIS", "redis://127.0.0.1:1/0")],
    );
    assert_eq!(err(&wins), err(&nobody), "the same server answers");
}

#[test]
fn release_of_an_empty_runtime_directory_has_nothing_to_do() {
    let dir = TempDir::new();
    let output = leasehold(&["release", &dir.option("runtime-dir"), "--redis=redis://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("nothing to release"), "{}", out(&output));
}

/// "every other command fails after its timeout with a sentence".
#[test]
fn release_fails_with_a_sentence_when_redis_is_away_or_does_not_answer() {
    let refused = leasehold(&["release", "--instance=a-1-b", "--redis=redis://127.0.0.1:1/0"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(err(&refused).lines().count(), 1, "{}", err(&refused));
    assert!(err(&refused).contains("127.0.0.1:1"), "{}", err(&refused));
    // Accepts, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("--redis=redis://:hunter2@{}/0", silent.local_addr().unwrap());
    let asked_at = Instant::now();
    let output = leasehold(&["release", "--instance=a-1-b", &url, "--store-timeout=500ms"]);
    let took = asked_at.elapsed();
    assert_eq!(output.status.code(), Some(1));
    assert!(took >= ms(450) && took < ms(3_000), "took {took:?}");
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(!err(&output).contains("hunter2"), "{}", err(&output));
}

#[test]
fn release_by_name_wants_force_while_there_is_a_heartbeat_and_then_does_it() {
    let scene = Scene::new(0);
    scene.redis.cli(&["SET", "poll:node:a-1-b", "1", "PX", "30000"]);
    scene.redis.cli(&["SET", "poll:lease:e1", "a-1-b", "PX", "30000"]);
    scene.redis.cli(&["SET", "poll:lease:e2", "other", "PX", "30000"]);
    let url = format!("--redis={}", scene.redis.url());
    let refused = leasehold(&["release", &url, "--instance=a-1-b"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("--force"), "{}", err(&refused));
    let done = leasehold(&["release", &url, "--instance=a-1-b", "--force"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert_eq!(out(&done), "released 1 lease of a-1-b\n");
    assert_eq!(scene.redis.cli(&["EXISTS", "poll:node:a-1-b", "poll:lease:e1"]), "0");
    assert_eq!(scene.redis.cli(&["GET", "poll:lease:e2"]), "other");
}

/// Over several pages of a scan, while keys vanish under it, and beside what is not its own.
#[test]
fn release_counts_each_lease_once_however_many_there_are() {
    let scene = Scene::new(0);
    let fill = "for n = 1, 5000 do redis.call('SET', 'poll:lease:e' .. n, n % 2 == 0 and 'a-1-b' or 'other') \
                end redis.call('HSET', 'poll:lease:odd', 'a', 'b') return redis.call('DBSIZE')";
    assert_eq!(scene.redis.cli(&["EVAL", fill, "0"]), "5001");
    let url = format!("--redis={}", scene.redis.url());
    let release = || out(&leasehold(&["release", &url, "--instance=a-1-b", "--force"]));
    assert_eq!(release(), "released 2500 leases of a-1-b\n");
    assert_eq!(scene.redis.cli(&["DBSIZE"]), "2501");
    // Once more is harmless for one that is remembered.
    scene.redis.cli(&["XADD", "poll:history", "*", "instance", "a-1-b"]);
    assert_eq!(release(), "released 0 leases of a-1-b\n");
}

/// R12: one process a runtime directory.
#[test]
fn a_second_process_in_one_runtime_directory_is_refused() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let _one = scene.first(&[&dir.option("runtime-dir")]);
    let mut two = Instance::start(&scene.redis, &[&dir.option("runtime-dir")]);
    assert_eq!(two.wait().code(), Some(1));
    two.wait_for("another leasehold runs here");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}

#[test]
fn output_into_a_closed_pipe_is_no_crash() {
    let command = format!(
        "{} run --help | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        testkit::process::binary()
    );
    let output = std::process::Command::new("bash").args(["-c", &command]).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", err(&output));
    assert_eq!(out(&output).trim(), "0");
}

/// What could not be written was not said: that is a failure, unlike a pipe whose reader has enough.
#[test]
fn output_onto_a_full_disk_is_a_sentence_and_a_failure() {
    let redis = testkit::redis::RedisServer::start();
    let url = format!("--redis={}", redis.url());
    let add = ["sessions", "add", "h:1", &url];
    for args in [&["man"][..], &["--help"], &["status", "--json", &url], &add] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(testkit::process::binary());
        let output = command.args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(err(&output).contains("cannot write to stdout: No space left"), "{args:?}");
    }
}

/// The page is text that groff takes without a word; where there is no groff, its unit tests must do.
#[test]
fn the_manual_page_is_well_formed() {
    let output = leasehold(&["man"]);
    assert!(output.status.success() && out(&output).starts_with(".TH LEASEHOLD 1"));
    let dir = TempDir::new();
    let page = dir.path().join("leasehold.1");
    std::fs::write(&page, &output.stdout).unwrap();
    let groff = std::process::Command::new("groff")
        .args(["-man", "-ww", "-Tascii", "-z"])
        .arg(&page)
        .output();
    if let Ok(groff) = groff {
        assert!(groff.status.success() && groff.stderr.is_empty(), "{}", err(&groff));
    }
}

/// What bash would offer for these words.
fn completed(words: &[&str]) -> Vec<String> {
    completed_in(words, &[])
}

fn completed_in(words: &[&str], env: &[(&str, &str)]) -> Vec<String> {
    let dir = TempDir::new();
    let script = dir.path().join("completions");
    std::fs::write(&script, leasehold(&["completions", "bash"]).stdout).unwrap();
    let ask = "compopt() { :; }; . \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
               _leasehold; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "-uc", ask, "bash"]).arg(&script).args(words).envs(env.iter().copied());
    let output = bash.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", err(&output));
    out(&output).lines().filter(|it| !it.is_empty()).map(String::from).collect()
}

/// Names come from Redis, whose address is in the settings; a Redis that hangs or is away costs a moment, and no word.
#[test]
fn bash_completes_the_names_of_endpoints_instances_and_roles_from_the_live_fleet() {
    let redis = testkit::redis::RedisServer::start();
    for id in ["web1", "web2", "api"] {
        redis.cli(&["SET", &format!("session:{id}"), "{}"]);
    }
    redis.cli(&["SET", "session:odd one", "{}"]);
    redis.cli(&["SET", "poll:node:vm1-1794821395633051180-75ceaf55", "1"]);
    redis.cli(&["HSET", "leader:epoch", "term:nightly", "7"]);
    let dir = TempDir::new();
    let file = dir.path().join("leasehold.env").display().to_string();
    let names = |words: &[&str]| {
        let words = [&[testkit::process::binary()], words].concat();
        completed_in(&words, &[("LEASEHOLD_SERVICE_SETTINGS", &file)])
    };
    std::fs::write(&file, format!("LEASEHOLD_REDIS={}\n", redis.url())).unwrap();
    for (words, wanted) in [
        (&["explain", "web"][..], &["web1", "web2"][..]),
        (&["get", "a"], &["api"]),
        (&["get", "--bo"], &["--body"]),
        (&["drain", "v"], &["vm1", "vm1-1794821395633051180-75ceaf55"]),
        (&["status", "--owner", "vm1-"], &["vm1-1794821395633051180-75ceaf55"]),
        (&["resign", "n"], &["nightly"]),
        (&["sessions", "pa"], &["pause"]),
        (&["sessions", "pause", "web1", "web"], &["web1", "web2"]),
        (&["history", "od"], &[]),
        (&["status", "w"], &[]),
    ] {
        assert_eq!(names(words), wanted, "{words:?}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for redis in [format!("redis://127.0.0.1:{port}"), "redis://127.0.0.1:1".into(), "x".into()] {
        std::fs::write(&file, format!("LEASEHOLD_REDIS={redis}\n")).unwrap();
        let began = Instant::now();
        assert_eq!(names(&["get", "web"]), [""; 0], "{redis}");
        assert!(began.elapsed() < ms(5_000), "{redis} took {:?}", began.elapsed());
        let output =
            leasehold_with(&["names", "endpoints"], &[("LEASEHOLD_SERVICE_SETTINGS", &file)]);
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn help_and_version_are_commands_too() {
    assert_eq!(out(&leasehold(&["version"])), out(&leasehold(&["--version"])));
    assert_eq!(out(&leasehold(&["help"])), out(&leasehold(&["--help"])));
    for command in ["status", "sessions", "run", "help"] {
        let page = out(&leasehold(&["help", command]));
        assert_eq!(page, out(&leasehold(&[command, "--help"])), "{command}");
        assert!(page.starts_with(&format!("Usage: leasehold {command}")), "{page}");
    }
    let output = leasehold(&["help", "satus"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("unknown command \"satus\": did you mean status?"), "{output:?}");
}

#[test]
fn bash_completes_commands_options_and_values() {
    for (words, wanted) in [
        (&["leasehold", "sta"][..], &["status"][..]),
        (&["leasehold", "run", "--heartbeat"], &["--heartbeat-ttl", "--heartbeat-interval"]),
        (&["leasehold", "run", "--log-level", "d"], &["debug"]),
        (&["leasehold", "run", "--log-level", "=", "t"], &["trace"]),
        (&["leasehold", "sessions", "re"], &["resume", "remove"]),
        (&["leasehold", "completions", "b"], &["bash"]),
        (&["leasehold", "run", "--redis", ""], &[]),
        (&["leasehold", "status", "--workers"], &[]),
        (&["leasehold", "gua"], &[]),
        (&["leasehold", "run", "--runtime-dir", "/us"], &["/usr"]),
        (&["leasehold", "run", "--settings", "/etc/host"], &["/etc/hosts", "/etc/hostname"]),
    ] {
        let mut found = completed(words);
        found.retain(|it| it != "/etc/host.conf" && it != "/etc/hosts.allow");
        found.retain(|it| it != "/etc/hosts.deny");
        let (mut found, mut wanted) = (found, wanted.to_vec());
        found.sort();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{words:?}");
    }
    assert!(completed(&["leasehold", "lead", "role", "--", "gre"]).contains(&"grep".into()));
    let output = leasehold(&["completions", "tcsh"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("bash, zsh, fish"), "{}", err(&output));
}

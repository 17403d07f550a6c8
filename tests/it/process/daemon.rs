//! The daemon under hostile sessions, endpoints and surroundings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use testkit::process::{
    Instance, SOON, Scene, TempDir, binary, eventually, field, leasehold, ms, run_args,
};
use testkit::target::Answer;

/// Waits until the stored result of `endpoint` is as wanted.
#[track_caller]
fn wait_for_result(
    scene: &Scene,
    endpoint: &str,
    wanted: impl Fn(&BTreeMap<String, String>) -> bool,
) -> BTreeMap<String, String> {
    let get = || scene.result(endpoint);
    eventually(
        SOON,
        &format!("the result of {endpoint}"),
        || format!("{:?}", get()),
        || get().contains_key("ok") && wanted(&get()),
    );
    get()
}

/// CONTRACT "A session": reported once per change, and disturbs nothing.
#[test]
fn sessions_that_cannot_be_understood_are_reported_once_per_change_and_harm_nobody() {
    let scene = Scene::new(1);
    let one = scene.first(&["--log-level=debug"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let since = Instant::now();
    let client = ::redis::Client::open(scene.redis.url()).unwrap();
    let mut redis = client.get_connection().unwrap();
    let address = scene.target.address();
    let with = |id: &str, field: &str, value: Value| {
        let mut session = json!({"id": id, "address": address, "path": format!("/{id}")});
        session[field] = value;
        session.to_string().into_bytes()
    };
    let long = format!("http://{}/{}", address, "x".repeat(3_000));
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let values: Vec<(&str, Vec<u8>)> = vec![
        ("empty", b"".to_vec()),
        ("text", b"not json\nevent=forged".to_vec()),
        ("array", b"[1]".to_vec()),
        ("deep", deep.into_bytes()),
        ("no-id", json!({"address": address}).to_string().into_bytes()),
        ("no-address", json!({"id": "no-address"}).to_string().into_bytes()),
        ("other-id", json!({"id": "e1", "address": address}).to_string().into_bytes()),
        ("id-number", with("id-number", "id", json!(7))),
        ("paused-text", with("paused-text", "isPaused", json!("yes"))),
        ("interval-text", with("interval-text", "intervalMs", json!("fast"))),
        ("interval-negative", with("interval-negative", "intervalMs", json!(-5))),
        ("interval-zero", with("interval-zero", "intervalMs", json!(0))),
        ("interval-huge", with("interval-huge", "intervalMs", json!(1e300))),
        ("interval-fraction", with("interval-fraction", "intervalMs", json!(0.5))),
        ("timeout-huge", with("timeout-huge", "timeoutMs", json!(u64::MAX))),
        ("scheme", with("scheme", "address", json!("gopher://127.0.0.1:70/"))),
        ("no-port", with("no-port", "address", json!("127.0.0.1"))),
        ("port", with("port", "address", json!("127.0.0.1:99999"))),
        ("newline", with("newline", "path", json!("/x\r\nX-Evil: 1"))),
        ("user", with("user", "address", json!("http://a:hunter2@127.0.0.1:1/"))),
        ("long", with("long", "address", json!(long))),
        ("large", vec![b'x'; 1 << 20]),
        ("binary", vec![0, 159, 146, 150, 255, 10, 13]),
        ("bad key", with("bad key", "name", json!("x"))),
    ];
    for (id, value) in &values {
        ::redis::cmd("SET").arg(format!("session:{id}")).arg(value).exec(&mut redis).unwrap();
    }
    ::redis::cmd("RPUSH").arg("session:list").arg("x").exec(&mut redis).unwrap();
    ::redis::cmd("SET").arg(&b"session:\xff\xfe"[..]).arg("x").exec(&mut redis).unwrap();
    let mut names: Vec<&str> = values.iter().map(|it| it.0).collect();
    names.push("list");
    let reported = |name: &str| {
        let lines = one.lines(&["event=session.invalid"]);
        lines.iter().filter(|it| field(it, "endpoint").as_deref() == Some(name)).count()
    };
    for name in &names {
        let what = format!("{name} is reported");
        eventually(ms(5_000), &what, || one.log().join("\n"), || reported(name) > 0);
    }
    scene.target.observe(ms(2_500));
    for name in &names {
        assert_eq!(reported(name), 1, "{name}");
    }
    ::redis::cmd("SET").arg("session:text").arg("still not").exec(&mut redis).unwrap();
    eventually(ms(3_000), "a change is reported", String::new, || reported("text") == 2);
    scene.target.observe(ms(1_200));
    assert_eq!(reported("text"), 2);
    assert!(one.lines(&["event=session.invalid"]).iter().all(|it| field(it, "error").is_some()));
    assert!(!one.log().iter().any(|it| it.starts_with("event=forged") || it.contains("hunter2")));
    let gap = scene.target.longest_gap("e1", since..Instant::now());
    assert!(gap <= ms(1_000), "e1 was not polled for {gap:?}");
    assert!(scene.target.requests().iter().all(|it| it.path == "/e1"));
    // One that can be understood at last is polled.
    let good = with("text", "name", json!("good"));
    ::redis::cmd("SET").arg("session:text").arg(good).exec(&mut redis).unwrap();
    scene.target.wait_for_polls(&["text".into()], since, ms(2_000));
    scene.target.assert_sound();
}

/// One that was good and becomes bad is given back.
#[test]
fn a_session_that_becomes_incomprehensible_is_no_longer_polled() {
    let scene = Scene::new(2);
    let _one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.redis.cli(&["SET", "session:e1", "oops"]);
    eventually(ms(2_000), "it is released", String::new, || !scene.owners().contains_key("e1"));
    let released_at = Instant::now();
    scene.target.observe(ms(1_000));
    assert!(scene.target.polls("e1").iter().all(|it| it.start < released_at));
    scene.target.assert_sound();
}

/// G7: a hanging or dripping endpoint costs one worker, for its timeout.
/// An operator tidies up. The fence goes with the result, and comes back with the next renewal.
#[test]
fn a_result_that_somebody_deletes_is_followed_by_others() {
    let scene = Scene::new(1);
    let one = scene.first(&[]);
    wait_for_result(&scene, "e1", |_| true);
    assert_eq!(scene.redis.cli(&["DEL", "poll:result:e1"]), "1");
    wait_for_result(&scene, "e1", |it| it["fence"] == it["granted"]);
    assert!(!one.says("event=lease.lost"), "{:?}", one.log());
}

#[test]
fn endpoints_that_hang_or_drip_do_not_disturb_the_others() {
    let scene = Scene::new(6);
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    let drip = Answer { endless: true, pause: ms(50), ..Answer::default() };
    scene.target.answer("e2", drip);
    for id in ["e1", "e2"] {
        scene.put_session(id, json!({"timeoutMs": 1_000}));
    }
    let _one = scene.first(&["--workers=4"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let since = Instant::now();
    scene.target.observe(ms(4_000));
    for endpoint in &scene.endpoints[2..] {
        let gap = scene.target.longest_gap(endpoint, since..Instant::now());
        println!("measured: two of four workers hang, gap {gap:?}");
        assert!(gap <= ms(700), "{endpoint} was not polled for {gap:?}\n{}", scene.target.story());
    }
    for endpoint in &scene.endpoints[..2] {
        let polls = scene.target.polls(endpoint);
        assert!(polls.len() >= 3, "{}", scene.target.story());
        for poll in polls.iter().filter(|it| it.end.is_some()) {
            let took = poll.end.unwrap() - poll.start;
            assert!(took >= ms(900) && took <= ms(1_600), "{endpoint} took {took:?}");
        }
        let result = wait_for_result(&scene, endpoint, |_| true);
        assert_eq!(result["ok"], "0", "{result:?}");
        assert!(!result["error"].is_empty(), "{result:?}");
    }
    scene.target.assert_sound();
}

/// `--max-body`.
#[test]
fn an_endless_body_is_read_to_the_limit_and_no_further() {
    let scene = Scene::new(2);
    scene.target.answer("e1", Answer { endless: true, ..Answer::default() });
    let _one = scene.first(&["--max-body=1000"]);
    wait_for_result(&scene, "e1", |it| it["ok"] == "1" && it["body"].len() == 1_000);
    scene.target.wait_until(SOON, "it goes on", |requests| {
        requests.iter().filter(|it| it.path == "/e1" && it.end.is_some()).count() >= 3
    });
    for poll in scene.target.polls("e1").iter().filter(|it| it.end.is_some()) {
        assert!(poll.end.unwrap() - poll.start < ms(1_000), "{poll:?}");
    }
    scene.target.assert_sound();
}

/// `--deny-targets`: metadata services of clouds, by default.
#[test]
fn a_session_at_a_link_local_address_is_refused_with_the_reason() {
    let scene = Scene::new(1);
    scene.put_session("cloud", json!({"address": "http://169.254.169.254/latest/"}));
    scene.put_session("mapped", json!({"address": "http://[::ffff:169.254.169.254]:80/"}));
    scene.put_session("decimal", json!({"address": "http://2852039166:80/"}));
    let _one = scene.first(&[]);
    for id in ["cloud", "mapped", "decimal"] {
        let result = wait_for_result(&scene, id, |_| true);
        assert_eq!(result["ok"], "0", "{id}: {result:?}");
        assert_eq!(result["status"], "", "{id}: {result:?}");
        assert!(result["error"].contains("169.254.169.254"), "{id}: {result:?}");
    }
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.assert_sound();
}

/// `--deny-targets`, `--allow-targets`.
#[test]
fn addresses_that_are_denied_or_not_allowed_are_never_connected_to() {
    for option in ["--deny-targets=127.0.0.0/8", "--allow-targets=10.0.0.0/8"] {
        let scene = Scene::new(2);
        let _one = scene.first(&[option]);
        for id in &scene.endpoints {
            let result = wait_for_result(&scene, id, |_| true);
            assert_eq!(result["ok"], "0", "{option}: {result:?}");
            assert!(result["error"].contains("127.0.0.1"), "{option}: {result:?}");
        }
        assert!(scene.target.requests().is_empty(), "{option}: {}", scene.target.story());
    }
}

/// `--light-after`, `--light-interval`.
#[test]
fn an_endpoint_that_keeps_failing_is_polled_lightly_until_it_succeeds() {
    let scene = Scene::new(2);
    scene.target.answer("e1", Answer { status: 500, ..Answer::default() });
    let one = scene.first(&["--light-after=3", "--light-interval=1500ms"]);
    let line = one.wait_for("event=endpoint.light");
    assert_eq!(field(&line, "endpoint").as_deref(), Some("e1"), "{line}");
    scene.target.wait_until(SOON, "two light polls", |requests| {
        requests.iter().filter(|it| it.path == "/e1").count() >= 5
    });
    let polls = scene.target.polls("e1");
    for (n, pair) in polls.windows(2).enumerate() {
        let gap = pair[1].start - pair[0].start;
        if n < 2 {
            assert!(gap < ms(1_000), "light after {n} failures: {gap:?}");
        } else {
            assert!(gap >= ms(1_000), "not light after {gap:?}\n{}", scene.target.story());
        }
    }
    scene.target.answer("e1", Answer::default());
    one.wait_for("event=endpoint.normal");
    let normal_at = Instant::now();
    scene.target.wait_until(SOON, "five normal polls", |requests| {
        requests.iter().filter(|it| it.path == "/e1" && it.start > normal_at).count() >= 5
    });
    assert!(normal_at.elapsed() < ms(3_000), "took {:?}", normal_at.elapsed());
    assert_eq!(one.lines(&["event=endpoint.light"]).len(), 1);
    scene.target.assert_sound();
}

fn script(dir: &TempDir, text: &str) -> String {
    let path = dir.path().join("check.sh");
    fs::write(&path, text).unwrap();
    format!("--poll-command=/bin/sh {}", path.display())
}

/// `--poll-command`.
#[test]
fn a_poll_command_polls_and_its_output_is_the_body() {
    let scene = Scene::new(2);
    let dir = TempDir::new();
    let text = "echo \"$LEASEHOLD_ENDPOINT $LEASEHOLD_INSTANCE $LEASEHOLD_FENCE\"; cat\n";
    let one = scene.first(&[&script(&dir, text)]);
    for id in &scene.endpoints {
        let result = wait_for_result(&scene, id, |_| true);
        assert_eq!((result["ok"].as_str(), result["status"].as_str()), ("1", "0"), "{result:?}");
        let body = scene.redis.cli(&["HGET", &format!("poll:result:{id}"), "body"]);
        let (first, document) = body.split_once('\n').unwrap();
        assert_eq!(first, format!("{id} {} {}", one.id(), result["fence"]));
        assert_eq!(serde_json::from_str::<Value>(document).unwrap(), scene.target.session(id));
    }
    assert!(scene.target.requests().is_empty());
}

/// CONTRACT "Log": what a command writes is as private as a body.
#[test]
fn what_a_failed_command_says_on_stderr_is_stored_and_not_logged() {
    let (scene, dir) = (Scene::new(1), TempDir::new());
    let option = script(&dir, "echo token hunter2 >&2; exit 3\n");
    let one = scene.first(&[&option, "--log-level=trace"]);
    let result = wait_for_result(&scene, "e1", |_| true);
    assert_eq!(result["error"], "exit code 3; stderr: token hunter2");
    let line = one.wait_for("event=poll.failed");
    assert_eq!(field(&line, "error").as_deref(), Some("exit code 3"), "{line}");
    assert!(!one.log().iter().any(|it| it.contains("hunter2")), "{:?}", one.log());
}

/// R12: not even a SIGKILLed daemon leaves a command behind, nor what that has started, and its
/// leases are released no sooner than they are gone.
#[test]
fn a_poll_command_does_not_outlive_a_daemon_that_was_killed() {
    let scene = Scene::new(1);
    let (dir, runtime) = (TempDir::new(), TempDir::new());
    let pids = dir.path().join("pids");
    let text = format!(
        "trap '' TERM\nsleep 300 &\necho $$ $! > {0}.new; mv {0}.new {0}; wait\n",
        pids.display()
    );
    let mut one =
        scene.first(&[&script(&dir, &text), "--timeout=60s", &runtime.option("runtime-dir")]);
    eventually(SOON, "the command runs", String::new, || pids.exists());
    let pids = fs::read_to_string(&pids).unwrap();
    let is_alive = |it: &str| {
        // A zombie that nobody has looked at yet is gone, too.
        let stat = fs::read_to_string(Path::new("/proc").join(it).join("stat"));
        stat.is_ok_and(|it| !it.rsplit(')').next().unwrap().starts_with(" Z"))
    };
    let alive = || pids.split_whitespace().any(is_alive);
    assert!(alive());
    one.kill9();
    let killed_at = Instant::now();
    let url = format!("--redis={}", scene.redis.url());
    let release = leasehold(&["release", &url, &runtime.option("runtime-dir")]);
    println!("measured: command gone, leases released {:?} after SIGKILL", killed_at.elapsed());
    assert!(!alive(), "released while the command still ran");
    assert_eq!(release.status.code(), Some(0), "{release:?}");
    assert!(scene.owners().is_empty());
    assert!(killed_at.elapsed() < ms(3_000), "took {:?}", killed_at.elapsed());
}

/// A full disk or a closed stderr is no reason to stop polling.
#[test]
fn a_daemon_whose_log_goes_nowhere_keeps_polling() {
    let scene = Scene::new(2);
    let args = run_args(&scene.redis.url(), &["--new-fleet", "--log-level=trace"]);
    let closed = format!("exec {} \"$@\" 2>&-", binary());
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let start = |command: &mut Command| command.args(&args).stdin(Stdio::null()).spawn().unwrap();
    for n in 0..2 {
        let before = Instant::now();
        let mut child = if n == 0 {
            start(Command::new("sh").args(["-c", &closed, "sh"]))
        } else {
            start(Command::new(binary()).stderr(full.try_clone().unwrap()))
        };
        scene.target.wait_for_polls(&scene.endpoints, before, SOON);
        scene.target.wait_for_polls(&scene.endpoints, Instant::now() + ms(1_500), SOON);
        let running = child.try_wait().unwrap().is_none();
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(running, "it ended by itself");
        assert!(child.wait().unwrap().success());
    }
    scene.target.assert_sound();
}

/// CONTRACT "Log": what is wrong with a line, if anything.
fn flaw(line: &str, instance: &str) -> Option<&'static str> {
    let shape: String = line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00.000Z ") else { return Some("time") };
    let level = rest.split(' ').next().unwrap_or("");
    if !["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level) {
        return Some("level");
    }
    let rest = &line["2026-11-16T00:04:07.123Z ".len() + level.len() + 1..];
    let Some((thread, mut pairs)) = rest.strip_prefix('(').and_then(|it| it.split_once(") "))
    else {
        return Some("thread");
    };
    if thread.is_empty() || thread.contains(' ') {
        return Some("thread");
    }
    if !pairs.starts_with("event=") {
        return Some("event first");
    }
    let mut keys = Vec::new();
    while !pairs.is_empty() {
        let Some((key, value)) = pairs.split_once('=') else { return Some("key=value") };
        if key.is_empty() || !key.bytes().all(|it| it.is_ascii_lowercase() || it == b'_') {
            return Some("key");
        }
        keys.push(key);
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<Value>();
        let end = if value.starts_with('"') {
            match values.next() {
                Some(Ok(Value::String(_))) => values.byte_offset(),
                _ => return Some("quoting"),
            }
        } else {
            let end = value.find(' ').unwrap_or(value.len());
            if end == 0 || value[..end].contains(['"', '=']) {
                return Some("value");
            }
            end
        };
        pairs = match &value[end..] {
            "" => "",
            more => match more.strip_prefix(' ') {
                Some(more) if !more.is_empty() => more,
                _ => return Some("separator"),
            },
        };
    }
    if keys.get(1) != Some(&"instance") {
        return Some("instance second");
    }
    if field(line, "instance").as_deref() != Some(instance) {
        return Some("instance");
    }
    let about_a_lease = ["lease.", "poll.", "endpoint."];
    let event = field(line, "event").unwrap_or_default();
    // A line with the number of further events is about many endpoints.
    let names = ["endpoint", "others", "count"];
    let is_named = names.iter().any(|it| keys.contains(it));
    (about_a_lease.iter().any(|it| event.starts_with(it)) && !is_named).then_some("endpoint")
}

/// FR-019 – FR-022, CONTRACT "Log".
#[test]
fn every_line_of_a_turbulent_life_has_the_stated_form() {
    let mut scene = Scene::new(3);
    scene.target.answer("e1", Answer { status: 500, ..Answer::default() });
    let args = ["--log-level=trace", "--light-after=2", "--light-interval=500ms"];
    let mut one = scene.first(&args);
    let mut two = scene.join(&args);
    scene.wait_for_balance(&[&one, &two], SOON);
    one.wait_for("event=lease.renewed");
    scene.redis.cli(&["SET", "session:odd one", "\"quoted\" = \\ text"]);
    one.wait_for("event=session.invalid");
    scene.put_session("e3", json!({"isPaused": true}));
    eventually(SOON, "a release", String::new, || !scene.owners().contains_key("e3"));
    scene.redis.kill();
    one.wait_for("event=store.unreachable");
    scene.target.observe(ms(3_200));
    scene.redis.restart();
    one.wait_for("event=store.reachable");
    scene.put_sessions();
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert!(two.term().success());
    one.wait_for("event=instance.left");
    assert!(one.term().success());
    for instance in [&one, &two] {
        let id = instance.id();
        for line in instance.log() {
            assert_eq!(flaw(&line, &id), None, "{line}");
        }
    }
    let events: BTreeSet<String> =
        one.log().iter().chain(&two.log()).filter_map(|it| field(it, "event")).collect();
    for event in [
        "daemon.started",
        "daemon.ready",
        "daemon.stopping",
        "daemon.stopped",
        "lease.acquired",
        "lease.renewed",
        "lease.uncertain",
        "lease.lost",
        "lease.released",
        "store.unreachable",
        "store.reachable",
        "store.holdoff",
        "poll.ok",
        "poll.failed",
        "endpoint.light",
        "session.invalid",
        "instance.joined",
        "instance.left",
    ] {
        assert!(events.contains(event), "{event} was never said, but {events:?}");
    }
    scene.target.assert_sound();
}

/// CONTRACT "Log": secrets never appear.
#[test]
fn the_redis_password_is_in_no_line_of_the_log() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, "hunter2\n").unwrap();
    scene.redis.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let url = format!("redis://:hunter2@127.0.0.1:{}/0", scene.redis.port());
    let in_url = Instance::start_at(&url, &["--log-level=trace", "--new-fleet"]);
    let option = format!("--redis-password-file={}", file.display());
    let in_file = Instance::start(&scene.redis, &["--log-level=trace", "--new-fleet", &option]);
    for one in [&in_url, &in_file] {
        one.wait_for("event=daemon.ready");
    }
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let admin = |password: &str, words: &[&str]| {
        let url = format!("redis://:{password}@127.0.0.1:{}/0", scene.redis.port());
        let mut redis = ::redis::Client::open(url).unwrap().get_connection().unwrap();
        ::redis::cmd(words[0]).arg(&words[1..]).exec(&mut redis).unwrap();
    };
    admin("hunter2", &["CONFIG", "SET", "requirepass", "other"]);
    admin("other", &["CLIENT", "KILL", "TYPE", "normal"]);
    admin("other", &["CLIENT", "KILL", "TYPE", "pubsub"]);
    for one in [&in_url, &in_file] {
        one.wait_for("event=store.unreachable");
    }
    admin("other", &["CONFIG", "SET", "requirepass", "hunter2"]);
    let healed_at = Instant::now();
    for one in [&in_url, &in_file] {
        one.wait_for_since(healed_at, "event=store.reachable");
        let told: Vec<String> = one.lines(&["hunter2"]);
        assert!(told.is_empty(), "{told:?}");
    }
    scene.target.wait_for_polls(&scene.endpoints, healed_at, SOON);
    scene.target.assert_sound();
}

/// CONTRACT "Redis keys": exactly these, stored and announced.
#[test]
fn a_result_has_exactly_the_stated_fields_and_is_announced_as_json() {
    let scene = Scene::new(1);
    let body = "a \"body\"\u{1}";
    scene.target.answer("e1", Answer { status: 404, body: body.into(), ..Answer::default() });
    let client = ::redis::Client::open(scene.redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    connection.set_read_timeout(Some(SOON)).unwrap();
    let mut channel = connection.as_pubsub();
    channel.subscribe("poll:results:e1").unwrap();
    let one = scene.first(&[]);
    let message: String = channel.get_message().unwrap().get_payload().unwrap();
    let announced: Value = serde_json::from_str(&message).unwrap();
    let result = wait_for_result(&scene, "e1", |_| true);
    let fields: Vec<&str> = result.keys().map(String::as_str).collect();
    let stated = [
        "body",
        "duration_ms",
        "error",
        "fence",
        "granted",
        "instance",
        "interval_ms",
        "ok",
        "started_at_ms",
        "status",
    ];
    // The verdict is announced only when it changes.
    let verdict = ["before_ms", "failures", "since_ms", "successes", "verdict"];
    let mut all = [&stated[..], &verdict].concat();
    all.sort_unstable();
    assert_eq!(fields, all);
    let poll = scene.target.polls("e1").remove(0);
    assert_eq!(result["instance"], one.id());
    assert_eq!(result["fence"], poll.fence.to_string());
    assert_eq!(result["granted"], poll.fence.to_string());
    assert_eq!((result["ok"].as_str(), result["status"].as_str()), ("0", "404"));
    assert_eq!(result["body"], body);
    println!("announced: {message}");
    let said: BTreeSet<&str> = announced.as_object().unwrap().keys().map(String::as_str).collect();
    for field in stated.iter().filter(|it| **it != "granted") {
        assert!(said.contains(field), "{field} is not in {message}");
    }
    assert_eq!(announced["body"], body);
    assert_eq!(announced["instance"], one.id());
    assert_eq!(announced["fence"], json!(poll.fence));
    scene.target.assert_sound();
}

/// CONTRACT "A poll": a starting fleet is no thundering herd.
#[test]
fn first_polls_are_spread_over_the_interval() {
    let scene = Scene::new(12);
    let interval = Duration::from_secs(2);
    let _one = scene.first(&["--interval=2s"]);
    scene.target.wait_for_polls(&scene.endpoints, scene_start(), SOON);
    let first = |it: &String| scene.target.polls(it)[0].start;
    let starts: Vec<Instant> = scene.endpoints.iter().map(first).collect();
    let spread = *starts.iter().max().unwrap() - *starts.iter().min().unwrap();
    println!("measured: first polls of 12 endpoints spread over {spread:?} of {interval:?}");
    assert!(spread >= interval / 2 && spread <= interval + ms(500), "{spread:?}");
    scene.target.assert_sound();
}

/// Before anything in this process.
fn scene_start() -> Instant {
    Instant::now().checked_sub(Duration::from_secs(60)).unwrap()
}

/// CONTRACT "A poll": an endpoint taken over keeps its rhythm.
#[test]
fn an_endpoint_that_is_handed_over_keeps_its_rhythm() {
    let scene = Scene::new(4);
    let mut one = scene.first(&["--interval=1500ms"]);
    let _two = scene.join(&["--interval=1500ms"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let since = Instant::now();
    assert!(one.term().success());
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    for endpoint in &scene.endpoints {
        let polls = scene.target.polls(endpoint);
        let around = polls.windows(2).filter(|it| it[1].start > since);
        for pair in around {
            let gap = pair[1].start - pair[0].start;
            assert!(gap >= ms(1_000) && gap <= ms(2_300), "{endpoint}: {gap:?}");
        }
    }
    scene.target.assert_sound();
}

/// An instance whose host is out of file descriptors cannot poll, but recovers.
#[test]
fn a_daemon_that_runs_out_of_descriptors_recovers_when_there_are_some_again() {
    let scene = Scene::new(2);
    let mut one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let limit = |n: &str| {
        let (pid, nofile) = (one.pid().to_string(), format!("--nofile={n}:"));
        let set = Command::new("prlimit").args(["--pid", &pid, &nofile]).status();
        assert!(set.unwrap().success());
    };
    limit("5");
    scene.target.observe(ms(1_500));
    limit("256");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert!(one.is_running());
    assert!(one.term().success());
    scene.target.assert_sound();
}

/// Dispatch hands out more than pollers can begin at once; what has waited too long has to be verified again (R2),
/// and must not lose its turn by that.
#[test]
fn with_too_few_workers_every_endpoint_has_its_turn() {
    let scene = Scene::new(6);
    for endpoint in &scene.endpoints {
        scene.target.answer(endpoint, Answer { delay: ms(1_200), ..Answer::default() });
    }
    let _one = scene.first(&["--workers=1"]);
    for round in 0..3 {
        // A fair round takes 7.2 s, a verification before each poll hardly more.
        let began = Instant::now();
        scene.target.wait_for_polls(&scene.endpoints, began, 2 * SOON);
        println!("measured: round {round} {:?}", began.elapsed());
    }
    scene.target.assert_sound();
}

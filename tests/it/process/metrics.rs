//! `--metrics-file`: what it says is true, and it costs nobody anything.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use testkit::process::{Instance, SOON, Scene, TempDir, binary, eventually, leasehold};
use testkit::prometheus::Document;
use testkit::target::Answer;

/// As a setting of its own.
struct Metrics(PathBuf);

impl Metrics {
    fn new(dir: &TempDir, name: &str) -> Self {
        Self(dir.path().join(name))
    }

    fn arg(&self) -> String {
        format!("--metrics-file={}", self.0.display())
    }

    /// What it says now; every version of it must be well formed.
    fn read(&self) -> Option<Document> {
        let text = fs::read_to_string(&self.0).ok()?;
        Some(Document::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}")))
    }

    /// Waits until it says so.
    #[track_caller]
    fn wait(&self, what: &str, wanted: impl Fn(&Document) -> bool) -> Document {
        let mut last = None;
        eventually(
            SOON,
            what,
            || format!("{:#?}", self.read()),
            || {
                last = self.read();
                last.as_ref().is_some_and(&wanted)
            },
        );
        last.unwrap()
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Compared with the log of the same process: on a busy machine more happens than is asked for.
#[test]
fn the_numbers_are_what_happened() {
    let dir = TempDir::new();
    let (mine, others) = (Metrics::new(&dir, "a.prom"), Metrics::new(&dir, "b.prom"));
    let mut scene = Scene::new(4);
    let mut first = scene.first(&[&mine.arg()]);
    let now = mine.wait("everything owned and polled", |it| {
        it.get("leasehold_leases_owned") == 4.0
            && it.get("leasehold_polls_total{result=\"ok\"}") > 8.0
    });
    assert!(now.get("leasehold_leases_acquired_total{reason=\"preferred\"}") >= 4.0);
    assert_eq!(now.get("leasehold_endpoints"), 4.0);
    assert_eq!(now.get("leasehold_instances"), 1.0);
    assert_eq!(now.get("leasehold_ready"), 1.0);
    assert_eq!(now.get("leasehold_workers"), 4.0);
    assert_eq!(now.get("leasehold_hold_off_seconds"), 0.0);
    let version = format!("leasehold_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(now.get(&version), 1.0);
    let polls = now.get("leasehold_polls_total{result=\"ok\"}");
    let failed = now.get("leasehold_polls_total{result=\"failed\"}");
    // Each is read on its own, while polls go on: they may be a poll or two apart.
    let timed = now.get("leasehold_poll_duration_seconds_count");
    assert!((timed - polls - failed).abs() <= 4.0, "{timed} {polls} {failed}");
    assert!(now.get("leasehold_poll_lag_seconds_count") >= polls);
    // heartbeat, renewal, expiry, watch, reconcile, dispatch, publish, history, pool, two pollers, metrics; at least
    assert!(now.get("leasehold_threads") >= 12.0);
    assert!(now.get("leasehold_thread_still_seconds{thread=\"renewal\"}") < 10.0);
    let mode = fs::metadata(&mine.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    mine.wait("renewals", |it| {
        it.get("leasehold_renewal_duration_seconds_count") >= 1.0
            && it.get("leasehold_leases_renewed_total") >= 4.0
            && it.get("leasehold_store_up") == 1.0
            && it.get("leasehold_heartbeat_valid") == 1.0
    });

    let mut second = scene.join(&[&others.arg()]);
    scene.wait_for_balance(&[&first, &second], SOON);
    others.wait("its share", |it| it.get("leasehold_leases_owned") == 2.0);
    let now = mine.wait("the other", |it| {
        it.get("leasehold_instances") == 2.0 && it.get("leasehold_leases_owned") == 2.0
    });
    assert!(now.get("leasehold_instances_joined_total") >= 1.0);
    second.kill9();
    let taken = "leasehold_leases_acquired_total{reason=\"takeover\"}";
    let now = mine.wait("what the dead one had", |it| {
        it.get("leasehold_leases_owned") == 4.0 && it.get(taken) >= 2.0
    });
    assert!(now.get("leasehold_instances_left_total") >= 1.0);

    let (outages, epochs) =
        ("leasehold_store_outages_total", "leasehold_store_epoch_changes_total");
    let before = (now.get(outages), now.get(epochs));
    scene.redis.kill();
    let now = mine.wait("the outage", |it| {
        it.get("leasehold_store_up") == 0.0
            && it.get("leasehold_leases_lost_total{reason=\"expired\"}") >= 4.0
    });
    assert!(now.get("leasehold_leases_doubted_total") >= 4.0);
    assert!(now.get("leasehold_store_errors_total{fault=\"unreachable\"}") > 4.0);
    assert!(now.get(outages) > before.0);
    assert_eq!(now.get("leasehold_heartbeat_valid"), 0.0);
    scene.redis.restart_empty();
    scene.put_sessions();
    let now = mine.wait("the end of it", |it| {
        it.get("leasehold_leases_owned") == 4.0 && it.get("leasehold_store_up") == 1.0
    });
    assert!(now.get(epochs) > before.1);
    assert!(now.get("leasehold_store_hold_offs_total") >= 1.0);
    counted_as_logged(&mine, &first);

    assert!(first.term().success());
    assert_eq!(names_in(dir.path()), ["b.prom"], "a stop leaves nothing; a kill cannot help it");
}

/// Waits until both agree, because the log is read later than it is written.
#[track_caller]
fn counted_as_logged(metrics: &Metrics, instance: &Instance) {
    let lines = |parts: &[&str]| instance.lines(parts).len() as f64;
    let agree = |it: &Document| {
        ["preferred", "handover", "takeover", "fallback", "adopted"].iter().all(|reason| {
            let logged = lines(&["event=lease.acquired ", &format!(" reason={reason}")]);
            it.get(&format!("leasehold_leases_acquired_total{{reason=\"{reason}\"}}")) == logged
        }) && it.get("leasehold_leases_lost_total{reason=\"expired\"}")
            == lines(&["event=lease.lost ", " reason=expired"])
            && it.get("leasehold_leases_released_total{reason=\"rebalance\"}")
                == lines(&["event=lease.released ", " reason=rebalance"])
            && it.get("leasehold_leases_doubted_total") == lines(&["event=lease.uncertain "])
            && it.get("leasehold_store_outages_total") == lines(&["event=store.unreachable "])
            && it.get("leasehold_store_hold_offs_total") == lines(&["event=store.holdoff "])
    };
    metrics.wait("as many as there are lines", agree);
}

/// A disk is no reason not to poll.
#[test]
fn a_file_that_cannot_be_written_costs_one_line_and_nothing_else() {
    let dir = TempDir::new();
    let missing = dir.path().join("not-yet");
    let metrics = Metrics(missing.join("m.prom"));
    let scene = Scene::new(1);
    let mut one = scene.first(&[&metrics.arg()]);
    let line = one.wait_for("event=metrics.failed");
    assert!(line.contains("cannot write") && line.contains("No such file"), "{line}");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    fs::create_dir(&missing).unwrap();
    one.wait_for("event=metrics.resumed");
    metrics.wait("what is owned", |it| it.get("leasehold_leases_owned") == 1.0);
    assert_eq!(one.lines(&["event=metrics.failed"]).len(), 1);
    // A mistake of the operator: a directory where the file should be.
    fs::remove_file(&metrics.0).unwrap();
    fs::create_dir(&metrics.0).unwrap();
    eventually(SOON, "another reason", String::new, || {
        one.lines(&["event=metrics.failed"]).len() == 2
    });
    assert_eq!(names_in(&missing), ["m.prom"], "nothing half written stays");
    assert!(one.term().success());
}

#[test]
fn it_is_there_while_redis_is_awaited_and_gone_when_the_start_is_given_up() {
    let dir = TempDir::new();
    let metrics = Metrics::new(&dir, "m.prom");
    let mut one = Instance::start_at("redis://127.0.0.1:1", &[&metrics.arg()]);
    let now = metrics.wait("an outage", |it| it.get("leasehold_store_up") == 0.0);
    assert_eq!(now.get("leasehold_ready"), 0.0);
    assert!(now.get("leasehold_store_errors_total{fault=\"unreachable\"}") >= 1.0);
    assert!(one.term().success());
    assert!(!metrics.0.exists());
}

/// node_exporter's textfile collector reads all files of a directory as one document, in which no series may be
/// there twice: if one is, it shows nothing of the second file.
#[test]
fn the_files_of_several_processes_on_one_host_are_one_document() {
    let dir = TempDir::new();
    let files =
        ["leasehold.prom", "leasehold-b.prom", "lead.prom"].map(|it| Metrics::new(&dir, it));
    let scene = Scene::new(4);
    let _first = scene.first(&[&files[0].arg()]);
    let _second = scene.join(&[&files[1].arg()]);
    let url = format!("--redis={}", scene.redis.url());
    let mut command = Command::new(binary());
    command.args(["lead", "mailer", &url, "--lease-ttl=3s", "--new-fleet", &files[2].arg()]);
    let _lead = Instance::spawn(command.args(["--metrics-name=lead\"er", "--", "sleep", "1000"]));
    files.iter().for_each(|it| drop(it.wait("a file", |_| true)));
    let texts = files.each_ref().map(|it| fs::read_to_string(&it.0).unwrap());
    let texts = texts.each_ref().map(String::as_str);
    let all = testkit::prometheus::collect(&texts).unwrap();
    assert_eq!(all.get("leasehold_last_write_timestamp_seconds").map(|it| it.len()), Some(3));
    let daemons: Vec<&str> = all["leasehold_threads"].iter().map(String::as_str).collect();
    assert_eq!(daemons, ["lead\"er", "leasehold", "leasehold-b"]);
}

#[test]
fn a_leader_tells_its_roles() {
    let dir = TempDir::new();
    let (led, polling) = (Metrics::new(&dir, "lead.prom"), Metrics::new(&dir, "run.prom"));
    let scene = Scene::new(1);
    let url = format!("--redis={}", scene.redis.url());
    let mut command = Command::new(binary());
    command.args(["lead", "mailer", &url, "--lease-ttl=3s", "--new-fleet", &led.arg()]);
    let mut lead = Instance::spawn(command.args(["--", "sleep", "1000"]));
    lead.wait_for("event=leader.elected");
    let now = led.wait("the role", |it| it.get("leasehold_role_leader{role=\"mailer\"}") == 1.0);
    assert!(now.get("leasehold_role_term{role=\"mailer\"}") > 1e15);
    assert!(!now.names().contains("leasehold_leases_owned"), "it polls nothing");
    let _run = scene.first(&[&polling.arg(), "--lead=mailer,backup"]);
    let now = polling.wait("the roles", |it| {
        it.samples.get("leasehold_role_leader{role=\"backup\"}") == Some(&1.0)
    });
    assert_eq!(now.get("leasehold_role_leader{role=\"mailer\"}"), 0.0);
    assert_eq!(now.get("leasehold_role_term{role=\"mailer\"}"), 0.0);
    lead.term();
    eventually(Duration::from_secs(5), "the file's end", String::new, || !led.0.exists());
}

/// The names of ours that a text asks for.
fn asked_for(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c)).filter(|it| it.starts_with("leasehold_"));
    let words = words.filter(|it| *it != "leasehold_"); // of leasehold_*.deb
    words.map(String::from).collect()
}

#[test]
fn failing_and_late_endpoints_are_counted_and_as_many_have_series_as_may() {
    let dir = TempDir::new();
    let metrics = Metrics::new(&dir, "m.prom");
    let scene = Scene::new(4);
    let _one = scene.first(&[&metrics.arg(), "--metrics-endpoints=2", "--timeout=1m"]);
    let polled = |it: &Document| it.get("leasehold_polls_total{result=\"ok\"}") >= 4.0;
    let now = metrics.wait("everything polled", |it| {
        it.names().contains("leasehold_endpoint_failing") && polled(it)
    });
    assert_eq!(now.get("leasehold_endpoints_failing"), 0.0);
    assert_eq!(now.get("leasehold_endpoints_failing_oldest_seconds"), 0.0);
    scene.target.answer("e4", Answer { status: 503, ..Answer::default() });
    let now = metrics.wait("a failing endpoint, and for how long", |it| {
        it.get("leasehold_endpoints_failing") == 1.0
            && it.get("leasehold_endpoints_failing_oldest_seconds") >= 1.0
    });
    // The failing one first, and then by name.
    assert_eq!(now.get("leasehold_endpoint_failing{endpoint=\"e4\"}"), 1.0);
    assert_eq!(now.get("leasehold_endpoint_failing{endpoint=\"e1\"}"), 0.0);
    assert_eq!(now.count("leasehold_endpoint_failing{"), 2);
    let since: f64 = scene.result("e4")["since_ms"].parse().unwrap();
    let told = now.get("leasehold_endpoint_verdict_timestamp_seconds{endpoint=\"e4\"}");
    assert!((told * 1_000.0 - since).abs() < 1.0, "{told} {since}");
    scene.target.answer("e4", Answer::default());
    metrics.wait("it recovered", |it| it.get("leasehold_endpoints_failing") == 0.0);
    scene.target.answer("e2", Answer { hang: true, ..Answer::default() });
    metrics.wait("a late one", |it| it.get("leasehold_endpoints_late") == 1.0);
}

#[test]
fn every_series_of_the_alerts_and_the_dashboard_is_written() {
    let dir = TempDir::new();
    let metrics = Metrics::new(&dir, "m.prom");
    let scene = Scene::new(1);
    let _one = scene.first(&[&metrics.arg(), "--lead=mailer", "--metrics-endpoints=5"]);
    let written = metrics.wait("the role, and an endpoint", |it| {
        it.names().contains("leasehold_role_leader")
            && it.names().contains("leasehold_endpoint_failing")
    });
    let (alerts, dashboard) = (
        include_str!("../../../monitoring/alerts.yml"),
        include_str!("../../../monitoring/grafana.json"),
    );
    for (page, text) in [
        ("alerts.yml", alerts),
        ("grafana.json", dashboard),
        (
            "docs/operating.md",
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operating.md")),
        ),
    ] {
        let asked = asked_for(text);
        assert!(asked.len() > 8, "{page}: {asked:?}");
        let families: BTreeSet<String> = written.kinds.keys().cloned().collect();
        let known = &written.names() | &families;
        let unknown: Vec<&String> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{page} asks for {unknown:?}");
    }
    // And the other way round: whatever is written is shown somewhere.
    let shown = &asked_for(alerts) | &asked_for(dashboard);
    let is_shown =
        |it: &String| ["", "_bucket"].iter().any(|end| shown.contains(&format!("{it}{end}")));
    let unseen: Vec<&String> = written.kinds.keys().filter(|it| !is_shown(it)).collect();
    assert!(unseen.is_empty(), "nobody looks at {unseen:?}");
}

/// Two processes of one host differ in `daemon` only: whatever is matched or told by `instance` is by both.
#[test]
fn alerts_and_panels_tell_two_processes_of_one_host_apart() {
    let alerts = include_str!("../../../monitoring/alerts.yml");
    let dashboard = include_str!("../../../monitoring/grafana.json");
    for (page, text) in [("alerts.yml", alerts), ("grafana.json", dashboard)] {
        for (n, line) in text.lines().enumerate() {
            let n = n + 1;
            for part in ["by (", "on ("] {
                for labels in line.split(part).skip(1).filter_map(|it| it.split(')').next()) {
                    let both = labels.contains("instance") == labels.contains("daemon");
                    assert!(both, "{page}:{n}: {part}{labels})");
                }
            }
            let told = ["$labels.instance", "{{instance}}"].iter().any(|it| line.contains(it));
            let apart = ["$labels.daemon", "{{daemon}}"].iter().any(|it| line.contains(it));
            assert_eq!(told, apart, "{page}:{n}: {line}");
            let chosen = line.matches("instance=~").count();
            assert_eq!(chosen, line.matches("daemon=~").count(), "{page}:{n}: {line}");
        }
    }
}

#[test]
fn every_alert_says_what_to_do_and_every_panel_asks_something() {
    let alerts = include_str!("../../../monitoring/alerts.yml");
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 10);
    for rule in rules {
        for part in ["expr: ", "labels: {severity: ", "summary: ", "description: "] {
            assert_eq!(rule.matches(part).count(), 1, "{part} in {rule}");
        }
        let expr = rule.split("expr: ").nth(1).unwrap().split("labels:").next().unwrap();
        assert!(!asked_for(expr).is_empty(), "{rule}");
        for (open, close) in [('(', ')'), ('[', ']'), ('{', '}')] {
            assert_eq!(expr.matches(open).count(), expr.matches(close).count(), "{expr}");
        }
    }
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../monitoring/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "an id twice");
    for panel in panels.iter().filter(|it| it["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expr = target["expr"].as_str().unwrap();
            assert!(!asked_for(expr).is_empty(), "{panel}");
            assert_eq!(expr.matches('(').count(), expr.matches(')').count(), "{expr}");
        }
    }
}

/// What is answered to these bytes, by a client that hangs up after them only when it was answered.
fn asked(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // It may have hung up on us already.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// A page of a stranger whose name suddenly means 127.0.0.1 (DNS rebinding) can ask, but by its own name.
#[test]
fn numbers_are_shown_only_to_who_asks_for_this_host() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let scene = Scene::new(1);
    let listen = format!("--metrics-listen=127.0.0.1:{port}");
    let one = scene.first(&[&listen, "--metrics-hosts=metrics.example.com,[fd00::7]"]);
    // The port may have been taken for a moment.
    eventually(
        SOON,
        "an answer",
        || one.log().join("\n"),
        || TcpStream::connect(("127.0.0.1", port)).is_ok(),
    );
    let status = |request: &str| {
        let answer = asked(port, request.as_bytes());
        let is_shown = answer.contains("leasehold_");
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        assert_eq!(is_shown, status == "200", "{request:?}: {answer}");
        (status, answer)
    };
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for name in [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1",
        "[::1]",
        "vm", // --host-name
        "metrics.example.com",
        "Metrics.Example.Com",
        "[fd00::7]",
        &host,
    ] {
        for of in [name.to_owned(), format!("{name}:{port}"), format!("{name}:80")] {
            let (status, answer) =
                status(&format!("GET /metrics HTTP/1.1\r\nhost:  {of} \r\n\r\n"));
            assert_eq!(status, "200", "{of}: {answer}");
        }
    }
    for name in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:9464",
        "metrics.example.com.evil.example",
        "[::2]",
        "[::1]x",
        "::1",
        "127.0.0.1:x",
        "localhost, evil.example",
        "evil@localhost",
        "",
        " ",
    ] {
        let (status, answer) = status(&format!("GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        assert_eq!(status, "421", "{name}: {answer}");
        assert!(answer.contains("--metrics-hosts"), "{answer}");
    }
    // Of two names, none counts. Without any: what speaks HTTP/1.0 is no browser.
    let two = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(status(two).0, "421");
    let folded = "GET /metrics HTTP/1.1\r\nX: 1\r\n Host: localhost\r\n\r\n";
    assert_eq!(status(folded).0, "400");
    assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n").0, "400");
    assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n").0, "200");
    assert_eq!(status("GET /metrics HTTP/1.0\r\nHost: evil.example\r\n\r\n").0, "421");
    let output = leasehold(&["run", "--metrics-hosts=evil example"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn whoever_asks_on_this_host_is_answered_and_who_misbehaves_is_not_waited_for() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let scene = Scene::new(2);
    let mut one = scene.first(&[&format!("--metrics-listen=127.0.0.1:{port}")]);
    one.wait_for("event=metrics.failed");
    drop(taken);
    one.wait_for("event=metrics.resumed");

    let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = asked(port, get);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let document = Document::parse(body).unwrap();
    assert_eq!(document.get("leasehold_leases_owned"), 2.0);
    assert!(asked(port, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(asked(port, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert_eq!(asked(port, &[b'x'; 100_000]), "", "an endless header");
    assert!(asked(port, b"\xff\0\r\n\r\n").starts_with("HTTP/1.1 405 "));

    // Clients that say nothing, each of which is given up on after a second, and one that is gone.
    let silent: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let began = Instant::now();
    assert!(asked(port, get).starts_with("HTTP/1.1 200 OK"));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let began = Instant::now();
    assert!(one.term().success());
    assert!(began.elapsed() < Duration::from_secs(5), "a stop waits for nobody");
    drop(silent);

    let output = leasehold(&["run", "--metrics-listen=0.0.0.0:9464"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no loopback address"), "{output:?}");
    let output = leasehold(&["run", "--metrics-listen=9464"]);
    assert_eq!(output.status.code(), Some(2));
}

//! `poll:history` and who reads it: `leasehold history` and `watch`, with real processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde_json::{Value, json};

use testkit::process::{Instance, SOON, Scene, binary, eventually, leasehold, ms};
use testkit::redis::{RedisServer, USER_PASSWORD};
use testkit::target::Answer;

fn asked(url: &str, args: &[&str]) -> Output {
    let redis = format!("--redis={url}");
    // Long: a busy machine may stand still for seconds.
    leasehold(&[args, &[redis.as_str(), "--store-timeout=10s"]].concat())
}

#[track_caller]
fn shown(redis: &RedisServer, args: &[&str]) -> String {
    let output = asked(&redis.url(), args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

/// What is remembered, the newest last.
#[track_caller]
fn entries(redis: &RedisServer, args: &[&str]) -> Vec<Value> {
    let page = shown(redis, &[&["history", "--json"], args].concat());
    let document: Value = serde_json::from_str(&page).unwrap();
    document["entries"].as_array().unwrap().clone()
}

/// Event, instance and reason of each.
fn gist(entries: &[Value]) -> Vec<String> {
    let text = |it: &Value, name: &str| it[name].as_str().unwrap_or("-").to_owned();
    let gist = |it: &Value| ["event", "instance", "reason"].map(|name| text(it, name)).join(" ");
    entries.iter().map(gist).collect()
}

#[track_caller]
fn wait_for_entries(redis: &RedisServer, args: &[&str], wanted: impl Fn(&[Value]) -> bool) {
    let told = || format!("{:#?}", entries(redis, args));
    eventually(SOON, "entries", told, || wanted(&entries(redis, args)));
}

/// CONTRACT: "the last grants: who held it, when, why it moved".
#[test]
fn the_life_of_a_lease_can_be_read_afterwards() {
    let scene = Scene::new(2);
    let mut one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let two = scene.join(&[]);
    scene.wait_for_balance(&[&one, &two], SOON);
    let moved = scene.owned_by(&two).pop().unwrap();
    let (a, b) = (one.id(), two.id());
    wait_for_entries(&scene.redis, &[&moved], |it| it.len() >= 3);
    let life = entries(&scene.redis, &[&moved]);
    let wanted = [
        format!("acquired {a} preferred"),
        format!("released {a} rebalance"),
        format!("acquired {b} handover"),
    ];
    assert_eq!(gist(&life), wanted);
    assert_eq!((life[1]["heir"].as_str(), life[2]["heir"].as_str()), (Some(b.as_str()), None));
    assert_eq!(life[0]["fence"], life[1]["fence"], "a release names the grant that it ends");
    assert_eq!(life[2]["fence"].to_string(), scene.result(&moved)["granted"]);
    // A stop writes what is still queued before it ends.
    assert!(one.term().success());
    let kept = scene.endpoints.iter().find(|it| **it != moved).unwrap();
    let last = entries(&scene.redis, &[kept]);
    assert!(gist(&last).contains(&format!("released {a} shutdown")), "{last:#?}");
    assert!(last.iter().all(|it| it["endpoint"] == **kept), "{last:#?}");
    wait_for_entries(&scene.redis, &[kept], |it| it.last().unwrap()["instance"] == *b);
    let all = entries(&scene.redis, &[]);
    let two_of_them = entries(&scene.redis, &["--limit=2"]);
    assert!(two_of_them.len() == 2 && two_of_them.iter().all(|it| all.contains(it)), "{all:#?}");
    for endpoint in &scene.endpoints {
        let life = all.iter().filter(|it| it["endpoint"] == **endpoint);
        let fences: Vec<u64> = life.map(|it| it["fence"].as_u64().unwrap()).collect();
        assert!(fences.is_sorted(), "{all:#?}");
    }

    let page = shown(&scene.redis, &["history", &moved]);
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 4, "{page}");
    let heading: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(heading, ["TIME", "ENDPOINT", "EVENT", "WHO", "FENCE", "WHY"]);
    let short = |id: &str| format!("vm-{}", id.rsplit('-').next().unwrap());
    assert!(lines[2].ends_with(&format!("rebalance for {}", short(&b))), "{page}");
    assert!(lines[3].contains(&format!("acquired  {}", short(&b))), "{page}");
    assert!(!page.contains('\x1b'), "colours without a terminal");
}

/// It leaves no other trace.
#[test]
fn an_instance_that_held_nothing_is_remembered_too() {
    let scene = Scene::new(0);
    let mut spare = scene.first(&["--weight=0"]);
    let mut killed = scene.join(&["--weight=0"]);
    let (a, b) = (spare.id(), killed.id());
    wait_for_entries(&scene.redis, &[], |it| it.len() == 2);
    assert!(spare.term().success());
    killed.kill9();
    let told = entries(&scene.redis, &[]);
    let wanted = [format!("started {a} -"), format!("started {b} -"), format!("stopped {a} -")];
    assert_eq!(gist(&told), wanted);
    assert_eq!((&told[2]["endpoint"], &told[2]["fence"]), (&json!(""), &Value::Null));
    let page = shown(&scene.redis, &["history"]);
    let last: Vec<&str> = page.lines().last().unwrap().split_whitespace().collect();
    let name = format!("vm-{}", a.rsplit('-').next().unwrap());
    assert_eq!(last[1..], ["-", "stopped", &name, "-"], "{page}");
    let left = || shown(&scene.redis, &["status"]);
    // The heartbeat of the other has to end first.
    let died = format!("{b} died or was cut off, last heard of ");
    eventually(SOON, "both gone", left, || left().contains(&died));
    let page = left();
    assert!(page.contains(&format!("{a} stopped ")), "{page}");
    assert!(!page.contains("The history reaches back"), "{page}");
}

#[test]
fn where_nothing_is_remembered_that_is_said_and_a_wrong_name_is_refused() {
    let redis = RedisServer::start();
    assert_eq!(shown(&redis, &["history"]), "Nothing is remembered yet.\n");
    assert_eq!(shown(&redis, &["history", "e1"]), "Nothing is remembered of e1.\n");
    assert_eq!(entries(&redis, &[]), Vec::<Value>::new());
    let none = asked(&redis.url(), &["history", "--limit=0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("write 1 or more"), "{none:?}");
    for args in [&["history", "a b"][..], &["watch", "a b"], &["history", "e1", "e2"]] {
        assert_eq!(asked(&redis.url(), args).status.code(), Some(2), "{args:?}");
    }
    for args in [&["history"][..], &["watch"]] {
        let away = asked("redis://127.0.0.1:1/0", args);
        let said = String::from_utf8_lossy(&away.stderr);
        assert_eq!(away.status.code(), Some(1), "{said}");
        assert!(said.lines().count() == 1 && said.contains("cannot connect to"), "{said}");
    }
    redis.cli(&["SET", "poll:history", "no stream"]);
    let odd = asked(&redis.url(), &["history"]);
    assert_eq!(odd.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&odd.stderr).contains("WRONGTYPE"), "{odd:?}");
}

#[test]
fn what_strangers_write_into_the_stream_does_nothing_to_a_terminal() {
    let redis = RedisServer::start();
    let evil = "\x1b[2J\u{9b}\x07";
    redis.cli(&["XADD", "poll:history", "*", "endpoint", evil, "event", evil, "reason", evil]);
    redis.cli(&["XADD", "poll:history", "*", "instance", evil, "fence", "-1", "age_ms", "x"]);
    redis.cli(&["XADD", "poll:history", "5-5", "a", "b"]);
    for args in [&["history"][..], &["history", "--json"]] {
        let page = shown(&redis, args);
        assert!(page.chars().all(|it| it == '\n' || !it.is_control()), "{page:?}");
    }
    assert_eq!(entries(&redis, &[]).len(), 2, "an id from before the first is refused by Redis");
}

/// What is remembered is worth no lease: a refusal is said once, and that is all it costs.
#[test]
fn a_server_that_refuses_to_remember_costs_one_line() {
    let scene = Scene::new(3);
    let rule = ["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-xadd"];
    assert_eq!(scene.redis.cli(&rule), "OK");
    let url = scene.redis.url().replace("redis://", "redis://poor:pw@");
    let mut one = Instance::start_at(&url, &["--new-fleet"]);
    one.wait_for("event=daemon.ready");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    one.wait_for("event=history.failed");
    scene.put_session("e1", json!({"isPaused": true}));
    one.wait_for("reason=paused");
    assert_eq!(scene.redis.cli(&["EXISTS", "poll:history"]), "0");
    scene.redis.cli(&["ACL", "SETUSER", "poor", "+xadd"]);
    scene.put_session("e1", json!({"isPaused": false}));
    one.wait_for("event=history.resumed");
    wait_for_entries(&scene.redis, &["e1"], |it| gist(it).iter().any(|it| it.contains("acquired")));
    assert!(one.term().success());
    assert_eq!(one.lines(&["event=history.failed"]).len(), 1);
    assert!(one.log().iter().all(|it| !it.contains("hunter")));
    scene.target.assert_sound();
}

/// The entries of an outage are the ones that people look for.
#[test]
fn what_happened_while_redis_was_away_is_told_when_it_is_back() {
    let mut scene = Scene::new(2);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    wait_for_entries(&scene.redis, &[], |it| it.len() == 3);
    scene.redis.save();
    scene.redis.kill();
    one.wait_for("event=lease.lost");
    let lost_at = one.when("event=lease.lost");
    one.wait_for("event=history.failed");
    // Longer than what the time that is told may be off.
    let long_ago = || lost_at.elapsed() > ms(2_500);
    eventually(SOON, "an outage that is told from others", String::new, long_ago);
    scene.redis.restart();
    wait_for_entries(&scene.redis, &[], |it| {
        it.iter().filter(|it| it["event"] == "lost").count() == 2
    });
    let now: u64 = scene.redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let lost = entries(&scene.redis, &[]).into_iter().find(|it| it["event"] == "lost").unwrap();
    let (ago, told) = (lost_at.elapsed(), now * 1_000 - lost["atMs"].as_u64().unwrap());
    assert_eq!(lost["reason"], "expired");
    assert!(told + 2_000 > ago.as_millis() as u64, "{told} ms ago, but it was {ago:?}");
}

/// The stream is capped, however much happens.
#[test]
fn no_more_is_kept_than_about_ten_thousand() {
    let scene = Scene::new(0);
    let mut connection = scene.redis.connect().unwrap();
    let mut pipe = redis::pipe();
    for n in 0..12_000 {
        pipe.cmd("XADD").arg("poll:history").arg("*").arg("endpoint").arg(format!("e{n}"));
    }
    pipe.exec(&mut connection).unwrap();
    scene.put_session("e1", json!({}));
    let _one = scene.first(&[]);
    let length = || scene.redis.cli(&["XLEN", "poll:history"]);
    let short = || (10_000..10_200).contains(&length().parse::<usize>().unwrap());
    eventually(SOON, "a short stream", length, short);
    // Who left an hour ago is not known any more, and that is said.
    let page = shown(&scene.redis, &["status"]);
    assert!(page.contains("The history reaches back ") && page.contains("is not known."), "{page}");
    let told: Value = serde_json::from_str(&shown(&scene.redis, &["status", "--json"])).unwrap();
    assert!(told["historyReachMs"].is_u64(), "{}", told["historyReachMs"]);
    let asked_at = Instant::now();
    assert_eq!(entries(&scene.redis, &["e11999"]).len(), 1);
    assert_eq!(entries(&scene.redis, &["e3"]).len(), 0, "read to the end");
    println!("twice through the stream in {:?}", asked_at.elapsed());
}

/// A running `leasehold watch`.
struct Watching {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    complained: Arc<Mutex<Vec<String>>>,
}

fn collect(pipe: impl std::io::Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&lines);
    std::thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).for_each(|it| kept.lock().push(it));
    });
    lines
}

impl Watching {
    fn start(url: &str, args: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["watch", "--store-timeout=500ms", &format!("--redis={url}")]).args(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let said = collect(child.stdout.take().unwrap());
        let complained = collect(child.stderr.take().unwrap());
        Self { child, said, complained }
    }

    /// The first line of what it said that contains all of these, waiting for it.
    #[track_caller]
    fn wait_for(&self, parts: &[&str]) -> String {
        find(&self.said, parts)
    }

    #[track_caller]
    fn wait_for_complaint(&self, parts: &[&str]) -> String {
        find(&self.complained, parts)
    }

    #[track_caller]
    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let mut status = None;
        eventually(SOON, "the end of watch", String::new, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn find(lines: &Mutex<Vec<String>>, parts: &[&str]) -> String {
    let matching = |it: &&String| parts.iter().all(|part| it.contains(part));
    let found = || lines.lock().iter().find(matching).cloned();
    eventually(SOON, &parts.join(" "), || lines.lock().join("\n"), || found().is_some());
    found().unwrap()
}

#[test]
fn the_log_the_history_and_the_watch_show_a_change() {
    let scene = Scene::new(2);
    let one = scene.first(&["--fail-after=2"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let lines = Watching::start(&scene.redis.url(), &["e1"]);
    let json = Watching::start(&scene.redis.url(), &["e1", "--json"]);
    lines.wait_for(&["e1 ok"]);
    json.wait_for(&["result"]);
    scene.target.answer("e1", Answer { status: 503, ..Answer::default() });
    let line = one.wait_for("event=endpoint.failing");
    let address = format!("address=http://{}/e1", scene.target.address());
    for part in [" WARN ", "endpoint=e1", &address, "error=\"HTTP 503\"", "since_ms=", "failures=2"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    scene.target.answer("e1", Answer::default());
    let line = one.wait_for("event=endpoint.recovered");
    assert!(line.contains(" INFO ") && line.contains("down_ms="), "{line}");
    let (id, told) = (one.id(), entries(&scene.redis, &["e1"]));
    assert_eq!(gist(&told[told.len() - 2..][..1]), [format!("failing {id} HTTP 503")]);
    assert!(gist(&told)[told.len() - 1].starts_with(&format!("recovered {id} after ")));
    assert!(entries(&scene.redis, &["e2"]).iter().all(|it| it["event"] != "failing"));
    assert_eq!(entries(&scene.redis, &["e1", "--limit=1"])[0]["event"], "recovered");
    lines.wait_for(&[" e1 failing", &format!("instance={id}"), "reason=\"HTTP 503\""]);
    lines.wait_for(&[" e1 recovered", "fence="]);
    let change: Value = serde_json::from_str(&json.wait_for(&["failing"])).unwrap();
    assert_eq!(json!([change["type"], change["endpoint"]]), json!(["change", "e1"]));
    // A key of another program keeps nothing else from being shown.
    scene.redis.cli(&["SET", "poll:changes", "no stream"]);
    let odd = asked(&scene.redis.url(), &["history"]);
    assert!(odd.status.success() && String::from_utf8_lossy(&odd.stdout).contains("acquired"));
    assert!(String::from_utf8_lossy(&odd.stderr).contains("changes are not shown"), "{odd:?}");
}

#[test]
fn whoever_watches_sees_leases_move_and_results_come() {
    let scene = Scene::new(2);
    let one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let mut all = Watching::start(&scene.redis.url(), &[]);
    let mut only = Watching::start(&scene.redis.url(), &["e1", "--json"]);
    let id = format!("instance={}", one.id());
    all.wait_for(&[" e1 ok", "status=200", &id, "fence="]);
    all.wait_for(&[" e2 ok"]);
    let result: Value = serde_json::from_str(&only.wait_for(&["result"])).unwrap();
    let facts = json!([result["type"], result["endpoint"], result["ok"], result["status"]]);
    assert_eq!(facts, json!(["result", "e1", true, 200]));
    assert_eq!(result["instance"], one.id());
    scene.put_session("e1", json!({"isPaused": true}));
    all.wait_for(&[" e1 released", &id, "reason=paused"]);
    let lease: Value = serde_json::from_str(&only.wait_for(&["released"])).unwrap();
    assert_eq!(json!([lease["type"], lease["reason"]]), json!(["lease", "paused"]));
    assert!(only.said.lock().iter().all(|it| !it.contains("\"e2\"")));
    assert!(
        all.said.lock().iter().all(|it| !it.contains("acquired")),
        "what was before is history"
    );
    assert_eq!(all.end(Signal::SIGINT).code(), Some(0));
    assert_eq!(only.end(Signal::SIGTERM).code(), Some(0));
    assert_eq!((all.complained.lock().len(), only.complained.lock().len()), (0, 0));
}

#[test]
fn whoever_watches_survives_an_outage_and_hears_what_became_of_leases_meanwhile() {
    let mut scene = Scene::new(1);
    let _one = scene.first(&[]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    let mut watching = Watching::start(&scene.redis.url(), &[]);
    watching.wait_for(&[" e1 ok"]);
    scene.redis.save();
    scene.redis.kill();
    watching.wait_for_complaint(&["Redis does not answer, trying again: cannot"]);
    // Nobody is there to hear these, and they are in the stream.
    scene.redis.restart();
    watching.wait_for_complaint(&["Redis answers again, after"]);
    let seen = watching.said.lock().len();
    eventually(SOON, "results again", String::new, || {
        watching.said.lock()[seen..].iter().any(|it| it.contains(" e1 ok"))
    });
    assert_eq!(watching.complained.lock().len(), 2, "{:?}", watching.complained.lock());
    scene.redis.pause();
    watching.wait_for_complaint(&["no answer in time"]);
    assert_eq!(watching.end(Signal::SIGTERM).code(), Some(0), "while Redis hangs");
    scene.redis.resume();
}

#[test]
fn whoever_watches_ends_with_the_pipe() {
    let scene = Scene::new(3);
    let _one = scene.first(&[]);
    let command = format!(
        "{} watch --redis={} | head -n 2 >/dev/null; echo ${{PIPESTATUS[0]}}",
        binary(),
        scene.redis.url()
    );
    let output = Command::new("bash").args(["-c", &command]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
}

/// The rule for daemons in docs/redis.md lets them remember, its rule for onlookers lets them see everything.
#[test]
fn a_user_who_may_only_read_can_use_every_reading_command() {
    let scene = Scene::new(2);
    let daemon = scene.redis.give_rule("leasehold");
    let one = Instance::start_at(&daemon, &["--new-fleet"]);
    one.wait_for("event=daemon.ready");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    wait_for_entries(&scene.redis, &[], |it| it.len() == 3);
    assert!(!one.says("history.failed"));
    let url = scene.redis.give_rule("onlooker");
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["top", "--json"],
        &["explain", "e1"],
        &["plan", "--join=1"],
        &["history"],
        &["history", "e1", "--json"],
        &["leaders"],
        &["sessions", "list"],
    ] {
        let output = asked(&url, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
    let mut watching = Watching::start(&url, &[]);
    watching.wait_for(&[" e2 ok"]);
    let only = Watching::start(&url, &["e1"]);
    only.wait_for(&[" e1 ok"]);
    scene.put_session("e1", json!({"isPaused": true}));
    watching.wait_for(&[" e1 released"]);
    assert_eq!(watching.complained.lock().len() + only.complained.lock().len(), 0);
    assert_eq!(watching.end(Signal::SIGTERM).code(), Some(0));
    // With less than that it says what is missing, and shows the rest.
    scene.redis.cli(&["ACL", "SETUSER", "onlooker", "resetchannels"]);
    let deaf = Watching::start(&url, &[]);
    deaf.wait_for_complaint(&["results are not shown", "&poll:results:*"]);
    scene.put_session("e1", json!({"isPaused": false}));
    deaf.wait_for(&[" e1 acquired"]);
    scene.redis.cli(&["ACL", "SETUSER", "onlooker", "&poll:results:*", "-xrange", "-xrevrange"]);
    let blind = Watching::start(&url, &[]);
    blind.wait_for_complaint(&["lease events are not shown", "+xrange"]);
    blind.wait_for(&[" e2 ok"]);
    scene.redis.cli(&["ACL", "SETUSER", "onlooker", "resetchannels"]);
    let nothing = asked(&url, &["watch"]);
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert_eq!(nothing.status.code(), Some(1), "{said}");
    assert!(
        said.contains("permissions docs/redis.md lists") && !said.contains(USER_PASSWORD),
        "{said}"
    );
}

//! SIGHUP reads the settings file again: what changes, what has to wait, and what is refused.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;

use testkit::process::{Instance, SOON, Scene, TempDir, binary, eventually, field, ms};
use testkit::target::Answer;

const TIMINGS: &str = "LEASEHOLD_LEASE_TTL=3s\nLEASEHOLD_RENEW_INTERVAL=1s\n\
    LEASEHOLD_HEARTBEAT_TTL=3s\nLEASEHOLD_HEARTBEAT_INTERVAL=1s\nLEASEHOLD_STORE_TIMEOUT=300ms\n\
    LEASEHOLD_HOST_NAME=vm\nLEASEHOLD_NEW_FLEET=on\nLEASEHOLD_DRAIN_TIMEOUT=3s\n";

/// A settings file, and an instance that reads it.
struct Reloaded {
    dir: TempDir,
    instance: Option<Instance>,
}

impl Reloaded {
    /// The lines go without `LEASEHOLD_`.
    fn start(scene: &Scene, lines: &[&str]) -> Self {
        let mut reloaded = Self { dir: TempDir::new(), instance: None };
        reloaded.write(lines);
        let mut command = Command::new(binary());
        command.args(["run", "--redis", &scene.redis.url()]);
        command.arg("--settings").arg(reloaded.path());
        // As a unit does that names the file as its EnvironmentFile, too.
        for line in lines {
            let (name, value) = line.split_once('=').unwrap();
            command.env(format!("LEASEHOLD_{name}"), value);
        }
        let instance = Instance::spawn_with_env(&mut command);
        instance.wait_for("event=daemon.ready");
        reloaded.instance = Some(instance);
        reloaded
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("settings")
    }

    fn write(&self, lines: &[&str]) {
        let lines: String = lines.iter().map(|it| format!("LEASEHOLD_{it}\n")).collect();
        fs::write(self.path(), format!("# settings\n{TIMINGS}{lines}")).unwrap();
    }

    /// Other lines, a SIGHUP, and what is said to that.
    #[track_caller]
    fn reload(&self, lines: &[&str]) -> String {
        self.write(lines);
        let before = Instant::now();
        self.one().signal(Signal::SIGHUP);
        self.one().wait_for_since(before, "event=daemon.reload")
    }

    fn one(&self) -> &Instance {
        self.instance.as_ref().unwrap()
    }

    fn pollers(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.one().pid())).unwrap();
        let names = tasks.filter_map(|it| fs::read_to_string(it.unwrap().path().join("comm")).ok());
        names.filter(|it| it.starts_with("poller-")).count()
    }
}

fn changed(line: &str) -> String {
    assert!(line.contains("event=daemon.reloaded"), "{line}");
    field(line, "changed").unwrap()
}

#[track_caller]
fn wait_for_result(scene: &Scene, id: &str, key: &str, wanted: impl Fn(&str) -> bool) {
    let get = || scene.result(id).remove(key).unwrap_or_default();
    eventually(SOON, &format!("{key} of {id}"), get, || wanted(&get()));
}

#[test]
fn intervals_and_the_log_level_change_at_once() {
    let scene = Scene::new(3);
    let it = Reloaded::start(&scene, &["INTERVAL=1h"]);
    scene.target.observe(ms(500));
    let before = Instant::now();
    assert_eq!(changed(&it.reload(&["INTERVAL=200ms"])), "--interval");
    scene.target.wait_for_polls(&scene.endpoints, before, ms(2_000));
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), ms(2_000));
    assert!(!it.one().says("event=poll.ok"));
    assert_eq!(changed(&it.reload(&["INTERVAL=200ms", "LOG_LEVEL=debug"])), "--log-level");
    it.one().wait_for("event=poll.ok");
    // A line that is taken out is the default again, although the environment has it.
    assert_eq!(changed(&it.reload(&[])), "--interval --log-level");
    scene.target.observe(ms(300));
    let quiet_at = Instant::now();
    scene.target.observe(ms(1_500));
    let said = it.one().timed_lines(&["event=poll.ok"]);
    assert!(said.iter().all(|it| it.0 < quiet_at), "{said:?}");
    let polls = scene.target.requests().iter().filter(|it| it.start > quiet_at).count();
    assert!(polls <= 3, "{polls} polls in 1.5 s at an interval of 5 s");
    scene.target.assert_sound();
}

#[test]
fn a_new_weight_is_in_redis_at_once() {
    let scene = Scene::new(2);
    let it = Reloaded::start(&scene, &["WEIGHT=2", "HEARTBEAT_INTERVAL=1s"]);
    let key = format!("poll:node:{}", it.one().id());
    assert_eq!(scene.redis.cli(&["GET", &key]), "2");
    let line = it.reload(&["WEIGHT=5", "HEARTBEAT_INTERVAL=1s"]);
    assert_eq!(changed(&line), "--weight");
    let get = || scene.redis.cli(&["GET", &key]);
    eventually(ms(700), "the weight", get, || get() == "5");
    // Weight 0 takes none: with another there, everything moves.
    let two = scene.join(&[]);
    assert_eq!(changed(&it.reload(&["WEIGHT=0", "HEARTBEAT_INTERVAL=1s"])), "--weight");
    eventually(SOON, "everything moves", String::new, || scene.owned_by(&two).len() == 2);
    scene.target.assert_sound();
}

/// More pollers at once, fewer without cutting a poll short.
#[test]
fn the_number_of_pollers_changes_and_no_poll_is_dropped() {
    let scene = Scene::new(4);
    let slow = Answer { delay: ms(1_500), ..Answer::default() };
    scene.endpoints.iter().for_each(|it| scene.target.answer(it, slow.clone()));
    let it = Reloaded::start(&scene, &["WORKERS=1", "INTERVAL=200ms"]);
    assert_eq!(it.pollers(), 1);
    assert_eq!(changed(&it.reload(&["WORKERS=40", "INTERVAL=200ms"])), "--workers");
    eventually(SOON, "more pollers", || it.pollers().to_string(), || it.pollers() >= 3);
    let at_once = || {
        let requests = scene.target.requests();
        let ids: Vec<_> = requests.iter().filter(|it| it.end.is_none()).collect();
        ids.len()
    };
    eventually(SOON, "four polls at once", || at_once().to_string(), || at_once() == 4);
    assert!(it.pollers() < 10, "a poller for each poll, and not 40: {}", it.pollers());
    let before = Instant::now();
    assert_eq!(changed(&it.reload(&["WORKERS=1", "INTERVAL=200ms"])), "--workers");
    eventually(SOON, "one poller", || it.pollers().to_string(), || it.pollers() == 1);
    assert!(before.elapsed() < ms(4_000), "took {:?}", before.elapsed());
    assert!(!it.one().says("event=poll.aborted"));
    scene.endpoints.iter().for_each(|it| scene.target.answer(it, Answer::default()));
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    for id in &scene.endpoints {
        wait_for_result(&scene, id, "ok", |it| it == "1");
    }
    scene.target.assert_sound();
}

#[test]
fn timeout_light_polling_body_size_and_targets_change_at_once() {
    let scene = Scene::new(3);
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    scene.target.answer("e2", Answer { status: 500, ..Answer::default() });
    scene.target.answer("e3", Answer { endless: true, ..Answer::default() });
    let first = ["INTERVAL=200ms", "TIMEOUT=1s", "LIGHT_AFTER=1000", "MAX_BODY=3000"];
    let it = Reloaded::start(&scene, &first);
    wait_for_result(&scene, "e3", "body", |it| it.len() == 3_000);
    wait_for_result(&scene, "e1", "duration_ms", |it| it.parse().is_ok_and(|it: u64| it > 800));
    assert!(!it.one().says("event=endpoint.light"));
    let second = [
        "INTERVAL=200ms",
        "TIMEOUT=300ms",
        "LIGHT_AFTER=3",
        "LIGHT_INTERVAL=400ms",
        "MAX_BODY=1000",
    ];
    let wanted = "--timeout --light-after --light-interval --max-body";
    assert_eq!(changed(&it.reload(&second)), wanted);
    wait_for_result(&scene, "e3", "body", |it| it.len() == 1_000);
    wait_for_result(&scene, "e1", "duration_ms", |it| it.parse().is_ok_and(|it: u64| it < 700));
    it.one().wait_for("event=endpoint.light");
    for (targets, wanted) in [
        ("DENY_TARGETS=127.0.0.0/8", "--deny-targets"),
        ("ALLOW_TARGETS=10.0.0.0/8", "--allow-targets --deny-targets"),
    ] {
        let line = it.reload(&[&second[..], &[targets]].concat());
        assert_eq!(changed(&line), wanted);
        wait_for_result(&scene, "e3", "error", |it| it.contains("127.0.0.1"));
    }
    assert_eq!(changed(&it.reload(&second)), "--allow-targets");
    wait_for_result(&scene, "e3", "ok", |it| it == "1");
    scene.target.assert_sound();
}

#[test]
fn what_cannot_change_is_named_in_one_warning_and_the_rest_changes() {
    let scene = Scene::new(1);
    let it = Reloaded::start(&scene, &["INTERVAL=1h"]);
    let before = Instant::now();
    let line =
        it.reload(&["INTERVAL=200ms", "LEASE_TTL=4s", "PREFIX=other", "HEARTBEAT_INTERVAL=900ms"]);
    assert_eq!(changed(&line), "--interval");
    let line = it.one().wait_for("event=daemon.needs_restart");
    let options = field(&line, "options").unwrap();
    assert_eq!(options, "--prefix --lease-ttl --heartbeat-interval", "{line}");
    assert!(line.contains(" WARN "), "{line}");
    scene.target.wait_for_polls(&scene.endpoints, before, ms(2_000));
    // It is still so, and is said again.
    let before = Instant::now();
    it.one().signal(Signal::SIGHUP);
    it.one().wait_for_since(before, "event=daemon.needs_restart");
    assert_eq!(it.one().lines(&["event=daemon.needs_restart"]).len(), 2);
}

#[test]
fn a_file_with_anything_wrong_in_it_changes_nothing_and_says_why() {
    let scene = Scene::new(1);
    let it = Reloaded::start(&scene, &["WEIGHT=2"]);
    let key = format!("poll:node:{}", it.one().id());
    for (bad, why) in [
        ("INTERVAL=soon", "LEASEHOLD_INTERVAL"),
        ("RENEW_INTERVAL=3s", "--renew-interval 3s"),
        ("DENY_TARGETS=nowhere", "--deny-targets"),
        ("WORKERS=0", "--workers"),
        ("POLL_COMMAND=/nonexistent --token=hunter2", "--poll-command /nonexistent: there is no"),
        ("hunter2", "line 12 is no NAME=value"),
        (
            "INTERVALL=hunter2",
            "line 12 sets LEASEHOLD_INTERVALL, which is no setting: did you mean",
        ),
    ] {
        let line = it.reload(&["WEIGHT=5", "POLL_COMMAND=true --token=hunter2", bad]);
        assert!(line.contains("event=daemon.reload_refused") && line.contains(" WARN "), "{line}");
        assert!(field(&line, "error").unwrap().contains(why), "{bad}: {line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    fs::remove_file(it.path()).unwrap();
    let before = Instant::now();
    it.one().signal(Signal::SIGHUP);
    it.one().wait_for_since(before, "cannot be read");
    scene.target.observe(ms(1_300));
    assert_eq!(scene.redis.cli(&["GET", &key]), "2");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now() - ms(5_000), SOON);
}

/// A terminal that goes away is no reason to stop polling.
#[test]
fn without_a_file_a_hangup_changes_nothing_and_does_not_end_it() {
    let scene = Scene::new(1);
    let mut one = scene.first(&[]);
    one.signal(Signal::SIGHUP);
    let line = one.wait_for("event=daemon.reload_refused");
    assert!(line.contains("there are no --settings FILES"), "{line}");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    assert!(one.is_running());
    assert!(one.term().success());
}

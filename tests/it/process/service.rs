//! What the service manager hears of the daemon, and what the daemon hears of it.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::process::{Instance, SOON, Scene, TempDir, binary, ms, run_args};
use testkit::target::Answer;

/// A service manager: its end of `$NOTIFY_SOCKET`.
struct Manager {
    dir: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let dir = TempDir::new();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        Self { dir, socket }
    }

    /// `run` under this manager.
    fn start(&self, url: &str, args: &[&str]) -> Instance {
        let mut command = Command::new(binary());
        command.args(run_args(url, args));
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command.env("WATCHDOG_USEC", "2000000");
        Instance::spawn(&mut command)
    }

    fn word_within(&self, limit: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(limit)).unwrap();
        let mut buffer = [0; 512];
        let read = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..read]).into_owned())
    }

    /// Listens until something is said that begins like this; all that was said up to then.
    #[track_caller]
    fn hear(&self, start: &str) -> Vec<String> {
        let deadline = Instant::now() + SOON;
        let mut words = Vec::new();
        while Instant::now() < deadline {
            words.extend(self.word_within(ms(500)));
            if words.last().is_some_and(|it| it.starts_with(start)) {
                return words;
            }
        }
        panic!("nobody said {start}, but {words:?}");
    }

    /// What is in the last word.
    #[track_caller]
    fn last(&self, start: &str) -> String {
        self.hear(start).pop().unwrap()
    }
}

/// R12: the service manager hears when it is ready, that it moves, and that it stops; and hears nothing
/// of a process that stands still.
#[test]
fn a_service_manager_is_told_how_the_daemon_is() {
    let (scene, manager) = (Scene::new(1), Manager::new());
    let mut instance = manager.start(&scene.redis.url(), &["--new-fleet"]);
    manager.hear("READY=1");
    instance.wait_for("event=daemon.ready");
    // A Redis that hangs is no hang of ours.
    scene.redis.pause();
    for _ in 0..4 {
        manager.hear("WATCHDOG=1");
    }
    scene.redis.resume();
    instance.freeze();
    // At most what was on its way.
    let silent = (0..4).any(|_| manager.word_within(ms(1_500)).is_none());
    assert!(silent, "vouched for while frozen");
    instance.thaw();
    assert!(instance.term().success());
    manager.hear("STOPPING=1");
}

/// `systemctl status` shows the last of these.
#[test]
fn the_status_is_a_sentence_that_is_sent_when_it_changes_and_never_has_the_password() {
    let (mut scene, manager) = (Scene::new(3), Manager::new());
    let port = scene.redis.port();
    scene.redis.kill();
    // A user without a password accepts any.
    let url = format!("redis://default:hunter2@127.0.0.1:{port}/0");
    let mut instance = manager.start(&url, &["--new-fleet"]);
    let mut words = manager.hear("STATUS=waiting for Redis at");
    assert!(words.last().unwrap().contains(&format!("127.0.0.1:{port}")), "{words:?}");
    // A start that has to wait asks for more time.
    words.extend(manager.hear("EXTEND_TIMEOUT_USEC="));
    scene.redis.restart();
    words.extend(manager.hear("READY=1"));
    scene.put_sessions();
    words.extend(manager.hear("STATUS=polling 3 of 3 endpoints; 1 instance; Redis ok"));
    // Nothing changes, so nothing is said but that it moves.
    let quiet: Vec<String> = (0..4).filter_map(|_| manager.word_within(ms(1_500))).collect();
    assert!(quiet.iter().all(|it| it == "WATCHDOG=1"), "{quiet:?}");
    // Redis goes away.
    scene.redis.kill();
    words.extend(manager.hear("STATUS=cannot reach Redis at"));
    assert!(!words.iter().any(|it| it.contains("hunter2")), "{words:?}");
    assert!(instance.term().success());
}

/// So that `systemctl reload` knows when it is over; before it is ready, a READY=1 would lie.
#[test]
fn a_reload_is_told_of_when_it_begins_and_when_it_ends() {
    let (scene, manager, dir) = (Scene::new(1), Manager::new(), TempDir::new());
    let file = dir.path().join("settings");
    std::fs::write(&file, "LEASEHOLD_WEIGHT=3\n").unwrap();
    let option = format!("--settings={}", file.display());
    let instance = manager.start(&scene.redis.url(), &["--new-fleet", &option]);
    manager.hear("READY=1");
    instance.signal(nix::sys::signal::Signal::SIGHUP);
    manager.hear("RELOADING=1");
    manager.hear("READY=1");
    instance.wait_for("event=daemon.reloaded");
}

/// A hold-off is said with what is left of it.
#[test]
fn the_status_tells_of_a_hold_off() {
    let (scene, manager) = (Scene::new(1), Manager::new());
    let _instance = manager.start(&scene.redis.url(), &[]);
    let word = manager.last("READY=1");
    assert!(word.contains("holding off for") && word.contains("Redis forgot"), "{word}");
    manager.hear("STATUS=polling 1 of 1 endpoint; 1 instance; Redis ok");
}

/// Polls that still run at a stop are counted, and the manager is asked to wait for them.
#[test]
fn a_drain_is_told_of_and_asks_for_time() {
    let (scene, manager) = (Scene::new(2), Manager::new());
    scene.target.answer("e1", Answer { hang: true, ..Answer::default() });
    let mut instance = manager.start(&scene.redis.url(), &["--new-fleet", "--timeout=10s"]);
    manager.hear("READY=1");
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    instance.signal(nix::sys::signal::Signal::SIGTERM);
    manager.hear("STOPPING=1");
    manager.hear("STATUS=draining: 1 poll still runs");
    manager.hear("EXTEND_TIMEOUT_USEC=");
    assert!(instance.wait().success());
}

/// Where there is a systemd to ask: nothing is wrong with the units, and they are as closed as promised.
#[test]
fn the_units_are_well_formed_and_hardened() {
    let dir = TempDir::new();
    for name in ["leasehold.service", "leasehold@.service", "leasehold-agent.service"] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/");
        let unit = std::fs::read_to_string(format!("{path}{name}")).unwrap();
        let file = dir.path().join(name.replace('@', "@x"));
        std::fs::write(&file, unit.replace("/usr/local/bin/leasehold", binary())).unwrap();
        for words in [
            &["verify", "--man=no", "--recursive-errors=yes"][..],
            &["security", "--offline=yes", "--threshold=20", "--no-pager"],
        ] {
            let asked = Command::new("systemd-analyze").args(words).arg(&file).output();
            if let Ok(output) = asked {
                assert!(output.status.success(), "{name} {words:?}: {output:?}");
            }
        }
    }
}

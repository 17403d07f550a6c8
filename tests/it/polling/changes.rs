//! Each change of a verdict is told once, whichever instance polls and whichever process dies: real processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use testkit::process::{Instance, SOON, Scene, eventually};
use testkit::target::Answer;
use testkit::temp_dir::TempDir;

fn down() -> Answer {
    Answer { status: 503, ..Answer::default() }
}

/// Every change in the stream, as JSON.
fn changes(scene: &Scene) -> Vec<Value> {
    let told = scene.redis.cli(&["XRANGE", "poll:changes", "-", "+"]);
    let told = told.lines().filter(|it| it.starts_with('{'));
    told.map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn verdicts(scene: &Scene) -> Vec<String> {
    let verdict = |it: &Value| it["verdict"].as_str().unwrap().to_owned();
    changes(scene).iter().map(verdict).collect()
}

#[track_caller]
fn wait_for_verdicts(scene: &Scene, wanted: &[&str]) {
    let told = || format!("{:#?}\n{:?}", changes(scene), scene.result("e1"));
    eventually(SOON, &format!("{wanted:?}"), told, || verdicts(scene).len() >= wanted.len());
    assert_eq!(verdicts(scene), wanted);
}

/// Waits until somebody has polled it twice more.
#[track_caller]
fn wait_for_polls(scene: &Scene) {
    for _ in 0..2 {
        scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    }
}

fn owner<'a>(scene: &Scene, fleet: &'a mut [Instance]) -> &'a mut Instance {
    let owner = || scene.redis.cli(&["GET", "poll:lease:e1"]);
    eventually(SOON, "an owner", String::new, || !owner().is_empty());
    let owner = owner();
    fleet.iter_mut().find(|it| it.id() == owner).unwrap()
}

#[track_caller]
fn wait_for_failures(scene: &Scene, wanted: u64) {
    let failures = || scene.result("e1").get("failures").and_then(|it| it.parse().ok());
    let told = || format!("{:?}", scene.result("e1"));
    eventually(SOON, "failures", told, || failures().is_some_and(|it: u64| it >= wanted));
}

/// The owner dies, the owner freezes, Redis comes back with what it had saved, and with nothing.
#[test]
fn a_change_is_told_once_through_a_kill_a_freeze_and_restarts_of_redis() {
    let mut scene = Scene::new(1);
    scene.put_session("e1", json!({"failAfter": 3, "okAfter": 2}));
    let mut fleet = scene.fleet(3);
    assert!(changes(&scene).is_empty(), "that a new endpoint is ok is no change");
    // It begins to fail under an owner that is killed before it has failed often enough, or right after that.
    scene.target.answer("e1", down());
    wait_for_failures(&scene, 1);
    owner(&scene, &mut fleet).kill9();
    wait_for_verdicts(&scene, &["failing"]);
    let since = scene.result("e1")["since_ms"].clone();
    // The next owner freezes: the one after it neither tells again nor begins to count again.
    let frozen = owner(&scene, &mut fleet);
    frozen.freeze();
    let before = frozen.id();
    let moved = || scene.redis.cli(&["GET", "poll:lease:e1"]);
    eventually(SOON, "another owner", moved, || !moved().is_empty() && moved() != before);
    wait_for_polls(&scene);
    frozen.thaw();
    wait_for_polls(&scene);
    assert_eq!(verdicts(&scene), ["failing"]);
    assert_eq!(scene.result("e1")["since_ms"], since);
    scene.redis.save();
    scene.redis.restart();
    wait_for_polls(&scene);
    assert_eq!(verdicts(&scene), ["failing"]);
    // The stream is empty now. The owner remembers the verdict.
    scene.redis.restart_empty();
    scene.put_sessions();
    scene.put_session("e1", json!({"failAfter": 3, "okAfter": 2}));
    let told = || format!("{:?}", scene.result("e1"));
    let is_known = || scene.result("e1").get("verdict").is_some_and(|it| it == "failing");
    eventually(SOON, "the verdict is back", told, is_known);
    wait_for_polls(&scene);
    assert_eq!(verdicts(&scene), [""; 0]);
    assert_eq!(scene.result("e1")["since_ms"], since);
    scene.target.answer("e1", Answer::default());
    wait_for_verdicts(&scene, &["ok"]);
    wait_for_polls(&scene);
    assert_eq!(verdicts(&scene), ["ok"]);
    assert_eq!(changes(&scene)[0]["before_ms"].to_string(), since);
    // The log of the owners, together: each change at most once, and none by an owner that lives was passed over.
    let lines = |event: &str| fleet.iter().map(|it| it.lines(&[event]).len()).sum::<usize>();
    assert!(lines("event=endpoint.failing ") <= 1, "told by more than one owner");
    eventually(SOON, "the log", String::new, || lines("event=endpoint.recovered ") == 1);
}

/// A program, and the file in which it says what it was given.
struct Hook {
    dir: TempDir,
}

impl Hook {
    fn new(script: &str) -> Self {
        let hook = Self { dir: TempDir::new() };
        let program = hook.program();
        let said = hook.said_in();
        fs::write(&program, format!("#!/bin/sh\nSAID={}\n{script}\n", said.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        hook
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("hook")
    }

    fn said_in(&self) -> PathBuf {
        self.dir.path().join("said")
    }

    fn arg(&self) -> String {
        format!("--on-change={}", self.program().display())
    }

    fn said(&self) -> Vec<String> {
        let said = fs::read_to_string(self.said_in()).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn wait_for_lines(&self, n: usize) -> Vec<String> {
        let told = || format!("{:#?}", self.said());
        eventually(SOON, "lines of the hook", told, || self.said().len() >= n);
        self.said()
    }
}

#[test]
fn each_change_runs_the_program_with_the_change_and_the_grant() {
    let scene = Scene::new(1);
    let hook = Hook::new(
        "echo \"$(cat) $LEASEHOLD_ENDPOINT $LEASEHOLD_INSTANCE $LEASEHOLD_FENCE\" >>$SAID",
    );
    let one = scene.first(&[&hook.arg()]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.answer("e1", down());
    hook.wait_for_lines(1);
    scene.target.answer("e1", Answer::default());
    let said = hook.wait_for_lines(2);
    wait_for_polls(&scene);
    assert_eq!(hook.said().len(), 2);
    let told = changes(&scene);
    for (line, told) in said.iter().zip(&told) {
        let (json, environment) = line.rsplit_once("} ").unwrap();
        let given: Value = serde_json::from_str(&format!("{json}}}")).unwrap();
        assert_eq!(given, *told, "what is announced is what the program is given");
        assert_eq!(environment, format!("e1 {} {}", one.id(), told["fence"]));
    }
}

#[test]
fn a_program_that_fails_is_run_again_as_often_as_it_may_be() {
    let scene = Scene::new(1);
    let hook = Hook::new("echo run >>$SAID; [ $(wc -l <$SAID) -ge 2 ] || exit 7");
    let one = scene.first(&[&hook.arg(), "--on-change-retries=1"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.answer("e1", down());
    hook.wait_for_lines(2);
    assert!(!one.says("event=hook.failed"), "the second run succeeded");
    fs::write(hook.program(), "#!/bin/sh\necho words >&2; exit 8\n").unwrap();
    scene.target.answer("e1", Answer::default());
    let line = one.wait_for("event=hook.failed");
    assert!(
        line.contains("endpoint=e1") && line.contains("error=\"exit code 8\" attempts=2"),
        "{line}"
    );
}

/// Nothing waits for it: polls go on, and results are stored.
#[test]
fn a_program_that_hangs_is_ended_in_time_and_delays_no_poll() {
    let scene = Scene::new(1);
    let hook = Hook::new("echo $$ >>$SAID; sleep 1000");
    let one = scene.first(&[&hook.arg(), "--on-change-timeout=2s", "--on-change-retries=0"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.answer("e1", down());
    let pid = hook.wait_for_lines(1)[0].clone();
    wait_for_polls(&scene);
    wait_for_failures(&scene, 2);
    let line = one.wait_for("event=hook.failed");
    assert!(line.contains("no end within 2s"), "{line}");
    let is_gone = || !PathBuf::from(format!("/proc/{pid}")).exists();
    eventually(SOON, "the end of the program", String::new, is_gone);
}

/// An old owner must not tell of a change when the next one may have told of a later one.
#[test]
fn a_program_ends_with_the_lease_of_its_change() {
    let scene = Scene::new(1);
    let hook = Hook::new("echo $$ >>$SAID; trap '' TERM; while :; do sleep 1000; done");
    let one = scene.first(&[&hook.arg(), "--on-change-timeout=10m"]);
    scene.target.wait_for_polls(&scene.endpoints, Instant::now(), SOON);
    scene.target.answer("e1", down());
    let pid = hook.wait_for_lines(1)[0].clone();
    scene.put_session("e1", json!({"isPaused": true}));
    let line = one.wait_for("event=hook.failed");
    assert!(line.contains("the lease was lost or handed over"), "{line}");
    let is_gone = || !PathBuf::from(format!("/proc/{pid}")).exists();
    eventually(Duration::from_secs(10), "the end of the program", String::new, is_gone);
    assert_eq!(hook.said().len(), 1, "and is not run again");
}

#[test]
fn changes_that_do_not_fit_are_counted_and_told() {
    let scene = Scene::new(0);
    let n = 1_200;
    let mut put = vec!["MSET".to_owned()];
    for it in 0..n {
        let session = json!({"id": format!("d{it}"), "address": "tcp://127.0.0.1:1"});
        put.extend([format!("session:d{it}"), session.to_string()]);
    }
    scene.redis.cli(&put.iter().map(String::as_str).collect::<Vec<_>>());
    let hook = Hook::new("sleep 1000");
    let mut one = scene.first(&[&hook.arg(), "--workers=16"]);
    let told = || scene.redis.cli(&["XLEN", "poll:changes"]);
    eventually(6 * SOON, "every change is in the stream", told, || told() == n.to_string());
    assert!(one.term().success());
    let line = one.wait_for("event=hook.dropped");
    assert!(line.contains("WARN") && line.contains("changes="), "{line}");
    let named = one.lines(&["event=endpoint.failing ", "endpoint=d"]).len();
    let counted: Vec<String> = one.lines(&["event=endpoint.failing ", "others="]);
    let others = |it: &String| it.rsplit_once("others=").unwrap().1.parse::<usize>().unwrap();
    assert_eq!(named + counted.iter().map(others).sum::<usize>(), n, "{named} {counted:?}");
    assert!(named <= 100, "a flood: {named} lines");
}

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// An example that goes on, and what it has said.
struct Example {
    child: std::process::Child,
    said: PathBuf,
}

impl Example {
    fn start(dir: &TempDir, program: &str, args: &[&str]) -> Self {
        let said = dir.path().join(format!("{program}.said"));
        let output = fs::File::options().create(true).append(true).open(&said).unwrap();
        let mut command = std::process::Command::new(format!("{EXAMPLES}/{program}"));
        let child = command.args(args).current_dir(dir.path()).stdout(output).spawn().unwrap();
        Self { child, said }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        eventually(SOON, text, || self.said(), || self.said().contains(text));
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A consumer that was away gets what it missed, and nothing twice.
#[test]
fn the_examples_follow_changes_and_results_and_go_on_where_they_stopped() {
    let scene = Scene::new(1);
    let dir = TempDir::new();
    let port = scene.redis.port().to_string();
    let address = format!("127.0.0.1:{port}");
    let python = || Example::start(&dir, "consume_changes.py", &[&address, "python.id"]);
    let shell = || Example::start(&dir, "consume_changes.sh", &["shell.id", "-p", &port]);
    let (first, second) = (python(), shell());
    let _one = scene.first(&[]);
    first.wait_for("e1 ok in ");
    scene.target.answer("e1", down());
    let failing = format!("e1 (http://{}/e1) is failing: HTTP 503\n", scene.target.address());
    first.wait_for(&failing);
    second.wait_for("\"verdict\":\"failing\"");
    let is_kept =
        |file: &str| fs::read_to_string(dir.path().join(file)).is_ok_and(|it| it.contains('-'));
    eventually(SOON, "ids", String::new, || is_kept("python.id") && is_kept("shell.id"));
    drop((first, second));
    scene.target.answer("e1", Answer::default());
    wait_for_verdicts(&scene, &["failing", "ok"]);
    let (first, second) = (python(), shell());
    first.wait_for("is ok: 200, failing for ");
    second.wait_for("\"verdict\":\"ok\"");
    assert_eq!(first.said().matches("is failing").count(), 1, "{}", first.said());
    assert_eq!(second.said().lines().count(), 2, "{}", second.said());
}

/// Runs an example as the daemon would: under its name, with these variables.
fn run_hook(name: &str, environment: &[(&str, &str)]) -> std::process::Output {
    use std::io::Write;
    let change = r#"{"address":"http://h/up","endpoint":"e1","error":"HTTP 503","since_ms":17,"verdict":"failing"}"#;
    let mut command = std::process::Command::new(format!("{EXAMPLES}/hooks/{name}"));
    command.env("LEASEHOLD_ENDPOINT", "e1").env("LEASEHOLD_INSTANCE", "vm1");
    command.envs(environment.iter().copied());
    let pipes = || std::process::Stdio::piped();
    let mut child = command.stdin(pipes()).stdout(pipes()).stderr(pipes()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(change.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_example_that_mails_hands_the_change_to_sendmail() {
    let dir = TempDir::new();
    let sendmail = dir.path().join("sendmail");
    fs::write(&sendmail, "#!/bin/sh\n[ \"$*\" = -t ] && cat >\"${0%/*}/mail\"\n").unwrap();
    fs::set_permissions(&sendmail, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let output = run_hook("mail", &[("PATH", &path), ("MAIL_TO", "ops@example.com")]);
    assert!(output.status.success(), "{output:?}");
    let mail = fs::read_to_string(dir.path().join("mail")).unwrap();
    assert!(mail.starts_with("To: ops@example.com\nSubject: e1 is failing\n"), "{mail}");
    assert!(mail.contains("\n\ne1 (http://h/up) is failing, polled by vm1.\n"), "{mail}");
    assert!(!run_hook("mail", &[("PATH", &path)]).status.success(), "without a recipient");
}

#[test]
fn the_example_of_a_webhook_posts_the_change_and_fails_when_that_is_refused() {
    use std::io::{Read, Write};
    use std::sync::Arc;
    let asked: Arc<parking_lot::Mutex<String>> = Arc::default();
    let kept = Arc::clone(&asked);
    let fake = testkit::fake::Fake::serving(move |mut stream| {
        let mut request = Vec::new();
        let mut chunk = [0; 4_096];
        while !request.ends_with(b"\"failing\"}") {
            match stream.read(&mut chunk) {
                Ok(n) if n > 0 => request.extend_from_slice(&chunk[..n]),
                _ => return,
            }
        }
        let request = String::from_utf8(request).unwrap();
        let status = if request.starts_with("POST /ok ") { "204 No Content" } else { "500 No" };
        *kept.lock() = request;
        let _ =
            stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes());
    });
    let url = |path: &str| format!("http://127.0.0.1:{}/{path}", fake.port);
    let output = run_hook("webhook", &[("WEBHOOK_URL", &url("ok"))]);
    assert!(output.status.success(), "{output:?}");
    let posted = asked.lock().clone();
    assert!(posted.contains("Content-Type: application/json\r\n"), "{posted}");
    assert!(posted.contains("Idempotency-Key: e1-17\r\n"), "{posted}");
    assert!(posted.contains("\r\n\r\n{\"address\":\"http://h/up\""), "{posted}");
    let refused = run_hook("webhook", &[("WEBHOOK_URL", &url("no"))]);
    assert_eq!(refused.status.code(), Some(22), "{refused:?}");
}

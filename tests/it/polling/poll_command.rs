//! Poll commands as real processes: what they are given, how they end, and that nothing is left.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::lease::testing::permit_for_tests;
use leasehold::polling::command::CommandPoller;
use leasehold::{PollPermit, Poller, Revoked, Sample, Session};

use testkit::pids::{LIMIT, all_gone, family, pids};
use testkit::process::{alone, said};
use testkit::temp_dir::TempDir;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
const GRACE: Duration = Duration::from_millis(150);
const DOCUMENT: &str = r#"{"id":"e1","address":"127.0.0.1:1","name":"main save"}"#;

fn poll_as(
    program: &[&str],
    permit: &PollPermit,
    limit: Duration,
    body_max: usize,
) -> Result<Sample, Revoked> {
    let program = program.iter().map(|it| (*it).into()).collect();
    let session = Session::parse("e1", DOCUMENT.as_bytes()).unwrap();
    CommandPoller::new(program, LEASEHOLD.into(), body_max, GRACE).poll(&session, permit, limit)
}

fn poll(program: &[&str]) -> Sample {
    let (permit, _revoke) = permit_for_tests("e1", "vm-1-17-abcdef01", 42);
    poll_as(program, &permit, LIMIT, 1_000).unwrap()
}

fn shell(script: &str) -> Sample {
    poll(&["sh", "-c", script])
}

fn text(sample: &Sample) -> &str {
    std::str::from_utf8(&sample.body).unwrap()
}

#[test]
fn a_command_is_given_the_session_and_the_grant() {
    let sample = shell("cat; echo; echo $LEASEHOLD_ENDPOINT $LEASEHOLD_INSTANCE $LEASEHOLD_FENCE");
    assert_eq!((sample.ok, sample.status, &sample.error), (true, Some(0), &None));
    assert_eq!(text(&sample), format!("{DOCUMENT}\ne1 vm-1-17-abcdef01 42\n"));
}

#[test]
fn a_command_inherits_everything_but_passwords_and_the_grant_of_another() {
    let me = "a_command_inherits_everything_but_passwords_and_the_grant_of_another";
    if std::env::var_os("LEASEHOLD_REDIS_URL").is_none() {
        let again = alone(module_path!(), me)
            .env("LEASEHOLD_REDIS_URL", "redis://:secret@127.0.0.1/")
            .env("LEASEHOLD_REDIS", "secret")
            .env("LEASEHOLD_FENCE", "7")
            .env("LEASEHOLD_REDIS_CA", "/etc/ssl/ca.pem")
            .env("OF_THE_JOB", "kept as it is")
            .output()
            .unwrap();
        assert!(said(&again).contains("1 passed"), "{again:?}");
        return;
    }
    let sample = shell("env | grep 'LEASEHOLD\\|OF_THE_JOB'");
    for line in ["OF_THE_JOB=kept as it is\n", "LEASEHOLD_REDIS_CA=/etc/ssl/ca.pem\n"] {
        assert!(text(&sample).contains(line), "no {line}: {}", text(&sample));
    }
    assert!(!text(&sample).contains("secret"), "{}", text(&sample));
    assert!(text(&sample).contains("LEASEHOLD_FENCE=42\n"), "{}", text(&sample));
}

#[test]
fn the_end_of_a_command_is_told_as_it_was() {
    for (script, status, error) in [
        ("exit 3", Some(3), "exit code 3"),
        ("exit 137", Some(137), "exit code 137"),
        ("kill -9 $$", Some(137), "killed by signal 9"),
        ("kill -TERM $$", Some(143), "killed by signal 15"),
    ] {
        let sample = shell(&format!("echo said; {script}"));
        assert_eq!((sample.ok, sample.status), (false, status), "{script}");
        assert_eq!((sample.error.as_deref(), text(&sample)), (Some(error), "said\n"), "{script}");
    }
}

/// Point 20: what a command says before it fails is the first thing that its author wants to know.
#[test]
fn what_a_failed_command_said_on_stderr_is_in_the_error_of_its_result() {
    for (script, error) in [
        ("echo lost >&2; exit 3", "exit code 3; stderr: lost"),
        ("echo one >&2; echo; printf 'two\\n\\n' >&2; exit 3", "exit code 3; stderr: one two"),
        (
            "printf 'a\\033[2J\\000b\\tc\\r\\nfence 7\\n' >&2; exit 1",
            "exit code 1; stderr: a [2J b c fence 7",
        ),
        ("printf '\\303\\251\\377' >&2; exit 1", "exit code 1; stderr: é\u{fffd}"),
        (
            "echo 'exit 0' >&2; echo 'short of luck' >&2; exit 4",
            "exit code 4; stderr: exit 0 short of luck",
        ),
        ("echo gone >&2; kill -9 $$", "killed by signal 9; stderr: gone"),
        ("echo ' ' >&2; exit 5", "exit code 5"),
    ] {
        assert_eq!(shell(script).error.as_deref(), Some(error), "{script}");
    }
    let sample = shell("echo a warning >&2; echo fine");
    assert_eq!((sample.ok, sample.error.as_deref(), text(&sample)), (true, None, "fine\n"));
    // Nobody is left to write to it: what was said until then counts.
    let sample = shell("echo first >&2; exec 2>&-; sleep 0.1; exit 6");
    assert_eq!(sample.error.as_deref(), Some("exit code 6; stderr: first"));
}

#[test]
fn a_command_that_writes_without_end_to_stderr_blocks_nobody_and_only_its_last_words_are_kept() {
    let script = "head -c 50000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the last >&2; echo out; exit 1";
    let sample = shell(script);
    let error = sample.error.clone().unwrap();
    assert_eq!((sample.status, text(&sample)), (Some(1), "out\n"), "{error}");
    assert!(error.starts_with("exit code 1; stderr: …xxx"), "{error}");
    assert!(error.ends_with("xxx the last") && error.chars().count() < 400, "{error}");
}

#[test]
fn a_command_that_takes_too_long_says_on_what_it_was_waiting() {
    let (permit, _revoke) = permit_for_tests("e1", "i", 1);
    for script in
        ["echo connecting >&2; exec sleep 1000", "trap '' TERM; echo connecting >&2; sleep 1000"]
    {
        let limit = Duration::from_millis(700);
        let sample = poll_as(&["sh", "-c", script], &permit, limit, 1_000).unwrap();
        assert_eq!(
            sample.error.as_deref(),
            Some("no end within 700ms; stderr: connecting"),
            "{script}"
        );
    }
}

#[test]
fn a_command_starts_with_no_signal_blocked() {
    let sample = shell("exec grep SigBlk /proc/self/status");
    assert_eq!(text(&sample), "SigBlk:\t0000000000000000\n");
}

#[test]
fn a_program_that_cannot_run_is_named() {
    let sample = poll(&["/no/such/program"]);
    let error = "cannot run /no/such/program: No such file or directory";
    assert_eq!((sample.ok, sample.status, sample.error.as_deref()), (false, None, Some(error)));
    let sample = poll(&["/etc/passwd"]);
    assert_eq!(sample.error.as_deref(), Some("cannot run /etc/passwd: Permission denied"));
    let (permit, _revoke) = permit_for_tests("e1", "i", 1);
    let session = Session::parse("e1", DOCUMENT.as_bytes()).unwrap();
    let poller = CommandPoller::new(vec!["true".into()], "/no/supervisor".into(), 9, GRACE);
    let error = poller.poll(&session, &permit, LIMIT).unwrap().error.unwrap();
    assert_eq!(error, "cannot start the poll supervisor /no/supervisor: No such file or directory");
}

#[test]
fn input_that_is_not_read_and_output_that_is_too_long_hold_nobody_up() {
    let long = format!(r#"{{"id":"e1","address":"h:1","name":"{}"}}"#, "x".repeat(65_000));
    let session = Session::parse("e1", long.as_bytes()).unwrap();
    let (permit, _revoke) = permit_for_tests("e1", "i", 1);
    for (script, body) in [
        ("true", ""),
        ("exec 0<&-; echo done", "done\n"),
        ("wc -c", "65037\n"),
        ("head -c 3000000 /dev/zero | tr '\\0' x; exec 1>&-; true", &*"x".repeat(1_000)),
    ] {
        let program = vec!["sh".into(), "-c".into(), script.into()];
        let poller = CommandPoller::new(program, LEASEHOLD.into(), 1_000, GRACE);
        let sample = poller.poll(&session, &permit, LIMIT).unwrap();
        assert_eq!((sample.error.as_deref(), text(&sample)), (None, body), "{script}");
    }
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; echo done", file.display());
    let begun = BootClock.now();
    let sample = shell(&script);
    assert_eq!((sample.ok, text(&sample)), (true, "done\n"));
    assert!(BootClock.now().since(begun) < LIMIT, "it waited for the leftovers");
    all_gone(&pids(&file, 1));
}

#[test]
fn a_command_that_closes_its_output_is_still_waited_for() {
    let sample = shell("echo first; exec 1>&- 2>&-; sleep 0.2; exit 4");
    assert_eq!((sample.status, text(&sample)), (Some(4), "first\n"));
    assert!(sample.duration >= Duration::from_millis(200), "{:?}", sample.duration);
}

#[test]
fn a_command_that_takes_too_long_ends_with_its_whole_family() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let (permit, _revoke) = permit_for_tests("e1", "i", 1);
    let limit = Duration::from_millis(1_500);
    let sample = poll_as(&["sh", "-c", &family(&file)], &permit, limit, 1_000).unwrap();
    assert_eq!((sample.ok, sample.status), (false, None));
    assert_eq!(sample.error.as_deref(), Some("no end within 1.5s"));
    assert!(sample.duration < limit + 10 * GRACE, "{:?}", sample.duration);
    all_gone(&pids(&file, 3));
}

#[test]
fn a_command_may_tidy_up_between_term_and_kill() {
    let (permit, _revoke) = permit_for_tests("e1", "i", 1);
    let script = "trap 'echo tidied; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let sample =
        poll_as(&["sh", "-c", script], &permit, Duration::from_millis(700), 1_000).unwrap();
    assert_eq!((sample.ok, text(&sample)), (false, "up\ntidied\n"));
}

/// R3: over within the margin, which may be as short as 190 ms.
#[test]
fn a_lost_lease_ends_a_command_with_its_whole_family() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let (permit, revoke) = permit_for_tests("e1", "i", 1);
    let script = family(&file);
    std::thread::scope(|scope| {
        let polling = scope.spawn(|| {
            let outcome = poll_as(&["sh", "-c", &script], &permit, LIMIT, 1_000);
            (outcome, BootClock.now())
        });
        let pids = pids(&file, 3);
        let begun = BootClock.now();
        revoke();
        let (outcome, ended) = polling.join().unwrap();
        assert_eq!(outcome, Err(Revoked));
        let took = ended.since(begun);
        assert!(took < GRACE + Duration::from_millis(150), "{took:?}");
        all_gone(&pids);
    });
}

/// R2.
#[test]
fn without_a_permit_no_command_starts() {
    let dir = TempDir::new();
    let file = dir.path().join("started");
    let (permit, revoke) = permit_for_tests("e1", "i", 1);
    revoke();
    let script = format!("echo x > {}", file.display());
    assert_eq!(poll_as(&["sh", "-c", &script], &permit, LIMIT, 1_000), Err(Revoked));
    assert!(!file.exists(), "the command ran");
}

#[test]
fn no_zombie_is_left_of_our_own() {
    let me = "no_zombie_is_left_of_our_own";
    if std::env::var_os("ALONE").is_none() {
        let again = alone(module_path!(), me).env("ALONE", "1").output().unwrap();
        assert!(said(&again).contains("1 passed"), "{again:?}");
        return;
    }
    for script in ["true", "exit 1", "kill -9 $$", "sleep 1000 & exit 0"] {
        shell(script);
    }
    let (permit, _revoke) = permit_for_tests("e1", "i", 1);
    poll_as(&["sleep", "1000"], &permit, Duration::from_millis(200), 9).unwrap();
    let children = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    assert_eq!(children.collect::<String>().trim(), "");
}

fn supervisor(script: &str) -> Child {
    let mut supervisor = Command::new(LEASEHOLD)
        .args(["poll-supervisor", "--grace-ms", "150", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    supervisor.stdin.as_mut().unwrap().write_all(b"2\n{}").unwrap();
    supervisor
}

/// R12.
#[test]
fn a_closed_pipe_ends_the_poll_supervisor_and_everything_under_it() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let mut supervisor = supervisor(&family(&file));
    let pids = pids(&file, 3);
    drop(supervisor.stdin.take());
    let begun = BootClock.now();
    supervisor.wait().unwrap();
    let took = BootClock.now().since(begun);
    assert!(took >= GRACE && took < LIMIT, "deaf to TERM, but gone after {took:?}");
    all_gone(&pids);
}

/// R12.
#[test]
fn a_term_for_the_group_does_not_end_its_poll_supervisor() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let script = format!(
        "trap 'echo $$ >> {0}' TERM; echo $$ >> {0}; while :; do sleep 0.01; done",
        file.display()
    );
    let mut supervisor = supervisor(&script);
    pids(&file, 1);
    let mut kill = Command::new("kill");
    assert!(
        kill.args(["-TERM", "--", &format!("-{}", supervisor.id())]).status().unwrap().success()
    );
    let pids = pids(&file, 2);
    assert!(supervisor.try_wait().unwrap().is_none(), "the poll supervisor is gone");
    drop(supervisor.stdin.take());
    supervisor.wait().unwrap();
    all_gone(&pids);
}

/// R12: however the daemon ended.
#[test]
fn a_killed_daemon_takes_its_commands_along() {
    let me = "a_killed_daemon_takes_its_commands_along";
    if let Some(file) = std::env::var_os("PIDS") {
        shell(&family(Path::new(&file)));
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let mut daemon =
        alone(module_path!(), me).env("PIDS", &file).stdout(Stdio::null()).spawn().unwrap();
    let pids = pids(&file, 3);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    all_gone(&pids);
}

/// A poll supervisor that is gone (out of memory, an operator) must not leave its command behind.
#[test]
fn a_killed_poll_supervisor_takes_its_command_along() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let sample = shell(&format!("echo $$ > {}; kill -9 $PPID; sleep 1000", file.display()));
    assert_eq!(sample.error.as_deref(), Some("the poll supervisor ended before the command did"));
    all_gone(&pids(&file, 1));
}

//! Commands under a supervisor, as real processes: they run while they may, and are dead when they may not.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::supervise::signals::{CAUGHT, Signals};
use leasehold::supervise::{Ended, SupervisedCommand};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use testkit::pids::{LIMIT, all_gone, eventually, family, is_gone, pids};
use testkit::process::{alone, binary, ms};
use testkit::temp_dir::TempDir;

const GRACE: Duration = Duration::from_millis(400);
/// How late something may be noticed here, on a machine that is busy.
const LATE: Duration = Duration::from_millis(600);

fn prepared(program: &[&str], environment: &[(&str, String)]) -> SupervisedCommand {
    with_grace(GRACE, program, environment)
}

fn with_grace(
    grace: Duration,
    program: &[&str],
    environment: &[(&str, String)],
) -> SupervisedCommand {
    let program: Vec<String> = program.iter().map(|it| (*it).into()).collect();
    SupervisedCommand::prepare(Path::new(binary()), &program, environment, grace).unwrap()
}

fn shell_until(script: &str, until: Moment) -> SupervisedCommand {
    let mut wrapped = prepared(&["sh", "-c", script], &[]);
    wrapped.go(until).unwrap();
    wrapped
}

/// For longer than any test takes.
fn shell(script: &str) -> SupervisedCommand {
    shell_until(script, BootClock.now() + 3 * LIMIT)
}

#[track_caller]
fn end_of(wrapped: &SupervisedCommand) -> Ended {
    wrapped.ended().recv_timeout(LIMIT).expect("the command does not end")
}

fn code(code: u8) -> Ended {
    Ended { code, error: None }
}

fn failed(code: u8, why: &str) -> Ended {
    Ended { code, error: Some(why.into()) }
}

#[track_caller]
fn content(file: &Path) -> String {
    eventually(&format!("a line in {}", file.display()), || {
        fs::read_to_string(file).ok().filter(|it| it.ends_with('\n'))
    })
}

/// The fields of `/proc/PID/stat` behind the name: state, parent, process group, ….
fn stat(pid: &str) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().map(Into::into).collect()
}

#[track_caller]
fn frozen(pid: &str) {
    eventually(&format!("a stop of {pid}"), || (stat(pid)[0] == "T").then_some(()));
}

fn send(pid: &str, signal: Signal) {
    kill(Pid::from_raw(pid.parse().unwrap()), signal).unwrap();
}

/// Those that have `word` in their command line.
fn children(pid: &str, word: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.map(|it| fs::read_to_string(it.unwrap().path().join("children")));
    let all: String = lists.map(Result::unwrap_or_default).collect();
    let is_one = |it: &&str| {
        let line = fs::read(format!("/proc/{it}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    all.split_whitespace().filter(is_one).map(Into::into).collect()
}

/// This test, run again in a process of its own, which finds `file` in its environment.
fn again(me: &str, file: &Path) -> Command {
    let mut again = alone(module_path!(), me);
    again.arg("--nocapture").env("FILE", file);
    again.stdin(Stdio::null()).stdout(Stdio::null());
    again
}

/// Where to write, in a process that [`again`] started.
fn file_of_again() -> Option<std::path::PathBuf> {
    std::env::var_os("FILE").map(Into::into)
}

/// Ended with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn the_end_of_a_command_is_told_as_it_was() {
    for (script, ended) in [
        ("exit 0", code(0)),
        ("exit 3", code(3)),
        ("exit 255", code(255)),
        ("kill -9 $$", code(137)),
        ("kill -TERM $$", code(143)),
        ("kill -40 $$", failed(1, "the command was ended by a real-time signal")),
    ] {
        assert_eq!(end_of(&shell(script)), ended, "{script}");
    }
}

#[test]
fn a_program_that_cannot_run_is_named_with_the_codes_of_a_shell() {
    for (program, ended) in [
        ("/no/such", failed(127, "cannot run /no/such: No such file or directory")),
        ("no-such-name", failed(127, "cannot run no-such-name: No such file or directory")),
        ("/etc/passwd", failed(126, "cannot run /etc/passwd: Permission denied")),
    ] {
        let mut wrapped = prepared(&[program], &[]);
        wrapped.go(BootClock.now() + LIMIT).unwrap();
        assert_eq!(end_of(&wrapped), ended);
    }
}

#[test]
fn without_a_supervisor_or_a_program_nothing_is_prepared() {
    let prepare = |supervisor: &str, program: &[&str]| {
        let program: Vec<String> = program.iter().map(|it| (*it).into()).collect();
        SupervisedCommand::prepare(Path::new(supervisor), &program, &[], GRACE).unwrap_err()
    };
    let error = prepare("/no/such", &["true"]);
    assert_eq!(error, "cannot start /no/such: No such file or directory");
    for (supervisor, program) in [("/bin/true", &["true"][..]), (binary(), &[])] {
        assert_eq!(prepare(supervisor, program), "the supervisor ended before the command did");
    }
}

#[test]
fn a_command_is_given_what_it_should_know_and_no_password() {
    let me = "a_command_is_given_what_it_should_know_and_no_password";
    let Some(file) = file_of_again() else {
        let dir = TempDir::new();
        let file = dir.path().join("env");
        let mut again = again(me, &file);
        again.env("LEASEHOLD_REDIS_URL", "secret").env("LEASEHOLD_REDIS", "secret");
        again.env("LEASEHOLD_FENCE", "7").env("OTHER", "kept");
        assert!(again.status().unwrap().success());
        let env = content(&file);
        assert!(!env.contains("secret"), "{env}");
        for line in ["LEASEHOLD_FENCE=42\n", "LEASEHOLD_ROLE=a role\n", "OTHER=kept\n"] {
            assert_eq!(env.matches(line).count(), 1, "{line}{env}");
        }
        assert!(!env.contains("LEASEHOLD_FENCE=7"), "{env}");
        return;
    };
    write_environment(&file);
}

/// A command that is given what its user may know: everything but a URL that may have a password in it.
#[test]
fn a_command_inherits_every_variable_that_holds_no_secret() {
    let me = "a_command_inherits_every_variable_that_holds_no_secret";
    let Some(file) = file_of_again() else {
        let kept = [
            ("LEASEHOLD_REDIS", "redis://10.0.0.5:6379/3"),
            ("LEASEHOLD_REDIS_PASSWORD_FILE", "/run/secrets/redis"),
            ("LEASEHOLD_REDIS_CA", "/etc/ssl/ca.pem"),
            ("LEASEHOLD_LEASE_TTL", "30s"),
            ("LEASEHOLD_FOR_THE_JOB", "42"),
        ];
        for secret in ["redis://:hunter2@h/0", "redis://user:hunter2@h/0", "redis://hunter2@h/0"] {
            let dir = TempDir::new();
            let file = dir.path().join("env");
            let mut again = again(me, &file);
            again.envs(kept);
            assert!(again.status().unwrap().success());
            let env = content(&file);
            for (name, value) in kept {
                assert!(env.contains(&format!("{name}={value}\n")), "no {name}: {env}");
            }
            fs::remove_file(&file).unwrap();
            assert!(again.env("LEASEHOLD_REDIS", secret).status().unwrap().success());
            let env = content(&file);
            assert!(!env.contains("hunter2") && env.contains("FOR_THE_JOB=42\n"), "{env}");
        }
        return;
    };
    write_environment(&file);
}

fn write_environment(file: &Path) {
    let script = format!("env > {}", file.display());
    let pairs = [("LEASEHOLD_FENCE", "42".into()), ("LEASEHOLD_ROLE", "a role".into())];
    let mut wrapped = prepared(&["sh", "-c", &script], &pairs);
    wrapped.go(BootClock.now() + LIMIT).unwrap();
    assert_eq!(end_of(&wrapped), code(0));
}

#[test]
fn a_command_has_the_very_stdin_stdout_and_stderr_of_leasehold() {
    let me = "a_command_has_the_very_stdin_stdout_and_stderr_of_leasehold";
    if file_of_again().is_some() {
        let script = "cat; echo out; echo err >&2; readlink /proc/$$/fd/0 /proc/$$/fd/1";
        assert_eq!(end_of(&shell(script)), code(0));
        return;
    }
    let mut again = again(me, Path::new("unused"));
    again.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut again = again.spawn().unwrap();
    let pid = again.id().to_string();
    let link = |fd: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
    let links = format!("{}\n{}\n", link(0).display(), link(1).display());
    again.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let output = again.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let (out, err) = (out.unwrap(), err.unwrap());
    assert!(out.contains(&format!("typed\nout\n{links}")), "{links}{out}");
    assert!(err.contains("err\n"), "{err}");
}

/// Or the end of a pipe would never be seen.
#[test]
fn neither_the_command_nor_anybody_else_inherits_a_pipe() {
    let dir = TempDir::new();
    let list = |name: &str| format!("ls -l /proc/$$/fd > {}", dir.path().join(name).display());
    let anybody = |name: &str| {
        assert!(Command::new("sh").args(["-c", &list(name)]).status().unwrap().success());
    };
    anybody("before");
    let wrapped = shell(&list("theirs"));
    anybody("after");
    assert_eq!(end_of(&wrapped), code(0));
    let descriptors = |name: &str| -> Vec<String> {
        let all = content(&dir.path().join(name)).replace(&format!("/{name}\n"), "/\n");
        all.lines().filter_map(|it| Some(it.split_once(':')?.1[2..].to_owned())).collect()
    };
    assert_eq!(descriptors("theirs"), descriptors("before"));
    assert_eq!(descriptors("after"), descriptors("before"));
}

#[test]
fn supervisor_and_command_are_each_in_a_group_of_their_own() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let wrapped = shell(&format!("echo $$ $PPID > {}; exec sleep 1000", file.display()));
    let pids = pids(&file, 2);
    assert_eq!(stat(&pids[0])[2], pids[0], "the command does not lead its group");
    assert_eq!(stat(&pids[1])[2], pids[1], "the supervisor does not lead its group");
    assert_eq!(stat(&pids[1])[1], std::process::id().to_string());
    drop(wrapped);
    assert!(pids.iter().all(|it| is_gone(it)), "{pids:?}");
}

#[test]
fn a_supervisor_ends_only_with_its_command() {
    let dir = TempDir::new();
    let (file, go) = (dir.path().join("pids"), dir.path().join("go"));
    let script = format!(
        "echo $PPID > {}; while ! [ -e {} ]; do sleep 0.01; done; exit 5",
        file.display(),
        go.display()
    );
    let wrapped = shell(&script);
    let supervisor = &pids(&file, 1)[0];
    for signal in CAUGHT.into_iter().chain([Signal::SIGALRM, Signal::SIGTSTP, Signal::SIGPIPE]) {
        send(supervisor, signal);
    }
    fs::write(go, "").unwrap();
    assert_eq!(end_of(&wrapped), code(5));
}

/// 32 and 33, which glibc keeps to itself and lets everybody ignore whom it starts.
const OF_GLIBC: u64 = 0b11 << 31;

#[test]
fn a_command_starts_with_no_signal_blocked_or_ignored() {
    let me = "a_command_starts_with_no_signal_blocked_or_ignored";
    let Some(file) = file_of_again() else {
        let dir = TempDir::new();
        let file = dir.path().join("signals");
        let own = again(me, &file);
        let mut again = Command::new("sh");
        again.args(["-c", "trap '' HUP QUIT CHLD USR1; exec \"$@\"", "sh"]);
        again.arg(own.get_program()).args(own.get_args()).env("FILE", &file).stdout(Stdio::null());
        assert!(again.status().unwrap().success());
        let masks = content(&file);
        let masks = masks.lines().map(|it| it.split_once(":\t").unwrap());
        let masks: Vec<_> =
            masks.map(|it| (it.0, u64::from_str_radix(it.1, 16).unwrap() & !OF_GLIBC)).collect();
        assert_eq!(masks, [("SigBlk", 0), ("SigIgn", 0)]);
        return;
    };
    CAUGHT.into_iter().collect::<SigSet>().thread_block().unwrap();
    let script = format!("exec grep -E 'Sig(Blk|Ign)' /proc/self/status > {}", file.display());
    assert_eq!(end_of(&shell(&script)), code(0));
}

#[test]
fn nothing_starts_without_a_word_or_too_late() {
    let dir = TempDir::new();
    let file = dir.path().join("started");
    let script = format!("echo x > {}", file.display());
    let program = ["sh", "-c", &script];
    let not_started = failed(1, "sh was not started: it was called off, or too late");
    drop(prepared(&program, &[]));
    let mut called_off = prepared(&program, &[]);
    called_off.extend(BootClock.now() + LIMIT);
    called_off.end();
    assert_eq!(end_of(&called_off), not_started);
    // Within the grace, it would be told to end at once.
    for until in [Moment::MIN, BootClock.now(), BootClock.now() + GRACE] {
        let error = prepared(&program, &[]).go(until).unwrap_err();
        assert_eq!(error, "there is no time left for the command to run");
    }
    let mut hung = with_grace(LIMIT, &program, &[]);
    let supervisor = children("self", &script).pop().unwrap();
    send(&supervisor, Signal::SIGSTOP);
    frozen(&supervisor);
    hung.go(BootClock.now() + LIMIT + ms(50)).unwrap();
    assert!(hung.ended().recv_timeout(ms(60)).is_err());
    send(&supervisor, Signal::SIGCONT);
    assert_eq!(end_of(&hung), not_started);
    assert!(!file.exists(), "the command ran");
}

#[test]
fn nothing_starts_when_leasehold_dies_before_the_word() {
    let me = "nothing_starts_when_leasehold_dies_before_the_word";
    if let Some(file) = file_of_again() {
        let script = format!("echo x > {}", file.display());
        let _wrapped = prepared(&["sh", "-c", &script], &[]);
        fs::write(file.with_extension("ready"), "ready\n").unwrap();
        crossbeam_channel::never::<()>().recv().unwrap();
    }
    let dir = TempDir::new();
    let file = dir.path().join("started");
    let parent = Process::start(&mut again(me, &file));
    content(&file.with_extension("ready"));
    let supervisor = children(&parent.pid(), "");
    let shim = children(&supervisor[0], "");
    assert_eq!((supervisor.len(), shim.len()), (1, 1));
    drop(parent);
    all_gone(&[supervisor, shim].concat());
    assert!(!file.exists(), "the command ran");
}

/// A line that was written in part would garble the order that follows.
#[test]
fn a_task_that_is_longer_than_the_pipe_is_left_out() {
    let mut wrapped = prepared(&["sh", "-c", "exit 5"], &[]);
    wrapped.on_death(&"x".repeat(200_000));
    wrapped.go(BootClock.now() + LIMIT).unwrap();
    assert_eq!(end_of(&wrapped), code(5));
}

/// Deaf to TERM, of which it writes a line.
fn stubborn(file: &Path) -> String {
    format!("trap 'echo TERM >> {}' TERM; while :; do sleep 0.01; done", file.display())
}

#[test]
fn term_comes_one_grace_before_the_deadline_and_kill_at_it() {
    let dir = TempDir::new();
    let file = dir.path().join("told");
    let until = BootClock.now() + ms(1_500);
    let wrapped = shell_until(&stubborn(&file), until);
    assert_eq!(content(&file), "TERM\n");
    let told = BootClock.now();
    assert!(told >= until - GRACE && told < until, "{:?} before", until.since(told));
    assert_eq!(end_of(&wrapped), code(137));
    let ended = BootClock.now();
    assert!(ended >= until && ended < until + LATE, "{:?} after", ended.since(until));
    assert_eq!(content(&file), "TERM\n");
}

/// The heart of it.
#[test]
fn a_command_is_dead_at_its_deadline_while_leasehold_is_frozen() {
    let me = "a_command_is_dead_at_its_deadline_while_leasehold_is_frozen";
    if let Some(file) = file_of_again() {
        let until = BootClock.now() + ms(2_000);
        let wrapped = shell_until(&family(&file), until);
        fs::write(file.with_extension("until"), format!("{}\n", until.as_nanos())).unwrap();
        end_of(&wrapped);
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let parent = Process::start(&mut again(me, &file));
    let until = content(&file.with_extension("until")).trim().parse().unwrap();
    let until = Moment::from_nanos(until);
    let pids = pids(&file, 3);
    send(&parent.pid(), Signal::SIGSTOP);
    frozen(&parent.pid());
    assert!(BootClock.now() < until, "too slow to tell");
    eventually("their end", || {
        let now = BootClock.now();
        let gone = pids.iter().filter(|it| is_gone(it)).count();
        assert!(gone == 0 || now >= until, "{gone} are gone {:?} too early", until.since(now));
        assert!(gone == 3 || now < until + LATE, "{gone} are gone {:?} after", now.since(until));
        (gone == 3).then_some(())
    });
    assert_eq!(stat(&parent.pid())[0], "T");
}

#[test]
fn a_command_runs_on_while_its_deadline_is_put_off_and_no_longer() {
    let dir = TempDir::new();
    let file = dir.path().join("told");
    let window = GRACE + ms(1_500);
    let begun = BootClock.now();
    let mut wrapped = shell_until(&stubborn(&file), begun + window);
    let mut until = begun;
    while BootClock.now() < begun + 2 * window {
        until = BootClock.now() + window;
        wrapped.extend(until);
        assert!(wrapped.ended().recv_timeout(ms(20)).is_err(), "it has ended");
    }
    assert!(!file.exists(), "it was told to end");
    assert_eq!(end_of(&wrapped), code(137));
    let ended = BootClock.now();
    assert!(ended >= until && ended < until + LATE, "{:?} after", ended.since(until));
}

#[test]
fn a_deadline_can_be_drawn_nearer() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let mut wrapped = shell(&format!("echo $$ > {}; exec sleep 1000", file.display()));
    pids(&file, 1);
    let until = BootClock.now() + GRACE;
    wrapped.extend(until);
    assert_eq!(end_of(&wrapped), code(143));
    assert!(BootClock.now() < until + LATE);
}

/// However it died.
#[test]
fn a_command_ends_with_leasehold_within_the_grace() {
    let me = "a_command_ends_with_leasehold_within_the_grace";
    if let Some(file) = file_of_again() {
        end_of(&shell(&family(&file)));
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let parent = Process::start(&mut again(me, &file));
    let pids = pids(&file, 3);
    drop(parent);
    let died = BootClock.now();
    all_gone(&pids);
    let took = BootClock.now().since(died);
    assert!(took + ms(50) >= GRACE && took < GRACE + LATE, "deaf to TERM, but gone after {took:?}");
}

#[test]
fn a_command_ends_with_leasehold_at_its_deadline_if_that_is_sooner() {
    let me = "a_command_ends_with_leasehold_at_its_deadline_if_that_is_sooner";
    let grace = 2 * LIMIT;
    if let Some(file) = file_of_again() {
        let mut wrapped = with_grace(grace, &["sh", "-c", &family(&file)], &[]);
        wrapped.go(BootClock.now() + grace + ms(700)).unwrap();
        pids(&file, 3);
        wrapped.extend(BootClock.now() + ms(300));
        std::process::abort();
    }
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let parent = Process::start(again(me, &file).stderr(Stdio::null()));
    let pids = pids(&file, 3);
    all_gone(&pids);
    drop(parent);
}

#[test]
fn a_command_that_is_told_to_end_may_tidy_up() {
    let dir = TempDir::new();
    let file = dir.path().join("up");
    let tidy = "trap 'sleep 0.1; exit 7' TERM";
    let script = format!("{tidy}; echo x > {}; while :; do sleep 0.01; done", file.display());
    let mut wrapped = shell(&script);
    content(&file);
    wrapped.end();
    assert_eq!(end_of(&wrapped), code(7));
}

#[test]
fn a_command_that_does_not_end_is_killed_after_the_grace() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let mut wrapped = shell(&family(&file));
    let pids = pids(&file, 3);
    wrapped.end();
    let told = BootClock.now();
    // The lease may well go on, and neither that nor a second order is a second grace.
    wrapped.extend(told + 2 * LIMIT);
    assert!(wrapped.ended().recv_timeout(GRACE / 2).is_err());
    wrapped.end();
    assert_eq!(end_of(&wrapped), code(137));
    let took = BootClock.now().since(told);
    assert!(took + ms(5) >= GRACE && took < GRACE + LATE, "{took:?}");
    assert!(pids.iter().all(|it| is_gone(it)), "{pids:?}");
}

#[test]
fn a_frozen_command_is_killed_all_the_same() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let script =
        format!("trap '' TERM; echo $$ > {}; while :; do kill -STOP $$; done", file.display());
    let mut wrapped = shell(&script);
    frozen(&pids(&file, 1)[0]);
    wrapped.end();
    assert_eq!(end_of(&wrapped), code(137));
}

#[test]
fn a_frozen_command_may_tidy_up_too() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let script =
        format!("trap 'exit 7' TERM; echo $$ > {}; kill -STOP $$; sleep 1; exit 8", file.display());
    let mut wrapped = shell(&script);
    frozen(&pids(&file, 1)[0]);
    wrapped.end();
    assert_eq!(end_of(&wrapped), code(7));
}

#[test]
fn what_a_command_leaves_behind_is_gone_when_its_end_is_told() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    // Half of them have lost their parent long before; so many that not all die in a moment.
    let script = format!(
        "trap '' TERM; for i in $(seq 50); do \
         sleep 1000 & echo $! >> {0}; (sleep 1000 & echo $! >> {0}); done; exit 3",
        file.display()
    );
    let wrapped = shell(&script);
    assert_eq!(end_of(&wrapped), code(3));
    let pids = pids(&file, 100);
    assert!(pids.iter().all(|it| is_gone(it)), "{pids:?}");
}

#[test]
fn a_dropped_command_is_gone_with_its_whole_family() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let wrapped = shell(&family(&file));
    let pids = pids(&file, 3);
    let begun = BootClock.now();
    drop(wrapped);
    let took = BootClock.now().since(begun);
    assert!(took < GRACE + LATE, "{took:?}");
    assert!(pids.iter().all(|it| is_gone(it)), "{pids:?}");
}

#[test]
fn a_killed_supervisor_takes_its_command_along() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let wrapped =
        shell(&format!("echo $PPID > {0}.supervisor; {1}", file.display(), family(&file)));
    let pids = pids(&file, 3);
    let supervisor = content(&dir.path().join("pids.supervisor"));
    let begun = BootClock.now();
    send(supervisor.trim(), Signal::SIGKILL);
    assert_eq!(end_of(&wrapped), failed(1, "the supervisor ended before the command did"));
    let took = BootClock.now().since(begun);
    assert!(took < LATE, "{took:?}");
    assert!(pids.iter().all(|it| is_gone(it)), "{pids:?}");
}

/// Nobody of ours is left who could do it.
#[test]
fn a_command_dies_with_its_supervisor_even_while_leasehold_is_frozen() {
    let me = "a_command_dies_with_its_supervisor_even_while_leasehold_is_frozen";
    if let Some(file) = file_of_again() {
        end_of(&shell(&format!("echo $$ $PPID > {}; exec sleep 1000", file.display())));
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let parent = Process::start(&mut again(me, &file));
    let pids = pids(&file, 2);
    send(&parent.pid(), Signal::SIGSTOP);
    frozen(&parent.pid());
    send(&pids[1], Signal::SIGKILL);
    all_gone(&pids);
    assert_eq!(stat(&parent.pid())[0], "T");
}

#[test]
fn a_frozen_supervisor_blocks_nobody_and_saves_no_command() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let script = format!("echo $PPID > {0}.supervisor; {1}", file.display(), family(&file));
    let mut wrapped = shell(&script);
    let pids = pids(&file, 3);
    let supervisor = content(&dir.path().join("pids.supervisor"));
    send(supervisor.trim(), Signal::SIGSTOP);
    frozen(supervisor.trim());
    for _ in 0..20_000 {
        wrapped.extend(BootClock.now() + LIMIT);
    }
    wrapped.signal(Signal::SIGUSR1);
    let until = BootClock.now() + ms(300);
    wrapped.extend(until);
    eventually("their end", || pids.iter().all(|it| is_gone(it)).then_some(()));
    let late = BootClock.now().since(until);
    assert!(late < LATE, "{late:?}");
    assert_eq!(end_of(&wrapped), failed(1, "the supervisor did not end the command in time"));
    assert!(is_gone(supervisor.trim()));
}

#[test]
fn renewals_after_the_end_of_a_command_leave_the_supervisor_its_time_to_tell_of_it() {
    let dir = TempDir::new();
    let file = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let mut wrapped = with_grace(ms(100), &["sh", "-c", &script], &[]);
    wrapped.go(BootClock.now() + LIMIT).unwrap();
    let command = content(&file).trim().to_owned();
    let supervisor = stat(&command)[1].clone();
    send(&supervisor, Signal::SIGSTOP);
    frozen(&supervisor);
    wrapped.end();
    eventually("the listener to kill what the supervisor does not", || {
        wrapped.extend(BootClock.now() + LIMIT);
        is_gone(&command).then_some(())
    });
    for _ in 0..20 {
        wrapped.extend(BootClock.now() + LIMIT);
        assert!(!is_gone(&supervisor), "the listener did not wait for its report");
    }
    send(&supervisor, Signal::SIGCONT);
    assert_eq!(end_of(&wrapped), code(137));
}

#[test]
fn a_supervisor_that_was_frozen_for_a_while_goes_by_the_last_word_it_has_room_for() {
    let dir = TempDir::new();
    let (file, go) = (dir.path().join("pids"), dir.path().join("go"));
    let script = format!(
        "echo $PPID > {}; while ! [ -e {} ]; do sleep 0.01; done; exit 5",
        file.display(),
        go.display()
    );
    let until = BootClock.now() + ms(1_500);
    let mut wrapped = shell_until(&script, until);
    let supervisor = &pids(&file, 1)[0];
    send(supervisor, Signal::SIGSTOP);
    frozen(supervisor);
    let later = BootClock.now() + 2 * LIMIT;
    for _ in 0..10_000 {
        wrapped.extend(later);
    }
    // The first deadline passes unnoticed.
    let past = (until + ms(100)).since(BootClock.now());
    assert!(wrapped.ended().recv_timeout(past).is_err());
    send(supervisor, Signal::SIGCONT);
    // A line that was cut off would be taken for the order to end.
    wrapped.extend(later);
    assert!(wrapped.ended().recv_timeout(ms(300)).is_err());
    fs::write(go, "").unwrap();
    assert_eq!(end_of(&wrapped), code(5));
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let dir = TempDir::new();
    let file = dir.path().join("pids");
    let one = format!("trap 'echo $$ >> {0}; exit 4' USR2; echo $$ >> {0}", file.display());
    let wait = "while :; do sleep 0.01; done";
    let script = format!("sh -c \"{}; {wait}\" & {one}; wait; {wait}", one.replace('$', "\\$"));
    let wrapped = shell(&script);
    pids(&file, 2);
    wrapped.signal(Signal::SIGWINCH);
    wrapped.signal(Signal::SIGUSR2);
    assert_eq!(end_of(&wrapped), code(4));
}

#[test]
fn no_zombie_is_left_of_our_own() {
    let me = "no_zombie_is_left_of_our_own";
    if file_of_again().is_none() {
        assert!(again(me, Path::new("unused")).status().unwrap().success());
        return;
    }
    for script in ["true", "kill -9 $$", "sleep 1000 & exit 0", "kill -9 $PPID; sleep 1000"] {
        end_of(&shell(script));
    }
    drop(shell("sleep 1000"));
    assert_eq!(children("self", ""), [""; 0]);
}

/// Blocked from the start in the process that looks: a test has threads that nobody here can reach.
#[test]
fn every_signal_arrives_by_its_name() {
    let me = "every_signal_arrives_by_its_name";
    if let Some(file) = file_of_again() {
        let signals = Signals::catch().unwrap();
        fs::write(file.with_extension("ready"), "ready\n").unwrap();
        for signal in CAUGHT {
            assert_eq!(signals.caught().recv_timeout(LIMIT), Ok(signal));
            fs::write(&file, format!("{signal}\n")).unwrap();
        }
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("signal");
    let all: SigSet = CAUGHT.into_iter().collect();
    let parent = std::thread::scope(|scope| {
        let blocked = || {
            all.thread_block().unwrap();
            Process::start(&mut again(me, &file))
        };
        scope.spawn(blocked).join().unwrap()
    });
    content(&file.with_extension("ready"));
    for signal in CAUGHT {
        send(&parent.pid(), signal);
        eventually(signal.as_str(), || (content(&file) == format!("{signal}\n")).then_some(()));
    }
    let mut parent = parent;
    assert!(parent.0.wait().unwrap().success());
}

#[test]
fn caught_signals_are_blocked_here_and_in_later_threads_and_no_others() {
    let (here, later) = std::thread::spawn(|| {
        let _signals = Signals::catch().unwrap();
        let mask = || SigSet::thread_get_mask().unwrap();
        (mask(), std::thread::spawn(mask).join().unwrap())
    })
    .join()
    .unwrap();
    for signal in Signal::iterator() {
        let blocked = (here.contains(signal), later.contains(signal));
        let caught = CAUGHT.contains(&signal);
        assert_eq!(blocked, (caught, caught), "{signal}");
    }
}

/// `nohup`, or a shell's background.
#[test]
fn a_signal_that_was_ignored_from_the_start_stays_so() {
    let me = "a_signal_that_was_ignored_from_the_start_stays_so";
    if file_of_again().is_some() {
        let _signals = Signals::catch().unwrap();
        let mask = SigSet::thread_get_mask().unwrap();
        assert!(!mask.contains(Signal::SIGHUP) && mask.contains(Signal::SIGTERM));
        return;
    }
    let own = again(me, Path::new("unused"));
    let mut again = Command::new("sh");
    again.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).env("FILE", "unused");
    again.arg(own.get_program()).args(own.get_args()).stdout(Stdio::null());
    assert!(again.status().unwrap().success());
}

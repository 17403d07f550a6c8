//! The clients of docs/agent.md run as they are printed there.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use testkit::agent::Agent;
use testkit::paths::binary;
use testkit::process::{SOON, eventually, ms};
use testkit::redis::RedisServer;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &str, file: &str, agent: &Agent) -> Self {
        let mut command = Command::new(program);
        command.arg(example(file)).arg(agent.socket()).arg("report").env("LEASEHOLD", binary());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// The fence that it works under.
    fn fence(&mut self) -> u64 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let fence = line.trim_end().strip_prefix("working under fence ");
        fence.unwrap_or_else(|| panic!("it said {line:?}")).parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One works, another one waits; the first one is killed, then an agent.
fn story(program: &str, file: &str) {
    let redis = RedisServer::start();
    let (here, mut there) = (Agent::first(&redis, &[]), Agent::start(&redis, &[]));
    let mut one = Running::start(program, file, &here);
    let first = one.fence();
    assert_eq!(one.fence(), first, "it works on");
    let mut two = Running::start(program, file, &there);
    // It waits for 5 s at most.
    there.process.wait_for("event=agent.client_connected");
    let killed_at = Instant::now();
    one.child.kill().unwrap();
    let second = two.fence();
    let took = killed_at.elapsed();
    println!("{file}: the next one worked {took:?} after SIGKILL");
    assert!(took < ms(2_500), "{took:?}");
    assert!(second > first, "{first}, {second}");
    there.process.kill9();
    let mut status = None;
    eventually(SOON, "its end", String::new, || {
        status = two.child.try_wait().unwrap();
        status.is_some()
    });
    assert!(!status.unwrap().success(), "the agent has gone, and the lease with it");
}

#[test]
fn the_client_in_python_takes_over_from_one_that_is_killed_and_ends_with_its_agent() {
    if Command::new("python3").arg("--version").output().is_err() {
        return println!("skipped: python3 is not installed (apt-get install python3)");
    }
    story("python3", "agent.py");
}

#[test]
fn the_client_in_a_shell_takes_over_from_one_that_is_killed_and_ends_with_its_agent() {
    story("bash", "agent.sh");
}

#[test]
fn the_page_has_the_examples_word_for_word_and_they_are_short() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agent.md");
    let page = std::fs::read_to_string(page).unwrap();
    for file in ["agent.py", "agent.sh"] {
        let text = std::fs::read_to_string(example(file)).unwrap();
        assert!(page.contains(&text), "docs/agent.md does not have examples/{file} as it is");
        assert!(text.lines().count() <= 40, "{file} has {} lines", text.lines().count());
    }
}

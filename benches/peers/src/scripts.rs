//! Locks of other languages: a script each, which does what a line on its stdin says and answers how long it took.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::{LOCKS, Peer, TTL};

/// `make peers` puts both, of these versions, where they are looked for.
pub(crate) const COMMANDS: [(&str, &[&str]); 2] = [
    ("redis-py 8.1.0", &["peers/venv/bin/python", "benches/peers/lock.py"]),
    ("node redlock 4.2.0", &["node", "benches/peers/lock.cjs"]),
];

pub(crate) struct Script {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Script {
    /// Started, connected, and holding as many locks as it is to extend.
    pub(crate) fn start(name: &'static str, command: &[&str], url: &str) -> io::Result<Self> {
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
        let program = match command[0] {
            it if it.contains('/') => format!("{target}/{it}"),
            it => it.into(),
        };
        let mut command_line = Command::new(program);
        command_line.args(&command[1..]).arg(url).arg(LOCKS.to_string());
        command_line.arg(TTL.as_millis().to_string()).env("PEERS", format!("{target}/peers"));
        let mut child = command_line.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut script = Self { name, child, stdin, answers: BufReader::new(stdout).lines() };
        script.answer()?;
        Ok(script)
    }

    fn ask(&mut self, what: &str, at_once: usize) -> io::Result<Option<Duration>> {
        writeln!(self.stdin, "{what} {at_once}")?;
        let answer = self.answer()?;
        Ok(answer.parse().ok().map(Duration::from_secs_f64))
    }

    fn answer(&mut self) -> io::Result<String> {
        let line = self.answers.next().transpose()?;
        line.ok_or_else(|| io::Error::other(format!("{} has ended", self.name)))
    }
}

impl Peer for Script {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pairs(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        self.ask("pairs", at_once)
    }

    fn renewals(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        self.ask("renewals", at_once)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

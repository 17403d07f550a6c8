//! `leasehold audit` beside a fleet: what it found, and how much it saw.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde_json::Value;

use crate::paths::binary;

/// How long the audit may take to say its summary, or anything that a test waits for.
const SOON: Duration = Duration::from_secs(20);

type Lines = Arc<Mutex<Vec<String>>>;
/// A pipe of the audit: its lines so far, and the thread that reads them.
type Pipe = (Lines, Option<JoinHandle<()>>);

/// A running `leasehold audit --json`.
pub struct Audit {
    child: Child,
    said: Pipe,
    complained: Pipe,
}

/// What an audit came to.
#[derive(Debug)]
pub struct Audited {
    pub code: Option<i32>,
    pub findings: Vec<Value>,
    pub summary: Value,
    /// What it wrote to stderr.
    pub complained: Vec<String>,
}

fn collect(pipe: impl Read + Send + 'static) -> Pipe {
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    let reader = std::thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).for_each(|it| kept.lock().push(it));
    });
    (lines, Some(reader))
}

impl Audit {
    /// Audits the fleet of this Redis from now on.
    #[must_use]
    pub fn beside(url: &str, args: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["audit", "--json", &format!("--redis={url}")]).args(args);
        command.env("LEASEHOLD_SERVICE_SETTINGS", "").stdin(Stdio::null());
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("the audit starts");
        let said = collect(child.stdout.take().expect("a pipe"));
        let complained = collect(child.stderr.take().expect("a pipe"));
        Self { child, said, complained }
    }

    /// Waits for a line of stdout with all of these parts.
    #[track_caller]
    pub fn wait_for(&self, parts: &[&str]) -> Value {
        let line = wait_for(&self.said.0, parts);
        serde_json::from_str(&line).expect("a document")
    }

    /// Waits for a line of stderr with all of these parts.
    #[track_caller]
    pub fn wait_for_complaint(&self, parts: &[&str]) -> String {
        wait_for(&self.complained.0, parts)
    }

    /// Ends the audit.
    #[track_caller]
    pub fn end(mut self) -> Audited {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        let _ = kill(pid, Signal::SIGTERM);
        self.wait()
    }

    /// Waits for the end of an audit that ends by itself.
    #[track_caller]
    pub fn wait(&mut self) -> Audited {
        let deadline = Instant::now() + SOON;
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the audit does not end"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        for (_, reader) in [&mut self.said, &mut self.complained] {
            if let Some(reader) = reader.take() {
                let _ = reader.join();
            }
        }
        let said = self.said.0.lock();
        let mut findings: Vec<Value> =
            said.iter().map(|it| serde_json::from_str(it).expect("a document")).collect();
        let complained = self.complained.0.lock().clone();
        let summary = findings.pop().unwrap_or_default();
        Audited { code: status.code(), findings, summary, complained }
    }
}

impl Audited {
    /// Fails if something was found, or if nothing was seen.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.findings.is_empty() && self.code == Some(0), "{self:#?}");
        assert!(self.summary["results"].as_u64() > Some(0), "{self:#?}");
    }

    /// The findings, for a lab that fails with them; without those about endpoints that nobody polled where `gaps_count` is
    /// false, because the machine stood still. Prints how much was seen.
    #[must_use]
    pub fn wrong(&self, gaps_count: bool) -> Vec<String> {
        println!("measured: the audit saw {}", self.summary);
        let counts = |it: &&Value| gaps_count || it["kind"] != "unpolled";
        let findings = self.findings.iter().filter(counts);
        findings.map(|it| format!("audit: {it}")).collect()
    }

    /// The kinds of the findings.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        self.findings.iter().map(|it| it["kind"].as_str().unwrap_or("-").to_owned()).collect()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn wait_for(lines: &Lines, parts: &[&str]) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let found =
            || lines.lock().iter().find(|it| parts.iter().all(|part| it.contains(part))).cloned();
        if let Some(line) = found() {
            return line;
        }
        assert!(Instant::now() < deadline, "no {parts:?} in {:#?}", lines.lock());
        std::thread::sleep(Duration::from_millis(20));
    }
}

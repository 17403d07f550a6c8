//! `leasehold audit`: did the fleet keep its promises? Live, over a span that Redis remembers, or from a recorded file.
//!
//! Says what was observed; judging it is `crate::inspect::audit`. The exit code says whether something was found.

mod live;
mod replay;
mod span;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::inspect::audit::{Judge, Observation, Source, record, words};

use crate::cli::status::{unknown, without_controls};
use crate::cli::table::{brief, printable};
use crate::cli::task::{AuditHow, AuditOutput, AuditWhat};
use crate::cli::watch::complain;
use crate::cli::{FAILED, explained, fail, say};

/// No more findings are printed by name: all endpoints may have one.
const PRINTED_MAX: u64 = 1_000;

/// What `--check` exits with: the codes of monitoring plugins.
const WARNING: u8 = 1;
const CRITICAL: u8 = 2;

/// Audits until the end of what there is, a signal, or the end of `--for`.
pub(crate) fn audit(config: &Config, how: &AuditHow) -> ExitCode {
    let auditor = match Auditor::new(how) {
        Ok(auditor) => auditor,
        Err(why) => return failed(how.output, &why),
    };
    let audited = match &how.what {
        AuditWhat::Live { lasting, .. } => live::audit(config, *lasting, auditor),
        AuditWhat::Span(span) => span::audit(config, *span, auditor),
        AuditWhat::Replay(path) => replay::audit(path, auditor),
    };
    match audited {
        Ok(auditor) => auditor.end(),
        Err(Ended::Failed(why)) => failed(how.output, &why),
        Err(Ended::Unread(code)) => code,
    }
}

fn failed(output: AuditOutput, why: &str) -> ExitCode {
    match output {
        AuditOutput::Check => unknown(&explained(why.to_owned())),
        _ => fail(FAILED, &why),
    }
}

/// Why an audit ended without a summary.
enum Ended {
    /// It could not be made, or not be recorded.
    Failed(String),
    /// Nobody reads stdout any more. With the exit code.
    Unread(ExitCode),
}

/// Judges what is observed, records it and prints what is found.
struct Auditor {
    judge: Judge,
    output: AuditOutput,
    record: Option<(BufWriter<File>, String)>,
    /// What is to be printed next.
    lines: String,
}

impl Auditor {
    fn new(how: &AuditHow) -> Result<Self, String> {
        let record = match &how.what {
            AuditWhat::Live { record: Some(path), .. } => Some(created(path)?),
            _ => None,
        };
        Ok(Self { judge: Judge::default(), output: how.output, record, lines: String::new() })
    }

    fn take(&mut self, it: Observation) -> Result<(), Ended> {
        if let Some((file, name)) = &mut self.record {
            let written = writeln!(file, "{}", record::encode(&it));
            written.map_err(|error| unrecorded(name, &error))?;
        }
        let before = self.judge.counts().n_findings();
        for (n, finding) in (before..).zip(self.judge.observe(it)) {
            match self.output {
                AuditOutput::Check => (),
                _ if n > PRINTED_MAX => (),
                AuditOutput::Json if n == PRINTED_MAX => (),
                AuditOutput::Lines if n == PRINTED_MAX => {
                    self.lines += "further findings are only counted\n";
                }
                AuditOutput::Json => {
                    self.lines += &without_controls(&words::document(&finding).to_string());
                    self.lines.push('\n');
                }
                AuditOutput::Lines => {
                    self.lines += &printable(&words::line(&finding));
                    self.lines.push('\n');
                }
            }
        }
        Ok(())
    }

    /// Prints the findings since the last call, and hands what is recorded on to the file.
    fn flush(&mut self) -> Result<(), Ended> {
        if let Some((file, name)) = &mut self.record {
            file.flush().map_err(|error| unrecorded(name, &error))?;
        }
        self.flush_lines()
    }

    /// Prints the findings since the last call.
    fn flush_lines(&mut self) -> Result<(), Ended> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.lines);
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ended::Unread(self.code()),
            _ => Ended::Failed(format!("cannot write to stdout: {error}")),
        })
    }

    /// 0, or 1 if something was found.
    fn code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.judge.counts().n_findings() > 0))
    }

    /// Prints the summary; the exit code.
    fn end(mut self) -> ExitCode {
        match self.flush() {
            Ok(()) => (),
            Err(Ended::Unread(code)) => return code,
            Err(Ended::Failed(why)) => return failed(self.output, &why),
        }
        let (counts, n) = (self.judge.counts(), self.judge.n_endpoints());
        let observed = counts.results + counts.changes + counts.lease_events + counts.looks;
        let summary = words::summary(counts, n);
        if observed == 0 {
            let why = format!("nothing could be audited: {summary}; check --redis and --prefix");
            return failed(self.output, &why);
        }
        let text = match self.output {
            AuditOutput::Lines => format!("{summary}\n"),
            AuditOutput::Json => format!("{}\n", words::summary_document(counts, n)),
            AuditOutput::Check => return self.checked(&summary),
        };
        let code = self.code();
        if say(&text) == ExitCode::SUCCESS { code } else { ExitCode::from(FAILED) }
    }

    /// One line for a monitoring system: what is behind the bar are numbers.
    fn checked(&self, summary: &str) -> ExitCode {
        let counts = self.judge.counts();
        let (code, word) = match (counts.n_findings(), counts.unobserved_ms()) {
            (0, 0) => (0, "OK"),
            (0, _) => (WARNING, "WARNING"),
            _ => (CRITICAL, "CRITICAL"),
        };
        let unobserved_s = counts.unobserved_ms().div_ceil(1_000);
        let numbers = format!(
            "findings={} results={} unobserved={unobserved_s}s",
            counts.n_findings(),
            counts.results
        );
        let line = format!("{word}: {} | {numbers}\n", printable(summary).replace('|', "/"));
        if say(&line) == ExitCode::SUCCESS { ExitCode::from(code) } else { unknown("stdout") }
    }
}

fn created(path: &Path) -> Result<(BufWriter<File>, String), String> {
    let name = path.display().to_string();
    match File::create(path) {
        Ok(file) => Ok((BufWriter::new(file), name)),
        Err(error) => Err(format!("cannot write --record {name}: {error}")),
    }
}

fn unrecorded(name: &str, error: &io::Error) -> Ended {
    Ended::Failed(format!("cannot write --record {name}: {error}; the audit ends here"))
}

/// Which sources cannot be read at the moment, and since when nothing was received from them.
struct Gaps {
    since: [Option<Moment>; 4],
}

impl Gaps {
    fn new() -> Self {
        Self { since: [None; 4] }
    }

    /// This source has been silent since `received_at`; says so on stderr unless another one is silent already.
    fn begin(&mut self, source: Source, received_at: Moment, why: &str) {
        if self.since.iter().all(Option::is_none) {
            complain(&format!("Redis does not answer, trying again: {}", printable(why)));
        }
        self.since[source as usize].get_or_insert(received_at);
    }

    /// It answers again; the observation of how long it did not.
    fn end(&mut self, source: Source) -> Option<Observation> {
        let away = BootClock.now().since(self.since[source as usize].take()?);
        if self.since.iter().all(Option::is_none) {
            complain(&format!("Redis answers again, after {}", brief(away)));
        }
        let for_ms = u64::try_from(away.as_millis()).unwrap_or(u64::MAX).max(1);
        Some(Observation::Unobserved { source, for_ms })
    }
}

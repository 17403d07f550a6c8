//! Is an endpoint ok or failing? Decided from the results in a row, so that one odd result need not change it. Pure.

use std::fmt;

use crate::model::sample::without_stderr;
use crate::model::{FenceToken, InstanceId, Tenure};

/// What the results of an endpoint add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The last results were ok.
    Ok,
    /// As many results in a row were not ok as it takes.
    Failing,
}

impl Verdict {
    /// As it is stored and announced.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
        }
    }

    /// From what is stored; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Ok, Self::Failing].into_iter().find(|it| it.as_str() == text)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many results in a row change a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct Thresholds {
    /// Results that are not ok, until the endpoint is failing.
    pub fail_after: u32,
    /// Results that are ok, until a failing endpoint is ok.
    pub ok_after: u32,
}

impl Thresholds {
    /// The most of each.
    pub const MAX: u32 = 1_000;
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { fail_after: 1, ok_after: 1 }
    }
}

/// A verdict with the counts that decide the next one: fields of the hash `poll:result:<endpoint>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictState {
    /// `None` until a result is ok, or enough are not.
    pub verdict: Option<Verdict>,
    /// When the poll began whose result decided it, by the server's clock.
    pub since_ms: u64,
    /// The same of the verdict before; 0 if there was none.
    pub before_ms: u64,
    /// Results in a row that were not ok.
    pub failures: u32,
    /// Results in a row that were ok, counted while the endpoint is failing.
    pub successes: u32,
}

impl VerdictState {
    /// After a result of a poll that began at `started_at_ms`. publish.lua decides the same.
    pub fn after(self, ok: bool, started_at_ms: u64, thresholds: Thresholds) -> Self {
        let (mut next, is_failing) = (self, self.verdict == Some(Verdict::Failing));
        (next.failures, next.successes) = match ok {
            true => (0, if is_failing { self.successes.saturating_add(1) } else { 0 }),
            false => (self.failures.saturating_add(1), 0),
        };
        let verdict = match ok {
            true if !is_failing || next.successes >= thresholds.ok_after => Some(Verdict::Ok),
            false if next.failures >= thresholds.fail_after => Some(Verdict::Failing),
            _ => self.verdict,
        };
        if verdict != self.verdict {
            next.successes = 0;
            (next.verdict, next.since_ms, next.before_ms) = (verdict, started_at_ms, self.since_ms);
        }
        next
    }

    /// How long the verdict before this one held.
    pub fn lasted_ms(&self) -> u64 {
        self.since_ms.saturating_sub(self.before_ms)
    }

    /// Whether the result of the poll that began at `started_at_ms` changed the verdict. That a new endpoint is ok is no
    /// change.
    pub fn is_changed_by(&self, started_at_ms: u64) -> bool {
        self.since_ms == started_at_ms
            && match self.verdict {
                Some(Verdict::Failing) => true,
                Some(Verdict::Ok) => self.before_ms > 0,
                None => false,
            }
    }
}

/// A verdict became another one: announced once, by the store, and told by the owner whose result it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The grant of the result that changed it.
    pub tenure: Tenure,
    /// Who polled.
    pub instance: InstanceId,
    /// What was polled, without its query.
    pub address: String,
    /// The new verdict, and the counts after that result.
    pub state: VerdictState,
    /// HTTP status or exit code of that result, where there was one.
    pub status: Option<i32>,
    /// Why it was not ok.
    pub error: Option<String>,
}

impl Change {
    /// [`Self::error`] without what a command wrote on stderr: for the log.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.error.as_deref().map(without_stderr)
    }
}

/// A state as its owner saw it stored last: what the store goes on from where it has lost its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownVerdict {
    /// The grant of the result that the state includes …
    pub fence: FenceToken,
    /// … and when its poll began.
    pub started_at_ms: u64,
    /// The state after that result.
    pub state: VerdictState,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdicts after each result (`+` ok, `-` not ok), and whether that result changed the verdict.
    fn course(results: &str, fail_after: u32, ok_after: u32) -> String {
        let (mut state, mut told) = (VerdictState::default(), String::new());
        for (n, result) in (1..).zip(results.chars()) {
            state = state.after(result == '+', n, Thresholds { fail_after, ok_after });
            let verdict = match state.verdict {
                None => '?',
                Some(Verdict::Ok) => 'o',
                Some(Verdict::Failing) => 'f',
            };
            told.push(verdict);
            if state.is_changed_by(n) {
                told.push('!');
            }
        }
        told
    }

    #[test]
    fn a_verdict_changes_after_as_many_results_in_a_row_as_it_takes() {
        for (results, fail_after, ok_after, told) in [
            ("++--++", 1, 1, "oof!fo!o"),
            ("-+-", 1, 1, "f!o!f!"),
            ("+--+---", 3, 1, "oooooof!"),
            ("---+", 3, 1, "??f!o!"),
            ("--+-", 3, 1, "??oo"),
            ("+-+-++", 1, 2, "of!fffo!"),
        ] {
            assert_eq!(course(results, fail_after, ok_after), told.replace(' ', ""), "{results}");
        }
    }

    #[test]
    fn a_state_says_since_when_it_holds_and_how_long_the_one_before_did() {
        let thresholds = Thresholds { fail_after: 2, ok_after: 2 };
        let of = |results: &[(bool, u64)]| {
            results
                .iter()
                .fold(VerdictState::default(), |it, (ok, at)| it.after(*ok, *at, thresholds))
        };
        let state = of(&[(true, 10), (false, 20), (false, 30), (false, 40)]);
        let failing = Some(Verdict::Failing);
        let expected = VerdictState {
            verdict: failing,
            since_ms: 30,
            before_ms: 10,
            failures: 3,
            successes: 0,
        };
        assert_eq!(state, expected);
        let state = state.after(true, 50, thresholds).after(true, 60, thresholds);
        assert_eq!((state.verdict, state.since_ms, state.before_ms), (Some(Verdict::Ok), 60, 30));
        assert_eq!((state.failures, state.successes), (0, 0));
    }
}

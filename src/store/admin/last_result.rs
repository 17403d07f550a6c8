//! What the last poll of an endpoint came to, as it is stored in `poll:result:<endpoint>`.

use crate::model::{CertificateLeft, FenceToken, InstanceId, Verdict, VerdictState};

/// The longest error of a poll that is kept.
const ERROR_MAX_CHARS: usize = 1_000;
/// The fields of a result hash that are read, in this order. The body is not: it may be large.
pub(super) const RESULT_FIELDS: [&str; 16] = [
    "granted",
    "fence",
    "instance",
    "ok",
    "status",
    "error",
    "started_at_ms",
    "duration_ms",
    "interval_ms",
    "verdict",
    "since_ms",
    "before_ms",
    "failures",
    "successes",
    "cert_days",
    "cert_expiring",
];

/// The last result of an endpoint, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResult {
    pub ok: bool,
    pub status: Option<i64>,
    pub error: Option<String>,
    pub started_at_ms: Option<u64>,
    pub duration_ms: Option<u64>,
    pub interval_ms: Option<u64>,
    pub fence: Option<FenceToken>,
    pub instance: Option<InstanceId>,
    /// What the results up to this one add up to; `None` of a version that does not say.
    pub state: Option<VerdictState>,
    pub certificate: Option<CertificateLeft>,
}

/// A result whose `ok` is neither 0 nor 1.
pub(super) struct NoResult;

impl LastResult {
    /// What the last results together say: one failure among successes is no verdict. `None` until one is reached; a version
    /// that stores no verdict says with `ok` what it is.
    pub fn verdict(&self) -> Option<Verdict> {
        let alone = if self.ok { Verdict::Ok } else { Verdict::Failing };
        self.state.map_or(Some(alone), |it| it.verdict)
    }

    /// When the verdict became what it is, by the server's clock.
    pub fn verdict_since_ms(&self) -> Option<u64> {
        self.state.filter(|it| it.verdict.is_some()).map(|it| it.since_ms)
    }

    /// The last grant, and the last result if there is one; from the values of [`RESULT_FIELDS`].
    pub(super) fn of(
        values: &[Option<String>],
    ) -> (Option<FenceToken>, Result<Option<Self>, NoResult>) {
        let text = |at: usize| values.get(at).cloned().flatten().filter(|it| !it.is_empty());
        let number = |at: usize| text(at)?.parse::<u64>().ok();
        let granted = number(0).map(FenceToken);
        let ok = match text(3).as_deref() {
            Some("1") => true,
            Some("0") => false,
            None => return (granted, Ok(None)),
            Some(_) => return (granted, Err(NoResult)),
        };
        let verdict = text(9).as_deref().and_then(Verdict::parse);
        let count = |at: usize| number(at).map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        let state = (verdict.is_some() || number(12).is_some()).then(|| VerdictState {
            verdict,
            since_ms: number(10).unwrap_or_default(),
            before_ms: number(11).unwrap_or_default(),
            failures: count(12).unwrap_or_default(),
            successes: count(13).unwrap_or_default(),
        });
        let result = Self {
            ok,
            status: text(4).and_then(|it| it.parse().ok()),
            error: text(5).map(|it| it.chars().take(ERROR_MAX_CHARS).collect()),
            started_at_ms: number(6),
            duration_ms: number(7),
            interval_ms: number(8),
            fence: number(1).map(FenceToken),
            instance: text(2).map(|it| InstanceId::new(&it)),
            state,
            certificate: CertificateLeft::told(text(14), number(15)),
        };
        (granted, Ok(Some(result)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stored: &[(&str, &str)]) -> LastResult {
        let value = |name: &&str| stored.iter().find(|it| it.0 == *name).map(|it| it.1.to_owned());
        let values: Vec<Option<String>> = RESULT_FIELDS.iter().map(value).collect();
        LastResult::of(&values).1.ok().flatten().unwrap()
    }

    #[test]
    fn a_failure_is_no_verdict_before_enough_have_failed() {
        let verdict = |stored: &[(&str, &str)]| {
            let result = read(stored);
            (result.verdict(), result.verdict_since_ms())
        };
        assert_eq!(verdict(&[("ok", "0")]), (Some(Verdict::Failing), None), "an older version");
        assert_eq!(verdict(&[("ok", "1")]), (Some(Verdict::Ok), None), "an older version");
        assert_eq!(verdict(&[("ok", "0"), ("failures", "1"), ("successes", "0")]), (None, None));
        let (since, failures) = (("since_ms", "70"), ("failures", "1"));
        let flaky = [("ok", "0"), ("verdict", "ok"), since, failures];
        assert_eq!(verdict(&flaky), (Some(Verdict::Ok), Some(70)));
        let failing = [("ok", "0"), ("verdict", "failing"), since, failures, ("before_ms", "5")];
        assert_eq!(verdict(&failing), (Some(Verdict::Failing), Some(70)));
        let state = read(&failing).state.unwrap();
        assert_eq!((state.before_ms, state.failures, state.successes), (5, 1, 0));
    }
}

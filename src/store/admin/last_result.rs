//! What the last poll of an endpoint came to, as it is stored in `poll:result:<endpoint>`.

use crate::model::{CertificateLeft, FenceToken, InstanceId};

/// The longest error of a poll that is kept.
const ERROR_MAX_CHARS: usize = 1_000;
/// The fields of a result hash that are read, in this order. The body is not: it may be large.
pub(super) const RESULT_FIELDS: [&str; 14] = [
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
    "failures",
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
    pub verdict: StoredVerdict,
    pub certificate: Option<CertificateLeft>,
}

/// What the last results together say: one failure among successes is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVerdict {
    pub ok: bool,
    /// When it became so, by the server's clock; `None` of a version that does not say.
    pub since_ms: Option<u64>,
    /// How many polls in a row have failed; `None` of a version that does not say.
    pub failures: Option<u64>,
}

impl StoredVerdict {
    /// From the fields of a result; a version that writes no verdict says with `ok` what it is.
    pub(crate) fn of(
        ok: bool,
        word: Option<&str>,
        since_ms: Option<u64>,
        failures: Option<u64>,
    ) -> Self {
        match word {
            Some(word @ ("ok" | "failing")) => Self { ok: word == "ok", since_ms, failures },
            _ => Self { ok, since_ms: None, failures: None },
        }
    }
}

/// A result whose `ok` is neither 0 nor 1.
pub(super) struct NoResult;

impl LastResult {
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
        let result = Self {
            ok,
            status: text(4).and_then(|it| it.parse().ok()),
            error: text(5).map(|it| it.chars().take(ERROR_MAX_CHARS).collect()),
            started_at_ms: number(6),
            duration_ms: number(7),
            interval_ms: number(8),
            fence: number(1).map(FenceToken),
            instance: text(2).map(|it| InstanceId::new(&it)),
            verdict: StoredVerdict::of(ok, text(9).as_deref(), number(10), number(11)),
            certificate: CertificateLeft::told(text(12), number(13)),
        };
        (granted, Ok(Some(result)))
    }
}

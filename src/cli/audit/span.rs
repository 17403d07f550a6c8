//! Audits what Redis remembers: the streams of the last hour or day, and the last result of each endpoint.
//!
//! A gap in the history proves nothing, because entries may be missing. So only endpoints that nobody polls now are found.

use std::time::Duration;

use crate::config::Config;
use crate::inspect::audit::{Observation, Source};
use crate::stop_on_signal;
use crate::store::history::{Entry, KEPT, Stream};
use crate::store::redis::RedisStore;
use crate::store::{Fault, StoreResult};

use crate::cli::audit::live::{Looked, look};
use crate::cli::audit::{Auditor, Ended};
use crate::cli::explained;
use crate::cli::table::printable;
use crate::cli::watch::complain;

/// How many entries are read at a time.
const PAGE: usize = 1_000;
/// An endpoint that nobody polls is looked at again after this: a session that was just resumed is polled within 2 s.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);

/// Audits the last `span`.
pub(super) fn audit(
    config: &Config,
    span: Duration,
    mut auditor: Auditor,
) -> Result<Auditor, Ended> {
    let signalled = stop_on_signal().map_err(|_| Ended::Failed("cannot handle signals".into()))?;
    let store = RedisStore::of_endpoints(config);
    let timeout = config.store_timeout;
    let failed = |error: &dyn ToString| Ended::Failed(printable(&error.to_string()));
    let now_ms = store.server_ms(timeout).map_err(|error| failed(&error))?;
    let from_ms = now_ms.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    for (stream, source, what) in [
        (Stream::Changes, Source::Changes, "changes"),
        (Stream::Leases, Source::Leases, "lease events"),
    ] {
        match entries_since(&store, stream, from_ms, timeout) {
            Ok((entries, unobserved_ms)) => {
                for it in entries.iter().rev().filter_map(|it| Observation::of_entry(stream, it)) {
                    auditor.take(it)?;
                }
                if unobserved_ms > 0 {
                    auditor.take(Observation::Unobserved { source, for_ms: unobserved_ms })?;
                }
            }
            Err(error) if error.fault == Fault::Misconfigured => {
                let why = explained(printable(&error.to_string()));
                complain(&format!("{what} are not audited: {why}"));
                let for_ms = now_ms - from_ms;
                auditor.take(Observation::Unobserved { source, for_ms })?;
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    let overview = store.overview(timeout).map_err(|error| failed(&error))?;
    for it in &overview.endpoints {
        let result = it.result.as_ref().filter(|it| it.started_at_ms >= Some(from_ms));
        if let Some(result) = result {
            auditor.take(Observation::of_stored(&it.id, result))?;
        }
    }
    drop(overview);
    let mut is_confirmed = false;
    loop {
        let (look, unattended) = match look(&store, timeout) {
            Looked::Seen(look, unattended) => (look, unattended),
            Looked::Failed(why) | Looked::Refused(why) => return Err(failed(&why)),
        };
        let is_suspect = !unattended.is_empty();
        for it in unattended {
            auditor.take(Observation::Unattended(it))?;
        }
        auditor.take(Observation::Look(look))?;
        auditor.flush()?;
        if is_confirmed || !is_suspect || signalled.within(CONFIRM_AFTER) {
            return Ok(auditor);
        }
        is_confirmed = true;
    }
}

/// The entries since then, the newest first, and for how long before the oldest one of them the stream forgot what happened.
fn entries_since(
    store: &RedisStore,
    stream: Stream,
    from_ms: u64,
    timeout: Duration,
) -> StoreResult<(Vec<Entry>, u64)> {
    let mut found: Vec<Entry> = Vec::new();
    loop {
        let before = found.last().map(|it| it.id.clone());
        let page = store.history(stream, before.as_deref(), PAGE, timeout)?;
        let is_last = page.len() < PAGE;
        found.extend(page);
        let oldest_ms = found.last().map_or(u64::MAX, |it| it.at_ms);
        if oldest_ms < from_ms || is_last || found.len() >= 2 * KEPT {
            let forgot = found.len() >= KEPT && oldest_ms > from_ms;
            found.retain(|it| it.at_ms >= from_ms);
            return Ok((found, if forgot { oldest_ms - from_ms } else { 0 }));
        }
    }
}

//! What is there to poll? Turns stored records into sessions, and says what changed.
//!
//! Records come from strangers. One that cannot be understood is reported once per change and
//! disturbs nothing. Reading them is the caller's business; so is how often. Only what was read is
//! here: the sessions this instance polls or is about to, and those that nobody polls.

use std::hash::Hasher;
use std::sync::Arc;

use fnv::{FnvHashMap, FnvHashSet, FnvHasher};

use crate::model::{EndpointId, OddField, Session, SessionError};
use crate::store::RawSession;

/// How many names that are no endpoint ids are remembered; any beyond them is reported each time it is met.
const MISNAMED_MAX: usize = 10_000;

/// The sessions as last read.
#[derive(Debug, Default)]
pub struct SessionCache {
    records: FnvHashMap<EndpointId, Record>,
    /// Names that are no endpoint ids, all reported; and those met since the last walk over all names.
    misnamed: FnvHashSet<String>,
    met: FnvHashSet<String>,
}

#[derive(Debug)]
struct Record {
    digest: u64,
    /// `None`: not understood.
    session: Option<Arc<Session>>,
}

/// What reading changed.
#[derive(Debug, Default)]
pub struct SessionChanges {
    /// New, or changed in any way, paused ones too.
    pub changed: Vec<Arc<Session>>,
    /// Not understood, by key suffix, and not reported before.
    pub invalid: Vec<(String, SessionError)>,
    /// Understood, but with fields that were probably meant to be others.
    pub odd: Vec<(EndpointId, Vec<OddField>)>,
    /// There no more, or no longer understood.
    pub gone: Vec<EndpointId>,
}

impl SessionCache {
    /// A walk over all names has ended: what it did not meet is there no more.
    pub fn end_listing(&mut self) {
        self.misnamed = std::mem::take(&mut self.met);
    }

    /// The endpoint that a stored session of this name declares.
    pub fn named(&mut self, suffix: &str, changes: &mut SessionChanges) -> Option<EndpointId> {
        EndpointId::parse(suffix)
            .map_err(|error| {
                if self.met.len() < MISNAMED_MAX {
                    self.met.insert(suffix.into());
                }
                if !self.misnamed.contains(suffix) {
                    if self.misnamed.len() < MISNAMED_MAX {
                        self.misnamed.insert(suffix.into());
                    }
                    changes.invalid.push((suffix.into(), SessionError::Key(error)));
                }
            })
            .ok()
    }

    /// Takes in what was found under `endpoint` when the server's clock showed `server_ms`; whether it is to be polled.
    pub fn apply(
        &mut self,
        endpoint: &EndpointId,
        raw: &RawSession,
        server_ms: Option<u64>,
        changes: &mut SessionChanges,
    ) -> bool {
        let digest = digest(raw);
        let is_new = |it: &Record| it.digest != digest || it.pause_is_over(server_ms);
        if self.records.get(endpoint).is_none_or(is_new) {
            let session = match understood_with_odd_fields(endpoint, raw) {
                Ok((mut session, odd)) => {
                    session.paused = session.is_paused_at(server_ms);
                    if !odd.is_empty() {
                        changes.odd.push((endpoint.clone(), odd));
                    }
                    let session = Arc::new(session);
                    changes.changed.push(Arc::clone(&session));
                    Some(session)
                }
                Err(error) => {
                    changes.invalid.push((endpoint.to_string(), error));
                    changes.gone.push(endpoint.clone());
                    None
                }
            };
            self.records.insert(endpoint.clone(), Record { digest, session });
        }
        !self.is_idle(endpoint)
    }

    /// Nothing is known about `endpoint` any more.
    pub fn forget(&mut self, endpoint: &EndpointId) {
        self.records.remove(endpoint);
    }

    /// Whether it was read and not forgotten since.
    pub fn knows(&self, endpoint: &EndpointId) -> bool {
        self.records.contains_key(endpoint)
    }

    /// The session of `endpoint`, if it was read and is understood.
    pub fn session(&self, endpoint: &EndpointId) -> Option<&Arc<Session>> {
        self.records.get(endpoint)?.session.as_ref()
    }

    /// Whether it was read and is not to be polled: paused, or not understood.
    pub fn is_idle(&self, endpoint: &EndpointId) -> bool {
        self.records.get(endpoint).is_some_and(Record::is_idle)
    }

    /// When its pause ends by itself, by the server's clock, if it is paused.
    pub fn pause_ends_at(&self, endpoint: &EndpointId) -> Option<u64> {
        self.session(endpoint).filter(|it| it.paused)?.paused_until_ms
    }

    /// Everything that was read and is not to be polled.
    pub fn idle(&self) -> impl Iterator<Item = &EndpointId> {
        self.records.iter().filter(|it| it.1.is_idle()).map(|it| it.0)
    }
}

impl Record {
    fn pause_is_over(&self, server_ms: Option<u64>) -> bool {
        self.session.as_ref().is_some_and(|it| it.paused && !it.is_paused_at(server_ms))
    }

    fn is_idle(&self) -> bool {
        self.session.as_ref().is_none_or(|it| it.paused)
    }
}

/// What the record of `endpoint` says, or why it cannot be understood.
pub fn understood(endpoint: &EndpointId, raw: &RawSession) -> Result<Session, SessionError> {
    understood_with_odd_fields(endpoint, raw).map(|it| it.0)
}

/// The same, with the fields that were probably meant to be others.
pub fn understood_with_odd_fields(
    endpoint: &EndpointId,
    raw: &RawSession,
) -> Result<(Session, Vec<OddField>), SessionError> {
    match raw {
        RawSession::Value(bytes) => Session::parse_with_odd_fields(endpoint.as_str(), bytes),
        RawSession::WrongType(kind) => Err(SessionError::NotAString(kind.clone())),
        RawSession::TooLarge(bytes) => Err(SessionError::TooLarge(*bytes)),
    }
}

fn digest(raw: &RawSession) -> u64 {
    let mut hasher = FnvHasher::default();
    match raw {
        RawSession::Value(bytes) => hasher.write(bytes),
        RawSession::WrongType(kind) => hasher.write(format!("\0type {kind}").as_bytes()),
        RawSession::TooLarge(bytes) => hasher.write(format!("\0size {bytes}").as_bytes()),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> EndpointId {
        EndpointId::parse(name).unwrap()
    }

    fn raw(text: &str) -> RawSession {
        RawSession::Value(text.as_bytes().to_vec())
    }

    fn read(session_cache: &mut SessionCache, name: &str, text: &str) -> (bool, SessionChanges) {
        let mut changes = SessionChanges::default();
        let polled = session_cache.apply(&id(name), &raw(text), None, &mut changes);
        (polled, changes)
    }

    const GOOD: &str = r#"{"id":"a","address":"127.0.0.1:1"}"#;
    const PAUSED: &str = r#"{"id":"a","address":"h:1","isPaused":true}"#;

    #[test]
    fn a_bad_session_is_reported_once_per_change() {
        let mut session_cache = SessionCache::default();
        for (text, changed, invalid) in
            [("{", 0, 1), ("{", 0, 0), ("{{", 0, 1), (GOOD, 1, 0), (GOOD, 0, 0), ("{", 0, 1)]
        {
            let (polled, changes) = read(&mut session_cache, "a", text);
            assert_eq!(
                (changes.changed.len(), changes.invalid.len()),
                (changed, invalid),
                "{text}"
            );
            assert_eq!(polled, text == GOOD);
            assert_eq!(changes.gone.len(), invalid, "not understood is as good as gone");
        }
        assert!(session_cache.session(&id("a")).is_none() && session_cache.is_idle(&id("a")));
    }

    #[test]
    fn a_field_that_was_meant_to_be_another_is_reported_once_per_change() {
        let mut session_cache = SessionCache::default();
        let odd = r#"{"id":"a","address":"h:1","paused":true}"#;
        for (text, n_odd) in [(odd, 1), (odd, 0), (GOOD, 0), (odd, 1)] {
            let (polled, changes) = read(&mut session_cache, "a", text);
            assert_eq!((polled, changes.odd.len()), (true, n_odd), "{text}");
        }
    }

    /// Reported when it turns up, not each time all names are walked over; again when it comes back.
    #[test]
    fn a_bad_name_is_reported_once() {
        let mut session_cache = SessionCache::default();
        let told = |session_cache: &mut SessionCache, name| {
            let mut changes = SessionChanges::default();
            assert!(session_cache.named(name, &mut changes).is_none());
            changes.invalid.len()
        };
        for times in [1, 0, 0] {
            assert_eq!(told(&mut session_cache, "a b"), times);
            assert_eq!(told(&mut session_cache, "a b"), 0);
            session_cache.end_listing();
        }
        session_cache.end_listing();
        assert_eq!(told(&mut session_cache, "a b"), 1);
        assert!(session_cache.named("a-b", &mut SessionChanges::default()).is_some());
    }

    /// An application may write such names without end, and walks over all names may be far apart.
    #[test]
    fn bad_names_without_end_need_no_room_without_end() {
        let mut session_cache = SessionCache::default();
        for n in 0..2 * MISNAMED_MAX {
            assert!(
                session_cache.named(&format!("a {n}"), &mut SessionChanges::default()).is_none()
            );
        }
        assert_eq!(
            (session_cache.misnamed.len(), session_cache.met.len()),
            (MISNAMED_MAX, MISNAMED_MAX)
        );
    }

    #[test]
    fn a_paused_session_is_known_but_not_to_be_polled() {
        let mut session_cache = SessionCache::default();
        assert!(!session_cache.is_idle(&id("a")) && !session_cache.knows(&id("a")));
        assert!(!read(&mut session_cache, "a", PAUSED).0);
        assert!(session_cache.session(&id("a")).is_some() && session_cache.is_idle(&id("a")));
        assert_eq!(session_cache.idle().collect::<Vec<_>>(), [&id("a")]);
        let (polled, changes) = read(&mut session_cache, "a", PAUSED);
        assert!(!polled && changes.changed.is_empty(), "it was only touched");
        assert!(read(&mut session_cache, "a", GOOD).0);
        session_cache.forget(&id("a"));
        assert!(!session_cache.knows(&id("a")));
    }

    /// Nobody writes into a session when its pause ends: the same bytes mean something else then.
    #[test]
    fn a_pause_with_an_end_is_over_when_the_servers_clock_says_so() {
        let text = r#"{"id":"a","address":"h:1","isPaused":true,"pausedUntilMs":5000}"#;
        let mut session_cache = SessionCache::default();
        for (server_ms, is_polled, n_changed) in [
            (Some(4_999), false, 1),
            (None, false, 0),
            (Some(5_000), true, 1),
            (Some(6_000), true, 0),
            // The estimate of the server's clock may go back a little; what was resumed stays so.
            (Some(4_999), true, 0),
        ] {
            let mut changes = SessionChanges::default();
            let polled = session_cache.apply(&id("a"), &raw(text), server_ms, &mut changes);
            assert_eq!((polled, changes.changed.len()), (is_polled, n_changed), "{server_ms:?}");
            let ends = session_cache.pause_ends_at(&id("a"));
            assert_eq!(ends, (!is_polled).then_some(5_000));
        }
        let mut later = SessionCache::default();
        let mut changes = SessionChanges::default();
        assert!(later.apply(&id("a"), &raw(text), Some(9_000), &mut changes), "read after its end");
        assert!(!changes.changed[0].paused);
    }
}

//! 1 — What is there to poll? Turns stored records into sessions, and says what changed.
//!
//! Records come from strangers. One that cannot be understood is reported once per change and
//! disturbs nothing. Reading them is the caller's business; so is how often.

use std::sync::Arc;

use std::hash::Hasher;

use fnv::{FnvHashMap, FnvHashSet, FnvHasher};

use crate::model::{EndpointId, Session, SessionError};
use crate::store::RawSession;

/// The sessions as last seen.
#[derive(Debug, Default)]
pub struct Catalogue {
    records: FnvHashMap<String, Record>,
    round: u64,
}

#[derive(Debug)]
struct Record {
    digest: u64,
    session: Option<Arc<Session>>,
    seen_in: u64,
}

/// What a look changed.
#[derive(Debug, Default)]
pub struct News {
    /// New, or changed in any way, paused ones too.
    pub changed: Vec<Arc<Session>>,
    /// Not understood, by key suffix, and not reported before.
    pub invalid: Vec<(String, SessionError)>,
}

impl Catalogue {
    /// Whether something that is known is not among what was found.
    pub fn misses(&self, found: &[(String, RawSession)]) -> bool {
        let found: FnvHashSet<&str> = found.iter().map(|it| it.0.as_str()).collect();
        self.records.keys().any(|it| !found.contains(it.as_str()))
    }

    /// Takes in everything a full look found. What it did not find is gone, if it `may_forget`.
    pub fn refresh(&mut self, found: Vec<(String, RawSession)>, may_forget: bool) -> News {
        self.round += 1;
        let mut news = News::default();
        for (suffix, raw) in found {
            self.take_in(suffix, &raw, &mut news);
        }
        let round = self.round;
        self.records.retain(|_, record| record.seen_in == round || !may_forget);
        news
    }

    fn take_in(&mut self, suffix: String, raw: &RawSession, news: &mut News) {
        let digest = digest(raw);
        if let Some(record) = self.records.get_mut(&suffix) {
            record.seen_in = self.round;
            if record.digest == digest {
                return;
            }
        }
        let understood = match raw {
            RawSession::Value(bytes) => Session::parse(&suffix, bytes),
            RawSession::WrongType(kind) => Err(SessionError::NotAString(kind.clone())),
            RawSession::TooLarge(bytes) => Err(SessionError::TooLarge(*bytes)),
        };
        let session = match understood {
            Ok(session) => {
                let session = Arc::new(session);
                news.changed.push(Arc::clone(&session));
                Some(session)
            }
            Err(error) => {
                news.invalid.push((suffix.clone(), error));
                None
            }
        };
        self.records.insert(suffix, Record { digest, session, seen_in: self.round });
    }

    /// The session of `endpoint`, if it is understood.
    pub fn session(&self, endpoint: &EndpointId) -> Option<&Arc<Session>> {
        self.records.get(endpoint.as_str())?.session.as_ref()
    }

    /// Everything that is to be polled: understood and not paused. In a stable order.
    pub fn endpoints(&self) -> Vec<EndpointId> {
        let sessions = self.records.values().filter_map(|it| it.session.as_ref());
        let mut endpoints: Vec<EndpointId> =
            sessions.filter(|it| !it.paused).map(|it| it.endpoint.clone()).collect();
        endpoints.sort_unstable();
        endpoints
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

    fn raw(text: &str) -> RawSession {
        RawSession::Value(text.as_bytes().to_vec())
    }

    fn good(id: &str) -> (String, RawSession) {
        (id.into(), raw(&format!(r#"{{"id":"{id}","address":"127.0.0.1:1"}}"#)))
    }

    #[test]
    fn a_bad_session_is_reported_once_per_change_and_disturbs_no_other() {
        let mut catalogue = Catalogue::default();
        let bad = || ("b".to_owned(), raw("{"));
        let news = catalogue.refresh(vec![good("a"), bad()], true);
        assert_eq!((news.changed.len(), news.invalid.len()), (1, 1));
        let news = catalogue.refresh(vec![good("a"), bad()], true);
        assert_eq!((news.changed.len(), news.invalid.len()), (0, 0));
        let news = catalogue.refresh(vec![good("a"), ("b".into(), raw("{{"))], true);
        assert_eq!((news.changed.len(), news.invalid.len()), (0, 1));
        let news = catalogue.refresh(vec![good("a"), good("b")], true);
        assert_eq!((news.changed.len(), news.invalid.len()), (1, 0));
    }

    #[test]
    fn a_session_that_turns_bad_or_goes_away_is_removed() {
        let mut catalogue = Catalogue::default();
        catalogue.refresh(vec![good("a"), good("b")], true);
        let news = catalogue.refresh(vec![("a".into(), RawSession::TooLarge(1 << 20))], true);
        assert_eq!(news.invalid.len(), 1);
        assert!(catalogue.endpoints().is_empty());
    }

    /// R6: after a loss of memory, sessions may come back one by one.
    #[test]
    fn what_was_not_found_is_kept_as_long_as_nothing_may_be_forgotten() {
        let mut catalogue = Catalogue::default();
        catalogue.refresh(vec![good("a"), good("b")], true);
        assert!(catalogue.misses(&[good("b")]) && !catalogue.misses(&[good("b"), good("a")]));
        catalogue.refresh(vec![good("b")], false);
        assert_eq!(catalogue.endpoints().len(), 2);
        catalogue.refresh(vec![good("b")], true);
        assert_eq!(catalogue.endpoints().len(), 1);
    }

    #[test]
    fn a_paused_session_is_known_but_not_to_be_polled() {
        let mut catalogue = Catalogue::default();
        let paused = r#"{"id":"a","address":"h:1","isPaused":true}"#;
        catalogue.refresh(vec![("a".into(), raw(paused))], true);
        let id = EndpointId::parse("a").unwrap();
        assert!(catalogue.session(&id).is_some() && catalogue.endpoints().is_empty());
    }

    #[test]
    fn every_kind_of_bad_session_has_its_own_words() {
        let long = format!(r#"{{"id":"x","address":"http://{}"}}"#, "a".repeat(3_000));
        for (value, word) in [
            ("", "not JSON"),
            ("[1]", "not an object"),
            (r#"{"address":"h:1"}"#, "id is missing"),
            (r#"{"id":"x"}"#, "address is missing"),
            (r#"{"id":"y","address":"h:1"}"#, "not the key's suffix"),
            (r#"{"id":1,"address":"h:1"}"#, "id must be a string"),
            (r#"{"id":"x","address":"h:1","isPaused":"no"}"#, "true or false"),
            (r#"{"id":"x","address":"h:1","intervalMs":-5}"#, "from 10 to"),
            (r#"{"id":"x","address":"h:1","intervalMs":1e99}"#, "from 10 to"),
            (r#"{"id":"x","address":"h:1","timeoutMs":0}"#, "from 1 to"),
            (r#"{"id":"x","address":"h:1","timeoutMs":"5"}"#, "number of milliseconds"),
            (r#"{"id":"x","address":"ftp://h/"}"#, "unknown scheme"),
            (r#"{"id":"x","address":"h"}"#, "no port"),
            (r#"{"id":"x","address":"h:99999"}"#, "no port"),
            (r#"{"id":"x","address":"http://u:p@h/"}"#, "secrets"),
            (r#"{"id":"x","address":"a b:1"}"#, "space"),
            (&long, "longer than"),
        ] {
            let error = Session::parse("x", value.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{value}: {error}");
        }
        assert!(Session::parse("x", b"\xff\xfe{").is_err());
        assert!(Session::parse("a b", br#"{"id":"a b","address":"h:1"}"#).is_err());
    }

    #[test]
    fn an_address_says_how_to_poll_and_a_path_replaces_its_own() {
        use crate::model::Address;
        for (address, path, meant) in [
            ("h:80", None, Address::Http("http://h:80/".into())),
            ("h:80", Some("/up"), Address::Http("http://h:80/up".into())),
            ("http://h/a?b#c", None, Address::Http("http://h/a?b".into())),
            ("https://h/a", Some("x"), Address::Http("https://h/x".into())),
            ("HTTP://h?q", None, Address::Http("http://h/?q".into())),
            ("tcp://h:22", None, Address::Tcp("h:22".into())),
            ("tcp://[::1]:22", None, Address::Tcp("[::1]:22".into())),
        ] {
            assert_eq!(Address::parse(address, path), Ok(meant), "{address}");
        }
    }
}

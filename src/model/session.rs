//! The stored record that declares an endpoint, as a stranger wrote it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::model::check::{Check, USUAL_CHECK};
use crate::model::spelling::{OddField, instead_of, odd_fields};
use crate::model::{EndpointId, InvalidId, Thresholds};

/// A stored session larger than this is not looked at.
pub const SESSION_MAX_BYTES: usize = 64 * 1024;

const ADDRESS_MAX_CHARS: usize = 2_048;
const INTERVAL_MS_MAX: u64 = 86_400_000;
const INTERVAL_MS_MIN: u64 = 10;
const TIMEOUT_MS_MAX: u64 = 3_600_000;
/// As far as a JSON number is exact everywhere.
pub(crate) const MOMENT_MS_MAX: u64 = 1 << 53;

/// A session that can be polled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub struct Session {
    /// Which endpoint this declares.
    pub endpoint: EndpointId,
    /// Where it is.
    pub address: Address,
    /// Paused sessions are known, but owned and polled by nobody.
    pub paused: bool,
    /// When a pause ends by itself, by the server's clock; `None`: it does not.
    pub(crate) paused_until_ms: Option<u64>,
    /// Its own poll interval, if it has one.
    pub interval: Option<Duration>,
    /// Its own poll timeout, if it has one.
    pub timeout: Option<Duration>,
    /// Its own number of failures in a row until it is failing, if it has one.
    pub fail_after: Option<u32>,
    /// Its own number of successes in a row until it is ok again, if it has one.
    pub ok_after: Option<u32>,
    /// How an HTTP poll asks, and which answers are ok; `None`: as usual.
    pub(super) check: Option<Box<Check>>,
    /// The JSON text as stored, handed to poll commands as it is.
    pub document: Arc<str>,
}

/// How to reach an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "__internals"), non_exhaustive)]
pub enum Address {
    /// A request to this `http://` or `https://` URL.
    Http(String),
    /// A connection to this `host:port`.
    Tcp(String),
}

/// Why a stored session cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// The key's suffix is no endpoint id.
    Key(InvalidId),
    /// The key holds a list, a hash, …
    NotAString(String),
    /// More than 64 KiB.
    TooLarge(usize),
    /// Not UTF-8, or not JSON; with the parser's words.
    NotJson(String),
    /// JSON, but not an object.
    NotAnObject,
    /// A field that must be there is not.
    Missing(&'static str),
    /// A field that must be there is not, and another was probably meant to be it.
    Misnamed(&'static str, String),
    /// A field of the wrong type.
    WrongType(&'static str, &'static str),
    /// A number outside its range.
    OutOfRange(&'static str, u64, u64),
    /// The `id` inside is not the key's suffix.
    OtherId(String),
    /// An address that is empty, too long, of an unknown scheme, or without a port.
    Address(&'static str),
    /// A field of a check that makes no sense, and why.
    Field(&'static str, String),
}

impl Session {
    /// How an HTTP poll asks, and which answers are ok.
    #[doc(hidden)]
    pub fn check(&self) -> &Check {
        self.check.as_deref().unwrap_or(&USUAL_CHECK)
    }

    /// Whether it is paused when the server's clock shows `server_ms`. Nobody writes into the session when a pause ends, so no
    /// two can; where the time is not known, or by a version that does not know the field, a pause goes on.
    pub(crate) fn is_paused_at(&self, server_ms: Option<u64>) -> bool {
        let is_over = self.paused_until_ms.zip(server_ms).is_some_and(|(until, now)| until <= now);
        self.paused && !is_over
    }

    /// Understands the stored value of `session:<suffix>`, or says why not.
    ///
    /// ```
    /// use leasehold::{Address, Session};
    ///
    /// let session = Session::parse("a1", br#"{"id":"a1","address":"10.0.0.7:8080"}"#).unwrap();
    /// assert_eq!(session.address, Address::Http("http://10.0.0.7:8080/".into()));
    /// assert!(Session::parse("a1", b"not JSON").is_err());
    /// ```
    pub fn parse(suffix: &str, value: &[u8]) -> Result<Self, SessionError> {
        Self::parse_with_odd_fields(suffix, value).map(|it| it.0)
    }

    /// The same, with the fields that were probably meant to be others.
    #[doc(hidden)]
    pub fn parse_with_odd_fields(
        suffix: &str,
        value: &[u8],
    ) -> Result<(Self, Vec<OddField>), SessionError> {
        let endpoint = EndpointId::parse(suffix).map_err(SessionError::Key)?;
        if value.len() > SESSION_MAX_BYTES {
            return Err(SessionError::TooLarge(value.len()));
        }
        let document =
            std::str::from_utf8(value).map_err(|it| SessionError::NotJson(it.to_string()))?;
        let json =
            serde_json::from_str(document).map_err(|it| SessionError::NotJson(it.to_string()))?;
        let Value::Object(fields) = json else { return Err(SessionError::NotAnObject) };
        let id = text(&fields, "id")?.ok_or_else(|| missing("id", &fields))?;
        if id != suffix {
            return Err(SessionError::OtherId(id.chars().take(128).collect()));
        }
        text(&fields, "name")?;
        let address = text(&fields, "address")?.ok_or_else(|| missing("address", &fields))?;
        let path = text(&fields, "path")?;
        let address = Address::parse(address, path)?;
        let session = Self {
            endpoint,
            check: Check::parse(&fields, &address)?,
            address,
            paused: flag(&fields, "isPaused")?,
            paused_until_ms: moment(&fields, "pausedUntilMs")?,
            interval: millis(&fields, "intervalMs", INTERVAL_MS_MIN, INTERVAL_MS_MAX)?,
            timeout: millis(&fields, "timeoutMs", 1, TIMEOUT_MS_MAX)?,
            fail_after: count(&fields, "failAfter", Thresholds::MAX)?,
            ok_after: count(&fields, "okAfter", Thresholds::MAX)?,
            document: document.into(),
        };
        Ok((session, odd_fields(&fields)))
    }
}

fn missing(name: &'static str, fields: &Map<String, Value>) -> SessionError {
    match instead_of(name, fields) {
        Some(other) => SessionError::Misnamed(name, other),
        None => SessionError::Missing(name),
    }
}

impl Address {
    /// For people, without the query: it may hold a secret.
    pub fn shown(&self) -> Cow<'_, str> {
        match self {
            Self::Http(url) => url.split_once('?').map_or(url.as_str(), |it| it.0).into(),
            Self::Tcp(authority) => format!("tcp://{authority}").into(),
        }
    }

    /// `host:port`, `http://…`, `https://…` or `tcp://host:port`; `path` replaces an address's own.
    ///
    /// ```
    /// use leasehold::Address;
    ///
    /// assert_eq!(Address::parse("tcp://db:5432", None).unwrap(), Address::Tcp("db:5432".into()));
    /// assert!(Address::parse("gopher://old", None).is_err());
    /// ```
    pub fn parse(address: &str, path: Option<&str>) -> Result<Self, SessionError> {
        let wrong = |why| Err(SessionError::Address(why));
        if address.is_empty() {
            return wrong("is empty");
        }
        if address.chars().count() > ADDRESS_MAX_CHARS {
            return wrong("is longer than 2048 characters");
        }
        if address.chars().chain(path.unwrap_or("").chars()).any(|c| c.is_control() || c == ' ') {
            return wrong("has a space or a control character");
        }
        let (scheme, rest) = match address.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None if address.contains('/') => return wrong("is neither host:port nor a URL"),
            None => ("".into(), address),
        };
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        if authority.is_empty() {
            return wrong("names no host");
        }
        if authority.contains('@') {
            return wrong("carries a user name: secrets do not belong in an address");
        }
        match scheme.as_str() {
            "tcp" if authority.len() != rest.len() => wrong("has a path, which tcp does not know"),
            "tcp" => has_port(authority).map(|()| Self::Tcp(authority.into())),
            "" => {
                has_port(authority).map(|()| Self::Http(with_path("http", authority, rest, path)))
            }
            "http" | "https" => Ok(Self::Http(with_path(&scheme, authority, rest, path))),
            _ => wrong("has an unknown scheme: use http, https or tcp"),
        }
    }
}

fn has_port(authority: &str) -> Result<(), SessionError> {
    let port = authority.rsplit_once(':').and_then(|(host, port)| {
        (!host.is_empty() && port.bytes().all(|it| it.is_ascii_digit()))
            .then(|| port.parse::<u16>())
    });
    match port {
        Some(Ok(1..)) => Ok(()),
        _ => Err(SessionError::Address("has no port: write host:port")),
    }
}

fn with_path(scheme: &str, authority: &str, rest: &str, path: Option<&str>) -> String {
    let tail = match path {
        Some(path) => path,
        None => &rest[authority.len()..],
    };
    let tail = tail.split('#').next().unwrap_or("");
    let slash = if tail.starts_with('/') { "" } else { "/" };
    format!("{scheme}://{authority}{slash}{tail}")
}

pub(super) fn text<'a>(
    fields: &'a Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'a str>, SessionError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(it)) => Ok(Some(it)),
        Some(_) => Err(SessionError::WrongType(name, "a string")),
    }
}

pub(super) fn flag(fields: &Map<String, Value>, name: &'static str) -> Result<bool, SessionError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(it)) => Ok(*it),
        Some(_) => Err(SessionError::WrongType(name, "true or false")),
    }
}

/// Milliseconds since 1970.
fn moment(fields: &Map<String, Value>, name: &'static str) -> Result<Option<u64>, SessionError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(it)) => match it.as_u64() {
            Some(ms) if ms <= MOMENT_MS_MAX => Ok(Some(ms)),
            _ => Err(SessionError::OutOfRange(name, 0, MOMENT_MS_MAX)),
        },
        Some(_) => Err(SessionError::WrongType(name, "a number of milliseconds since 1970")),
    }
}

fn millis(
    fields: &Map<String, Value>,
    name: &'static str,
    min: u64,
    max: u64,
) -> Result<Option<Duration>, SessionError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(it)) => match it.as_u64() {
            Some(ms) if (min..=max).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
            _ => Err(SessionError::OutOfRange(name, min, max)),
        },
        Some(_) => Err(SessionError::WrongType(name, "a number of milliseconds")),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(url),
            Self::Tcp(authority) => write!(f, "tcp://{authority}"),
        }
    }
}

fn count(
    fields: &Map<String, Value>,
    name: &'static str,
    max: u32,
) -> Result<Option<u32>, SessionError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(it)) => {
            match it
                .as_u64()
                .and_then(|it| u32::try_from(it).ok())
                .filter(|it| (1..=max).contains(it))
            {
                Some(count) => Ok(Some(count)),
                None => Err(SessionError::OutOfRange(name, 1, max.into())),
            }
        }
        Some(_) => Err(SessionError::WrongType(name, "a whole number")),
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(it) => write!(f, "the key's suffix is no id: {it}"),
            Self::NotAString(kind) => write!(f, "the key holds a {kind}, not a string"),
            Self::TooLarge(bytes) => {
                write!(f, "the value has {bytes} bytes, more than {SESSION_MAX_BYTES}")
            }
            Self::NotJson(why) => write!(f, "the value is not JSON: {why}"),
            Self::NotAnObject => write!(f, "the value is JSON, but not an object"),
            Self::Missing(name) => write!(f, "{name} is missing"),
            Self::Misnamed(name, other) => {
                write!(f, "{name} is missing, and {other:?} is there: did you mean {name}?")
            }
            Self::WrongType(name, kind) => write!(f, "{name} must be {kind}"),
            Self::OutOfRange(name, min, max) => {
                write!(f, "{name} must be a whole number from {min} to {max}")
            }
            Self::OtherId(id) => write!(f, "id {id:?} is not the key's suffix"),
            Self::Address(why) => write!(f, "address {why}"),
            Self::Field(name, why) => write!(f, "{name} {why}"),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Key(why) => Some(why),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_bad_session_has_its_own_words() {
        let long = format!(r#"{{"id":"x","address":"http://{}"}}"#, "a".repeat(3_000));
        for (value, word) in [
            ("", "not JSON"),
            ("[1]", "not an object"),
            (r#"{"address":"h:1"}"#, "id is missing"),
            (r#"{"id":"x"}"#, "address is missing"),
            (r#"{"id":"x","url":"h:1"}"#, "\"url\" is there: did you mean address?"),
            (r#"{"id":"y","address":"h:1"}"#, "not the key's suffix"),
            (r#"{"id":1,"address":"h:1"}"#, "id must be a string"),
            (r#"{"id":"x","address":"h:1","isPaused":"no"}"#, "true or false"),
            (r#"{"id":"x","address":"h:1","intervalMs":-5}"#, "from 10 to"),
            (r#"{"id":"x","address":"h:1","intervalMs":1e99}"#, "from 10 to"),
            (r#"{"id":"x","address":"h:1","timeoutMs":0}"#, "from 1 to"),
            (r#"{"id":"x","address":"h:1","timeoutMs":"5"}"#, "number of milliseconds"),
            (r#"{"id":"x","address":"h:1","failAfter":0}"#, "from 1 to 1000"),
            (r#"{"id":"x","address":"h:1","okAfter":1001}"#, "from 1 to 1000"),
            (r#"{"id":"x","address":"h:1","okAfter":"2"}"#, "a whole number"),
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

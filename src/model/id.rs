//! Which instance, which endpoint, which grant? The ids and numbers that Redis keys, events and requests are made of. Pure.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a polled endpoint. The suffix of its session's key: 1–128 characters of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(Arc<str>);

/// Longest endpoint id, in bytes.
const ENDPOINT_ID_MAX: usize = 128;

impl EndpointId {
    /// Checks the characters: an id becomes part of Redis keys, log lines and environment variables.
    ///
    /// ```
    /// use leasehold::EndpointId;
    ///
    /// let name = EndpointId::parse("nightly-report").unwrap();
    /// assert_eq!(name, "nightly-report".parse().unwrap());
    /// assert!(EndpointId::parse("two words").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > ENDPOINT_ID_MAX || !text.bytes().all(legal) {
            return Err(InvalidId);
        }
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An endpoint id that is empty, too long, or has characters outside `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidId;

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an id is 1 to {ENDPOINT_ID_MAX} characters of A-Z a-z 0-9 . _ -")
    }
}

impl std::error::Error for InvalidId {}

/// One start of one process: `<hostname>-<unix nanoseconds at start>-<8 hex digits>`, never reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(Arc<str>);

impl InstanceId {
    /// An id that names this process start and no other (FR-005).
    ///
    /// ```
    /// use leasehold::InstanceId;
    ///
    /// let id = InstanceId::generate("vm-1", 1_795_123_265_667_150_782);
    /// assert!(id.as_str().starts_with("vm-1-1795123265667150782-"));
    /// assert_ne!(id, InstanceId::generate("vm-1", 1_795_123_265_667_150_782));
    /// ```
    pub fn generate(host: &str, unix_nanos: u128) -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        Self(format!("{host}-{unix_nanos}-{}", &random[..8]).into())
    }

    /// An id for a process that starts now on `host`.
    ///
    /// ```
    /// let id = leasehold::InstanceId::generate_now("vm-1");
    /// assert!(id.as_str().starts_with("vm-1-"));
    /// ```
    #[expect(clippy::disallowed_methods, reason = "the wall clock is part of the id, for people")]
    pub fn generate_now(host: &str) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self::generate(host, since_1970.map_or(0, |it| it.as_nanos()))
    }

    /// Takes any non-empty text, as found in Redis or given in a test.
    ///
    /// ```
    /// assert_eq!(leasehold::InstanceId::new("vm-1").as_str(), "vm-1");
    /// ```
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host name an id of the usual form begins with; the whole id otherwise.
    pub fn host(&self) -> &str {
        self.0.rsplitn(3, '-').nth(2).unwrap_or(&self.0)
    }
}

/// Grows with every grant of an endpoint, over every life of the Redis server. Fits in 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FenceToken(pub(crate) u64);

impl FenceToken {
    /// A token as it was received, to compare it with others.
    ///
    /// ```
    /// use leasehold::FenceToken;
    ///
    /// let (last, received) = (FenceToken::new(8), FenceToken::new(7));
    /// assert!(received < last, "refuse it");
    /// assert_eq!(received.get(), 7);
    /// ```
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, to send it along.
    ///
    /// ```no_run
    /// # let manager = leasehold::LeaseManager::builder().start().unwrap();
    /// if let Some(fence) = manager.fence("nightly-report") {
    ///     println!("X-Fence: {}", fence.get());
    /// }
    /// ```
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<FenceToken> for u64 {
    fn from(fence: FenceToken) -> Self {
        fence.0
    }
}

/// One life of the store; zero before any was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

/// An instance's share of the work relative to the others; zero means draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(pub u32);

impl Weight {
    /// Largest weight an instance can ask for.
    pub const MAX: u32 = 1_000;

    /// The value of a `poll:node` key. A malformed value counts as 1: the instance is alive.
    pub fn from_node_value(value: &[u8]) -> Self {
        let number = std::str::from_utf8(value).ok().and_then(|it| it.parse::<u32>().ok());
        Self(number.map_or(1, |it| it.min(Self::MAX)))
    }
}

/// One grant of one endpoint. Every answer from the store belongs to one (R4).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Tenure {
    /// What was granted.
    #[doc(hidden)]
    pub endpoint: EndpointId,
    /// Which grant it was.
    #[doc(hidden)]
    pub fence: FenceToken,
}

impl Tenure {
    /// The grant of `endpoint` that was given `fence`.
    ///
    /// ```
    /// use leasehold::{EndpointId, FenceToken, Tenure};
    ///
    /// let tenure = Tenure::new(EndpointId::parse("a1").unwrap(), FenceToken::new(7));
    /// assert_eq!(tenure.fence().get(), 7);
    /// ```
    pub fn new(endpoint: EndpointId, fence: FenceToken) -> Self {
        Self { endpoint, fence }
    }

    /// What was granted.
    pub fn endpoint(&self) -> &EndpointId {
        &self.endpoint
    }

    /// Which grant it was.
    pub fn fence(&self) -> FenceToken {
        self.fence
    }
}

impl FromStr for EndpointId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for EndpointId {
    type Error = InvalidId;
    fn try_from(text: &str) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}

impl From<&str> for InstanceId {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl FromStr for InstanceId {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

macro_rules! is_text {
    ($($name:ident)*) => { $(
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )* };
}

is_text!(EndpointId InstanceId);

macro_rules! shows_its_inside {
    ($($name:ident)*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )* };
}

shows_its_inside!(EndpointId InstanceId FenceToken Epoch Weight);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_id_has_only_characters_that_are_safe_in_a_key() {
        for good in ["a", "save-1", "2f1c.A_b-9", &"x".repeat(128)] {
            assert!(EndpointId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a:b", "a/b", "é", "a\n", &"x".repeat(129)] {
            assert_eq!(EndpointId::parse(bad), Err(InvalidId), "{bad:?}");
        }
    }

    #[test]
    fn names_are_read_from_text_and_shown_as_text_in_every_usual_way() {
        let id: EndpointId = "save-1".parse().unwrap();
        assert_eq!((EndpointId::try_from("save-1"), id.as_ref()), (Ok(id.clone()), "save-1"));
        assert_eq!(
            ("a b".parse::<EndpointId>(), id.to_string()),
            (Err(InvalidId), "save-1".into())
        );
        let me: InstanceId = "vm-1-17-a".parse().unwrap();
        assert_eq!((InstanceId::from("vm-1-17-a"), me.as_ref()), (me.clone(), "vm-1-17-a"));
        assert_eq!(me.to_string(), "vm-1-17-a");
    }

    /// FR-005, edge case "two instances generate the same instance ID".
    #[test]
    fn two_instance_ids_of_one_host_and_one_nanosecond_differ() {
        let (a, b) = (InstanceId::generate("vm-1", 17), InstanceId::generate("vm-1", 17));
        assert_ne!(a, b);
        assert!(a.as_str().starts_with("vm-1-17-"), "{a}");
        assert_eq!(a.as_str().len(), "vm-1-17-".len() + 8);
        assert_eq!(a.host(), "vm-1");
    }

    #[test]
    fn a_node_value_that_is_no_number_counts_as_one() {
        assert_eq!(Weight::from_node_value(b"4"), Weight(4));
        assert_eq!(Weight::from_node_value(b"0"), Weight(0));
        assert_eq!(Weight::from_node_value(b"many"), Weight(1));
        assert_eq!(Weight::from_node_value(b"-3"), Weight(1));
        assert_eq!(Weight::from_node_value(b"4000000000"), Weight(Weight::MAX));
    }
}

//! Which addresses may be polled? Asked of what a name resolved to, never of the name.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::net::abort::Abort;
use crate::net::lookup::{Lookups, NotStarted};
use crate::net::shortage;
use crate::net::wait::plain;

/// A lookup cannot be cancelled, only abandoned: at most this many threads may be stuck in one.
const LOOKUPS_MAX: usize = 64;
/// A lookup needs a thread of its own.
const NO_THREAD: &str = "no thread can be started for a name lookup";
/// A name with more addresses than this is tried at these only.
const ADDRESSES_MAX: usize = 8;

/// What may be polled: everything in `allow` that is not in `deny`.
#[derive(Clone, Debug)]
pub struct Targets {
    allow: Vec<Cidr>,
    deny: Vec<Cidr>,
    lookups: Lookups,
}

/// A range of addresses, like `10.0.0.0/8` or `fe80::/10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCidr {
    text: String,
    why: &'static str,
}

/// Why there is no address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// Neither `host:port` nor `[v6]:port`.
    NotAnAuthority(String),
    /// The name has no address, in the resolver's words.
    NotFound(String, String),
    /// The resolver did not answer in time.
    NoAnswer(String, Duration),
    /// Too many earlier lookups are still unanswered.
    Busy(String),
    /// This process lacked what a lookup needs: a descriptor, a thread.
    Short(String),
    /// It resolved, but only to addresses that may not be polled.
    NotAllowed(String, IpAddr),
    /// The right to poll was lost meanwhile.
    Aborted,
}

impl Default for Targets {
    /// Everything but link-local addresses: behind them sit the metadata services of clouds.
    fn default() -> Self {
        let v4 = Cidr { network: Ipv4Addr::new(169, 254, 0, 0).into(), prefix: 16 };
        let v6 = Cidr { network: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), prefix: 10 };
        Self::new(Vec::new(), vec![v4, v6])
    }
}

impl Targets {
    /// Allows what is in `allow` (everything if that is empty) and not in `deny`.
    pub fn new(allow: Vec<Cidr>, deny: Vec<Cidr>) -> Self {
        Self { allow, deny, lookups: Lookups::at_most(LOOKUPS_MAX) }
    }

    /// From comma-separated lists. `all`, or nothing, allows everything; nothing denies nothing.
    pub fn parse(allow: &str, deny: &str) -> Result<Self, InvalidCidr> {
        let allow = if allow.trim() == "all" { "" } else { allow };
        Ok(Self::new(list(allow)?, list(deny)?))
    }

    /// Whether this address may be polled. An IPv6 address that leads to an IPv4 one is judged by
    /// both: denied if either is.
    pub fn permits(&self, ip: IpAddr) -> bool {
        let faces = faces(ip);
        let among = |list: &[Cidr]| list.iter().any(|it| faces.iter().any(|ip| it.contains(*ip)));
        !among(&self.deny) && (self.allow.is_empty() || among(&self.allow))
    }

    /// The addresses of `host:port` that may be polled: at least one, or why there is none.
    pub fn resolve(
        &self,
        authority: &str,
        timeout: Duration,
        abort: &Abort,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let mut found = match authority.parse::<SocketAddr>() {
            Ok(literal) => vec![literal],
            Err(_) => self.look_up(authority, timeout, abort)?,
        };
        let Some(first) = found.first().map(SocketAddr::ip) else {
            return Err(ResolveError::NotFound(authority.into(), "it has no address".into()));
        };
        found.retain(|it| self.permits(it.ip()));
        found.truncate(ADDRESSES_MAX);
        if found.is_empty() {
            return Err(ResolveError::NotAllowed(authority.into(), first));
        }
        Ok(found)
    }

    fn look_up(
        &self,
        authority: &str,
        timeout: Duration,
        abort: &Abort,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let (host, port) = split(authority)
            .ok_or_else(|| ResolveError::NotAnAuthority(authority.chars().take(128).collect()))?;
        // Room for both, so that neither sender ever waits for a receiver that has gone.
        let (answer, answers) = bounded(2);
        let aborted = answer.clone();
        abort.arm(move || drop(aborted.send(Err(ResolveError::Aborted))));
        let name = host.clone();
        let tell = move |found: io::Result<Vec<SocketAddr>>| {
            let found = found.map_err(|error| match shortage::of_lookup(&error) {
                Some(why) => ResolveError::Short(why),
                None => ResolveError::NotFound(name, plain(&error)),
            });
            drop(answer.send(found));
        };
        let found = match self.lookups.start(&host, port, tell) {
            Ok(()) => answers.recv_timeout(timeout),
            Err(NotStarted::Busy) => Ok(Err(ResolveError::Busy(host.clone()))),
            Err(NotStarted::NoThread(_)) => Ok(Err(ResolveError::Short(NO_THREAD.into()))),
        };
        abort.disarm();
        found.unwrap_or(Err(ResolveError::NoAnswer(host, timeout)))
    }
}

fn split(authority: &str) -> Option<(String, u16)> {
    let (host, port) = authority.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|it| *it > 0)?;
    (!bare.is_empty()).then(|| (bare.into(), port))
}

/// Every address that a packet to `ip` may end at.
fn faces(ip: IpAddr) -> Vec<IpAddr> {
    let mut faces = vec![ip];
    if let IpAddr::V6(v6) = ip {
        let [_, b, c, .., g, h] = v6.segments();
        let v4 = |high: u16, low: u16| {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        };
        match v6.segments() {
            // IPv4-compatible, IPv4-mapped, NAT64.
            [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
                faces.push(v4(g, h))
            }
            [0x2002, ..] => faces.push(v4(b, c)),
            _ => (),
        }
    }
    // Linux takes "any address" as the destination for "this machine".
    if faces.iter().any(IpAddr::is_unspecified) {
        faces.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    }
    faces
}

fn list(text: &str) -> Result<Vec<Cidr>, InvalidCidr> {
    text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::parse).collect()
}

impl Cidr {
    /// Whether `ip` is in the range; an IPv4 address is in no IPv6 range and the other way round.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.network, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (net.to_bits() ^ ip.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (net.to_bits() ^ ip.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let wrong = |why| InvalidCidr { text: text.chars().take(64).collect(), why };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().map_err(|_| wrong("that is no IP address"))?;
        let (longest, range) = match network {
            IpAddr::V4(_) => (32, "the prefix length is a number from 0 to 32"),
            IpAddr::V6(_) => (128, "the prefix length is a number from 0 to 128"),
        };
        let prefix = match prefix {
            None => longest,
            Some(digits) => digits.parse().ok().filter(|it| *it <= longest).ok_or(wrong(range))?,
        };
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for InvalidCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, why } = self;
        write!(f, "{text:?} is no address range: {why}; write it like 10.0.0.0/8 or fe80::/10")
    }
}

impl std::error::Error for InvalidCidr {}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnAuthority(text) => write!(f, "{text:?} is not host:port"),
            Self::NotFound(host, why) => write!(f, "cannot find {host}: {why}"),
            Self::NoAnswer(host, limit) => {
                write!(f, "cannot find {host}: the name servers did not answer within {limit:?}")
            }
            Self::Busy(host) => {
                write!(
                    f,
                    "cannot find {host}: {LOOKUPS_MAX} earlier name lookups got no answer yet"
                )
            }
            Self::NotAllowed(authority, ip) => write!(
                f,
                "{authority} is at {ip}, which may not be polled: see --allow-targets and \
                 --deny-targets"
            ),
            Self::Short(why) => f.write_str(why),
            Self::Aborted => write!(f, "the lease is no longer held"),
        }
    }
}

impl std::error::Error for ResolveError {}

impl ResolveError {
    /// What this process lacked, if that is why: nothing is known about the name then. Too many lookups at a time
    /// are a shortage, too: the bound is ours, and the name may be one that is answered at once.
    pub(crate) fn shortage(&self) -> Option<String> {
        match self {
            Self::Short(why) => Some(why.clone()),
            Self::Busy(_) => Some(format!("{LOOKUPS_MAX} earlier name lookups got no answer yet")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_denied_address_is_denied_in_every_form_that_leads_to_it() {
        let targets = Targets::default();
        for bad in [
            "169.254.169.254",
            "169.254.0.0",
            "169.254.255.255",
            "fe80::1",
            "febf:ffff::1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "64:ff9b::169.254.169.254",
        ] {
            assert!(!targets.permits(ip(bad)), "{bad}");
        }
        for good in ["169.253.255.255", "169.255.0.0", "127.0.0.1", "::1", "fec0::1", "2001:db8::1"]
        {
            assert!(targets.permits(ip(good)), "{good}");
        }
    }

    #[test]
    fn any_address_is_this_machine() {
        let targets = Targets::parse("all", "127.0.0.0/8,::1").unwrap();
        for bad in ["0.0.0.0", "::", "::ffff:0.0.0.0", "::ffff:127.0.0.1", "::1", "127.9.9.9"] {
            assert!(!targets.permits(ip(bad)), "{bad}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_denied_and_deny_wins() {
        let targets = Targets::parse("10.0.0.0/8, fd00::/8, 192.0.2.7", "10.1.0.0/16").unwrap();
        for (text, allowed) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:10.1.0.1", false),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("fd12::1", true),
            ("fe12::1", false),
        ] {
            assert_eq!(targets.permits(ip(text)), allowed, "{text}");
        }
        assert!(Targets::parse("", "").unwrap().permits(ip("169.254.169.254")));
        assert!(!Targets::parse("all", "0.0.0.0/0").unwrap().permits(ip("8.8.8.8")));
        assert!(Targets::parse("all", "0.0.0.0/0").unwrap().permits(ip("2001:db8::1")));
    }

    #[test]
    fn a_range_that_is_none_is_refused_by_name() {
        for bad in
            ["10.0.0.0/33", "::/129", "10.0.0/8", "example.com", "10.0.0.0/", "/8", "1.2.3.4/-1"]
        {
            let error = bad.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("10.0.0.0/8"), "{error}");
        }
        assert!(Targets::parse("10.0.0.0/8,nonsense", "").is_err());
    }

    #[test]
    fn a_name_is_judged_by_what_it_resolves_to() {
        let (second, abort) = (Duration::from_secs(10), Abort::default());
        let found = Targets::default().resolve("localhost:80", second, &abort).unwrap();
        assert!(found.iter().all(|it| it.ip().is_loopback() && it.port() == 80), "{found:?}");
        let none = Targets::parse("all", "127.0.0.0/8,::1").unwrap();
        // The second and third are what the C library takes for 127.0.0.1 as well.
        for authority in ["localhost:80", "127.1:80", "2130706433:80", "[::1]:80", "127.0.0.1:80"] {
            let error = none.resolve(authority, second, &abort).unwrap_err();
            assert!(matches!(error, ResolveError::NotAllowed(..)), "{authority}: {error}");
            assert!(error.to_string().contains("--deny-targets"), "{error}");
        }
        for bad in ["localhost", "localhost:0", ":80", "localhost:99999", ""] {
            let error = none.resolve(bad, second, &abort).unwrap_err();
            assert!(matches!(error, ResolveError::NotAnAuthority(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn lookups_that_never_end_do_not_eat_all_threads() {
        let targets = Targets::default();
        let stuck: Vec<_> = (0..LOOKUPS_MAX).map(|_| targets.lookups.ticket()).collect();
        assert!(stuck.iter().all(Option::is_some));
        let (second, abort) = (Duration::from_secs(10), Abort::default());
        let refused = targets.resolve("localhost:80", second, &abort);
        assert_eq!(refused, Err(ResolveError::Busy("localhost".into())));
        assert!(targets.resolve("127.0.0.1:80", second, &abort).is_ok());
        drop(stuck);
        assert!(targets.resolve("localhost:80", second, &abort).is_ok());
    }

    #[test]
    fn a_lookup_ends_with_the_right_to_poll() {
        let abort = Abort::default();
        abort.fire();
        let ended = Targets::default().resolve("localhost:80", Duration::from_secs(10), &abort);
        assert!(matches!(ended, Err(ResolveError::Aborted)), "{ended:?}");
    }
}

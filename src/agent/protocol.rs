//! What does a client say, and what is it told? Lines become requests; answers and pushes become lines. Pure.
//!
//! docs/agent.md has the grammar for people. A sentence never repeats what the client sent: that can be any bytes.

use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::manager::{LeaseLoss, NotNow};
use crate::model::{EndpointId, FenceToken, InstanceId, InvalidId, InvalidRole, Role};

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;
/// Longest `ACQUIRE` and longest bound of a session: a day.
const MS_MAX: u64 = 86_400_000;

/// A line of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Hello,
    Ping,
    Help,
    /// Ends the session when the client has said nothing for this long; `None` takes the bound away.
    Session(Option<Duration>),
    Acquire {
        name: EndpointId,
        wait: Duration,
    },
    Release(EndpointId),
    Holds(EndpointId),
    Lead(Role),
    Yield(Role),
    Resign(Role),
    Leads(Role),
}

/// The verbs, with what follows each.
const USAGES: [&str; 11] = [
    "HELLO [VERSION]",
    "PING",
    "HELP",
    "SESSION MS",
    "ACQUIRE NAME [WAIT_MS]",
    "RELEASE NAME",
    "HOLDS NAME",
    "LEAD ROLE",
    "YIELD ROLE",
    "RESIGN ROLE",
    "LEADS ROLE",
];

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    NotText,
    Unknown,
    Words { usage: &'static str },
    Number { usage: &'static str },
    Name(InvalidId),
    Role(InvalidRole),
    Version,
}

/// Reads one line, without its line feed.
pub(crate) fn parse(line: &[u8]) -> Result<Request, Mistake> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_text = line.iter().all(|it| it.is_ascii_graphic() || *it == b' ');
    let text = std::str::from_utf8(line).ok().filter(|_| is_text).ok_or(Mistake::NotText)?;
    let words: Vec<&str> = text.split(' ').filter(|it| !it.is_empty()).collect();
    let (verb, words) = words.split_first().ok_or(Mistake::Unknown)?;
    let usage = USAGES.iter().find(|it| it.split(' ').next() == Some(verb));
    let usage = usage.ok_or(Mistake::Unknown)?;
    let name = |it: &str| EndpointId::parse(it).map_err(Mistake::Name);
    let role = |it: &str| Role::parse(it).map_err(Mistake::Role);
    let ms = |it: &str| millis(it).ok_or(Mistake::Number { usage });
    Ok(match (*verb, words) {
        ("HELLO", []) => Request::Hello,
        ("HELLO", [version]) if *version == VERSION.to_string() => Request::Hello,
        ("HELLO", [_]) => return Err(Mistake::Version),
        ("PING", []) => Request::Ping,
        ("HELP", []) => Request::Help,
        ("SESSION", [bound]) => Request::Session(Some(ms(bound)?).filter(|it| !it.is_zero())),
        ("ACQUIRE", [lease]) => Request::Acquire { name: name(lease)?, wait: Duration::ZERO },
        ("ACQUIRE", [lease, wait]) => Request::Acquire { name: name(lease)?, wait: ms(wait)? },
        ("RELEASE", [lease]) => Request::Release(name(lease)?),
        ("HOLDS", [lease]) => Request::Holds(name(lease)?),
        ("LEAD", [it]) => Request::Lead(role(it)?),
        ("YIELD", [it]) => Request::Yield(role(it)?),
        ("RESIGN", [it]) => Request::Resign(role(it)?),
        ("LEADS", [it]) => Request::Leads(role(it)?),
        _ => return Err(Mistake::Words { usage }),
    })
}

/// Digits only: `FromStr` would take a sign, too.
fn millis(text: &str) -> Option<Duration> {
    let is_number = text.bytes().all(|it| it.is_ascii_digit());
    let number = text.parse().ok().filter(|it| is_number && *it <= MS_MAX)?;
    Some(Duration::from_millis(number))
}

/// How long a right lasts unless it is renewed: ` for_ms=… until_ms=…`, both rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lasts {
    /// When this was read.
    pub(crate) now: Moment,
    pub(crate) until: Moment,
}

impl fmt::Display for Lasts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.until.as_nanos() / 1_000_000;
        write!(f, " for_ms={} until_ms={until}", self.until.since(self.now).as_millis())
    }
}

/// What a line is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Hello {
        instance: InstanceId,
        lease_ttl: Duration,
    },
    Pong,
    Help,
    Session(Option<Duration>),
    Held {
        name: EndpointId,
        fence: FenceToken,
        lasts: Lasts,
    },
    HeldBy {
        name: EndpointId,
        owner: InstanceId,
    },
    HoldOff {
        name: EndpointId,
        left: Duration,
    },
    NotNow {
        name: EndpointId,
        reason: &'static str,
    },
    NotHeld(EndpointId),
    Uncertain {
        name: EndpointId,
        fence: FenceToken,
    },
    Released(EndpointId),
    Standing(Role),
    NotStanding(Role),
    Leading {
        role: Role,
        term: FenceToken,
        lasts: Lasts,
    },
    Suspended {
        role: Role,
        term: FenceToken,
    },
    Following {
        role: Role,
        leader: Option<InstanceId>,
    },
    Yielded(Role),
    NotLeading(Role),
    Resigned(Role),
    Mistake(Mistake),
    /// A bound of this agent.
    Limit {
        names_max: usize,
    },
    Stopping,
    /// Redis gave no answer, or refused.
    Store(String),
}

/// One word for each reason.
pub(crate) fn reason(not_now: NotNow) -> &'static str {
    match not_now {
        NotNow::Uncertain => "uncertain",
        NotNow::NoHeartbeat => "no-heartbeat",
        NotNow::Late => "late",
    }
}

/// Another client of this agent is ahead in line for the name, and does not hold it yet.
pub(crate) const QUEUED: &str = "queued";

/// An instance id as one word. Others may have written anything into Redis.
struct Word<'a>(&'a InstanceId);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |it: char| if it.is_ascii_graphic() { it } else { '?' };
        f.write_str(&self.0.as_str().chars().map(plain).take(256).collect::<String>())
    }
}

struct Leader<'a>(&'a Option<InstanceId>);

impl fmt::Display for Leader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(leader) => write!(f, " leader={}", Word(leader)),
            None => f.write_str(" leader=-"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello { instance, lease_ttl } => {
                let version = env!("CARGO_PKG_VERSION");
                write!(f, "HELLO {VERSION} leasehold={version} instance={}", Word(instance))?;
                write!(f, " lease_ttl_ms={}", lease_ttl.as_millis())
            }
            Self::Pong => f.write_str("PONG"),
            Self::Help => write!(f, "HELP {}", USAGES.join(" | ")),
            Self::Session(bound) => {
                write!(f, "SESSION {}", bound.unwrap_or_default().as_millis())
            }
            Self::Held { name, fence, lasts } => write!(f, "HELD {name} fence={fence}{lasts}"),
            Self::HeldBy { name, owner } => write!(f, "HELDBY {name} {}", Word(owner)),
            Self::HoldOff { name, left } => write!(f, "HOLDOFF {name} {}", left.as_millis()),
            Self::NotNow { name, reason } => write!(f, "NOTNOW {name} {reason}"),
            Self::NotHeld(name) => write!(f, "NOTHELD {name}"),
            Self::Uncertain { name, fence } => write!(f, "UNCERTAIN {name} fence={fence}"),
            Self::Released(name) => write!(f, "RELEASED {name}"),
            Self::Standing(role) => write!(f, "STANDING {role}"),
            Self::NotStanding(role) => write!(f, "NOTSTANDING {role}"),
            Self::Leading { role, term, lasts } => write!(f, "LEADING {role} term={term}{lasts}"),
            Self::Suspended { role, term } => write!(f, "SUSPENDED {role} term={term}"),
            Self::Following { role, leader } => write!(f, "FOLLOWING {role}{}", Leader(leader)),
            Self::Yielded(role) => write!(f, "YIELDED {role}"),
            Self::NotLeading(role) => write!(f, "NOTLEADING {role}"),
            Self::Resigned(role) => write!(f, "RESIGNED {role}"),
            Self::Mistake(mistake) => mistake.fmt(f),
            Self::Limit { names_max } => {
                write!(f, "ERR limit a client has at most {names_max} leases and roles")
            }
            Self::Stopping => f.write_str("ERR stopping this agent stops and grants nothing"),
            Self::Store(why) => write!(f, "ERR store {}", one_line(why)),
        }
    }
}

/// A line of text, whatever a server put into it.
fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(400).collect()
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => f.write_str("ERR syntax a line is words of ASCII with spaces between"),
            Self::Unknown => f.write_str("ERR unknown no such verb: HELP lists them"),
            Self::Words { usage } => write!(f, "ERR syntax write {usage}"),
            Self::Number { usage } => {
                write!(f, "ERR number write {usage}, in digits, at most {MS_MAX}")
            }
            Self::Name(why) => write!(f, "ERR name {why}"),
            Self::Role(why) => write!(f, "ERR name {why}"),
            Self::Version => write!(f, "ERR version this agent speaks version {VERSION}"),
        }
    }
}

/// What a client is told unasked. Each line begins with `!`, and no answer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Lost {
        name: EndpointId,
        fence: FenceToken,
        loss: LeaseLoss,
    },
    Uncertain {
        name: EndpointId,
        fence: FenceToken,
    },
    Certain {
        name: EndpointId,
        fence: FenceToken,
        lasts: Lasts,
    },
    Elected {
        role: Role,
        term: FenceToken,
        lasts: Lasts,
    },
    Suspended {
        role: Role,
        term: FenceToken,
    },
    /// The role is wanted elsewhere: answer with `YIELD`.
    Yield {
        role: Role,
        term: FenceToken,
        lasts: Lasts,
    },
    /// With the term that ended, if this client led.
    Follower {
        role: Role,
        leader: Option<InstanceId>,
        lost: Option<FenceToken>,
    },
    /// The agent stops: finish, and end the connection by then.
    Stopping(Lasts),
    /// The last line.
    Bye(Bye),
}

/// Why the agent ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bye {
    /// There are too many clients.
    Full,
    /// A line is too long.
    Line,
    /// The client does not read what it is told.
    Unread,
    /// The client said nothing for longer than `SESSION` allows.
    Silent,
    /// The agent stops.
    Stopping,
}

impl Bye {
    /// One word for the client and the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Line => "line",
            Self::Unread => "unread",
            Self::Silent => "silent",
            Self::Stopping => "stopping",
        }
    }
}

impl fmt::Display for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { name, fence, loss } => {
                write!(f, "!LOST {name} fence={fence} ")?;
                match loss {
                    LeaseLoss::Expired => f.write_str("expired"),
                    LeaseLoss::Taken(owner) => write!(f, "taken by={}", Word(owner)),
                    LeaseLoss::Gone => f.write_str("gone"),
                }
            }
            Self::Uncertain { name, fence } => write!(f, "!UNCERTAIN {name} fence={fence}"),
            Self::Certain { name, fence, lasts } => {
                write!(f, "!CERTAIN {name} fence={fence}{lasts}")
            }
            Self::Elected { role, term, lasts } => write!(f, "!ELECTED {role} term={term}{lasts}"),
            Self::Suspended { role, term } => write!(f, "!SUSPENDED {role} term={term}"),
            Self::Yield { role, term, lasts } => write!(f, "!YIELD {role} term={term}{lasts}"),
            Self::Follower { role, leader, lost } => {
                write!(f, "!FOLLOWER {role}{}", Leader(leader))?;
                lost.iter().try_for_each(|it| write!(f, " lost={it}"))
            }
            Self::Stopping(lasts) => write!(f, "!STOPPING{lasts}"),
            Self::Bye(why) => write!(f, "!BYE {}", why.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EndpointId {
        EndpointId::parse(text).unwrap()
    }

    fn refused(line: &str) -> String {
        Answer::Mistake(parse(line.as_bytes()).unwrap_err()).to_string()
    }

    #[test]
    fn a_line_is_a_verb_and_its_words() {
        let wait = Duration::from_millis(250);
        let role = Role::parse("cleanup").unwrap();
        for (line, wanted) in [
            ("PING", Request::Ping),
            ("PING\r", Request::Ping),
            ("HELLO", Request::Hello),
            ("HELLO 1", Request::Hello),
            (
                "  ACQUIRE  a.b-1_2 ",
                Request::Acquire { name: name("a.b-1_2"), wait: Duration::ZERO },
            ),
            ("ACQUIRE a 250", Request::Acquire { name: name("a"), wait }),
            ("RELEASE a", Request::Release(name("a"))),
            ("HOLDS a", Request::Holds(name("a"))),
            ("SESSION 250", Request::Session(Some(wait))),
            ("SESSION 0", Request::Session(None)),
            ("LEAD cleanup", Request::Lead(role.clone())),
            ("YIELD cleanup", Request::Yield(role.clone())),
            ("RESIGN cleanup", Request::Resign(role.clone())),
            ("LEADS cleanup", Request::Leads(role)),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_request_is_told_so_with_a_code_and_without_its_own_bytes() {
        for (line, code) in [
            ("", "unknown"),
            ("ping", "unknown"),
            ("DELETE hunter2", "unknown"),
            ("PING hunter2", "syntax"),
            ("ACQUIRE", "syntax"),
            ("ACQUIRE a 1 hunter2", "syntax"),
            ("ACQUIRE hunter/2", "name"),
            ("ACQUIRE a -1", "number"),
            ("ACQUIRE a +1", "number"),
            ("ACQUIRE a 86400001", "number"),
            ("ACQUIRE a 99999999999999999999", "number"),
            ("SESSION soon", "number"),
            ("LEAD epoch", "name"),
            ("HELLO 2", "version"),
            ("ACQUIRE\ta", "syntax"),
            ("ACQUIRE \u{e4}", "syntax"),
            ("PING\0", "syntax"),
        ] {
            let told = refused(line);
            assert!(told.starts_with(&format!("ERR {code} ")), "{line:?}: {told}");
            assert!(!told.contains("hunter") && !told.contains('\n'), "{line:?}: {told}");
        }
        assert_eq!(parse(&[0xff, 0xfe]), Err(Mistake::NotText));
        let long = [b'A'; 600];
        assert_eq!(parse(&long), Err(Mistake::Unknown));
    }

    #[test]
    fn what_lasts_is_rounded_down() {
        let now = Moment::from_nanos(5_000_900_000);
        let lasts = Lasts { now, until: now + Duration::from_micros(2_999_900) };
        assert_eq!(lasts.to_string(), " for_ms=2999 until_ms=8000");
        let over = Lasts { now, until: now - Duration::from_secs(1) };
        assert_eq!(over.to_string(), " for_ms=0 until_ms=4000");
    }

    /// Anything a server says in an error stays one line.
    #[test]
    fn an_error_of_the_store_is_one_line() {
        let told = Answer::Store("x\ny\r!LOST z".into()).to_string();
        assert_eq!(told, "ERR store x y !LOST z");
        assert_eq!(Answer::Store("x".repeat(5_000)).to_string().len(), 410);
    }

    #[test]
    fn only_pushes_begin_with_an_exclamation_mark() {
        let lasts = Lasts { now: Moment::MIN, until: Moment::MIN };
        let (n, r, t) = (name("n"), Role::parse("r").unwrap(), FenceToken::new(7));
        let leader = Some(InstanceId::new("vm"));
        for push in [
            Push::Lost { name: n.clone(), fence: t, loss: LeaseLoss::Taken(InstanceId::new("vm")) },
            Push::Elected { role: r.clone(), term: t, lasts },
            Push::Follower { role: r.clone(), leader: leader.clone(), lost: Some(t) },
            Push::Stopping(lasts),
            Push::Bye(Bye::Full),
        ] {
            assert!(push.to_string().starts_with('!'), "{push}");
        }
        for answer in [
            Answer::Help,
            Answer::Held { name: n.clone(), fence: t, lasts },
            Answer::HeldBy { name: n, owner: InstanceId::new("vm") },
            Answer::Following { role: r, leader },
            Answer::Stopping,
        ] {
            let told = answer.to_string();
            assert!(!told.starts_with('!') && !told.contains('\n'), "{told}");
        }
    }
}

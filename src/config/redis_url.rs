//! Where is the store? A URL that keeps its password to itself.
//!
//! Does not connect and does not resolve. An error never quotes the URL, not even a part of it: in a
//! URL that cannot be taken apart nobody knows which part is the password.

use std::fmt;

/// A URL of the store. Shown as `redis://user:***@host:6379/0`.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    full: String,
    shown: String,
    topology: Topology,
    has_password: bool,
}

/// What kind of store a URL's scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// `redis://`: one server over TCP.
    Tcp,
    /// `rediss://`: one server over TLS.
    Tls,
    /// `unix://`: one server over a local socket.
    Unix,
    /// `redis+sentinel://`: the master that the sentinels name.
    Sentinel,
    /// `redis+cluster://`: all masters of a cluster.
    Cluster,
}

/// Why a text is no URL of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisUrlError {
    /// A space or a control character.
    Characters,
    /// No `://`, or a scheme that is none of ours.
    Scheme,
    /// Nothing, or something impossible, where the host should be.
    Host,
    /// A port that is no number from 1 to 65535.
    Port,
    /// A path that is no database number.
    Database,
    /// A sentinel URL that does not name the master.
    MasterName,
    /// A `unix://` URL whose path is not absolute.
    SocketPath,
    /// A parameter after `?` that is not known.
    Parameter,
    /// A `#`, most likely out of a password.
    Fragment,
}

impl Topology {
    const ALL: [Topology; 5] = [Self::Tcp, Self::Tls, Self::Unix, Self::Sentinel, Self::Cluster];

    /// The part before `://`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "redis",
            Self::Tls => "rediss",
            Self::Unix => "unix",
            Self::Sentinel => "redis+sentinel",
            Self::Cluster => "redis+cluster",
        }
    }
}

impl RedisUrl {
    /// Takes a URL apart far enough to know which part is the password.
    pub fn parse(text: &str) -> Result<Self, RedisUrlError> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(RedisUrlError::Characters);
        }
        let (scheme, rest) = text.split_once("://").ok_or(RedisUrlError::Scheme)?;
        let topology = Topology::ALL.into_iter().find(|it| it.scheme() == scheme);
        let topology = topology.ok_or(RedisUrlError::Scheme)?;
        if rest.contains('#') {
            return Err(RedisUrlError::Fragment);
        }
        let (place, query) = match rest.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (rest, None),
        };
        let (place, in_place) = match topology {
            Topology::Unix => (socket(place)?, false),
            _ => server(topology, place)?,
        };
        let (query, in_query) = parameters(topology, query)?;
        let shown = format!("{scheme}://{place}{query}");
        Ok(Self { full: text.into(), shown, topology, has_password: in_place || in_query })
    }

    /// The whole URL, password included: for the client library and for nothing else.
    pub fn expose(&self) -> &str {
        &self.full
    }

    /// What kind of store this is.
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// Whether there is a password inside.
    pub fn has_password(&self) -> bool {
        self.has_password
    }

    /// The same place with this password, for a URL that has none.
    pub(crate) fn with_password(&self, password: &str) -> Result<Self, RedisUrlError> {
        let password = percent_encoded(password);
        let (scheme, rest) = self.full.split_once("://").ok_or(RedisUrlError::Scheme)?;
        if self.topology == Topology::Unix {
            let joint = if rest.contains('?') { '&' } else { '?' };
            return Self::parse(&format!("{scheme}://{rest}{joint}pass={password}"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (user, hosts) = rest[..end].rsplit_once('@').unwrap_or(("", &rest[..end]));
        let user = user.trim_end_matches(':');
        Self::parse(&format!("{scheme}://{user}:{password}@{hosts}{}", &rest[end..]))
    }
}

/// The showable form of `[user[:password]@]hosts[/path]`, and whether it had a password.
fn server(topology: Topology, place: &str) -> Result<(String, bool), RedisUrlError> {
    let (authority, path) = match place.split_once('/') {
        Some((authority, path)) => (authority, path),
        None => (place, ""),
    };
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    let many = matches!(topology, Topology::Sentinel | Topology::Cluster);
    if hosts.contains(',') && !many {
        return Err(RedisUrlError::Host);
    }
    hosts.split(',').try_for_each(host)?;
    check_path(topology, path)?;
    let (login, has_password) = match login.map(|it| it.split_once(':')) {
        None => (String::new(), false),
        // A user without a password is shown as little: people write redis://password@host, too.
        Some(None) => ("***@".into(), false),
        Some(Some((_, ""))) => ("***@".into(), false),
        // So is one with an `@`: that belongs to a password.
        Some(Some((user, _))) if user.contains('@') => ("***@".into(), true),
        Some(Some((user, _))) => (format!("{user}:***@"), true),
    };
    let slash = if path.is_empty() { "" } else { "/" };
    Ok((format!("{login}{hosts}{slash}{path}"), has_password))
}

/// `name`, `name:port`, `[v6]` or `[v6]:port`.
fn host(text: &str) -> Result<(), RedisUrlError> {
    let (name, port) = match text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((v6, rest)) => {
            v6.parse::<std::net::Ipv6Addr>().map_err(|_| RedisUrlError::Host)?;
            let port = rest.strip_prefix(':');
            if port.is_none() && !rest.is_empty() {
                return Err(RedisUrlError::Host);
            }
            ("v6", port)
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
    if name.is_empty() || !name.bytes().all(legal) {
        return Err(RedisUrlError::Host);
    }
    match port {
        Some(port) if !port.bytes().all(|c| c.is_ascii_digit()) => Err(RedisUrlError::Port),
        Some(port) => match port.parse::<u16>() {
            Ok(1..) => Ok(()),
            _ => Err(RedisUrlError::Port),
        },
        None => Ok(()),
    }
}

/// `DB`, for sentinels `NAME[/DB]`, for a cluster nothing.
fn check_path(topology: Topology, path: &str) -> Result<(), RedisUrlError> {
    let database = match topology {
        Topology::Sentinel => {
            let (name, database) = path.split_once('/').unwrap_or((path, ""));
            let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
            if name.is_empty() || !name.bytes().all(legal) {
                return Err(RedisUrlError::MasterName);
            }
            database
        }
        Topology::Cluster if path.is_empty() => "",
        Topology::Cluster => return Err(RedisUrlError::Database),
        _ => path,
    };
    check_database(database)
}

fn check_database(text: &str) -> Result<(), RedisUrlError> {
    let fits = text.bytes().all(|c| c.is_ascii_digit()) && text.len() <= 5;
    if fits { Ok(()) } else { Err(RedisUrlError::Database) }
}

fn socket(path: &str) -> Result<String, RedisUrlError> {
    // A forgotten `?` must not make a password part of what is shown.
    if !path.starts_with('/') || path.ends_with('/') || path.contains(['@', '=', '&']) {
        return Err(RedisUrlError::SocketPath);
    }
    Ok(path.into())
}

/// The showable form of what follows `?`, and whether there was a password in it.
fn parameters(topology: Topology, query: Option<&str>) -> Result<(String, bool), RedisUrlError> {
    let Some(query) = query else { return Ok((String::new(), false)) };
    let (mut shown, mut has_password) = (Vec::new(), false);
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').ok_or(RedisUrlError::Parameter)?;
        match (topology, name) {
            (_, "protocol") if matches!(value, "2" | "3" | "resp2" | "resp3") => {
                shown.push(parameter.to_string());
            }
            (Topology::Unix, "db") => {
                check_database(value)?;
                shown.push(parameter.to_string());
            }
            (Topology::Unix, "user") => shown.push(parameter.to_string()),
            (Topology::Unix, "pass") => {
                has_password = true;
                shown.push("pass=***".into());
            }
            _ => return Err(RedisUrlError::Parameter),
        }
    }
    Ok((format!("?{}", shown.join("&")), has_password))
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({})", self.shown)
    }
}

impl fmt::Display for RedisUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Characters => {
                "has a space or a control character: percent-encode it (%20 for a space)"
            }
            Self::Scheme => {
                "does not begin with redis://, rediss://, unix://, redis+sentinel:// or \
                 redis+cluster://"
            }
            Self::Host => {
                "names no host where one should be: write redis://host:6379/0, and percent-encode \
                 / and @ in a password (%2F and %40)"
            }
            Self::Port => {
                "has a port that is no number from 1 to 65535: write redis://host:6379/0, and \
                 percent-encode / and : in a password (%2F and %3A)"
            }
            Self::Database => {
                "has a path that is no database number: write redis://host:6379/0 (a cluster has \
                 no path)"
            }
            Self::MasterName => {
                "does not name the master: write redis+sentinel://host:26379,host:26379/NAME/0"
            }
            Self::SocketPath => "has no absolute path of a socket: write unix:///run/redis.sock",
            Self::Parameter => {
                "has an unknown parameter after ?: protocol=2 or protocol=3 is known, for unix:// \
                 also db, user and pass"
            }
            Self::Fragment => "has a #: percent-encode it (%23)",
        })
    }
}

impl std::error::Error for RedisUrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://h", "redis://h"),
            ("redis://h/", "redis://h"),
            ("redis://user:hunter2@h/0", "redis://user:***@h/0"),
            ("redis://:hunter2@h:1", "redis://:***@h:1"),
            ("redis://user:hunter2@hunter2@h", "redis://user:***@h"),
            ("redis://user:hunter2:hunter2@h", "redis://user:***@h"),
            ("redis://hunter2@h", "redis://***@h"),
            ("redis://hunter2:@h", "redis://***@h"),
            ("redis://u:hunter2@[::1]:6379/3?protocol=3", "redis://u:***@[::1]:6379/3?protocol=3"),
            ("rediss://u:hunter2@h", "rediss://u:***@h"),
            ("unix:///run/r.sock?db=1&pass=hunter2", "unix:///run/r.sock?db=1&pass=***"),
            ("redis+sentinel://u:hunter2@a:1,b:2/main/0", "redis+sentinel://u:***@a:1,b:2/main/0"),
            ("redis+cluster://:hunter2@a:1,b:2", "redis+cluster://:***@a:1,b:2"),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("RedisUrl({shown})"));
            assert_eq!(url.expose(), text);
            assert!(!url.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn a_malformed_url_is_refused_without_quoting_it() {
        use RedisUrlError::*;
        for (text, why) in [
            ("", Scheme),
            ("hunter2", Scheme),
            ("user:hunter2@h", Scheme),
            ("http://user:hunter2@h", Scheme),
            ("REDIS://user:hunter2@h", Scheme),
            ("redis:/user:hunter2@h", Scheme),
            ("redis://", Host),
            ("redis:///0", Host),
            ("redis://user:hunter2@", Host),
            ("redis://user:hunter2@h h", Characters),
            ("redis://user:hun\nter2@h", Characters),
            ("redis://user:hunter2@a,b", Host),
            ("redis://user:hunter2@h:x", Port),
            ("redis://user:hunter2@h:0", Port),
            ("redis://user:hunter2@h:+1", Port),
            ("redis://user:hunter2@h:", Port),
            ("redis://user:hunter2@h:65536", Port),
            ("redis://user:hunter2/x@h", Port),
            ("redis://user:12/hunter2@h", Database),
            ("redis://user:hunter2?x@h", Port),
            ("redis://user:12?hunter2@h", Parameter),
            ("redis://user:hunter2#x@h", Fragment),
            ("redis://user:hunter2@h/zero", Database),
            ("redis://user:hunter2@h/-1", Database),
            ("redis://user:hunter2@h/0?pass=hunter2", Parameter),
            ("redis://user:hunter2@[::1", Host),
            ("redis://user:hunter2@[::1]x", Host),
            ("redis://user:hunter2@[h]", Host),
            ("unix://run/r.sock?pass=hunter2", SocketPath),
            ("unix://:hunter2@/run/r.sock", SocketPath),
            ("unix:///run/r.sock?hunter2", Parameter),
            ("redis+sentinel://u:hunter2@a:1", MasterName),
            ("redis+cluster://u:hunter2@a:1/0", Database),
        ] {
            let error = RedisUrl::parse(text).unwrap_err();
            assert_eq!(error, why, "{text:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text:?}");
        }
    }

    #[test]
    fn a_password_of_any_characters_can_be_put_into_a_url_that_has_none() {
        for (text, full) in [
            ("redis://h:1/2", "redis://:p%2F%40%3A%23%20%C3%A9@h:1/2"),
            ("redis://user@h", "redis://user:p%2F%40%3A%23%20%C3%A9@h"),
            ("redis://user:@h", "redis://user:p%2F%40%3A%23%20%C3%A9@h"),
            ("unix:///r.sock", "unix:///r.sock?pass=p%2F%40%3A%23%20%C3%A9"),
            ("unix:///r.sock?db=1", "unix:///r.sock?db=1&pass=p%2F%40%3A%23%20%C3%A9"),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert!(!url.has_password());
            let url = url.with_password("p/@:# é").unwrap();
            assert_eq!(url.expose(), full);
            assert!(url.has_password() && !url.to_string().contains("p%2F"), "{url}");
        }
    }
}

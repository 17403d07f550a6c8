//! Where is the store? A URL that keeps its password to itself.
//!
//! Does not connect and does not resolve. An error never quotes the URL, not even a part of it: in a
//! URL that cannot be taken apart nobody knows which part is the password.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A URL of the store. Shown as `redis://user:***@host:6379/0`.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    shown: String,
    topology: Topology,
    uses_tls: bool,
    places: Vec<HostPort>,
    socket: PathBuf,
    login: Login,
    master: String,
    database: u32,
}

/// A server by name or address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

/// Who we are for the server. Never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// What kind of store a URL's scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// `redis://`, or `rediss://` over TLS: one server.
    Tcp,
    /// `unix://`: one server over a local socket.
    Unix,
    /// `redis+sentinel://`, or `rediss+sentinel://`: the master that the sentinels name.
    Sentinel,
    /// `redis+cluster://`, or `rediss+cluster://`: all masters of a cluster.
    Cluster,
}

/// Why a text is no URL of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// What may stand before `://`: the topology, and whether it is reached over TLS.
const SCHEMES: [(&str, Topology, bool); 7] = [
    ("redis", Topology::Tcp, false),
    ("rediss", Topology::Tcp, true),
    ("unix", Topology::Unix, false),
    ("redis+sentinel", Topology::Sentinel, false),
    ("rediss+sentinel", Topology::Sentinel, true),
    ("redis+cluster", Topology::Cluster, false),
    ("rediss+cluster", Topology::Cluster, true),
];

const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

impl RedisUrl {
    /// Takes a URL apart.
    ///
    /// ```
    /// use leasehold::RedisUrl;
    ///
    /// let url = RedisUrl::parse("redis://user:secret@10.0.0.7:6379/2").unwrap();
    /// assert_eq!(url.to_string(), "redis://user:***@10.0.0.7:6379/2");
    /// assert!("10.0.0.7".parse::<RedisUrl>().is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, RedisUrlError> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(RedisUrlError::Characters);
        }
        let (scheme, rest) = text.split_once("://").ok_or(RedisUrlError::Scheme)?;
        let known = SCHEMES.into_iter().find(|it| it.0 == scheme);
        let (_, topology, uses_tls) = known.ok_or(RedisUrlError::Scheme)?;
        if rest.contains('#') {
            return Err(RedisUrlError::Fragment);
        }
        let (place, query) = match rest.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (rest, None),
        };
        let mut url = Self {
            shown: String::new(),
            topology,
            uses_tls,
            places: Vec::new(),
            socket: PathBuf::new(),
            login: Login::default(),
            master: String::new(),
            database: 0,
        };
        let place = match topology {
            Topology::Unix => url.take_socket(place)?,
            _ => url.take_servers(place)?,
        };
        let query = url.take_parameters(query)?;
        url.shown = format!("{scheme}://{place}{query}");
        Ok(url)
    }

    /// What kind of store this is.
    #[doc(hidden)]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// Whether it is spoken to over TLS.
    pub fn uses_tls(&self) -> bool {
        self.uses_tls
    }

    /// Whether there is a password inside.
    pub fn has_password(&self) -> bool {
        self.login.password.is_some()
    }

    /// The user and the password for the server: for logging in, and for nothing else.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// The same place with these credentials: what is shown of a URL lacks them.
    #[cfg(feature = "cli")]
    pub(crate) fn with_login(self, login: Login) -> Self {
        Self { login, ..self }
    }

    /// The servers, sentinels or nodes it names; none for a local socket.
    pub(crate) fn places(&self) -> &[HostPort] {
        &self.places
    }

    /// The path of a local socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What the sentinels call the master.
    pub(crate) fn master(&self) -> &str {
        &self.master
    }

    pub(crate) fn database(&self) -> u32 {
        self.database
    }

    /// Takes `[user[:password]@]hosts[/path]`; its showable form.
    fn take_servers(&mut self, place: &str) -> Result<String, RedisUrlError> {
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let many = matches!(self.topology, Topology::Sentinel | Topology::Cluster);
        if hosts.contains(',') && !many {
            return Err(RedisUrlError::Host);
        }
        let port = if self.topology == Topology::Sentinel { SENTINEL_PORT } else { PORT };
        self.places = hosts.split(',').map(|it| host(it, port)).collect::<Result<_, _>>()?;
        self.take_path(path)?;
        let (user, password) = login.map_or(("", ""), |it| it.split_once(':').unwrap_or((it, "")));
        self.login = Login { user: decoded(user)?, password: decoded(password)? };
        let login = match login {
            None => String::new(),
            // A user without a password is shown as little: people write redis://password@host, too.
            Some(_) if password.is_empty() => "***@".into(),
            // So is one with an `@`: that belongs to a password.
            Some(_) if user.contains('@') => "***@".into(),
            Some(_) => format!("{user}:***@"),
        };
        let slash = if path.is_empty() { "" } else { "/" };
        Ok(format!("{login}{hosts}{slash}{path}"))
    }

    /// `DB`, for sentinels `NAME[/DB]`, for a cluster nothing.
    fn take_path(&mut self, path: &str) -> Result<(), RedisUrlError> {
        let database = match self.topology {
            Topology::Sentinel => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
                if name.is_empty() || !name.bytes().all(legal) {
                    return Err(RedisUrlError::MasterName);
                }
                self.master = name.into();
                database
            }
            Topology::Cluster if path.is_empty() => "",
            Topology::Cluster => return Err(RedisUrlError::Database),
            _ => path,
        };
        self.database = database_number(database)?;
        Ok(())
    }

    fn take_socket(&mut self, path: &str) -> Result<String, RedisUrlError> {
        // A forgotten `?` must not make a password part of what is shown.
        if !path.starts_with('/') || path.ends_with('/') || path.contains(['@', '=', '&']) {
            return Err(RedisUrlError::SocketPath);
        }
        self.socket = path.into();
        Ok(path.into())
    }

    /// Takes what follows `?`; its showable form.
    fn take_parameters(&mut self, query: Option<&str>) -> Result<String, RedisUrlError> {
        let Some(query) = query else { return Ok(String::new()) };
        let mut shown = Vec::new();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').ok_or(RedisUrlError::Parameter)?;
            match (self.topology, name) {
                (_, "protocol") if matches!(value, "2" | "3" | "resp2" | "resp3") => (),
                (Topology::Unix, "db") => self.database = database_number(value)?,
                (Topology::Unix, "user") => self.login.user = decoded(value)?,
                (Topology::Unix, "pass") => {
                    self.login.password = decoded(value)?;
                    shown.push("pass=***");
                    continue;
                }
                _ => return Err(RedisUrlError::Parameter),
            }
            shown.push(parameter);
        }
        Ok(format!("?{}", shown.join("&")))
    }
}

/// `name`, `name:port`, `[v6]` or `[v6]:port`.
fn host(text: &str, usual_port: u16) -> Result<HostPort, RedisUrlError> {
    let (name, port) = match text.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((v6, rest)) => {
            v6.parse::<std::net::Ipv6Addr>().map_err(|_| RedisUrlError::Host)?;
            let port = rest.strip_prefix(':');
            if port.is_none() && !rest.is_empty() {
                return Err(RedisUrlError::Host);
            }
            (v6, port)
        }
        None => {
            let (name, port) = text.split_once(':').map_or((text, None), |it| (it.0, Some(it.1)));
            let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_');
            if name.is_empty() || !name.bytes().all(legal) {
                return Err(RedisUrlError::Host);
            }
            (name, port)
        }
    };
    let port = match port {
        None => usual_port,
        Some(port) if port.bytes().all(|c| c.is_ascii_digit()) => port.parse().unwrap_or(0),
        Some(_) => 0,
    };
    if port == 0 {
        return Err(RedisUrlError::Port);
    }
    Ok(HostPort { host: name.into(), port })
}

fn database_number(text: &str) -> Result<u32, RedisUrlError> {
    let fits = text.bytes().all(|c| c.is_ascii_digit()) && text.len() <= 5;
    match text {
        "" => Ok(0),
        _ if fits => text.parse().map_err(|_| RedisUrlError::Database),
        _ => Err(RedisUrlError::Database),
    }
}

/// Without its percent signs; `None` where nothing is written.
fn decoded(text: &str) -> Result<Option<String>, RedisUrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        // A percent sign that begins no number is one that the user has left unescaped.
        let number = part.get(..2).and_then(|it| u8::from_str_radix(it, 16).ok());
        match number {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| RedisUrlError::Characters)?;
    Ok(Some(text).filter(|it| !it.is_empty()))
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, RedisUrlError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for RedisUrl {
    type Error = RedisUrlError;

    fn try_from(text: &str) -> Result<Self, RedisUrlError> {
        Self::parse(text)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
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
                 redis+cluster:// (rediss+sentinel:// and rediss+cluster:// over TLS)"
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
    fn a_url_says_where_and_who() {
        let url = RedisUrl::parse("redis+sentinel://u:p%2F%40%25é%zz@a,[::1]:2/main/3").unwrap();
        let places: Vec<String> = url.places().iter().map(HostPort::to_string).collect();
        assert_eq!(places, ["a:26379", "[::1]:2"]);
        assert_eq!((url.master(), url.database()), ("main", 3));
        assert_eq!(url.login().user.as_deref(), Some("u"));
        assert_eq!(url.login().password.as_deref(), Some("p/@%é%zz"));
        let url = RedisUrl::parse("unix:///r.sock?db=1&user=u&pass=p%20q").unwrap();
        assert_eq!((url.socket(), url.database()), (Path::new("/r.sock"), 1));
        assert_eq!(url.login().password.as_deref(), Some("p q"));
        let url = RedisUrl::parse("rediss://h").unwrap();
        assert!(url.uses_tls() && !url.has_password());
        assert_eq!(url.places()[0].to_string(), "h:6379");
    }
}

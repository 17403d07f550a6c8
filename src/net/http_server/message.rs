//! What does a client of ours ask, under which name of this host, and how is the answer written? Pure.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// More fields of a query than any page has are not read.
const QUERY_FIELDS_MAX: usize = 16;
/// What an answer may do in a browser unless it says more itself: nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// A request, as far as anybody reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// As it was sent, without the query.
    pub path: String,
    query: Vec<(String, String)>,
    /// The values of its `Host` headers.
    hosts: Vec<String>,
    /// It speaks HTTP/1.0 or something older.
    is_old: bool,
}

/// What it wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    /// Anything else, also what is no HTTP.
    Other,
}

impl Request {
    /// From the bytes up to the empty line. Never fails: what is no HTTP has the method [`Method::Other`].
    pub fn parse(head: &[u8]) -> Self {
        let lines: Vec<&[u8]> = head.split(|it| *it == b'\n').map(<[u8]>::trim_ascii_end).collect();
        let (line, fields) = lines.split_first().map_or((&[][..], &[][..]), |it| (*it.0, it.1));
        let mut words = line.split(|it| *it == b' ');
        let method = match words.next() {
            Some(b"GET") => Method::Get,
            Some(b"HEAD") => Method::Head,
            _ => Method::Other,
        };
        let target = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        let is_old = words.next().is_none_or(|it| it == b"HTTP/1.0");
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let hosts = fields.iter().filter_map(|it| {
            let at = it.iter().position(|c| *c == b':')?;
            let value = it.get(at + 1..)?;
            let is_host = it.get(..at)?.eq_ignore_ascii_case(b"host");
            is_host.then(|| String::from_utf8_lossy(value).trim().to_owned())
        });
        Self {
            method,
            path: path.to_owned(),
            query: query.split('&').take(QUERY_FIELDS_MAX).filter_map(field).collect(),
            hosts: hosts.collect(),
            is_old,
        }
    }

    /// The value of a field of the query; of several, the first.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }
}

fn field(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (!name.is_empty()).then(|| (decoded(name), decoded(value)))
}

/// `a b` for `a+b` and `a%20b`. What is no escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = text.as_bytes().iter();
    let mut out = Vec::with_capacity(text.len());
    while let Some(c) = bytes.next() {
        let rest = bytes.as_slice();
        let escaped = rest.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let escaped = escaped.filter(|it| it.bytes().all(|c| c.is_ascii_hexdigit()));
        match (*c, escaped.and_then(|it| u8::from_str_radix(it, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                bytes.nth(1);
            }
            (b'+', _) => out.push(b' '),
            (c, _) => out.push(c),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The names under which this host may be asked, without ports, in lower case.
///
/// A page of a stranger whose name suddenly means 127.0.0.1 (DNS rebinding) makes a browser ask here, but under the
/// stranger's name.
#[derive(Clone, Debug)]
pub struct Hosts {
    names: Vec<String>,
    /// The option that adds names.
    option: &'static str,
}

impl Hosts {
    /// Loopback, `address`, `host_name`, the name of this host, and `more`, which `option` names.
    pub fn of(address: SocketAddr, host_name: &str, more: &[String], option: &'static str) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(String::from).into();
        names.push(match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        names.push(host_name.to_owned());
        names.extend(nix::unistd::gethostname().ok().and_then(|it| it.into_string().ok()));
        names.extend(more.iter().cloned());
        Self { names: names.iter().filter_map(|it| plain_host(it)).collect(), option }
    }

    /// What to say to a request that is not to be answered because of its name for this host.
    fn refuse(&self, request: &Request) -> Option<Response> {
        match &request.hosts[..] {
            // HTTP/1.0 has no such header, and no browser speaks it.
            [] if request.is_old => None,
            [] => Some(Response::text(Status::BAD_REQUEST, "HTTP/1.1 needs a Host header\n")),
            [host] if plain_host(host).is_some_and(|it| self.names.contains(&it)) => None,
            _ => {
                let option = self.option;
                let text =
                    format!("this is shown under this host's own names only; {option} adds some\n");
                Some(Response::text(Status::MISDIRECTED, &text))
            }
        }
    }

    /// The refusal of a request, if it is to be refused: only GET and HEAD, only of a path that there is, only under a
    /// name of this host.
    pub fn gate(&self, request: &Request, is_known: bool) -> Option<Response> {
        if request.method == Method::Other {
            let text = "only GET and HEAD are answered here\n";
            return Some(Response::text(Status::NOT_ALLOWED, text).with("Allow", "GET, HEAD"));
        }
        if !is_known {
            return Some(Response::text(Status::NOT_FOUND, "there is nothing here\n"));
        }
        self.refuse(request)
    }
}

/// A host without its port and the dot of its root, in lower case; `None` if it is not a host.
fn plain_host(host: &str) -> Option<String> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let is_port = |it: &str| it.bytes().all(|c| c.is_ascii_digit());
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_fine =
        !name.is_empty() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    is_fine.then_some(name)
}

/// A code, and what people call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16, pub &'static str);

impl Status {
    pub const OK: Self = Self(200, "OK");
    pub const BAD_REQUEST: Self = Self(400, "Bad Request");
    pub const NOT_FOUND: Self = Self(404, "Not Found");
    pub const NOT_ALLOWED: Self = Self(405, "Method Not Allowed");
    pub const MISDIRECTED: Self = Self(421, "Misdirected Request");
    pub const UNAVAILABLE: Self = Self(503, "Service Unavailable");
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: Status,
    pub content_type: &'static str,
    /// What it may do in a browser.
    policy: &'static str,
    more: Vec<(&'static str, &'static str)>,
    /// Shared, because one large document may be on its way to several clients.
    pub body: Arc<[u8]>,
}

impl Response {
    /// An answer that may do nothing in a browser but be shown.
    pub fn new(status: Status, content_type: &'static str, body: impl Into<Arc<[u8]>>) -> Self {
        Self { status, content_type, policy: NOTHING, more: vec![], body: body.into() }
    }

    /// Plain text.
    pub fn text(status: Status, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.as_bytes())
    }

    /// The same, with another policy for browsers.
    pub fn under(self, policy: &'static str) -> Self {
        Self { policy, ..self }
    }

    fn with(self, name: &'static str, value: &'static str) -> Self {
        Self { more: [self.more, vec![(name, value)]].concat(), ..self }
    }

    /// Status and headers, up to the empty line.
    pub fn head(&self) -> String {
        let (Status(code, word), Self { content_type, policy, body, .. }) = (self.status, self);
        let more: String =
            self.more.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "HTTP/1.1 {code} {word}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{more}\
             Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n\
             X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n",
            body.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request::parse(text.as_bytes())
    }

    fn hosts() -> Hosts {
        let address = "127.0.0.1:9464".parse().unwrap();
        Hosts::of(address, "vm", &["Proxy.Example.com".into(), "[fd00::7]".into()], "--x-hosts")
    }

    fn code(text: &str) -> u16 {
        hosts().gate(&request(text), true).map_or(200, |it| it.status.0)
    }

    #[test]
    fn a_query_is_decoded_and_bounded() {
        let it = request("GET /a?q=a+b%2Fc%zz%4&q=2&=x&state HTTP/1.1\r\n");
        assert_eq!(it.path, "/a");
        assert_eq!(it.field("q"), Some("a b/c%zz%4"));
        assert_eq!(it.field("state"), Some(""));
        assert_eq!(it.field("nothing"), None);
        let many: String = (0..100).map(|n| format!("f{n}=1&")).collect();
        let it = request(&format!("GET /?{many} HTTP/1.1\r\n"));
        assert_eq!((it.field("f15"), it.field("f16")), (Some("1"), None));
        assert_eq!(decoded("%ff%é%"), "\u{fffd}%é%");
    }

    #[test]
    fn only_get_and_head_are_answered() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "get", "", "TRACE", "GETT"] {
            let refused = hosts().gate(&request(&format!("{method} / HTTP/1.0\r\n")), true);
            let refused = refused.unwrap();
            assert_eq!(refused.status, Status::NOT_ALLOWED, "{method}");
            assert!(refused.head().contains("\r\nAllow: GET, HEAD\r\n"));
        }
        assert_eq!(code("HEAD / HTTP/1.0\r\n"), 200);
        assert_eq!(code("\u{0}\u{ff}\r\n"), 405);
    }

    #[test]
    fn a_request_under_a_strangers_name_is_refused() {
        for host in ["localhost:1", "[::1]", "VM.", "proxy.example.com:443", "[fd00::7]:80"] {
            assert_eq!(code(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n")), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "[::2]", "[é", "", "vm:x", "a@vm"] {
            assert_eq!(code(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n")), 421, "{host}");
        }
        assert_eq!(code("GET / HTTP/1.1\r\nHost: vm\r\nHost: evil\r\n"), 421);
        assert_eq!(code("GET / HTTP/1.0\r\nHost: evil\r\n"), 421);
        assert_eq!(code("GET / HTTP/1.1\r\nX: y\r\n Host: vm\r\n"), 400);
        assert_eq!(code("GET / HTTP/1.0\r\n"), 200);
        let gate = hosts().gate(&request("GET / HTTP/1.1\r\nHost: evil\r\n"), false);
        assert_eq!(gate.unwrap().status, Status::NOT_FOUND);
    }

    #[test]
    fn an_answer_may_do_nothing_in_a_browser_and_is_kept_nowhere() {
        let head = Response::text(Status::OK, "é").head();
        for line in [
            "HTTP/1.1 200 OK",
            "Content-Type: text/plain; charset=utf-8",
            "Content-Length: 2",
            "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "X-Frame-Options: DENY",
            "Referrer-Policy: no-referrer",
            "Cache-Control: no-store",
            "Cross-Origin-Resource-Policy: same-origin",
            "Connection: close",
        ] {
            assert!(head.split("\r\n").any(|it| it == line), "{line} in {head}");
        }
        assert!(head.ends_with("\r\n\r\n"));
    }
}

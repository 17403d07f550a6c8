//! Takes a URL apart: which host and port does a poll connect to, and what does its request ask for?

use std::borrow::Cow;
use std::fmt;

/// The parts of `http://host:port/path?query`, or of the same with `https`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) is_tls: bool,
    /// Host and port as they stand in the URL: the header `Host`.
    pub(crate) authority: &'a str,
    /// An IPv6 address is in brackets.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Path and query: begins with `/`, and bytes that are not ASCII are percent-encoded.
    pub(crate) target: Cow<'a, str>,
}

/// Why a text is no URL that can be polled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidUrl(&'static str);

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a valid URL: it has {}", self.0)
    }
}

impl<'a> Url<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self, InvalidUrl> {
        if url.chars().any(|it| it.is_control() || it == ' ') {
            return Err(InvalidUrl("a space or a control character"));
        }
        let (scheme, rest) = url.split_once("://").ok_or(InvalidUrl("no scheme"))?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(InvalidUrl("a scheme other than http and https")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, ""),
        };
        let may_be_in_host = |it: u8| it.is_ascii_alphanumeric() || b"-._~%[:]".contains(&it);
        if host.is_empty() || !host.bytes().all(may_be_in_host) {
            return Err(InvalidUrl("no host"));
        }
        let port = match port {
            "" => Ok(if is_tls { 443 } else { 80 }),
            digits if digits.bytes().all(|it| it.is_ascii_digit()) => digits.parse(),
            _ => return Err(InvalidUrl("a port that is no number")),
        };
        let port = port.map_err(|_| InvalidUrl("a port above 65535"))?;
        Ok(Self { is_tls, authority, host, port, target: encoded(target) })
    }
}

fn encoded(target: &str) -> Cow<'_, str> {
    if target.starts_with('/') && target.is_ascii() {
        return Cow::Borrowed(target);
    }
    let mut text = String::from(if target.starts_with('/') { "" } else { "/" });
    for byte in target.bytes() {
        match byte.is_ascii() {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_a_port_and_a_target() {
        for (url, is_tls, host, port, target) in [
            ("http://a", false, "a", 80, "/"),
            ("https://a.example?x=1", true, "a.example", 443, "/?x=1"),
            ("http://a:8080/b/c?d=e/f", false, "a", 8080, "/b/c?d=e/f"),
            ("http://[::1]/", false, "[::1]", 80, "/"),
            ("http://[::1]:81/x#y", false, "[::1]", 81, "/x"),
            ("http://a:/", false, "a", 80, "/"),
            ("http://a/ü", false, "a", 80, "/%C3%BC"),
        ] {
            let found = Url::parse(url).unwrap();
            let found = (found.is_tls, found.host, found.port, &*found.target);
            assert_eq!(found, (is_tls, host, port, target), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_in_a_sentence() {
        for (url, why) in [
            ("a:80", "no scheme"),
            ("ftp://a/", "a scheme other than http and https"),
            ("http://", "no host"),
            ("http:///x", "no host"),
            ("http://user@a/", "no host"),
            ("http://ü/", "no host"),
            ("http://a:x/", "a port that is no number"),
            ("http://a:65536/", "a port above 65535"),
            ("http://a/\r\nX: y", "a space or a control character"),
            ("http://no host/", "a space or a control character"),
        ] {
            assert_eq!(Url::parse(url), Err(InvalidUrl(why)), "{url}");
        }
    }
}

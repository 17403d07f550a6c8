//! What does a session want to see before a poll counts as ok? Its settings of the request, the answer and the certificate.

mod headers;
mod tls;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

pub use crate::model::check::headers::{Header, HeaderValue};
pub(crate) use crate::model::check::headers::{VALUE_MAX_BYTES, is_header_value};
pub use crate::model::check::tls::TlsCheck;
use crate::model::session::{Address, SessionError, text};

/// The fields that [`Check::parse`] reads.
pub(super) const FIELDS: [&str; 8] = [
    "method",
    "expectStatus",
    "expectBody",
    "headers",
    "maxRedirects",
    tls::FIELDS[0],
    tls::FIELDS[1],
    tls::FIELDS[2],
];

const STATUS_MIN: u16 = 100;
const STATUS_MAX: u16 = 599;
const RANGES_MAX: usize = 32;
const BODY_MAX_BYTES: usize = 1_024;

/// How an HTTP poll asks, and which answers are ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// How it asks.
    pub method: Method,
    /// The statuses that are ok.
    pub expect_status: Statuses,
    /// Text that the beginning of the body must contain.
    pub expect_body: Option<String>,
    /// Further headers of the request, valid, each name once.
    pub headers: Vec<Header>,
    /// Which certificates are believed.
    pub tls: TlsCheck,
}

/// The methods that change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks for headers and body.
    Get,
    /// Asks for the headers alone.
    Head,
}

impl Method {
    /// As it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// Ranges of statuses, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Cow<'static, [(u16, u16)]>);

impl Statuses {
    /// Whether this status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|it| (it.0..=it.1).contains(&status))
    }

    /// `200-299,401`.
    fn parse(text: &str) -> Option<Self> {
        let number = |it: &str| {
            let is_number = it.len() == 3 && it.bytes().all(|it| it.is_ascii_digit());
            let parsed = it.parse().ok().filter(|_| is_number);
            parsed.filter(|it| (STATUS_MIN..=STATUS_MAX).contains(it))
        };
        let range = |it: &str| {
            let (first, last) = it.split_once('-').unwrap_or((it, it));
            let (first, last) = (number(first.trim())?, number(last.trim())?);
            (first <= last).then_some((first, last))
        };
        let ranges: Option<Vec<_>> = text.split(',').take(RANGES_MAX + 1).map(range).collect();
        Some(Self(ranges.filter(|it| it.len() <= RANGES_MAX)?.into()))
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (first, last)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The check of a session that says nothing of it: a GET that expects 2xx.
pub static USUAL_CHECK: Check = Check {
    method: Method::Get,
    expect_status: Statuses(Cow::Borrowed(&[(200, 299)])),
    expect_body: None,
    headers: Vec::new(),
    tls: tls::USUAL,
};

pub(super) fn wrong(name: &'static str, why: impl Into<String>) -> SessionError {
    SessionError::Field(name, why.into())
}

impl Check {
    /// The check that these fields describe; `None` if none of them is there.
    pub(super) fn parse(
        fields: &Map<String, Value>,
        address: &Address,
    ) -> Result<Option<Box<Self>>, SessionError> {
        let is_there = |it: &&str| fields.get(*it).is_some_and(|it| !it.is_null());
        let Some(first) = FIELDS.into_iter().find(is_there) else { return Ok(None) };
        if matches!(address, Address::Tcp(_)) {
            return Err(wrong(first, "is for http and https: a tcp address only connects"));
        }
        if fields.get("maxRedirects").is_some_and(|it| !it.is_null() && it.as_u64() != Some(0)) {
            let why = "must be 0: each redirect would be another start of a poll";
            return Err(wrong("maxRedirects", why));
        }
        let method = method(fields)?;
        Ok(Some(Box::new(Self {
            method,
            expect_status: expect_status(fields)?,
            expect_body: expect_body(fields, method)?,
            headers: headers::parse(fields)?,
            tls: TlsCheck::parse(fields, address)?,
        })))
    }
}

fn method(fields: &Map<String, Value>) -> Result<Method, SessionError> {
    match text(fields, "method")? {
        None | Some("GET") => Ok(Method::Get),
        Some("HEAD") => Ok(Method::Head),
        Some(_) => Err(wrong("method", "must be GET or HEAD")),
    }
}

fn expect_status(fields: &Map<String, Value>) -> Result<Statuses, SessionError> {
    let Some(text) = text(fields, "expectStatus")? else {
        return Ok(USUAL_CHECK.expect_status.clone());
    };
    Statuses::parse(text).ok_or_else(|| {
        let why = format!(
            "must be at most {RANGES_MAX} statuses and ranges from {STATUS_MIN} to {STATUS_MAX}, \
             such as 200-299,401"
        );
        wrong("expectStatus", why)
    })
}

fn expect_body(
    fields: &Map<String, Value>,
    method: Method,
) -> Result<Option<String>, SessionError> {
    let Some(text) = text(fields, "expectBody")? else { return Ok(None) };
    let refused = |why: &str| Err(wrong("expectBody", why));
    if text.is_empty() || text.len() > BODY_MAX_BYTES {
        return Err(wrong("expectBody", format!("must have 1 to {BODY_MAX_BYTES} bytes")));
    }
    if text.len() > 1 && text.starts_with('/') && text.ends_with('/') {
        return refused(
            "looks like a regular expression, which is not supported: it is text that the body \
             must contain. To look for text between slashes, leave the last slash out",
        );
    }
    if method == Method::Head {
        return refused("needs a body, and the answer to HEAD has none");
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Session;

    fn check(fields: &str) -> Result<Check, String> {
        let text = format!(r#"{{"id":"x","address":"https://h/",{fields}}}"#);
        let session = Session::parse("x", text.as_bytes()).map_err(|it| it.to_string())?;
        Ok(session.check().clone())
    }

    #[test]
    fn a_session_without_any_of_the_fields_has_the_usual_check() {
        assert_eq!(check(r#""name":"n""#).unwrap(), USUAL_CHECK);
        let named = r#""method":"GET","expectStatus":"200-299","maxRedirects":0,"headers":{}"#;
        assert_eq!(check(named).unwrap(), USUAL_CHECK);
        let nulls = FIELDS.map(|it| format!(r#""{it}":null"#)).join(",");
        assert_eq!(check(&nulls).unwrap(), USUAL_CHECK);
        let tcp = format!(r#"{{"id":"x","address":"tcp://h:1",{nulls}}}"#);
        assert!(Session::parse("x", tcp.as_bytes()).is_ok());
    }

    #[test]
    fn statuses_are_numbers_and_ranges() {
        for (text, inside, outside, shown) in [
            ("200-299,401", vec![200, 299, 401], vec![199, 300, 400, 402], "200-299,401"),
            (" 302 , 100 - 101 ", vec![302, 100, 101], vec![200], "302,100-101"),
            ("599-599", vec![599], vec![598], "599"),
        ] {
            let statuses = Statuses::parse(text).unwrap();
            assert!(inside.into_iter().all(|it| statuses.contains(it)), "{text}");
            assert!(!outside.into_iter().any(|it| statuses.contains(it)), "{text}");
            assert_eq!(statuses.to_string(), shown);
        }
        let many = vec!["200"; RANGES_MAX + 1].join(",");
        assert!(Statuses::parse(&many[4..]).is_some());
        let long = "2".repeat(1_000);
        for text in ["", ",", "200,", "2xx", "299-200", "99", "600", "-200", "200-", "+20", &many]
            .into_iter()
            .chain(["200-299-300", "0200", "２００", &long])
        {
            assert_eq!(Statuses::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_check_that_makes_no_sense_is_refused_in_a_sentence() {
        for (fields, why) in [
            (r#""method":"POST""#, "method must be GET or HEAD"),
            (r#""method":"get""#, "method must be GET or HEAD"),
            (r#""method":1"#, "method must be a string"),
            (r#""expectStatus":200"#, "expectStatus must be a string"),
            (r#""expectStatus":"ok""#, "such as 200-299,401"),
            (r#""expectBody":"""#, "1 to 1024 bytes"),
            (r#""expectBody":"/a.*b/""#, "regular expression, which is not supported"),
            (r#""expectBody":"//""#, "leave the last slash out"),
            (r#""expectBody":"a","method":"HEAD""#, "the answer to HEAD has none"),
            (r#""maxRedirects":1"#, "maxRedirects must be 0"),
            (r#""maxRedirects":"0""#, "maxRedirects must be 0"),
        ] {
            let error = check(fields).unwrap_err();
            assert!(error.contains(why), "{fields}: {error}");
        }
        for fields in [r#""expectBody":"/""#, r#""expectBody":"/a/b""#, r#""method":"HEAD""#] {
            assert!(check(fields).is_ok(), "{fields}");
        }
        for (name, value) in [("expectStatus", r#""200""#), ("maxRedirects", "0")] {
            let tcp = format!(r#"{{"id":"x","address":"tcp://h:1","{name}":{value}}}"#);
            let error = Session::parse("x", tcp.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is for http and https")), "{error}");
        }
    }
}

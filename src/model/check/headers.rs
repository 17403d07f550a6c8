//! Which headers may a session add to the request of a poll? Those that cannot change where the request ends or who asks.

use serde_json::{Map, Value};

use crate::model::check::wrong;
use crate::model::session::SessionError;

const HEADERS_MAX: usize = 32;
const NAME_MAX_BYTES: usize = 128;
pub(crate) const VALUE_MAX_BYTES: usize = 4_096;
const FILE_MAX_BYTES: usize = 128;
/// They decide how the connection is used and where a message ends, which is Leasehold's to say.
const RESERVED: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// They say which instance asks under which fence.
const RESERVED_PREFIX: &str = "x-leasehold-";

/// A header of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// A token, in the case in which the session has it.
    pub name: String,
    /// What is sent with it.
    pub value: HeaderValue,
}

/// Where the value of a header stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValue {
    /// In the session.
    Text(String),
    /// In this file of the directory that the instance keeps for secrets.
    File(String),
}

impl Header {
    /// Whether this is the header `name`.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Whether this text can be sent as the value of a header, and cannot be taken for two.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.len() <= VALUE_MAX_BYTES && text.chars().all(|it| it == '\t' || !it.is_control())
}

/// The field `headers`, if each of them can be sent.
pub(super) fn parse(fields: &Map<String, Value>) -> Result<Vec<Header>, SessionError> {
    let map = match fields.get("headers") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(SessionError::WrongType("headers", "an object")),
    };
    if map.len() > HEADERS_MAX {
        let why = format!("has {} names, more than {HEADERS_MAX}", map.len());
        return Err(wrong("headers", why));
    }
    let mut headers: Vec<Header> = Vec::new();
    for (name, value) in map {
        let header = header(name, value).map_err(|why| wrong("headers", why))?;
        if headers.iter().any(|it| it.is(name)) {
            return Err(wrong("headers", format!("has {} twice", shown(name))));
        }
        headers.push(header);
    }
    Ok(headers)
}

fn header(name: &str, value: &Value) -> Result<Header, String> {
    let may_be_in_name = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it);
    if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(may_be_in_name) {
        return Err(format!("has {}, which is no name of a header", shown(name)));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&&*lower) || lower.starts_with(RESERVED_PREFIX) {
        return Err(format!("has {}, which only Leasehold sets", shown(name)));
    }
    let text = match value {
        Value::String(text) => text,
        Value::Object(file) if lower != "host" => {
            return Ok(Header { name: name.to_owned(), value: file_of(name, file)? });
        }
        _ => return Err(format!("has {}, whose value must be a string", shown(name))),
    };
    if !is_header_value(text) {
        // Not the value: people put secrets there.
        return Err(format!(
            "has {}, whose value has a control character or more than {VALUE_MAX_BYTES} bytes",
            shown(name)
        ));
    }
    let may_be_in_host = |it: u8| it.is_ascii_alphanumeric() || b"-._~%[:]".contains(&it);
    if lower == "host" && (text.is_empty() || !text.bytes().all(may_be_in_host)) {
        return Err(format!("has {}, whose value must be host or host:port", shown(name)));
    }
    Ok(Header { name: name.to_owned(), value: HeaderValue::Text(text.trim().to_owned()) })
}

/// `{"file": "NAME"}`: a name without a path, because an author of sessions must not choose among all files of the host.
fn file_of(name: &str, object: &Map<String, Value>) -> Result<HeaderValue, String> {
    let file = object.get("file").and_then(Value::as_str).filter(|_| object.len() == 1);
    let may_be_in_file = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    let is_name = |it: &&str| {
        (1..=FILE_MAX_BYTES).contains(&it.len())
            && !it.starts_with('.')
            && it.bytes().all(may_be_in_file)
    };
    match file.filter(is_name) {
        Some(file) => Ok(HeaderValue::File(file.to_owned())),
        None => Err(format!(
            "has {}, whose value must be a string or {{\"file\": NAME}}, with the name of a file in \
             --secrets-dir: letters, digits, dots, underscores and hyphens",
            shown(name)
        )),
    }
}

/// The beginning of a name that a stranger wrote.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(40).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Session;

    fn headers(json: &str) -> Result<Vec<Header>, String> {
        let text = format!(r#"{{"id":"x","address":"https://h/","headers":{json}}}"#);
        let session = Session::parse("x", text.as_bytes()).map_err(|it| it.to_string())?;
        Ok(session.check().headers.clone())
    }

    #[test]
    fn a_header_is_a_name_and_a_text() {
        let found = headers(r#"{"X-Über":"1"}"#).unwrap_err();
        assert!(found.contains("no name of a header"), "{found}");
        let found = headers(r#"{"Accept":" text/plain ","host":"b.example:8080","X-A":"ü\tb"}"#);
        let text = |it: &Header| match &it.value {
            HeaderValue::Text(value) => format!("{}: {value}", it.name),
            HeaderValue::File(file) => format!("{} from {file}", it.name),
        };
        let found: Vec<String> = found.unwrap().iter().map(text).collect();
        assert_eq!(found, ["Accept: text/plain", "X-A: ü\tb", "host: b.example:8080"]);
        let found = headers(r#"{"Authorization":{"file":"shop-token_1.txt"}}"#).unwrap();
        assert_eq!(
            found.iter().map(text).collect::<Vec<_>>(),
            ["Authorization from shop-token_1.txt"]
        );
    }

    #[test]
    fn a_header_that_could_change_the_request_is_refused_and_its_value_is_not_repeated() {
        let long = format!(r#"{{"A":"hunter2{}"}}"#, "x".repeat(VALUE_MAX_BYTES));
        let long_name = format!(r#"{{"{}":"hunter2"}}"#, "a".repeat(NAME_MAX_BYTES + 1));
        let many: Vec<String> = (0..=HEADERS_MAX).map(|it| format!(r#""A{it}":"b""#)).collect();
        let many = format!("{{{}}}", many.join(","));
        for (json, why) in [
            (r#"{"A\r\nB":"hunter2"}"#, r#""A\r\nB", which is no name"#),
            (r#"{"A B":"hunter2"}"#, "which is no name"),
            (r#"{"A:":"hunter2"}"#, "which is no name"),
            (r#"{"":"hunter2"}"#, "which is no name"),
            (&long_name, "which is no name"),
            (r#"{"A":"hunter2\r\nB: c"}"#, "control character"),
            (r#"{"A":"hunter2\nB: c"}"#, "control character"),
            (r#"{"A":"hunter2\u0000"}"#, "control character"),
            (r#"{"A":"hunter2\u0085"}"#, "control character"),
            (&long, "more than 4096 bytes"),
            (r#"{"Connection":"keep-alive"}"#, "only Leasehold sets"),
            (r#"{"CONTENT-LENGTH":"7"}"#, "only Leasehold sets"),
            (r#"{"transfer-encoding":"chunked"}"#, "only Leasehold sets"),
            (r#"{"Upgrade":"h2c"}"#, "only Leasehold sets"),
            (r#"{"X-Leasehold-Fence":"9"}"#, "only Leasehold sets"),
            (r#"{"Host":""}"#, "must be host or host:port"),
            (r#"{"Host":"a b"}"#, "must be host or host:port"),
            (r#"{"Host":"a/b@c"}"#, "must be host or host:port"),
            (r#"{"Accept":"a","accept":"b"}"#, "twice"),
            (r#"{"A":1}"#, "must be a string"),
            (r#"{"A":["hunter2"]}"#, "must be a string"),
            (r#"{"A":{"file":"/etc/hunter2"}}"#, "with the name of a file in --secrets-dir"),
            (r#"{"A":{"file":"../hunter2"}}"#, "with the name of a file in --secrets-dir"),
            (r#"{"A":{"file":".hunter2"}}"#, "with the name of a file in --secrets-dir"),
            (r#"{"A":{"file":""}}"#, "with the name of a file in --secrets-dir"),
            (r#"{"A":{"file":7}}"#, "with the name of a file in --secrets-dir"),
            (r#"{"A":{"file":"a","hunter2":"b"}}"#, "with the name of a file in --secrets-dir"),
            (r#"{"Host":{"file":"hunter2"}}"#, "must be a string"),
            (r#"["A: hunter2"]"#, "headers must be an object"),
            (&many, "has 33 names, more than 32"),
        ] {
            let error = headers(json).unwrap_err();
            assert!(error.contains(why) && !error.contains("hunter2"), "{json}: {error}");
            assert!(error.len() < 240, "{error}");
        }
    }
}

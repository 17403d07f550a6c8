//! Which name was meant, when another one was written?

use std::fmt;

use serde_json::{Map, Value};

use crate::model::check;

/// The fields of a session that mean something, beside those of its check.
const FIELDS: [&str; 10] = [
    "id",
    "name",
    "address",
    "isPaused",
    "pausedUntilMs",
    "path",
    "intervalMs",
    "timeoutMs",
    "failAfter",
    "okAfter",
];
/// Other words for them, in lower case, without underscores and hyphens.
const SYNONYMS: [(&str, &[&str]); 12] = [
    ("isPaused", &["paused", "pause", "disabled", "isdisabled"]),
    (
        "intervalMs",
        &["interval", "intervals", "intervalsec", "intervalseconds", "period", "periodms"],
    ),
    ("timeoutMs", &["timeout", "timeouts", "timeoutsec", "timeoutseconds"]),
    ("address", &["url", "uri", "host", "hostname", "target", "endpoint", "addr"]),
    ("failAfter", &["failuresafter", "failthreshold", "failurethreshold"]),
    ("okAfter", &["successafter", "successthreshold", "recoverafter"]),
    ("expectStatus", &["expectcode", "expectedcode", "statuscodes", "okstatus", "expectstatuses"]),
    ("expectBody", &["expecttext", "bodycontains", "expectbodycontains", "expectstring"]),
    ("headers", &["header", "httpheaders", "requestheaders"]),
    ("maxRedirects", &["redirects", "followredirects"]),
    ("tlsCa", &["tlscacert", "tlscafile", "cacert", "cafile"]),
    ("tlsInsecure", &["insecure", "tlsskipverify", "skipverify", "insecureskipverify"]),
];
/// A name shorter than this has too many neighbours for a slip of the finger to be told from another word.
const SLIP_MIN_CHARS: usize = 7;
/// Characters to insert, remove or replace that still count as a slip of the finger.
const SLIP_MAX: usize = 2;
/// A longer name is nobody's slip, and is not worth a line.
const NAME_MAX_CHARS: usize = 40;

/// A field that means nothing to Leasehold and looks like one that does. It is kept, and ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddField {
    /// As it stands in the session.
    pub name: String,
    /// What was probably meant.
    pub meant: &'static str,
}

impl fmt::Display for OddField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field {:?} is ignored: did you mean {}?", self.name, self.meant)
    }
}

/// How many characters to insert, remove or replace to get from `a` to `b` (Levenshtein).
pub fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, b) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, a) in a.iter().enumerate() {
            let replaced = diagonal + usize::from(*a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[a.len()]
}

/// The fields that were probably meant to be others. One whose meant field is there, too, is the author's own.
pub(super) fn odd_fields(fields: &Map<String, Value>) -> Vec<OddField> {
    let unknown = fields.keys().filter(|it| known().all(|known| known != it.as_str()));
    let odd = unknown.filter_map(|name| {
        let meant = known().find(|it| looks_like(name, it))?;
        (!fields.contains_key(meant)).then(|| OddField { name: name.clone(), meant })
    });
    odd.collect()
}

fn known() -> impl Iterator<Item = &'static str> {
    FIELDS.into_iter().chain(check::FIELDS)
}

/// The field that is there instead of `missing`.
pub(super) fn instead_of(missing: &'static str, fields: &Map<String, Value>) -> Option<String> {
    odd_fields(fields).into_iter().find(|it| it.meant == missing).map(|it| it.name)
}

fn looks_like(name: &str, field: &str) -> bool {
    if name.len() > NAME_MAX_CHARS {
        return false;
    }
    let bare = |it: &str| it.replace(['_', '-'], "").to_ascii_lowercase();
    let (name, wanted) = (bare(name), bare(field));
    let synonyms = SYNONYMS.iter().find(|it| it.0 == field).map_or(&[][..], |it| it.1);
    // Fingers seldom slip at the first letter: `readers` and `leaders` are no `headers`.
    let is_slip = name.chars().count() >= SLIP_MIN_CHARS
        && name.chars().next() == wanted.chars().next()
        && distance(&name, &wanted) <= SLIP_MAX;
    name == wanted || synonyms.contains(&name.as_str()) || is_slip
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd(text: &str) -> Vec<String> {
        let Value::Object(fields) = serde_json::from_str(text).unwrap() else { unreachable!() };
        odd_fields(&fields).into_iter().map(|it| format!("{} {}", it.name, it.meant)).collect()
    }

    #[test]
    fn a_field_that_looks_like_another_is_odd_unless_the_other_is_there() {
        for (name, meant) in [
            ("paused", "isPaused"),
            ("isPause", "isPaused"),
            ("ispaused", "isPaused"),
            ("is_paused", "isPaused"),
            ("isPuased", "isPaused"),
            ("interval", "intervalMs"),
            ("intervalMS", "intervalMs"),
            ("timeout", "timeoutMs"),
            ("timeout_ms", "timeoutMs"),
            ("Path", "path"),
            ("url", "address"),
            ("Address", "address"),
            ("expectedStatus", "expectStatus"),
            ("expect_status", "expectStatus"),
            ("expectBdoy", "expectBody"),
            ("header", "headers"),
            ("maxRedirect", "maxRedirects"),
            ("Method", "method"),
            ("tlsCA", "tlsCa"),
            ("tls_insecure", "tlsInsecure"),
            ("certWarnDay", "certWarnDays"),
        ] {
            assert_eq!(odd(&format!(r#"{{"{name}":1}}"#)), [format!("{name} {meant}")]);
            let both = format!(r#"{{"{name}":1,"{meant}":2}}"#);
            assert_eq!(odd(&both), [""; 0], "{name} is the author's own");
        }
    }

    #[test]
    fn fields_of_the_authors_own_are_not_odd() {
        let own = [
            "id",
            "name",
            "hash",
            "page",
            "part",
            "tags",
            "mine",
            "note",
            "owner",
            "team",
            "region",
            "enabled",
            "priority",
            "createdAt",
            "labels",
            "description",
            "internal",
            "integer",
            "paths",
            "leaders",
            "readers",
            "status",
            "body",
            "expected",
            "game",
            "idea",
        ];
        for name in own {
            assert_eq!(odd(&format!(r#"{{"{name}":1}}"#)), [""; 0], "{name}");
        }
        let long = "isPaused".repeat(10);
        assert_eq!(odd(&format!(r#"{{"{long}":1}}"#)), [""; 0]);
    }
}

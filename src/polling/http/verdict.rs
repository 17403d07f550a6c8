//! Is this answer the one that the check expects? If not, says so in a sentence that repeats nothing of the answer.

use crate::model::{Check, USUAL_CHECK};

/// Longest part of `expectBody` that is repeated.
const SHOWN_CHARS: usize = 60;

/// What is wrong with the status of an answer.
pub(super) fn unexpected_status(check: &Check, status: u16) -> Option<String> {
    let expected = &check.expect_status;
    match expected.contains(status) {
        true => None,
        false if *expected == USUAL_CHECK.expect_status => Some(format!("HTTP {status}")),
        false => Some(format!("HTTP {status}, expected {expected}")),
    }
}

/// What is wrong with the beginning of a body, of which at most `body_max` bytes were read.
pub(super) fn unexpected_body(check: &Check, body: &[u8], body_max: usize) -> Option<String> {
    let expected = check.expect_body.as_deref()?;
    if String::from_utf8_lossy(body).contains(expected) {
        return None;
    }
    let mut shown: String = expected.chars().take(SHOWN_CHARS).collect();
    if shown.len() < expected.len() {
        shown.push('…');
    }
    Some(match body.len() < body_max {
        true => format!("the body does not contain {shown:?}"),
        false => format!("the first {body_max} bytes of the body do not contain {shown:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_searched_as_far_as_it_was_read() {
        let check = Check { expect_body: Some("bereit: ü".into()), ..USUAL_CHECK.clone() };
        for (body, wrong) in [
            ("status bereit: ü.", None),
            ("\u{fffd}bereit: ü", None),
            ("Bereit: ü", Some("the body does not contain \"bereit: ü\"")),
            ("", Some("the body does not contain \"bereit: ü\"")),
        ] {
            assert_eq!(unexpected_body(&check, body.as_bytes(), 100).as_deref(), wrong, "{body}");
        }
        let bytes = [b"\xff\xfe", "bereit: ü".as_bytes()].concat();
        assert_eq!(unexpected_body(&check, &bytes, 100), None);
        let cut = unexpected_body(&check, b"bereit", 6).unwrap();
        assert_eq!(cut, "the first 6 bytes of the body do not contain \"bereit: ü\"");
        let long = Check { expect_body: Some("x".repeat(1_000)), ..check };
        assert!(unexpected_body(&long, b"", 6).unwrap().len() < 120);
        assert_eq!(unexpected_body(&USUAL_CHECK, b"", 6), None);
    }
}

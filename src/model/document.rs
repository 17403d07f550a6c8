//! A stored JSON object as text: one field is changed, and every other byte stays as its author wrote it.

use std::ops::Range;

/// Sets the field `name` of the object `document` to `value` (JSON), in place if it is there. `None` if
/// `document` is no JSON object.
pub fn with_field(document: &str, name: &str, value: &str) -> Option<String> {
    let object: serde_json::Value = serde_json::from_str(document).ok()?;
    object.as_object()?;
    let mut changed = document.to_owned();
    match value_of(document, name) {
        Some(place) => changed.replace_range(place, value),
        None => {
            let at = document.find('{')? + 1;
            let comma = if object.as_object()?.is_empty() { "" } else { "," };
            let name = serde_json::Value::from(name);
            changed.insert_str(at, &format!("{name}:{value}{comma}"));
        }
    }
    Some(changed)
}

/// Where the value of the last field `name` stands: of two alike JSON readers take the last. Only for
/// text that is known to be a JSON object.
fn value_of(document: &str, name: &str) -> Option<Range<usize>> {
    let mut found = None;
    let mut at = document.find('{')? + 1;
    loop {
        at = skip_space(document, at);
        if document.as_bytes().get(at) != Some(&b'"') {
            return found;
        }
        let key = at..end_of_value(document, at)?;
        at = skip_space(document, key.end);
        // The colon.
        let begin = skip_space(document, at + 1);
        let end = end_of_value(document, begin)?;
        if serde_json::from_str::<String>(&document[key]).is_ok_and(|it| it == name) {
            found = Some(begin..end);
        }
        at = skip_space(document, end);
        // A comma, or the end.
        at += 1;
    }
}

fn skip_space(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at.min(text.len())..];
    at + rest.iter().take_while(|it| it.is_ascii_whitespace()).count()
}

/// Behind the value that begins at `at`.
fn end_of_value(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut in_string, mut at) = (0_usize, false, at);
    loop {
        let byte = *bytes.get(at)?;
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            _ if in_string => (),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => depth -= 1,
            // The end of what this value is in.
            b'}' | b']' | b',' | b':' if depth == 0 => return Some(at),
            byte if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
            _ => (),
        }
        at += 1;
        let closed = matches!(byte, b'"' | b'}' | b']');
        if closed && depth == 0 && !in_string {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_is_changed_and_every_other_byte_stays() {
        for (before, after) in [
            (r#"{"id":"e1","isPaused":false}"#, r#"{"id":"e1","isPaused":true}"#),
            (r#"{"isPaused" : null , "big":1e400}"#, r#"{"isPaused" : true , "big":1e400}"#),
            (r#" { "id":"e1" } "#, r#" {"isPaused":true, "id":"e1" } "#),
            ("{}", r#"{"isPaused":true}"#),
            (
                r#"{"a":{"isPaused":1},"b":"\"isPaused\":2","isPaused":[1,{"x":"]}"}],"c":-0.0}"#,
                r#"{"a":{"isPaused":1},"b":"\"isPaused\":2","isPaused":true,"c":-0.0}"#,
            ),
            (r#"{"isPaused":1,"isPaused":2}"#, r#"{"isPaused":1,"isPaused":true}"#),
            (r#"{"is\u0050aused":0,"ä":"\\"}"#, r#"{"is\u0050aused":true,"ä":"\\"}"#),
        ] {
            // 1e400 is no number that fits, and none of our business.
            if serde_json::from_str::<serde_json::Value>(before).is_err() {
                assert_eq!(with_field(before, "isPaused", "true"), None);
                continue;
            }
            assert_eq!(with_field(before, "isPaused", "true").as_deref(), Some(after), "{before}");
        }
        for none in ["", "[]", "1", "{", r#"{"a":}"#, "null"] {
            assert_eq!(with_field(none, "isPaused", "true"), None, "{none}");
        }
    }
}

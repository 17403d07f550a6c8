//! Which text goes over a channel? Writes and reads results for subscribers and messages between instances. Pure: sends nothing.
//!
//! Any client may write to a channel, so reading never trusts: a message that is not understood is ignored.
//!
//! All databases of a server share its channels. So every message names its sender's database (`db`), and readers
//! ignore messages of another database. A message without it comes from an older version, and counts.

use std::fmt::{Arguments, Write as _};

use serde_json::{Map, Value};

use crate::model::{
    CertificateLeft, Change, EndpointId, FenceToken, InstanceId, Tenure, Verdict, VerdictState,
};
use crate::store::{PeerMessage, Publication};

/// A message longer than this is not read.
const WAKE_MAX_BYTES: usize = 256 * 1024;
/// Longest text of a change that is read.
const CHANGE_TEXT_MAX_CHARS: usize = 2_048;
/// What most announcements have besides the body.
const RESULT_BYTES: usize = 320;

/// The announcement of a result: the stored hash as JSON. A body that is not UTF-8 is shown lossily.
pub(crate) fn encode_result(instance: &InstanceId, it: &Publication, database: u32) -> String {
    let sample = &it.sample;
    let mut json = String::with_capacity(RESULT_BYTES + sample.body.len());
    json.push_str("{\"endpoint\":");
    push_quoted(&mut json, it.tenure.endpoint.as_str());
    push(&mut json, format_args!(",\"fence\":{},\"instance\":", it.tenure.fence));
    push_quoted(&mut json, instance.as_str());
    push(&mut json, format_args!(",\"ok\":{},\"status\":", u8::from(sample.ok)));
    match sample.status {
        Some(status) => push(&mut json, format_args!("{status}")),
        None => json.push_str("null"),
    }
    json.push_str(",\"error\":");
    match &sample.error {
        Some(error) => push_quoted(&mut json, error),
        None => json.push_str("null"),
    }
    let (duration, interval) = (sample.duration.as_millis(), it.interval.as_millis());
    push(&mut json, format_args!(",\"started_at_ms\":{}", it.started_at_ms));
    push(&mut json, format_args!(",\"duration_ms\":{duration},\"interval_ms\":{interval}"));
    if let Some(CertificateLeft { days, is_short }) = it.certificate {
        push(&mut json, format_args!(",\"cert_days\":{days}"));
        push(&mut json, format_args!(",\"cert_expiring\":{}", u8::from(is_short)));
    }
    push(&mut json, format_args!(",\"db\":{database}"));
    json.push_str(",\"body\":");
    push_quoted(&mut json, &String::from_utf8_lossy(&sample.body));
    json.push('}');
    json
}

/// A change as publish.lua announces it.
pub(crate) fn encode_change(it: &Change, database: u32) -> String {
    let state = &it.state;
    let verdict = state.verdict.map_or("", Verdict::as_str);
    serde_json::json!({
        "endpoint": it.tenure.endpoint.as_str(),
        "address": it.address,
        "verdict": verdict,
        "since_ms": state.since_ms,
        "before_ms": Some(state.before_ms).filter(|it| *it > 0),
        "failures": state.failures,
        "status": it.status,
        "error": it.error,
        "fence": it.tenure.fence.0,
        "instance": it.instance.as_str(),
        "db": database,
    })
    .to_string()
}

/// A change that was announced in this database; `None` if it is malformed or from another one.
pub(crate) fn decode_change(payload: &[u8], database: u32) -> Option<Change> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(payload) else { return None };
    if !is_from(&fields, database) {
        return None;
    }
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let count = |name: &str| number(name).and_then(|it| u32::try_from(it).ok());
    let short = |it: &str| it.chars().take(CHANGE_TEXT_MAX_CHARS).collect();
    let state = VerdictState {
        verdict: Some(Verdict::parse(text("verdict")?)?),
        since_ms: number("since_ms")?,
        before_ms: number("before_ms").unwrap_or(0),
        failures: count("failures").unwrap_or(0),
        successes: 0,
    };
    Some(Change {
        tenure: Tenure::new(
            EndpointId::parse(text("endpoint")?).ok()?,
            FenceToken(number("fence")?),
        ),
        instance: InstanceId::new(text("instance").filter(|it| !it.is_empty())?),
        address: text("address").map(short).unwrap_or_default(),
        state,
        status: fields.get("status").and_then(Value::as_i64).and_then(|it| i32::try_from(it).ok()),
        error: text("error").map(short),
    })
}

/// A message as it is sent. Long ones are lists of names: those are written as they are.
pub(crate) fn encode_message(wake: &PeerMessage, database: u32) -> String {
    let mut message = format!("{{\"from\":{},\"db\":{database}", quoted(wake.from.as_str()));
    if let Some(heir) = &wake.heir {
        message += ",\"heir\":";
        message += &quoted(heir.as_str());
    }
    if wake.unasked {
        message += ",\"unasked\":true";
    }
    if wake.priority > 0 {
        message += &format!(",\"priority\":{}", wake.priority);
    }
    for (name, endpoints) in [
        ("wants", &wake.wants),
        ("freed", &wake.freed),
        ("took", &wake.took),
        ("dropped", &wake.dropped),
        ("surprises", &wake.discrepancies),
        ("resign", &wake.resign),
    ] {
        for (n, endpoint) in endpoints.iter().enumerate() {
            if n == 0 {
                message += &format!(",\"{name}\":[");
            } else {
                message.push(',');
            }
            push_quoted(&mut message, endpoint.as_str());
        }
        if !endpoints.is_empty() {
            message.push(']');
        }
    }
    message.push('}');
    message
}

fn push(message: &mut String, text: Arguments<'_>) {
    let _ = message.write_fmt(text); // a String takes everything
}

fn quoted(text: &str) -> String {
    let mut message = String::new();
    push_quoted(&mut message, text);
    message
}

/// As a JSON string; most names need nothing but the quotes.
fn push_quoted(message: &mut String, text: &str) {
    if text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.:/@".contains(&it)) {
        message.push('"');
        message.push_str(text);
        message.push('"');
    } else {
        // A text can always be written down.
        message.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// Whether a message comes from this database, as far as it says.
pub(crate) fn is_from(fields: &Map<String, Value>, database: u32) -> bool {
    fields.get("db").is_none_or(|it| it.as_u64() == Some(database.into()))
}

/// Decodes a message for this database; `None` if it is malformed or from another one.
pub(crate) fn decode_message(
    to: Option<&InstanceId>,
    payload: &[u8],
    database: u32,
) -> Option<PeerMessage> {
    if payload.len() > WAKE_MAX_BYTES {
        return None;
    }
    let Ok(Value::Object(fields)) = serde_json::from_slice(payload) else { return None };
    if !is_from(&fields, database) {
        return None;
    }
    let instance = |name: &str| {
        let id = fields.get(name)?.as_str().filter(|it| !it.is_empty())?;
        Some(InstanceId::new(id))
    };
    let ids = |name: &str| -> Vec<EndpointId> {
        let list = fields.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(|it| EndpointId::parse(it.as_str()?).ok()).collect()
    };
    let priority = fields.get("priority").and_then(Value::as_u64).map(u32::try_from);
    Some(PeerMessage {
        to: to.cloned(),
        from: instance("from")?,
        wants: ids("wants"),
        freed: ids("freed"),
        heir: instance("heir"),
        took: ids("took"),
        dropped: ids("dropped"),
        discrepancies: ids("surprises"),
        unasked: fields.get("unasked").and_then(Value::as_bool).unwrap_or(false),
        resign: ids("resign"),
        priority: priority.and_then(Result::ok).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_decoded_as_it_was_encoded() {
        let id = |it| EndpointId::parse(it).unwrap();
        // An id begins with a host's name, which may hold any character.
        let (a, b) = (InstanceId::new("a \"host\"\\\n"), InstanceId::new("b"));
        let said = PeerMessage {
            to: Some(b.clone()),
            from: a,
            wants: vec![id("e1"), id("e1-b_c.d")],
            freed: vec![id("e2")],
            heir: Some(b.clone()),
            took: vec![id("e3")],
            dropped: vec![id("e4")],
            discrepancies: vec![id("e5")],
            unasked: true,
            resign: vec![id("e6")],
            priority: 7,
        };
        assert_eq!(
            decode_message(Some(&b), encode_message(&said, 3).as_bytes(), 3),
            Some(said.clone())
        );
        assert_eq!(
            decode_message(Some(&b), encode_message(&said, 3).as_bytes(), 0),
            None,
            "of another database"
        );
        assert_eq!(
            decode_message(Some(&b), encode_message(&said, 0).as_bytes(), 3),
            None,
            "of another database"
        );
    }

    #[test]
    fn a_malformed_message_is_ignored() {
        for noise in [
            "",
            "look",
            "{",
            "[]",
            "{}",
            r#"{"from":3}"#,
            r#"{"from":""}"#,
            "\u{0}",
            r#"{"from":"a","db":"0"}"#,
        ] {
            assert_eq!(decode_message(None, noise.as_bytes(), 0), None, "{noise:?}");
        }
        // Without a database: of an older version.
        let odd = br#"{"from":"a","wants":[1,"a b","e1",null],"freed":"e2"}"#;
        let odd = decode_message(None, odd, 7).unwrap();
        assert_eq!(odd.wants, [EndpointId::parse("e1").unwrap()]);
        assert!(odd.freed.is_empty());
    }
}

//! What goes over channels: results for whoever is interested, words between instances.
//!
//! Anybody may write to a channel, so reading never trusts: what is not understood is nothing.

use serde_json::{Value, json};

use crate::model::{EndpointId, InstanceId};
use crate::store::{Publication, Wake};

/// A word longer than this is not read.
const WAKE_MAX_BYTES: usize = 256 * 1024;

/// The announcement of a result: the stored hash as JSON. A body that is not UTF-8 is shown lossily.
pub(crate) fn result(instance: &InstanceId, it: &Publication) -> String {
    let sample = &it.sample;
    json!({
        "endpoint": it.tenure.endpoint.as_str(),
        "fence": it.tenure.fence.0,
        "instance": instance.as_str(),
        "ok": u8::from(sample.ok),
        "status": sample.status,
        "error": sample.error,
        "started_at_ms": it.started_at_ms,
        "duration_ms": u64::try_from(sample.duration.as_millis()).unwrap_or(u64::MAX),
        "interval_ms": u64::try_from(it.interval.as_millis()).unwrap_or(u64::MAX),
        "body": String::from_utf8_lossy(&sample.body),
    })
    .to_string()
}

/// A word as it is sent.
pub(crate) fn wake(wake: &Wake) -> String {
    let ids = |it: &[EndpointId]| it.iter().map(EndpointId::as_str).collect::<Vec<_>>().into();
    let mut fields = serde_json::Map::new();
    fields.insert("from".into(), wake.from.as_str().into());
    if let Some(heir) = &wake.heir {
        fields.insert("heir".into(), heir.as_str().into());
    }
    if wake.unasked {
        fields.insert("unasked".into(), true.into());
    }
    if wake.priority > 0 {
        fields.insert("priority".into(), wake.priority.into());
    }
    for (name, endpoints) in [
        ("wants", &wake.wants),
        ("freed", &wake.freed),
        ("took", &wake.took),
        ("dropped", &wake.dropped),
        ("surprises", &wake.surprises),
        ("resign", &wake.resign),
    ] {
        if !endpoints.is_empty() {
            let list: Value = ids(endpoints);
            fields.insert(name.into(), list);
        }
    }
    Value::Object(fields).to_string()
}

/// A word as it was heard; `None` when it makes no sense.
pub(crate) fn heard(to: Option<&InstanceId>, payload: &[u8]) -> Option<Wake> {
    if payload.len() > WAKE_MAX_BYTES {
        return None;
    }
    let Ok(Value::Object(fields)) = serde_json::from_slice(payload) else { return None };
    let instance = |name: &str| {
        let id = fields.get(name)?.as_str().filter(|it| !it.is_empty())?;
        Some(InstanceId::new(id))
    };
    let ids = |name: &str| -> Vec<EndpointId> {
        let list = fields.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(|it| EndpointId::parse(it.as_str()?).ok()).collect()
    };
    let priority = fields.get("priority").and_then(Value::as_u64).map(u32::try_from);
    Some(Wake {
        to: to.cloned(),
        from: instance("from")?,
        wants: ids("wants"),
        freed: ids("freed"),
        heir: instance("heir"),
        took: ids("took"),
        dropped: ids("dropped"),
        surprises: ids("surprises"),
        unasked: fields.get("unasked").and_then(Value::as_bool).unwrap_or(false),
        resign: ids("resign"),
        priority: priority.and_then(Result::ok).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_heard_as_it_was_said() {
        let id = |it| EndpointId::parse(it).unwrap();
        let (a, b) = (InstanceId::new("a"), InstanceId::new("b"));
        let said = Wake {
            to: Some(b.clone()),
            from: a,
            wants: vec![id("e1")],
            freed: vec![id("e2")],
            heir: Some(b.clone()),
            took: vec![id("e3")],
            dropped: vec![id("e4")],
            surprises: vec![id("e5")],
            unasked: true,
            resign: vec![id("e6")],
            priority: 7,
        };
        assert_eq!(heard(Some(&b), wake(&said).as_bytes()), Some(said));
    }

    #[test]
    fn a_word_that_makes_no_sense_is_nothing() {
        for noise in ["", "look", "{", "[]", "{}", r#"{"from":3}"#, r#"{"from":""}"#, "\u{0}"] {
            assert_eq!(heard(None, noise.as_bytes()), None, "{noise:?}");
        }
        let odd = heard(None, br#"{"from":"a","wants":[1,"a b","e1",null],"freed":"e2"}"#).unwrap();
        assert_eq!(odd.wants, [EndpointId::parse("e1").unwrap()]);
        assert!(odd.freed.is_empty());
    }
}

//! What is said about an entry of the history? Which endpoint, which instances, and why.

use std::collections::BTreeMap;

use crate::model::InstanceId;
use crate::store::history::Entry;

/// What it is about: of an instance there is none.
pub(crate) fn endpoint(entry: &Entry) -> &str {
    if entry.endpoint.is_empty() { "-" } else { &entry.endpoint }
}

/// Everybody an entry speaks of.
pub(crate) fn instances(entry: &Entry) -> Vec<InstanceId> {
    let others = [&entry.owner, &entry.heir].into_iter().flatten();
    [&entry.instance].into_iter().chain(others).map(|it| InstanceId::new(it)).collect()
}

/// As short as it is clear.
pub(crate) fn name(id: &str, names: &BTreeMap<&InstanceId, String>) -> String {
    names.get(&InstanceId::new(id)).cloned().unwrap_or_else(|| id.into())
}

/// The reason, and who else is concerned.
pub(crate) fn why(entry: &Entry, names: &BTreeMap<&InstanceId, String>) -> String {
    let mut words: Vec<String> = entry.reason.iter().cloned().collect();
    words.extend(entry.owner.as_ref().map(|it| format!("by {}", name(it, names))));
    words.extend(entry.heir.as_ref().map(|it| format!("for {}", name(it, names))));
    words.join(" ")
}

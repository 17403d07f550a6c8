//! A short name for an instance whose id is too long to show: its host, if only one instance runs there.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::InstanceId;

/// The host where that says which instance is meant, and its last digits too where it does not.
pub(crate) fn short<'a>(
    ids: impl Iterator<Item = &'a InstanceId>,
) -> BTreeMap<&'a InstanceId, String> {
    let mut by_host: BTreeMap<&str, BTreeSet<&InstanceId>> = BTreeMap::new();
    for id in ids {
        by_host.entry(id.host()).or_default().insert(id);
    }
    let mut names = BTreeMap::new();
    for (host, ids) in &by_host {
        for id in ids {
            let digits = id.as_str().rsplit('-').next().filter(|_| *host != id.as_str());
            let name = match digits {
                Some(digits) if ids.len() > 1 => format!("{host}-{digits}"),
                _ => (*host).into(),
            };
            names.insert(*id, name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_enough_unless_two_instances_ran_there() {
        let ids = ["a-1-aaaa", "b-1-bbbb", "b-2-cccc", "b-2-cccc", "odd"].map(InstanceId::new);
        let names: Vec<String> = short(ids.iter()).into_values().collect();
        assert_eq!(names, ["a", "b-bbbb", "b-cccc", "odd"]);
    }
}

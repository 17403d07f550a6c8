//! Which endpoints would move if instances joined or left? Computes the placement of a changed view.

use std::collections::BTreeMap;

use crate::fleet::placement::{assign, preference};
use crate::inspect::status::{Wanted, view, wanted};
use crate::model::{EndpointId, InstanceId, Weight};
use crate::store::Lasting;
use crate::store::admin::overview::{Overview, Stored};

/// Leases that would go from one instance to another; `None` for nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Whose they are.
    pub from: Option<InstanceId>,
    /// Whose they would be.
    pub to: Option<InstanceId>,
    /// How many.
    pub leases: usize,
}

/// What would come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// How many endpoints are to be polled.
    pub endpoints: usize,
    /// What would move, the largest first.
    pub flows: Vec<Flow>,
    /// How many each would own, by id.
    pub shares: BTreeMap<InstanceId, usize>,
}

impl Forecast {
    /// How many leases would change hands.
    pub fn moves(&self) -> usize {
        self.flows.iter().map(|it| it.leases).sum()
    }
}

/// Instances named by `leave` (ids or host names) go, and `join` of weight 1 come, called `new-1` and so on.
/// The names that nobody has, if there are any.
pub fn forecast(
    overview: &Overview,
    join: usize,
    leave: &[String],
) -> Result<Forecast, Vec<String>> {
    let is_named = |id: &InstanceId, name: &String| name == id.as_str() || name == id.host();
    let live = || overview.instances.iter().map(|it| &it.0);
    let unknown: Vec<String> =
        leave.iter().filter(|name| !live().any(|it| is_named(it, name))).cloned().collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let stays = |id: &InstanceId| !leave.iter().any(|name| is_named(id, name));
    let mut instances: Vec<(InstanceId, Lasting<Weight>)> =
        overview.instances.iter().filter(|it| stays(&it.0)).cloned().collect();
    for n in 1..=join {
        let beat = Lasting { value: Weight(1), left: std::time::Duration::MAX };
        instances.push((InstanceId::new(&format!("new-{n}")), beat));
    }
    let found: Vec<(Wanted, Stored)> =
        overview.endpoints.iter().map(|it| (wanted(it, overview.server_ms), it.clone())).collect();
    let owners: BTreeMap<&EndpointId, &InstanceId> =
        found.iter().filter_map(|it| Some((&it.1.id, &it.1.lease.as_ref()?.value))).collect();
    let mut forecast = Forecast::default();
    let mut flows: BTreeMap<(Option<InstanceId>, Option<InstanceId>), usize> = BTreeMap::new();
    for (endpoint, heir) in assign(&view(&instances, &found)) {
        forecast.endpoints += 1;
        let owner = owners.get(&endpoint).map(|it| (*it).clone());
        if let Some(heir) = &heir {
            *forecast.shares.entry(heir.clone()).or_default() += 1;
        }
        if owner != heir {
            *flows.entry((owner, heir)).or_default() += 1;
        }
    }
    for (id, _) in instances {
        forecast.shares.entry(id).or_default();
    }
    let flow = |((from, to), leases)| Flow { from, to, leases };
    forecast.flows = flows.into_iter().map(flow).collect();
    forecast.flows.sort_by_key(|it| std::cmp::Reverse(it.leases));
    Ok(forecast)
}

/// The live instances in the order in which they should own `endpoint`.
pub fn ranking(overview: &Overview, endpoint: &EndpointId) -> Vec<InstanceId> {
    let live: Vec<InstanceId> = overview.instances.iter().map(|it| it.0.clone()).collect();
    preference(endpoint, &live).into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RawSession;
    use std::time::Duration;

    fn overview(live: &[&str], owners: &[Option<&str>]) -> Overview {
        let lasting = |it: &str| Lasting { value: InstanceId::new(it), left: Duration::MAX };
        let beat =
            |id: &&str| (InstanceId::new(id), Lasting { value: Weight(1), left: Duration::MAX });
        let endpoint = |(n, owner): (usize, &Option<&str>)| Stored {
            id: EndpointId::parse(&format!("e{n}")).unwrap(),
            session: Some(RawSession::Value(
                format!(r#"{{"id":"e{n}","address":"h:1"}}"#).into_bytes(),
            )),
            lease: owner.map(lasting),
            granted: None,
            result: None,
        };
        Overview {
            instances: live.iter().map(beat).collect(),
            endpoints: owners.iter().enumerate().map(endpoint).collect(),
            ..Overview::default()
        }
    }

    #[test]
    fn a_join_moves_the_newcomers_share_and_nothing_else() {
        let owners: Vec<Option<&str>> =
            (0..12).map(|n| Some(if n < 6 { "a" } else { "b" })).collect();
        let it = forecast(&overview(&["a", "b"], &owners), 1, &[]).unwrap();
        assert_eq!((it.endpoints, it.moves()), (12, 4));
        assert!(it.flows.iter().all(|it| it.to == Some(InstanceId::new("new-1"))), "{it:?}");
        assert_eq!(it.shares.values().copied().collect::<Vec<_>>(), [4, 4, 4]);
        let still = forecast(&overview(&["a", "b"], &owners), 0, &[]).unwrap();
        assert_eq!(still.moves(), 0, "balanced already");
    }

    #[test]
    fn who_leaves_leaves_everything_and_the_last_leaves_it_to_nobody() {
        let owners: Vec<Option<&str>> =
            (0..12).map(|n| Some(if n < 6 { "a" } else { "b" })).collect();
        let it = forecast(&overview(&["a", "b"], &owners), 0, &["a".into()]).unwrap();
        assert_eq!((it.moves(), it.shares[&InstanceId::new("b")]), (6, 12));
        let it = forecast(&overview(&["a", "b"], &owners), 0, &["a".into(), "b".into()]).unwrap();
        assert!(it.flows.iter().all(|it| it.to.is_none()) && it.moves() == 12, "{it:?}");
        let unknown = forecast(&overview(&["a"], &owners), 0, &["x".into()]);
        assert_eq!(unknown, Err(vec!["x".into()]));
    }
}

//! Is every endpoint polled, by which instance, and is the load even?
//!
//! A pure function of an [`Overview`]. [`placement`](crate::fleet::placement) names the preferred
//! owners, as it does for the instances. An overview is no snapshot, so an endpoint that is changing hands
//! may look unowned: ask twice.

pub mod capacity;
mod certificates;
pub mod check;
pub(crate) mod explain;
pub(crate) mod json;
pub mod late;
pub mod left;
pub mod plan;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fnv::FnvHashMap;

use crate::fleet::placement::{assign, fair_shares};
use crate::fleet::session_cache::understood;
use crate::fleet::view::View;
use crate::inspect::status::late::{Asked, Patience};
use crate::model::{
    Address, EndpointId, FenceToken, InstanceId, InstanceInfo, SessionError, Verdict, Weight,
};
use crate::store::Lasting;
use crate::store::admin::key_types::WrongType;
use crate::store::admin::overview::{EpochRecord, LastResult, Overview, Stored};

pub use crate::inspect::status::verdict::{Alarm, brief, counted};

/// A fleet, judged.
#[derive(Clone, Debug)]
pub struct Status {
    /// The server's clock when this was the case.
    pub server_ms: u64,
    /// How long nothing new is granted (R5); `None` when it is.
    pub hold_off: Option<Duration>,
    /// The live ones by id, then those without a heartbeat that still own something.
    pub instances: Vec<InstanceStatus>,
    /// The worst first, then by id.
    pub endpoints: Vec<EndpointStatus>,
    /// Instance ids and host names that are to hold nothing.
    pub drained: Vec<String>,
    /// Keys that are not what they should be, and why.
    pub odd_keys: Vec<(String, &'static str)>,
    /// Of the keys of which there is one, those of a wrong type.
    pub wrong_types: Vec<WrongType>,
}

/// An instance that is alive, or owns something.
#[derive(Clone, Debug)]
pub struct InstanceStatus {
    /// Its id.
    pub id: InstanceId,
    /// Its weight and how long its last heartbeat counts; `None` when it has none.
    pub heartbeat: Option<Lasting<Weight>>,
    /// How many endpoints that are to be polled it owns.
    pub owned: usize,
    /// How many it would own if endpoints could be divided.
    pub fair_share: f64,
    /// An operator wants it to hold nothing.
    pub drained: bool,
    /// It was revoked, and has not come back (R16).
    pub revoked: bool,
    /// What it tells about itself; `None` of an older version, or without a heartbeat.
    pub info: Option<InstanceInfo>,
}

/// An endpoint that has a session or a lease.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Its id, or the suffix of its session's key where that is no id.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// The address in its session, or why the session cannot be understood; `None` without a session.
    pub declared: Option<Result<Address, SessionError>>,
    /// Who has it, and for how long.
    pub lease: Option<Lasting<InstanceId>>,
    /// Whether who has it has a heartbeat.
    pub owner_lives: bool,
    /// Who should have it.
    pub preferred: Option<InstanceId>,
    /// The fence of its last grant.
    pub fence: Option<FenceToken>,
    /// What its last poll came to.
    pub result: Option<LastResult>,
    /// How long ago that poll began.
    pub age: Option<Duration>,
    /// How long ago it was granted to who has it, as far as the fence tells.
    pub granted_ago: Option<Duration>,
    /// How often it should be polled, where that is known.
    pub interval: Option<Duration>,
    /// By how much it is late, beyond all patience; `None` when it is not, or has no owner that lives.
    pub overdue: Option<Duration>,
    /// By how much it is behind, which is late only if many of its owner's are.
    pub(crate) behind: Option<Duration>,
    /// Its owner should have renewed it long ago.
    pub renewal_overdue: bool,
}

/// How an endpoint stands, the worst first. One that is in two of these is in the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// To be polled, and nobody has it.
    Unowned,
    /// Its owner has no heartbeat.
    Abandoned,
    /// Not polled for long, though it is owned.
    Stale,
    /// Owned, and polled less often than it should be.
    Late,
    /// Its last poll failed.
    Failing,
    /// Its session cannot be understood, so nobody polls it.
    Invalid,
    /// Its renewal is overdue, so it may not be polled at the moment.
    Uncertain,
    /// Another instance should have it.
    Moving,
    /// Owned, but not polled yet.
    New,
    /// A lease without a session: about to end, or held by a program of your own.
    NoSession,
    /// Its session says that it is not to be polled.
    Paused,
    /// Owned and polled.
    Ok,
}

/// What a session asks for.
pub(crate) enum Wanted {
    Polls(Asked, Address),
    Pause(Address),
    Nonsense(SessionError),
    Nothing,
}

impl State {
    /// Every one, the worst first.
    pub const ALL: [Self; 12] = [
        Self::Unowned,
        Self::Abandoned,
        Self::Stale,
        Self::Late,
        Self::Failing,
        Self::Invalid,
        Self::Uncertain,
        Self::Moving,
        Self::New,
        Self::NoSession,
        Self::Paused,
        Self::Ok,
    ];

    /// One or two words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unowned => "unowned",
            Self::Abandoned => "abandoned",
            Self::Stale => "stale",
            Self::Late => "late",
            Self::Failing => "failing",
            Self::Invalid => "invalid",
            Self::Uncertain => "uncertain",
            Self::Moving => "moving",
            Self::New => "new",
            Self::NoSession => "no session",
            Self::Paused => "paused",
            Self::Ok => "ok",
        }
    }
}

impl EpochRecord {
    /// What is left of the hold-off (R5). Starts again when the server's time went back, as in epoch.lua.
    pub fn hold_off_left(&self, server_ms: u64) -> Option<Duration> {
        let whole = self.lease_ttl_ms.saturating_add(self.margin_ms);
        let passed = server_ms.saturating_sub(self.since_ms);
        whole.checked_sub(passed).filter(|it| *it > 0).map(Duration::from_millis)
    }
}

impl Status {
    /// Judges what was found. An endpoint that missed two rounds is late; so is one that missed half a round, if a tenth
    /// of its owner's did. Without a result for `stale_after`, too, it is stale: its owner renews the lease and
    /// does not poll.
    pub fn of(overview: Overview, stale_after: Duration) -> Self {
        let Overview { server_ms, epoch, drained, instances, infos, endpoints, .. } = overview;
        let Overview { revoked, misnamed, odd_keys, wrong_types, took, .. } = overview;
        let patience = Patience { stale_after, grace: late::grace(took) };
        let found: Vec<(Wanted, Stored)> =
            endpoints.into_iter().map(|it| (wanted(&it, server_ms), it)).collect();
        let view = view(&instances, &found);
        let ttl = epoch.map(|it| Duration::from_millis(it.lease_ttl_ms));
        let usual = late::usual_interval(&found);
        let mut preferred: FnvHashMap<EndpointId, Option<InstanceId>> =
            assign(&view).into_iter().collect();
        let judged = found.into_iter().map(|(wanted, stored)| {
            let preferred = preferred.remove(&stored.id).flatten();
            let mut it = EndpointStatus::of(stored, preferred, &view, server_ms);
            it.renewal_overdue = it.is_overdue(ttl);
            it.judge(wanted, patience, usual);
            it
        });
        let misnamed = misnamed.into_iter().map(EndpointStatus::misnamed);
        let mut endpoints: Vec<EndpointStatus> = judged.chain(misnamed).collect();
        late::judge_owners(&mut endpoints);
        endpoints.sort_by(|a, b| (a.state, &a.name).cmp(&(b.state, &b.name)));
        Self {
            server_ms,
            hold_off: epoch.and_then(|it| it.hold_off_left(server_ms)),
            instances: instance_statuses(&view, instances, (infos, &revoked), &drained, &endpoints),
            endpoints,
            drained,
            odd_keys,
            wrong_types,
        }
    }

    /// How many endpoints are in `state`.
    pub fn count(&self, state: State) -> usize {
        self.endpoints.iter().filter(|it| it.state == state).count()
    }

    /// How many stored sessions there are, of every kind.
    pub fn n_sessions(&self) -> usize {
        self.endpoints.len() - self.count(State::NoSession)
    }

    /// How many endpoints an instance should poll.
    pub fn n_wanted(&self) -> usize {
        self.n_sessions() - self.count(State::Paused) - self.count(State::Invalid)
    }

    /// How many instances have a heartbeat.
    pub fn n_live(&self) -> usize {
        self.instances.iter().filter(|it| it.heartbeat.is_some()).count()
    }

    /// How many endpoints have a live owner that should hand them over.
    pub fn n_to_move(&self) -> usize {
        self.endpoints.iter().filter(|it| it.is_misplaced()).count()
    }
}

impl EndpointStatus {
    fn of(stored: Stored, preferred: Option<InstanceId>, view: &View, server_ms: u64) -> Self {
        let Stored { id, lease, granted, result, .. } = stored;
        let polled_at_ms = result.as_ref().and_then(|it| it.started_at_ms);
        let age = polled_at_ms.map(|it| Duration::from_millis(server_ms.saturating_sub(it)));
        let owner_lives = lease.as_ref().is_some_and(|it| view.is_live(&it.value));
        let granted_ago = late::granted_ago(granted, server_ms).filter(|_| lease.is_some());
        let it = Self::named(id.to_string());
        Self { lease, owner_lives, preferred, fence: granted, granted_ago, result, age, ..it }
    }

    fn judge(&mut self, wanted: Wanted, patience: Patience, usual: Option<Duration>) {
        let (state, declared) = match wanted {
            Wanted::Nothing => (State::NoSession, None),
            Wanted::Pause(address) => (State::Paused, Some(Ok(address))),
            Wanted::Nonsense(error) => (State::Invalid, Some(Err(error))),
            Wanted::Polls(asked, address) => {
                self.expect(asked, usual);
                (self.state_of_polling(asked, patience), Some(Ok(address)))
            }
        };
        (self.state, self.declared) = (state, declared);
    }

    fn state_of_polling(&mut self, asked: Asked, patience: Patience) -> State {
        if self.lease.is_none() {
            return State::Unowned;
        }
        if !self.owner_lives {
            return State::Abandoned;
        }
        if let Some(late) = self.lateness(asked, patience) {
            return late;
        }
        match &self.result {
            Some(result) if result.verdict() == Some(Verdict::Failing) => State::Failing,
            _ if self.renewal_overdue => State::Uncertain,
            _ if self.is_misplaced() => State::Moving,
            None => State::New,
            Some(_) => State::Ok,
        }
    }

    fn misnamed(name: String) -> Self {
        let declared = EndpointId::parse(&name).err().map(|it| Err(SessionError::Key(it)));
        Self { state: State::Invalid, declared, ..Self::named(name) }
    }

    fn named(name: String) -> Self {
        let (state, owner_lives) = (State::Ok, false);
        let (declared, lease, preferred, fence, result) = (None, None, None, None, None);
        let (age, granted_ago, interval, overdue, behind) = (None, None, None, None, None);
        Self {
            name,
            state,
            declared,
            lease,
            owner_lives,
            preferred,
            fence,
            result,
            age,
            granted_ago,
            interval,
            overdue,
            behind,
            renewal_overdue: false,
        }
    }

    /// Why its session cannot be understood.
    pub fn invalid(&self) -> Option<&SessionError> {
        self.declared.as_ref()?.as_ref().err()
    }

    /// Where its session says that it is.
    pub fn address(&self) -> Option<&Address> {
        self.declared.as_ref()?.as_ref().ok()
    }

    /// It has not been renewed for three quarters of its life, and no settings let an owner wait that long.
    fn is_overdue(&self, ttl: Option<Duration>) -> bool {
        self.lease.as_ref().zip(ttl).is_some_and(|(lease, ttl)| lease.left < ttl / 4)
    }

    /// Its owner lives, and another instance should have it.
    fn is_misplaced(&self) -> bool {
        let owner = self.lease.as_ref().map(|it| &it.value);
        self.owner_lives && self.preferred.is_some() && self.preferred.as_ref() != owner
    }
}

fn wanted(stored: &Stored, server_ms: u64) -> Wanted {
    let Some(raw) = &stored.session else { return Wanted::Nothing };
    match understood(&stored.id, raw) {
        Ok(session) if session.is_paused_at(Some(server_ms)) => Wanted::Pause(session.address),
        Ok(session) => {
            let asked = Asked { interval: session.interval, timeout: session.timeout };
            Wanted::Polls(asked, session.address)
        }
        Err(error) => Wanted::Nonsense(error),
    }
}

/// As every instance sees it.
fn view(instances: &[(InstanceId, Lasting<Weight>)], found: &[(Wanted, Stored)]) -> View {
    let mut view = View::default();
    let live: Vec<_> = instances.iter().map(|it| (it.0.clone(), it.1.value)).collect();
    view.set_instances(&live);
    for (_, stored) in found.iter().filter(|it| matches!(it.0, Wanted::Polls(..))) {
        view.add(&stored.id);
        view.set_owner(&stored.id, stored.lease.as_ref().map(|it| &it.value));
    }
    view
}

fn instance_statuses(
    view: &View,
    instances: Vec<(InstanceId, Lasting<Weight>)>,
    (mut infos, revoked): (BTreeMap<InstanceId, InstanceInfo>, &BTreeSet<InstanceId>),
    drained: &[String],
    endpoints: &[EndpointStatus],
) -> Vec<InstanceStatus> {
    let is_drained =
        |id: &InstanceId| drained.iter().any(|it| it == id.as_str() || it == id.host());
    let shares = fair_shares(view);
    let alive = instances.into_iter().zip(shares).map(|((id, heartbeat), fair_share)| {
        let (owned, drained) = (view.known(&id).map_or(0, |it| it.owns), is_drained(&id));
        let (info, heartbeat, revoked) =
            (infos.remove(&id), Some(heartbeat), revoked.contains(&id));
        InstanceStatus { id, heartbeat, owned, fair_share, drained, revoked, info }
    });
    let mut gone: BTreeMap<&InstanceId, usize> = BTreeMap::new();
    let abandoned = endpoints.iter().filter(|it| it.state == State::Abandoned);
    abandoned
        .filter_map(|it| it.lease.as_ref())
        .for_each(|it| *gone.entry(&it.value).or_default() += 1);
    let gone = gone.into_iter().map(|(id, owned)| InstanceStatus {
        id: id.clone(),
        heartbeat: None,
        owned,
        fair_share: 0.0,
        drained: is_drained(id),
        revoked: false,
        info: None,
    });
    alive.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RawSession;

    fn judged(live: &[(&str, u32)], owners: &[(&str, Option<&str>)]) -> Status {
        let lasting = |it: &str| Lasting { value: InstanceId::new(it), left: Duration::MAX };
        let beat = |weight| Lasting { value: Weight(weight), left: Duration::MAX };
        let endpoint = |(id, owner): &(&str, Option<&str>)| Stored {
            id: EndpointId::parse(id).unwrap(),
            session: Some(RawSession::Value(
                format!(r#"{{"id":"{id}","address":"h:1"}}"#).into_bytes(),
            )),
            lease: owner.map(lasting),
            granted: None,
            result: None,
        };
        let overview = Overview {
            instances: live.iter().map(|it| (InstanceId::new(it.0), beat(it.1))).collect(),
            endpoints: owners.iter().map(endpoint).collect(),
            ..Overview::default()
        };
        Status::of(overview, Duration::from_secs(120))
    }

    /// What is shown is what the instances act on.
    #[test]
    fn the_preferred_owner_is_the_plans() {
        let status =
            judged(&[("a", 1), ("b", 3)], &[("e1", Some("a")), ("e2", Some("a")), ("e3", None)]);
        let mut view = View::default();
        view.set_instances(&[(InstanceId::new("a"), Weight(1)), (InstanceId::new("b"), Weight(3))]);
        for (id, owner) in [("e1", Some("a")), ("e2", Some("a")), ("e3", None)] {
            let id = EndpointId::parse(id).unwrap();
            view.add(&id);
            view.set_owner(&id, owner.map(InstanceId::new).as_ref());
        }
        for (id, heir) in assign(&view) {
            let shown = status.endpoints.iter().find(|it| it.name == id.as_str()).unwrap();
            assert_eq!(shown.preferred, heir, "{id}");
        }
        let shares: Vec<f64> = status.instances.iter().map(|it| it.fair_share).collect();
        assert_eq!(shares, [0.75, 2.25]);
        assert_eq!(status.n_to_move(), 1, "{:#?}", status.endpoints);
    }

    #[test]
    fn the_verdict_has_words_for_every_fleet() {
        for (live, owners, words) in [
            (&[][..], &[][..], "No sessions are stored, and no instance is running."),
            (&[("a", 1)], &[], "No sessions are stored: nothing to poll for 1 instance."),
            (&[], &[("e", None)], "No instance is running: nobody polls 1 endpoint."),
            (&[], &[("e", Some("a"))], "No instance is running: nobody polls 1 endpoint."),
            (&[("a", 1)], &[("e", None)], "1 instance has 1 endpoint to itself: 1 unowned."),
            (
                &[("a", 1), ("b", 1)],
                &[("e", Some("a")), ("f", Some("a"))],
                "2 instances share 2 endpoints: 1 not polled yet, 1 to move.",
            ),
            (
                &[("a", 0)],
                &[("e", Some("a"))],
                "1 instance has 1 endpoint to itself: 1 not polled yet, balanced. \
                 Every instance has weight 0: nothing new is taken.",
            ),
        ] {
            assert_eq!(judged(live, owners).verdict(), words);
        }
    }

    /// R5, as epoch.lua counts it.
    #[test]
    fn a_hold_off_ends_and_starts_again_when_time_goes_back() {
        let record = |since_ms| EpochRecord { epoch: 1, since_ms, lease_ttl_ms: 30, margin_ms: 1 };
        let left = |since_ms, now| record(since_ms).hold_off_left(now).map(|it| it.as_millis());
        assert_eq!(left(100, 100), Some(31));
        assert_eq!(left(100, 130), Some(1));
        assert_eq!(left(100, 131), None);
        assert_eq!(left(100, 50), Some(31), "time went back");
        let forged = EpochRecord { margin_ms: u64::MAX, ..record(u64::MAX) };
        assert!(forged.hold_off_left(0).is_some());
    }
}

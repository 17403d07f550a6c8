//! A fleet as it was read, judged and indexed, so that a page of a hundred thousand endpoints is made in milliseconds. Pure.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::fleet::session_cache::understood;
use crate::inspect::short_names;
use crate::inspect::status::json::{Leaders, camel};
use crate::inspect::status::left::{Lately, left_lately};
use crate::inspect::status::{Alarm, EndpointStatus, InstanceStatus, State, Status};
use crate::model::{Address, InstanceId};
use crate::store::RawSession;
use crate::store::admin::overview::Overview;
use crate::store::history::{Entry, in_order};

/// Rows of a list on one page.
pub(crate) const ROWS: usize = 100;
/// An instance that left longer ago is of no interest any more.
const LATELY: Duration = Duration::from_secs(3_600);
/// No longer text is looked for.
const SOUGHT_CHARS_MAX: usize = 200;

/// Everything that was read at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) led: Leaders,
    /// The newest last.
    pub(crate) moves: Vec<Entry>,
    pub(crate) lately: Option<Lately>,
    pub(crate) read_at: Moment,
    pub(crate) took: Duration,
    pub(crate) verdict: String,
    pub(crate) alarm: Alarm,
    counts: BTreeMap<State, usize>,
    by_owner: FnvHashMap<InstanceId, Vec<usize>>,
    by_name: FnvHashMap<String, usize>,
    names: BTreeMap<InstanceId, String>,
    sessions: FnvHashMap<String, RawSession>,
    /// What `status --json` prints; made when it is first asked for.
    pub(crate) document: OnceLock<Arc<[u8]>>,
}

/// Which endpoints to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) states: Option<Vec<State>>,
    pub(crate) owner: String,
    /// A part of the id, of the owner's or of the error, in lower case.
    pub(crate) text: String,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub(crate) rows: Vec<&'a EndpointStatus>,
    /// Rows before this page.
    pub(crate) before: usize,
    /// Rows on all pages.
    pub(crate) total: usize,
}

impl Filter {
    /// From the words of a query. A state that is none is no restriction.
    pub(crate) fn of(state: &str, owner: &str, text: &str) -> Self {
        let states: Vec<State> = match state {
            "attention" => State::ALL.into_iter().filter(|it| it.alarm() == Alarm::Act).collect(),
            word => State::ALL.into_iter().filter(|it| camel(it.word()) == word).collect(),
        };
        let text = text.trim().chars().take(SOUGHT_CHARS_MAX).collect::<String>().to_lowercase();
        let states = Some(states).filter(|it| !it.is_empty());
        Self { states, owner: owner.to_owned(), text }
    }

    fn admits(&self, it: &EndpointStatus) -> bool {
        let is_in = |text: &str| text.to_lowercase().contains(&self.text);
        self.states.as_ref().is_none_or(|states| states.contains(&it.state))
            && (self.text.is_empty()
                || is_in(&it.name)
                || it.lease.as_ref().is_some_and(|it| is_in(it.value.as_str()))
                || it.result.as_ref().and_then(|it| it.error.as_ref()).is_some_and(|it| is_in(it)))
    }
}

impl Snapshot {
    /// Judges and indexes what was read. `entries` are all of the history, if they may be read.
    pub(crate) fn of(
        overview: Overview,
        led: Leaders,
        entries: Option<Vec<Entry>>,
        stale_after: Duration,
        (read_at, took): (Moment, Duration),
    ) -> Self {
        let session = |it: &crate::store::admin::overview::Stored| {
            Some((it.id.to_string(), it.session.clone()?))
        };
        let sessions = overview.endpoints.iter().filter_map(session).collect();
        let status = Status::of(overview, stale_after);
        let lately = entries.clone().map(|it| left_lately(it, &status, LATELY));
        let moves = in_order(entries.unwrap_or_default());
        let mut counts: BTreeMap<State, usize> = BTreeMap::new();
        let mut by_owner: FnvHashMap<InstanceId, Vec<usize>> = FnvHashMap::default();
        let mut by_name = FnvHashMap::default();
        for (at, it) in status.endpoints.iter().enumerate() {
            *counts.entry(it.state).or_default() += 1;
            by_name.insert(it.name.clone(), at);
            if let Some(lease) = &it.lease {
                by_owner.entry(lease.value.clone()).or_default().push(at);
            }
        }
        let instances = status.instances.iter().map(|it| &it.id);
        let names = short_names::short(instances.chain(by_owner.keys()));
        let names = names.into_iter().map(|(id, name)| (id.clone(), name)).collect();
        let (verdict, alarm) = (status.verdict(), status.alarm());
        Self {
            status,
            led,
            moves,
            lately,
            read_at,
            took,
            verdict,
            alarm,
            counts,
            by_owner,
            by_name,
            names,
            sessions,
            document: OnceLock::new(),
        }
    }

    /// How many endpoints are in `state`.
    pub(crate) fn count(&self, state: State) -> usize {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    pub(crate) fn endpoint(&self, name: &str) -> Option<&EndpointStatus> {
        self.by_name.get(name).and_then(|at| self.status.endpoints.get(*at))
    }

    pub(crate) fn instance(&self, id: &str) -> Option<&InstanceStatus> {
        self.status.instances.iter().find(|it| it.id.as_str() == id)
    }

    /// As short as it is clear.
    pub(crate) fn name<'a>(&'a self, id: &'a InstanceId) -> &'a str {
        self.names.get(id).map_or(id.as_str(), String::as_str)
    }

    /// The short names, for those who need them all.
    pub(crate) fn names(&self) -> BTreeMap<&InstanceId, String> {
        self.names.iter().map(|(id, name)| (id, name.clone())).collect()
    }

    /// A page of those that the filter admits, the worst first; the last page where there is no such page.
    pub(crate) fn page(&self, filter: &Filter, number: usize) -> Page<'_> {
        let all = &self.status.endpoints;
        let found: Vec<&EndpointStatus> = match filter.owner.as_str() {
            "" => all.iter().filter(|it| filter.admits(it)).collect(),
            owner => {
                let owned = self.by_owner.get(&InstanceId::new(owner)).into_iter().flatten();
                owned.filter_map(|at| all.get(*at)).filter(|it| filter.admits(it)).collect()
            }
        };
        let last = found.len().saturating_sub(1) / ROWS;
        let before = number.saturating_sub(1).min(last) * ROWS;
        let total = found.len();
        Page { rows: found.into_iter().skip(before).take(ROWS).collect(), before, total }
    }

    /// The last moves of an endpoint, the newest first.
    pub(crate) fn moves_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.moves.iter().rev().filter(move |it| it.endpoint == name)
    }

    /// Where an endpoint is, without what may be a secret: the query of a URL. An address with a user or a password is no
    /// address to begin with.
    pub(crate) fn address(&self, endpoint: &EndpointStatus) -> Option<String> {
        let id = crate::model::EndpointId::parse(&endpoint.name).ok()?;
        let session = understood(&id, self.sessions.get(&endpoint.name)?).ok()?;
        let address = match session.address {
            Address::Http(url) => url,
            Address::Tcp(place) => format!("tcp://{place}"),
        };
        Some(match address.split_once('?') {
            Some((shown, _)) => format!("{shown}?…"),
            None => address,
        })
    }
}

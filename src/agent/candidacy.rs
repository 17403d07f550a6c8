//! What is a client for a role, and what has it been told? A leadership lasts as long as the client was promised.
//!
//! While a client leads, the agent keeps a `Duty` for it. So a role that another instance wants is not given back before the
//! client has said `YIELD`, has gone, or until the time is over that it was last told.

use crate::agent::promise::Promise;
use crate::agent::protocol::{Answer, Push};
use crate::clock::Moment;
use crate::election::{Duty, LeaderElection};
use crate::model::{InstanceId, Role};

/// One role of one client.
#[derive(Default)]
pub(crate) struct Candidacy {
    /// The number of its place in line.
    place: u64,
    /// Only the client at the front of the agent's line stands.
    election: Option<LeaderElection>,
    duty: Option<Duty>,
    told: Told,
    /// Until when the client may take itself for the leader.
    promised_until: Moment,
}

/// What the client was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    Follower(InstanceId),
    Leader,
    Suspended,
    Yield,
}

/// How the leadership of a client is.
enum Standing {
    Leads,
    Doubted,
    Wanted,
    Over,
}

impl Candidacy {
    /// Waits at this place in line.
    pub(crate) fn at(place: u64) -> Self {
        Self { place, ..Self::default() }
    }

    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Stands from now on.
    pub(crate) fn stand(&mut self, election: LeaderElection) {
        self.election = Some(election);
    }

    /// Whether the client may take itself for the leader.
    pub(crate) fn leads_or_did(&self) -> bool {
        self.duty.is_some()
    }

    /// For the end of it, without a lock: dropping an election waits for Redis. The role is given up at once.
    pub(crate) fn end(mut self) -> Option<LeaderElection> {
        self.duty = None;
        self.election.as_ref().into_iter().for_each(LeaderElection::resign);
        self.election
    }

    /// What has changed since the client was told. `leader` is as the agent knows it, and learns what this client knows.
    pub(crate) fn look(
        &mut self,
        role: &Role,
        leader: &mut Option<InstanceId>,
        promise: &mut Promise,
        now: Moment,
    ) -> Option<Push> {
        if let Some(election) = &self.election {
            *leader = election.leader();
            if self.duty.is_none() {
                self.duty = election.enter();
            }
        }
        let Some(duty) = &self.duty else { return self.follow(role, leader.as_ref()) };
        let (role, term) = (role.clone(), duty.term());
        match standing(duty, now) {
            Standing::Leads if self.told == Told::Leader => None,
            Standing::Leads => {
                let lasts = promise.give(now, duty.deadline().unwrap_or(now));
                self.promised_until = self.promised_until.max(lasts.until);
                self.told = Told::Leader;
                Some(Push::Elected { role, term, lasts })
            }
            Standing::Doubted if self.told == Told::Suspended => None,
            // Told of a grant that came with a doubt only once the doubt has gone.
            Standing::Doubted if self.told != Told::Leader => None,
            Standing::Doubted => {
                self.told = Told::Suspended;
                Some(Push::Suspended { role, term })
            }
            Standing::Wanted if now < self.promised_until => {
                if self.told == Told::Yield {
                    return None;
                }
                self.told = Told::Yield;
                let lasts = promise.give(now, self.promised_until);
                Some(Push::Yield { role, term, lasts })
            }
            Standing::Wanted | Standing::Over => {
                self.duty = None;
                self.promised_until = Moment::MIN;
                let was_told = !matches!(self.told, Told::Nothing | Told::Follower(_));
                let leader = leader.clone();
                self.told = leader.clone().map_or(Told::Nothing, Told::Follower);
                was_told.then_some(Push::Follower { role, leader, lost: Some(term) })
            }
        }
    }

    fn follow(&mut self, role: &Role, leader: Option<&InstanceId>) -> Option<Push> {
        let leader = leader?;
        if self.told == Told::Follower(leader.clone()) {
            return None;
        }
        self.told = Told::Follower(leader.clone());
        Some(Push::Follower { role: role.clone(), leader: Some(leader.clone()), lost: None })
    }

    /// The answer to `LEADS`. Call [`Self::look`] before.
    pub(crate) fn leads(
        &mut self,
        role: &Role,
        leader: Option<InstanceId>,
        promise: &mut Promise,
        now: Moment,
    ) -> Answer {
        let role = role.clone();
        let Some(duty) = &self.duty else { return Answer::Following { role, leader } };
        let term = duty.term();
        match duty.deadline().filter(|_| duty.holds()) {
            Some(deadline) => {
                let lasts = promise.give(now, deadline);
                self.promised_until = self.promised_until.max(lasts.until);
                Answer::Leading { role, term, lasts }
            }
            None => Answer::Suspended { role, term },
        }
    }

    /// Gives up the leadership and stands on; false if this client does not lead.
    pub(crate) fn give_way(&mut self) -> bool {
        let (Some(_duty), Some(election)) = (self.duty.take(), &self.election) else {
            return false;
        };
        election.resign(); // nothing if it is being given up already
        self.told = Told::Nothing;
        self.promised_until = Moment::MIN;
        true
    }
}

fn standing(duty: &Duty, now: Moment) -> Standing {
    match duty.deadline() {
        Some(_) if duty.holds() => Standing::Leads,
        Some(deadline) if now < deadline => Standing::Doubted,
        None if duty.is_leaving() => Standing::Wanted,
        _ => Standing::Over,
    }
}

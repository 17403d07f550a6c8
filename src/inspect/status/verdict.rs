//! Is all well? Sums the status of a fleet up in one sentence with a severity.

use std::time::Duration;

use crate::inspect::status::{State, Status};
use crate::store::admin::key_types::SingletonKey;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// All is well.
    None,
    /// It should pass by itself, or harms nothing yet.
    Watch,
    /// Something is not polled, or fails.
    Act,
}

impl State {
    /// How bad it is.
    pub fn alarm(self) -> Alarm {
        match self {
            Self::Unowned | Self::Abandoned | Self::Stale | Self::Late => Alarm::Act,
            Self::Failing | Self::Invalid => Alarm::Act,
            Self::Uncertain | Self::Moving | Self::New => Alarm::Watch,
            Self::NoSession | Self::Paused | Self::Ok => Alarm::None,
        }
    }
}

impl Status {
    /// How bad it is, all in all.
    pub fn alarm(&self) -> Alarm {
        let worst = self.endpoints.iter().map(|it| it.state.alarm()).max();
        let certificates = if self.expiring().is_empty() { Alarm::None } else { Alarm::Watch };
        worst.unwrap_or(Alarm::None).max(certificates).max(self.general_alarm())
    }

    /// How bad it is beside the endpoints.
    pub(super) fn general_alarm(&self) -> Alarm {
        let watch = self.hold_off.is_some()
            || self.n_to_move() > 0
            || !self.odd_keys.is_empty()
            || self.takes_nothing()
            || self.instances.iter().any(|it| it.slow_behind() > 0);
        // Nobody polls for long without it, whatever it looks like at the moment.
        let act = self.wrong_types.iter().any(|it| it.which == SingletonKey::Epoch)
            || self.instances.iter().any(|it| it.shortfall().is_some());
        match (act, watch) {
            (true, _) => Alarm::Act,
            (false, true) => Alarm::Watch,
            (false, false) => Alarm::None,
        }
    }

    /// The whole of it in a sentence, or a few.
    pub fn verdict(&self) -> String {
        let idle = self.counts(&[(State::Paused, "paused"), (State::Invalid, "invalid")]);
        let mut verdict = self.about_polling();
        if !idle.is_empty() {
            verdict.push_str(&format!("; {}", idle.join(", ")));
        }
        verdict.push('.');
        verdict.push_str(&self.about_capacity());
        verdict.push_str(&self.about_late());
        verdict.push_str(&self.about_certificates());
        if self.takes_nothing() {
            verdict.push_str(" Every instance has weight 0: nothing new is taken.");
        }
        for it in &self.wrong_types {
            verdict.push_str(&format!(" {}; {}.", it.sentence(), it.way_out()));
        }
        verdict
    }

    fn about_polling(&self) -> String {
        let instances = counted(self.n_live(), "instance");
        let endpoints = counted(self.n_wanted(), "endpoint");
        match (self.n_live(), self.n_wanted()) {
            (0, 0) if self.n_sessions() == 0 => {
                "No sessions are stored, and no instance is running".into()
            }
            (0, 0) => "No instance is running, and there is nothing to poll".into(),
            (0, _) => format!("No instance is running: nobody polls {endpoints}"),
            (_, 0) if self.n_sessions() == 0 => {
                format!("No sessions are stored: nothing to poll for {instances}")
            }
            (_, 0) => format!("Nothing to poll for {instances}"),
            (1, _) => format!("{instances} has {endpoints} to itself: {}", self.how_it_goes()),
            _ => format!("{instances} share {endpoints}: {}", self.how_it_goes()),
        }
    }

    fn how_it_goes(&self) -> String {
        let mut parts = self.counts(&[
            (State::Unowned, "unowned"),
            (State::Abandoned, "left by the dead"),
            (State::Stale, "not polled for long"),
            (State::Late, "polled late"),
            (State::New, "not polled yet"),
        ]);
        if parts.is_empty() {
            parts.push("all polled".into());
        }
        parts.extend(self.counts(&[(State::Failing, "failing"), (State::Uncertain, "uncertain")]));
        let homeless = self.count(State::Unowned) + self.count(State::Abandoned);
        match self.n_to_move() {
            0 if homeless > 0 => (),
            0 => parts.push("balanced".into()),
            n => parts.push(format!("{n} to move")),
        }
        parts.join(", ")
    }

    /// Those there are any of.
    pub(super) fn counts(&self, states: &[(State, &str)]) -> Vec<String> {
        let counts = states.iter().map(|(state, words)| (self.count(*state), words));
        counts.filter(|it| it.0 > 0).map(|(n, words)| format!("{n} {words}")).collect()
    }

    /// There is something to poll, and no instance may be given anything.
    pub(super) fn takes_nothing(&self) -> bool {
        let mut weights = self.instances.iter().filter_map(|it| it.heartbeat.as_ref());
        self.n_live() > 0 && self.n_wanted() > 0 && weights.all(|it| it.value.0 == 0)
    }
}

/// Two digits say enough.
pub fn brief(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        _ if time == Duration::MAX => "no end".into(),
        0..10_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        10_000..120_000 => format!("{}s", ms / 1_000),
        120_000..7_200_000 => format!("{}m", ms / 60_000),
        7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        _ => format!("{}d", ms / 86_400_000),
    }
}

/// `1 endpoint`, `2 endpoints`.
pub fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

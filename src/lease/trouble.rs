//! Has a problem begun, changed or ended? Lets its users report each change once, and not each failed attempt. Pure.

use std::time::Duration;

use crate::clock::Moment;

/// Why something fails, as it was last reported.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    reason: Option<String>,
}

/// A change to report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It fails, for this reason; before it worked, or failed for another.
    Failed(String),
    /// It works again.
    Resumed,
}

impl Trouble {
    /// Takes the outcome of an attempt, with the reason if it failed; `None` if that was reported before.
    pub(crate) fn update(&mut self, reason: Option<String>) -> Option<Change> {
        if self.reason == reason {
            return None;
        }
        self.reason.clone_from(&reason);
        Some(reason.map_or(Change::Resumed, Change::Failed))
    }

    /// Whether the last attempt failed.
    pub(crate) fn is_on(&self) -> bool {
        self.reason.is_some()
    }
}

/// A time without answers, reported when it begins and when it ends. Reasons in between do not count.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Moment>,
}

impl Outage {
    /// An attempt failed; true if the outage begins with it.
    pub(crate) fn begin(&mut self, now: Moment) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert(now);
        begins
    }

    /// Whether the last attempt failed.
    pub(crate) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// An attempt succeeded: how long the outage has lasted, if there was one.
    pub(crate) fn end(&mut self, now: Moment) -> Option<Duration> {
        self.since.take().map(|it| now.since(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_reported_once_until_it_changes() {
        let mut trouble = Trouble::default();
        let why = |it: &str| Some(it.to_owned());
        assert_eq!(trouble.update(None), None, "it never failed");
        assert_eq!(trouble.update(why("full")), Some(Change::Failed("full".into())));
        assert_eq!(trouble.update(why("full")), None);
        assert_eq!(trouble.update(why("gone")), Some(Change::Failed("gone".into())));
        assert!(trouble.is_on());
        assert_eq!(trouble.update(None), Some(Change::Resumed));
        assert_eq!(trouble.update(None), None);
    }

    #[test]
    fn an_outage_is_reported_at_its_begin_and_its_end() {
        let (mut outage, at) = (Outage::default(), |s: u64| Moment::from_nanos(s * 1_000_000_000));
        assert_eq!(outage.end(at(1)), None);
        assert!(outage.begin(at(2)) && !outage.begin(at(3)));
        assert_eq!(outage.end(at(5)), Some(Duration::from_secs(3)));
        assert_eq!(outage.end(at(6)), None);
    }
}

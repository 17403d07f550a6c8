//! Do the singleton keys (`epoch`, `drain`, `history`, `changes`) have the expected Redis type? An operator may have written over them.

use std::time::Duration;

use crate::store::StoreResult;
use crate::store::redis::RedisStore;

/// A key of which there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingletonKey {
    /// `poll:epoch`.
    Epoch,
    /// `poll:drain`.
    Drain,
    /// `poll:history`.
    History,
    /// `poll:changes`.
    Changes,
}

/// One that is of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongType {
    /// Its name.
    pub key: String,
    /// Which of them.
    pub which: SingletonKey,
    /// Its type.
    pub found: String,
}

impl SingletonKey {
    const ALL: [Self; 4] = [Self::Epoch, Self::Drain, Self::History, Self::Changes];

    fn kind(self) -> &'static str {
        match self {
            Self::Epoch => "hash",
            Self::Drain => "set",
            Self::History | Self::Changes => "stream",
        }
    }
}

/// What every instance says that finds `key` where the epoch's hash should be: what comes of it, and the way out.
/// The instance goes on asking, so that nobody has to start it again once the key is deleted.
pub(crate) fn no_epoch(key: &str) -> String {
    let wrong_type =
        WrongType { key: key.into(), which: SingletonKey::Epoch, found: String::new() };
    format!("{key} is no hash, so nothing is granted or renewed: {}", wrong_type.way_out())
}

impl WrongType {
    /// What is wrong, and what comes of it; without a full stop.
    pub fn sentence(&self) -> String {
        let Self { key, which, found } = self;
        let kind = which.kind();
        let comes_of_it = match which {
            SingletonKey::Epoch => {
                "nothing is granted, renewed or published, so nobody polls for long"
            }
            SingletonKey::Drain => "it drains nobody",
            SingletonKey::History => "nothing is remembered",
            SingletonKey::Changes => "changes of verdicts are not kept, only pushed",
        };
        format!("{key} is of the type {found}, not {kind}: {comes_of_it}")
    }

    /// What to do, and what that means.
    pub fn way_out(&self) -> String {
        let means = match self.which {
            SingletonKey::Epoch => {
                "costs one hold-off: nothing new is granted for a lease TTL and a margin, and whoever is \
                 still within its rights goes on"
            }
            SingletonKey::Drain => "nobody is drained then: leasehold drain each of them again",
            SingletonKey::History | SingletonKey::Changes => "nothing else depends on it",
        };
        format!("redis-cli DEL {}; {means}", self.key)
    }
}

impl RedisStore {
    /// Those that are of another type.
    pub fn wrong_types(&self, timeout: Duration) -> StoreResult<Vec<WrongType>> {
        let keys = &self.server.keys;
        let key = |it| match it {
            SingletonKey::Epoch => keys.epoch(),
            SingletonKey::Drain => keys.drain(),
            SingletonKey::History => keys.history(),
            SingletonKey::Changes => keys.changes(),
        };
        let kinds: Vec<String> = self.call("read key types on", timeout, |connection| {
            let mut pipe = redis::pipe();
            SingletonKey::ALL.iter().for_each(|it| {
                pipe.cmd("TYPE").arg(key(*it));
            });
            pipe.query(connection)
        })?;
        let found = SingletonKey::ALL.into_iter().zip(kinds);
        let found = found.filter(|(it, found)| found != "none" && found != it.kind());
        Ok(found.map(|(which, found)| WrongType { key: key(which), which, found }).collect())
    }
}

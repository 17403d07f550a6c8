//! Which client of this agent is next for a lease? Two clients are two holders, so one at a time holds or asks for a name.
//!
//! A `LeaseManager` would give both a share of one tenure. The clients of one agent stand in line instead, in the order in
//! which they came. The client at the front asks Redis, and stays there for as long as it holds the lease.

use std::collections::VecDeque;
use std::sync::Arc;

use fnv::FnvHashMap;
use parking_lot::{Condvar, Mutex};

use crate::clock::{BootClock, Clock, Moment};
use crate::model::EndpointId;

/// The names that clients of this agent hold or want.
#[derive(Default)]
pub(crate) struct Places {
    names: Mutex<FnvHashMap<EndpointId, Line>>,
}

#[derive(Default)]
struct Line {
    clients: VecDeque<InLine>,
    /// The client at the front has been granted the lease.
    is_held: bool,
}

struct InLine {
    client: u64,
    changed: Arc<Condvar>,
}

/// What standing in line has led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This client may ask, and must leave.
    Front,
    /// Another client of this agent holds it. This one is out of line.
    Held,
    /// Another client of this agent asks for it. This one is out of line.
    Queued,
}

impl Places {
    /// Takes the last place, and waits for the front until the moment that `until` says: it is asked at every change.
    pub(crate) fn wait(&self, name: &EndpointId, client: u64, until: impl Fn() -> Moment) -> Turn {
        let changed = Arc::new(Condvar::new());
        let mut names = self.names.lock();
        let in_line = InLine { client, changed: Arc::clone(&changed) };
        names.entry(name.clone()).or_default().clients.push_back(in_line);
        loop {
            let Some(line) = names.get_mut(name) else { return Turn::Queued };
            if line.clients.front().is_some_and(|it| it.client == client) {
                return Turn::Front;
            }
            let left = until().since(BootClock.now());
            if left.is_zero() {
                line.clients.retain(|it| it.client != client);
                return if line.is_held { Turn::Held } else { Turn::Queued };
            }
            changed.wait_for(&mut names, left);
        }
    }

    /// The client at the front has been granted the lease.
    pub(crate) fn held(&self, name: &EndpointId) {
        if let Some(line) = self.names.lock().get_mut(name) {
            line.is_held = true;
        }
    }

    /// The client neither holds nor wants it any more.
    pub(crate) fn leave(&self, name: &EndpointId, client: u64) {
        let mut names = self.names.lock();
        let Some(line) = names.get_mut(name) else { return };
        let was_front = line.clients.front().is_some_and(|it| it.client == client);
        line.clients.retain(|it| it.client != client);
        if was_front {
            line.is_held = false;
        }
        if let Some(next) = line.clients.front() {
            next.changed.notify_one();
        } else {
            names.remove(name);
        }
    }

    /// What `until` says has changed for this client.
    pub(crate) fn wake(&self, name: &EndpointId, client: u64) {
        let names = self.names.lock();
        let clients = names.get(name).into_iter().flat_map(|it| &it.clients);
        for in_line in clients.filter(|it| it.client == client) {
            in_line.changed.notify_one();
        }
    }

    #[cfg(test)]
    fn len(&self, name: &EndpointId) -> usize {
        self.names.lock().get(name).map_or(0, |it| it.clients.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use crossbeam_channel::unbounded;

    use super::*;

    fn now() -> Moment {
        Moment::MIN
    }

    #[test]
    fn of_two_clients_one_is_at_the_front_and_the_other_is_told_who_has_it() {
        let (places, name) = (Places::default(), EndpointId::parse("a").unwrap());
        assert_eq!(places.wait(&name, 1, now), Turn::Front);
        assert_eq!(places.wait(&name, 2, now), Turn::Queued);
        places.held(&name);
        assert_eq!(places.wait(&name, 2, now), Turn::Held);
        places.leave(&name, 1);
        assert_eq!(places.wait(&name, 2, now), Turn::Front);
        assert_eq!(places.wait(&name, 3, now), Turn::Queued, "it has not been granted yet");
        places.leave(&name, 2);
        assert!(places.names.lock().is_empty());
    }

    #[test]
    fn those_who_wait_come_to_the_front_in_their_order() {
        let (places, name) = (Places::default(), EndpointId::parse("a").unwrap());
        assert_eq!(places.wait(&name, 0, now), Turn::Front);
        let (tell, told) = unbounded();
        std::thread::scope(|scope| {
            for client in 1..=8 {
                let (places, name, tell) = (&places, &name, tell.clone());
                scope.spawn(move || {
                    assert_eq!(places.wait(name, client, || Moment::MAX), Turn::Front);
                    tell.send(client).unwrap();
                    places.leave(name, client);
                });
                let until = BootClock.now() + Duration::from_secs(10);
                while places.len(name) < usize::try_from(client).unwrap() + 1 {
                    assert!(BootClock.now() < until, "client {client} is not in line");
                    std::thread::yield_now();
                }
            }
            places.leave(&name, 0);
        });
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_wait_that_is_called_off_ends_at_once_and_leaves_the_line() {
        let (places, name) = (Places::default(), EndpointId::parse("a").unwrap());
        let is_over = AtomicBool::new(false);
        assert_eq!(places.wait(&name, 1, now), Turn::Front);
        let until = || if is_over.load(Ordering::Acquire) { Moment::MIN } else { Moment::MAX };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| places.wait(&name, 2, until));
            while places.len(&name) < 2 {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Release);
            places.wake(&name, 2);
            assert_eq!(waiting.join().unwrap(), Turn::Queued);
        });
        assert_eq!(places.len(&name), 1);
    }
}

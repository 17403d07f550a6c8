//! How many polls of slow endpoints may run at a time? Slow endpoints share a part of the pool, so the rest of the pool is
//! always there for endpoints that answer. Pure.
//!
//! An endpoint is slow when its last poll timed out or took longer than [`SLOW_AFTER`]. A poll that has been running for
//! longer than that counts as slow from then on. Slow endpoints together may have half of the pool, and those of one network
//! a quarter of that: a dead network cannot fill the share. An endpoint that was not polled yet may hang, too: it starts only
//! while fewer than three quarters of the pool are slow, so the last quarter is for endpoints that answer.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use fnv::FnvHashMap;

use crate::clock::Moment;
use crate::model::{Address, EndpointId, fnv1a};

/// A poll that takes longer than this is slow.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Slow endpoints may have one worker in this many.
const SHARE: usize = 2;
/// Slow endpoints of one network may have one in this many of the workers for slow endpoints.
const SHARE_OF_NETWORK: usize = 4;
/// In a small pool slow endpoints of one network may have this many workers.
const NETWORK_MIN: usize = 2;
/// One worker in this many is kept from endpoints that were not polled yet while all others run slow polls.
const KEPT: usize = 4;

/// The network of an address: the host name, or the /24 of an IPv4 and the /64 of an IPv6 address, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(u64);

impl Network {
    pub(crate) fn of(address: &Address) -> Self {
        let authority = match address {
            Address::Http(url) => url.split_once("://").map_or(url.as_str(), |it| it.1),
            Address::Tcp(authority) => authority,
        };
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let host = match authority.strip_prefix('[') {
            Some(it) => it.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        match host.parse() {
            Ok(IpAddr::V4(it)) => Self(u64::from(u32::from(it) >> 8)),
            Ok(IpAddr::V6(it)) => Self((u128::from(it) >> 64) as u64),
            Err(_) => Self(fnv1a(&host.to_ascii_lowercase())),
        }
    }
}

/// A poll that was given out and has not ended.
#[derive(Debug)]
struct Running {
    network: Network,
    is_slow: bool,
    /// Tells this poll from an earlier one of the same endpoint.
    number: u64,
}

/// The polls that were given out and have not ended, and which of them are slow.
#[derive(Debug)]
pub(crate) struct SlowLane {
    workers: usize,
    running: FnvHashMap<EndpointId, Running>,
    /// Polls in the order in which they were given out; those that count as slow already are left out.
    quick: VecDeque<(Moment, EndpointId, u64)>,
    slow: usize,
    slow_by_network: FnvHashMap<Network, usize>,
    numbers: u64,
}

impl SlowLane {
    /// For a pool of this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers,
            running: FnvHashMap::default(),
            quick: VecDeque::new(),
            slow: 0,
            slow_by_network: FnvHashMap::default(),
            numbers: 0,
        }
    }

    /// The pool has another size from now on.
    pub(crate) fn resize(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// How many workers the pool has at most.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Polls that count as slow now.
    pub(crate) fn slow(&self) -> usize {
        self.slow
    }

    /// Whether a poll of another slow endpoint may start, whatever its network.
    pub(crate) fn has_room(&self) -> bool {
        self.slow < self.share()
    }

    /// Whether a poll of another slow endpoint of this network may start.
    pub(crate) fn has_room_for(&self, network: Network) -> bool {
        let running = self.slow_by_network.get(&network).copied().unwrap_or(0);
        self.has_room() && running < (self.share() / SHARE_OF_NETWORK).max(NETWORK_MIN)
    }

    /// Whether a poll of an endpoint that was not polled yet may start.
    pub(crate) fn has_room_for_untried(&self) -> bool {
        self.slow < (self.workers - self.workers / KEPT).max(1)
    }

    fn share(&self) -> usize {
        (self.workers / SHARE).max(1)
    }

    /// Whether this endpoint has a poll that has not ended.
    pub(crate) fn is_running(&self, endpoint: &EndpointId) -> bool {
        self.running.contains_key(endpoint)
    }

    /// A poll is given out.
    pub(crate) fn begin(
        &mut self,
        endpoint: &EndpointId,
        network: Network,
        is_slow: bool,
        now: Moment,
    ) {
        self.numbers += 1;
        let number = self.numbers;
        if is_slow {
            self.count_slow(network);
        } else {
            self.quick.push_back((now, endpoint.clone(), number));
        }
        self.running.insert(endpoint.clone(), Running { network, is_slow, number });
    }

    /// The poll of this endpoint has ended, or did not begin. If it had counted as slow: its network, and how many slow
    /// polls of that network are left.
    pub(crate) fn end(&mut self, endpoint: &EndpointId) -> Option<(Network, usize)> {
        let Running { network, is_slow, .. } = self.running.remove(endpoint)?;
        if !is_slow {
            return None;
        }
        self.slow -= 1;
        let left = self.slow_by_network.get(&network).map_or(0, |it| it - 1);
        match left {
            0 => self.slow_by_network.remove(&network),
            left => self.slow_by_network.insert(network, left),
        };
        Some((network, left))
    }

    /// Counts the polls as slow that have been running for longer than [`SLOW_AFTER`].
    pub(crate) fn note_time(&mut self, now: Moment) {
        while self.quick.front().is_some_and(|it| now.since(it.0) > SLOW_AFTER) {
            let Some((_, endpoint, number)) = self.quick.pop_front() else { break };
            let running = self.running.get_mut(&endpoint).filter(|it| it.number == number);
            if let Some(running) = running {
                running.is_slow = true;
                let network = running.network;
                self.count_slow(network);
            }
        }
    }

    fn count_slow(&mut self, network: Network) {
        self.slow += 1;
        *self.slow_by_network.entry(network).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1 << 40);

    fn id(n: usize) -> EndpointId {
        EndpointId::parse(&format!("e{n}")).unwrap()
    }

    fn http(url: &str) -> Network {
        Network::of(&Address::Http(url.into()))
    }

    #[test]
    fn a_network_is_a_host_name_or_the_neighbours_of_an_address() {
        assert_eq!(http("http://10.1.2.3:80/a"), http("https://u:p@10.1.2.99/b?c"));
        assert_ne!(http("http://10.1.2.3/"), http("http://10.1.3.3/"));
        assert_eq!(http("http://[2001:db8::1]:80/"), http("http://[2001:db8::2]/"));
        assert_ne!(http("http://[2001:db8::1]/"), http("http://[2001:db9::1]/"));
        assert_eq!(http("http://A.example/"), Network::of(&Address::Tcp("a.example:22".into())));
        assert_ne!(http("http://a.example/"), http("http://b.example/"));
    }

    #[test]
    fn slow_polls_have_half_of_the_pool_and_those_of_one_network_a_quarter_of_that() {
        let mut lane = SlowLane::new(32);
        let (one, other) = (http("http://a/"), http("http://b/"));
        for n in 0..4 {
            assert!(lane.has_room_for(one), "{n}");
            lane.begin(&id(n), one, true, NOW);
        }
        assert!(!lane.has_room_for(one) && lane.has_room_for(other));
        for n in 4..16 {
            lane.begin(&id(n), http(&format!("http://n{n}/")), true, NOW);
        }
        assert!(!lane.has_room() && !lane.has_room_for(other));
        assert_eq!(lane.end(&id(0)), Some((one, 3)));
        assert!(lane.has_room_for(one) && lane.has_room_for(other));
        assert_eq!(lane.end(&id(0)), None, "it has ended once");
    }

    #[test]
    fn a_poll_that_runs_for_more_than_a_second_counts_as_slow_from_then_on() {
        let mut lane = SlowLane::new(2);
        let network = http("http://a/");
        lane.begin(&id(1), network, false, NOW);
        lane.note_time(NOW + SLOW_AFTER);
        assert!(lane.has_room());
        lane.note_time(NOW + SLOW_AFTER + Duration::from_millis(1));
        assert!(!lane.has_room());
        assert_eq!(lane.end(&id(1)), Some((network, 0)));
        assert!(lane.has_room());
        // A later poll of the same endpoint is not taken for the earlier one.
        lane.begin(&id(2), network, false, NOW);
        lane.end(&id(2));
        lane.begin(&id(2), network, false, NOW + SLOW_AFTER);
        lane.note_time(NOW + SLOW_AFTER * 3 / 2);
        assert!(lane.has_room());
    }

    #[test]
    fn a_quarter_of_the_pool_is_kept_from_endpoints_that_were_not_polled_yet() {
        let mut lane = SlowLane::new(8);
        for n in 0..6 {
            assert!(lane.has_room_for_untried(), "{n}");
            lane.begin(&id(n), http("http://a/"), false, NOW);
            lane.note_time(NOW + SLOW_AFTER * 2);
        }
        assert!(!lane.has_room_for_untried() && !lane.has_room());
        lane.end(&id(0));
        assert!(lane.has_room_for_untried() && !lane.has_room());
    }

    #[test]
    fn a_pool_of_one_worker_has_room_for_one_slow_poll() {
        let mut lane = SlowLane::new(1);
        assert!(lane.has_room_for(http("http://a/")));
        lane.begin(&id(1), http("http://a/"), true, NOW);
        assert!(!lane.has_room());
        lane.resize(4);
        assert!(lane.has_room() && lane.is_running(&id(1)));
    }
}

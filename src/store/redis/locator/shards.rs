//! Which server of a cluster has which keys? Asks the cluster, and remembers the answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ErrorKind, RedisError, RedisResult, Value};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::{HostPort, hash_tag};
use crate::store::redis::connection::{Connection, Credentials};
use crate::store::redis::locator::{Peer, ReadCredentials};

/// Nothing else announces an added shard.
const ASK_EVERY: Duration = Duration::from_secs(2);

const SLOTS: u16 = 16_384;

/// The slot of a key: what is in its first braces decides, if there are any.
pub(crate) fn slot_of(key: &str) -> u16 {
    let mut crc: u16 = 0;
    for byte in hash_tag(key).unwrap_or(key).bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % SLOTS
}

#[derive(Debug)]
pub(crate) struct Shards {
    seeds: Vec<Arc<Peer>>,
    home: u16,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    map: Option<Arc<Map>>,
    ask_at: Moment,
    /// Which node is asked first: home, and another after each failure, because a node that is cut off has an old map.
    turn: usize,
    moves: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Map {
    /// First and last slot, and whose they are.
    ranges: Vec<(u16, u16, Arc<Peer>)>,
    /// Every master, the home of the fleet first.
    masters: Vec<Arc<Peer>>,
}

impl Shards {
    pub(crate) fn new(seeds: Vec<Arc<Peer>>, home: u16) -> Self {
        let known = Known { map: None, ask_at: Moment::default(), turn: 0, moves: 0 };
        Self { seeds, home, known: Mutex::new(known) }
    }

    pub(crate) fn moves(&self) -> u64 {
        self.known.lock().moves
    }

    pub(crate) fn doubt(&self, error: &RedisError) {
        let mut known = self.known.lock();
        known.ask_at = Moment::default();
        known.turn = match error.code() {
            // A server that says that a key is elsewhere knows the map, and that is mostly home.
            Some("MOVED" | "ASK" | "TRYAGAIN") => 0,
            // A node that is down may have no current map.
            _ => known.turn + 1,
        };
    }

    pub(crate) fn home(
        &self,
        credentials: ReadCredentials<'_>,
        deadline: Moment,
    ) -> RedisResult<Arc<Peer>> {
        Ok(Arc::clone(&self.map(credentials, deadline)?.masters[0]))
    }

    pub(crate) fn masters(
        &self,
        credentials: ReadCredentials<'_>,
        deadline: Moment,
    ) -> RedisResult<Vec<Arc<Peer>>> {
        Ok(self.map(credentials, deadline)?.masters.clone())
    }

    pub(crate) fn owner(
        &self,
        slot: u16,
        credentials: ReadCredentials<'_>,
        deadline: Moment,
    ) -> RedisResult<Arc<Peer>> {
        let map = self.map(credentials, deadline)?;
        map.owner(slot).cloned().ok_or_else(|| unserved(slot))
    }

    fn map(&self, credentials: ReadCredentials<'_>, deadline: Moment) -> RedisResult<Arc<Map>> {
        let now = BootClock.now();
        let (known, asked) = {
            let mut known = self.known.lock();
            match &known.map {
                Some(map) if now < known.ask_at => return Ok(Arc::clone(map)),
                _ => (),
            }
            // One caller asks; the others go on with what is known.
            known.ask_at = now + ASK_EVERY;
            (known.map.clone(), self.in_turn(&known))
        };
        let share = deadline.since(now) / if known.is_some() { 4 } else { 2 };
        let told = credentials()
            .and_then(|credentials| self.ask_in_turn(&asked, &credentials, now + share));
        let mut kept = self.known.lock();
        match (told, known) {
            (Ok(map), _) => {
                let map = Arc::new(map);
                let before = kept.map.replace(Arc::clone(&map));
                kept.moves += u64::from(before.is_none_or(|it| it.masters != map.masters));
                Ok(map)
            }
            // Those that were known may still be right.
            (Err(_), Some(map)) => Ok(map),
            (Err(error), None) => Err(error),
        }
    }

    /// Everybody that can be asked, the next in turn first.
    fn in_turn(&self, known: &Known) -> Vec<Arc<Peer>> {
        let masters = known.map.as_ref().map_or(&[][..], |it| &it.masters);
        let mut peers: Vec<_> = masters.to_vec();
        peers.extend(self.seeds.iter().filter(|it| !masters.contains(it)).cloned());
        let turn = known.turn % peers.len().max(1);
        peers.rotate_left(turn);
        peers
    }

    fn ask_in_turn(
        &self,
        peers: &[Arc<Peer>],
        credentials: &Credentials,
        deadline: Moment,
    ) -> RedisResult<Map> {
        let mut failure = RedisError::from(io::Error::other("the cluster has no nodes"));
        for (n, peer) in peers.iter().enumerate() {
            let now = BootClock.now();
            // To one that is far away even asking takes time, and one that is gone must not take it all.
            let share = deadline.since(now) / if n + 1 < peers.len() { 2 } else { 1 };
            match self.ask_one(peer, credentials, now + share) {
                Ok(map) => return Ok(map),
                // Whatever the others would say, this is no cluster.
                Err(error) if error.kind() == ErrorKind::InvalidClientConfig => return Err(error),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn ask_one(
        &self,
        peer: &Arc<Peer>,
        credentials: &Credentials,
        deadline: Moment,
    ) -> RedisResult<Map> {
        let mut connection = Connection::connect(peer, credentials, deadline)?;
        let slots: Value =
            redis::cmd("CLUSTER").arg("SLOTS").query(&mut connection).map_err(|error| {
                let disabled =
                    error.detail().is_some_and(|it| it.contains("cluster support disabled"));
                let why = || format!("{peer} is no node of a cluster: write redis://{peer}");
                if disabled {
                    (ErrorKind::InvalidClientConfig, "settings", why()).into()
                } else {
                    error
                }
            })?;
        let map = Map::read(&slots, peer, self.home);
        map.ok_or_else(|| unserved(self.home))
    }
}

impl Map {
    /// From the answer to CLUSTER SLOTS; `None` where nobody has the home of the fleet.
    fn read(slots: &Value, asked: &Peer, home: u16) -> Option<Self> {
        let Value::Array(rows) = slots else { return None };
        let mut map = Self { ranges: Vec::new(), masters: Vec::new() };
        for row in rows {
            let Value::Array(row) = row else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &row[..] else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            map.ranges.push((first, last, Arc::new(peer(master, asked)?)));
        }
        let first = Arc::clone(map.owner(home)?);
        let mut masters: Vec<_> = map.ranges.iter().map(|it| Arc::clone(&it.2)).collect();
        masters.sort();
        masters.dedup();
        masters.retain(|it| *it != first);
        map.masters = [first].into_iter().chain(masters).collect();
        Some(map)
    }

    fn owner(&self, slot: u16) -> Option<&Arc<Peer>> {
        self.ranges.iter().find(|it| (it.0..=it.1).contains(&slot)).map(|it| &it.2)
    }
}

/// A node that does not know its own address names none: it is where it was asked.
fn peer(node: &[Value], asked: &Peer) -> Option<Peer> {
    let [host, Value::Int(port), ..] = node else { return None };
    let host = match host {
        Value::BulkString(it) if !it.is_empty() && it != b"?" => {
            String::from_utf8(it.clone()).ok()?
        }
        _ => match asked {
            Peer::Tcp(it) => it.host.clone(),
            Peer::Unix(_) => return None,
        },
    };
    Some(Peer::Tcp(HostPort { host, port: u16::try_from(*port).ok()? }))
}

fn unserved(slot: u16) -> RedisError {
    io::Error::other(format!("no node of the cluster serves slot {slot}: see CLUSTER INFO")).into()
}

/// Where a key was said to be instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) peer: Arc<Peer>,
    /// The key is on its way there, so that this has to be said before the question.
    pub(crate) asking: bool,
}

impl Redirect {
    /// From a refusal like `MOVED 3999 127.0.0.1:6381`, as it came from `asked`.
    pub(crate) fn read(answer: &Value, asked: &Peer) -> Option<Self> {
        let Value::ServerError(error) = answer else { return None };
        let asking = match error.code() {
            "ASK" => true,
            "MOVED" => false,
            _ => return None,
        };
        let (host, port) = error.details()?.rsplit(' ').next()?.rsplit_once(':')?;
        let host = match (host, asked) {
            ("", Peer::Tcp(it)) => it.host.clone(),
            _ => host.trim_matches(['[', ']']).into(),
        };
        let peer = Arc::new(Peer::Tcp(HostPort { host, port: port.parse().ok()? }));
        Some(Self { peer, asking })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_the_braces() {
        // As CLUSTER KEYSLOT of a real server says.
        assert_eq!(slot_of("123456789"), 12_739);
        assert_eq!(slot_of("{poll}:lease:1"), slot_of("poll"));
        assert_eq!(slot_of("{poll}:lease:1"), slot_of("{poll}:node:9"));
        assert_ne!(slot_of("{}a"), slot_of("{}b"));
    }

    fn row(first: i64, last: i64, host: &str, port: i64) -> Value {
        let master = vec![Value::BulkString(host.into()), Value::Int(port)];
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(master)])
    }

    #[test]
    fn a_map_names_every_master_once_and_home_first() {
        let asked = Peer::Tcp(HostPort { host: "seed".into(), port: 1 });
        let slots =
            Value::Array(vec![row(0, 99, "b", 2), row(100, 199, "", 1), row(200, 16_383, "b", 2)]);
        let map = Map::read(&slots, &asked, 150).unwrap();
        let names: Vec<String> = map.masters.iter().map(|it| it.to_string()).collect();
        assert_eq!(names, ["seed:1", "b:2"]);
        assert_eq!(map.owner(99).unwrap().to_string(), "b:2");
        assert_eq!(map.owner(100).unwrap().to_string(), "seed:1");
        let holes = Value::Array(vec![row(0, 99, "b", 2)]);
        assert_eq!(Map::read(&holes, &asked, 150), None);
    }
}

//! How are sessions read, which a cluster spreads over its shards? A single server counts as one shard.

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionLike, Pipeline, Value};

use crate::clock::{BootClock, Clock};
use crate::store::redis::RedisStore;
use crate::store::redis::locator::shards::Redirect;
use crate::store::redis::locator::{Peer, Route};
use crate::store::{Fault, StoreError, StoreResult};

/// A cursor of ours is one of the server's; above these bits, which shard it is for; and above those, how
/// often the shards had moved: after that a number means another one.
const SHARD_AT: u32 = 46;
const MOVES_AT: u32 = 56;

/// Which of the keys are asked about where.
struct Group {
    peer: Arc<Peer>,
    /// The keys are on their way there.
    asking: bool,
    keys: Vec<usize>,
}

impl RedisStore {
    /// Asks the same `n` commands about every key, each where it is; the answers in the order of the keys.
    /// A key that is on its way to another shard is asked for there.
    pub(crate) fn each_key(
        &self,
        op: &'static str,
        keys: &[String],
        timeout: Duration,
        n: usize,
        request: impl Fn(&mut Pipeline, usize),
    ) -> StoreResult<Vec<Value>> {
        let mut answers = vec![Value::Nil; n * keys.len()];
        let mut elsewhere: Vec<Group> = Vec::new();
        for group in self.grouped(op, keys, timeout)? {
            let found = self.ask_group(op, &group, timeout, n, &request)?;
            for (&key, found) in group.keys.iter().zip(found.chunks(n)) {
                match found.iter().find_map(|it| Redirect::read(it, &group.peer)) {
                    None => answers[n * key..n * (key + 1)].clone_from_slice(found),
                    Some(Redirect { peer, asking }) => {
                        let had = |it: &&mut Group| it.peer == peer && it.asking == asking;
                        match elsewhere.iter_mut().find(had) {
                            Some(group) => group.keys.push(key),
                            None => elsewhere.push(Group { peer, asking, keys: vec![key] }),
                        }
                    }
                }
            }
        }
        for group in elsewhere {
            let found = self.ask_group(op, &group, timeout, n, &request)?;
            for (&key, found) in group.keys.iter().zip(found.chunks(n)) {
                answers[n * key..n * (key + 1)].clone_from_slice(found);
            }
        }
        Ok(answers)
    }

    fn grouped(
        &self,
        op: &'static str,
        keys: &[String],
        timeout: Duration,
    ) -> StoreResult<Vec<Group>> {
        let deadline = BootClock.now() + timeout;
        let mut groups: Vec<Group> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let peer = self.server.locator.peer(Route::Key(key), deadline);
            let peer = peer.map_err(|error| self.server.error(op, &error))?;
            match groups.iter_mut().find(|it| it.peer == peer) {
                Some(group) => group.keys.push(at),
                None => groups.push(Group { peer, asking: false, keys: vec![at] }),
            }
        }
        Ok(groups)
    }

    fn ask_group(
        &self,
        op: &'static str,
        group: &Group,
        timeout: Duration,
        n: usize,
        request: &impl Fn(&mut Pipeline, usize),
    ) -> StoreResult<Vec<Value>> {
        let mut pipe = redis::pipe();
        for &key in &group.keys {
            if !group.asking {
                request(&mut pipe, key);
                continue;
            }
            // What is said about a key on its way holds for one command only.
            let mut asked = redis::pipe();
            request(&mut asked, key);
            for command in asked.cmd_iter() {
                pipe.cmd("ASKING").add_command(command.clone());
            }
        }
        let answers = self.call_at(Route::At(&group.peer), op, timeout, |connection| {
            connection.req_packed_commands(&pipe.get_packed_pipeline(), 0, pipe.len())
        })?;
        let step = if group.asking { 2 } else { 1 };
        let answers: Vec<Value> = answers.into_iter().skip(step - 1).step_by(step).collect();
        debug_assert_eq!(answers.len(), n * group.keys.len());
        Ok(answers)
    }

    /// A step of a walk over all keys of every shard that begin so.
    pub(crate) fn scan_shards(
        &self,
        op: &'static str,
        prefix: &str,
        cursor: u64,
        timeout: Duration,
    ) -> StoreResult<(u64, Vec<Vec<u8>>)> {
        let peers = self.server.locator.peers(BootClock.now() + timeout);
        let peers = peers.map_err(|error| self.server.error(op, &error))?;
        let moves = self.server.locator.moves() & u64::from(u8::MAX);
        let shard = (cursor & ((1 << MOVES_AT) - 1)) >> SHARD_AT;
        let is_of_these = cursor == 0 || cursor >> MOVES_AT == moves;
        let peer = usize::try_from(shard).ok().and_then(|it| peers.get(it));
        let Some(peer) = peer.filter(|_| is_of_these) else {
            let (target, reason) = (self.server.shown.clone(), "the shards have changed".into());
            return Err(StoreError { op, target, fault: Fault::Refused, reason });
        };
        let inner = cursor & ((1 << SHARD_AT) - 1);
        let (next, keys) = self.scan_at(Route::At(peer), op, prefix, inner, timeout)?;
        if next >> SHARD_AT != 0 {
            return Err(self.server.unexpected(op));
        }
        let is_last = shard + 1 == peers.len() as u64;
        let shard = shard + u64::from(next == 0);
        Ok((
            if next == 0 && is_last { 0 } else { moves << MOVES_AT | shard << SHARD_AT | next },
            keys,
        ))
    }
}

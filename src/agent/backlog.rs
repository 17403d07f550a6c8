//! Which lines of a client found no room yet? Any `PING`s, which are only counted, and one other line behind them. Pure.
//!
//! A client that waits long in `ACQUIRE` sends `PING` meanwhile, so that it does not pass for silent. If these lines took room,
//! the client would not be read, and not be heard, once they had filled it.

use crate::agent::protocol::{Request, parse};

/// Most `PING`s that wait for their answers: one a second for 18 hours.
const PINGS_MAX: u32 = 65_536;

/// Lines in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pings: u32,
    last: Option<Vec<u8>>,
}

impl Backlog {
    /// Whether another line may come.
    pub(crate) fn has_room(&self) -> bool {
        self.last.is_none() && self.pings < PINGS_MAX
    }

    /// Call it only if there is room.
    pub(crate) fn push(&mut self, line: Vec<u8>) {
        if parse(&line) == Ok(Request::Ping) {
            self.pings += 1;
        } else {
            self.last = Some(line);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        if self.pings == 0 {
            return self.last.take();
        }
        self.pings -= 1;
        Some(b"PING".to_vec())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pings == 0 && self.last.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_counted_up_to_a_bound_and_one_other_line_waits_behind_them() {
        let mut backlog = Backlog::default();
        for ping in [&b"PING"[..], b"PING\r", b" PING "] {
            backlog.push(ping.to_vec());
        }
        assert!(backlog.has_room());
        backlog.push(b"HOLDS n".to_vec());
        assert!(!backlog.has_room(), "a line that takes room");
        for line in [&b"PING"[..], b"PING", b"PING", b"HOLDS n"] {
            assert!(!backlog.is_empty());
            assert_eq!(backlog.pop().as_deref(), Some(line));
        }
        assert!(backlog.is_empty() && backlog.pop().is_none());
        for _ in 0..PINGS_MAX {
            assert!(backlog.has_room());
            backlog.push(b"PING".to_vec());
        }
        assert!(!backlog.has_room());
    }
}

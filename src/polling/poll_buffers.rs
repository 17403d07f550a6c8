//! The buffers of one HTTP poll: small at first, because most answers are, and never larger than the largest headers accepted.
//!
//! ureq's own buffers are as large as the largest headers from the start, and filled with zeros for each poll.

use ureq::unversioned::transport::Buffers;

/// Bytes of input that a poll begins with.
const INPUT_BYTES: usize = 2 * 1024;
/// What a request has besides its URL, which is in it once as a path and once as a host.
const REQUEST_BYTES: usize = 2 * 1024;

#[derive(Debug)]
pub(crate) struct PollBuffers {
    /// What was read; `input[consumed..filled]` is not consumed yet.
    input: Vec<u8>,
    filled: usize,
    consumed: usize,
    input_max: usize,
    output: Vec<u8>,
    /// The last call of `input_consume` consumed something.
    has_progress: bool,
}

impl PollBuffers {
    /// For a request to a URL of `url_bytes`, and input that has at most `input_max` bytes not consumed at a time.
    pub(crate) fn new(url_bytes: usize, input_max: usize) -> Self {
        Self {
            input: Vec::new(),
            filled: 0,
            consumed: 0,
            input_max,
            output: vec![0; 2 * url_bytes + REQUEST_BYTES],
            has_progress: false,
        }
    }

    /// Moves what is not consumed to the front, and grows if there is no room behind it.
    fn make_room(&mut self) {
        if self.consumed > 0 {
            self.input.copy_within(self.consumed..self.filled, 0);
            self.filled -= self.consumed;
            self.consumed = 0;
        }
        if self.filled == self.input.len() {
            let grown = (2 * self.input.len()).clamp(INPUT_BYTES, self.input_max);
            self.input.resize(grown, 0);
        }
    }
}

impl Buffers for PollBuffers {
    fn output(&mut self) -> &mut [u8] {
        &mut self.output
    }

    fn input(&self) -> &[u8] {
        &self.input[self.consumed..self.filled]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.input[self.filled..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled += amount;
        assert!(self.filled <= self.input.len(), "more bytes than there was room for");
    }

    fn input_consume(&mut self, amount: usize) {
        self.has_progress = amount > 0;
        self.consumed += amount;
        assert!(self.consumed <= self.filled, "more bytes than there were");
    }

    /// For a request with a body, which a poll has not: ureq reads the body into the room for input.
    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.make_room();
        (&mut self.input[self.filled..], &mut self.output)
    }

    fn can_use_input(&self) -> bool {
        self.has_progress && !self.input().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(buffers: &mut PollBuffers, bytes: &[u8]) -> usize {
        let room = buffers.input_append_buf();
        let amount = room.len().min(bytes.len());
        room[..amount].copy_from_slice(&bytes[..amount]);
        buffers.input_appended(amount);
        amount
    }

    #[test]
    fn input_grows_up_to_its_limit_and_keeps_its_bytes_in_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let mut buffers = PollBuffers::new(0, 9_000);
        let mut done = 0;
        while done < 9_000 {
            done += append(&mut buffers, &bytes[done..]);
        }
        assert_eq!(buffers.input(), &bytes[..9_000]);
        assert_eq!(append(&mut buffers, &bytes[done..]), 0, "no room beyond the limit");
        buffers.input_consume(8_500);
        assert_eq!(append(&mut buffers, &bytes[done..]), 1_000);
        assert_eq!(buffers.input(), &bytes[8_500..]);
        assert!(buffers.can_use_input());
        buffers.input_consume(0);
        assert!(!buffers.can_use_input(), "what is there is not enough");
    }

    #[test]
    fn a_short_answer_needs_little_room() {
        let mut buffers = PollBuffers::new(20, 80_000);
        append(&mut buffers, b"HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(buffers.input.len(), INPUT_BYTES);
    }
}

//! Where does a line of a client end? Bytes in any pieces become lines of a bounded length. Pure.

/// Longest line, without its line feed.
pub(crate) const LINE_BYTES_MAX: usize = 512;

/// The client sent more than [`LINE_BYTES_MAX`] bytes without a line feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The bytes of a client that are no whole line yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// Where to look for the next line feed.
    looked_to: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its line feed.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.looked_to..].iter().position(|it| *it == b'\n');
        let Some(end) = end.map(|it| it + self.looked_to) else {
            self.looked_to = self.bytes.len();
            return if self.bytes.len() > LINE_BYTES_MAX { Err(TooLong) } else { Ok(None) };
        };
        if end > LINE_BYTES_MAX {
            return Err(TooLong);
        }
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        self.looked_to = 0;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(String::from_utf8(line).unwrap());
        }
        found
    }

    #[test]
    fn lines_come_out_whole_whatever_pieces_they_come_in() {
        let text = b"PING\nACQUIRE a 5\n\nHOLDS";
        for piece in 1..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for bytes in text.chunks(piece) {
                lines.push(bytes);
                found.extend(all(&mut lines));
            }
            assert_eq!(found, ["PING", "ACQUIRE a 5", ""], "{piece}");
            lines.push(b" a\n");
            assert_eq!(all(&mut lines), ["HOLDS a"]);
        }
    }

    #[test]
    fn a_line_has_a_longest_length_with_and_without_an_end() {
        let longest = vec![b'x'; LINE_BYTES_MAX];
        let mut lines = Lines::default();
        lines.push(&longest);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"\n");
        assert_eq!(lines.next(), Ok(Some(longest.clone())));
        lines.push(&longest);
        lines.push(b"x");
        assert_eq!(lines.next(), Err(TooLong));
        let mut lines = Lines::default();
        lines.push(&longest);
        lines.push(b"x\n");
        assert_eq!(lines.next(), Err(TooLong));
    }
}

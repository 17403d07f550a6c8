//! Which key was pressed? Bytes from a terminal in raw mode, which may come in pieces.

use crate::cli::top::terminal::Size;

/// Something the terminal said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C or Ctrl-D.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// The answer to where the last row and column are.
    Size(Size),
}

/// Keeps the beginning of what has not come to its end.
#[derive(Default)]
pub(crate) struct Decoder {
    pending: Vec<u8>,
}

/// Longer than any sequence that means something here.
const SEQUENCE_MAX: usize = 32;

impl Decoder {
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing more came: an Esc by itself is the key.
    pub(crate) fn rest(&mut self) -> Vec<Input> {
        let alone = self.pending == [0x1b];
        self.pending.clear();
        if alone { vec![Input::Escape] } else { vec![] }
    }

    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Vec<Input> {
        let mut inputs = Vec::new();
        for byte in bytes {
            if !self.pending.is_empty() {
                self.pending.push(*byte);
                if self.is_complete() {
                    inputs.extend(sequence(&self.pending));
                    self.pending.clear();
                }
                continue;
            }
            match byte {
                0x1b => self.pending.push(*byte),
                b'\r' | b'\n' => inputs.push(Input::Enter),
                0x7f | 0x08 => inputs.push(Input::Backspace),
                0x03 | 0x04 => inputs.push(Input::Interrupt),
                0x1a => inputs.push(Input::Suspend),
                b' '..=b'~' => inputs.push(Input::Char(char::from(*byte))),
                _ => (),
            }
        }
        inputs
    }

    fn is_complete(&self) -> bool {
        match &self.pending[..] {
            [0x1b, b'[' | b'O'] => false,
            [0x1b, b'[' | b'O', .., last] => {
                (0x40..=0x7e).contains(last) || self.pending.len() > SEQUENCE_MAX
            }
            _ => true, // Alt and a key, or Esc twice: none of ours
        }
    }
}

fn sequence(bytes: &[u8]) -> Option<Input> {
    let (last, parameters) = bytes.get(2..)?.split_last()?;
    let parameters = std::str::from_utf8(parameters).ok()?;
    Some(match (last, parameters) {
        (b'A', _) => Input::Up,
        (b'B', _) => Input::Down,
        (b'H', _) | (b'~', "1" | "7") => Input::Home,
        (b'F', _) | (b'~', "4" | "8") => Input::End,
        (b'~', "5") => Input::PageUp,
        (b'~', "6") => Input::PageDown,
        (b'R', place) => {
            let (rows, columns) = place.split_once(';')?;
            let size = Size { rows: rows.parse().ok()?, columns: columns.parse().ok()? };
            if size.rows == 0 || size.columns == 0 {
                return None;
            }
            Input::Size(size)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(pieces: &[&str]) -> Vec<Input> {
        let mut decoder = Decoder::default();
        let mut inputs: Vec<Input> =
            pieces.iter().flat_map(|it| decoder.decode(it.as_bytes())).collect();
        inputs.extend(decoder.rest());
        inputs
    }

    #[test]
    fn keys_are_understood_also_in_pieces() {
        let size = Input::Size(Size { rows: 24, columns: 80 });
        assert_eq!(decoded(&["q"]), [Input::Char('q')]);
        assert_eq!(
            decoded(&["\x1b[A\x1bOB\x1b[5~x"])[..3],
            [Input::Up, Input::Down, Input::PageUp]
        );
        assert_eq!(decoded(&["\x1b", "[", "24;8", "0R", "\r"]), [size, Input::Enter]);
        assert_eq!(decoded(&["\x1b"]), [Input::Escape]);
        assert_eq!(decoded(&["\x1b", "\x1b"]), []);
        assert_eq!(decoded(&["\x03\x7f"]), [Input::Interrupt, Input::Backspace]);
    }

    #[test]
    fn what_is_none_of_ours_is_nothing_and_ends() {
        for noise in
            ["\x1b[0;0R", "\x1b[R", "\x1b[99999999999999999999;1R", "\x1b[?1;2c", "\x1b[12"]
        {
            assert_eq!(decoded(&[noise]), [], "{noise:?}");
        }
        let endless = format!("\x1b[{}q", "1".repeat(100));
        assert!(decoded(&[&endless]).contains(&Input::Char('q')));
    }
}

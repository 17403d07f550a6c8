//! Audits a file that `--record` wrote, without Redis. Holds one line of it at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::inspect::audit::{Observation, record};

use crate::cli::audit::{Auditor, Ended};

/// Judges every line of `path`, or of stdin for `-`.
pub(super) fn audit(path: &Path, mut auditor: Auditor) -> Result<Auditor, Ended> {
    let failed = |error: io::Error| {
        Ended::Failed(format!("cannot read --replay {}: {error}", path.display()))
    };
    let input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).map_err(failed)?),
    };
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while let Some(is_whole) = next_line(&mut input, &mut line).map_err(failed)? {
        let observed = if is_whole { record::decode(&line) } else { Some(Observation::Foreign) };
        if let Some(observed) = observed.filter(|_| !line.is_empty()) {
            auditor.take(observed)?;
            auditor.flush_lines()?;
        }
    }
    Ok(auditor)
}

/// Reads the next line without its end, or the beginning of one that is too long: whether it is whole. `None` at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let most = record::LINE_MAX_BYTES as u64 + 1;
    if input.by_ref().take(most).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(true));
    }
    if line.len() as u64 == most {
        skip_line(input)?;
        return Ok(Some(false));
    }
    Ok(Some(true))
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, is_over) = match buffer.iter().position(|it| *it == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_skipped_without_being_held() {
        let text = format!("one\n{}\n\nfour", "x".repeat(100_000));
        let (mut input, mut line) = (BufReader::new(text.as_bytes()), Vec::new());
        let mut read = vec![];
        while let Some(is_whole) = next_line(&mut input, &mut line).unwrap() {
            assert!(line.len() <= record::LINE_MAX_BYTES + 1);
            read.push((is_whole, line.len()));
        }
        assert_eq!(read, [(true, 3), (false, record::LINE_MAX_BYTES + 1), (true, 0), (true, 4)]);
    }
}

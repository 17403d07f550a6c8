//! Reads one HTTP/1 answer from a stream: its status, and the first bytes of its body.
//!
//! Everything comes from a stranger. Headers are bounded, each byte is looked at a bounded number of times, and nothing is
//! read beyond the bytes that are wanted. The connection is closed afterwards, so what follows the answer does not matter.

use std::fmt;
use std::io::{self, Read};

use crate::net::wait::plain;

/// Most bytes of headers, those of interim answers (1xx) included.
const HEADERS_MAX_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 128;
/// Bytes that are read at a time.
const READ_BYTES: usize = 4 * 1024;
/// Longest line with the size of a chunk, and longest line of a trailer.
const LINE_MAX_BYTES: usize = 4 * 1024;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Its beginning, decoded.
    pub(crate) body: Vec<u8>,
    /// Why the body broke off, if it did.
    pub(crate) cut: Option<AnswerError>,
}

/// Why there is no answer, or only part of one.
#[derive(Debug)]
pub(crate) enum AnswerError {
    Io(io::Error),
    /// The server closed the connection too early.
    Closed,
    HeadersTooLarge,
    /// It is not HTTP, for this reason.
    Invalid(&'static str),
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => f.write_str(&plain(error)),
            Self::Closed => f.write_str("the connection was closed before the answer was complete"),
            Self::HeadersTooLarge => {
                write!(f, "the headers of the answer are larger than {HEADERS_MAX_BYTES} bytes")
            }
            Self::Invalid(why) => write!(f, "not a valid HTTP answer: {why}"),
        }
    }
}

impl From<io::Error> for AnswerError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClosed,
}

/// Reads an answer, and at most `body_max` bytes of its body. The answer to HEAD has none, whatever its headers say.
pub(crate) fn read_answer(
    stream: &mut impl Read,
    has_body: bool,
    body_max: usize,
) -> Result<Answer, AnswerError> {
    let mut input = Input { stream, bytes: Vec::new(), next: 0 };
    let (status, framing) = read_head(&mut input)?;
    let mut body = Vec::new();
    let cut = match framing {
        _ if !has_body => Ok(()),
        Framing::Length(length) => {
            let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(body_max);
            input.append_to(&mut body, wanted)
        }
        Framing::Chunked => read_chunks(&mut input, &mut body, body_max),
        Framing::UntilClosed => input.append_until_closed(&mut body, body_max),
    };
    Ok(Answer { status, body, cut: cut.err() })
}

/// The status of the answer, and how its body ends. Interim answers are skipped.
fn read_head<S: Read>(input: &mut Input<'_, S>) -> Result<(u16, Framing), AnswerError> {
    let mut left = HEADERS_MAX_BYTES;
    loop {
        let head = input.head(left)?;
        left -= head.len();
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(head).map_err(|it| AnswerError::Invalid(told(it)))?;
        let (httparse::Status::Complete(_), Some(status)) = (parsed, response.code) else {
            return Err(AnswerError::Invalid("its head is not complete"));
        };
        let is_interim = (100..200).contains(&status) && status != 101;
        if !is_interim {
            return Ok((status, framing(status, response.headers)?));
        }
    }
}

/// What httparse says, as part of a sentence.
fn told(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header's name has a character that it may not have",
        httparse::Error::HeaderValue => "a header's value has a character that it may not have",
        httparse::Error::TooManyHeaders => "it has more than 128 headers",
        httparse::Error::Version => "its version of HTTP is unknown",
        _ => "its first line is no status line",
    }
}

fn framing(status: u16, headers: &[httparse::Header<'_>]) -> Result<Framing, AnswerError> {
    if matches!(status, 204 | 304) {
        return Ok(Framing::Length(0));
    }
    let values = |name: &'static str| {
        let named = headers.iter().filter(move |it| it.name.eq_ignore_ascii_case(name));
        named.map(|it| it.value.trim_ascii())
    };
    if let Some(codings) = values("transfer-encoding").next_back() {
        let last = codings.rsplit(|it| *it == b',').next().unwrap_or_default().trim_ascii();
        let is_chunked = last.eq_ignore_ascii_case(b"chunked");
        return Ok(if is_chunked { Framing::Chunked } else { Framing::UntilClosed });
    }
    let mut lengths = values("content-length").flat_map(|it| it.split(|it| *it == b','));
    let Some(first) = lengths.next().map(<[u8]>::trim_ascii) else {
        return Ok(Framing::UntilClosed);
    };
    if lengths.any(|it| it.trim_ascii() != first) {
        return Err(AnswerError::Invalid("it has two lengths"));
    }
    let length = number(first, 10).ok_or(AnswerError::Invalid("its length is no number"))?;
    Ok(Framing::Length(length))
}

/// A number without sign; `u64::MAX` if it is larger.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let digit = |it: &u8| char::from(*it).to_digit(radix).map(u64::from);
    let add = |sum: u64, it| sum.saturating_mul(radix.into()).saturating_add(it);
    let first = digits.first().and_then(digit)?;
    digits[1..].iter().try_fold(first, |sum, it| digit(it).map(|it| add(sum, it)))
}

fn read_chunks<S: Read>(
    input: &mut Input<'_, S>,
    body: &mut Vec<u8>,
    body_max: usize,
) -> Result<(), AnswerError> {
    while body.len() < body_max {
        let line = input.line()?;
        let digits = line.split(|it| *it == b';').next().unwrap_or_default().trim_ascii();
        let size =
            number(digits, 16).ok_or(AnswerError::Invalid("the size of a chunk is no number"))?;
        if size == 0 {
            return Ok(()); // trailers follow, and nobody reads them
        }
        let wanted = usize::try_from(size).unwrap_or(usize::MAX).min(body_max - body.len());
        input.append_to(body, wanted)?;
        if body.len() < body_max && !input.line()?.is_empty() {
            return Err(AnswerError::Invalid("a chunk is longer than its size"));
        }
    }
    Ok(())
}

/// A stream, and the bytes that were read from it and not used yet.
struct Input<'a, S> {
    stream: &'a mut S,
    bytes: Vec<u8>,
    /// The first byte that was not used yet.
    next: usize,
}

impl<S: Read> Input<'_, S> {
    fn is_empty(&self) -> bool {
        self.next == self.bytes.len()
    }

    /// Reads more bytes, if the stream has not ended.
    fn read(&mut self) -> Result<bool, AnswerError> {
        // Chunks of one byte with long extensions would otherwise be kept for a whole body.
        self.bytes.drain(..self.next);
        self.next = 0;
        let filled = self.bytes.len();
        self.bytes.resize(filled + READ_BYTES, 0);
        let read = self.stream.read(&mut self.bytes[filled..]);
        self.bytes.truncate(filled + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// Reads at least one more byte.
    fn read_more(&mut self) -> Result<(), AnswerError> {
        if self.read()? { Ok(()) } else { Err(AnswerError::Closed) }
    }

    /// Everything up to the next empty line. Ends early if it cannot be HTTP.
    fn head(&mut self, max: usize) -> Result<&[u8], AnswerError> {
        const BEGINNING: &[u8] = b"HTTP/";
        self.bytes.drain(..self.next); // an interim answer
        self.next = 0;
        let mut seen = 0;
        loop {
            let known = self.bytes.len().min(BEGINNING.len());
            if self.bytes[..known] != BEGINNING[..known] {
                return Err(AnswerError::Invalid("it does not begin with HTTP/"));
            }
            let end = head_end(&self.bytes, seen);
            if end.unwrap_or(self.bytes.len()) > max {
                return Err(AnswerError::HeadersTooLarge);
            }
            if let Some(end) = end {
                self.next = end;
                return Ok(&self.bytes[..end]);
            }
            seen = self.bytes.len();
            self.read_more()?;
        }
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<&[u8], AnswerError> {
        let mut seen = 0;
        loop {
            let bytes = &self.bytes[self.next..];
            if let Some(end) = bytes[seen..].iter().position(|it| *it == b'\n') {
                let (start, end) = (self.next, self.next + seen + end);
                self.next = end + 1;
                let line = &self.bytes[start..end];
                return Ok(line.strip_suffix(b"\r").unwrap_or(line));
            }
            if bytes.len() > LINE_MAX_BYTES {
                return Err(AnswerError::Invalid("a line between chunks is too long"));
            }
            seen = bytes.len();
            self.read_more()?;
        }
    }

    /// Appends exactly `wanted` bytes, or what there is until the stream ends.
    fn append_to(&mut self, body: &mut Vec<u8>, wanted: usize) -> Result<(), AnswerError> {
        let mut left = wanted;
        loop {
            let part = left.min(self.bytes.len() - self.next);
            body.extend_from_slice(&self.bytes[self.next..self.next + part]);
            self.next += part;
            left -= part;
            if left == 0 {
                return Ok(());
            }
            self.read_more()?;
        }
    }

    /// Appends at most `max` bytes.
    fn append_until_closed(&mut self, body: &mut Vec<u8>, max: usize) -> Result<(), AnswerError> {
        while body.len() < max && (!self.is_empty() || self.read()?) {
            let part = (max - body.len()).min(self.bytes.len() - self.next);
            self.append_to(body, part)?;
        }
        Ok(())
    }
}

/// Where the empty line at the end of a head ends. Before `seen` there is no end of it.
fn head_end(bytes: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(3);
    let mut line_ends = (from..bytes.len()).filter(|it| bytes[*it] == b'\n');
    line_ends.find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of this size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(buffer.len()).min(self.0.len());
            let (piece, rest) = self.0.split_at(size);
            buffer[..size].copy_from_slice(piece);
            self.0 = rest;
            Ok(size)
        }
    }

    /// Status, body and error are the same however the bytes arrive.
    fn read(text: &str, body_max: usize) -> Result<(u16, String, Option<String>), String> {
        let of = |size: usize| {
            let answer = read_answer(&mut Pieces(text.as_bytes(), size), true, body_max);
            let answer = answer.map_err(|it| it.to_string())?;
            let body = String::from_utf8(answer.body).unwrap();
            Ok((answer.status, body, answer.cut.map(|it| it.to_string())))
        };
        let answer = of(usize::MAX);
        for size in [1, 2, 3, 7] {
            assert_eq!(of(size), answer, "in pieces of {size}: {text:?}");
        }
        answer
    }

    fn whole(text: &str) -> (u16, String) {
        let (status, body, cut) = read(text, 100).unwrap();
        assert_eq!(cut, None, "{text:?}");
        (status, body)
    }

    #[test]
    fn a_body_ends_as_its_headers_say() {
        for (rest, status, body) in [
            ("200 OK\r\nContent-Length: 2\r\n\r\nhi there", 200, "hi"),
            ("200 OK\r\ncontent-length: 2, 2\r\nContent-Length: 2\r\n\r\nhi!", 200, "hi"),
            ("200 OK\r\n\r\nuntil the end", 200, "until the end"),
            ("200 OK\nServer: old\n\nuntil the end", 200, "until the end"),
            ("404\r\n\r\n", 404, ""),
            ("204 No Content\r\n\r\nwhat is not there", 204, ""),
            ("304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, ""),
            ("200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\nall", 200, "all"),
            (
                "200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n\
                 A;name=x\r\n0123456789\r\n01 \r\na\r\n0\r\nTrailer: 1\r\n\r\n",
                200,
                "0123456789a",
            ),
        ] {
            assert_eq!(whole(&format!("HTTP/1.1 {rest}")), (status, body.into()), "{rest:?}");
        }
    }

    #[test]
    fn an_answer_to_head_ends_with_its_headers() {
        for header in ["Content-Length: 9", "Transfer-Encoding: chunked", "X: y"] {
            let text = format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\nrest");
            let answer = read_answer(&mut Pieces(text.as_bytes(), 7), false, 100).unwrap();
            assert!(answer.body.is_empty() && answer.cut.is_none(), "{header}");
        }
    }

    #[test]
    fn interim_answers_are_skipped() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(whole(text), (200, "x".into()));
        assert_eq!(whole("HTTP/1.1 101 Switching Protocols\r\n\r\n").0, 101);
        let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(4_000);
        assert!(read(&endless, 100).unwrap_err().contains("headers of the answer are larger"));
    }

    #[test]
    fn no_more_than_the_first_bytes_of_a_body_are_kept() {
        for text in [
            "HTTP/1.1 200 OK\r\n\r\n0123456789",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n0123456789",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffffff\r\n0123456789",
        ] {
            assert_eq!(read(text, 4), Ok((200, "0123".into(), None)), "{text:?}");
            assert_eq!(read(text, 0), Ok((200, String::new(), None)), "{text:?}");
        }
    }

    #[test]
    fn the_overhead_of_small_chunks_is_not_kept() {
        let chunk = format!("1;{}\r\nx\r\n", "e".repeat(3_000));
        let text = chunk.repeat(1_000);
        let mut pieces = Pieces(text.as_bytes(), 7_000);
        let mut input = Input { stream: &mut pieces, bytes: Vec::new(), next: 0 };
        let mut body = Vec::new();
        read_chunks(&mut input, &mut body, 1_000).unwrap();
        assert_eq!(body.len(), 1_000);
        let kept = input.bytes.capacity();
        assert!(kept < 20 * READ_BYTES, "{kept} bytes for a body of 1,000");
    }

    #[test]
    fn a_body_that_breaks_off_keeps_its_beginning_and_says_why() {
        const CLOSED: &str = "the connection was closed before the answer was complete";
        let chunked = "Transfer-Encoding: chunked\r\n\r\n";
        for (rest, body, why) in [
            ("Content-Length: 9\r\n\r\nhi", "hi", CLOSED),
            (&format!("{chunked}2\r\nhi\r\n"), "hi", CLOSED),
            (&format!("{chunked}2\r\nhi"), "hi", CLOSED),
            (&format!("{chunked}2\r\nhi!\r\n0\r\n"), "hi", "a chunk is longer than its size"),
            (&format!("{chunked}-2\r\nhi"), "", "the size of a chunk is no number"),
            (&format!("{chunked}\r\nhi"), "", "the size of a chunk is no number"),
            (&format!("{chunked}{}", "1".repeat(9_000)), "", "too long"),
        ] {
            let (_, found, cut) = read(&format!("HTTP/1.1 200 OK\r\n{rest}"), 100).unwrap();
            assert_eq!(found, body, "{rest:?}");
            assert!(
                cut.as_deref().is_some_and(|it| it.ends_with(why) || it.contains(why)),
                "{cut:?}"
            );
        }
    }

    #[test]
    fn what_is_not_http_is_refused_in_a_sentence() {
        for (text, why) in [
            ("", "was closed before"),
            ("HTTP/1.1 200 OK\r\nX: ", "was closed before"),
            ("SSH-2.0-OpenSSH\r\n", "it does not begin with HTTP/"),
            ("\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "it does not begin with HTTP/"),
            ("HTTP/2.0 200 OK\r\n\r\n", "its version of HTTP is unknown"),
            ("HTTP/1.1 twohundred\r\n\r\n", "its first line is no status line"),
            ("HTTP/1.1 200 OK\r\nA B: c\r\n\r\n", "a header's name"),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "its length is no number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", "it has two lengths"),
        ] {
            let error = read(text, 100).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: 1\r\n".repeat(200));
        assert!(read(&many, 100).unwrap_err().contains("more than 128 headers"));
    }
}

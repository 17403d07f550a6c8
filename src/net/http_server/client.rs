//! One client of the server: what it has said, what it is still to be sent, and when it is given up on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};

use crate::clock::Moment;
use crate::net::http_server::TICK;
use crate::net::http_server::message::{Method, Request, Response};

/// A client has this long to say what it wants.
const TO_ASK: Duration = Duration::from_secs(1);
/// It takes something of its answer this often …
const TO_TAKE_SOME: Duration = Duration::from_secs(2);
/// … and all of it within this: tens of megabytes, where there are many endpoints.
const TO_TAKE_ALL: Duration = Duration::from_secs(30);
/// After its answer it hangs up. Hanging up first, while it still speaks, could cost it the answer.
const TO_LEAVE: Duration = Duration::from_millis(500);
/// A browser sends the cookies of every other page on this host along.
const REQUEST_MAX: usize = 16 * 1_024;

/// Whether a client is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stays,
    Leaves,
}

pub(super) struct Client {
    stream: TcpStream,
    stage: Stage,
    /// When this stage began.
    since: Moment,
    /// When it is given up on, or asked about again.
    due: Moment,
}

enum Stage {
    /// What it has said.
    Asks(Vec<u8>),
    /// Its request, while the answer is on its way.
    Waits(Request),
    Takes(Sending),
    Leaves,
}

/// An answer, and how much of it is sent.
struct Sending {
    head: Vec<u8>,
    body: Arc<[u8]>,
    sent: usize,
}

impl Client {
    /// A client that has just connected; `None` if it is gone.
    pub(super) fn of(stream: TcpStream, now: Moment) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, stage: Stage::Asks(vec![]), since: now, due: now + TO_ASK })
    }

    /// When something is to be done about it even if it does nothing.
    pub(super) fn due(&self) -> Moment {
        self.due
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }

    /// Nobody misses it: it has not said what it wants, or has its answer.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Asks(_) | Stage::Leaves)
    }

    pub(super) fn awaited(&self) -> PollFd<'_> {
        let what = match self.stage {
            Stage::Asks(_) | Stage::Leaves => PollFlags::POLLIN,
            Stage::Waits(_) => PollFlags::empty(),
            Stage::Takes(_) => PollFlags::POLLOUT,
        };
        PollFd::new(self.stream.as_fd(), what)
    }

    /// Goes on as far as it can without waiting. `answer` is that of the site.
    pub(super) fn step(
        &mut self,
        is_ready: bool,
        now: Moment,
        answer: impl FnMut(&Request, Duration) -> Option<Response>,
    ) -> Next {
        if !is_ready && now < self.due {
            return Next::Stays;
        }
        let went = match self.stage {
            Stage::Asks(_) => self.hear(now, answer),
            // Nothing is awaited of it, so it has hung up.
            Stage::Waits(_) if is_ready => Ok(Next::Leaves),
            Stage::Waits(_) => self.ask_again(now, answer),
            Stage::Takes(_) => self.send(now),
            Stage::Leaves => self.see_off(now),
        };
        went.unwrap_or(Next::Leaves)
    }

    /// Reads as far as the empty line.
    fn hear(
        &mut self,
        now: Moment,
        answer: impl FnMut(&Request, Duration) -> Option<Response>,
    ) -> io::Result<Next> {
        let Stage::Asks(heard) = &mut self.stage else { return Ok(Next::Stays) };
        let mut part = [0; 4_096];
        let n = match self.stream.read(&mut part) {
            Ok(0) => return Ok(Next::Leaves),
            Ok(n) => n,
            Err(error) if is_for_later(&error) && now < self.due => return Ok(Next::Stays),
            Err(error) => return Err(error),
        };
        // The end may straddle two parts.
        let before = heard.len().saturating_sub(3);
        heard.extend_from_slice(part.get(..n).unwrap_or_default());
        let fresh = heard.get(before..).unwrap_or_default();
        let end = fresh.windows(4).position(|it| it == b"\r\n\r\n").map(|it| before + it);
        match end.and_then(|it| heard.get(..it)) {
            Some(head) if head.len() <= REQUEST_MAX => {
                let request = Request::parse(head);
                (self.stage, self.since) = (Stage::Waits(request), now);
                self.ask_again(now, answer)
            }
            None if heard.len() <= REQUEST_MAX && now < self.due => Ok(Next::Stays),
            _ => Ok(Next::Leaves),
        }
    }

    fn ask_again(
        &mut self,
        now: Moment,
        mut answer: impl FnMut(&Request, Duration) -> Option<Response>,
    ) -> io::Result<Next> {
        let Stage::Waits(request) = &self.stage else { return Ok(Next::Stays) };
        let Some(response) = answer(request, now.since(self.since)) else {
            self.due = now + TICK;
            return Ok(Next::Stays);
        };
        let is_head = request.method == Method::Head;
        let (head, body) = (response.head().into_bytes(), response.body);
        let body = if is_head { Arc::default() } else { body };
        self.stage = Stage::Takes(Sending { head, body, sent: 0 });
        (self.since, self.due) = (now, now + TO_TAKE_SOME);
        self.send(now)
    }

    fn send(&mut self, now: Moment) -> io::Result<Next> {
        let Stage::Takes(sending) = &mut self.stage else { return Ok(Next::Stays) };
        while let Some(rest) = sending.rest() {
            match self.stream.write(rest) {
                Ok(n) => {
                    sending.sent += n;
                    self.due = (now + TO_TAKE_SOME).min(self.since + TO_TAKE_ALL);
                }
                Err(error) if is_for_later(&error) && now < self.due => return Ok(Next::Stays),
                Err(error) => return Err(error),
            }
        }
        self.stream.shutdown(Shutdown::Write)?;
        (self.stage, self.since, self.due) = (Stage::Leaves, now, now + TO_LEAVE);
        Ok(Next::Stays)
    }

    /// Whatever it still says is not looked at.
    fn see_off(&mut self, now: Moment) -> io::Result<Next> {
        let gone = self.stream.read(&mut [0; 4_096])? == 0;
        Ok(if gone || now >= self.due { Next::Leaves } else { Next::Stays })
    }
}

impl Sending {
    /// What is to be sent next; `None` at the end.
    fn rest(&self) -> Option<&[u8]> {
        let rest = match self.sent.checked_sub(self.head.len()) {
            None => self.head.get(self.sent..)?,
            Some(sent) => self.body.get(sent..)?,
        };
        (!rest.is_empty()).then_some(rest)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::clock::{BootClock, Clock};

    /// poll(2) tells of a hang-up even where nothing is awaited: the server would ask about it without a pause.
    #[test]
    fn a_client_that_hangs_up_while_its_answer_is_made_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let now = BootClock.now();
        let mut client = Client::of(listener.accept().unwrap().0, now).unwrap();
        peer.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        while matches!(client.stage, Stage::Asks(_)) {
            assert_eq!(client.step(true, now, |_, _| None), Next::Stays);
        }
        assert_eq!(client.step(false, now, |_, _| None), Next::Stays);
        assert_eq!(client.step(true, now, |_, _| None), Next::Leaves);
    }
}

//! The terminal: raw and on its other screen while `top` runs, and as it was before on every way out.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::panic;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use parking_lot::Mutex;

use crate::cli::top::keys::{Decoder, Input};

/// Other screen, no cursor, and a line that is too long ends at the edge instead of on the next line.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// As far down and right as it goes, and where is that? There is no other way without `unsafe`.
const ASK_SIZE: &str = "\x1b[9999;9999H\x1b[6n";
/// What comes in pieces comes within this.
const PIECES: Duration = Duration::from_millis(30);

/// How the terminal was before; `None` while it is so.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// How large the screen is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The terminal in its unusual state. Dropping it puts everything back.
pub(crate) struct Terminal {
    decoder: Decoder,
    shown: Vec<String>,
    pub(crate) size: Size,
}

/// Both ends must be one.
pub(crate) fn is_there() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|it| it == "dumb" || it.is_empty());
    io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb
}

impl Terminal {
    /// Takes it over.
    pub(crate) fn enter() -> io::Result<Self> {
        // From here on, dropping it puts everything back, and so does a panic, which drops nothing.
        let mut terminal = Self { decoder: Decoder::default(), shown: vec![], size: usual_size() };
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            usual(info);
        }));
        terminal.take()?;
        Ok(terminal)
    }

    /// Raw and on its other screen, which is drawn anew; whether its size is asked for, which it is not when
    /// it was raw already.
    pub(crate) fn take(&mut self) -> io::Result<bool> {
        let now = tcgetattr(io::stdin())?;
        let mut raw = now.clone();
        cfmakeraw(&mut raw);
        let is_raw = BEFORE.lock().is_some() && now == raw;
        BEFORE.lock().get_or_insert(now);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        write_all(ENTER)?;
        self.shown.clear();
        if !is_raw {
            self.ask_size()?;
        }
        Ok(!is_raw)
    }

    /// The answer comes as input.
    pub(crate) fn ask_size(&mut self) -> io::Result<()> {
        write_all(ASK_SIZE)
    }

    /// Everything is drawn anew next time.
    pub(crate) fn resized(&mut self, size: Size) {
        if self.size != size {
            self.size = size;
            self.shown.clear();
        }
    }

    /// Shows these lines, writing only those that have changed, all at once.
    pub(crate) fn draw(&mut self, lines: Vec<String>) -> io::Result<()> {
        let mut out = String::new();
        if self.shown.is_empty() {
            out.push_str("\x1b[0m\x1b[2J");
        }
        for (at, line) in lines.iter().enumerate() {
            if self.shown.get(at) != Some(line) {
                out.push_str(&format!("\x1b[{};1H\x1b[K{line}", at + 1));
            }
        }
        self.shown = lines;
        if out.is_empty() { Ok(()) } else { write_all(&out) }
    }

    /// What was typed within `wait`; an error when there is nobody any more.
    pub(crate) fn input(&mut self, wait: Duration) -> io::Result<Vec<Input>> {
        let wait = if self.decoder.is_waiting() { PIECES } else { wait };
        if !is_readable(wait)? {
            return Ok(self.decoder.rest());
        }
        // As large as the buffer of stdin, which is passed by then: nothing is kept where poll cannot see it.
        let mut bytes = [0; 8_192];
        match io::stdin().lock().read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => Ok(self.decoder.decode(&bytes[..n])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(vec![]),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

fn is_readable(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, wait) {
        Ok(_) => Ok(fds[0].any().unwrap_or(false)),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Once; never waits, because a panic may come while it is locked.
pub(crate) fn leave() {
    let Some(before) = BEFORE.try_lock().and_then(|mut it| it.take()) else { return };
    let _ = write_all(LEAVE);
    let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &before);
}

fn write_all(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Until the terminal has said it itself.
fn usual_size() -> Size {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok().filter(|it| *it > 0);
    Size { rows: number("LINES").unwrap_or(24), columns: number("COLUMNS").unwrap_or(80) }
}

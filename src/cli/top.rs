//! `leasehold top`: what `status` shows, live. Whole frames, one write each, only the lines that changed.
//!
//! The thread `reader` asks Redis and may hang as long as Redis does; this one draws and listens to keys.

mod frame;
mod keys;
mod line;
mod picture;
mod terminal;
mod view;

use std::collections::VecDeque;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::store::StoreResult;
use crate::store::redis::RedisStore;
use crate::supervise::signals::Signals;
use crate::thread::Thread;
use crossbeam_channel::{Receiver, Sender, bounded};
use nix::sys::signal::Signal;

use crate::cli::status;
use crate::cli::table::{Painter, printable};
use crate::cli::task::{Output, StatusHow};
use crate::cli::top::frame::{Surroundings, TICK, frame};
use crate::cli::top::keys::Input;
use crate::cli::top::line::Signs;
use crate::cli::top::picture::Picture;
use crate::cli::top::terminal::Terminal;
use crate::cli::top::view::{Next, View};
use crate::cli::{FAILED, USAGE, fail};

/// Signals and pictures are looked at so often; keys are seen at once.
const LOOK: Duration = Duration::from_millis(100);
/// Reading takes at most one part in this many of the time.
const READING_SHARE: u32 = 10;
/// A store that does not answer is not asked more often than this.
const RETRY: Duration = Duration::from_secs(1);
/// A terminal says how large it is within this, or is taken to be of the usual size for the first frame.
const SIZE_WITHIN: Duration = Duration::from_millis(200);

/// Shows it until told to stop.
pub(crate) fn top(config: &Config, how: StatusHow, refresh: Duration) -> ExitCode {
    if how.output == Output::Json {
        return status::status(config, &how);
    }
    if !terminal::is_there() {
        let why = "top needs a terminal: use leasehold status, or top --json for programs";
        return fail(USAGE, &why);
    }
    let Ok(signals) = Signals::catch_on_terminal() else {
        return fail(FAILED, &"cannot handle signals");
    };
    // Before anything is drawn: a Redis that cannot be asked at all is reported in the usual way.
    let store = RedisStore::of_endpoints(config);
    let first = match Picture::read(&store, config, how.stale_after) {
        Ok(first) => first,
        Err(error) => return status::failed(&error),
    };
    let (asks, asked) = bounded(1);
    let (tell, pictures) = bounded(1);
    let (settings, stale) = (config.clone(), how.stale_after);
    let reader = Thread::spawn("reader", move || {
        let read = || Picture::read(&store, &settings, stale);
        asked.iter().take_while(|()| tell.send(read()).is_ok()).for_each(drop);
    });
    let Ok(reader) = reader else { return fail(FAILED, &"cannot start a thread") };
    let redis = config.redis.to_string();
    let screen = Screen { asks, pictures, refresh, redis: &redis, signs: Signs::of_locale() };
    let ended = Terminal::enter().and_then(|it| screen.run(it, View::of(first), &signals));
    // It may wait for Redis longer than anybody wants to wait for the prompt; it ends with the process.
    std::mem::forget(reader);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_hang_up(&error) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("cannot use the terminal: {error}")),
    }
}

/// Nobody is in front of it any more.
fn is_hang_up(error: &io::Error) -> bool {
    let gone = [io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe];
    gone.contains(&error.kind()) || error.raw_os_error() == Some(nix::errno::Errno::EIO as i32)
}

/// Leaves the terminal to the shell until it says to go on; what was typed since.
fn suspend(terminal: &mut Terminal) -> io::Result<Vec<Input>> {
    terminal::leave();
    Signals::stop_here()?;
    resume(terminal)
}

/// Another program that had the terminal meanwhile may have left it in any state, and of any size.
fn resume(terminal: &mut Terminal) -> io::Result<Vec<Input>> {
    if terminal.take()? { terminal.input(SIZE_WITHIN) } else { Ok(vec![]) }
}

struct Screen<'a> {
    asks: Sender<()>,
    pictures: Receiver<StoreResult<Picture>>,
    refresh: Duration,
    redis: &'a str,
    signs: Signs,
}

impl Screen<'_> {
    fn run(&self, mut terminal: Terminal, mut view: View, signals: &Signals) -> io::Result<()> {
        let mut due = self.next_reading(&view, BootClock.now());
        let mut drawn_at = Moment::MIN;
        let mut changed = true;
        let mut inputs = VecDeque::from(terminal.input(SIZE_WITHIN)?);
        loop {
            for signal in signals.caught().try_iter() {
                match signal {
                    Signal::SIGWINCH => terminal.ask_size()?,
                    Signal::SIGTSTP => inputs.extend(suspend(&mut terminal)?),
                    Signal::SIGCONT => inputs.extend(resume(&mut terminal)?),
                    Signal::SIGUSR1 | Signal::SIGUSR2 => (),
                    _ => return Ok(()),
                }
            }
            while let Some(input) = inputs.pop_front() {
                changed = true;
                match input {
                    Input::Size(size) => terminal.resized(size),
                    Input::Suspend => inputs.extend(suspend(&mut terminal)?),
                    key if view.press(key) == Next::Quit => return Ok(()),
                    _ => (),
                }
            }
            let now = BootClock.now();
            if let Ok(read) = self.pictures.try_recv() {
                due = self.take(&mut view, read, now);
                changed = true;
            }
            if !view.paused && now >= due {
                // Until it has been read there is nothing more to ask for.
                let _ = self.asks.try_send(());
                due = Moment::MAX;
            }
            if changed || now.since(drawn_at) >= TICK {
                self.draw(&mut terminal, &mut view, now)?;
                (drawn_at, changed) = (now, false);
            }
            inputs.extend(terminal.input(LOOK)?);
        }
    }

    /// When to read next.
    fn take(&self, view: &mut View, read: StoreResult<Picture>, now: Moment) -> Moment {
        match read {
            Ok(_) if view.paused => (),
            Ok(picture) => view.show(picture),
            Err(error) => {
                let since = view.trouble.take().map_or(view.picture.read_at, |it| it.0);
                view.trouble = Some((since, printable(&error.to_string())));
                return now + self.refresh.max(RETRY);
            }
        }
        self.next_reading(view, now)
    }

    fn next_reading(&self, view: &View, now: Moment) -> Moment {
        now + self.refresh.max(view.picture.took * (READING_SHARE - 1))
    }

    fn draw(&self, terminal: &mut Terminal, view: &mut View, now: Moment) -> io::Result<()> {
        let around = Surroundings { redis: self.redis, now, signs: self.signs };
        let size = terminal.size;
        let lines = frame(view, size, &around);
        let painter = Painter::for_stdout();
        let lines = lines.iter().map(|it| it.shown(size.columns, painter, self.signs));
        terminal.draw(lines.collect())
    }
}

//! A terminal emulator behind a pty: it interprets what a program writes and answers its queries.
//!
//! Strict: a sequence that it does not know fails the test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::process::{SOON, binary, eventually};

/// What is to be seen, and what was done to get there.
pub struct Screen {
    rows: usize,
    columns: usize,
    cells: Vec<Vec<char>>,
    cursor: (usize, usize),
    pending: Vec<u8>,
    pub alternate: bool,
    pub cursor_shown: bool,
    pub wraps: bool,
    pub coloured: bool,
    /// How often everything was erased.
    pub erased: usize,
    /// How many lines were written.
    pub lines_written: usize,
    /// How many characters did not fit.
    pub overlong: usize,
    /// What could not be understood.
    pub flaw: Option<String>,
}

impl Screen {
    fn new(rows: usize, columns: usize) -> Self {
        Self {
            rows,
            columns,
            cells: vec![vec![' '; columns]; rows],
            cursor: (0, 0),
            pending: vec![],
            alternate: false,
            cursor_shown: true,
            wraps: true,
            coloured: false,
            erased: 0,
            lines_written: 0,
            overlong: 0,
            flaw: None,
        }
    }

    /// The rows, without the spaces at their ends.
    pub fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|it| it.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    fn resize(&mut self, rows: usize, columns: usize) {
        (self.rows, self.columns) = (rows, columns);
        self.cells = vec![vec!['?'; columns]; rows];
    }

    /// Takes in what was written; what to answer.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        self.pending.extend_from_slice(bytes);
        while let Some((n, answer)) = self.step() {
            self.pending.drain(..n);
            answers.extend(answer);
        }
        answers
    }

    /// Understands one thing, if it is there as a whole; its length, and what to answer.
    fn step(&mut self) -> Option<(usize, Vec<u8>)> {
        match *self.pending.first()? {
            0x1b => {
                let end =
                    self.pending.iter().skip(2).position(|it| (0x40..=0x7e).contains(it))? + 3;
                let sequence = String::from_utf8_lossy(&self.pending[..end]).into_owned();
                Some((end, self.obey(&sequence)))
            }
            b'\r' => {
                self.cursor.1 = 0;
                Some((1, vec![]))
            }
            b'\n' => {
                self.cursor.0 = (self.cursor.0 + 1).min(self.rows - 1);
                Some((1, vec![]))
            }
            first => {
                let length = match first {
                    0..0x80 => 1,
                    0xc0..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    _ => 4,
                };
                let bytes = self.pending.get(..length)?;
                let text = String::from_utf8_lossy(bytes).into_owned();
                text.chars().for_each(|it| self.put(it));
                Some((length, vec![]))
            }
        }
    }

    fn put(&mut self, c: char) {
        if c.is_control() {
            self.flaw.get_or_insert(format!("the control {c:?}"));
        }
        let (row, column) = self.cursor;
        if column >= self.columns {
            // Harmless without wrapping, and unavoidable right after a resize.
            self.overlong += 1;
            if self.wraps {
                self.flaw.get_or_insert(format!("row {row} wraps at {c:?}"));
            }
            return;
        }
        self.cells[row][column] = c;
        self.cursor.1 += 1;
    }

    fn obey(&mut self, sequence: &str) -> Vec<u8> {
        let known = sequence.strip_prefix("\x1b[").map(|it| it.split_at(it.len() - 1));
        match known {
            Some((place, "H")) => {
                let (row, column) = place.split_once(';').unwrap_or(("1", "1"));
                let limited =
                    |it: &str, most: usize| it.parse::<usize>().unwrap().clamp(1, most) - 1;
                self.cursor = (limited(row, self.rows), limited(column, self.columns));
            }
            Some(("", "K")) => {
                let (row, column) = self.cursor;
                self.cells[row][column..].fill(' ');
                self.lines_written += 1;
            }
            Some(("2", "J")) => {
                self.cells.iter_mut().for_each(|it| it.fill(' '));
                self.erased += 1;
            }
            Some((colours, "m")) => self.coloured |= colours != "0",
            Some(("?1049", on)) => self.alternate = on == "h",
            Some(("?25", on)) => self.cursor_shown = on == "h",
            Some(("?7", on)) => self.wraps = on == "h",
            Some(("6", "n")) => {
                let (row, column) = self.cursor;
                return format!("\x1b[{};{}R", row + 1, column + 1).into_bytes();
            }
            _ => drop(self.flaw.get_or_insert(format!("the sequence {sequence:?}"))),
        }
        vec![]
    }
}

/// Both ends, of which no other process that is started meanwhile gets a copy.
fn pty() -> (File, File) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname_r(&master).unwrap();
    let flags = (OFlag::O_NOCTTY).bits();
    let slave = File::options().read(true).write(true).custom_flags(flags).open(name).unwrap();
    (File::from(OwnedFd::from(master)), slave)
}

/// The binary in a terminal of its own, killed on drop.
pub struct Terminal {
    child: Child,
    master: File,
    slave: Option<File>,
    before: Termios,
    screen: Arc<Mutex<Screen>>,
    over: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Terminal {
    pub fn start(args: &[&str], rows: usize, columns: usize) -> Self {
        Self::start_in(&[], args, rows, columns)
    }

    pub fn start_in(env: &[(&str, &str)], args: &[&str], rows: usize, columns: usize) -> Self {
        let (master, slave) = pty();
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new(binary());
        command.args(args).stdin(end()).stdout(end()).stderr(end());
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        // A group of its own, beside ours: so that it can be stopped as by a shell, and we are not.
        let child = command.envs(env.iter().copied()).process_group(0).spawn().unwrap();
        drop(command);
        let screen = Arc::new(Mutex::new(Screen::new(rows, columns)));
        let over = Arc::new(AtomicBool::new(false));
        let (kept, stop) = (Arc::clone(&screen), Arc::clone(&over));
        let behind = master.try_clone().unwrap();
        let watcher = std::thread::spawn(move || stand_behind(behind, &kept, &stop));
        let watcher = Some(watcher);
        Self { child, master, slave: Some(slave), before, screen, over, watcher }
    }

    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn resize(&self, rows: usize, columns: usize) {
        self.screen.lock().resize(rows, columns);
        self.signal(Signal::SIGWINCH);
    }

    /// Everything that is to be seen, a row a line.
    pub fn text(&self) -> String {
        self.screen.lock().lines().join("\n")
    }

    pub fn with<T>(&self, look: impl FnOnce(&Screen) -> T) -> T {
        look(&self.screen.lock())
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        eventually(SOON, what, || self.text(), || condition(&self.text()));
        self.assert_sound();
        self.text()
    }

    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |it| it.contains(text))
    }

    #[track_caller]
    pub fn wait_without(&self, text: &str) -> String {
        self.wait_until(&format!("no more {text}"), |it| !it.contains(text))
    }

    /// Looks at it again and again for this long: for what must not happen meanwhile.
    #[track_caller]
    pub fn watch(&self, time: Duration, mut look: impl FnMut(&str)) {
        let began = Instant::now();
        eventually(time + SOON, "its time", String::new, || {
            look(&self.text());
            began.elapsed() >= time
        });
    }

    /// Nothing was written that a terminal could misunderstand.
    #[track_caller]
    pub fn assert_sound(&self) {
        let flaw = self.with(|it| it.flaw.clone());
        assert!(flaw.is_none(), "{flaw:?}\n{}", self.text());
    }

    /// Whether it stands still, as after a Ctrl-Z.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(SOON, "the end", String::new, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// The terminal is as it was before: screen, cursor, wrapping and modes.
    #[track_caller]
    pub fn assert_restored(&self) {
        let left = || self.with(|it| !it.alternate && it.cursor_shown && it.wraps);
        eventually(SOON, "the usual screen", || self.text(), left);
        let now = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        assert_eq!(now, self.before);
        self.assert_sound();
    }

    /// Pulls the plug; how it ended, and how long that took.
    pub fn hang_up(mut self) -> (ExitStatus, Duration) {
        self.over.store(true, Ordering::SeqCst);
        self.watcher.take().unwrap().join().unwrap();
        self.slave = None;
        let pulled_at = Instant::now();
        let nowhere = File::open("/dev/null").unwrap();
        drop(std::mem::replace(&mut self.master, nowhere));
        (self.wait(), pulled_at.elapsed())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.over.store(true, Ordering::SeqCst);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        if std::thread::panicking() {
            eprintln!("--- the screen\n{}", self.text());
        }
    }
}

/// Reads what is written, and answers.
fn stand_behind(mut master: File, screen: &Mutex<Screen>, over: &AtomicBool) {
    let mut bytes = [0; 65_536];
    while !over.load(Ordering::SeqCst) {
        let mut fds = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(50_u8)).unwrap_or(0) == 0 {
            continue;
        }
        let Ok(n) = master.read(&mut bytes) else { return };
        let answer = screen.lock().feed(&bytes[..n]);
        let _ = master.write_all(&answer);
    }
}

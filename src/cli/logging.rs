//! How does an event become a line on stderr? Through `log` and simplelog, in one write each.
//!
//! `2026-11-16T00:04:07.123Z INFO (renewal) event=lease.renewed instance=… endpoint=… ttl_ms=30000`
//!
//! simplelog cannot write that by itself: it puts the level in brackets, leaves the thread out when
//! it has no name, and takes another time format only from users of the `time` crate. So [`Prefixed`]
//! puts level and thread into the message, simplelog adds the time and the lock, and [`Lines`] cuts
//! the time to milliseconds. Does not decide what is said: that is `event`.
//!
//! Where stderr is journald's own stream, each line begins with its priority (`<6>`), which journald
//! takes off again: `journalctl -p warning` finds the warnings.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::sys::stat::fstat;
use simplelog::{ConfigBuilder, WriteLogger};

use crate::config::LogLevel;

/// Sends the log to stderr from here on, at `level` and above.
pub(crate) fn start(level: LogLevel) {
    let level = filter(level);
    let logger = LOGGER.get_or_init(|| Prefixed::new(level, io::stderr(), is_journal()));
    // Fails only where a logger was set before, and then there is one.
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}

/// From here on at `level` and above.
pub(crate) fn set_level(level: LogLevel) {
    let level = filter(level);
    if let Some(logger) = LOGGER.get() {
        logger.level.store(level as usize, Ordering::Relaxed);
        log::set_max_level(level);
    }
}

/// From here on at `level` and above, or at the present level if that is more talkative.
pub(crate) fn raise_level(level: LogLevel) {
    if filter(level) > log::max_level() {
        set_level(level);
    }
}

/// As `log` calls it.
fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::Off,
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Trace => LevelFilter::Trace,
    }
}

static LOGGER: OnceLock<Prefixed<io::Stderr>> = OnceLock::new();

/// Whether stderr goes straight to journald.
pub(crate) fn is_journal() -> bool {
    let here = fstat(io::stderr()).ok().map(|it| (it.st_dev, it.st_ino));
    here.is_some_and(|here| names(env::var_os("JOURNAL_STREAM").as_deref(), here))
}

/// Whether `$JOURNAL_STREAM` names this device and inode. The variable alone proves nothing: it is
/// inherited by whatever is started with another stderr.
fn names(stream: Option<&OsStr>, (device, inode): (u64, u64)) -> bool {
    let stream = stream.and_then(OsStr::to_str).and_then(|it| it.split_once(':'));
    stream.is_some_and(|(d, i)| d.parse() == Ok(device) && i.parse() == Ok(inode))
}

struct Prefixed<W: Write + Send + 'static> {
    level: AtomicUsize,
    inner: Box<WriteLogger<Lines<W>>>,
}

impl<W: Write + Send + 'static> Prefixed<W> {
    fn new(level: LevelFilter, to: W, priorities: bool) -> Self {
        let config = ConfigBuilder::new()
            .set_time_format_rfc3339()
            .set_max_level(LevelFilter::Off) // of writing the level, not of logging
            .set_thread_level(LevelFilter::Off)
            .set_target_level(LevelFilter::Off)
            .set_location_level(LevelFilter::Off)
            .build();
        let lines = Lines { priorities, ..Lines::new(to) };
        let inner = WriteLogger::new(LevelFilter::Trace, config, lines);
        Self { level: AtomicUsize::new(level as usize), inner }
    }
}

impl<W: Write + Send + 'static> Log for Prefixed<W> {
    /// What a dependency tells below a warning is about itself, and may quote what it sends.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let ours = target == "leasehold" || target.starts_with("leasehold::");
        let wanted = metadata.level() as usize <= self.level.load(Ordering::Relaxed);
        wanted && (ours || metadata.level() <= Level::Warn)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // Before simplelog takes its lock: a Display that panics inside would poison it for good.
        let message = one_line(&record.args().to_string());
        let thread = thread::current();
        let name = thread.name().unwrap_or("unnamed");
        self.inner.log(
            &Record::builder()
                .metadata(record.metadata().clone())
                .args(format_args!("{} ({name}) {message}", record.level()))
                .build(),
        );
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// Events quote what strangers wrote; should one forget to, a newline must not begin a line.
fn one_line(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Collects a line and writes it at once. Whatever becomes of it, the caller never hears of it: a
/// closed stderr or a full disk is no reason to stop polling.
struct Lines<W> {
    to: W,
    line: Vec<u8>,
    /// The last line was cut off in the middle, by a disk that filled up.
    torn: bool,
    /// Each begins with its priority.
    priorities: bool,
}

impl<W: Write> Lines<W> {
    fn new(to: W) -> Self {
        Self { to, line: Vec::new(), torn: false, priorities: false }
    }

    fn send(&mut self) {
        let mut line = in_milliseconds(&self.line);
        self.line.clear();
        if self.priorities {
            line.splice(0..0, priority(&line).bytes());
        }
        if self.torn {
            line.insert(0, b'\n');
        }
        let mut sent = 0;
        while sent < line.len() {
            match self.to.write(&line[sent..]) {
                Ok(0) => break,
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(_) => break,
            }
        }
        self.torn = sent < line.len() && (sent > 0 || self.torn);
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.ends_with(b"\n") {
            self.send();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// In sd-daemon's numbers, by the word behind the time.
fn priority(line: &[u8]) -> &'static str {
    match line.split(|c| *c == b' ').nth(1) {
        Some(b"ERROR") => "<3>",
        Some(b"WARN") => "<4>",
        Some(b"INFO") => "<6>",
        _ => "<7>",
    }
}

/// RFC 3339 allows any number of digits after the second, and none; here it is always three.
fn in_milliseconds(line: &[u8]) -> Vec<u8> {
    const UP_TO_SECONDS: usize = "2026-11-16T00:04:07".len();
    let Some(end) = line.iter().position(|c| *c == b'Z').filter(|it| *it >= UP_TO_SECONDS) else {
        return line.to_vec();
    };
    let digits = line[UP_TO_SECONDS..end].iter().filter(|c| c.is_ascii_digit()).copied();
    let mut out = line[..UP_TO_SECONDS].to_vec();
    out.push(b'.');
    out.extend(digits.chain(*b"000").take(3));
    out.extend_from_slice(&line[end..]);
    out
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps every write apart.
    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<String>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn say(log: &dyn Log, level: Level, target: &str, message: &str) {
        log.log(
            &Record::builder().level(level).target(target).args(format_args!("{message}")).build(),
        );
    }

    fn written(level: LevelFilter, records: &[(Level, &str, &str)]) -> Vec<String> {
        let captured = Captured::default();
        let log = Prefixed::new(level, captured.clone(), false);
        for (level, target, message) in records {
            say(&log, *level, target, message);
        }
        captured.0.lock().unwrap().clone()
    }

    #[test]
    fn a_line_has_utc_milliseconds_level_thread_and_message_in_one_write() {
        let thread = thread::Builder::new().name("renewal".into()).spawn(|| {
            let record =
                (Level::Info, "leasehold::event", "event=lease.renewed instance=a ttl_ms=30000");
            written(LevelFilter::Info, &[record])
        });
        let lines = thread.unwrap().join().unwrap();
        assert_eq!(lines.len(), 1);
        let (time, rest) = lines[0].split_at("2026-11-16T00:04:07.123Z".len());
        assert_eq!(rest, " INFO (renewal) event=lease.renewed instance=a ttl_ms=30000\n");
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
    }

    #[test]
    fn a_time_has_three_digits_after_the_second_whatever_simplelog_wrote() {
        for (from, to) in [
            ("2026-11-16T00:04:07.123456789Z INFO\n", "2026-11-16T00:04:07.123Z INFO\n"),
            ("2026-11-16T00:04:07.1Z WARN Z\n", "2026-11-16T00:04:07.100Z WARN Z\n"),
            ("2026-11-16T00:04:07Z INFO\n", "2026-11-16T00:04:07.000Z INFO\n"),
            ("no time\n", "no time\n"),
            ("\n", "\n"),
        ] {
            assert_eq!(String::from_utf8(in_milliseconds(from.as_bytes())).unwrap(), to);
        }
    }

    #[test]
    fn a_newline_in_a_message_cannot_begin_a_line() {
        let record = (Level::Warn, "leasehold", "error=a\nevent=forged\r\u{1b}[31m");
        let lines = written(LevelFilter::Info, &[record]);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("error=a event=forged  [31m\n"), "{lines:?}");
    }

    #[test]
    fn under_journald_a_line_begins_with_its_priority_and_is_otherwise_the_same() {
        let captured = Captured::default();
        let log = Prefixed::new(LevelFilter::Trace, captured.clone(), true);
        let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        levels.iter().for_each(|it| say(&log, *it, "leasehold", "event=x"));
        let lines = captured.0.lock().unwrap().clone();
        let begins: Vec<&str> = lines.iter().map(|it| &it[..3]).collect();
        assert_eq!(begins, ["<3>", "<4>", "<6>", "<7>", "<7>"], "{lines:?}");
        assert!(lines.iter().all(|it| it[3..].starts_with("20") && it.ends_with("event=x\n")));
    }

    #[test]
    fn only_the_very_stream_that_is_named_is_journald_s() {
        let says = |text: &str| names(Some(OsStr::new(text)), (10, 35_353));
        assert!(says("10:35353"));
        for other in ["", "10", "10:", ":35353", "10:35354", "11:35353", "10:35353 ", "x:y"] {
            assert!(!says(other), "{other}");
        }
        assert!(!names(None, (10, 35_353)));
    }

    #[test]
    fn a_dependency_is_heard_only_when_it_warns() {
        let lines = written(
            LevelFilter::Trace,
            &[
                (Level::Info, "rustls::unit", "no"),
                (Level::Debug, "rustls::client", "no"),
                (Level::Info, "leaseholder", "no"),
                (Level::Warn, "redis", "yes"),
                (Level::Trace, "leasehold::instance", "yes"),
            ],
        );
        assert_eq!(lines.len(), 2, "{lines:?}");
    }

    #[test]
    fn a_level_keeps_back_what_is_below_it() {
        let records = [(Level::Info, "leasehold", "info"), (Level::Warn, "leasehold", "warn")];
        assert_eq!(written(LevelFilter::Warn, &records).len(), 1);
        assert_eq!(written(LevelFilter::Off, &records).len(), 0);
    }

    /// Fails as a closed pipe does; `room` bytes go through before.
    struct Broken {
        room: usize,
        got: Captured,
    }

    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let n = self.room.min(bytes.len());
            self.room -= n;
            self.got.write(&bytes[..n])
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_stderr_that_always_fails_disturbs_nobody() {
        let log =
            Prefixed::new(LevelFilter::Info, Broken { room: 0, got: Captured::default() }, false);
        for _ in 0..3 {
            say(&log, Level::Error, "leasehold", "lost");
            log.flush();
        }
    }

    #[test]
    fn a_line_after_one_that_was_cut_off_begins_on_its_own() {
        let got = Captured::default();
        let mut lines = Lines::new(Broken { room: 3, got: got.clone() });
        lines.write_all(b"first\n").unwrap();
        lines.write_all(b"nothing of this\n").unwrap();
        lines.to.room = 100;
        lines.write_all(b"third\n").unwrap();
        lines.write_all(b"fourth\n").unwrap();
        assert_eq!(got.0.lock().unwrap().concat(), "fir\nthird\nfourth\n");
    }

    #[test]
    fn a_message_that_panics_while_it_is_written_does_not_silence_the_next() {
        struct Panics;
        impl std::fmt::Display for Panics {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                panic!("on purpose")
            }
        }
        let captured = Captured::default();
        let log = Prefixed::new(LevelFilter::Info, captured.clone(), false);
        let quiet = std::panic::AssertUnwindSafe(|| {
            let metadata = Metadata::builder().level(Level::Info).target("leasehold").build();
            log.log(&Record::builder().metadata(metadata).args(format_args!("{Panics}")).build());
        });
        assert!(std::panic::catch_unwind(quiet).is_err());
        say(&log, Level::Info, "leasehold", "still here");
        assert_eq!(captured.0.lock().unwrap().len(), 1);
    }
}

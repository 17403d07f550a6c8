//! The play that is drawn: who owns how much while instances join, crash, drain and restart.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::thread::{Stop, StopSource, Thread, stop};
use parking_lot::Mutex;
use redis::Connection;

use crate::chart::Chart;
use crate::fleet::{Shares, owned};
use crate::stage::Stage;

const SESSIONS: usize = 96;
const NAMES: [&str; 4] = ["vm1", "vm2", "vm3", "vm4"];
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// How long the settled fleet is shown in each act.
const REST: Duration = Duration::from_millis(2_500);

/// Plays, and writes the picture to `file`; false, and no picture, if a rule was broken.
pub(crate) fn draw(file: &Path, until: &Stop) -> io::Result<bool> {
    let stage = Stage::new(SESSIONS, until)?;
    let recorder = Recorder::start(stage.redis.connect(until)?, &stage.endpoints)?;
    let begun = BootClock.now();
    let acts = Vec::new();
    let mut drawing = Drawing { stage, begun, acts, killed: None, recovery: Duration::ZERO };
    drawing.play()?;
    let seen = drawing.stage.judge.end_act();
    let samples = recorder.stop();
    let say = |text: &str| writeln!(io::stdout().lock(), "{text}");
    if !seen.is_sound() {
        say("A rule was broken: polls of one endpoint overlapped, or a fence went back.")?;
        return Ok(false);
    }
    let chart = drawing.chart(&samples, seen.polls);
    std::fs::write(file, chart.svg())?;
    say(&format!("{} shows: {}", file.display(), chart.description))?;
    Ok(true)
}

struct Drawing<'a> {
    stage: Stage<'a>,
    begun: Moment,
    acts: Vec<(Moment, String)>,
    /// Who, and when: what it still owns from then on is owned by nobody.
    killed: Option<(&'static str, Moment)>,
    /// From the crash to the moment at which everything was shared out again.
    recovery: Duration,
}

impl Drawing<'_> {
    fn play(&mut self) -> io::Result<()> {
        self.act("three start");
        for name in &NAMES[..3] {
            self.stage.fleet.start(name, *name == NAMES[0])?;
        }
        self.rest(None)?;
        self.act("vm4 joins");
        self.stage.fleet.start("vm4", false)?;
        self.rest(None)?;
        self.act("vm2 SIGKILL");
        self.stage.fleet.kill("vm2");
        let killed_at = BootClock.now();
        self.killed = Some(("vm2", killed_at));
        self.stage.wait_for_even_shares(None)?;
        self.recovery = BootClock.now().since(killed_at);
        self.rest(None)?;
        self.act("vm1 drained");
        self.drain("SADD", "vm1")?;
        self.rest(Some("vm1"))?;
        self.act("vm1 undrained");
        self.drain("SREM", "vm1")?;
        self.rest(None)?;
        self.act("vm3 SIGTERM");
        self.stage.fleet.stop("vm3", self.stage.until)?;
        self.rest(None)?;
        self.act("vm3 starts again");
        self.stage.fleet.start("vm3", false)?;
        self.rest(None)
    }

    fn act(&mut self, label: &str) {
        self.acts.push((BootClock.now(), label.into()));
    }

    fn drain(&mut self, command: &str, name: &str) -> io::Result<()> {
        let done = redis::cmd(command).arg("poll:drain").arg(name).exec(&mut self.stage.connection);
        done.map_err(io::Error::other)
    }

    fn rest(&mut self, drained: Option<&str>) -> io::Result<()> {
        self.stage.wait_for_even_shares(drained)?;
        self.stage.pause(REST)
    }

    fn chart(&self, samples: &[(Moment, Shares)], polls: u32) -> Chart {
        let second = |at: Moment| at.since(self.begun).as_secs_f64();
        let steps = samples.iter().map(|(at, shares)| (second(*at), self.bands(*at, shares)));
        let recovery = self.recovery.as_secs_f32();
        Chart {
            title: "Load per instance, through join, crash, drain and restart".into(),
            description: format!(
                "{SESSIONS} leases on up to four instances, stacked. Three start and take a third \
                 each; a fourth joins and gets a quarter; one is killed, and its quarter belongs to \
                 nobody until its heartbeat expires, then to the others, {recovery:.1} s after the \
                 crash; one is drained, hands over everything and gets its share back; one is \
                 stopped and started again. Nothing else moves."
            ),
            bands: [NAMES[0], NAMES[1], NAMES[2], NAMES[3], "nobody: free, or its owner is dead"],
            steps: steps.collect(),
            markers: self.acts.iter().map(|(at, label)| (second(*at), label.clone())).collect(),
            end: samples.last().map_or(1.0, |it| second(it.0)),
            note: format!(
                "Lease and heartbeat TTL 3 s (default 30 s). {polls} polls seen by the endpoints, \
                 never two of one endpoint at a time."
            ),
        }
    }

    /// How many each of the instances has, and nobody.
    fn bands(&self, at: Moment, shares: &Shares) -> [usize; NAMES.len() + 1] {
        let mut bands = [0; NAMES.len() + 1];
        for (band, name) in bands.iter_mut().zip(NAMES) {
            let dead = self.killed.is_some_and(|it| it.0 == name && at >= it.1);
            *band = if dead { 0 } else { shares.get(name).copied().unwrap_or(0) };
        }
        bands[NAMES.len()] = SESSIONS - bands.iter().sum::<usize>();
        bands
    }
}

/// Reads all owners every 50 ms, in a thread of its own.
struct Recorder {
    samples: Arc<Mutex<Vec<(Moment, Shares)>>>,
    _source: StopSource,
    _thread: Thread,
}

impl Recorder {
    fn start(mut connection: Connection, endpoints: &[String]) -> io::Result<Self> {
        let samples = Arc::<Mutex<Vec<(Moment, Shares)>>>::default();
        let leases: Vec<String> = endpoints.iter().map(|it| format!("poll:lease:{it}")).collect();
        let (source, until) = stop();
        let kept = Arc::clone(&samples);
        let thread = Thread::steps("recorder", until, move || {
            // A sample that could not be taken is left out: the step before it goes on.
            if let Ok(shares) = owned(&mut connection, &leases) {
                kept.lock().push((BootClock.now(), shares));
            }
            SAMPLE_INTERVAL
        })?;
        Ok(Self { samples, _source: source, _thread: thread })
    }

    fn stop(self) -> Vec<(Moment, Shares)> {
        std::mem::take(&mut self.samples.lock())
    }
}

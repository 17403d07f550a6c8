//! Shows what a fleet does while it grows, shrinks, crashes and loses its Redis. `make demo`.
//!
//! Everything is real and private: a redis-server on a free port, instances of the binary next to
//! this example, and an HTTP endpoint in this process that records who polled what, when.

mod fleet;
mod judge;
mod screen;
mod server;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::daemon::thread::{Stop, stop};
use parking_lot::Mutex;
use redis::Connection;

use crate::fleet::{Fleet, Shares, shares};
use crate::judge::{Judge, Seen};
use crate::screen::Screen;
use crate::server::PrivateRedis;

const SESSIONS: usize = 12;
/// How long a change may take to settle.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the settled fleet is watched in each act.
const WATCH: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    match interruptible().and_then(|until| play(&until)) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => (),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => (), // nobody reads any more
        Err(error) => drop(writeln!(io::stderr(), "demo: {error}")),
    }
    ExitCode::FAILURE
}

/// The acts in order; true if no rule was broken.
fn play(until: &Stop) -> io::Result<bool> {
    let redis = PrivateRedis::start("leasehold-demo", until)?;
    let judge = Judge::start()?;
    let mut connection = redis.connect(until)?;
    add_sessions(&mut connection, judge.port).map_err(io::Error::other)?;
    let fleet = Fleet::new(redis.url(), &redis.dir)?;
    let (screen, known, acts) = (Screen::new(), Vec::new(), Vec::new());
    let mut stage = Stage { screen, until, fleet, redis, judge, connection, known, acts };
    stage.opening()?;
    stage.three_start()?;
    stage.a_fourth_joins()?;
    stage.one_is_stopped()?;
    stage.one_is_killed()?;
    stage.redis_crashes()?;
    stage.verdict()
}

/// Everything on it ends when it is dropped: the fleet first, then its Redis.
struct Stage<'a> {
    screen: Screen,
    until: &'a Stop,
    fleet: Fleet,
    redis: PrivateRedis,
    judge: Judge,
    connection: Connection,
    known: Vec<&'static str>,
    acts: Vec<(&'static str, Duration, Seen)>,
}

impl Stage<'_> {
    fn opening(&self) -> io::Result<()> {
        let (redis, judge) = (self.redis.port, self.judge.port);
        self.screen.line(&format!(
            "A private Redis (port {redis}), an HTTP endpoint (port {judge}), and {SESSIONS} \
             sessions\n\
             that are polled every 500 ms. Leases last 3 s and are renewed every second;\n\
             the defaults are ten times that."
        ))
    }

    fn three_start(&mut self) -> io::Result<()> {
        let begun = self.act("Three instances start")?;
        self.say("The first is told --new-fleet: nobody else is here, nothing to wait for.")?;
        self.join("vm1")?;
        self.wait_for_even_shares()?;
        self.join("vm2")?;
        self.join("vm3")?;
        self.settle("three start", begun)
    }

    fn a_fourth_joins(&mut self) -> io::Result<()> {
        let begun = self.act("A fourth joins")?;
        self.say("It asks the others for its share. Nobody told them it would come.")?;
        self.join("vm4")?;
        self.settle("a fourth joins", begun)
    }

    fn one_is_stopped(&mut self) -> io::Result<()> {
        let begun = self.act("vm1 is stopped (SIGTERM)")?;
        self.say("It ends its polls, gives everything back and tells the others.")?;
        self.fleet.stop("vm1", self.until)?;
        self.settle("one is stopped", begun)
    }

    fn one_is_killed(&mut self) -> io::Result<()> {
        let begun = self.act("vm2 is killed (SIGKILL)")?;
        self.say("It can tell nobody: what it owned is free after 3 s. (Under systemd its unit")?;
        self.say("gives the leases back at once.)")?;
        self.fleet.kill("vm2");
        self.settle("one is killed", begun)
    }

    fn redis_crashes(&mut self) -> io::Result<()> {
        let begun = self.act("Redis is killed and comes back from an old snapshot")?;
        self.say("It has the sessions, but no lease, no fence and no heartbeat.")?;
        let before = self.fleet.count("lease.reclaimed");
        self.connection = self.redis.crash_and_restart(self.until)?;
        self.settle("Redis forgets", begun)?;
        let reclaimed = self.fleet.count("lease.reclaimed") - before;
        self.say(&format!(
            "The owners put {reclaimed} of {SESSIONS} leases back, each under its old fence."
        ))
    }

    fn verdict(&self) -> io::Result<bool> {
        self.screen.table(&self.acts)?;
        let good = self.acts.iter().all(|it| it.2.overlaps == 0 && it.2.regressions == 0);
        let text = match good {
            true => "No endpoint was polled by two at a time, and no fence went back.",
            false => "A rule was broken: polls of one endpoint overlapped, or a fence went back.",
        };
        self.screen.verdict(good, text)?;
        Ok(good)
    }

    fn act(&self, title: &str) -> io::Result<Moment> {
        self.screen.title(&format!("{}. {title}", self.acts.len() + 1))?;
        Ok(BootClock.now())
    }

    fn say(&self, text: &str) -> io::Result<()> {
        self.screen.line(&format!("   {text}"))
    }

    fn join(&mut self, name: &'static str) -> io::Result<()> {
        self.fleet.start(name, self.known.is_empty())?;
        self.known.push(name);
        Ok(())
    }

    /// Waits until all is shared out evenly, watches for a while, and shows it.
    fn settle(&mut self, title: &'static str, begun: Moment) -> io::Result<()> {
        self.wait_for_even_shares()?;
        let took = BootClock.now().since(begun);
        self.pause(WATCH)?;
        let shares = shares(&mut self.connection).map_err(io::Error::other)?;
        self.screen.shares(&self.known, &shares)?;
        self.acts.push((title, took, self.judge.end_act()));
        Ok(())
    }

    fn wait_for_even_shares(&mut self) -> io::Result<()> {
        let deadline = BootClock.now() + PATIENCE;
        loop {
            let shares = shares(&mut self.connection).map_err(io::Error::other)?;
            if is_even(&shares, self.fleet.len()) {
                return Ok(());
            }
            if BootClock.now() > deadline {
                let why = format!("not shared out evenly within {PATIENCE:?}: {shares:?}");
                return Err(io::Error::other(why));
            }
            self.pause(Duration::from_millis(10))?;
        }
    }

    fn pause(&self, time: Duration) -> io::Result<()> {
        if self.until.within(time) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

/// All owned, by exactly the instances that run, with counts that differ by at most one.
fn is_even(shares: &Shares, instances: usize) -> bool {
    let (most, least) = (shares.values().max(), shares.values().min());
    shares.len() == instances
        && shares.values().sum::<usize>() == SESSIONS
        && most.zip(least).is_some_and(|(most, least)| most - least <= 1)
}

/// Stores the sessions, and takes the one snapshot there is.
fn add_sessions(connection: &mut Connection, port: u16) -> redis::RedisResult<()> {
    let mut pipe = redis::pipe();
    for number in 1..=SESSIONS {
        let id = format!("endpoint-{number:02}");
        let session = format!(r#"{{"id":"{id}","address":"127.0.0.1:{port}","path":"/{id}"}}"#);
        pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
    }
    pipe.cmd("SAVE").ignore().exec(connection)
}

/// SIGINT, SIGTERM and SIGHUP end the demo, which ends everything it started.
fn interruptible() -> io::Result<Stop> {
    let (source, until) = stop();
    let source = Mutex::new(Some(source));
    ctrlc::set_handler(move || drop(source.lock().take())).map_err(io::Error::other)?;
    Ok(until)
}

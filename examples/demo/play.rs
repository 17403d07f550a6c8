//! The play that is told: five acts, and a table of what the judge saw.

use std::io;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::thread::Stop;

use crate::judge::Seen;
use crate::screen::Screen;
use crate::stage::Stage;

const SESSIONS: usize = 12;
/// How long the settled fleet is watched in each act.
const WATCH: Duration = Duration::from_secs(4);

/// The acts in order; true if no rule was broken.
pub(crate) fn play(until: &Stop) -> io::Result<bool> {
    let stage = Stage::new(SESSIONS, until)?;
    let mut play = Play { screen: Screen::new(), stage, known: Vec::new(), acts: Vec::new() };
    play.opening()?;
    play.three_start()?;
    play.a_fourth_joins()?;
    play.one_is_stopped()?;
    play.one_is_killed()?;
    play.redis_crashes()?;
    play.verdict()
}

struct Play<'a> {
    screen: Screen,
    stage: Stage<'a>,
    known: Vec<&'static str>,
    acts: Vec<(&'static str, Duration, Seen)>,
}

impl Play<'_> {
    fn opening(&self) -> io::Result<()> {
        let (redis, judge) = (self.stage.redis.port, self.stage.judge.port);
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
        self.stage.wait_for_even_shares(None)?;
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
        self.stage.fleet.stop("vm1", self.stage.until)?;
        self.settle("one is stopped", begun)
    }

    fn one_is_killed(&mut self) -> io::Result<()> {
        let begun = self.act("vm2 is killed (SIGKILL)")?;
        self.say("It can tell nobody: what it owned is free after 3 s. (Under systemd its unit")?;
        self.say("gives the leases back at once.)")?;
        self.stage.fleet.kill("vm2");
        self.settle("one is killed", begun)
    }

    fn redis_crashes(&mut self) -> io::Result<()> {
        let begun = self.act("Redis is killed and comes back from an old snapshot")?;
        self.say("It has the sessions, but no lease, no fence and no heartbeat.")?;
        let before = self.stage.fleet.count("lease.reclaimed");
        self.stage.connection = self.stage.redis.crash_and_restart(self.stage.until)?;
        self.settle("Redis forgets", begun)?;
        let reclaimed = self.stage.fleet.count("lease.reclaimed") - before;
        self.say(&format!(
            "The owners put {reclaimed} of {SESSIONS} leases back, each under its old fence."
        ))
    }

    fn verdict(&self) -> io::Result<bool> {
        self.screen.table(&self.acts)?;
        let good = self.acts.iter().all(|it| it.2.is_sound());
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
        self.stage.fleet.start(name, self.known.is_empty())?;
        self.known.push(name);
        Ok(())
    }

    /// Waits until all is shared out evenly, watches for a while, and shows it.
    fn settle(&mut self, title: &'static str, begun: Moment) -> io::Result<()> {
        self.stage.wait_for_even_shares(None)?;
        let took = BootClock.now().since(begun);
        self.stage.pause(WATCH)?;
        let shares = self.stage.shares()?;
        self.screen.shares(&self.known, &shares)?;
        self.acts.push((title, took, self.stage.judge.end_act()));
        Ok(())
    }
}

//! SIGKILL of `leasehold lead ROLE -- COMMAND`: from the kill to the start of the command on another host.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testkit::measure::Stalls;
use testkit::process::{Instance, binary, ms};
use testkit::random::Random;
use testkit::redis::RedisServer;
use testkit::target::{Answer, Request, Target};

use crate::deaths::side_by_side;
use crate::report::{Judgement, Report};
use crate::settings::Settings;

const CANDIDATES: usize = 3;
const ROLE: &str = "job";
const AIM: Duration = ms(1_000);

/// The command of the role: one request to the judge, which never answers. The judge sees the start of the command as a poll, and
/// its end as the end of the connection, which the kernel closes together with the process.
const COMMAND: &str = r#"exec 3<>"/dev/tcp/$0/$1"
printf 'GET /job HTTP/1.1\r\nx-leasehold-instance: %s\r\nx-leasehold-fence: %s\r\n\r\n' "$LEASEHOLD_INSTANCE" "$LEASEHOLD_TERM" >&3
exec cat <&3"#;

/// Candidates for one role, and the judge of what its commands did.
struct Candidates<'a> {
    running: Vec<Instance>,
    random: Random,
    redis: RedisServer,
    target: Target,
    settings: &'a Settings,
}

impl<'a> Candidates<'a> {
    fn start(settings: &'a Settings, seed: u64) -> Self {
        let (redis, target, random) = (RedisServer::start(), Target::start(), Random::new(seed));
        target.answer(ROLE, Answer { hang: true, ..Answer::default() });
        let mut candidates = Self { running: Vec::new(), random, redis, target, settings };
        candidates.add(&["--new-fleet"], "event=leader.elected");
        (1..CANDIDATES).for_each(|_| candidates.add(&[], "event=leader.follower"));
        candidates.next_start(Instant::now() - ms(60_000), "");
        candidates
    }

    /// Starts a candidate on a host of its own and waits until it says `event`.
    fn add(&mut self, options: &[&str], event: &str) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let host = COUNT.fetch_add(1, Ordering::Relaxed);
        let address = self.target.address();
        let (ip, port) = address.split_once(':').unwrap();
        let mut command = Command::new(binary());
        command.args(["lead", ROLE, &format!("--redis={}", self.redis.url())]);
        command
            .arg(format!("--host-name=i{host}"))
            .args(self.settings.lead_options())
            .args(options);
        command.args(["--", "bash", "-c", COMMAND, ip, port]);
        let candidate = Instance::spawn(&mut command);
        candidate.wait_for(event);
        self.running.push(candidate);
    }

    /// The next start of the command after `since` that is not one of the instance `dead`.
    fn next_start(&self, since: Instant, dead: &str) -> Request {
        let mut found = None;
        self.target.wait_until(self.settings.patience(), "a start of the command", |requests| {
            let is_next = |it: &&Request| it.start > since && it.instance != dead;
            found = requests.iter().find(is_next).cloned();
            found.is_some()
        });
        found.unwrap()
    }

    /// The candidate whose command runs.
    fn leader(&self) -> usize {
        let leader = self.target.requests().pop().unwrap().instance;
        let elected = format!("event=leader.elected instance={leader} ");
        self.running.iter().position(|it| it.says(&elected)).unwrap()
    }

    /// Kills the leader; how long it took until the command started elsewhere.
    fn kill(&mut self, stalls: &Stalls) -> (Duration, Duration) {
        std::thread::sleep(ms(self.random.below(self.settings.phase_ms)));
        let mut leader = self.running.remove(self.leader());
        let id = self.target.requests().pop().unwrap().instance;
        let since = Instant::now();
        leader.kill9();
        let next = self.next_start(since, &id);
        self.add(&[], "event=leader.follower");
        (next.start - since, stalls.within(since..next.start))
    }

    fn end(mut self) -> Judgement {
        let mut overlaps = self.target.overlaps();
        overlaps.extend(self.target.fence_regressions());
        let mut wrong = overlaps.clone();
        // The leader last, so that none of the others starts the command again.
        let leader = self.running.remove(self.leader());
        self.running.push(leader);
        for candidate in &mut self.running {
            if !candidate.is_running() {
                wrong.push(format!("a candidate ended by itself: {:?}", candidate.log().last()));
            } else {
                candidate.term();
            }
            if candidate.says("panicked") {
                wrong.push(format!("{:?}", candidate.lines(&["panicked"])));
            }
        }
        let polls = self.target.requests().len();
        Judgement { polls, overlaps: overlaps.len(), wrong, ..Judgement::default() }
    }
}

pub(crate) fn measure(settings: &Settings) -> Report {
    let (began, stalls) = (Instant::now(), Stalls::of_the_machine());
    let times = Mutex::new(Vec::new());
    let play = |candidates: &mut Candidates<'_>| {
        let time = candidates.kill(&stalls);
        let mut times = times.lock();
        times.push(time);
        times.len()
    };
    let judgement = side_by_side("lead", settings, Candidates::start, play, Candidates::end);
    let times = times.into_inner();
    let fleets = settings.fleets;
    let what = format!(
        "SIGKILL of `leasehold lead ROLE -- COMMAND`. {fleets} roles with {CANDIDATES} candidates each. A *poll* is a run of the command; an overlap \
         is two leaders."
    );
    let mut report = Report::new(what, judgement);
    report.times("the kill | start of the command on another host", &times, settings.bound(AIM));
    report.count(times.len(), settings.times);
    report.took(stalls.within(began..Instant::now()), began.elapsed());
    report
}

//! Redis hangs, dies, forgets, refuses, or is replaced.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::lab::{HOLD_OFF, LONG, Lab, RECOVERY, Setup, TAKEOVER};
use testkit::lab::net::{Net, REDIS_IP};
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{SOON, Scene, TempDir, eventually, ms};

pub(crate) const SCENES: &[Scenario] = &[
    ("redis-hung", "Redis hangs (SIGSTOP) for longer than a lease", hung),
    ("redis-hung-short", "Redis hangs for half a lease", hung_short),
    ("redis-down", "Redis is killed, and comes back after longer than a lease", down),
    ("redis-host-crash", "Redis' host is gone without a word, and comes back", host_crash),
    ("redis-empty", "Redis is killed, and comes back with nothing", empty),
    ("redis-rdb", "Redis is killed, and comes back with an old snapshot", rdb),
    ("redis-aof", "Redis is killed, and comes back with its AOF", aof),
    ("redis-torn-aof", "Redis is killed, and comes back with a torn AOF", torn_aof),
    ("redis-empty-frozen", "Redis comes back with nothing while an instance is stopped", forgotten),
    ("redis-loading", "Redis is restarted, and loads for longer than a lease", loading),
    ("redis-flushall", "FLUSHALL", flushall),
    ("redis-oom", "Redis is out of memory", oom),
    ("redis-oom-kill", "Redis is out of memory, and an instance is killed", oom_kill),
    ("redis-misconf", "Redis cannot save, and takes no writes", misconf),
    ("redis-readonly", "Redis becomes a replica, and takes no writes", readonly),
    ("redis-maxclients", "Redis takes no new connections", maxclients),
    ("redis-client-kill", "every connection is killed, ten times a second", client_kill),
    ("redis-client-pause", "CLIENT PAUSE for longer than a lease", client_pause),
    ("redis-stutter", "Redis takes 250 ms for everything", stutter),
    ("redis-busy", "a script runs without end, and Redis says BUSY", busy),
    ("redis-password", "the password changes, and its file seconds later", password),
];

/// Down for less than a lease.
const SHORT: Duration = ms(1_000);

fn hung(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.scene.redis.pause();
    lab.pass(LONG);
    lab.scene.redis.resume();
    lab.healed();
    Ok(lab.judge(LONG + RECOVERY))
}

fn hung_short(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.scene.redis.pause();
    lab.pass(ms(1_500));
    lab.scene.redis.resume();
    lab.healed();
    let lost: usize = (0..3).map(|n| lab.said(n, "event=lease.lost")).sum();
    lab.expect(lost == 0, format!("{lost} leases were lost"));
    Ok(lab.judge(ms(1_500) + RECOVERY))
}

/// Nobody can say any more who was within their rights when it died.
fn down(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.scene.redis.save();
    lab.fault();
    lab.scene.redis.kill();
    lab.pass(LONG);
    lab.scene.redis.restart();
    lab.healed();
    Ok(lab.judge(LONG + HOLD_OFF + RECOVERY))
}

/// Killed, and a moment later started again by `restart`.
fn restarted<'a>(
    net: Option<&'a Net>,
    options: &[&str],
    before: fn(&Scene),
    restart: fn(&mut Scene),
) -> Lab<'a> {
    let mut lab = Lab::with(net, &Setup { redis: options, ..Setup::default() });
    before(&lab.scene);
    // So that there is something to lose.
    lab.pass(ms(1_500));
    lab.fault();
    lab.scene.redis.kill();
    lab.pass(SHORT);
    restart(&mut lab.scene);
    lab
}

/// No connection is closed: packets to the dead one are lost until another host answers them.
fn host_crash(net: Option<&Net>) -> Result<Verdict, String> {
    net.ok_or("needs network namespaces")?;
    let mut lab = Lab::new(net);
    lab.scene.redis.save();
    lab.fault();
    let silence = Silence::of(lab.scene.redis.port());
    lab.scene.redis.kill();
    lab.pass(SHORT);
    lab.scene.redis.restart();
    drop(silence);
    reclaimed(lab)
}

/// A port from which nothing comes any more, while this lives.
struct Silence(String);

impl Silence {
    fn of(port: u16) -> Self {
        let silence = Self(port.to_string());
        silence.rule("-A");
        silence
    }

    fn rule(&self, verb: &str) {
        let rule = ["OUTPUT", "-s", REDIS_IP, "-p", "tcp", "--sport", &self.0, "-j", "DROP"];
        let done = Command::new("iptables").arg(verb).args(rule).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.rule("-D");
    }
}

fn empty(net: Option<&Net>) -> Result<Verdict, String> {
    let restart = |scene: &mut Scene| {
        scene.redis.restart_empty();
        scene.put_sessions();
    };
    let mut lab = restarted(net, &[], |_| (), restart);
    lab.healed();
    // An instance that saw no sessions before they were back held nothing.
    Ok(lab.judge(SHORT + HOLD_OFF + RECOVERY))
}

/// Everything is reclaimed: nobody waits for the end of a hold-off.
fn reclaimed(mut lab: Lab<'_>) -> Result<Verdict, String> {
    lab.healed();
    Ok(lab.judge(SHORT + RECOVERY))
}

fn rdb(net: Option<&Net>) -> Result<Verdict, String> {
    // As it was before there were leases.
    let mut lab = Lab::empty(net, &Setup::default());
    lab.scene.redis.save();
    let url = lab.url();
    lab.populate(&url, &Setup::default());
    lab.fault();
    lab.scene.redis.kill();
    lab.pass(SHORT);
    lab.scene.redis.restart();
    reclaimed(lab)
}

const AOF: &[&str] = &["--appendonly", "yes", "--appendfsync", "everysec"];

fn aof(net: Option<&Net>) -> Result<Verdict, String> {
    reclaimed(restarted(net, AOF, |_| (), |scene| scene.redis.restart()))
}

fn torn_aof(net: Option<&Net>) -> Result<Verdict, String> {
    let restart = |scene: &mut Scene| {
        let dir = scene.redis.dir().join("appendonlydir");
        let files = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
        let torn: Vec<_> = files.filter(|it| it.to_string_lossy().ends_with(".incr.aof")).collect();
        assert_eq!(torn.len(), 1);
        let file = fs::File::options().write(true).open(&torn[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() - 7).unwrap();
        scene.redis.restart();
    };
    reclaimed(restarted(net, AOF, |_| (), restart))
}

/// What the frozen one holds nobody may have before its time is over, and it goes on before that.
fn forgotten(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.fleet[0].freeze();
    lab.scene.redis.restart_empty();
    lab.scene.put_sessions();
    lab.pass(ms(1_500));
    lab.fleet[0].thaw();
    lab.healed();
    Ok(lab.judge(SHORT + HOLD_OFF + RECOVERY))
}

fn loading(net: Option<&Net>) -> Result<Verdict, String> {
    // 200 µs a key: four seconds for 20,000.
    let slowly = ["--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"];
    let before = |scene: &Scene| {
        assert_eq!(scene.redis.cli(&["DEBUG", "POPULATE", "20000", "filler", "64"]), "OK");
        scene.redis.save();
    };
    let mut lab = restarted(net, &slowly, before, |scene| scene.redis.restart());
    let began = Instant::now();
    let answer = || lab.scene.redis.cli(&["GET", "session:e1"]);
    assert!(answer().contains("LOADING"), "it is not loading: {}", answer());
    eventually(2 * SOON, "it has loaded", answer, || !answer().contains("LOADING"));
    let loaded = began.elapsed();
    lab.healed();
    Ok(lab.judge(SHORT + loaded + HOLD_OFF + RECOVERY))
}

fn flushall(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.scene.redis.flushall();
    lab.scene.put_sessions();
    lab.healed();
    Ok(lab.judge(HOLD_OFF + RECOVERY))
}

/// Something is set for longer than a lease, on a connection that is kept, and then set back.
fn set<'a>(net: Option<&'a Net>, options: &[&str], harm: &[&[&str]], heal: &[&[&str]]) -> Lab<'a> {
    let mut lab = Lab::with(net, &Setup { redis: options, ..Setup::default() });
    let mut admin = lab.scene.redis.connect().unwrap();
    let mut say = |commands: &[&[&str]]| {
        for words in commands {
            redis::cmd(words[0]).arg(&words[1..]).exec(&mut admin).unwrap();
        }
    };
    lab.fault();
    say(harm);
    lab.pass(LONG);
    say(heal);
    lab.healed();
    lab
}

/// New keys are refused, but what is held can be renewed.
fn oom(net: Option<&Net>) -> Result<Verdict, String> {
    let harm: &[&[&str]] = &[&["CONFIG", "SET", "maxmemory", "1mb"]];
    let lab = set(net, &[], harm, &[&["CONFIG", "SET", "maxmemory", "0"]]);
    Ok(lab.judge(ms(1_500)))
}

/// What it held cannot be granted to anybody: that needs memory.
fn oom_kill(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    lab.scene.redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    lab.fleet.remove(0).kill9();
    lab.pass(LONG);
    lab.scene.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    lab.healed();
    Ok(lab.judge(LONG + RECOVERY))
}

fn misconf(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::with(net, &Setup { redis: &["--save", "3600 1"], ..Setup::default() });
    lab.fault();
    let dir = lab.scene.redis.dir().to_owned();
    fs::remove_dir_all(&dir).unwrap(); // where it would write its snapshot
    drop(lab.scene.redis.cli(&["BGSAVE"]));
    let refused = || lab.scene.redis.cli(&["SET", "more", "x"]);
    eventually(SOON, "it takes no writes", refused, || refused().contains("MISCONF"));
    lab.pass(LONG);
    lab.scene.redis.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let outage = LONG + ms(500);
    lab.healed();
    fs::create_dir_all(&dir).unwrap();
    Ok(lab.judge(outage + RECOVERY))
}

/// Its history has forked: a new epoch, and so a hold-off.
fn readonly(net: Option<&Net>) -> Result<Verdict, String> {
    let lab = set(net, &[], &[&["REPLICAOF", "127.0.0.1", "1"]], &[&["REPLICAOF", "NO", "ONE"]]);
    Ok(lab.judge(LONG + HOLD_OFF + RECOVERY))
}

fn maxclients(net: Option<&Net>) -> Result<Verdict, String> {
    let kill: &[&str] = &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    let harm: &[&[&str]] = &[&["CONFIG", "SET", "maxclients", "1"], kill];
    let lab = set(net, &[], harm, &[&["CONFIG", "SET", "maxclients", "10000"]]);
    Ok(lab.judge(LONG + RECOVERY))
}

fn client_kill(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    let since = Instant::now();
    while since.elapsed() < LONG {
        lab.scene.redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        lab.scene.redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        lab.pass(ms(100));
    }
    lab.healed();
    Ok(lab.judge(ms(1_500)))
}

fn client_pause(net: Option<&Net>) -> Result<Verdict, String> {
    let pause = LONG.as_millis().to_string();
    let mut lab = Lab::new(net);
    lab.fault();
    lab.scene.redis.cli(&["CLIENT", "PAUSE", &pause, "ALL"]);
    lab.pass(LONG);
    lab.healed();
    Ok(lab.judge(LONG + RECOVERY))
}

/// Just within the time that a call has.
fn stutter(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = Lab::new(net);
    lab.fault();
    let since = Instant::now();
    while since.elapsed() < LONG {
        lab.scene.redis.cli(&["DEBUG", "SLEEP", "0.25"]);
    }
    lab.healed();
    Ok(lab.judge(TAKEOVER))
}

fn busy(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab =
        Lab::with(net, &Setup { redis: &["--busy-reply-threshold", "200"], ..Setup::default() });
    let mut endless = lab.scene.redis.connect().unwrap();
    lab.fault();
    let script = std::thread::spawn(move || {
        drop(redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut endless));
    });
    lab.pass(LONG);
    let killed = lab.scene.redis.cli(&["SCRIPT", "KILL"]);
    lab.expect(killed == "OK", format!("SCRIPT KILL: {killed}"));
    lab.healed();
    script.join().unwrap();
    Ok(lab.judge(LONG + RECOVERY))
}

/// Live connections stay, so they are killed, too. Nobody is restarted: the file is read for every connection.
fn password(net: Option<&Net>) -> Result<Verdict, String> {
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, "old\n").unwrap();
    let option = format!("--redis-password-file={}", file.display());
    let setup = Setup { redis: &["--requirepass", "old"], args: &[&option], ..Setup::default() };
    let mut lab = Lab::with(net, &setup);
    let mut admin = lab.scene.redis.connect().unwrap();
    let mut say = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).exec(&mut admin).unwrap();
    lab.fault();
    let url =
        |password: &str| format!("redis://:{password}@127.0.0.1:{}/0", lab.scene.redis.port());
    lab.results[0].go_to(&url("new"));
    say(&["CONFIG", "SET", "requirepass", "new"]);
    say(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    say(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    lab.pass(LONG);
    let polled = lab.scene.target.requests().into_iter().map(|it| it.start).max().unwrap();
    lab.expect(polled.elapsed() > ms(2_000), "polled on without a password");
    fs::write(&file, "new\n").unwrap();
    lab.healed();
    // The judge still asks with the old one.
    say(&["ACL", "SETUSER", "default", ">old"]);
    Ok(lab.judge(LONG + ms(2_000) + RECOVERY))
}

//! Clocks that jump, of an instance and of Redis. A namespace cannot shift the wall clock, so what a
//! process hears from its C library is shifted (`skew.c`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::lab::{HOLD_OFF, LONG, Lab, RECOVERY, Setup, TAKEOVER};
use testkit::lab::apart::find;
use testkit::lab::net::{Net, REDIS_IP};
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{TTL, TempDir, ms};

pub(crate) const SCENES: &[Scenario] = &[
    ("clock-ahead", "an instance's wall clock is set an hour ahead", instance_ahead),
    ("clock-back", "an instance's wall clock is set an hour back", instance_back),
    ("clock-rate", "an instance's clocks run 2.5 % slow, and it does not reach Redis", slow_clock),
    ("suspend", "an instance's machine is suspended for a minute, as its clocks tell", suspend),
    ("redis-clock-ahead", "Redis' wall clock is set an hour ahead", redis_ahead),
    ("redis-clock-back", "Redis' wall clock is set an hour back", redis_back),
    ("redis-clock-slew", "Redis' wall clock is set 100 ms ahead, less than the margin", redis_slew),
];

const MS: i64 = 1_000_000;
const HOUR: i64 = 3_600_000 * MS;

/// The library, and the file it looks into.
struct Skew {
    _dir: TempDir,
    library: PathBuf,
    file: PathBuf,
}

impl Skew {
    fn build() -> Result<Self, String> {
        find("cc").ok_or("there is no C compiler")?;
        let dir = TempDir::new();
        let (library, file) = (dir.path().join("skew.so"), dir.path().join("skew"));
        let source = dir.path().join("skew.c");
        fs::write(&source, include_str!("skew.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let output = cc.output().unwrap();
        if !output.status.success() {
            return Err(format!("skew.c: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let skew = Self { _dir: dir, library, file };
        skew.set([0; 3]);
        Ok(skew)
    }

    /// Wall clock, monotonic clock, and the one that counts suspends.
    fn set(&self, shift: [i64; 3]) {
        let bytes: Vec<u8> = shift.iter().flat_map(|it| it.to_ne_bytes()).collect();
        if !self.file.exists() {
            fs::write(&self.file, &bytes).unwrap();
        }
        // In place: it is mapped.
        let file = fs::File::options().write(true).open(&self.file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    }

    fn env(&self) -> [(String, String); 2] {
        let text = |it: &PathBuf| it.display().to_string();
        [("LD_PRELOAD".into(), text(&self.library)), ("SKEW_FILE".into(), text(&self.file))]
    }
}

/// The machine 0's instance sees these clocks from some moment on.
fn instance<'a>(net: Option<&'a Net>, skew: &Skew, shift: [i64; 3]) -> Lab<'a> {
    let vars = skew.env().map(|it| format!("{}={}", it.0, it.1));
    let wrapper = ["env", &vars[0], &vars[1]];
    let args = &["--log-renewals=each"]; // something that tells the time all along
    let mut lab = Lab::with(net, &Setup { wrapper: &wrapper, args, ..Setup::default() });
    lab.fault();
    skew.set(shift);
    lab.pass(LONG);
    lab.healed();
    lab
}

/// It must not matter at all.
fn unmoved(net: Option<&Net>, wall: i64) -> Result<Verdict, String> {
    let skew = Skew::build()?;
    let mut lab = instance(net, &skew, [wall, 0, 0]);
    let year = |line: &String| line.get(..13).unwrap_or("").to_owned();
    let hours: Vec<String> = lab.fleet.iter().filter_map(|it| it.log().last().map(year)).collect();
    lab.expect(hours[0] != hours[1], format!("the clock did not move: {hours:?}"));
    let lost: usize = (0..3).map(|n| lab.said(n, "event=lease.lost")).sum();
    lab.expect(lost == 0, format!("{lost} leases were lost"));
    Ok(lab.judge(ms(1_000)))
}

fn instance_ahead(net: Option<&Net>) -> Result<Verdict, String> {
    unmoved(net, HOUR)
}

fn instance_back(net: Option<&Net>) -> Result<Verdict, String> {
    unmoved(net, -HOUR)
}

/// It counts its last seconds more slowly than Redis does.
fn slow_clock(net: Option<&Net>) -> Result<Verdict, String> {
    let network = net.ok_or("needs network namespaces")?;
    let skew = Skew::build()?;
    let vars = skew.env().map(|it| format!("{}={}", it.0, it.1));
    let wrapper = ["env", &vars[0], &vars[1]];
    let mut lab = Lab::with(net, &Setup { wrapper: &wrapper, ..Setup::default() });
    lab.fault();
    let began = Instant::now();
    let mut reachable = true;
    while began.elapsed() < LONG + TTL {
        let behind = -(began.elapsed().as_nanos() as i64) / 40;
        skew.set([behind; 3]);
        if reachable && began.elapsed() > TTL {
            reachable = false;
            network.rule(0, &["OUTPUT", "-d", REDIS_IP, "-j", "DROP"]);
        }
        lab.pass(ms(5));
    }
    network.heal();
    lab.healed();
    Ok(lab.judge(TAKEOVER))
}

/// What it had may have moved: it starts anew.
fn suspend(net: Option<&Net>) -> Result<Verdict, String> {
    let skew = Skew::build()?;
    let mut lab = instance(net, &skew, [60_000 * MS, 0, 60_000 * MS]);
    let lost = lab.said(0, "event=lease.lost");
    lab.expect(lost > 0, "it did not notice");
    Ok(lab.judge(TAKEOVER))
}

fn server<'a>(net: Option<&'a Net>, skew: &Skew, wall: i64) -> Lab<'a> {
    let env = skew.env();
    let env = [(env[0].0.as_str(), env[0].1.as_str()), (env[1].0.as_str(), env[1].1.as_str())];
    let mut lab = Lab::with(net, &Setup { redis_env: &env, ..Setup::default() });
    let time = |lab: &Lab<'_>| {
        let text = lab.scene.redis.cli(&["TIME"]);
        text.lines().next().and_then(|it| it.parse::<i64>().ok()).unwrap_or_default()
    };
    let before = time(&lab);
    lab.fault();
    skew.set([wall, 0, 0]);
    let moved = time(&lab) - before;
    lab.expect((moved - wall / 1_000 / MS).abs() <= 2, format!("Redis' clock moved by {moved} s"));
    lab.healed();
    lab.pass(LONG);
    lab
}

/// Every lease ends at once, and two owners may exist for a moment: documented, so counted and not
/// judged. A poll takes milliseconds here; each endpoint may meet once.
fn redis_ahead(net: Option<&Net>) -> Result<Verdict, String> {
    let skew = Skew::build()?;
    let lab = server(net, &skew, HOUR);
    Ok(lab.judge_with(HOLD_OFF + TTL + RECOVERY, 6))
}

fn redis_back(net: Option<&Net>) -> Result<Verdict, String> {
    let skew = Skew::build()?;
    let lab = server(net, &skew, -HOUR);
    Ok(lab.judge(HOLD_OFF + TTL + RECOVERY))
}

fn redis_slew(net: Option<&Net>) -> Result<Verdict, String> {
    let skew = Skew::build()?;
    let lab = server(net, &skew, 100 * MS);
    Ok(lab.judge(ms(1_500)))
}

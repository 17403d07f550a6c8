//! What is measured: a fleet at rest, and fleets that poll, under several loads.

use std::fs;
use std::io;
use std::time::Duration;

use crate::Found;
use crate::fleet::{Daemon, METRICS_AGE};
use crate::scene::{INSTANCES, Scene, Sessions, Shares};
use crate::{say, takeover};
use testkit::bench::table::{Better, Row};
use testkit::lab::groups::{Group, Kind};

const DAY: Duration = Duration::from_secs(86_400);
const INTERVAL: Duration = Duration::from_secs(60);
/// What was begun when all is owned has ended by then.
const SETTLED: Duration = Duration::from_secs(15);
/// A window at rest has two rounds of renewals.
const WINDOW: Duration = Duration::from_secs(20);
const TURNS: usize = 3;

const OWNED: &str = "from the end of the hold-off until all is owned";
const OWNED_MAX_S: f64 = 10.0;
const SERVER_MAX: f64 = 15.0;
const KNOWN_MAX: f64 = 600.0;
const HELD_MAX: f64 = 1_500.0;
const TAKEOVER_MAX_S: f64 = 2.0;
/// Of the polls that the intervals ask for, while a tenth of the endpoints hangs.
const SHARE_MIN: f64 = 0.95;
/// A pool of another size than the default.
const MANY_WORKERS: [&str; 2] = ["--workers", "4096"];
/// An endpoint that hangs keeps its interval however often it has failed: what is asked for is the same in a short window and
/// in a long one, and the slow lanes are always full.
const NEVER_LIGHT: [&str; 2] = ["--light-after", "1000000"];
/// Half the interval of renewals. A lease has three times as long left then as it was late.
const LATE_S: u32 = 5;

/// What bears on a fleet that polls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Usual,
    Workers,
    Starved,
    Hanging,
}

fn row(name: &str, unit: &'static str, samples: &[f64]) -> Row {
    Row::new(name, unit, Better::Less, samples)
}

fn endpoints(count: u32) -> f64 {
    f64::from(count)
}

/// Sessions that are next to never polled: all that is spent is coordination.
pub(crate) fn rest(count: u32) -> Found {
    let none = Sessions { count: 0, interval: DAY, hangs: None };
    let many = Sessions { count, ..none };
    let mut scene = Scene::new(none)?;
    scene.start(1, true, &[])?;
    scene.wait(SETTLED);
    let alone = scene.rss()?;
    scene.begin_anew(many)?;
    let owned_after = start(&mut scene, &[])?;
    scene.wait(SETTLED);
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let before = scene.now()?;
        scene.wait(WINDOW);
        turns.push(scene.now()?.since(&before));
    }
    let of_ten = scene.rss()?;
    let taken_over = takeover::measure(&mut scene)?;
    scene.begin_anew(many)?;
    scene.start(1, true, &[])?;
    scene.all_owned_at_ms()?;
    scene.wait(SETTLED);
    let of_one = scene.rss()?;
    // Of ten each owns a tenth and knows the rest; the one owns all.
    let (all, tenth) = (endpoints(count), endpoints(count / INSTANCES));
    let owned = (of_one - alone) / all;
    let known = (of_ten - alone - tenth * owned) / (all - tenth);
    let server: Vec<f64> = turns.iter().map(|it| it.server).collect();
    let each: Vec<f64> = turns.iter().map(|it| it.fleet / f64::from(INSTANCES)).collect();
    let mut rows = vec![
        row(OWNED, "s", &[owned_after]).goal(OWNED_MAX_S),
        row("coordination: server, share of a core", "%", &server).goal(SERVER_MAX),
        row("coordination: each instance, share of a core", "%", &each),
        row("memory of an endpoint that is known", "B", &[known]).goal(KNOWN_MAX),
        row("memory of an endpoint that is owned", "B", &[owned]).goal(HELD_MAX),
        row("memory without any", "MB", &[alone / 1e6]),
    ];
    rows.extend(takeover_rows(&taken_over));
    Ok((format!("{count} sessions, {INSTANCES} instances, hardly a poll, {TURNS} turns"), rows))
}

/// Ten instances on a server that has no memory of a fleet; seconds from the end of the hold-off until all is owned.
fn start(scene: &mut Scene, args: &[&str]) -> io::Result<f64> {
    scene.start(INSTANCES, false, args)?;
    let ends_ms = scene.hold_off_ends_ms()?;
    Ok((scene.all_owned_at_ms()? - ends_ms) / 1_000.0)
}

fn takeover_rows(late: &[f64]) -> [Row; 2] {
    let last = late.iter().copied().fold(0.0, f64::max);
    [
        row("killed: from expiry until another owns it", "s", late),
        row("killed: the last of all", "s", &[last]).goal(TAKEOVER_MAX_S),
    ]
}

/// Sessions that are polled every minute, under `load`, for `time`.
pub(crate) fn polling(count: u32, time: Duration, load: Load) -> Found {
    let hangs = (load == Load::Hanging).then_some(10);
    let group = if load == Load::Starved { Some(Group::new(Kind::Cpu)) } else { None };
    let group = group.transpose().map_err(io::Error::other)?;
    let mut scene = Scene::new(Sessions { count, interval: INTERVAL, hangs })?;
    let args: &[&str] = match load {
        Load::Usual | Load::Starved => &[],
        Load::Workers => &MANY_WORKERS,
        Load::Hanging => &NEVER_LIGHT,
    };
    let owned_after = start(&mut scene, args)?;
    if let Some(group) = &group {
        starve(&mut scene, group)?;
    }
    scene.wait(METRICS_AGE);
    let (before, polled) = (Lateness::of(&scene)?, scene.now()?);
    scene.wait(time);
    let shares = scene.now()?.since(&polled);
    scene.wait(METRICS_AGE);
    let after = Lateness::of(&scene)?;
    let owned = row(OWNED, "s", &[owned_after]);
    let mut rows = vec![
        if load == Load::Usual { owned.goal(OWNED_MAX_S) } else { owned },
        Row::new("polls a second", "", Better::More, &[shares.polls]),
        asked_for(&shares, count, load),
        row("polls skipped a second", "", &[(after.skipped - before.skipped) / time.as_secs_f64()]),
        row("leases lost", "", &[lost(&scene)?]).goal(0.0),
        row("leases in doubt for a while", "", &[after.doubted - before.doubted]),
        row(&format!("batches renewed {LATE_S} s late or more"), "", &[after.late - before.late])
            .goal(0.0),
        row("batches renewed 1 s late or more", "", &[after.slow - before.slow]),
        row("batches renewed", "", &[after.batches - before.batches]),
        row("server, share of a core", "%", &[shares.server]),
        row("the ten instances, share of a core", "%", &[shares.fleet]),
        row("what is polled, share of a core", "%", &[shares.target]),
    ];
    if load == Load::Usual {
        rows.extend(takeover_rows(&takeover::measure(&mut scene)?));
    }
    if let Some(group) = group {
        group.limit_cpu(None);
        drop(scene);
        drop(group);
    }
    Ok((format!("{count} sessions, every 60 s, {INSTANCES} instances, {} s", time.as_secs()), rows))
}

/// How many of the polls that the intervals ask for there were.
fn asked_for(shares: &Shares, count: u32, load: Load) -> Row {
    let share = shares.polls / (endpoints(count) / INTERVAL.as_secs_f64());
    let row = Row::new("polls / polls that the intervals ask for", "×", Better::More, &[share]);
    if load == Load::Hanging { row.goal(SHARE_MIN) } else { row }
}

/// Half a core, for the fleet and its Redis together.
fn starve(scene: &mut Scene, group: &Group) -> io::Result<()> {
    let info: String =
        redis::cmd("INFO").arg("server").query(&mut scene.line).map_err(io::Error::other)?;
    let server = info.lines().find_map(|it| it.strip_prefix("process_id:"));
    let server = server.and_then(|it| it.trim().parse::<u32>().ok());
    for pid in scene.fleet.iter().map(Daemon::pid).chain(server) {
        fs::write(group.door(), pid.to_string())?;
    }
    group.limit_cpu(Some(50_000));
    Ok(())
}

/// What the fleet counts of renewals.
struct Lateness {
    late: f64,
    slow: f64,
    batches: f64,
    doubted: f64,
    skipped: f64,
}

impl Lateness {
    fn of(scene: &Scene) -> io::Result<Self> {
        let within = |bound: &str| {
            scene.metric(&format!("leasehold_renewal_lag_seconds_bucket{{le=\"{bound}\""))
        };
        let batches = within("+Inf")?;
        Ok(Self {
            late: batches - within(&LATE_S.to_string())?,
            slow: batches - within("1")?,
            batches,
            doubted: scene.metric("leasehold_leases_doubted_total")?,
            skipped: scene.metric("leasehold_polls_skipped_total")?,
        })
    }
}

/// How many leases any log says to have been lost, for whatever reason; with the first of them.
fn lost(scene: &Scene) -> io::Result<f64> {
    let mut lost = 0_u32;
    for daemon in &scene.fleet {
        for line in daemon.log()?.lines().filter(|it| it.contains("event=lease.lost")) {
            if lost == 0 {
                say(line);
            }
            // Of a flood the first are named, and a line has the number of the others.
            let others = line.split_once(" others=").and_then(|it| it.1.parse().ok());
            lost += others.unwrap_or(1);
        }
    }
    Ok(f64::from(lost))
}

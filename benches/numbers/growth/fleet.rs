//! What instances cost each other while nothing happens, and when one of them says something.

use std::io;
use std::time::Duration;

use leasehold::daemon::thread::stop;
use leasehold::model::InstanceId;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{BATCH_MAX, Heard, Store, Wake};

use crate::fleet::{start, wait_until_all_is_owned};
use crate::growth::{Curves, Per};
use crate::holder;
use crate::meter::{Meter, process_cpu, thread_cpu};
use crate::server::PrivateRedis;
use crate::sessions::put_sessions;

const SESSIONS: u32 = 10_000;
/// As long as it takes until everybody's heart has beaten once, at the default timings.
const WINDOW: Duration = Duration::from_secs(10);
const TURNS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(120);
const TIMEOUT: Duration = Duration::from_secs(10);
const WORDS: u32 = 20;

pub(crate) fn instances(n: u32, curves: &mut Curves) -> io::Result<()> {
    at_rest(n, curves)?;
    words(n, curves)
}

/// Whole instances at the default timings, without renewals: heartbeats, and who looks at what because of them.
fn at_rest(n: u32, curves: &mut Curves) -> io::Result<()> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let mut line = redis.connect(&never)?;
    put_sessions(&mut line, SESSIONS)?;
    let mut meter = Meter(redis.connect(&never)?);
    let mut window = || {
        let before = (meter.server_seconds()?, meter.traffic()?, process_cpu()?);
        let _ = never.within(WINDOW);
        let after = (meter.server_seconds()?, meter.traffic()?, process_cpu()?);
        let per_second = |it: f64| it / WINDOW.as_secs_f64();
        let [commands, input, output] = [0, 1, 2].map(|it| after.1[it] - before.1[it]);
        let cpu = (after.2 - before.2).as_secs_f64();
        Ok::<_, io::Error>([after.0 - before.0, cpu, commands, input + output].map(per_second))
    };
    let idle = window()?;
    let fleet = start(&redis.url(), n, &never)?;
    wait_until_all_is_owned(&mut line, SESSIONS, PATIENCE, &never)?;
    let _ = never.within(WINDOW); // whatever was begun is done
    for _ in 0..TURNS {
        let spent = window()?;
        let each = |at: usize| (spent[at] - idle[at]).max(0.0) / f64::from(n);
        let mut note = |name: &str, unit, it| curves.note(Per::Instance, name, unit, n, it);
        note("at rest, each second: server", "ms", each(0) * 1e3);
        note("at rest, each second: its CPU", "ms", each(1) * 1e3);
        note("at rest, each second: commands", "", each(2));
        note("at rest, each second: bytes", "B", each(3));
    }
    drop(fleet);
    Ok(())
}

/// One instance says that it was granted a batch, and all others hear it.
fn words(n: u32, curves: &mut Curves) -> io::Result<()> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let store = RedisStore::new(&redis.url(), &redis.url(), Keys::new("poll", "session:"));
    let store = store.map_err(io::Error::other)?;
    let mut meter = Meter(redis.connect(&never)?);
    let listen = |_| store.listen(&InstanceId::generate_now("ear"), TIMEOUT);
    let mut ears: Vec<_> =
        (0..n).map(listen).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let batch = u32::try_from(BATCH_MAX).map_err(io::Error::other)?;
    let took = holder::endpoints(0..batch)?;
    let word = Wake { took, ..Wake::new(&InstanceId::generate_now("mouth"), None) };
    for _ in 0..TURNS {
        let before = (meter.server_seconds()?, meter.traffic()?);
        for _ in 0..WORDS {
            store.wake(std::slice::from_ref(&word), TIMEOUT).map_err(io::Error::other)?;
        }
        let heard_from = thread_cpu()?;
        for ear in &mut ears {
            let mut heard = 0;
            while heard < WORDS {
                let it = ear.next(TIMEOUT).map_err(io::Error::other)?;
                let it = it.ok_or_else(|| io::Error::other("a word was lost"))?;
                heard += u32::from(matches!(it, Heard::Word(it) if it.took.len() == BATCH_MAX));
            }
        }
        let heard = (thread_cpu()? - heard_from).as_secs_f64();
        let after = (meter.server_seconds()?, meter.traffic()?);
        let each = f64::from(WORDS) * f64::from(n);
        let mut note = |name: &str, unit, it: f64| curves.note(Per::Instance, name, unit, n, it);
        note("a word of 500 grants: server", "µs", (after.0 - before.0) * 1e6 / each);
        note("a word of 500 grants: its CPU", "µs", heard * 1e6 / each);
        note("a word of 500 grants: bytes", "B", (after.1[2] - before.1[2]) / each);
    }
    Ok(())
}

//! What instances cost each other while nothing happens, and when one of them says something.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::unbounded;
use leasehold::model::{InstanceId, Weight};
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{PeerMessage, Push, Store, StoreError, Subscription};
use leasehold::thread::{Thread, stop};
use redis::Connection;

use crate::fleet::{start, wait_until_all_is_owned};
use crate::growth::{Curves, Per};
use crate::sessions::put_sessions;
use testkit::bench::holder::{self, Holder};
use testkit::bench::meter::{Meter, process_cpu, thread_cpu};
use testkit::private_redis::PrivateRedis;

const SESSIONS: u32 = 10_000;
/// As long as it takes until everybody's heart has beaten once, at the default timings.
const WINDOW: Duration = Duration::from_secs(10);
const TURNS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(120);
const TIMEOUT: Duration = Duration::from_secs(10);
const WORDS: u32 = 100;
const AT_ONCE: usize = 10;
const LOOKS: usize = 4_000;
const CALLERS: usize = 8;
const LONG: Duration = Duration::from_secs(3_600);

pub(crate) fn instances(n: u32, curves: &mut Curves) -> io::Result<()> {
    at_rest(n, curves)?;
    words(n, curves)?;
    looks(n, curves)
}

/// Whole instances at the default timings, without renewals: heartbeats, and who looks at what because of them.
fn at_rest(n: u32, curves: &mut Curves) -> io::Result<()> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let mut line = redis.connect(&never)?;
    let mut meter = Meter(redis.connect(&never)?);
    put_passing(&mut line)?;
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
    redis::cmd("FLUSHALL").exec(&mut line).map_err(io::Error::other)?;
    put_sessions(&mut line, SESSIONS)?;
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
    let connections = meter.number("clients", "connected_clients")? - 2.0; // not ours
    curves.note(Per::Instance, "connections to Redis", "", n, connections / f64::from(n));
    drop(fleet);
    Ok(())
}

/// As many keys that end as there will be leases: a server looks after them whether anybody asks or not.
fn put_passing(line: &mut Connection) -> io::Result<()> {
    let mut pipe = redis::pipe();
    for n in 0..SESSIONS {
        pipe.cmd("SET").arg(format!("passing:{n}")).arg(n).arg("EX").arg(3_000).ignore();
    }
    pipe.exec(line).map_err(io::Error::other)
}

/// One instance says what it was granted, and all others receive it.
fn words(n: u32, curves: &mut Curves) -> io::Result<()> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let store = RedisStore::new(&redis.url(), &redis.url(), Keys::new("poll", "session:"));
    let store = store.map_err(io::Error::other)?;
    let mut meter = Meter(redis.connect(&never)?);
    let listen = |_| store.listen(&InstanceId::generate_now("subscriber"), TIMEOUT);
    let mut subscriptions: Vec<_> =
        (0..n).map(listen).collect::<Result<_, _>>().map_err(io::Error::other)?;
    for grants in [1, 500] {
        let took = holder::endpoints(0..grants)?;
        let word =
            PeerMessage { took, ..PeerMessage::new(&InstanceId::generate_now("sender"), None) };
        for _ in 0..TURNS {
            let before = (meter.server_seconds()?, meter.traffic()?);
            let words = vec![word.clone(); AT_ONCE];
            for _ in 0..WORDS as usize / AT_ONCE {
                store.wake(&words, TIMEOUT).map_err(io::Error::other)?;
            }
            let heard_from = thread_cpu()?;
            subscriptions.iter_mut().try_for_each(|it| receive(&mut **it, &word))?;
            let heard = (thread_cpu()? - heard_from).as_secs_f64();
            let after = (meter.server_seconds()?, meter.traffic()?);
            let each = f64::from(WORDS) * f64::from(n);
            let mut note = |name: &str, unit, it: f64| {
                let name = format!("a word of {grants}: {name}");
                curves.note(Per::Instance, &name, unit, n, it / each);
            };
            note("server", "µs", (after.0 - before.0) * 1e6);
            note("its CPU", "µs", heard * 1e6);
            note("bytes", "B", after.1[2] - before.1[2]);
        }
    }
    Ok(())
}

/// Every message that was sent.
fn receive(subscription: &mut dyn Subscription, word: &PeerMessage) -> io::Result<()> {
    let mut heard = 0;
    while heard < WORDS {
        let it = subscription.next(TIMEOUT).map_err(io::Error::other)?;
        let it = it.ok_or_else(|| io::Error::other("a message was lost"))?;
        heard += u32::from(matches!(it, Push::Message(it) if it == *word));
    }
    Ok(())
}

/// What a heartbeat costs the server when all are told of it, and what each costs that looks at all others.
fn looks(n: u32, curves: &mut Curves) -> io::Result<()> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let store = RedisStore::new(&redis.url(), &redis.url(), Keys::new("poll", "session:"));
    let store = store.map_err(io::Error::other)?;
    let mut meter = Meter(redis.connect(&never)?);
    let mut holder = Holder::new(store.connection(), LONG, holder::endpoints(0..n)?)?;
    let granted = holder.acquire(0..n as usize)?;
    holder.granted(0..n as usize, &granted);
    let other = |_| Ok(Holder::new(store.connection(), LONG, vec![])?.context.instance);
    let mut all: Vec<InstanceId> = (1..n).map(other).collect::<io::Result<_>>()?;
    all.push(holder.context.instance.clone());
    let mut note = |name: &str, cost: f64| {
        curves.note(Per::Instance, name, "µs", n, cost / f64::from(n));
    };
    let endpoints = Arc::new(holder.endpoints.clone());
    let (all, ask) = (Arc::new(all), holder.context.clone());
    for _ in 0..TURNS {
        let those = Arc::clone(&all);
        let look = move |it: &RedisStore| it.heartbeats(&those, TIMEOUT).map(drop);
        let cost = meter.cost(LOOKS, || crowd(&store, look))?;
        note("a look at all heartbeats: server", cost.server);
        let those = Arc::clone(&endpoints);
        let quick_check = move |it: &RedisStore| it.expiring(&those, LONG / 2, TIMEOUT).map(drop);
        let cost = meter.cost(LOOKS, || crowd(&store, quick_check))?;
        note("a quick check of a lease of each: server", cost.server);
    }
    let listen = |it| store.listen(it, TIMEOUT);
    let subscriptions: Vec<_> =
        all.iter().map(listen).collect::<Result<_, _>>().map_err(io::Error::other)?;
    for _ in 0..TURNS {
        let ask = ask.clone();
        let beat = move |it: &RedisStore| it.heartbeat(&ask, LONG, Weight(1), None).map(drop);
        let cost = meter.cost(LOOKS, || crowd(&store, beat))?;
        note("a heartbeat is told to all: server", cost.server);
    }
    drop(subscriptions);
    Ok(())
}

/// Several at once: a server that wakes up for each call spends most of it on that, and a busy one does not.
fn crowd(
    store: &RedisStore,
    ask: impl Fn(&RedisStore) -> Result<(), StoreError> + Send + Sync + 'static,
) -> io::Result<()> {
    let ask = Arc::new(ask);
    let (failed, failures) = unbounded();
    let caller = |_| {
        let (line, ask, failed) = (store.connection(), Arc::clone(&ask), failed.clone());
        Thread::spawn("caller", move || {
            let asked = (0..LOOKS / CALLERS).try_for_each(|_| ask(&line));
            asked.unwrap_or_else(|error| drop(failed.send(error)));
        })
    };
    let crowd: Vec<Thread> = (0..CALLERS).map(caller).collect::<io::Result<_>>()?;
    drop(crowd); // waits for them
    failures.try_recv().map_or(Ok(()), |error| Err(io::Error::other(error)))
}

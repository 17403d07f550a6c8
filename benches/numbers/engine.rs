//! What does it cost to take, keep, check and give back a lease, next to the cheapest thing that could?
//!
//! All leases stand on one private Redis, 500 to a round trip. What is ours goes through the production store
//! (owner, fence and epoch checked in Lua); plain commands check nothing, one-key scripts the owner only.
//! Everything is done by turns to slices of the leases, each verb to another slice in another order, so
//! that whatever else the machine does hits all, and no verb finds its keys warm from the one before.

use std::io;
use std::ops::Range;
use std::time::Duration;

use leasehold::store::BATCH_MAX;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::thread::stop;

use crate::plain::Plain;
use testkit::bench::holder::{Holder, endpoints};
use testkit::bench::meter::{Cost, Meter};
use testkit::bench::table::{Better, Row};
use testkit::private_redis::PrivateRedis;

const SLICES: usize = 10;
const ROUNDS: usize = 5;
const TTL: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Renew,
    RenewFirst,
    Verify,
    Pexpire,
    EvalshaRenew,
    Get,
    Release,
    SetNx,
    Del,
    EvalshaRelease,
    Acquire,
}

use Verb::{
    Acquire, Del, EvalshaRelease, EvalshaRenew, Get, Pexpire, Release, Renew, RenewFirst, SetNx,
    Verify,
};

/// What leaves a lease as it is.
const KEEP: [Verb; 6] = [Renew, Pexpire, RenewFirst, EvalshaRenew, Verify, Get];
/// What gives leases back and takes them again, ours and plain.
const CYCLES: [[Verb; 6]; 2] = [
    [Release, SetNx, Del, SetNx, EvalshaRelease, Acquire],
    [Release, SetNx, EvalshaRelease, SetNx, Del, Acquire],
];
const NAMES: [(Verb, &str); 11] = [
    (Renew, "renew"),
    (RenewFirst, "renew, first of an epoch"),
    (Verify, "verify"),
    (Acquire, "acquire"),
    (Release, "release"),
    (Pexpire, "PEXPIRE"),
    (EvalshaRenew, "EVALSHA renew"),
    (Get, "GET"),
    (SetNx, "SET NX PX"),
    (Del, "DEL"),
    (EvalshaRelease, "EVALSHA release"),
];

/// The rows, and what has to be known to read them.
pub(crate) fn measure(leases: u32) -> io::Result<(String, Vec<Row>)> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let store = RedisStore::new(&redis.url(), &redis.url(), Keys::new("poll", "session:"));
    let holder = Holder::new(store.map_err(io::Error::other)?, TTL, endpoints(0..leases)?)?;
    let keys = holder.endpoints.iter().map(|it| format!("poll:lease:{it}")).collect();
    let owner = holder.context.instance.to_string();
    let plain = Plain::new(redis.connect(&never)?, owner, TTL.as_secs() * 1_000)?;
    let mut bench = Bench { holder, plain, keys, meter: Meter(redis.connect(&never)?) };
    let version = bench.meter.version()?;
    bench.act(Acquire, 0..leases as usize)?;
    bench.turn(0)?; // loads the scripts, and is not counted
    let turns: Vec<Turn> =
        (1..=ROUNDS * SLICES).map(|it| bench.turn(it)).collect::<Result<_, _>>()?;
    let n = turns.len();
    let note = format!("{leases} leases, {BATCH_MAX} to a round trip, {n} turns, Redis {version}");
    Ok((note, rows(&turns)))
}

struct Bench {
    holder: Holder,
    plain: Plain,
    keys: Vec<String>,
    meter: Meter,
}

/// What each verb cost in one turn, in the order it was done.
struct Turn(Vec<(Verb, Cost)>);

impl Turn {
    fn cost(&self, verb: Verb) -> Cost {
        let costs = self.0.iter().filter(|it| it.0 == verb).map(|it| it.1);
        Cost::mean(&costs.collect::<Vec<_>>())
    }
}

impl Bench {
    /// Every verb once, each on a slice that the one before did not touch.
    fn turn(&mut self, turn: usize) -> io::Result<Turn> {
        let mut costs = Vec::new();
        let mut keep = KEEP;
        keep.rotate_left(turn % KEEP.len());
        for (at, (keep, give)) in keep.into_iter().zip(CYCLES[turn % 2]).enumerate() {
            costs.push((keep, self.act(keep, self.slice(turn + at))?));
            // By turns, so that acquiring again finds keys no warmer than renewing does.
            costs.push((give, self.act(give, self.slice(turn + KEEP.len()))?));
        }
        Ok(Turn(costs))
    }

    fn slice(&self, nth: usize) -> Range<usize> {
        let n = self.keys.len() / SLICES;
        let from = nth % SLICES * n;
        from..from + n
    }

    fn act(&mut self, verb: Verb, these: Range<usize>) -> io::Result<Cost> {
        let Self { holder, plain, keys, meter } = self;
        let keys = &keys[these.clone()];
        let mut granted = Vec::new();
        let cost = meter.cost(these.len(), || match verb {
            Renew => holder.renew(these.clone(), true),
            RenewFirst => holder.renew(these.clone(), false),
            Verify => holder.verify(these.clone()),
            Release => holder.release(these.clone()),
            Acquire => holder.acquire(these.clone()).map(|it| granted = it),
            Pexpire => plain.pexpire(keys),
            EvalshaRenew => plain.renew(keys),
            Get => plain.get(keys),
            SetNx => plain.set(keys),
            Del => plain.del(keys),
            EvalshaRelease => plain.release(keys),
        })?;
        holder.granted(these, &granted);
        Ok(cost)
    }
}

fn rows(turns: &[Turn]) -> Vec<Row> {
    let name = |verb| NAMES.iter().find(|it| it.0 == verb).map_or("", |it| it.1);
    let samples = |of: &dyn Fn(&Turn) -> f64| turns.iter().map(of).collect::<Vec<_>>();
    // Throughput: how often ours in the time of once the other.
    let speed = |ours, theirs| {
        let ratio = |it: &Turn| it.cost(theirs).clock / it.cost(ours).clock;
        let name = format!("{} / {}: throughput", name(ours), name(theirs));
        Row::new(&name, "×", Better::More, &samples(&ratio))
    };
    let server = |ours, theirs| {
        let ratio = |it: &Turn| it.cost(ours).server / it.cost(theirs).server;
        let name = format!("{} / {}: server CPU", name(ours), name(theirs));
        Row::new(&name, "×", Better::Less, &samples(&ratio))
    };
    let mut rows = vec![
        speed(Renew, Pexpire).goal(0.55),
        speed(Renew, EvalshaRenew).goal(1.5),
        server(Renew, Pexpire).goal(2.0),
        server(Renew, EvalshaRenew),
        speed(RenewFirst, Pexpire),
        speed(RenewFirst, EvalshaRenew),
        server(RenewFirst, Pexpire),
        speed(Acquire, SetNx).goal(0.5),
        server(Acquire, SetNx),
        speed(Release, EvalshaRelease).goal(1.6),
        speed(Release, Del),
        server(Release, EvalshaRelease),
        speed(Verify, Get),
        server(Verify, Get),
    ];
    for (verb, name) in NAMES {
        let of = |what: &str, of: fn(&Cost) -> f64| {
            let name = format!("{name}: {what} CPU per lease");
            Row::new(&name, "µs", Better::Less, &samples(&|it| of(&it.cost(verb))))
        };
        let client = of("client", |it| it.client);
        rows.push(of("server", |it| it.server));
        rows.push(if verb == Renew { client.goal(0.5) } else { client });
    }
    rows
}

//! What endpoints cost where they are stored, and the binary that knows or owns them.

use std::io;
use std::ops::Range;
use std::time::Duration;

use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::thread::{Stop, stop};
use redis::Connection;

use crate::fleet::wait_until_all_is_owned;
use crate::growth::{Curves, Per};
use crate::process::Daemon;
use crate::reader::Reader;
use crate::sessions::put_sessions;
use testkit::bench::holder::{Holder, endpoints as names};
use testkit::bench::meter::{Cost, Meter};
use testkit::private_redis::PrivateRedis;

const TTL: Duration = Duration::from_secs(3_600);
/// As long as those of the holder, so that nothing is renewed while anybody looks.
const LONG: [&str; 4] = ["--lease-ttl", "3600s", "--renew-interval", "1000s"];
const TURNS: usize = 5;
/// Each verb is done to so many at a time.
const SLICE: u32 = 20_000;
/// An instance that takes more than this at once needs minutes for it, and no fleet has one.
const OWNED_MAX: u32 = 100_000;
/// What was begun when all is owned has ended by then.
const SETTLED: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(300);
/// What a poll brings.
const BODY: [u8; 100] = [b'x'; 100];

pub(crate) fn endpoints(n: u32, curves: &mut Curves) -> io::Result<()> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let (line, meter) = (redis.connect(&never)?, Meter(redis.connect(&never)?));
    let mut bench = Bench { redis, line, meter, n, never, curves };
    let nothing = bench.rest_of_nothing()?;
    let empty = bench.meter.memory()?;
    put_sessions(&mut bench.line, n)?;
    bench.bytes("Redis: memory of a session", empty)?;
    if n <= OWNED_MAX {
        bench.owner(nothing)?;
    }
    bench.forget_all()?;
    put_sessions(&mut bench.line, n)?;
    bench.leases()?;
    bench.reads()?;
    bench.onlooker(nothing)
}

struct Bench<'a> {
    redis: PrivateRedis,
    line: Connection,
    meter: Meter,
    n: u32,
    never: Stop,
    curves: &'a mut Curves,
}

impl Bench<'_> {
    fn note(&mut self, name: &str, unit: &'static str, each: f64) {
        self.curves.note(Per::Endpoint, name, unit, self.n, each);
    }

    fn cost(&mut self, name: &str, cost: Cost) {
        self.note(&format!("{name}: server"), "µs", cost.server);
        self.note(&format!("{name}: client"), "µs", cost.client);
    }

    /// Of a process, which the kernel tells in hundredths of a second: too coarse for a thousand.
    fn cpu(&mut self, name: &str, seconds: f64) {
        if self.n >= 10_000 {
            self.note(name, "µs", seconds * 1e6 / f64::from(self.n));
        }
    }

    /// What has come to the server's memory since it was `before`, for each.
    fn bytes(&mut self, name: &str, before: f64) -> io::Result<()> {
        let each = (self.meter.memory()? - before) / f64::from(self.n);
        self.note(name, "B", each);
        Ok(())
    }

    fn forget_all(&mut self) -> io::Result<()> {
        redis::cmd("FLUSHALL").exec(&mut self.line).map_err(io::Error::other)
    }

    /// Resident memory of an instance that has nothing to do.
    fn rest_of_nothing(&mut self) -> io::Result<f64> {
        let daemon = Daemon::start(&self.redis.url(), &LONG)?;
        let _ = self.never.within(SETTLED);
        let rss = daemon.rss_mb()?;
        drop(daemon);
        self.forget_all()?;
        Ok(rss)
    }

    /// One instance takes everything.
    fn owner(&mut self, nothing: f64) -> io::Result<()> {
        let daemon = Daemon::start(&self.redis.url(), &LONG)?;
        wait_until_all_is_owned(&mut self.line, self.n, PATIENCE, &self.never)?;
        let each = 1e6 / f64::from(self.n);
        self.cpu("an instance takes all: its CPU", daemon.cpu()?);
        let _ = self.never.within(SETTLED);
        self.note("memory of an instance that owns it", "B", (daemon.rss_mb()? - nothing) * each);
        Ok(())
    }

    /// Takes all leases, and goes on with slices of them.
    fn leases(&mut self) -> io::Result<()> {
        let url = self.redis.url();
        let store = RedisStore::new(&url, &url, Keys::new("poll", "session:"));
        let store = store.map_err(io::Error::other)?;
        let mut holder = Holder::new(store, TTL, names(0..self.n)?)?;
        let all = 0..self.n as usize;
        let before = self.meter.memory()?;
        let granted = holder.acquire(all.clone())?;
        holder.granted(all, &granted);
        self.bytes("Redis: memory of a lease", before)?;
        let size = SLICE.min(self.n) as usize;
        for turn in 0..TURNS {
            let from = turn * size % self.n as usize;
            let these = from..from + size;
            holder.renew(these.clone(), true)?; // the way of all rounds but the first
            let before = self.meter.traffic()?;
            let cost = self.meter.cost(size, || holder.renew(these.clone(), true))?;
            let after = self.meter.traffic()?;
            self.cost("renew", cost);
            let n = f64::from(SLICE.min(self.n));
            let bytes = after[1] + after[2] - before[1] - before[2];
            self.note("renew: bytes both ways", "B", bytes / n);
            let cost = self.meter.cost(size, || holder.verify(these.clone()))?;
            self.cost("verify", cost);
            self.publish(&holder, &these, turn)?;
            let cost = self.meter.cost(size, || holder.release(these.clone()))?;
            self.cost("release", cost);
            let mut granted = Vec::new();
            let taken = self.meter.cost(size, || {
                granted = holder.acquire(these.clone())?;
                Ok(())
            })?;
            self.cost("acquire", taken);
            holder.granted(these, &granted);
        }
        Ok(())
    }

    /// The first result of an endpoint takes memory, each later one its place.
    fn publish(&mut self, holder: &Holder, these: &Range<usize>, turn: usize) -> io::Result<()> {
        let (before, n) = (self.meter.memory()?, f64::from(SLICE.min(self.n)));
        let at = u64::try_from(turn + 1).map_err(io::Error::other)? * 1_000;
        holder.publish(these.clone(), at, &BODY)?;
        let grown = (self.meter.memory()? - before) / n;
        if turn == 0 {
            self.note("Redis: memory of a result of 100 bytes", "B", grown);
        }
        let before = self.meter.traffic()?;
        let cost = self.meter.cost(these.len(), || holder.publish(these.clone(), at + 1, &BODY))?;
        let after = self.meter.traffic()?;
        self.cost("publish", cost);
        let bytes = after[1] + after[2] - before[1] - before[2];
        self.note("publish: bytes both ways", "B", bytes / n);
        Ok(())
    }

    fn reads(&mut self) -> io::Result<()> {
        let (n, reader) = (self.n as usize, Reader::new(&self.redis.url(), self.n)?);
        // A million takes long enough to be measured well at once.
        let turns = if self.n > 100_000 { 1 } else { 3 };
        for _ in 0..turns {
            for (name, read) in [
                ("reading names", Reader::names as fn(&Reader) -> io::Result<()>),
                ("reading owners", Reader::owners),
                ("reading sessions", Reader::sessions),
                ("status", Reader::overview),
            ] {
                let cost = self.meter.cost(n, || read(&reader))?;
                self.cost(name, cost);
            }
        }
        Ok(())
    }

    /// An instance that sees everything and may own nothing: another has it all.
    fn onlooker(&mut self, nothing: f64) -> io::Result<()> {
        let options = [&LONG[..], &["--weight", "0"]].concat();
        let before = self.meter.server_seconds()?;
        let daemon = Daemon::start(&self.redis.url(), &options)?;
        let each = 1e6 / f64::from(self.n);
        let server = self.meter.server_seconds()? - before;
        self.note("a newcomer looks at all: server", "µs", server * each);
        self.cpu("a newcomer looks at all: its CPU", daemon.cpu()?);
        let _ = self.never.within(SETTLED);
        self.note("memory of an instance that knows it", "B", (daemon.rss_mb()? - nothing) * each);
        Ok(())
    }
}

//! One million endpoints and a thousand instances, computed from what was measured: the tables of docs/results/million.md.
//!
//! Every number shows what it was made of. A test compares the page with docs/results/bench.json, so that neither changes
//! alone; `BLESS=1` writes it.

use serde_json::Value;

const ENDPOINTS: f64 = 1e6;
const INSTANCES: f64 = 1e3;
/// Defaults of `leasehold run`, in seconds.
const RENEW_INTERVAL: f64 = 10.0;
const HEARTBEAT_INTERVAL: f64 = 10.0;
const HOLD_OFF: f64 = 31.0;
/// How long an audit of all owners takes, and how often one instance of the fleet resyncs (`fleet/informer`).
const ROUND: f64 = 60.0;
const RESYNC_INTERVAL: f64 = 90.0;
/// How often an instance of a fleet of this size makes a read pass (`fleet/informer`).
const LOOKS_A_SECOND: f64 = 10.0;
/// An instance that watches 1,000 leases of 1,000 owners watches leases of this many owners: 1,000 × (1 − 1/e).
const OWNERS_WATCHED: f64 = 632.0;
/// Keys that one step of a scan looks at, and how many there are: session, lease, result.
const SCAN_COUNT: f64 = 1e3;
const KEYS: f64 = 3e6;
/// What a call holds at most.
const BATCH: f64 = 500.0;

/// Everything between these lines of the page is written here.
const BEGIN: &str = "<!-- from here on: make growth BLESS=1 -->\n";
const END: &str = "<!-- up to here -->\n";

/// The page with its tables made anew; `None` if something they need was not measured.
pub fn page(page: &str, measured: &[Value]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", tables(&Measured(measured))?))
}

/// The medians of all that was measured.
struct Measured<'a>(&'a [Value]);

impl Measured<'_> {
    fn of(&self, part: &str, name: &str) -> Option<f64> {
        let part = self.0.iter().find(|it| it["part"] == part)?;
        let row = part["rows"].as_array()?.iter().find(|it| it["name"] == name)?;
        row["median"].as_f64()
    }

    /// Of one endpoint among a million.
    fn endpoint(&self, name: &str) -> Option<f64> {
        self.of("growth", &format!("{name}, per endpoint: 1 M"))
    }

    /// Of one instance among fifty.
    fn instance(&self, name: &str) -> Option<f64> {
        self.of("growth", &format!("{name}, per instance: 50"))
    }

    /// What something costs that is about one other instance, and about each other more: a straight line through
    /// 1 and 50.
    fn line(&self, name: &str) -> Option<(f64, f64)> {
        let one = self.of("growth", &format!("{name}, per instance: 1"))?;
        Some((one, (50.0 * self.instance(name)? - one) / 49.0))
    }
}

/// One number: what it is, what it was made of, what comes out.
type Line = (&'static str, String, String);

fn tables(it: &Measured<'_>) -> Option<String> {
    let sections = [
        ("All the time", all_the_time(it)?),
        ("Because each knows all others", each_other(it)?),
        ("Polls", polls(it)?),
        ("Memory", memory(it)?),
        ("When something happens", storms(it)?),
        ("Twenty groups of 50,000 endpoints and 50 instances", groups(it)?),
    ];
    let line = |(what, how, comes): &Line| format!("| {what} | {how} | **{comes}** |\n");
    let section = |(title, lines): &(&str, Vec<Line>)| {
        let lines: String = lines.iter().map(line).collect();
        format!("\n### {title}\n\n| | derived | |\n|---|---|---|\n{lines}")
    };
    Some(sections.iter().map(section).collect::<String>() + "\n")
}

fn all_the_time(it: &Measured<'_>) -> Option<Vec<Line>> {
    let rate = ENDPOINTS / RENEW_INTERVAL;
    let (renew, bytes) = (it.endpoint("renew: server")?, it.endpoint("renew: bytes both ways")?);
    let own =
        it.endpoint("renew: client")? + it.of("growth", "table: a renewal, per endpoint: 1 k")?;
    let (owners, names) =
        (it.endpoint("reading owners: server")?, it.endpoint("reading names: server")?);
    Some(vec![
        (
            "renewals: calls",
            "1,000 instances × 1,000 leases / 500 / 10 s".into(),
            format!("{} /s", short(rate / BATCH)),
        ),
        (
            "renewals: server CPU",
            format!("{} µs × 1,000,000 / 10 s", short(renew)),
            cores(renew * rate / 1e6),
        ),
        (
            "renewals: network",
            format!("{} B × 1,000,000 / 10 s", short(bytes)),
            format!("{} MB/s", short(bytes * rate / 1e6)),
        ),
        (
            "renewals: each instance",
            format!("{} µs × 1,000 / 10 s", short(own)),
            cores(own * INSTANCES / RENEW_INTERVAL / 1e6),
        ),
        (
            "rounds over all owners: server CPU",
            format!("{} µs × 1,000,000 / 60 s", short(owners)),
            cores(owners * ENDPOINTS / ROUND / 1e6),
        ),
        (
            "resyncs, one at a time: server CPU",
            format!("({} + {}) µs × 1,000,000 / 90 s", short(names), short(owners)),
            cores((names + owners) * ENDPOINTS / RESYNC_INTERVAL / 1e6),
        ),
    ])
}

/// Microseconds of the server in each second, for renewals, audits and resyncs.
fn alone(it: &Measured<'_>) -> Option<f64> {
    let names = it.endpoint("reading names: server")?;
    let owners = it.endpoint("reading owners: server")?;
    let renewals = it.endpoint("renew: server")? / RENEW_INTERVAL;
    Some((renewals + owners / ROUND + (names + owners) / RESYNC_INTERVAL) * ENDPOINTS)
}

/// What instances cost because they know each other: grows with their square.
fn each_other(it: &Measured<'_>) -> Option<Vec<Line>> {
    let beats = INSTANCES / HEARTBEAT_INTERVAL;
    let told = it.instance("a heartbeat is told to all: server")?;
    let (call, node) = it.line("a look at all heartbeats: server")?;
    let (quick_check, lease) = it.line("a quick check of a lease of each: server")?;
    let push = told * beats * INSTANCES;
    let read = INSTANCES * LOOKS_A_SECOND * call + INSTANCES * beats * node;
    let quick_checks = INSTANCES * (quick_check + OWNERS_WATCHED * lease);
    Some(vec![
        ("heartbeats", "1,000 / 10 s".into(), format!("{} /s", short(beats))),
        (
            "… each pushed to all: server CPU",
            format!("{} µs × 100 /s × 1,000", short(told)),
            cores(push / 1e6),
        ),
        (
            "… and read by all, ten times a second what has come: server CPU",
            format!("1,000 × 10 /s × {} µs + 1,000 × 100 /s × {} µs", short(call), short(node)),
            cores(read / 1e6),
        ),
        (
            "every second each instance checks a lease of each of 632 owners: server CPU",
            format!("1,000 × ({} + 632 × {}) µs", short(quick_check), short(lease)),
            cores(quick_checks / 1e6),
        ),
        (
            "all of it, and what is above: server CPU",
            "renewals, audits, resyncs, heartbeats, their reads, quick checks".into(),
            cores((alone(it)? + push + read + quick_checks) / 1e6),
        ),
        (
            "of these, calls",
            "200 /s + 1,000 × (10 + 2) /s + 100 /s".into(),
            format!("{} /s", thousands(200.0 + INSTANCES * (LOOKS_A_SECOND + 2.0) + beats)),
        ),
    ])
}

fn polls(it: &Measured<'_>) -> Option<Vec<Line>> {
    let (verify, publish) = (it.endpoint("verify: server")?, it.endpoint("publish: server")?);
    let bytes = it.endpoint("publish: bytes both ways")?;
    let each = verify + publish;
    let at = |interval: f64| ENDPOINTS / interval;
    let line = |what, interval: f64| {
        let how = format!("({} + {}) µs × 1,000,000 / {interval} s", short(verify), short(publish));
        (what, how, cores(each * at(interval) / 1e6))
    };
    Some(vec![
        line("verified and published every 60 s: server CPU", 60.0),
        line("every 5 s, the default: server CPU", 5.0),
        (
            "every 60 s, 100 bytes each: network",
            format!("{} B × 1,000,000 / 60 s", short(bytes)),
            format!("{} MB/s", short(bytes * at(60.0) / 1e6)),
        ),
    ])
}

fn memory(it: &Measured<'_>) -> Option<Vec<Line>> {
    let kinds = ["a session", "a lease", "a result of 100 bytes"];
    let [session, lease, result] =
        kinds.map(|kind| it.endpoint(&format!("Redis: memory of {kind}")));
    let (session, lease, result) = (session?, lease?, result?);
    let knows = it.endpoint("memory of an instance that knows it")?;
    let owns = it.of("growth", "memory of an instance that owns it, per endpoint: 100 k")?;
    let rest = it.of("footprint", "resident memory at rest, 0 leases")?;
    let connections = it.instance("connections to Redis")?;
    let names = [session, lease, result].map(short);
    Some(vec![
        (
            "Redis: session, lease and fence, result",
            format!("({} + {} + {}) B × 1,000,000", names[0], names[1], names[2]),
            format!("{} GB", short((session + lease + result) * ENDPOINTS / 1e9)),
        ),
        (
            "each instance: knows all, owns 1,000",
            format!(
                "{} MB + {} B × 1,000,000 + {} B × 1,000",
                short(rest),
                short(knows),
                short(owns)
            ),
            format!("{} MB", short(rest + (knows * ENDPOINTS + owns * INSTANCES) / 1e6)),
        ),
        (
            "connections to Redis",
            format!("{} × 1,000", short(connections)),
            thousands(connections * INSTANCES),
        ),
    ])
}

/// What words cost a server that passes them on: one grant in each, and one more.
fn word(it: &Measured<'_>, grants: f64) -> Option<f64> {
    let (one, many) = (it.instance("a word of 1: server")?, it.instance("a word of 500: server")?);
    Some(one + (many - one) / 499.0 * (grants - 1.0))
}

fn storms(it: &Measured<'_>) -> Option<Vec<Line>> {
    let acquire = it.endpoint("acquire: server")?;
    let first = it.of("engine", "renew, first of an epoch: server CPU per lease")?;
    let newcomer = it.endpoint("a newcomer looks at all: server")?;
    let names = it.endpoint("reading names: server")?;
    let [one, rack, start] = [1.0, 100_000.0 / 900.0, BATCH].map(|grants| word(it, grants));
    let (one, rack, start) = (one?, rack?, start?);
    let bytes = it.instance("a word of 500: bytes")?;
    let page = names * ENDPOINTS / (KEYS / SCAN_COUNT);
    let told = |words: f64, subscribers: f64, each: f64| words * subscribers * each / 1e6;
    Some(vec![
        (
            "one instance dies: 1,000 grants",
            format!("{} µs × 1,000", short(acquire)),
            format!("{} s of server CPU", short(acquire * 1e3 / 1e6)),
        ),
        (
            "… each taken by another, and told to all",
            format!("{} µs × 999 messages × 998 subscribers", short(one)),
            format!("{} s of server CPU", short(told(999.0, 998.0, one))),
        ),
        (
            "a rack of 100 dies: 100,000 grants",
            format!("{} µs × 100,000", short(acquire)),
            format!("{} s of server CPU", short(acquire * 1e5 / 1e6)),
        ),
        (
            "… told to all, 111 grants in a word",
            format!("{} µs × 900 messages × 899 subscribers", short(rack)),
            format!("{} s of server CPU", short(told(900.0, 899.0, rack))),
        ),
        (
            "Redis fails over: nothing is granted for",
            "30 s + 3 % + 100 ms".into(),
            format!("{HOLD_OFF} s"),
        ),
        (
            "… and every lease is renewed by its fence",
            format!("{} µs × 1,000,000 / 10 s", short(first)),
            cores(first * ENDPOINTS / RENEW_INTERVAL / 1e6),
        ),
        (
            "… and every connection broke, so every instance resyncs",
            format!("{} µs × 1,000,000 × 1,000", short(newcomer)),
            format!("{} s of server CPU", thousands(newcomer * ENDPOINTS * INSTANCES / 1e6)),
        ),
        (
            "… with one page each under way: a request waits",
            format!("1,000 × {} µs", thousands(page)),
            format!("{} s", short(INSTANCES * page / 1e6)),
        ),
        (
            "Redis is empty, a million grants",
            format!("{} µs × 1,000,000", short(acquire)),
            format!("{} s of server CPU", short(acquire * ENDPOINTS / 1e6)),
        ),
        (
            "… told to all, 500 grants in a word",
            format!("{} µs × 2,000 messages × 999 subscribers", short(start)),
            format!("{} s of server CPU", thousands(told(2_000.0, 999.0, start))),
        ),
        (
            "… which is to be sent",
            format!("{} B × 2,000 messages × 999 subscribers", thousands(bytes)),
            format!("{} GB", short(bytes * 2_000.0 * 999.0 / 1e9)),
        ),
    ])
}

/// The same in twenty fleets that know nothing of each other.
fn groups(it: &Measured<'_>) -> Option<Vec<Line>> {
    let (renew, newcomer) =
        (it.endpoint("renew: server")?, it.endpoint("a newcomer looks at all: server")?);
    let rest = it.instance("at rest, each second: server")?;
    let knows = it.of("growth", "memory of an instance that knows it, per endpoint: 100 k")?;
    let owns = it.of("growth", "memory of an instance that owns it, per endpoint: 100 k")?;
    let idle = it.of("footprint", "resident memory at rest, 0 leases")?;
    let one = word(it, 20.0)?;
    Some(vec![
        (
            "renewals: server CPU of a group",
            format!("{} µs × 50,000 / 10 s", short(renew)),
            cores(renew * 50_000.0 / RENEW_INTERVAL / 1e6),
        ),
        (
            "heartbeats of a group, and all reads of them",
            format!("{} ms/s × 50, as measured", short(rest)),
            cores(rest * 50.0 / 1e3),
        ),
        (
            "every instance resyncs, on a Redis of its own",
            format!("{} µs × 50,000 × 50", short(newcomer)),
            format!("{} s of server CPU", short(newcomer * 50_000.0 * 50.0 / 1e6)),
        ),
        (
            "one instance dies, told to all, 20 grants in a word",
            format!("{} µs × 49 messages × 48 subscribers", short(one)),
            format!("{} s of server CPU", short(one * 49.0 * 48.0 / 1e6)),
        ),
        (
            "memory of each instance",
            format!("{} MB + {} B × 50,000 + {} B × 1,000", short(idle), short(knows), short(owns)),
            format!("{} MB", short(idle + (knows * 50_000.0 + owns * 1_000.0) / 1e6)),
        ),
    ])
}

fn cores(seconds_a_second: f64) -> String {
    match seconds_a_second {
        it if it < 0.1 => format!("{} % of a core", short(it * 100.0)),
        it => format!("{} cores", short(it)),
    }
}

/// Two or three digits: what the spread leaves.
fn short(number: f64) -> String {
    match number.abs() {
        it if it >= 1_000.0 => thousands(number),
        it if it >= 100.0 => format!("{number:.0}"),
        it if it >= 10.0 => format!("{number:.1}"),
        it if it >= 0.1 || it == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// 12345.6 as 12,346.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let n = digits.len();
    let comma = |(at, digit): (usize, char)| {
        let sign = (at > 0 && (n - at) % 3 == 0).then_some(',');
        sign.into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(comma).collect()
}

//! `leasehold dev`: a whole fleet to try things on, on this machine, until Ctrl-C.
//!
//! Every part is a process of its own under a poll supervisor ([`parts`]), so that all of it ends with this process, however
//! that ends. Only the sample target is a thread of this process.

mod directory;
mod guide;
mod parts;
mod target;

use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::dev::directory::Directory;
use crate::cli::dev::guide::Guide;
use crate::cli::dev::parts::{Ended, Part, Parts};
use crate::cli::dev::target::Target;
use crate::cli::import::checked_lines;
use crate::cli::task::STALE_AFTER;
use crate::cli::{FAILED, fail, say};
use crate::clock::{BootClock, Clock, Moment};
use crate::config::{Config, RedisUrl};
use crate::inspect::doctor::program::runnable;
use crate::inspect::status::Status;
use crate::model::EndpointId;
use crate::store::redis::RedisStore;
use crate::store::{BATCH_MAX, Store};
use crate::thread::Stop;
use crate::thread::signals::stops_on_signals;

/// How long the server may take to answer, and then the fleet to poll everything.
const PATIENCE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(100);
/// Short timings, so that a takeover is seen while one looks. The service has 30 s and 10 s.
const TIMINGS: [&str; 4] =
    ["--lease-ttl=6s", "--renew-interval=2s", "--heartbeat-ttl=3s", "--heartbeat-interval=1s"];
/// What begins the names of all keys on a Redis that others may use.
pub(crate) const PREFIX: &str = "leasehold-dev";
pub(crate) const LEADER_PREFIX: &str = "leasehold-dev-leader";
pub(crate) const INSTANCES: usize = 3;
pub(crate) const INSTANCES_MAX: usize = 20;

/// What the user asked for.
#[derive(Debug)]
pub(crate) struct DevSettings {
    /// How to get into the Redis, and under which prefixes.
    pub(crate) config: Config,
    /// The URL of the user's own Redis; `None` for a private one.
    pub(crate) own_redis: Option<String>,
    /// Kept at the end; otherwise a directory that is removed.
    pub(crate) data: Option<PathBuf>,
    /// JSON lines; otherwise sessions of the sample target.
    pub(crate) sessions: Option<PathBuf>,
    pub(crate) instances: usize,
}

/// Runs it to its end.
pub(crate) fn dev(settings: &DevSettings) -> ExitCode {
    let (until, hurry) = match stops_on_signals() {
        Ok(stops) => stops,
        Err(error) => return fail(FAILED, &format!("cannot wait for signals: {error}")),
    };
    match play(settings, &until, hurry) {
        Ok(farewell) => say(&farewell),
        Err(_) if until.is_over() => say("ended before it was ready\n"),
        Err(why) => fail(FAILED, &why),
    }
}

fn play(settings: &DevSettings, until: &Stop, hurry: Stop) -> Result<String, String> {
    let leasehold = env::current_exe().map_err(|error| format!("cannot find itself: {error}"))?;
    // Before anything is made: the sentence is all that is left behind.
    let server = if settings.own_redis.is_some() { None } else { Some(server_program()?) };
    let directory = Directory::open(settings.data.as_deref())?;
    let mut parts = Parts::new(&leasehold, directory.path(), hurry)?;
    if directory.is_temporary() {
        parts.remove_at_the_end(directory.path())?;
    }
    let mut config = settings.config.clone();
    let mut url = settings.own_redis.clone().unwrap_or_default();
    if let Some(server) = server {
        let port = free_port()?;
        parts.start(redis(server, directory.path(), port))?;
        url = format!("redis://127.0.0.1:{port}/0");
        config.redis = RedisUrl::parse(&url).map_err(|error| error.to_string())?;
    }
    let store = RedisStore::of_endpoints(&config);
    wait("the Redis server to answer", until, &parts, || {
        store.time(config.store_timeout).map(drop).map_err(|error| error.to_string())
    })?;
    if settings.own_redis.is_some() {
        alone(&config, &store)?;
    }
    let stage =
        Stage { settings, config: &config, redis: &url, store: &store, directory: &directory };
    let played = stage.play(&leasehold, &mut parts, until);
    parts.end();
    if settings.own_redis.is_some() {
        erase(&store, config.store_timeout)?;
    }
    played.map(|()| directory.farewell())
}

/// A server that answers, for a fleet.
struct Stage<'a> {
    settings: &'a DevSettings,
    config: &'a Config,
    redis: &'a str,
    store: &'a RedisStore,
    directory: &'a Directory,
}

impl Stage<'_> {
    /// Starts the fleet, tells what to try, and goes on until it is time to stop.
    fn play(&self, leasehold: &Path, parts: &mut Parts, until: &Stop) -> Result<(), String> {
        let Self { settings, config, redis, store, directory } = *self;
        let target =
            Target::start().map_err(|error| format!("cannot start the target: {error}"))?;
        let sessions = store_sessions(settings, config, store, &target)?;
        parts.pass_on(config, redis);
        let names: Vec<String> = (1..=settings.instances).map(|it| format!("vm{it}")).collect();
        for name in &names {
            parts.start(instance(leasehold, name))?;
        }
        let page = free_port()?;
        parts.start(web(leasehold, page))?;
        wait("the fleet to poll every endpoint", until, parts, || {
            all_polled(config, store, &names)
        })?;
        let guide = Guide { config, redis, page, leasehold, directory, sessions };
        say(&guide.text(parts, &names, settings));
        watch(parts, until)?;
        say("\nending: the instances give their leases back, then everything ends\n");
        Ok(())
    }
}

/// The keys are removed at the end, so nobody else may use them.
fn alone(config: &Config, store: &RedisStore) -> Result<(), String> {
    let overview = store.overview(config.store_timeout).map_err(|error| error.to_string())?;
    match Status::of(overview, STALE_AFTER).n_live() {
        0 => Ok(()),
        n => Err(format!(
            "{n} instances of another leasehold dev run on {}: end that first, or leave --redis out",
            config.redis
        )),
    }
}

/// Removes the keys of this fleet from the user's own Redis.
fn erase(store: &RedisStore, timeout: Duration) -> Result<(), String> {
    for prefix in [PREFIX, LEADER_PREFIX] {
        store.erase(&format!("{prefix}:"), timeout).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Starts again what ends, until it is time to stop.
fn watch(parts: &mut Parts, until: &Stop) -> Result<(), String> {
    while !until.within(TICK) {
        for Ended { name, how, again_in } in parts.ended() {
            let again = match again_in {
                Some(wait) => format!("it starts again in {} s", wait.as_secs()),
                None => {
                    return Err(format!("{name} {how} again and again{}", parts.last_words(&name)));
                }
            };
            say(&format!("{name} {how}; {again}\n"));
        }
        for name in parts.restart_due()? {
            let id = parts.pid(&name).map_or_else(String::new, |it| format!(" as process {it}"));
            say(&format!("{name} is back{id}\n"));
        }
    }
    Ok(())
}

/// The server to start: Redis, or Valkey where that is what is installed.
fn server_program() -> Result<&'static str, String> {
    let path = env::var_os("PATH");
    let found = ["redis-server", "valkey-server"]
        .into_iter()
        .find(|it| runnable(it, path.as_deref()).is_ok());
    found.ok_or_else(|| {
        "there is neither redis-server nor valkey-server on PATH: install one (Debian and Ubuntu: \
         apt-get install redis-server; Fedora: dnf install valkey), or name a server of your own \
         with --redis URL"
            .into()
    })
}

fn free_port() -> Result<u16, String> {
    let found = TcpListener::bind(("127.0.0.1", 0)).and_then(|it| it.local_addr());
    found.map(|it| it.port()).map_err(|error| format!("there is no free port: {error}"))
}

/// With a log of every write, so that a server that is killed comes back with all sessions.
fn redis(program: &str, dir: &Path, port: u16) -> Part {
    let (port, dir) = (port.to_string(), dir.display().to_string());
    let args = [
        ["--bind", "127.0.0.1"],
        ["--port", &port],
        ["--dir", &dir],
        ["--save", ""],
        ["--appendonly", "yes"],
        ["--daemonize", "no"],
    ];
    let args = args.iter().flatten().map(ToString::to_string).collect();
    Part::new("redis", program.into(), args, Duration::from_secs(1))
}

fn instance(leasehold: &Path, name: &str) -> Part {
    // All of them begin at once, and whichever is first finds a Redis that no fleet has used.
    let args = ["run", "--new-fleet", "--host-name", name].into_iter().chain(TIMINGS);
    let args = args.map(String::from).collect();
    Part::new(name, leasehold.into(), args, Duration::from_secs(10))
}

/// The page, for a browser on this host.
fn web(leasehold: &Path, port: u16) -> Part {
    let args = vec!["web".to_owned(), format!("--listen=127.0.0.1:{port}")];
    Part::new("page", leasehold.into(), args, Duration::from_secs(1))
}

/// Stores the sessions of the file, or the samples. How many there are.
fn store_sessions(
    settings: &DevSettings,
    config: &Config,
    store: &RedisStore,
    target: &Target,
) -> Result<usize, String> {
    let overview = || store.overview(config.store_timeout).map_err(|error| error.to_string());
    let lines = match &settings.sessions {
        Some(file) => checked_lines(Some(file), "imported")?.lines,
        // The target of an earlier start had another port. Samples that were removed stay away.
        None => {
            let stored = overview()?.endpoints;
            let is_stored = |id: &EndpointId| stored.iter().any(|it| it.id == *id);
            let samples = target.sessions().into_iter();
            samples.filter(|it| stored.is_empty() || is_stored(&it.0)).collect()
        }
    };
    for batch in lines.chunks(BATCH_MAX) {
        let stored = store.store_sessions(batch, config.store_timeout);
        stored.map_err(|error| error.to_string())?;
    }
    Ok(overview()?.endpoints.iter().filter(|it| it.session.is_some()).count())
}

fn all_polled(config: &Config, store: &RedisStore, names: &[String]) -> Result<(), String> {
    let overview = store.overview(config.store_timeout).map_err(|error| error.to_string())?;
    let status = Status::of(overview, STALE_AFTER);
    let owned = status.endpoints.iter().filter(|it| it.lease.is_some()).count();
    if status.n_live() >= names.len() && owned >= status.n_wanted() {
        return Ok(());
    }
    Err(format!("{} of {} endpoints have an owner", owned, status.n_wanted()))
}

/// Tries until it succeeds; why not, and what the part that failed said last, when it does not in time.
fn wait(
    what: &str,
    until: &Stop,
    parts: &Parts,
    mut attempt: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let deadline: Moment = BootClock.now() + PATIENCE;
    loop {
        let Err(why) = attempt() else { return Ok(()) };
        if BootClock.now() > deadline {
            let said = parts.all_last_words();
            return Err(format!("waited {} s for {what}: {why}{said}", PATIENCE.as_secs()));
        }
        if until.within(TICK) {
            return Err(why);
        }
    }
}

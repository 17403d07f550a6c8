//! Is this Redis set up so that the promises hold, and may we do there what we have to? What
//! `leasehold doctor` finds, each with what it means and the way out.
//!
//! Looks at one server, once, from here. Nothing is changed: what has to be tried is tried on a key of its
//! own that expires.

pub mod clock;
pub mod files;
pub mod fleet;
pub mod program;
pub mod rights;
pub mod server;
pub mod unit;

use std::time::Duration;

use crate::config::{Config, Topology};
use crate::inspect::doctor::clock::Drift;
use crate::model::LeaseDuration;
use crate::store::admin::acl::{Missing, Purpose, Rule};
use crate::store::admin::key_types::SingletonKey;
use crate::store::admin::probe::{Info, Reading};
use crate::store::redis::RedisStore;
use crate::store::{Fault, StoreError, StoreResult};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// It works, and will not when something else goes wrong.
    Warn,
    /// It does not work, or a promise does not hold.
    Fail,
}

impl Grade {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What one check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check.
    pub check: &'static str,
    /// How bad it is.
    pub grade: Grade,
    /// What was found, and what it means.
    pub found: String,
    /// What to do about it; empty where nothing is to be done.
    pub way_out: String,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, grade: Grade::Ok, found: found.into(), way_out: String::new() }
    }

    /// Worth a look.
    pub fn warn(check: &'static str, found: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { check, grade: Grade::Warn, found: found.into(), way_out: way_out.into() }
    }

    /// Has to be mended.
    pub fn fail(check: &'static str, found: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { check, grade: Grade::Fail, found: found.into(), way_out: way_out.into() }
    }
}

/// Everything that was found about the server.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
    /// The rights that the user lacks.
    pub missing: Vec<Missing>,
    /// The rule to paste, for a user of the purpose that was asked about.
    pub rule: String,
    /// Whom it is for, and what becomes of that user; without a full stop.
    pub rule_is_for: String,
    /// Another one, where the user was meant to look only.
    pub looking: Option<String>,
}

/// How many pings tell how fast it is.
const PINGS: usize = 20;
/// From one reading of its clock to the next.
const CLOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Looks at the server of `config` for about as long as `watch`, and whether its user has the rights for `purpose`.
pub fn examine(config: &Config, purpose: Purpose, watch: Duration) -> Report {
    let mut report = Report::default();
    let store = RedisStore::of_endpoints(config);
    report.rule = rule(config, true).to_paste(purpose, store.user());
    let mut examination = Examination { config, purpose, store, report };
    if let Err(error) = examination.run(watch) {
        let stopped = Finding::fail(
            "connect",
            format!("{error}; what comes after this was not looked at"),
            way_out(&error),
        );
        examination.report.findings.push(stopped);
    }
    examination.report
}

/// What is to be done about a server that could not be asked.
fn way_out(error: &StoreError) -> &'static str {
    match error.fault {
        Fault::Unreachable => {
            "check that it runs, --redis, and what is between: name, port, firewall"
        }
        Fault::Refused => "see what it says, and whether it is a Redis at all",
        Fault::Misconfigured => "", // the reason has it
    }
}

fn unreached(check: &'static str, error: &StoreError) -> Finding {
    Finding::fail(check, error.to_string(), way_out(error))
}

fn rule(config: &Config, tells_reading: bool) -> Rule {
    Rule {
        prefix: config.prefix.clone(),
        session_prefix: config.session_prefix.clone(),
        leader_prefix: config.leader_prefix.clone(),
        tells_reading,
        in_cluster: config.redis.topology() == Topology::Cluster,
        waits: config.min_replicas > 0,
    }
}

struct Examination<'a> {
    config: &'a Config,
    purpose: Purpose,
    store: RedisStore,
    report: Report,
}

impl Examination<'_> {
    /// One check after the other. An error ends it: the server does not answer any more.
    fn run(&mut self, watch: Duration) -> StoreResult<()> {
        let Some(user) = self.connect() else { return Ok(()) };
        let latency = self.latency();
        self.put(latency)?;
        let info = self.info()?;
        if let Some(info) = &info {
            self.server(info)?;
        }
        self.rights(user.as_deref(), info.as_ref())?;
        if self.purpose == Purpose::Daemon {
            let pushes = self.store.pushes(self.patience());
            if let Some(pushes) = self.put_or(pushes, "pushes")? {
                self.report.findings.push(server::pushes(pushes));
            }
        }
        // An elector's rule has none of the keys that are looked at here.
        if self.purpose != Purpose::Elector {
            self.keys()?;
        }
        let drift = self.drift(watch);
        if let Some(readings) = self.put_or(drift, "clock")? {
            let margin = LeaseDuration::new(self.config.lease_ttl).margin();
            self.report.findings.push(Drift::of(&readings).judged(margin));
        }
        Ok(())
    }

    /// What the server says about itself. People who look or operate need no right to ask that.
    fn info(&mut self) -> StoreResult<Option<Info>> {
        match (self.store.info(self.patience()), self.purpose) {
            (Err(denied), Purpose::Onlooker) if denied.is_denied() => Ok(None),
            (info, _) => self.put_or(info, "server"),
        }
    }

    fn keys(&mut self) -> StoreResult<()> {
        let wrong_types = self.store.wrong_types(self.patience());
        let wrong_types = self.put_or(wrong_types, "keys")?;
        let judged = wrong_types.as_ref().map(|it| fleet::of_the_right_type(self.config, it));
        self.report.findings.extend(judged.into_iter().flatten());
        // What cannot be read is no sign that nobody has run here.
        let is_readable = !wrong_types.iter().flatten().any(|it| it.which == SingletonKey::Epoch);
        // Whether the settings agree with the fleet's concerns those who join it.
        if is_readable && self.purpose == Purpose::Daemon {
            let fleet = self.fleet();
            self.put(fleet)?;
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.config.store_timeout
    }

    /// Keeps what was found. A refusal is a finding, too; only a server that is gone is an error.
    fn put(&mut self, found: Result<Finding, (&'static str, StoreError)>) -> StoreResult<()> {
        match found {
            Ok(finding) => self.report.findings.push(finding),
            Err((_, error)) if error.fault == Fault::Unreachable => return Err(error),
            Err((check, error)) => self.report.findings.push(unreached(check, &error)),
        }
        Ok(())
    }

    /// The same for what has yet to be judged.
    fn put_or<T>(&mut self, asked: StoreResult<T>, check: &'static str) -> StoreResult<Option<T>> {
        match asked {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => self.put(Err((check, error))).map(|()| None),
        }
    }

    /// Who we are, if the server tells; `None` where there is no point in going on.
    fn connect(&mut self) -> Option<Option<String>> {
        let began = self.store.greet(self.patience());
        let user = began.as_ref().map_err(Clone::clone);
        let user = user.and_then(|_| self.store.whoami(self.patience()));
        let findings = &mut self.report.findings;
        let (took, user) = match (began, user) {
            (Ok(took), Ok(user)) => (took, user),
            (_, Err(error)) | (Err(error), _) => {
                let denied = error.fault == Fault::Misconfigured && !error.is_foreign();
                findings.push(unreached(if denied { "login" } else { "connect" }, &error));
                return None;
            }
        };
        let redis = &self.config.redis;
        findings.push(Finding::ok("connect", format!("{redis} answers, after {}", ms(took))));
        let name = user.or_else(|| self.store.user().map(String::from));
        let name = name.unwrap_or_else(|| "default".into());
        findings.push(Finding::ok(
            "login",
            match redis.has_password() || self.config.access.password.is_some() {
                true => format!("as the user {name}"),
                false => format!("as the user {name}, without a password"),
            },
        ));
        Some(Some(name))
    }

    fn latency(&self) -> Result<Finding, (&'static str, StoreError)> {
        let times: StoreResult<Vec<Duration>> =
            (0..PINGS).map(|_| self.store.ping(self.patience())).collect();
        let mut times = times.map_err(|error| ("latency", error))?;
        times.sort();
        let (median, worst) = (times[PINGS / 2], times[PINGS - 1]);
        Ok(server::latency(median, worst, self.patience()))
    }

    fn server(&mut self, info: &Info) -> StoreResult<()> {
        let mut settings = server::Settings::default();
        for (name, value) in settings.all() {
            *value = self.store.setting(name, self.patience())?;
        }
        let hold_off = LeaseDuration::new(self.config.lease_ttl).hold_off();
        self.report.findings.extend([
            server::version(info),
            server::role(info, self.config.redis.topology()),
            server::eviction(info, &settings),
            server::memory(info),
            server::persistence(info, &settings, hold_off),
            server::replicas(info, &settings, self.config.min_replicas),
        ]);
        Ok(())
    }

    fn rights(&mut self, user: Option<&str>, info: Option<&Info>) -> StoreResult<()> {
        let tells_reading = info.is_none_or(|it| server::major(it) >= 7);
        let (rule, purpose) = (rule(self.config, tells_reading), self.purpose);
        self.propose(&rule, user);
        let rights = self.store.rights(&rule, purpose, user, self.patience());
        if let Some(rights) = self.put_or(rights, "rights")? {
            self.report.findings.push(rights::judged(&rights, purpose));
            if rights.only_looks() && purpose == Purpose::Daemon {
                // It must not become one that may write, only because it was pasted without reading.
                self.propose(&rule, None);
                self.report.looking = Some(rule.to_paste(Purpose::Onlooker, user));
            }
            self.report.missing = rights.missing;
        }
        Ok(())
    }

    /// The rule of the purpose's user, for a user that is there unless that is everybody's.
    fn propose(&mut self, rule: &Rule, user: Option<&str>) {
        let purpose = self.purpose;
        self.report.rule = rule.to_paste(purpose, user);
        let whom = match purpose {
            Purpose::Daemon => "the daemon".into(),
            other => format!("an {} ({})", other.word(), other.commands()),
        };
        self.report.rule_is_for = match user.filter(|it| *it != "default") {
            Some(name) => format!(
                "For {whom}: the user {name} may do this and nothing else from then on, and keeps its \
                 password"
            ),
            None => format!(
                "For {whom}: a user {} of its own, made or changed, to be named in its --redis; no other \
                 user is changed",
                purpose.user()
            ),
        };
    }

    fn fleet(&self) -> Result<Finding, (&'static str, StoreError)> {
        let epoch = self.store.epoch(self.patience()).map_err(|error| ("fleet", error))?;
        let clock = self.store.clock(self.patience()).map_err(|error| ("fleet", error))?;
        Ok(fleet::agreement(self.config, epoch, clock.server_us / 1_000))
    }

    fn drift(&self, watch: Duration) -> StoreResult<Vec<Reading>> {
        let first = self.store.clock(self.patience())?;
        let mut readings = vec![first];
        loop {
            let last = self.store.clock(self.patience())?;
            readings.push(last);
            if last.answered_at.since(first.asked_at) >= watch {
                return Ok(readings);
            }
            let _ = crossbeam_channel::after(CLOCK_INTERVAL.min(watch / 4)).recv();
        }
    }
}

/// What the user lacks of the rights for `purpose`, after a command was denied one: the server's own words seldom
/// say which. Empty when nothing is found.
pub fn lacking(config: &Config, purpose: Purpose) -> String {
    let store = RedisStore::of_endpoints(config);
    let patience = config.store_timeout;
    let tells_reading = store.info(patience).map_or(true, |it| server::major(&it) >= 7);
    let rule = rule(config, tells_reading);
    let rights = store.rights(&rule, purpose, store.user(), patience);
    let Ok(rights) = rights else { return String::new() };
    let names: Vec<&str> = rights.missing.iter().map(|it| it.right.as_str()).collect();
    if names.is_empty() { String::new() } else { format!("; it lacks {}", names.join(", ")) }
}

/// For people, fine enough for a network.
pub fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

//! Is this Redis set up so that the promises hold, and may we do there what we have to? What
//! `leasehold doctor` finds, each with what it means and the way out.
//!
//! Looks at one server, once, from here. Nothing is changed: what has to be tried is tried on a key of its
//! own that expires.

pub mod clock;
pub mod fleet;
pub mod server;
pub mod unit;

use std::time::Duration;

use crate::config::{Config, Topology};
use crate::doctor::clock::Drift;
use crate::model::Term;
use crate::store::acl::{Missing, Need, Rights, Rule};
use crate::store::kinds::Single;
use crate::store::probe::{Info, Reading};
use crate::store::redis::RedisStore;
use crate::store::{Asked, Fault, StoreError};

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
    /// The rule to paste, for the daemon's user.
    pub rule: String,
    /// Whom it is for, and what becomes of that user; without a full stop.
    pub rule_is_for: String,
    /// Another one, where the user was meant to look only.
    pub looking: Option<String>,
}

/// So many pings tell how fast it is.
const PINGS: usize = 20;
/// From one reading of its clock to the next.
const CLOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Looks at the server of `config` for about as long as `watch`.
pub fn examine(config: &Config, watch: Duration) -> Report {
    let mut report = Report::default();
    let store = RedisStore::of_polls(config);
    report.rule = rule(config, true).to_paste(store.user());
    let mut examination = Examination { config, store, report };
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
    store: RedisStore,
    report: Report,
}

impl Examination<'_> {
    /// One check after the other. An error ends it: the server does not answer any more.
    fn run(&mut self, watch: Duration) -> Asked<()> {
        let Some(user) = self.connect() else { return Ok(()) };
        let latency = self.latency();
        self.put(latency)?;
        let info = self.store.info(self.patience());
        let info = self.put_or(info.map(Some), "server")?.flatten();
        if let Some(info) = &info {
            self.server(info)?;
        }
        self.rights(user.as_deref(), info.as_ref())?;
        let pushes = self.store.pushes(self.patience());
        if let Some(pushes) = self.put_or(pushes, "pushes")? {
            self.report.findings.push(server::pushes(pushes));
        }
        let spoilt = self.store.spoilt(self.patience());
        let spoilt = self.put_or(spoilt, "keys")?;
        let judged = spoilt.as_ref().map(|it| fleet::of_the_right_type(self.config, it));
        self.report.findings.extend(judged.into_iter().flatten());
        // What cannot be read is no sign that nobody has run here.
        if !spoilt.iter().flatten().any(|it| it.which == Single::Epoch) {
            let fleet = self.fleet();
            self.put(fleet)?;
        }
        let drift = self.drift(watch);
        if let Some(readings) = self.put_or(drift, "clock")? {
            let margin = Term::new(self.config.lease_ttl).margin();
            self.report.findings.push(Drift::of(&readings).judged(margin));
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.config.store_timeout
    }

    /// Keeps what was found. A refusal is a finding, too; only a server that is gone is an error.
    fn put(&mut self, found: Result<Finding, (&'static str, StoreError)>) -> Asked<()> {
        match found {
            Ok(finding) => self.report.findings.push(finding),
            Err((_, error)) if error.fault == Fault::Unreachable => return Err(error),
            Err((check, error)) => self.report.findings.push(unreached(check, &error)),
        }
        Ok(())
    }

    /// The same for what has yet to be judged.
    fn put_or<T>(&mut self, asked: Asked<T>, check: &'static str) -> Asked<Option<T>> {
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
        let times: Asked<Vec<Duration>> =
            (0..PINGS).map(|_| self.store.ping(self.patience())).collect();
        let mut times = times.map_err(|error| ("latency", error))?;
        times.sort();
        let (median, worst) = (times[PINGS / 2], times[PINGS - 1]);
        Ok(server::latency(median, worst, self.patience()))
    }

    fn server(&mut self, info: &Info) -> Asked<()> {
        let mut settings = server::Settings::default();
        for (name, value) in settings.all() {
            *value = self.store.setting(name, self.patience())?;
        }
        let hold_off = Term::new(self.config.lease_ttl).hold_off();
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

    fn rights(&mut self, user: Option<&str>, info: Option<&Info>) -> Asked<()> {
        let tells_reading = info.is_none_or(|it| server::major(it) >= 7);
        let rule = rule(self.config, tells_reading);
        self.propose(&rule, user);
        let rights = self.store.rights(&rule, user, self.patience());
        if let Some(rights) = self.put_or(rights, "rights")? {
            self.report.findings.push(judged(&rights));
            if rights.only_looks() {
                // It must not become one that may write, only because it was pasted without reading.
                self.propose(&rule, None);
                self.report.looking =
                    Some(rule.to_paste_for_looking(user.filter(|it| *it != "default")));
            }
            self.report.missing = rights.missing;
        }
        Ok(())
    }

    /// The rule of the daemon's user, for a user that is there unless that is everybody's.
    fn propose(&mut self, rule: &Rule, user: Option<&str>) {
        self.report.rule = rule.to_paste(user);
        self.report.rule_is_for = match user.filter(|it| *it != "default") {
            Some(name) => format!(
                "For the daemon: the user {name} may do this and nothing else from then on, and keeps its \
                 password"
            ),
            None => {
                "For the daemon: a user leasehold of its own, made or changed, to be named in its \
                     --redis; no other user is changed"
                    .into()
            }
        };
    }

    fn fleet(&self) -> Result<Finding, (&'static str, StoreError)> {
        let epoch = self.store.epoch(self.patience()).map_err(|error| ("fleet", error))?;
        let clock = self.store.clock(self.patience()).map_err(|error| ("fleet", error))?;
        Ok(fleet::agreement(self.config, epoch, clock.server_us / 1_000))
    }

    fn drift(&self, watch: Duration) -> Asked<Vec<Reading>> {
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

fn judged(rights: &Rights) -> Finding {
    let check = "rights";
    let n = rights.n_checked;
    let how = match rights.by_dry_run {
        true => "by asking what the server would say",
        false => "by trying, on a key of its own that expires",
    };
    if rights.missing.is_empty() {
        return Finding::ok(check, format!("all that is needed: {n} checked {how}"));
    }
    // Which command, a right for one says itself.
    let named = |it: &Missing| match it.right.starts_with('+') {
        true if it.is_unknown => format!("{} (unknown there)", it.right),
        true => it.right.clone(),
        false => format!("{} (denied: {})", it.right, it.shown_by),
    };
    let all_of = |need: Need| {
        let these = rights.missing.iter().filter(|it| it.need == need);
        these.map(named).collect::<Vec<_>>().join(", ")
    };
    let mut found = Vec::new();
    for (need, what) in [
        (Need::Run, "run does not work without"),
        (Need::Roles, "lead, once and run --lead do not work without"),
        (Need::Words, "hand-overs take seconds, and results are not announced, without"),
        (Need::Pushes, "changes are noticed later without"),
        (Need::Rounds, "every call takes a second round, and the whole script, without"),
        (Need::Effort, "leases cost the server more without"),
        (Need::History, "history has nothing to show without"),
        (Need::Showing, "status, top and history do not work with this user without"),
    ] {
        let names = all_of(need);
        if !names.is_empty() {
            found.push(format!("{what} {names}"));
        }
    }
    if rights.only_looks() {
        return Finding::fail(
            check,
            "this user may only look (status, top, explain, plan, watch, history): run does not work",
            "nothing, if it is meant for people who look; the daemon needs a user of its own, see below",
        );
    }
    let found = found.join("; ");
    let needed = rights.missing.iter().any(|it| it.need == Need::Run);
    let way_out = match rights.missing.iter().all(|it| it.is_unknown) {
        true => {
            "no rule can give what a server does not know: look at its rename-command, or live with it"
        }
        false => "paste the rule below",
    };
    if needed { Finding::fail(check, found, way_out) } else { Finding::warn(check, found, way_out) }
}

/// What the user lacks of the rights that an instance needs, for whoever was just denied one: the server's
/// own words seldom say which. Empty when nothing is found.
pub fn lacking(config: &Config) -> String {
    let store = RedisStore::of_polls(config);
    let patience = config.store_timeout;
    let tells_reading = store.info(patience).map_or(true, |it| server::major(&it) >= 7);
    let rule = rule(config, tells_reading);
    let Ok(rights) = store.rights(&rule, store.user(), patience) else { return String::new() };
    let names: Vec<&str> = rights.missing.iter().map(|it| it.right.as_str()).collect();
    if names.is_empty() { String::new() } else { format!("; it lacks {}", names.join(", ")) }
}

/// For people, fine enough for a network.
pub fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

//! Which metrics does this process expose? What was counted, and what can be read right now.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::Config;
use crate::lease::table::OwnershipTable;
use crate::metrics::text::{Kind, Text};
use crate::metrics::{bit, float, seconds};
use crate::model::{FenceToken, Role};
use crate::polling::verdicts::{Verdicts, is_failing};
use crate::store::Failures;
use crate::thread;
use crate::thread::liveness::Liveness;

/// The term a role is led under by this process, if it is.
type Term = Box<dyn Fn() -> Option<FenceToken> + Send>;

/// The sources of the metrics.
pub struct Exposition {
    /// The label `daemon`.
    name: String,
    instance: Option<Instance>,
    roles: Mutex<Vec<(Role, Term)>>,
}

struct Instance {
    table: Arc<OwnershipTable>,
    liveness: Arc<Liveness>,
    failures: Arc<Failures>,
    verdicts: Arc<Verdicts>,
    workers: usize,
    /// Endpoints that may have series of their own.
    endpoints_max: usize,
}

impl Exposition {
    /// That of a process that polls nothing. `name` tells it apart from the others of this host.
    pub fn of_roles(name: String) -> Self {
        Self { name, instance: None, roles: Mutex::default() }
    }

    /// That of an instance that polls.
    pub fn of_instance(
        config: &Config,
        table: &Arc<OwnershipTable>,
        liveness: &Arc<Liveness>,
        failures: &Arc<Failures>,
        verdicts: &Arc<Verdicts>,
    ) -> Self {
        let (table, liveness) = (Arc::clone(table), Arc::clone(liveness));
        let (failures, verdicts) = (Arc::clone(failures), Arc::clone(verdicts));
        let (workers, endpoints_max) = (config.workers, config.metrics_endpoints);
        let instance = Instance { table, liveness, failures, verdicts, workers, endpoints_max };
        Self { name: config.metrics_name(), instance: Some(instance), roles: Mutex::default() }
    }

    /// Shows this role from now on.
    pub fn add_role(&self, role: Role, term: impl Fn() -> Option<FenceToken> + Send + 'static) {
        self.roles.lock().push((role, Box::new(term)));
    }

    /// The whole document, as of now.
    pub fn text(&self) -> String {
        let mut text = Text::with_label("daemon", self.name.clone());
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "The version that runs; always 1.";
        text.family("leasehold_build_info", Kind::Gauge, help).sample("", &version, 1.0);
        let help = "Threads of this process that are alive.";
        text.gauge("leasehold_threads", help, float(thread::alive() as u64));
        if let Some(instance) = &self.instance {
            instance.write(&mut text);
        }
        self.write_roles(&mut text);
        let help =
            "When this was written, by the wall clock: older than a minute, it is no longer true.";
        text.gauge("leasehold_last_write_timestamp_seconds", help, wall_seconds());
        text.into_string()
    }

    fn write_roles(&self, text: &mut Text) {
        let roles = self.roles.lock();
        if roles.is_empty() {
            return;
        }
        let terms: Vec<_> = roles.iter().map(|(role, term)| (role.to_string(), term())).collect();
        let mut family = text.family(
            "leasehold_role_leader",
            Kind::Gauge,
            "1 while this process leads the role.",
        );
        for (role, term) in &terms {
            family.sample("", &[("role", role)], bit(term.is_some()));
        }
        let help = "The term the role is led under by this process; 0 while it is not.";
        let mut family = text.family("leasehold_role_term", Kind::Gauge, help);
        for (role, term) in &terms {
            family.sample("", &[("role", role)], float(term.map_or(0, |it| it.0)));
        }
    }
}

impl Instance {
    fn write(&self, text: &mut Text) {
        let table = &self.table;
        table.metrics().write(text);
        let tally = table.tally();
        let count = |it: usize| float(it as u64);
        let mut gauge = |name: &str, help: &str, value: f64| text.gauge(name, help, value);
        gauge(
            "leasehold_ready",
            "1 when the first read pass is done.",
            bit(self.liveness.is_ready()),
        );
        gauge("leasehold_leases_owned", "Leases held, in whatever standing.", count(tally.held));
        let help = "Leases held whose last renewal was not answered; their endpoints pause.";
        gauge("leasehold_leases_uncertain", help, count(tally.uncertain));
        let help = "Leases held that are being handed over or released.";
        gauge("leasehold_leases_draining", help, count(tally.draining));
        gauge("leasehold_workers", "Polls that can run at a time.", count(self.workers));
        let help = "1 while the heartbeat has been confirmed in time.";
        gauge("leasehold_heartbeat_valid", help, bit(table.is_beating()));
        let hold_off = table.hold_off().map_or(0.0, seconds);
        gauge("leasehold_hold_off_seconds", "How long the store still grants nothing.", hold_off);
        let help =
            "Seconds since the thread last moved. The watchdog of systemd looks at the same.";
        let mut family = text.family("leasehold_thread_still_seconds", Kind::Gauge, help);
        for (thread, still) in self.liveness.still(table.now()) {
            family.sample("", &[("thread", &thread.to_string())], seconds(still));
        }
        let help = "Failed requests to the store, by kind.";
        let mut family = text.family("leasehold_store_errors_total", Kind::Counter, help);
        for (fault, n) in self.failures.counts() {
            family.sample("", &[("fault", fault)], float(n));
        }
        self.write_endpoints(text);
    }

    fn write_endpoints(&self, text: &mut Text) {
        let mut survey = self.verdicts.survey(&self.table);
        let count = |it: usize| float(it as u64);
        let help = "Endpoints owned and polled here whose verdict is failing.";
        text.gauge("leasehold_endpoints_failing", help, count(survey.failing));
        let help = "Endpoints owned and polled here without a result for three intervals.";
        text.gauge("leasehold_endpoints_late", help, count(survey.late));
        let help =
            "For how long the endpoint has been failing that has been so longest; 0 if none is.";
        text.gauge("leasehold_endpoints_failing_oldest_seconds", help, seconds(survey.failing_for));
        survey.endpoints.truncate(self.endpoints_max);
        if survey.endpoints.is_empty() {
            return;
        }
        let help = "1 while the verdict of the endpoint is failing; with --metrics-endpoints.";
        let mut family = text.family("leasehold_endpoint_failing", Kind::Gauge, help);
        for (endpoint, state) in &survey.endpoints {
            family.sample("", &[("endpoint", endpoint.as_str())], bit(is_failing(state)));
        }
        let help = "Since when the verdict holds, by the clock of Redis; with --metrics-endpoints.";
        let name = "leasehold_endpoint_verdict_timestamp_seconds";
        let mut family = text.family(name, Kind::Gauge, help);
        for (endpoint, state) in &survey.endpoints {
            let since = seconds(Duration::from_millis(state.since_ms));
            family.sample("", &[("endpoint", endpoint.as_str())], since);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "for people, and for Prometheus, who compares it")]
fn wall_seconds() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    seconds(since.unwrap_or_default())
}

//! What does a SIGHUP change? Reads the settings again, applies the new ones, and names those that need a restart.
//!
//! All or nothing: a file with anything wrong in it changes nothing.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{CheckedConfig, Config};
use crate::model::Session;
use crate::polling::targets::Targets;
use crate::{PollPermit, Poller, Revoked, Sample};
use parking_lot::RwLock;

use crate::cli::args::{Command, Env, parse, settings_files};
use crate::cli::service_file::parse_with_service_file;
use crate::cli::settings::Settings;
use crate::cli::task::Instance;
use crate::cli::usage::UsageError;

/// Where the settings of `run` came from, to read them once more.
pub(crate) struct Sources {
    args: Vec<OsString>,
    /// As the file was at the start.
    first: Settings,
}

/// What is new.
pub(crate) struct News {
    /// The settings to go on with.
    pub(crate) config: CheckedConfig,
    pub(crate) targets: Targets,
    /// The options that are in force from now on.
    pub(crate) changed: String,
    /// The options that differ, and cannot change while we run.
    pub(crate) waiting: String,
}

/// Understands `args`, with the settings file that they or the environment name.
pub(crate) fn parse_with_settings(args: &[OsString], env: Env<'_>) -> Result<Command, UsageError> {
    let files = settings_files(args, env)?;
    if files.is_empty() {
        return parse_with_service_file(args, env);
    }
    let settings = Settings::read_all(&files).map_err(UsageError::Settings)?;
    // A file does not name another.
    let value = |name: &str| settings.value(name).filter(|_| name != "LEASEHOLD_SETTINGS");
    parse(args, &|name| value(name).or_else(|| env(name)))
}

impl Sources {
    /// Of a process with these arguments, which has just been started with `config`.
    pub(crate) fn new(args: Vec<OsString>, config: &Config) -> Result<Self, String> {
        let first = Settings::read_all(&config.settings).map_err(|it| it.to_string())?;
        Ok(Self { args, first })
    }

    /// Reads everything again. What `current` is in force stays so wherever it cannot change.
    pub(crate) fn read(&self, current: &Config, env: Env<'_>) -> Result<News, String> {
        if current.settings.is_empty() {
            return Err("there are no --settings FILES to read again".into());
        }
        let file = Settings::read_all(&current.settings).map_err(|it| it.to_string())?;
        // What the file named at the start is the file's: a unit hands the same file over as its
        // environment, which does not change, and a line that was taken out must not live on there.
        let still = |name: &str| (!self.first.has(name)).then(|| env(name)).flatten();
        let command = parse(&self.args, &|name| file.value(name).or_else(|| still(name)));
        let command = command.and_then(Command::with_files_checked);
        match command.map_err(|it| it.to_string())? {
            Command::Instance(new, Instance::Run { .. }) => news(current, &new),
            _ => Err("the command line is no longer one of run".into()),
        }
    }
}

fn news(old: &Config, new: &Config) -> Result<News, String> {
    let targets = Targets::parse(&new.allow_targets, &new.deny_targets)
        .map_err(|error| format!("--allow-targets, --deny-targets: {error}"))?;
    let config = Config {
        log_level: new.log_level,
        interval: new.interval,
        timeout: new.timeout,
        light_after: new.light_after,
        light_interval: new.light_interval,
        thresholds: new.thresholds,
        workers: new.workers,
        weight: new.weight,
        allow_targets: new.allow_targets.clone(),
        deny_targets: new.deny_targets.clone(),
        max_body: new.max_body,
        poll_access: new.poll_access.clone(),
        ..old.clone()
    };
    let (changed, waiting) = (differing(old, &config), differing(&config, new));
    let config = config.checked().map_err(|error| error.to_string())?;
    Ok(News { config, targets, changed, waiting })
}

/// The options in which the two differ.
fn differing(a: &Config, b: &Config) -> String {
    let differ = [
        ("--redis", a.redis != b.redis),
        ("--redis-password-file", a.access.password != b.access.password),
        ("--redis-ca", a.access.ca != b.access.ca),
        ("--redis-cert", a.access.cert != b.access.cert),
        ("--redis-key", a.access.key != b.access.key),
        ("--prefix", a.prefix != b.prefix),
        ("--session-prefix", a.session_prefix != b.session_prefix),
        ("--lease-ttl", a.lease_ttl != b.lease_ttl),
        ("--renew-interval", a.renew_interval != b.renew_interval),
        ("--heartbeat-ttl", a.heartbeat_ttl != b.heartbeat_ttl),
        ("--heartbeat-interval", a.heartbeat_interval != b.heartbeat_interval),
        ("--suspect-after", a.suspect_after != b.suspect_after),
        ("--reconcile-interval", a.reconcile_interval != b.reconcile_interval),
        ("--store-timeout", a.store_timeout != b.store_timeout),
        ("--workers", a.workers != b.workers),
        ("--interval", a.interval != b.interval),
        ("--timeout", a.timeout != b.timeout),
        ("--light-after", a.light_after != b.light_after),
        ("--light-interval", a.light_interval != b.light_interval),
        ("--fail-after", a.thresholds.fail_after != b.thresholds.fail_after),
        ("--ok-after", a.thresholds.ok_after != b.thresholds.ok_after),
        ("--poll-command", a.poll_command != b.poll_command),
        ("--on-change", a.on_change.command != b.on_change.command),
        ("--on-change-timeout", a.on_change.timeout != b.on_change.timeout),
        ("--on-change-retries", a.on_change.retries != b.on_change.retries),
        ("--allow-targets", a.allow_targets != b.allow_targets),
        ("--deny-targets", a.deny_targets != b.deny_targets),
        ("--max-body", a.max_body != b.max_body),
        ("--poll-ca", a.poll_access.ca != b.poll_access.ca),
        ("--secrets-dir", a.poll_access.secrets_dir != b.poll_access.secrets_dir),
        ("--allow-tls-insecure", a.poll_access.allow_insecure != b.poll_access.allow_insecure),
        ("--cert-warn-days", a.poll_access.cert_warn_days != b.poll_access.cert_warn_days),
        ("--weight", a.weight != b.weight),
        ("--host-name", a.host_name != b.host_name),
        ("--drain-timeout", a.drain_timeout != b.drain_timeout),
        ("--leader-prefix", a.leader_prefix != b.leader_prefix),
        ("--election-interval", a.election_interval != b.election_interval),
        ("--startup-jitter", a.startup_jitter != b.startup_jitter),
        ("--priority", a.priority != b.priority),
        ("--no-candidate", a.no_candidate != b.no_candidate),
        ("--lead", a.lead != b.lead),
        ("--new-fleet", a.new_fleet != b.new_fleet),
        ("--min-replicas", a.min_replicas != b.min_replicas),
        ("--runtime-dir", a.runtime_dir != b.runtime_dir),
        ("--metrics-file", a.metrics_file != b.metrics_file),
        ("--metrics-name", a.metrics_name != b.metrics_name),
        ("--metrics-listen", a.metrics_listen != b.metrics_listen),
        ("--metrics-hosts", a.metrics_hosts != b.metrics_hosts),
        ("--metrics-endpoints", a.metrics_endpoints != b.metrics_endpoints),
        ("--web-listen", a.web_listen != b.web_listen),
        ("--web-hosts", a.web_hosts != b.web_hosts),
        ("--web-remote", a.web_remote != b.web_remote),
        ("--log-level", a.log_level != b.log_level),
        ("--log-renewals", a.log_renewals != b.log_renewals),
    ];
    let names: Vec<&str> = differ.into_iter().filter(|it| it.1).map(|it| it.0).collect();
    names.join(" ")
}

/// A poller that can be replaced. A poll that runs ends as it began.
pub(crate) struct Replaceable(RwLock<Arc<dyn Poller>>);

impl Replaceable {
    pub(crate) fn new(poller: Arc<dyn Poller>) -> Self {
        Self(RwLock::new(poller))
    }

    pub(crate) fn replace(&self, poller: Arc<dyn Poller>) {
        *self.0.write() = poller;
    }
}

impl Poller for Replaceable {
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let poller = Arc::clone(&self.0.read());
        poller.poll(session, permit, timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::cli::options::{Draft, options};

    /// Something that is not the default.
    fn other(name: &str) -> &'static str {
        match name {
            "redis" => "redis://10.0.0.1:6379/3",
            "log-level" => "trace",
            "log-renewals" => "each",
            "new-fleet" | "no-candidate" | "allow-tls-insecure" | "web-remote" => "on",
            "light-after" | "workers" | "max-body" | "weight" | "priority" | "min-replicas"
            | "cert-warn-days" | "metrics-endpoints" | "fail-after" | "ok-after"
            | "on-change-retries" => "7",
            it if it.ends_with("interval")
                || it.ends_with("ttl")
                || it.ends_with("timeout")
                || it.ends_with("after")
                || it.ends_with("jitter") =>
            {
                "7s"
            }
            "allow-targets" | "deny-targets" => "10.0.0.0/8",
            "metrics-listen" | "web-listen" => "127.0.0.1:9464",
            _ => "other",
        }
    }

    #[test]
    fn every_option_of_run_is_either_reloaded_or_named_as_one_that_needs_a_restart() {
        let reloaded = [
            "workers",
            "interval",
            "timeout",
            "light-after",
            "light-interval",
            "allow-targets",
            "deny-targets",
            "max-body",
            "poll-ca",
            "secrets-dir",
            "allow-tls-insecure",
            "cert-warn-days",
            "weight",
            "fail-after",
            "ok-after",
            "log-level",
        ];
        for opt in options().filter(|it| it.commands.contains(&"run")) {
            if opt.name == "settings" {
                continue;
            }
            let mut draft = Draft::default();
            (opt.set)(&mut draft, OsStr::new(other(opt.name))).unwrap();
            let old = Config::default();
            let new = draft.config;
            assert_ne!(old, new, "--{}", opt.name);
            let news = news(&old, &new).unwrap();
            let name = format!("--{}", opt.name);
            let wanted = if reloaded.contains(&opt.name) { (&*name, "") } else { ("", &*name) };
            assert_eq!((&*news.changed, &*news.waiting), wanted, "{name}");
        }
    }
}

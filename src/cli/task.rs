//! What is one command to do? The options and words of its line, checked and put together.

mod audit;
mod sessions;
mod status;

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::agent::AgentSettings;
use crate::cli::agent;
use crate::cli::args::{Env, Typed};
use crate::cli::config_warnings::about_heartbeat;
use crate::cli::dev::{self, DevSettings};
use crate::cli::options::{Draft, NAMES, Spec};
use crate::cli::task::audit::audit;
pub(crate) use crate::cli::task::audit::{AuditHow, AuditOutput, AuditWhat};
use crate::cli::task::sessions::sessions;
pub(crate) use crate::cli::task::sessions::{Fields, SessionsVerb, VERBS};
use crate::cli::task::status::status;
pub(crate) use crate::cli::task::status::{Check, Output, StatusHow, Which};
use crate::cli::usage::UsageError;
use crate::config::setting::Setting;
use crate::config::{CheckedConfig, Config, LogLevel, Topology};
use crate::model::{EndpointId, Role};
use crate::store::admin::acl::Purpose;

/// As what to join the other instances.
#[derive(Debug)]
pub(crate) enum Instance {
    /// With what is odd about its settings.
    Run {
        warning: Option<String>,
    },
    Lead(SupervisedRun),
    Once {
        wrap: SupervisedRun,
        how: OnceHow,
    },
    Agent(AgentSettings),
}

/// What to ask of a store, or to change in it.
#[derive(Debug)]
pub(crate) enum Task {
    Status(StatusHow),
    Release(ReleaseWhat),
    Sessions { verb: SessionsVerb, json: bool },
    Drain(Drain),
    Plan { join: usize, leave: Vec<String>, json: bool },
    Get { endpoint: EndpointId, body: bool, json: bool },
    Explain { endpoint: EndpointId, json: bool },
    Top { how: StatusHow, refresh: Duration },
    Web(StatusHow),
    Watch { endpoint: Option<EndpointId>, json: bool },
    Audit(AuditHow),
    History { endpoint: Option<EndpointId>, role: Option<Role>, limit: usize, json: bool },
    Doctor { purpose: Purpose, watch: Duration, json: bool },
    Names { of: String, beginning: String },
    Leaders { json: bool },
    Resign(Role),
}

impl Instance {
    /// What the Redis user of this command is for: which rule has the rights that it needs.
    pub(crate) fn purpose(&self) -> Purpose {
        match self {
            Self::Run { .. } | Self::Agent(_) => Purpose::Daemon,
            Self::Lead(_) | Self::Once { .. } => Purpose::Elector,
        }
    }
}

impl Task {
    /// What the Redis user of this command is for: which rule has the rights that it needs.
    pub(crate) fn purpose(&self) -> Purpose {
        match self {
            Self::Release(ReleaseWhat::RuntimeDir(_)) => Purpose::Daemon,
            Self::Doctor { purpose, .. } => *purpose,
            Self::Status(_)
            | Self::Plan { .. }
            | Self::Get { .. }
            | Self::Explain { .. }
            | Self::Top { .. }
            | Self::Web(_)
            | Self::Watch { .. }
            | Self::Audit(_)
            | Self::History { .. }
            | Self::Names { .. }
            | Self::Leaders { .. }
            | Self::Sessions { verb: SessionsVerb::List | SessionsVerb::Export, .. } => {
                Purpose::Onlooker
            }
            Self::Sessions { .. }
            | Self::Drain(_)
            | Self::Resign(_)
            | Self::Release(ReleaseWhat::Instance { .. }) => Purpose::Operator,
        }
    }
}

/// A command to run as a leader.
#[derive(Debug)]
pub(crate) struct SupervisedRun {
    pub(crate) role: Role,
    pub(crate) program: Vec<String>,
    pub(crate) restart: bool,
    /// Other hosts decide by the record whether they run it: without one it must not run.
    pub(crate) must_be_recorded: bool,
}

/// When `once` runs its command, and for how long it keeps the role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnceHow {
    pub(crate) at_least_for: Duration,
    pub(crate) skip_code: u8,
    /// How many further hosts may try when one has failed or died.
    pub(crate) retry: usize,
    /// Run it only if its last success is older than this.
    pub(crate) catch_up: Option<Duration>,
}

/// Whose leases to give back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReleaseWhat {
    Instance { id: String, force: bool },
    RuntimeDir(PathBuf),
}

/// Whom to take work off, or to let work again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    pub(crate) name: String,
    pub(crate) off: bool,
    pub(crate) force: bool,
    /// The name is meant, although nobody has it.
    pub(crate) absent: bool,
    pub(crate) wait: Duration,
}

/// Several times the light interval, at which endpoints that fail are polled.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(120);

/// Where `web` shows its page.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);
/// How often `top` looks.
const REFRESH: Duration = Duration::from_secs(1);
/// How many events `history` lists: a screenful.
const LIMIT: usize = 50;
/// How long `doctor` watches the server's clock.
const WATCH_FOR: Duration = Duration::from_secs(2);

/// The task of `command`, and the settings it needs.
pub(crate) fn of(
    command: &'static Spec,
    mut draft: Draft,
    typed: &Typed,
    env: Env<'_>,
) -> Result<(Config, Task), UsageError> {
    match command.name {
        "status" => {
            let (config, how) = status(draft)?;
            Ok((config, Task::Status(how)))
        }
        "top" => {
            let refresh = draft.refresh.unwrap_or(REFRESH);
            let (config, how) = status(draft)?;
            Ok((config, Task::Top { how, refresh }))
        }
        "web" => {
            draft.config.web_listen = Some(draft.listen.unwrap_or(LISTEN));
            let (config, how) = status(draft)?;
            Ok((config, Task::Web(how)))
        }
        "watch" => {
            let (endpoint, json) = (endpoint(typed)?, draft.json);
            Ok((reader(draft)?, Task::Watch { endpoint, json }))
        }
        "audit" => {
            let (config, how) = audit(draft)?;
            Ok((config, Task::Audit(how)))
        }
        "history" => {
            let (endpoint, json) = (endpoint(typed)?, draft.json);
            let role = draft.role.as_deref().map(Role::parse).transpose();
            let role = role.map_err(|why| UsageError::Role { why })?;
            if endpoint.is_some() && role.is_some() {
                return Err(UsageError::EndpointAndRole);
            }
            let limit = draft.limit.unwrap_or(LIMIT);
            Ok((reader(draft)?, Task::History { endpoint, role, limit, json }))
        }
        "release" => release(draft, typed, env),
        "sessions" => {
            let (verb, json) = (sessions(command, &draft, typed)?, draft.json);
            Ok((reader(draft)?.checked_reading()?, Task::Sessions { verb, json }))
        }
        "drain" | "undrain" => drain(command, draft, typed),
        "plan" => {
            let (join, leave, json) = (draft.join, std::mem::take(&mut draft.leave), draft.json);
            Ok((reader(draft)?.checked_reading()?, Task::Plan { join, leave, json }))
        }
        "get" | "explain" => {
            let endpoint = endpoint(typed)?.ok_or(UsageError::NoId { command })?;
            let (body, json) = (draft.body, draft.json);
            let task = match command.name {
                "get" => Task::Get { endpoint, body, json },
                _ => Task::Explain { endpoint, json },
            };
            Ok((reader(draft)?.checked_reading()?, task))
        }
        NAMES => {
            let mut words = typed.words.iter().cloned();
            let of = words.next().ok_or(UsageError::Hidden { command })?;
            let beginning = words.next().unwrap_or_default();
            Ok((reader(draft)?, Task::Names { of, beginning }))
        }
        "leaders" => {
            let json = draft.json;
            Ok((reader(draft)?, Task::Leaders { json }))
        }
        "resign" => {
            let role = role(command, typed)?;
            Ok((reader(draft)?, Task::Resign(role)))
        }
        _ => doctor(draft, env),
    }
}

/// The instance that `command` starts ([`Spec::starts`]), and its settings.
pub(crate) fn instance(
    command: &'static Spec,
    mut draft: Draft,
    typed: &Typed,
    env: Env<'_>,
) -> Result<(CheckedConfig, Instance), UsageError> {
    match command.name {
        "lead" => {
            let dir = draft.config.runtime_dir.take().or_else(|| systemd_runtime_dir(env));
            draft.config.runtime_dir = dir;
            let (config, wrap) = wrap(command, draft, typed)?;
            Ok((config, Instance::Lead(wrap)))
        }
        "once" => {
            if !draft.given.contains(Setting::LogLevel) {
                draft.config.log_level = LogLevel::Warn;
            }
            let Draft { at_least_for, skip_code, retry, catch_up, .. } = draft;
            let how = OnceHow { at_least_for, skip_code, retry, catch_up };
            let (config, mut wrap) = wrap(command, draft, typed)?;
            wrap.must_be_recorded = retry > 0 || catch_up.is_some();
            Ok((config, Instance::Once { wrap, how }))
        }
        "agent" => agent::of(command, draft),
        _ => run(draft, env),
    }
}

fn run(draft: Draft, env: Env<'_>) -> Result<(CheckedConfig, Instance), UsageError> {
    let Draft { mut config, given, .. } = draft;
    if !given.contains(Setting::StoreTimeout) {
        config.store_timeout = Config::usual_store_timeout(config.lease_ttl, config.heartbeat_ttl);
    }
    config.runtime_dir = config.runtime_dir.or_else(|| systemd_runtime_dir(env));
    // Nobody is told of a default that follows.
    let warning = about_heartbeat(config.heartbeat_ttl, config.lease_ttl);
    let warning = warning.filter(|_| given.contains(Setting::HeartbeatTtl));
    Ok((config.checked()?, Instance::Run { warning }))
}

/// What `dev` starts. On the user's own Redis under prefixes that no fleet in service has.
pub(crate) fn dev(draft: Draft) -> Result<DevSettings, UsageError> {
    let Draft { mut config, redis_url, instances, sessions, data, .. } = draft;
    let instances = instances.unwrap_or(dev::INSTANCES);
    if instances > dev::INSTANCES_MAX {
        return Err(UsageError::DevInstances { most: dev::INSTANCES_MAX });
    }
    if redis_url.is_some() {
        config.prefix = dev::PREFIX.into();
        config.session_prefix = format!("{}:session:", dev::PREFIX);
        config.leader_prefix = dev::LEADER_PREFIX.into();
    }
    if config.redis.topology() == Topology::Cluster {
        return Err(UsageError::DevCluster);
    }
    let config = config.checked_reading()?;
    Ok(DevSettings { config, own_redis: redis_url, data, sessions, instances })
}

/// With the settings that `run` would have, as far as they matter here.
fn doctor(draft: Draft, env: Env<'_>) -> Result<(Config, Task), UsageError> {
    let Draft { mut config, given, json, watch_for, purpose, .. } = draft;
    if !given.contains(Setting::StoreTimeout) {
        config.store_timeout = Config::usual_store_timeout(config.lease_ttl, config.heartbeat_ttl);
    }
    config.runtime_dir = config.runtime_dir.or_else(|| systemd_runtime_dir(env));
    let watch = watch_for.unwrap_or(WATCH_FOR);
    let purpose = purpose.unwrap_or(Purpose::Daemon);
    Ok((config.checked_reading()?, Task::Doctor { purpose, watch, json }))
}

fn role(command: &'static Spec, typed: &Typed) -> Result<Role, UsageError> {
    let role = typed.words.first().ok_or(UsageError::NoRole { command })?;
    Role::parse(role).map_err(|why| UsageError::Role { why })
}

fn wrap(
    command: &'static Spec,
    draft: Draft,
    typed: &Typed,
) -> Result<(CheckedConfig, SupervisedRun), UsageError> {
    let role = role(command, typed)?;
    let program: Option<Vec<String>> =
        typed.rest.iter().map(|it| it.to_str().map(String::from)).collect();
    let program = program.ok_or(UsageError::ProgramText)?;
    if program.is_empty() {
        return Err(UsageError::NoProgram { command });
    }
    let Draft { mut config, given, restart, .. } = draft;
    if !given.contains(Setting::RenewInterval) {
        config.renew_interval = config.lease_ttl / 3;
    }
    if !given.contains(Setting::StoreTimeout) {
        config.store_timeout = Config::usual_store_timeout(config.lease_ttl, config.lease_ttl);
    }
    Ok((config.checked()?, SupervisedRun { role, program, restart, must_be_recorded: false }))
}

/// The settings of a command that only looks or says something.
fn reader(draft: Draft) -> Result<Config, UsageError> {
    Ok(draft.config.checked_store()?)
}

/// The endpoint, where one is named.
fn endpoint(typed: &Typed) -> Result<Option<EndpointId>, UsageError> {
    let word = typed.words.first();
    word.map(|it| EndpointId::parse(it).map_err(|why| UsageError::Id { why })).transpose()
}

fn release(draft: Draft, typed: &Typed, env: Env<'_>) -> Result<(Config, Task), UsageError> {
    let Draft { config, instance, force, .. } = draft;
    let typed_instance = typed.value_of("instance").is_some();
    let typed_dir = typed.value_of("runtime-dir").is_some();
    let what = match (instance, config.runtime_dir.clone()) {
        // Of one on the command line and one in the environment, the first wins; of two alike, none.
        (Some(_), Some(_)) if typed_instance == typed_dir => return Err(UsageError::ReleaseBoth),
        (Some(id), Some(_)) if typed_instance => ReleaseWhat::Instance { id, force },
        (_, Some(dir)) => ReleaseWhat::RuntimeDir(dir),
        (Some(id), None) => ReleaseWhat::Instance { id, force },
        (None, None) => match systemd_runtime_dir(env) {
            Some(dir) => ReleaseWhat::RuntimeDir(dir),
            None => return Err(UsageError::ReleaseNothing),
        },
    };
    match &what {
        ReleaseWhat::Instance { id, .. } if !is_instance_id(id) => Err(UsageError::InstanceId),
        ReleaseWhat::RuntimeDir(_) if force => Err(UsageError::ForceWithoutInstance),
        _ => Ok((config.checked_store()?, Task::Release(what))),
    }
}

fn is_instance_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 256 && !id.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// systemd lists several directories with colons; the instance's own is the first.
fn systemd_runtime_dir(env: Env<'_>) -> Option<PathBuf> {
    let list = env("RUNTIME_DIRECTORY")?;
    let first = list.as_bytes().split(|c| *c == b':').next().filter(|it| !it.is_empty())?;
    Some(OsStr::from_bytes(first).into())
}

fn drain(
    command: &'static Spec,
    draft: Draft,
    typed: &Typed,
) -> Result<(Config, Task), UsageError> {
    let name = typed.words.first().filter(|it| is_instance_id(it));
    let name = name.ok_or(UsageError::NoInstance { command })?.clone();
    let off = command.name == "undrain";
    let what = Drain { name, off, force: draft.force, absent: draft.absent, wait: draft.wait };
    Ok((reader(draft)?.checked_reading()?, Task::Drain(what)))
}

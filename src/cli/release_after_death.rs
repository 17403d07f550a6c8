//! How is the role of a killed `lead` or `once` given back? Its supervisor releases it, with the connection of `leasehold` (R12).
//!
//! `leasehold` hands its supervisor a [`RoleRelease`] before the command starts, over the pipe of orders: a password in it must
//! stand neither on a command line nor in an environment. The supervisor carries it out once `leasehold` is dead and the
//! command's process group is gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::{Access, Config, Login, RedisUrl};
use crate::model::{EndpointId, FenceToken, InstanceId, Tenure};
use crate::store::Fault;
use crate::store::redis::RedisStore;
use crate::supervise::supervisor::LeaseholdDeath;
use crate::thread::stop;

/// The pause after a release that Redis did not answer.
const RETRY: Duration = Duration::from_millis(200);

/// How long `once --at-least-for` keeps a role of which nothing runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    until: Moment,
    /// `once --retry`: after a failure another host is to run the command, and soon.
    is_waived_by_failure: bool,
}

impl Keep {
    /// `lead` gives its role back as soon as nothing runs.
    pub(crate) const NOTHING: Self = Self { until: Moment::MIN, is_waived_by_failure: false };

    pub(crate) fn until(until: Moment, is_waived_by_failure: bool) -> Self {
        Self { until, is_waived_by_failure }
    }

    /// When the role may be given back, after a run that did or did not succeed.
    pub(crate) fn end(self, succeeded: bool) -> Moment {
        if self.is_waived_by_failure && !succeeded { Moment::MIN } else { self.until }
    }
}

/// One role to release, and how to reach the store that has it.
pub(crate) struct RoleRelease {
    /// Only the settings of the connection and the names of the keys.
    config: Config,
    leader: InstanceId,
    /// The term under which the command runs: a later one is not to be touched.
    tenure: Tenure,
    keep: Keep,
}

impl RoleRelease {
    pub(crate) fn new(config: &Config, leader: &InstanceId, tenure: Tenure, keep: Keep) -> Self {
        Self { config: config.clone(), leader: leader.clone(), tenure, keep }
    }

    /// One line for the supervisor; `None` if a path of the settings is no text.
    pub(crate) fn encode(&self) -> Option<String> {
        let Config { redis, access, leader_prefix, store_timeout, .. } = &self.config;
        let Login { user, password } = redis.login();
        let path = |it: &Option<PathBuf>| match it.as_deref().map(Path::to_str) {
            Some(None) => None,
            path => Some(path.flatten().map(str::to_owned)),
        };
        let document = json!({
            "redis": redis.to_string(),
            "user": user,
            "password": password,
            "passwordFile": path(&access.password)?,
            "ca": path(&access.ca)?,
            "cert": path(&access.cert)?,
            "key": path(&access.key)?,
            "prefix": leader_prefix,
            "heartbeatPrefix": self.config.leader_heartbeat_prefix(),
            "timeoutMs": u64::try_from(store_timeout.as_millis()).ok()?,
            "leader": self.leader.as_str(),
            "role": self.tenure.endpoint.as_str(),
            "term": self.tenure.fence.0,
            "keepUntilNs": self.keep.until.as_nanos(),
            "isWaivedByFailure": self.keep.is_waived_by_failure,
        });
        Some(document.to_string())
    }

    fn decode(line: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| document[name].as_str();
        let owned = |name: &str| text(name).map(str::to_owned);
        let path = |name: &str| text(name).map(PathBuf::from);
        let number = |name: &str| document[name].as_u64();
        let login = Login { user: owned("user"), password: owned("password") };
        let access = Access {
            password: path("passwordFile"),
            ca: path("ca"),
            cert: path("cert"),
            key: path("key"),
        };
        let config = Config {
            redis: RedisUrl::parse(text("redis")?).ok()?.with_login(login),
            access,
            leader_prefix: owned("prefix")?,
            leader_heartbeat_prefix: owned("heartbeatPrefix"),
            store_timeout: Duration::from_millis(number("timeoutMs")?),
            ..Config::default()
        };
        let role = EndpointId::parse(text("role")?).ok()?;
        Some(Self {
            config,
            leader: InstanceId::new(text("leader")?),
            tenure: Tenure::new(role, FenceToken(number("term")?)),
            keep: Keep {
                until: Moment::from_nanos(number("keepUntilNs")?),
                is_waived_by_failure: document["isWaivedByFailure"].as_bool()?,
            },
        })
    }

    /// Sends the release until Redis has answered, at most until the leader's right ends: then the role expires by itself.
    fn carry_out(&self, right_ends: Moment) {
        let (store, (_never, stop)) = (RedisStore::of_roles(&self.config), stop());
        loop {
            let left = right_ends.since(BootClock.now());
            if left.is_zero() {
                return;
            }
            let timeout = self.config.store_timeout.min(left);
            match store.release_of_dead(&self.leader, &self.tenure, timeout) {
                Err(error) if error.fault != Fault::Misconfigured => stop.within(RETRY.min(left)),
                _ => return,
            };
        }
    }
}

/// Gives the role back after the death of `leasehold`. A role that is to be kept for longer than its leader's right lasts is left
/// to expire.
pub(crate) fn perform(death: &LeaseholdDeath) {
    let Some(release) = RoleRelease::decode(&death.task) else { return };
    let may_begin = release.keep.end(death.succeeded);
    if may_begin < death.right_ends {
        let (_never, stop) = stop();
        stop.within(may_begin.since(BootClock.now()));
        release.carry_out(death.right_ends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(redis: &str) -> RoleRelease {
        let file = |name: &str| Some(PathBuf::from(name));
        let config = Config {
            redis: RedisUrl::parse(redis).unwrap(),
            access: Access {
                password: file("/run/password"),
                ca: file("/etc/ca.pem"),
                cert: file("/etc/cert.pem"),
                key: file("/etc/key.pem"),
            },
            leader_prefix: "{leader}".into(),
            leader_heartbeat_prefix: Some("{leader}:beats:".into()),
            store_timeout: Duration::from_millis(700),
            ..Config::default()
        };
        let tenure = Tenure::new(EndpointId::parse("job").unwrap(), FenceToken(9_000_000_000_000));
        let keep = Keep::until(Moment::from_nanos(u64::MAX), true);
        RoleRelease::new(&config, &InstanceId::new("a \"host\"\n-1"), tenure, keep)
    }

    #[test]
    fn the_supervisor_reaches_the_same_store_with_the_same_credentials() {
        for redis in [
            "redis://h",
            "rediss://user:hunter%402@h:1/3",
            "redis://hunter2@h/0",
            "unix:///run/redis.sock?db=2&user=u&pass=hunter2",
            "redis+sentinel://:hunter2@a:1,b:2/main/4",
            "redis+cluster://u:hunter2@a,b",
        ] {
            let told = release(redis);
            let line = told.encode().unwrap();
            assert!(!line.contains('\n'), "{line}");
            let heard = RoleRelease::decode(&line).unwrap();
            assert_eq!(heard.config, told.config, "{redis}");
            assert_eq!((&heard.leader, &heard.tenure), (&told.leader, &told.tenure));
            assert_eq!(heard.keep, told.keep);
        }
    }

    #[test]
    fn what_is_no_release_is_ignored() {
        let line = release("redis://h").encode().unwrap();
        for noise in ["", "{}", "[]", &line[1..], &line.replace("job", "no such job")] {
            assert!(RoleRelease::decode(noise).is_none(), "{noise}");
        }
    }

    #[test]
    fn a_role_is_kept_for_its_time_unless_a_failure_waives_that() {
        let later = Moment::from_nanos(7);
        assert_eq!([true, false].map(|it| Keep::NOTHING.end(it)), [Moment::MIN; 2]);
        assert_eq!([true, false].map(|it| Keep::until(later, false).end(it)), [later; 2]);
        assert_eq!([true, false].map(|it| Keep::until(later, true).end(it)), [later, Moment::MIN]);
    }
}

//! Which settings did a program choose? Those that it did not choose follow from those that it did.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::setting::{Builder, Given, Names, Setting};
use crate::config::value::ValueError;
use crate::config::{CheckedConfig, Config, ConfigError, Problem, RedisUrl};

/// The settings of a builder.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    config: Config,
    given: Given,
}

impl Chosen {
    pub(crate) fn by(builder: Builder) -> Self {
        let config = Config { names: Names::methods(builder), ..Config::default() };
        Self { config, given: Given::default() }
    }

    /// A method has chosen `setting`.
    pub(crate) fn put(&mut self, setting: Setting, put: impl FnOnce(&mut Config)) {
        put(&mut self.config);
        self.given.insert(setting);
        self.config.names.from_env.remove(setting);
    }

    pub(crate) fn put_redis(&mut self, url: &str) -> Result<(), ConfigError> {
        let url = RedisUrl::parse(url).map_err(ValueError::Redis);
        let wrong = |why| Problem::Value { setting: Setting::Redis, why };
        let mut names = self.config.names;
        names.from_env.remove(Setting::Redis);
        let url = url.map_err(|why| ConfigError::new(wrong(why), names))?;
        self.put(Setting::Redis, |it| it.redis = url);
        Ok(())
    }

    pub(crate) fn put_client_cert(&mut self, cert: PathBuf, key: PathBuf) {
        self.put(Setting::RedisCert, |it| it.access.cert = Some(cert));
        self.put(Setting::RedisKey, |it| it.access.key = Some(key));
    }

    /// Takes those of `settings` whose variable is set and not empty.
    pub(crate) fn put_env(&mut self, settings: &[Setting]) -> Result<(), ConfigError> {
        self.put_from(settings, &|name| env::var_os(name))
    }

    fn put_from(
        &mut self,
        settings: &[Setting],
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(), ConfigError> {
        for &setting in settings {
            let Some(value) = env(&setting.variable()).filter(|it| !it.is_empty()) else {
                continue;
            };
            self.given.insert(setting);
            self.config.names.from_env.insert(setting);
            let wrong = |why| Problem::Value { setting, why };
            let read = self.config.set(setting, &value);
            read.map_err(|why| ConfigError::new(wrong(why), self.config.names))?;
        }
        Ok(())
    }

    /// Checks them. What was not chosen follows from the TTL: it is renewed three times in its time.
    pub(crate) fn checked(self) -> Result<CheckedConfig, ConfigError> {
        let Self { mut config, given } = self;
        let put = |setting, field: &mut Duration, value| {
            if !given.contains(setting) {
                *field = value;
            }
        };
        let ttl = config.lease_ttl;
        put(Setting::RenewInterval, &mut config.renew_interval, ttl / 3);
        put(Setting::HeartbeatTtl, &mut config.heartbeat_ttl, ttl);
        let heartbeat_ttl = config.heartbeat_ttl;
        put(Setting::HeartbeatInterval, &mut config.heartbeat_interval, heartbeat_ttl.min(ttl) / 3);
        let usual = Config::usual_store_timeout(ttl, heartbeat_ttl);
        put(Setting::StoreTimeout, &mut config.store_timeout, usual);
        config.checked()
    }
}

/// The methods that the builders share: which Redis, how to get in, how long rights last, and what the instance is called.
macro_rules! shared_methods {
    ($error:ty, $from_env:expr) => {
        /// The server: `redis://127.0.0.1:6379/0` by default. Also `rediss://` over TLS, `unix://`, `redis+sentinel://` and
        /// `redis+cluster://`, as `docs/redis.md` says.
        pub fn redis(mut self, url: &str) -> Result<Self, $error> {
            self.chosen.put_redis(url)?;
            Ok(self)
        }

        /// A file whose one line is the password. It is read for every connection, so it can change while the program runs. The
        /// same holds for certificates.
        pub fn redis_password_file(mut self, path: impl Into<std::path::PathBuf>) -> Self {
            let path = path.into();
            self.chosen.put(Setting::RedisPasswordFile, |it| it.access.password = Some(path));
            self
        }

        /// With `rediss://`, a PEM file of certificate authorities; without it, the public authorities are trusted.
        pub fn redis_ca(mut self, path: impl Into<std::path::PathBuf>) -> Self {
            let path = path.into();
            self.chosen.put(Setting::RedisCa, |it| it.access.ca = Some(path));
            self
        }

        /// With `rediss://`, PEM files with the client certificate and its private key, for a server that asks for one.
        pub fn redis_client_cert(
            mut self,
            cert: impl Into<std::path::PathBuf>,
            key: impl Into<std::path::PathBuf>,
        ) -> Self {
            self.chosen.put_client_cert(cert.into(), key.into());
            self
        }

        /// How many replicas must acknowledge each grant and renewal before it counts: 0 by default.
        pub fn min_replicas(mut self, replicas: u32) -> Self {
            self.chosen.put(Setting::MinReplicas, |it| it.min_replicas = replicas);
            self
        }

        /// The time limit of a whole connect, and of a whole call: by default 2 s, or a tenth of the TTL if that is less.
        pub fn store_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.chosen.put(Setting::StoreTimeout, |it| it.store_timeout = timeout);
            self
        }

        /// The first part of the instance id: the host's name by default. The id is unique, whatever the name: an id that came
        /// back would be taken for the process that had it before (R7).
        pub fn host_name(mut self, name: &str) -> Self {
            self.chosen.put(Setting::HostName, |it| it.host_name = name.into());
            self
        }

        /// Declares that no other instance runs on this Redis: if Redis has no record of an earlier fleet, grants come without
        /// a hold-off.
        pub fn new_fleet(mut self) -> Self {
            self.chosen.put(Setting::NewFleet, |it| it.new_fleet = true);
            self
        }

        /// Takes what the environment says, in the variables of the command line (`LEASEHOLD_REDIS`, `LEASEHOLD_LEASE_TTL` and
        /// so on, listed in `docs/contract.md`), as far as they concern this builder. An empty variable counts as unset. A
        /// variable wins over a method called before, and a method called after wins over the variable. Files
        /// (`LEASEHOLD_SETTINGS`) are not read.
        pub fn from_env(mut self) -> Result<Self, $error> {
            self.chosen.put_env($from_env)?;
            Ok(self)
        }
    };
}

pub(crate) use shared_methods;

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen() -> Chosen {
        Chosen::by(Builder::Manager)
    }

    fn from(chosen: &mut Chosen, env: &[(&str, &str)]) -> Result<(), String> {
        let value = |name: &str| env.iter().find(|it| it.0 == name).map(|it| it.1.into());
        let settings =
            [Setting::LeaseTtl, Setting::RenewInterval, Setting::Redis, Setting::HostName];
        chosen.put_from(&settings, &value).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_not_chosen_follows_from_the_ttl() {
        let ms = Duration::from_millis;
        for ttl in [500, 3_000, 20_000, 30_000, 3_600_000].map(ms) {
            let mut chosen = chosen();
            chosen.put(Setting::LeaseTtl, |it| it.lease_ttl = ttl);
            let config = chosen.checked().unwrap();
            assert_eq!((config.renew_interval, config.heartbeat_ttl), (ttl / 3, ttl));
            assert_eq!(config.heartbeat_interval, ttl / 3);
            assert_eq!(config.store_timeout, ms(2_000).min(ttl / 10));
        }
        let mut chosen = chosen();
        chosen.put(Setting::LeaseTtl, |it| it.lease_ttl = ms(9_000));
        chosen.put(Setting::RenewInterval, |it| it.renew_interval = ms(1_000));
        chosen.put(Setting::StoreTimeout, |it| it.store_timeout = ms(700));
        let config = chosen.checked().unwrap();
        assert_eq!((config.renew_interval, config.store_timeout), (ms(1_000), ms(700)));
    }

    #[test]
    fn an_error_names_each_setting_as_it_was_chosen() {
        let mut chosen = chosen();
        from(&mut chosen, &[("LEASEHOLD_RENEW_INTERVAL", "30s"), ("LEASEHOLD_REDIS", "")]).unwrap();
        let error = chosen.clone().checked().unwrap_err().to_string();
        assert!(error.starts_with("LEASEHOLD_RENEW_INTERVAL 30s leaves no room"), "{error}");
        assert!(error.contains("within ttl 30s at store_timeout 2s"), "{error}");
        chosen.put(Setting::RenewInterval, |it| it.renew_interval = Duration::from_secs(30));
        let error = chosen.checked().unwrap_err().to_string();
        assert!(error.starts_with("renew_interval 30s leaves no room"), "{error}");
    }

    #[test]
    fn a_variable_that_cannot_be_read_is_named_and_no_secret_is_repeated() {
        let refused = |name, value| from(&mut chosen(), &[(name, value)]).unwrap_err();
        let error = refused("LEASEHOLD_LEASE_TTL", "30");
        assert!(error.starts_with("LEASEHOLD_LEASE_TTL \"30\" has no unit"), "{error}");
        let error = refused("LEASEHOLD_REDIS", "user:hunter2@h");
        assert!(error.starts_with("LEASEHOLD_REDIS does not begin with redis://"), "{error}");
        let error = chosen().put_redis("user:hunter2@h").unwrap_err().to_string();
        assert!(error.starts_with("redis does not begin with redis://"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

//! Do these settings work together? A type that only a check can build.

use std::ops::Deref;

use crate::config::{Config, ConfigError, Problem};

/// Settings that work, each alone and all together. Every start takes these, so that nothing starts on a [`Config`] that was
/// not checked.
///
/// Read the values as those of a [`Config`]. To change one, turn it back into a [`Config`] and check that again:
///
/// ```
/// # fn main() -> Result<(), leasehold::ConfigError> {
/// use leasehold::Config;
///
/// let checked = Config::default().checked()?;
/// assert_eq!(checked.prefix, "poll");
/// let mut other = Config::from(checked);
/// other.prefix = "reports".into();
/// let checked = other.checked()?;
/// assert_eq!(checked.prefix, "reports");
/// # Ok(()) }
/// ```
///
/// Nothing starts on what was not checked:
///
/// ```compile_fail
/// let _ = leasehold::LeaseManager::start(&leasehold::Config::default());
/// ```
///
/// ```compile_fail
/// let _ = leasehold::Elections::on_redis(&leasehold::Config::default());
/// ```
///
/// ```compile_fail
/// fn start(poller: std::sync::Arc<dyn leasehold::Poller>, until: &leasehold::Stop) {
///     let _ = leasehold::Daemon::start_redis(&leasehold::Config::default(), poller, until);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedConfig(Config);

impl CheckedConfig {
    /// The same without a share of the endpoints, which every weight allows.
    pub(crate) fn without_weight(&self) -> Self {
        Self(Config { weight: 0, ..self.0.clone() })
    }
}

impl Config {
    /// Refuses settings that cannot work, each alone and together.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Config;
    ///
    /// let mut config = Config::default();
    /// config.renew_interval = config.lease_ttl; // no renewal may fail
    /// assert!(config.checked().is_err());
    /// ```
    pub fn checked(self) -> Result<CheckedConfig, ConfigError> {
        let names = self.names;
        let checked = self.with_everything_checked();
        checked.map(CheckedConfig).map_err(|problem| ConfigError::new(problem, names))
    }

    fn with_everything_checked(self) -> Result<Self, Problem> {
        let config = self.with_reading_checked()?;
        config.check_ranges()?;
        config.check_suspicion()?;
        let config = config.with_heartbeat_capped();
        let config = config.with_suspicion_capped();
        config.check_rhythms()?;
        config.check_host_name()?;
        config.check_metrics()?;
        if config.poll_command.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::PollCommandEmpty);
        }
        if config.on_change.command.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::OnChangeEmpty);
        }
        Ok(config)
    }
}

impl Deref for CheckedConfig {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}

impl TryFrom<Config> for CheckedConfig {
    type Error = ConfigError;

    fn try_from(config: Config) -> Result<Self, ConfigError> {
        config.checked()
    }
}

impl From<CheckedConfig> for Config {
    fn from(checked: CheckedConfig) -> Self {
        checked.0
    }
}

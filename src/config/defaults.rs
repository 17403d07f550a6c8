//! What holds for a setting that nobody has chosen?

use std::time::Duration;

use crate::config::setting::Names;
use crate::config::{Access, Config, LogLevel, LogRenewals, OnChange, PollAccess, RedisUrl};
use crate::model::Thresholds;

impl Default for Config {
    fn default() -> Self {
        let redis = RedisUrl::parse("redis://127.0.0.1:6379/0");
        let host_name = nix::unistd::gethostname().ok().and_then(|it| it.into_string().ok());
        let (ttl, interval) = (Duration::from_secs(30), Duration::from_secs(10));
        Self {
            redis: redis.expect("the default URL is well formed"),
            access: Access::default(),
            prefix: "poll".into(),
            session_prefix: "session:".into(),
            lease_ttl: ttl,
            renew_interval: interval,
            heartbeat_ttl: ttl,
            heartbeat_interval: interval,
            suspect_after: Duration::from_secs(3),
            reconcile_interval: Duration::from_secs(10),
            store_timeout: Self::usual_store_timeout(ttl, ttl),
            workers: 256,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            light_after: 5,
            light_interval: Duration::from_secs(30),
            thresholds: Thresholds::default(),
            poll_command: None,
            on_change: OnChange::default(),
            allow_targets: "all".into(),
            deny_targets: "169.254.0.0/16,fe80::/10".into(),
            max_body: 65_536,
            poll_access: PollAccess::default(),
            weight: 1,
            host_name: host_name.filter(|it| !it.is_empty()).unwrap_or_else(|| "localhost".into()),
            drain_timeout: Duration::from_secs(10),
            leader_prefix: "leader".into(),
            leader_heartbeat_prefix: None,
            election_interval: Duration::from_secs(15),
            startup_jitter: Duration::ZERO,
            priority: 0,
            no_candidate: false,
            lead: Vec::new(),
            new_fleet: false,
            min_replicas: 0,
            runtime_dir: None,
            metrics_file: None,
            metrics_name: None,
            settings: Vec::new(),
            metrics_listen: None,
            metrics_hosts: Vec::new(),
            metrics_endpoints: 0,
            web_listen: None,
            web_hosts: Vec::new(),
            web_remote: false,
            log_level: LogLevel::Info,
            log_renewals: LogRenewals::Auto,
            names: Names::default(),
        }
    }
}

//! May this process open as many files as its polls need? Pure.

use crate::config::Config;
use crate::inspect::doctor::Finding;
use crate::net::http_server::CLIENTS_MAX;
use crate::net::shortage::{COMMAND_POLL, KEPT, NETWORK_POLL};

const CHECK: &str = "descriptors";

/// How many descriptors `run` needs when all of its workers poll.
pub fn needed(config: &Config) -> u64 {
    let each = if config.poll_command.is_some() { COMMAND_POLL } else { NETWORK_POLL };
    let servers = [config.metrics_listen, config.web_listen].iter().flatten().count();
    KEPT + each * config.workers as u64 + (servers * CLIENTS_MAX) as u64
}

/// What happens under a limit that is too low, if it is.
pub fn too_few(limit: u64, config: &Config) -> Option<String> {
    let (workers, needed) = (config.workers, needed(config));
    (limit < needed).then(|| {
        format!(
            "--workers {workers} need about {needed} open files, and the limit is {limit}: polls are put off \
             (poll.deferred) while there are too few"
        )
    })
}

/// Judges the hard limit of a process started like this one: `run` raises the soft one to it.
pub fn judged(hard: u64, config: &Config) -> Finding {
    match too_few(hard, config) {
        None => Finding::ok(
            CHECK,
            format!("{hard} open files are enough for --workers {}", config.workers),
        ),
        Some(found) => Finding::warn(CHECK, found, way_out(config)),
    }
}

/// What to do about it.
pub fn way_out(config: &Config) -> String {
    format!("LimitNOFILE={} in the unit, ulimit -Hn in a shell, or fewer --workers", needed(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::doctor::Grade;

    #[test]
    fn a_limit_is_compared_with_what_the_workers_need() {
        let polls = Config { workers: 200, ..Config::default() };
        assert_eq!(needed(&polls), 64 + 800);
        assert_eq!(judged(864, &polls).grade, Grade::Ok);
        let few = judged(863, &polls);
        assert!(few.grade == Grade::Warn && few.found.contains("--workers 200"), "{few:?}");
        assert!(few.way_out.contains("LimitNOFILE=864"), "{few:?}");
        let listen = "127.0.0.1:1".parse().ok();
        let shown = Config { metrics_listen: listen, web_listen: listen, ..polls.clone() };
        assert_eq!(needed(&shown), 64 + 800 + 2 * 64);
        let commands = Config { poll_command: Some(vec!["true".into()]), ..polls };
        assert_eq!(needed(&commands), 64 + 1_600);
    }
}

//! Which settings work, but are probably not what was meant? Each is said once, in the log.

use std::ffi::OsString;
use std::time::Duration;

use crate::cli::options::is_stranger;
use crate::cli::table::{brief, printable};
use crate::config::Config;
use crate::event::Event;
use crate::model::InstanceId;

/// At most this many names that mean nothing are told.
const NAMED_MAX: usize = 5;

/// Logs a warning for each odd setting, for each unknown name in the environment, and for the findings of the caller.
pub(crate) fn tell(
    config: &Config,
    names: impl Iterator<Item = OsString>,
    more: impl IntoIterator<Item = String>,
    me: &InstanceId,
) {
    let odd = [about_metrics(config), about_names(names)].into_iter().flatten();
    for reason in more.into_iter().chain(odd) {
        Event::SettingsOdd { reason: &reason }.log(me);
    }
}

/// R13: a heartbeat does not outlast a lease, whatever is asked for.
pub(crate) fn about_heartbeat(heartbeat_ttl: Duration, lease_ttl: Duration) -> Option<String> {
    let [asked, used] = [heartbeat_ttl, lease_ttl].map(brief);
    (heartbeat_ttl > lease_ttl).then(|| {
        format!("--heartbeat-ttl {asked} is longer than --lease-ttl {used}, so {used} is used")
    })
}

fn about_metrics(config: &Config) -> Option<String> {
    let path = config.metrics_file.as_ref()?;
    let is_read = path.extension().is_some_and(|it| it == "prom");
    let shown = printable(&path.display().to_string());
    (!is_read).then(|| {
        format!(
            "--metrics-file {shown} does not end in .prom: node_exporter's textfile collector passes \
             it over"
        )
    })
}

fn about_names(names: impl Iterator<Item = OsString>) -> Option<String> {
    let mut odd: Vec<String> = names
        .filter_map(|it| it.into_string().ok())
        .filter_map(|it| Some((is_stranger(&it)?, it)))
        .map(|(meant, it)| match meant {
            Some(meant) => format!("{it} (did you mean {meant}?)"),
            None => it,
        })
        .collect();
    odd.sort_unstable();
    let n = odd.len();
    odd.truncate(NAMED_MAX);
    let more = if n > NAMED_MAX { format!(" and {} more", n - NAMED_MAX) } else { String::new() };
    let odd = printable(&odd.join(", "));
    (n > 0).then(|| format!("in the environment, but no setting: {odd}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_like_ours_that_mean_nothing_are_told_and_others_are_not() {
        let told = |names: &[&str]| about_names(names.iter().map(OsString::from));
        assert_eq!(told(&["PATH", "LEASEHOLD_REDIS", "LEASEHOLD_FENCE", "LEASEHOLD_JSON"]), None);
        let odd = told(&["LEASEHOLD_XYZZY_QUUX", "LEASEHOLD_REDS", "LEASEHOLD_GRACE_MS"]).unwrap();
        assert!(odd.contains("LEASEHOLD_REDS (did you mean LEASEHOLD_REDIS?)"), "{odd}");
        assert!(odd.contains("LEASEHOLD_XYZZY_QUUX"), "{odd}");
        assert!(odd.contains("LEASEHOLD_GRACE_MS"), "hidden commands are deaf: {odd}");
        let many: Vec<String> = (0..7).map(|n| format!("LEASEHOLD_ODD_NAME_{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(told(&many).unwrap().ends_with("LEASEHOLD_ODD_NAME_4 and 2 more"));
    }
}

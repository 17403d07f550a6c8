//! `leasehold names`: what the completions of a shell offer from the live fleet. Quick, or silent.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::cli::{FAILED, say};
use crate::config::Config;
use crate::model::{EndpointId, InstanceId};
use crate::store::redis::RedisStore;
use crate::store::{Store, StoreResult};

/// Nobody waits longer for the tab key.
const PATIENCE: Duration = Duration::from_millis(700);
/// Nobody chooses from more.
const NAMES_MAX: usize = 1_000;

/// Prints those that begin so, one a line.
pub(crate) fn names(config: &Config, of: &str, beginning: &str) -> ExitCode {
    let (tell, told) = bounded(1);
    let (asked, of) = (config.clone(), of.to_owned());
    // It may hang as long as Redis does, and ends with the process.
    let ask = move || drop(tell.send(read(&asked, &of)));
    if std::thread::Builder::new().name("names".into()).spawn(ask).is_err() {
        return ExitCode::from(FAILED);
    }
    let Ok(Ok(names)) = told.recv_timeout(PATIENCE) else { return ExitCode::from(FAILED) };
    // A name with a space or a quote would be several words for the shell, or none.
    let plain = |it: &&String| it.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let wanted = names.iter().filter(|it| it.starts_with(beginning)).filter(plain);
    say(&wanted.take(NAMES_MAX).map(|it| format!("{it}\n")).collect::<String>())
}

fn read(config: &Config, of: &str) -> StoreResult<BTreeSet<String>> {
    let timeout = config.store_timeout.min(PATIENCE);
    let text = |it: &EndpointId| it.to_string();
    Ok(match of {
        "endpoints" => {
            RedisStore::of_endpoints(config).endpoint_names(timeout)?.iter().map(text).collect()
        }
        "instances" => {
            let instances = RedisStore::of_endpoints(config).instance_names(timeout)?;
            let both = |it: &InstanceId| [it.host().to_owned(), it.to_string()];
            instances.iter().flat_map(both).collect()
        }
        "roles" => RedisStore::of_roles(config).role_names(timeout)?.iter().map(text).collect(),
        _ => BTreeSet::new(),
    })
}

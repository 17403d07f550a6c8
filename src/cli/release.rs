//! `leasehold release`: gives back the leases of an instance that is certainly dead.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::config::Config;
use leasehold::daemon::state_file::StateFile;
use leasehold::model::InstanceId;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Fault, Store, StoreError};

use crate::cli::task::ReleaseWhat;
use crate::cli::{FAILED, fail, logging, say};

/// How long the dead process's commands may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Releases everything of the instance that `what` names.
pub(crate) fn release(config: &Config, what: ReleaseWhat) -> ExitCode {
    logging::start(config.log_level);
    let released = match what {
        ReleaseWhat::Instance { id, force } => by_id(config, &InstanceId::new(&id), force),
        ReleaseWhat::RuntimeDir(dir) => by_state_file(config, &dir),
    };
    match released {
        Ok(sentence) => say(&format!("{sentence}\n")),
        Err(why) => fail(FAILED, &why),
    }
}

fn by_id(config: &Config, id: &InstanceId, force: bool) -> Result<String, String> {
    bury(id, force, config)?.ok_or_else(|| {
        format!(
            "instance {id} still has a heartbeat: stop it, or wait until it expires; \
             if it is certainly dead, say --force"
        )
    })
}

/// R12: the lock is the proof of death.
fn by_state_file(config: &Config, dir: &Path) -> Result<String, String> {
    if !StateFile::exists(dir) {
        return Ok(format!("nothing to release: no state file in {}", dir.display()));
    }
    let mut state = StateFile::lock(dir, PATIENCE).map_err(|error| error.to_string())?;
    let ids = state.instances().map_err(|error| format!("cannot read the state file: {error}"))?;
    let mut sentences = Vec::new();
    for id in &ids {
        sentences.extend(bury(id, true, config)?);
    }
    if sentences.is_empty() {
        sentences.push("nothing to release: the state file names no instance".into());
    }
    let _ = state.remove();
    Ok(sentences.join("\n"))
}

/// `None` when it has a heartbeat and its death is not certain.
fn bury(id: &InstanceId, certain: bool, config: &Config) -> Result<Option<String>, String> {
    let sentence = |error: StoreError| error.to_string();
    let timeout = config.store_timeout;
    let polls = RedisStore::of_polls(config).map_err(sentence)?;
    let roles = RedisStore::of_roles(config).map_err(sentence)?;
    let led = match roles.bury(id, certain, timeout) {
        // Who may not touch the keys of roles runs an instance that leads none.
        Err(error) if error.fault == Fault::Misconfigured => Some(0),
        led => led.map_err(sentence)?,
    };
    let Some(led) = led else { return Ok(None) };
    let Some(polled) = polls.bury(id, certain, timeout).map_err(sentence)? else { return Ok(None) };
    let count = |n, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let roles = if led > 0 { format!(" and {}", count(led, "role")) } else { String::new() };
    Ok(Some(format!("released {}{roles} of {id}", count(polled, "lease"))))
}

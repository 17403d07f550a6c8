//! `leasehold release`: gives back the leases of an instance that is certainly dead.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::config::Config;
use leasehold::daemon::state_file::StateFile;
use leasehold::model::InstanceId;
use leasehold::store::Store;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;

use crate::cli::args::ReleaseWhat;
use crate::cli::{FAILED, fail, logging, say};

/// How long the dead process's commands may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Releases everything of the instance that `what` names.
pub(crate) fn release(config: Config, what: ReleaseWhat) -> ExitCode {
    logging::start(config.log_level);
    let released = match what {
        ReleaseWhat::Instance { id, force } => by_id(&config, &InstanceId::new(&id), force),
        ReleaseWhat::RuntimeDir(dir) => by_state_file(&config, &dir),
    };
    match released {
        Ok(sentence) => say(&format!("{sentence}\n")),
        Err(why) => fail(FAILED, &why),
    }
}

fn by_id(config: &Config, id: &InstanceId, force: bool) -> Result<String, String> {
    bury(&store(config)?, id, force, config)?.ok_or_else(|| {
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
    let store = store(config)?;
    let mut sentences = Vec::new();
    for id in &ids {
        sentences.extend(bury(&store, id, true, config)?);
    }
    if sentences.is_empty() {
        sentences.push("nothing to release: the state file names no instance".into());
    }
    let _ = state.remove();
    Ok(sentences.join("\n"))
}

fn store(config: &Config) -> Result<RedisStore, String> {
    let keys = Keys::new(&config.prefix, &config.session_prefix);
    RedisStore::new(config.redis.expose(), &config.redis.to_string(), keys)
        .map_err(|error| error.to_string())
}

/// `None` when it has a heartbeat and its death is not certain.
fn bury(
    store: &RedisStore,
    id: &InstanceId,
    certain: bool,
    config: &Config,
) -> Result<Option<String>, String> {
    let count = store.bury(id, certain, config.store_timeout).map_err(|error| error.to_string())?;
    let leases = |n| if n == 1 { "1 lease".into() } else { format!("{n} leases") };
    Ok(count.map(|it| format!("released {} of {id}", leases(it))))
}

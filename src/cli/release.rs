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
    let store = store(config)?;
    let live = store.instances(config.store_timeout).map_err(|error| error.to_string())?;
    if !force && live.iter().any(|it| it.0 == *id) {
        return Err(format!(
            "instance {id} still has a heartbeat: stop it, or wait until it expires; \
             if it is certainly dead, say --force"
        ));
    }
    bury(&store, id, config)
}

/// R12: the lock is the proof of death.
fn by_state_file(config: &Config, dir: &Path) -> Result<String, String> {
    if !StateFile::exists(dir) {
        return Ok(format!("nothing to release: no state file in {}", dir.display()));
    }
    let mut state = StateFile::lock(dir, PATIENCE).map_err(|error| error.to_string())?;
    let ids = state.instances().map_err(|error| format!("cannot read the state file: {error}"))?;
    let store = store(config)?;
    let sentences: Result<Vec<String>, String> =
        ids.iter().map(|id| bury(&store, id, config)).collect();
    let sentence = match sentences?.join("\n") {
        none if none.is_empty() => "nothing to release: the state file names no instance".into(),
        some => some,
    };
    let _ = state.remove();
    Ok(sentence)
}

fn store(config: &Config) -> Result<RedisStore, String> {
    let keys = Keys::new(&config.prefix, &config.session_prefix);
    RedisStore::new(config.redis.expose(), &config.redis.to_string(), keys)
        .map_err(|error| error.to_string())
}

fn bury(store: &RedisStore, id: &InstanceId, config: &Config) -> Result<String, String> {
    let count = store.bury(id, config.store_timeout).map_err(|error| error.to_string())?;
    Ok(format!("released {count} leases of {id}"))
}

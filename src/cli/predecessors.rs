//! Who ran here before us, and what did they leave? The state file in the runtime directory (R12).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::event::Event;
use crate::instance::state_file::StateFile;
use crate::model::InstanceId;
use crate::store::Store;

/// How long a predecessor in the same runtime directory may take to be gone.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(5);

/// The state file, if there is a runtime directory, and whom it named before us (R12).
pub(crate) struct Predecessors {
    file: Option<StateFile>,
    me: InstanceId,
    predecessors: Vec<InstanceId>,
}

impl Predecessors {
    /// The lock proves that the instance named there is gone, and its commands too. Our own name is added
    /// before we can hold anything.
    pub(crate) fn take(config: &Config, me: &InstanceId) -> Result<Self, String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "--runtime-dir: {error}: make the directory, or let RuntimeDirectory= of the unit do it"
            ),
            _ => format!("--runtime-dir: {error}"),
        };
        let mut state = Self { file: None, me: me.clone(), predecessors: Vec::new() };
        if let Some(dir) = &config.runtime_dir {
            let mut file = StateFile::lock(dir, PREDECESSOR_PATIENCE).map_err(failed)?;
            state.predecessors = file.instances().map_err(failed)?;
            let all: Vec<InstanceId> = state.predecessors.iter().chain([me]).cloned().collect();
            file.write(&all).map_err(failed)?;
            state.file = Some(file);
        }
        Ok(state)
    }

    /// What they left behind need not wait for its TTL. If this fails, it does.
    pub(crate) fn revoke_predecessors(&mut self, stores: &[Arc<dyn Store>], timeout: Duration) {
        for dead in std::mem::take(&mut self.predecessors) {
            let mut revoked = stores.iter().map(|it| it.revoke(&dead, true, timeout));
            let revoked = revoked.try_for_each(|it| it.map(drop));
            if let Err(error) = revoked {
                Event::StoreUnreachable { error: &error }.log(&self.me);
                return;
            }
        }
        let only_me = self.me.clone();
        self.write(&[only_me]);
    }

    /// We held nothing: `release` need not look for us.
    pub(crate) fn forget_me(mut self) {
        let others = std::mem::take(&mut self.predecessors);
        if others.is_empty() { self.clear() } else { self.write(&others) }
    }

    /// A file that cannot be written any more only costs `release` some useless work.
    fn write(&mut self, ids: &[InstanceId]) {
        let _ = self.file.as_mut().map(|it| it.write(ids));
    }

    /// Nothing of ours is left to be given back.
    pub(crate) fn clear(self) {
        let _ = self.file.map(StateFile::remove);
    }
}

//! `leasehold release`: gives back the leases of an instance that is certainly dead.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::table::printable;
use crate::cli::task::ReleaseWhat;
use crate::cli::usage::nearest;
use crate::cli::{FAILED, explained, fail, logging, say, warn};
use crate::config::Config;
use crate::inspect::status::counted;
use crate::instance::state_file::StateFile;
use crate::model::InstanceId;
use crate::store::redis::RedisStore;
use crate::store::{
    Fault, Hint, Note, Revocation, RevocationReply, Revocations, Store, StoreError,
};
use crate::thread::stop;

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
    let mut known = living(config)?;
    let shown = printable(id.as_str());
    let barred = if force { bar(config, id)? } else { Barred::NotAsked };
    if let Barred::Revoked = barred {
        return revoked(config, id);
    }
    let released = revoke(id, force, false, config)?.ok_or_else(|| {
        format!(
            "instance {shown} still has a heartbeat: stop it, or wait until it expires; \
             with --force it is revoked first, so that it stops polling even if it is alive"
        )
    })?;
    if !released.is_nothing() {
        barred.tell(&shown);
        return Ok(released.sentence(id));
    }
    // One that is remembered may have been released before, or have given everything back itself.
    known.extend(remembered(config));
    if !known.contains(id) {
        let near = nearest(id.as_str(), known.iter().map(InstanceId::as_str));
        let way_out = match near {
            Some(near) => format!("did you mean {}?", printable(near)),
            None => "leasehold status and leasehold history show the ids".into(),
        };
        return Err(format!(
            "no instance {shown} is known, neither by a heartbeat nor by a lease nor in the history, so \
             nothing was released: {way_out}"
        ));
    }
    Ok(released.sentence(id))
}

/// What became of an instance before its leases are given back.
enum Barred {
    /// It has no heartbeat, or nobody asked for it.
    NotAsked,
    /// It was revoked, and its last verification has ended (R16).
    Revoked,
    /// It does not keep R15: it may poll until its leases expire.
    Unable,
}

impl Barred {
    /// What that means for an instance that is alive after all.
    fn tell(&self, id: &str) {
        match self {
            Self::NotAsked | Self::Revoked => (),
            Self::Unable => warn(&format!(
                "{id} could not be revoked (an older version, --suspect-after 0, or a right is missing): if it is alive, it \
                 may poll until its leases would have expired"
            )),
        }
    }
}

/// R16: revokes an instance that may be alive, and waits until its last verification has ended.
fn bar(config: &Config, id: &InstanceId) -> Result<Barred, String> {
    let store = RedisStore::of_endpoints(config);
    let revocation = Revocation { suspect: id.clone(), hint: Hint::Operator, not_after_us: 0 };
    let left = match store.revoke_instance(&revocation, config.store_timeout) {
        Ok(RevocationReply::Revoked(left)) => {
            let note = Note { reason: "operator", ..Note::of_instance("revoked", id) };
            // The history is for people: a user that may not write it may revoke all the same.
            let _ = store.remember(&[note], config.store_timeout);
            left
        }
        Ok(RevocationReply::Already(left)) => left,
        Ok(RevocationReply::Unable) => return Ok(Barred::Unable),
        Ok(RevocationReply::HoldOff) => {
            return Err(format!(
                "nothing was released: Redis holds off after a loss of its data, and {} could not be revoked; try again \
                 when leasehold status shows no hold-off",
                printable(id.as_str())
            ));
        }
        Err(error) if error.is_denied() => return Ok(Barred::Unable),
        Err(error) => return Err(error.to_string()),
        Ok(_) => return Ok(Barred::NotAsked),
    };
    let (_held, never) = stop(); // a signal ends this command
    never.within(left);
    Ok(Barred::Revoked)
}

/// R16: the leases of a revoked instance are not deleted. The others take them over now; if it is alive, it may have come back, and
/// hold some of them anew. A role is not revoked: a leader that is alive leads until the role expires.
fn revoked(config: &Config, id: &InstanceId) -> Result<String, String> {
    let shown = printable(id.as_str());
    let led = match RedisStore::of_roles(config).revoke(id, false, config.store_timeout) {
        Ok(Some(roles)) => roles,
        Ok(None) => {
            warn(&format!(
                "{shown} leads roles and has a fresh heartbeat: they stay until they expire"
            ));
            0
        }
        Err(error) if error.fault == Fault::Misconfigured => 0,
        Err(error) => return Err(error.to_string()),
    };
    let roles =
        if led == 0 { String::new() } else { format!("; released {}", counted(led, "role")) };
    Ok(format!(
        "revoked {shown}: the other instances take its leases over now, and if it is alive, it comes back as a newcomer{roles}"
    ))
}

/// The instances that had a lease lately, as far as that may be read.
pub(crate) fn remembered(config: &Config) -> Vec<InstanceId> {
    let history = RedisStore::of_endpoints(config).whole_history(config.store_timeout);
    history.unwrap_or_default().iter().map(|it| InstanceId::new(&it.instance)).collect()
}

/// The instances that have a heartbeat.
fn living(config: &Config) -> Result<BTreeSet<InstanceId>, String> {
    let timeout = config.store_timeout;
    let store = RedisStore::of_endpoints(config);
    let (mut living, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let page = store.instances(cursor, timeout).map_err(|error| error.to_string())?;
        living.extend(page.found);
        cursor = page.cursor;
        if cursor == 0 {
            return Ok(living);
        }
    }
}

/// What an instance had.
struct Released {
    /// `None` when this user may not touch the keys of leases.
    leases: Option<usize>,
    roles: usize,
    /// Why roles were not looked at.
    roles_denied: Option<StoreError>,
}

impl Released {
    fn is_nothing(&self) -> bool {
        self.leases.unwrap_or(0) + self.roles == 0
    }

    fn sentence(&self, id: &InstanceId) -> String {
        let roles = match self.roles {
            0 => String::new(),
            n => format!(" and {}", counted(n, "role")),
        };
        let id = printable(id.as_str());
        match self.leases {
            Some(leases) => {
                let denied = self.roles_denied.as_ref().map(|error| {
                    format!("; its roles, if it led any, it keeps until they expire: {error}")
                });
                let denied = explained(denied.unwrap_or_default());
                format!("released {}{roles} of {id}{denied}", counted(leases, "lease"))
            }
            None => format!(
                "released {} of {id}; leases are not looked at, because this Redis user may only touch roles",
                counted(self.roles, "role")
            ),
        }
    }
}

/// R12: the lock is the proof of death.
fn by_state_file(config: &Config, dir: &Path) -> Result<String, String> {
    let shown = printable(&dir.display().to_string());
    if !dir.is_dir() {
        // systemd removes it after a stop, and ExecStopPost must not fail for that.
        return Ok(format!(
            "nothing to release: there is no directory {shown}; is it the one that run was given?"
        ));
    }
    if !StateFile::exists(dir) {
        return Ok(format!("nothing to release: no state file in {shown}"));
    }
    let mut state = StateFile::lock(dir, PATIENCE).map_err(|error| {
        format!(
            "nothing was released: {error}; stop it first, or leave its leases to it, and see leasehold \
             drain to take them off a running instance"
        )
    })?;
    let ids = state.instances().map_err(|error| format!("cannot read the state file: {error}"))?;
    let mut sentences = Vec::new();
    for id in &ids {
        sentences.extend(revoke(id, true, true, config)?.map(|it| it.sentence(id)));
    }
    if sentences.is_empty() {
        sentences.push("nothing to release: the state file names no instance".into());
    }
    let _ = state.remove();
    Ok(sentences.join("\n"))
}

/// `None` when it has a heartbeat and its death is not certain. With `may_be_elector` a user that is denied the leases
/// and not the roles counts as one that only leads.
fn revoke(
    id: &InstanceId,
    certain: bool,
    may_be_elector: bool,
    config: &Config,
) -> Result<Option<Released>, String> {
    let sentence = |error: StoreError| error.to_string();
    let timeout = config.store_timeout;
    let polls = RedisStore::of_endpoints(config);
    let roles = RedisStore::of_roles(config);
    let (led, roles_denied) = match roles.revoke(id, certain, timeout) {
        // A user that may not touch the keys of roles belongs to an instance that leads none.
        Err(error) if error.fault == Fault::Misconfigured => (Some(0), Some(error)),
        led => (led.map_err(sentence)?, None),
    };
    let Some(led) = led else { return Ok(None) };
    match polls.revoke(id, certain, timeout) {
        Err(error) if error.is_denied() && roles_denied.is_none() && may_be_elector => {
            Ok(Some(Released { leases: None, roles: led, roles_denied }))
        }
        Ok(None) => Ok(None),
        polled => {
            let leases = polled.map_err(sentence)?;
            Ok(Some(Released { leases, roles: led, roles_denied }))
        }
    }
}

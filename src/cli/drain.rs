//! `leasehold drain` and `undrain`: take all work off a host, and let it have work again.

use std::process::ExitCode;
use std::time::Duration;

use crate::cli::release::remembered;
use crate::cli::table::printable;
use crate::cli::task::Drain;
use crate::cli::usage::nearest;
use crate::cli::{FAILED, fail, say};
use crate::clock::{BootClock, Clock};
use crate::config::Config;
use crate::fleet::session_cache::understood;
use crate::inspect::status::{Status, counted};
use crate::model::InstanceId;
use crate::store::admin::overview::{Overview, Stored};
use crate::store::admin::sessions::Drained;
use crate::store::redis::RedisStore;
use crate::thread::stop;

/// So often a drain is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Drains, or lets work again.
pub(crate) fn drain(config: &Config, what: &Drain) -> ExitCode {
    match change(config, what) {
        Ok(sentence) => say(&format!("{sentence}\n")),
        Err(why) => fail(FAILED, &why),
    }
}

fn change(config: &Config, what: &Drain) -> Result<String, String> {
    let timeout = config.store_timeout;
    let store = RedisStore::of_endpoints(config);
    let name = printable(&what.name);
    let look = || store.overview(timeout).map_err(|error| error.to_string());
    if what.off {
        if store.undrain(&what.name, timeout).map_err(|error| error.to_string())? {
            return Ok(format!("{name} takes its share again"));
        }
        known(config, what, &look()?)?;
        return Ok(format!("{name} was not drained: leasehold status lists who is"));
    }
    let before = look()?;
    let living: Vec<InstanceId> = before.instances.iter().map(|it| it.0.clone()).collect();
    let here = living.iter().any(|it| is_named(what, it.as_str(), it.host()));
    // A host comes back under its name. An instance never does: its id is that of one start.
    if !here && is_id(&what.name) {
        return Err(format!(
            "no instance {name} is alive, and none will ever have that id again: leasehold status lists \
             those that are; a host can be drained by its name before it starts"
        ));
    }
    if !here && !what.absent {
        known(config, what, &before)?;
    }
    let drained = store.drain(&what.name, &living, what.force, timeout);
    if drained.map_err(|error| error.to_string())? == Drained::NobodyLeft {
        let n = counted(Status::of(before, Duration::MAX).n_wanted(), "endpoint");
        return Err(format!(
            "nobody would be left to poll {n}: start another instance first, or pass --force"
        ));
    }
    if !here {
        return Ok(format!("{name} is drained; no instance of that name runs at the moment"));
    }
    let held = held(&before, what);
    let leases = counted(held, "lease");
    if what.wait.is_zero() {
        return Ok(format!("{name} hands over {leases}; leasehold undrain {name} takes it back"));
    }
    let (began, (_never, pause)) = (BootClock.now(), stop());
    while BootClock.now().since(began) < what.wait {
        if self::held(&look()?, what) == 0 {
            let took = BootClock.now().since(began);
            return Ok(format!("{name} has handed over {leases} in {:.1} s", took.as_secs_f64()));
        }
        pause.within(LOOK);
    }
    Err(format!("{name} still holds something after --wait: see leasehold status"))
}

/// An error for a name that nobody has: no instance that lives or is remembered, no host of one, and nothing that was
/// drained before. It says which name was probably meant.
fn known(config: &Config, what: &Drain, before: &Overview) -> Result<(), String> {
    let living = before.instances.iter().map(|it| it.0.clone());
    let instances: Vec<InstanceId> = living.chain(remembered(config)).collect();
    let names = || {
        let own = instances.iter().flat_map(|it| [it.host(), it.as_str()]);
        own.chain(before.drained.iter().map(String::as_str))
    };
    if names().any(|it| it == what.name) {
        return Ok(());
    }
    let nearest = nearest(&what.name, names());
    let meant = nearest.map_or_else(
        || "leasehold status lists those that are alive.".into(),
        |it| format!("did you mean {}?", printable(it)),
    );
    let name = printable(&what.name);
    Err(match what.off {
        true => {
            format!("{name} is not drained, and no instance or host is known by that name: {meant}")
        }
        false => format!(
            "no instance or host {name} is alive, nor is one remembered: {meant} To drain a host before \
             anything runs there, pass --absent"
        ),
    })
}

/// Whether it has the form of an instance id: a host, nanoseconds, eight hexadecimal digits.
fn is_id(name: &str) -> bool {
    let mut parts = name.rsplitn(3, '-');
    let (random, nanos, host) = (parts.next(), parts.next(), parts.next());
    random.is_some_and(|it| it.len() == 8 && it.bytes().all(|c| c.is_ascii_hexdigit()))
        && nanos.is_some_and(|it| it.len() >= 16 && it.bytes().all(|c| c.is_ascii_digit()))
        && host.is_some_and(|it| !it.is_empty())
}

fn is_named(what: &Drain, id: &str, host: &str) -> bool {
    what.name == id || what.name == host
}

/// What is to move. A paused endpoint does not: its lease is on its way back already.
fn held(overview: &Overview, what: &Drain) -> usize {
    let paused = |it: &Stored| {
        let session = it.session.as_ref().map(|raw| understood(&it.id, raw));
        session.is_some_and(|it| it.is_ok_and(|it| it.is_paused_at(Some(overview.server_ms))))
    };
    let moving = overview.endpoints.iter().filter(|it| !paused(it));
    let owners = moving.filter_map(|it| it.lease.as_ref());
    owners.filter(|it| is_named(what, it.value.as_str(), it.value.host())).count()
}

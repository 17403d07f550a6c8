//! `leasehold drain` and `undrain`: work off a host, and back on it.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::config::Config;
use leasehold::daemon::thread::stop;
use leasehold::status::counted;
use leasehold::store::overview::Overview;
use leasehold::store::redis::RedisStore;

use crate::cli::table::printable;
use crate::cli::task::Drain;
use crate::cli::{FAILED, fail, say};

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
    let store = RedisStore::of_polls(config).map_err(|error| error.to_string())?;
    let name = printable(&what.name);
    let set =
        |off: bool| store.set_drain(&what.name, !off, timeout).map_err(|error| error.to_string());
    if what.off {
        return Ok(match set(true)? {
            true => format!("{name} takes its share again"),
            false => format!("{name} was not drained: leasehold status lists who is"),
        });
    }
    let look = || store.overview(timeout).map_err(|error| error.to_string());
    let before = look()?;
    let others = before.instances.iter().filter(|it| {
        let drained =
            [it.0.as_str(), it.0.host()].iter().any(|it| before.drained.contains(&(*it).into()));
        it.1.it.0 > 0 && !drained && !is_named(what, it.0.as_str(), it.0.host())
    });
    if others.count() == 0 && !what.force {
        let n = counted(before.endpoints.len(), "endpoint");
        return Err(format!(
            "nobody would be left to poll {n}: start another instance first, or say --force"
        ));
    }
    set(false)?;
    let here = before.instances.iter().any(|it| is_named(what, it.0.as_str(), it.0.host()));
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

fn is_named(what: &Drain, id: &str, host: &str) -> bool {
    what.name == id || what.name == host
}

fn held(overview: &Overview, what: &Drain) -> usize {
    let owners = overview.endpoints.iter().filter_map(|it| it.lease.as_ref());
    owners.filter(|it| is_named(what, it.it.as_str(), it.it.host())).count()
}

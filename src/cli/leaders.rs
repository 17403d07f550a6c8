//! `leasehold leaders` and `leasehold resign`: who leads what, and how to change that.

use std::process::ExitCode;
use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::config::Config;
pub(crate) use crate::inspect::status::json::{Leaders, leader_document};
use crate::model::{EndpointId, InstanceId, Role};
use crate::store::redis::RedisStore;
use crate::store::{PeerMessage, RoleStatus, Store};
use crate::thread::stop;
use serde_json::{Value, json};

use crate::cli::table::{Cell, Paint, Painter, Side, Table, brief, printable};
use crate::cli::usage::nearest;
use crate::cli::{FAILED, fail, logging, say};

/// So often the leader is asked again, and looked at.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// For a command that takes its time to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lists every role.
pub(crate) fn leaders(config: &Config, json: bool) -> ExitCode {
    logging::start(config.log_level);
    let led = RedisStore::of_roles(config).role_overview(config.store_timeout);
    match led {
        Ok(led) if json => {
            let leaders: Vec<Value> = led.iter().map(leader_document).collect();
            say(&format!("{:#}\n", json!({ "leaders": leaders })))
        }
        Ok(led) if led.is_empty() => say("no role has ever been led here\n"),
        Ok(led) => say(&table(&led).shown(Painter::for_stdout())),
        Err(why) => fail(FAILED, &why),
    }
}

/// All roles, for people.
pub(crate) fn table(led: &Leaders) -> Table {
    let mut table = Table::new(&[
        ("ROLE", Side::Left),
        ("LEADER", Side::Left),
        ("TERM", Side::Right),
        ("SINCE", Side::Right),
        ("LEFT", Side::Right),
    ]);
    for (role, status) in led {
        let leader = status.leader.as_ref();
        let since = leader.and(status.led_for).map(|it| format!("{} ago", brief(it)));
        let left = match leader {
            Some(_) if status.is_stale => Cell::painted("stale", Paint::Bad),
            Some(it) => Cell::new(&brief(it.left)),
            None => Cell::new("-"),
        };
        table.row(vec![
            Cell::new(role.as_str()),
            match leader {
                Some(it) => Cell::new(it.value.as_str()),
                None => Cell::painted("nobody", Paint::Watch),
            },
            Cell::new(&status.term.to_string()),
            Cell::new(since.as_deref().unwrap_or("-")),
            left,
        ]);
    }
    table
}

/// Makes the leader step down.
pub(crate) fn resign(config: &Config, role: &Role) -> ExitCode {
    logging::start(config.log_level);
    match ask_to_resign(config, role) {
        Ok(sentence) => say(&format!("{sentence}\n")),
        Err(why) => fail(FAILED, &why),
    }
}

fn ask_to_resign(config: &Config, role: &Role) -> Result<String, String> {
    let (store, timeout) = (RedisStore::of_roles(config), config.store_timeout);
    let look = || -> Result<Option<RoleStatus>, String> {
        let statuses = store.role_statuses(&[role.as_lease().clone()], timeout);
        Ok(statuses.map_err(|error| error.to_string())?.pop())
    };
    let Some(RoleStatus { leader: Some(leader), term, .. }) = look()? else {
        let led = store.role_names(timeout).map_err(|error| error.to_string())?;
        if led.iter().any(|it| it == role.as_lease()) {
            return Ok(format!("nobody leads {role}"));
        }
        let way_out = match nearest(role.as_str(), led.iter().map(EndpointId::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => "see leasehold leaders".into(),
        };
        return Err(format!("{role} was never led here: {way_out}"));
    };
    let leader = leader.value;
    let me = InstanceId::generate_now(&config.host_name);
    let message = PeerMessage::new(&me, Some(leader.clone()));
    let message = PeerMessage { resign: vec![role.as_lease().clone()], ..message };
    let deadline = BootClock.now() + PATIENCE;
    let (_never, pause) = stop();
    // A message may get lost: sends it until it takes effect.
    while BootClock.now() < deadline {
        store.wake(std::slice::from_ref(&message), timeout).map_err(|error| error.to_string())?;
        pause.within(ASK_AGAIN);
        let shown = printable(leader.as_str());
        match look()? {
            Some(RoleStatus { leader: Some(now), term: since, .. }) if since != term => {
                let successor = printable(now.value.as_str());
                return Ok(format!("{shown} gave up {role}; {successor} leads since term {since}"));
            }
            Some(RoleStatus { leader: Some(_), .. }) => (),
            _ => return Ok(format!("{shown} gave up {role}; nobody leads it yet")),
        }
    }
    Err(format!(
        "{} still leads {role} after {}: its command may not have ended, or it hangs and will be \
         replaced when its time is over; see leasehold leaders",
        printable(leader.as_str()),
        brief(PATIENCE),
    ))
}

//! `leasehold leaders` and `leasehold resign`: who leads what, and how to change that.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::config::Config;
use leasehold::daemon::thread::stop;
use leasehold::model::{EndpointId, InstanceId, Role};
use leasehold::store::redis::RedisStore;
use leasehold::store::{BATCH_MAX, Seat, Store, Wake};
use serde_json::{Value, json};

use crate::cli::{FAILED, fail, logging, say};

/// So often the leader is asked again, and looked at.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// For a command that takes its time to end.
const PATIENCE: Duration = Duration::from_secs(30);

fn store(config: &Config) -> Result<RedisStore, String> {
    RedisStore::of_roles(config).map_err(|error| error.to_string())
}

/// Lists every role.
pub(crate) fn leaders(config: &Config, json: bool) -> ExitCode {
    logging::start(config.log_level);
    match seats(config) {
        Ok(seats) if json => {
            let leaders: Vec<Value> = seats.iter().map(|(role, it)| as_json(role, it)).collect();
            say(&format!("{:#}\n", json!({ "leaders": leaders })))
        }
        Ok(seats) => say(&table(&seats)),
        Err(why) => fail(FAILED, &why),
    }
}

fn seats(config: &Config) -> Result<Vec<(EndpointId, Seat)>, String> {
    let store = store(config)?;
    let timeout = config.store_timeout;
    let roles = store.role_names(timeout).map_err(|error| error.to_string())?;
    let mut seats = Vec::with_capacity(roles.len());
    for batch in roles.chunks(BATCH_MAX) {
        seats.extend(store.seats(batch, timeout).map_err(|error| error.to_string())?);
    }
    Ok(roles.into_iter().zip(seats).collect())
}

pub(crate) fn as_json(role: &EndpointId, seat: &Seat) -> Value {
    let ms = |it: Option<Duration>| it.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let leader = seat.leader.as_ref();
    json!({
        "role": role.as_str(),
        "leader": leader.map(|it| it.it.as_str()),
        "term": seat.term.0,
        "ledForMs": leader.and(ms(seat.led_for)),
        "leftMs": ms(leader.map(|it| it.left)),
        "heartbeatAgeMs": ms(seat.beaten),
        "ttlMs": ms(seat.ttl),
        "stale": seat.is_stale,
    })
}

fn table(seats: &[(EndpointId, Seat)]) -> String {
    if seats.is_empty() {
        return "no role has ever been led here\n".into();
    }
    let role_width = seats.iter().map(|it| it.0.as_str().len()).max().unwrap_or(0).max(4);
    let mut rows = vec![["ROLE", "LEADER", "TERM", "SINCE", "LEFT"].map(String::from)];
    for (role, seat) in seats {
        let leader = seat.leader.as_ref();
        rows.push([
            role.to_string(),
            leader.map_or("nobody".into(), |it| printable(&it.it)),
            seat.term.to_string(),
            leader.and(seat.led_for).map_or("-".into(), |it| format!("{} ago", short(it))),
            match leader {
                Some(_) if seat.is_stale => "stale".into(),
                Some(it) => short(it.left),
                None => "-".into(),
            },
        ]);
    }
    let width = |n: usize| rows.iter().map(|it| it[n].chars().count()).max().unwrap_or(0);
    let (leader, term, since) = (width(1), width(2), width(3));
    let line = |[a, b, c, d, e]: &[String; 5]| {
        let line = format!("{a:role_width$}  {b:leader$}  {c:term$}  {d:since$}  {e}");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// An id from the store may be anything; a terminal obeys control characters.
fn printable(id: &InstanceId) -> String {
    id.as_str().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A duration at a glance.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
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
    let (store, timeout) = (store(config)?, config.store_timeout);
    let look = || -> Result<Option<Seat>, String> {
        let seats = store.seats(&[role.as_lease().clone()], timeout);
        Ok(seats.map_err(|error| error.to_string())?.pop())
    };
    let Some(Seat { leader: Some(leader), term, .. }) = look()? else {
        return Ok(format!("nobody leads {role}"));
    };
    let leader = leader.it;
    let me = InstanceId::generate_now(&config.host_name);
    let word = Wake::new(&me, Some(leader.clone()));
    let word = Wake { resign: vec![role.as_lease().clone()], ..word };
    let deadline = BootClock.now() + PATIENCE;
    let (_never, pause) = stop();
    // A word may get lost: it is said until it has had its effect.
    while BootClock.now() < deadline {
        store.wake(std::slice::from_ref(&word), timeout).map_err(|error| error.to_string())?;
        pause.within(ASK_AGAIN);
        let shown = printable(&leader);
        match look()? {
            Some(Seat { leader: Some(now), term: since, .. }) if since != term => {
                let successor = printable(&now.it);
                return Ok(format!("{shown} gave up {role}; {successor} leads since term {since}"));
            }
            Some(Seat { leader: Some(_), .. }) => (),
            _ => return Ok(format!("{shown} gave up {role}; nobody leads it yet")),
        }
    }
    Err(format!(
        "{} still leads {role} after {}: its command may not have ended, or it hangs and will be \
         replaced when its time is over; see leasehold leaders",
        printable(&leader),
        short(PATIENCE),
    ))
}

//! Garbage where our numbers should be: it counts as missing, and never as a number.

use std::time::Duration;

use leasehold::model::{EndpointId, FenceToken, LeaseDuration, Tenure, Weight};
use leasehold::store::{Acquire, Fault, Release, Renew, RequestContext, StoreError, Verify};

use crate::store::contract::asker::{Asker, endpoint, items, publication};
use crate::store::contract::world::{TIMEOUT, TTL, World};

/// What no script has written. Lua's own `tonumber` takes most of them for numbers.
pub const GARBAGE: [&str; 22] = [
    "nan",
    "-nan",
    "NaN",
    "inf",
    "-inf",
    "infinity",
    "1e300",
    "-1e300",
    "1e15",
    "-5",
    "-0",
    "+5",
    "5.5",
    "0x10",
    " 5 ",
    "5\n",
    "",
    "garbage",
    "9007199254740991",
    "9007199254740993",
    "18446744073709551616",
    "99999999999999999999999999999999999999999999999999",
];

/// A fence is the server's clock in microseconds, which reaches this in the year 2112.
const RUN_AWAY: FenceToken = FenceToken::new(1 << 52);

/// What no script has written into this field, though it may be a number.
fn garbage_of(field: &str) -> Vec<&'static str> {
    let more: &[&str] = match field {
        "epoch" => &["0"],
        "born" => &["0", "8999999999999999"],
        _ if field.starts_with("lease_ttl_ms") => &["0", "1", "499", "3600001", "8999999999999999"],
        _ => &[],
    };
    GARBAGE.iter().chain(more).copied().collect()
}

fn fields(world: &dyn World) -> [&'static str; 5] {
    let ttl = if world.of_roles() { "lease_ttl_ms:e" } else { "lease_ttl_ms" };
    ["epoch", "since_ms", "floor_us", "born", ttl]
}

/// Whatever hold-off there is ends, with it everything that was held, and `a` has `e` again.
fn granted_anew(world: &mut dyn World, a: &mut Asker, e: &EndpointId) -> Tenure {
    world.end_hold_off();
    world.delete_lease(e);
    a.beat();
    a.grant(e)
}

/// A new epoch, a hold-off, and those who hold something go on.
pub fn garbage_in_the_epoch_begins_a_new_one_in_which_tenures_go_on(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let mut last = FenceToken::new(0);
    for field in fields(world) {
        for (n, text) in garbage_of(field).into_iter().enumerate() {
            let what = format!("{field} = {text:?}");
            let tenure = granted_anew(world, &mut a, &e);
            b.beat();
            assert!(tenure.fence > last && tenure.fence < RUN_AWAY, "{what}: {tenure:?}, {last}");
            last = tenure.fence;
            let before = a.stamp.unwrap();
            world.write_epoch(field, text);
            // The first caller may be a stranger, another instance of the fleet, or the owner.
            match n % 3 {
                0 => drop(Asker::new(world, "stranger", true).beat()),
                1 => drop(b.beat()),
                _ => (),
            }
            world.delete_lease(&e);
            assert_eq!(a.renew(&tenure), Renew::Reclaimed, "{what}");
            let after = a.stamp.unwrap();
            assert!(
                after.epoch > before.epoch && after.data_epoch > before.data_epoch,
                "{what}: {after:?}"
            );
            assert!(after.hold_off > TTL / 2, "{what}: {after:?}");
            assert_eq!(b.acquire(&e), Acquire::HeldBy(a.me.clone()), "{what}");
            world.delete_lease(&e);
            assert_eq!(b.acquire(&e), Acquire::HoldOff, "{what}");
            assert_eq!(a.renew(&tenure), Renew::Reclaimed, "{what}, once more");
            assert_eq!(a.verify(&tenure), Verify::Held, "{what}");
            assert_eq!(a.stamp.unwrap().epoch, after.epoch, "{what}: one epoch after another");
        }
    }
}

/// R5: garbage shows that a fleet may have run here, so `--new-fleet` does not count.
pub fn garbage_in_the_epoch_is_no_missing_epoch(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    a.beat();
    for field in fields(world) {
        world.write_epoch(field, "nan");
        let mut newcomer = Asker::new(world, "newcomer", true);
        assert!(newcomer.holds_off(), "{field}");
    }
}

/// R14: what was agreed on still counts, whatever is spoilt beside it: a stranger cannot name another timing.
pub fn garbage_in_the_epoch_leaves_what_was_agreed_on(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    for field in &fields(world)[..4] {
        world.write_epoch(field, "-5");
        let nothing = [Tenure::new(e.clone(), FenceToken::new(0))];
        let stranger = Asker::with_duration(world, "b", true, LeaseDuration::new(2 * TTL));
        let error = stranger.store.verify(&stranger.context(), &nothing).unwrap_err();
        assert_eq!(error.fault, Fault::Misconfigured, "{field}: {error}");
        assert_eq!(a.renew(&tenure), Renew::Extended, "{field}");
    }
}

/// R5: the first candidate that names a role's TTL after garbage may have a shorter one than its leader: nothing is granted until a leader
/// with the default TTL has stopped, unless one who was here before says that it is the same.
pub fn garbage_in_the_life_of_a_role_holds_off_as_if_nobody_knew_it(world: &mut dyn World) {
    let short = LeaseDuration::new(Duration::from_secs(3));
    let mut a = Asker::alive(world, "a");
    let tenure = a.grant(&endpoint("e"));
    world.write_epoch("lease_ttl_ms:e", "-5");
    let mut b = Asker::with_duration(world, "b", true, short);
    for _ in 0..2 {
        assert_eq!(b.acquire(&endpoint("e")), Acquire::HeldBy(a.me.clone()));
        let left = b.stamp.unwrap().hold_off;
        assert!(left > TTL / 2, "{left:?}");
    }
    assert_eq!(a.renew(&tenure), Renew::Extended, "its TTL is the longer one");
}

/// A life that nobody can have would end the keys of live instances: readers cap a TTL that is too long.
pub fn garbage_in_a_life_cuts_nothing_short(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    let ttls = fields(world)[4];
    for field in [ttls, "heartbeat_ttl_ms"] {
        for text in garbage_of(ttls) {
            world.write_epoch(field, text);
            let what = format!("{field} = {text:?}");
            a.store.leases(std::slice::from_ref(&e), TIMEOUT).unwrap();
            a.store.expiring(std::slice::from_ref(&e), TTL, TIMEOUT).unwrap();
            if world.of_roles() {
                a.store.role_statuses(std::slice::from_ref(&e), TIMEOUT).unwrap();
            } else {
                assert_eq!(a.live().len(), 1, "{what}");
            }
            assert_eq!(a.owner(&e).as_deref(), Some("a"), "{what}");
            assert!(world.lease_left(&e).unwrap() > TTL / 2, "{what}");
        }
        a.beat();
        assert_eq!(a.renew(&tenure), Renew::Extended, "{field}");
    }
}

/// Every place where a fence is kept: what stands there ends no tenure, and later fences are higher and do not run away.
pub fn garbage_in_a_fence_ends_no_tenure_and_no_order(world: &mut dyn World) {
    let (e, mut a, mut b) = (endpoint("e"), Asker::alive(world, "a"), Asker::alive(world, "b"));
    let mut last = a.grant(&e);
    for text in GARBAGE {
        world.write_granted(&e, text);
        assert_eq!(a.verify(&last), Verify::Held, "granted = {text:?}");
        assert_eq!(a.renew(&last), Renew::Extended, "granted = {text:?}");
        world.write_granted(&e, text);
        world.delete_lease(&e);
        assert_eq!(a.renew(&last), Renew::Reclaimed, "granted = {text:?}");
        world.write_granted(&e, text);
        if !world.of_roles() {
            world.write_fence(text);
            world.write_grants(&a.me, "granted", text);
            world.write_grants(&a.me, "released", text);
        }
        assert_eq!(a.free(&last), Release::Released, "{text:?}");
        for asker in [&mut b, &mut a] {
            let next = asker.grant(&e);
            assert!(
                next.fence > last.fence && next.fence < RUN_AWAY,
                "{text:?}: {next:?}, {last:?}"
            );
            last = next;
            if asker.me.as_str() == "b" {
                assert_eq!(asker.release(&last), Release::Released, "{text:?}");
            }
        }
        world.delete_lease(&e);
        if !world.of_roles() {
            world.write_grants(&a.me, "released", text);
        }
        assert_eq!(a.renew(&last), Renew::Reclaimed, "released = {text:?}");
    }
}

/// Everybody says what is wrong and what to do, waits, and goes on when it is done.
pub fn another_type_in_the_epochs_place_is_told_with_the_way_out(world: &mut dyn World) {
    let (e, mut a) = (endpoint("e"), Asker::alive(world, "a"));
    let tenure = a.grant(&e);
    world.replace_epoch();
    let (context, one) = (a.context(), std::slice::from_ref(&tenure));
    let mut told: Vec<StoreError> = vec![
        a.store.heartbeat(&context, TTL, Weight(1), None).unwrap_err(),
        a.store.acquire(&context, std::slice::from_ref(&e)).unwrap_err(),
        a.store.renew(&context, &items(one)).unwrap_err(),
        a.store.verify(&context, one).unwrap_err(),
    ];
    if world.of_roles() {
        told.push(a.store.role_statuses(std::slice::from_ref(&e), TIMEOUT).unwrap_err());
    } else {
        told.push(a.store.publish(&context, &[publication(&tenure, 1)]).unwrap_err());
    }
    let key = if world.of_roles() { "leader:epoch" } else { "poll:epoch" };
    for error in told {
        assert_eq!(error.fault, Fault::Refused, "{error}: an instance must not end of it");
        let shown = error.to_string();
        for part in [format!("{key} is no hash"), format!("DEL {key}; costs one hold-off")] {
            assert!(shown.contains(&part), "{shown}");
        }
    }
    world.delete_epoch();
    assert_eq!(a.renew(&tenure), Renew::Extended);
    assert!(a.holds_off());
}

/// R14: a life that no checked configuration has would lock out everybody who has another.
pub fn a_life_that_no_configuration_has_is_refused_and_not_written(world: &mut dyn World) {
    let ms = Duration::from_millis;
    for ttl in [ms(0), ms(1), ms(499), ms(3_600_001), Duration::MAX] {
        let odd = Asker::with_duration(world, "odd", true, LeaseDuration::new(ttl));
        let nothing = [Tenure::new(endpoint("e"), FenceToken::new(0))];
        for error in [
            odd.store.heartbeat(&odd.context(), TTL, Weight(1), None).unwrap_err(),
            odd.store.verify(&odd.context(), &nothing).unwrap_err(),
        ] {
            assert_eq!(error.fault, Fault::Misconfigured, "{error}");
        }
        let mut a = Asker::alive(world, "a");
        a.grant(&endpoint("e"));
        world.flush();
    }
    for ttl in [LeaseDuration::TTL_MIN, LeaseDuration::TTL_MAX] {
        let mut a = Asker::with_duration(world, "a", true, LeaseDuration::new(ttl));
        a.beat();
        a.grant(&endpoint("e"));
        world.flush();
    }
}

/// R4, R5: a first request with `--new-fleet` that is executed late, onto a store that was emptied meanwhile.
pub fn a_late_word_that_the_fleet_is_new_skips_no_hold_off(world: &mut dyn World) {
    let newcomer = Asker::new(world, "newcomer", true);
    let nothing = [Tenure::new(endpoint("e"), FenceToken::new(0))];
    let late = RequestContext { new_fleet: true, ..newcomer.late_ask() };
    world.flush();
    assert!(newcomer.store.verify(&late, &nothing).unwrap().stamp.hold_off > TTL / 2);
    world.flush();
    if !world.of_roles() {
        let beaten = newcomer.store.heartbeat(&late, TTL, Weight(1), None).unwrap();
        assert!(beaten.stamp.hold_off > TTL / 2 && beaten.answer.is_none(), "{beaten:?}");
    }
    world.flush();
    let in_time = RequestContext { not_after_us: u64::MAX / 4_096, ..late };
    let reply = newcomer.store.verify(&in_time, &nothing).unwrap();
    assert_eq!(reply.stamp.hold_off, Duration::ZERO, "in time it skips one");
}

/// R4: the server's clock is read before anything else is asked, so that the first request can name a time.
pub fn the_clock_of_the_server_is_told_and_nothing_is_changed(world: &mut dyn World) {
    let mut a = Asker::new(world, "a", false);
    let [first, second] = [(); 2].map(|()| a.store.time(TIMEOUT).unwrap());
    a.beat();
    let third = a.stamp.unwrap().server_us;
    assert!(first <= second && second <= third, "{first} {second} {third}");
    assert!(third - first < 60_000_000, "{first} {third}");
    assert!(a.stamp.unwrap().epoch.0 >= second, "the epoch did not begin with the first beat");
}

//! Reads of sessions, instances, owners and leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::model::{EndpointId, SESSION_MAX_BYTES, Weight};
use leasehold::store::{RawSession, Store};

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::world::{TIMEOUT, TTL, World};

fn session_names_of(store: &dyn Store) -> BTreeSet<String> {
    let (mut found, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let page = store.session_names(cursor, TIMEOUT).unwrap();
        found.extend(page.found);
        cursor = page.cursor;
        if cursor == 0 {
            return found;
        }
    }
}

/// Every session that can be one, as found.
pub fn sessions_of(store: &dyn Store) -> BTreeMap<String, RawSession> {
    let names = session_names_of(store);
    let ids: Vec<EndpointId> = names.iter().filter_map(|it| EndpointId::parse(it).ok()).collect();
    let found = store.sessions(&ids, TIMEOUT).unwrap();
    let named = ids.iter().map(EndpointId::to_string).zip(found);
    named.filter_map(|(id, it)| Some((id, it?))).collect()
}

/// FR-009: every session, over as many pages as it takes.
pub fn every_session_is_found(world: &mut dyn World) {
    let store = world.store();
    assert!(session_names_of(&*store).is_empty());
    assert_eq!(store.sessions(&[], TIMEOUT).unwrap(), []);
    assert!(!store.any_session(&[], TIMEOUT).unwrap());
    for n in 0..2_500 {
        world.put_session(&format!("s{n}"), b"{}");
    }
    world.remove_session("s7");
    let found = sessions_of(&*store);
    assert_eq!(found.len(), 2_499);
    assert!(!found.contains_key("s7"));
    let any = |names: &[&str]| {
        let asked: Vec<EndpointId> = names.iter().map(|it| endpoint(it)).collect();
        store.any_session(&asked, TIMEOUT).unwrap()
    };
    assert_eq!([any(&["s7", "nowhere"]), any(&["s7", "s8"])], [false, true]);
}

/// Sessions come from strangers.
pub fn a_session_is_read_as_it_is_unless_too_large(world: &mut dyn World) {
    let fits = vec![b'x'; SESSION_MAX_BYTES];
    world.put_session("binary", b"\xff\x00\r\n$5");
    world.put_session("empty", b"");
    world.put_session("fits", &fits);
    world.put_session("large", &vec![b'x'; SESSION_MAX_BYTES + 1]);
    world.put_session("not an id: é*[", b"{}");
    let store = world.store();
    assert!(session_names_of(&*store).contains("not an id: é*["));
    let found = sessions_of(&*store);
    assert_eq!(found["binary"], RawSession::Value(b"\xff\x00\r\n$5".to_vec()));
    assert_eq!(found["empty"], RawSession::Value(vec![]));
    assert_eq!(found["fits"], RawSession::Value(fits));
    assert_eq!(found["large"], RawSession::TooLarge(SESSION_MAX_BYTES + 1));
    let asked = ["empty", "nowhere"].map(endpoint);
    let found = store.sessions(&asked, TIMEOUT).unwrap();
    assert_eq!(found, [Some(RawSession::Value(vec![])), None], "in the order asked");
}

/// FR-007.
pub fn every_live_instance_is_listed_with_its_weight(world: &mut dyn World) {
    let (mut a, b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    a.answered(|store, context| store.heartbeat(context, TIMEOUT, Weight(4), None));
    assert_eq!(a.live(), [(a.me.clone(), Weight(4)), (b.me.clone(), Weight(1))]);
}

pub fn owners_are_told_in_the_order_asked(world: &mut dyn World) {
    let (mut a, mut b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    let all: Vec<EndpointId> = ["x", "y", "z"].map(endpoint).into();
    a.grant(&all[2]);
    b.grant(&all[0]);
    let owners = a.store.leases(&all, TIMEOUT).unwrap();
    let names: Vec<_> = owners.iter().map(|it| it.as_ref().map(|it| it.value.clone())).collect();
    assert_eq!(names, [Some(b.me.clone()), None, Some(a.me.clone())]);
    assert_eq!(a.store.owners(&all, TIMEOUT).unwrap(), names);
    assert_eq!(a.store.owners(&[], TIMEOUT).unwrap(), []);
    assert_eq!(a.store.leases(&[], TIMEOUT).unwrap(), []);
    for lasting in owners.into_iter().flatten() {
        assert!(lasting.left <= TTL && lasting.left + TIMEOUT >= TTL, "{lasting:?}");
    }
}

/// R9.
pub fn a_lease_that_is_free_or_soon_will_be_is_named(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    let all: Vec<EndpointId> = ["x", "y", "z", "free"].map(endpoint).into();
    all[..3].iter().for_each(|it| drop(a.grant(it)));
    world.set_lease_left(&all[1], Some(Duration::from_secs(9)));
    world.set_lease_left(&all[2], None);
    let expiring = a.store.expiring(&all, Duration::from_secs(10), TIMEOUT).unwrap();
    assert_eq!(expiring, all[1..], "ends soon, never ends, is free");
    assert_eq!(a.store.expiring(&[], TTL, TIMEOUT).unwrap(), []);
}

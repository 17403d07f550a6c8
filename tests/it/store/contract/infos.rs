//! What an instance tells about itself goes with its heartbeat: it lasts as long, ends with it, and spoils none.

use std::time::Duration;

use leasehold::model::{Behind, InstanceInfo, PollingInfo, Weight};
use leasehold::store::HeartbeatReply;

use crate::store::contract::asker::{Asker, endpoint};
use crate::store::contract::world::{TIMEOUT, TTL, World};

/// Every field has a value of its own.
pub fn info(endpoints: usize) -> InstanceInfo {
    let behind = Behind {
        endpoints,
        period: Duration::from_secs(15),
        interval: Duration::from_secs(5),
        worst: Some(endpoint("e17")),
    };
    let polling = PollingInfo {
        workers: 48,
        busy: 47,
        threads: 46,
        slow: 5,
        polls_per_min: 6_000,
        skipped_per_min: 700,
        deferred_per_min: 80,
        lag: Duration::from_millis(9_100),
        behind: (endpoints > 0).then_some(behind),
        slow_behind: 10,
    };
    let (version, started_at_ms) = ("1.2.3".into(), Some(1_700_000_000_123));
    let (protocol, polling, beats) = (1, Some(polling), None);
    InstanceInfo { version, protocol, started_at_ms, beats, polling }
}

pub fn tells(a: &mut Asker, info: &InstanceInfo, ttl: Duration) -> HeartbeatReply {
    a.answered(|store, context| store.heartbeat(context, ttl, Weight(1), Some(info)))
}

pub fn what_an_instance_tells_lasts_as_long_as_its_heartbeat(world: &mut dyn World) {
    let mut a = Asker::alive(world, "a");
    assert_eq!(world.info(&a.me), None, "an older version tells nothing");
    tells(&mut a, &info(1_900), TTL);
    assert_eq!(world.info(&a.me), Some(info(1_900)));
    let short = Duration::from_millis(150);
    tells(&mut a, &info(0), short);
    assert_eq!(world.info(&a.me), Some(info(0)), "nothing is left from before");
    world.pass(short);
    assert_eq!((world.info(&a.me), a.live().len()), (None, 0));
    let mut unpolling = info(0);
    unpolling.polling = None;
    tells(&mut a, &unpolling, TTL);
    assert_eq!(world.info(&a.me), Some(unpolling));
}

pub fn what_an_instance_tells_goes_with_its_heartbeat(world: &mut dyn World) {
    let (mut a, b) = (Asker::alive(world, "a"), Asker::alive(world, "b"));
    tells(&mut a, &info(1), TTL);
    a.withdraw();
    assert_eq!(world.info(&a.me), None, "withdrawn");
    let late = a.late_ask();
    assert_eq!(a.store.heartbeat(&late, TTL, Weight(1), Some(&info(1))).unwrap().answer, None);
    assert_eq!(world.info(&a.me), None, "a late heartbeat");
    tells(&mut a, &info(1), TTL);
    assert_eq!(b.store.revoke(&a.me, false, TIMEOUT).unwrap(), None, "it has a heartbeat");
    assert!(world.info(&a.me).is_some());
    assert_eq!(b.store.revoke(&a.me, true, TIMEOUT).unwrap(), Some(0));
    assert_eq!(world.info(&a.me), None, "released");
    tells(&mut a, &info(1), TTL);
    world.delete_node(&a.me);
    assert_eq!(b.store.revoke(&a.me, false, TIMEOUT).unwrap(), Some(0));
    assert_eq!(world.info(&a.me), None, "released without a heartbeat");
}

//! A permit for tests outside this crate, where no ownership table issues one.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::lease::heartbeat_deadline::HeartbeatDeadline;
use crate::lease::permit::{Lease, PollPermit, SharedClock};
use crate::model::{EndpointId, Epoch, FenceToken, InstanceId, LeaseDuration, Tenure};

/// A permit that holds for an hour, and what ends it the way a lost lease does.
pub fn permit_for_tests(
    endpoint: &str,
    instance: &str,
    fence: u64,
) -> (PollPermit, impl FnOnce() + Send + 'static) {
    let (permit, lease) = permit_and_lease(endpoint, instance, fence);
    let revoke = move || {
        lease.state.lock().ended = true;
        lease.stop_poll();
    };
    (permit, revoke)
}

pub(crate) fn permit_and_lease(
    endpoint: &str,
    instance: &str,
    fence: u64,
) -> (PollPermit, Arc<Lease>) {
    let hour = Duration::from_secs(3_600);
    let now = BootClock.now();
    let heartbeat_deadline = Arc::new(HeartbeatDeadline::default());
    heartbeat_deadline.confirm(now, now, LeaseDuration::new(hour), (true, Epoch(1)));
    let endpoint = EndpointId::parse(endpoint).expect("a valid endpoint id");
    let tenure = Tenure::new(endpoint, FenceToken(fence));
    let lease = Arc::new(Lease::new(
        tenure,
        (&heartbeat_deadline, heartbeat_deadline.generation()),
        now,
        now + hour,
        now + hour,
    ));
    let clock = SharedClock(Arc::new(BootClock));
    let permit = PollPermit::issue(&lease, &InstanceId::new(instance), &clock)
        .expect("a lease granted just now may be polled");
    (permit, lease)
}

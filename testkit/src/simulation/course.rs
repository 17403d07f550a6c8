//! The course of a seed: the faults, and then the checks at rest. Everything is owned and in balance, no lease moves, and an
//! instance that joins, leaves or dies moves no more leases than it must.

use std::rc::Rc;
use std::time::Duration;

use leasehold::config::Config;
use leasehold::model::LeaseDuration;

use super::Outcome;
use super::faults::{self, HOSTS, Wanted};
use super::member::{LinkState, Member, Part};
use super::world::{World, nanos};

/// How long a fleet at rest is watched.
const STILL_FOR: Duration = Duration::from_secs(60);
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Plays everything.
pub fn run(world: &Rc<World>, outcome: &mut Outcome) {
    let scene = world.scene.clone();
    world.faults.put_sessions(world);
    for host in 0..scene.instances {
        faults::start(world, host);
        world.pass(Duration::from_millis(world.dice.skewed(5_000)));
    }
    if world.dice.permille(500) {
        world.pass(scene.hold_off() + Duration::from_secs(3));
    }
    world.faults.begin(world);
    world.pass(scene.faults_for);
    world.faults.end(world);
    // What was sent before and is executed late is a fault, too: the last one.
    let late = world.faults.late_until.get().saturating_sub(world.now());
    world.pass(Duration::from_nanos(late));
    settle(world, outcome);
    check_rest(world);
    check_join(world);
    check_unable_member(world);
    check_leave(world);
    check_loss(world);
}

/// Bounds, by the times of the scene.
fn owned_within(world: &World) -> Duration {
    2 * world.scene.hold_off() + Duration::from_secs(10)
}

/// Where nobody knows the TTL of a role, its hold-off is that of the default.
fn led_within(world: &World) -> Duration {
    let default = LeaseDuration::new(Config::default().lease_ttl);
    owned_within(world).max(default.hold_off() + Duration::from_secs(10))
}

/// An instance that missed a message without knowing it may have a stale view until its next resync.
fn settled_within(world: &World) -> Duration {
    let within = 4 * world.scene.hold_off() + Duration::from_secs(120);
    if !world.faults.ever_lost_messages.get() {
        return within;
    }
    let instances = u32::try_from(world.living().len()).unwrap_or(1);
    within.max((Duration::from_secs(90) * instances).max(Duration::from_secs(300)) * 3 / 2)
}

/// Until it has been in order for the life of a lease: what went wrong before may still take effect.
fn settle(world: &World, outcome: &mut Outcome) {
    let from = world.now();
    let since = || Duration::from_nanos(world.now() - from);
    let quiet = world.scene.timings.lease.ttl + Duration::from_secs(2);
    while world.failure().is_none() && since() < outcome.settled_after + quiet {
        if let Err(why) = unowned(world) {
            outcome.owned_after = since();
            if since() > owned_within(world) {
                world.fail(format!("liveness: after {:?} {why}", since()));
            }
        }
        if let Err(why) = unled(world)
            && since() > led_within(world)
        {
            world.fail(format!("liveness: after {:?} {why}", since()));
        }
        if let Err(why) = unsettled(world) {
            outcome.settled_after = since();
            if since() > settled_within(world) {
                tell_errors(world);
                world.fail(format!("G5: after {:?} {why}", since()));
            }
        }
        world.pass(CHECK_INTERVAL);
    }
    let percent =
        outcome.settled_after.as_millis() * 100 / world.scene.timings.lease.ttl.as_millis();
    outcome.settled_percent = u64::try_from(percent).unwrap_or(0);
}

/// Everything that is to be polled may be, or is handed over right now; nothing else is held.
fn unowned(world: &World) -> Result<(), String> {
    let living = world.living();
    for (n, endpoint) in world.endpoints.iter().enumerate() {
        let wanted = world.faults.wanted.borrow()[n] == Wanted::Polled;
        let may = living.iter().filter(|it| it.table.may_poll(endpoint)).count();
        let is_draining =
            |it: &Rc<Member>| it.table.holding(endpoint).is_some_and(|it| it.draining);
        let is_handed_over = wanted && may == 0 && living.iter().any(is_draining);
        if wanted != (may > 0) && !is_handed_over {
            let owner = world.server.owner(endpoint);
            return Err(format!("{endpoint} may be polled by {may}, in the store {owner:?}"));
        }
    }
    Ok(())
}

/// Every role is led.
fn unled(world: &World) -> Result<(), String> {
    let living = world.living();
    for role in 0..world.scene.roles {
        let leads =
            |it: &Rc<Member>| it.stages.electors.borrow().as_ref().map_or(0, |it| it.leads());
        if !living.iter().any(|it| leads(it) & (1 << role) != 0) {
            return Err(format!("nobody leads r{role}"));
        }
    }
    Ok(())
}

fn weight_of(world: &World, member: &Member) -> u32 {
    let host = HOSTS.iter().position(|it| member.name.starts_with(it)).unwrap_or(0);
    if world.faults.drained.borrow()[host] { 0 } else { member.weight }
}

fn polled(world: &World) -> usize {
    world.faults.wanted.borrow().iter().filter(|it| **it == Wanted::Polled).count()
}

/// G5: within one of the fair share.
fn unsettled(world: &World) -> Result<(), String> {
    unowned(world)?;
    unled(world)?;
    let living = world.living();
    let total: u32 = living.iter().map(|it| weight_of(world, it)).sum();
    for member in &living {
        if member.is_stopping() {
            return Err(format!("{} is stopping", member.name));
        }
        let share =
            polled(world) as f64 * f64::from(weight_of(world, member)) / f64::from(total.max(1));
        let held = member.table.len();
        if (held as f64 - share).abs() >= 1.0 {
            return Err(format!("{} holds {held}, its share is {share:.2}", member.name));
        }
    }
    Ok(())
}

/// A fleet that is out of balance mostly has an instance with a stale view: shows where each view is wrong.
fn tell_errors(world: &World) {
    let living = world.living();
    for member in &living {
        for error in member.errors(world, &living) {
            world.trace.say(world.now(), || format!("--- {} believes {error}", member.name));
        }
    }
}

/// Who owns each endpoint.
fn owners(world: &World) -> Vec<Option<usize>> {
    let living = world.living();
    let owner = |it| living.iter().find(|member| member.table.may_poll(it)).map(|it| it.n);
    world.endpoints.iter().map(owner).collect()
}

/// G6: at rest nothing moves, and everything is polled.
fn check_rest(world: &World) {
    if world.failure().is_some() {
        return;
    }
    let grants = world.server.acquires().1;
    let before = owners(world);
    world.pass(STILL_FOR.max(world.scene.poll_interval + Duration::from_secs(10)));
    if world.server.acquires().1 != grants || owners(world) != before {
        let n = world.server.acquires().1 - grants;
        world.fail(format!("G6: {n} leases moved within {STILL_FOR:?} of rest"));
    }
    check_polled(world, |_| true);
}

/// Each of these endpoints was polled when it should have been.
fn check_polled(world: &World, of: impl Fn(usize) -> bool) {
    // Where the server's clock went back, stored results are from the future: an endpoint that changes hands waits for
    // one interval more.
    let intervals = if world.scene.clock_goes_back { 2 } else { 1 };
    let late = nanos(intervals * world.scene.poll_interval + Duration::from_secs(5));
    for (n, at) in world.judge.polled_at.borrow().iter().enumerate() {
        let wanted = world.faults.wanted.borrow()[n] == Wanted::Polled;
        if wanted && of(n) && at + late < world.now() {
            let ago = Duration::from_nanos(world.now() - at);
            world.fail(format!("liveness: e{n} was last polled {ago:?} ago"));
        }
    }
}

/// G6: a newcomer gets its share, and no more moves than that takes.
fn check_join(world: &World) {
    if world.failure().is_some() {
        return;
    }
    let before = owners(world);
    let held: Vec<(f64, usize)> =
        world.living().iter().map(|it| (f64::from(weight_of(world, it)), it.table.len())).collect();
    let take_backs = world.judge.take_backs.get();
    Member::start(world, "z", 1_000_000, 1);
    if let Some(newcomer) = world.members.borrow().last() {
        let timeout = world.scene.timings.store_timeout.as_millis();
        newcomer.link.far_ms.set(world.scene.far_ms.min(u64::try_from(timeout / 4).unwrap_or(0)));
    }
    let mut waited = Duration::ZERO;
    while let Err(why) = unsettled(world) {
        world.pass(CHECK_INTERVAL);
        waited += CHECK_INTERVAL;
        if waited > Duration::from_secs(30) || world.failure().is_some() {
            tell_errors(world);
            return world.fail(format!("G5: {waited:?} after a join {why}"));
        }
    }
    world.pass(Duration::from_secs(10));
    let after = owners(world);
    let moved = before.iter().zip(&after).filter(|it| it.0 != it.1).count();
    let least = least_moves(&held, polled(world));
    if moved != least {
        world.fail(format!("G6: a newcomer moved {moved} leases, {least} were enough"));
    }
    let taken_back = world.judge.take_backs.get() - take_backs;
    if taken_back > 0 {
        world
            .fail(format!("G6: {taken_back} leases went back from a newcomer that asked for them"));
    }
}

/// The host of one that can ask for leases and roles and cannot take them.
pub const UNABLE: &str = "y";

/// G6: one that can ask and cannot take gets each lease of its share a few times and no more, and all are polled.
fn check_unable_member(world: &World) {
    if world.failure().is_some() || !world.scene.half_able {
        return;
    }
    let take_backs = world.judge.take_backs.get();
    let n = world.members.borrow().len();
    for server in [&world.server, &world.roles] {
        server.refuse_acquires(&format!("y-{n}-0"), true);
    }
    let (_, elected) = world.roles.acquires();
    Member::start(world, UNABLE, 1_000_000, 1);
    world.pass(Duration::from_secs(80));
    // The same for a candidate with the highest priority: every role is given up for it two or three times in these 80 s.
    // Each time another instance is elected, and gives way to the next highest priority.
    let elections = world.roles.acquires().1 - elected;
    if elections > 6 * world.scene.roles {
        world.fail(format!("{elections} elections because of one that cannot be elected"));
    }
    let taken_back = world.judge.take_backs.get() - take_backs;
    // Once at the start and once after 30 s; another owner may have to find out, too.
    let takers = world.living().iter().filter(|it| weight_of(world, it) > 0).count();
    let most = 4 * polled(world).div_ceil(takers);
    if taken_back > most {
        world.fail(format!("G6: {taken_back} leases went to one that cannot take them, and back"));
    }
    check_polled(world, |_| true);
    world.member(n).gone.set(true);
    let timings = &world.scene.timings;
    world.pass(timings.heartbeat.ttl + timings.lease.ttl);
}

/// The host of one that joins and stops.
const LEAVER: &str = "x";

/// R11, G4: one joins and stops. Every poll of its life is published, it leaves no lease behind, and the others have
/// what it had long before its leases would have ended.
fn check_leave(world: &World) {
    if world.failure().is_some() {
        return;
    }
    Member::start(world, LEAVER, 1_000_000, 1);
    let wait_for = |limit: Duration, why: &dyn Fn() -> Option<String>| {
        let until = world.now() + nanos(limit);
        while let Some(why) = why().filter(|_| world.failure().is_none()) {
            if world.now() > until {
                return world.fail(format!("R11: after {limit:?} {why}"));
            }
            world.pass(CHECK_INTERVAL);
        }
    };
    let Some(leaver) = world.members.borrow().last().cloned() else { return };
    wait_for(Duration::from_secs(30), &|| unsettled(world).err());
    // Long enough that it polls.
    world.pass(Duration::from_secs(5).max(world.scene.poll_interval / 2));
    let name = leaver.name.clone();
    leaver.wake(world, Part::Stop, 0);
    wait_for(Duration::from_secs(10), &|| {
        (!leaver.gone.get()).then(|| format!("{name} has not stopped"))
    });
    if world.failure().is_some() {
        return;
    }
    if let Some(it) = world
        .endpoints
        .iter()
        .find(|it| world.server.owner(it).as_ref() == Some(leaver.table.instance()))
    {
        world.fail(format!("R11: {name} has stopped, and {it} is still its"));
    }
    let (completed, announced) =
        (leaver.observed.completed.get(), world.judge.announced_by(leaver.table.instance()));
    if completed != announced {
        world.fail(format!(
            "R11: {name} polled {completed} times, and {announced} results were announced"
        ));
    }
    // An instance without pushes finds a free lease with its next resync, as after a crash.
    let timings = &world.scene.timings;
    let heard = world.scene.delivers_messages
        && world.scene.delivers_changes
        && !world.faults.ever_lost_messages.get();
    let within = if heard {
        Duration::from_secs(3)
    } else {
        timings.heartbeat.ttl + Duration::from_secs(30)
    };
    wait_for(within, &|| unowned(world).err());
}

/// The number of leases that must move when an instance of weight 1 joins instances with these weights and counts.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
fn least_moves(held: &[(f64, usize)], endpoints: usize) -> usize {
    let total: f64 = held.iter().map(|it| it.0).sum::<f64>() + 1.0;
    let share = |weight: f64| endpoints as f64 * weight / total;
    let floor = |weight: f64| (share(weight) + 1e-9).floor() as usize;
    let is_whole = |weight: f64| (share(weight) - share(weight).round()).abs() < 1e-9;
    let floors: usize = held.iter().map(|it| floor(it.0)).sum::<usize>() + floor(1.0);
    let over: usize = held.iter().map(|it| it.1.saturating_sub(floor(it.0))).sum();
    let kept = held.iter().filter(|it| it.1 > floor(it.0) && !is_whole(it.0)).count();
    over - kept.min(endpoints - floors)
}

/// G4, G7: one dies, is cut off or freezes; the others do not notice, and have what it had when its time is up.
fn check_loss(world: &World) {
    let living = world.living();
    let takes = |it: &&Rc<Member>| weight_of(world, it) > 0;
    if world.failure().is_some() || living.iter().filter(takes).count() < 2 {
        return;
    }
    let takers: Vec<Rc<Member>> = living.iter().filter(takes).cloned().collect();
    let lost = Rc::clone(world.dice.pick(&takers));
    let before = owners(world);
    let how = world.dice.below(3);
    let name = &lost.name;
    world.trace.say(world.now(), || format!("--- {name} is lost ({how})"));
    match how {
        0 => lost.gone.set(true),
        1 => lost.link.state.set(LinkState::Cut),
        _ => lost.pause.frozen_until.set(u64::MAX / 2),
    }
    if how == 0 {
        lost.observed.running.borrow_mut().clear();
    }
    let timings = &world.scene.timings;
    let life = timings.lease.ttl.min(timings.heartbeat.ttl);
    // By the slowest clock, and a moment to see it.
    let mut limit = world.now() + nanos(life * 104 / 100 + Duration::from_secs(3));
    // A small step of the server's clock may be noticed long after it, by an answer that was quick.
    let mut may_hold_off = world.faults.stepped_at.get() > 0;
    let free = |n: usize| before[n] == Some(lost.n);
    let orphaned = |n: &usize| {
        world.faults.wanted.borrow()[*n] == Wanted::Polled
            && !living.iter().any(|it| it.n != lost.n && it.table.may_poll(&world.endpoints[*n]))
    };
    while let Some(n) = (0..world.endpoints.len()).find(orphaned) {
        if may_hold_off && living.iter().any(|it| it.n != lost.n && it.table.hold_off().is_some()) {
            may_hold_off = false;
            limit += nanos(world.scene.hold_off() * 104 / 100);
        }
        if world.now() > limit || world.failure().is_some() {
            return world.fail(format!("G4: e{n} is nobody's {life:?} after {name} was lost"));
        }
        world.pass(CHECK_INTERVAL);
        check_polled(world, |n| !free(n));
    }
    if how != 0 {
        world.fail_unless_paused(&lost);
    }
}

impl World {
    /// G3: cut off or asleep for that long it may poll nothing.
    fn fail_unless_paused(&self, member: &Member) {
        if let Some(it) = self.endpoints.iter().find(|it| member.table.may_start_poll(it)) {
            self.fail(format!("G3: {} may poll {it}, out of reach of the store", member.name));
        }
    }
}

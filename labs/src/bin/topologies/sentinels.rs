//! Sentinels replace the master, in time, too early, and while it goes on.

use std::time::{Duration, Instant};

use crate::lab::{DEMOTED, HOLD_OFF, LONG_POLL, Lab, NO_NET, RECOVERY, REPLACED};
use crate::wall::{Cut, halved, ips};
use testkit::lab::net::Net;
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{SOON, TTL, ms};
use testkit::redis::RedisServer;
use testkit::sentinel::{Addresses, Watched};

pub(crate) const SCENES: &[Scenario] = &[
    ("sentinel-kill", "the master is killed", killed),
    ("sentinel-kill-usual", "the same with the default timings: TTL 30 s", killed_usual),
    (
        "sentinel-planned",
        "SENTINEL FAILOVER, while the old master answers for ten seconds",
        planned,
    ),
    ("sentinel-frozen", "the same while an instance is stopped for longer than a lease", frozen),
    (
        "sentinel-behind",
        "SENTINEL FAILOVER to a replica that lacks every renewal of the last 3.5 s; an owner is cut off",
        behind,
    ),
    ("sentinel-lost", "grants that no replica has; the master is killed", lost),
    ("sentinel-lost-min", "the same with --min-replicas 1: nothing is granted", lost_min),
    ("sentinel-hung", "the master hangs, is replaced, and goes on", hung),
    ("sentinel-hung-min", "the same with --min-replicas 1 and min-replicas-to-write 1", hung_min),
    ("sentinel-empty", "the old master comes back with nothing, as a master", comes_back_empty),
    ("sentinel-quick", "the master comes back with nothing before it was missed", quickly_back),
    (
        "sentinel-apart",
        "the master, one instance and one sentinel are cut off; --min-replicas 1 of 2",
        apart,
    ),
    (
        "sentinel-apart-all",
        "the same with a replica; --min-replicas 2 of 2: nobody polls until it is over",
        apart_with_replica,
    ),
    (
        "sentinel-apart-bare",
        "as sentinel-apart, without --min-replicas: two masters, as documented",
        apart_bare,
    ),
];

/// The timings that nobody has to set.
const USUAL: [&str; 5] = [
    "--lease-ttl=30s",
    "--renew-interval=10s",
    "--heartbeat-ttl=30s",
    "--heartbeat-interval=10s",
    "--store-timeout=2s",
];

/// How many leases there are.
const COUNT: &str = "local n = 0 for _, k in ipairs(redis.call('KEYS', 'poll:lease:*')) do \
                     if redis.call('EXISTS', k) == 1 then n = n + 1 end end return n";

/// Longer than any right lasts.
const LONG: Duration = ms(5_500);

/// A master with two replicas.
fn lab<'a>(
    net: Option<&'a Net>,
    options: &[&str],
    args: &[&str],
) -> Result<Lab<'a, Watched>, String> {
    let net = net.ok_or(NO_NET)?;
    let [master, replicas, sentinels] = ips(net);
    let servers = vec![master, replicas.clone(), replicas];
    let sentinels = [sentinels.clone(), sentinels.clone(), sentinels];
    let site = Watched::start_at(&Addresses { servers, sentinels }, options);
    Ok(Lab::new(net, site, args))
}

fn killed(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    lab.fault();
    lab.world.site.servers[0].kill();
    lab.world.site.wait_for_successor(0);
    lab.healed();
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY))
}

/// It is replaced long before a lease ends: everybody puts back what it has.
fn killed_usual(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &USUAL)?;
    lab.fault();
    lab.world.site.servers[0].kill();
    lab.world.site.wait_for_successor(0);
    lab.healed();
    // A call that met the end of the master may take its whole timeout.
    Ok(lab.judge(REPLACED + RECOVERY + ms(2_000)))
}

/// Nobody was without a master, and everybody kept what it had. One that joins knows the new master only.
fn planned(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    lab.fault();
    lab.world.site.sentinels.fail_over();
    lab.world.site.wait_for_successor(0);
    lab.start(0, &[]);
    lab.healed();
    lab.pass(DEMOTED);
    Ok(lab.judge(RECOVERY))
}

/// It wakes up in a time in which the old master is gone, and speaks.
fn frozen(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    lab.fault();
    lab.world.fleet[0].freeze();
    lab.world.site.sentinels.fail_over();
    lab.world.site.wait_for_successor(0);
    lab.pass(LONG);
    let is_master = lab.world.site.is_master(0);
    lab.expect(is_master, "the old master was demoted too soon");
    lab.world.fleet[0].thaw();
    lab.healed();
    lab.pass(LONG);
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY))
}

/// The new master knows of no lease at all, and one of the owners of the new master.
fn behind(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    let cut = unheard(net);
    lab.make_polls_long();
    lab.pass(TTL + ms(500));
    let leases = |it: &RedisServer| it.cli(&["EVAL", COUNT, "0"]);
    let replicas = lab.world.site.servers[1..].iter().map(leases).collect::<String>();
    lab.expect(replicas == "00", format!("the replicas have leases: {replicas}"));
    lab.wait_for_poll_of(0);
    lab.fault();
    for ip in &ips(lab.net) {
        lab.net.rule(0, &["OUTPUT", "-d", ip, "-j", "DROP"]);
        lab.net.rule(0, &["INPUT", "-s", ip, "-j", "DROP"]);
    }
    let began = Instant::now();
    lab.world.site.sentinels.fail_over();
    lab.world.site.wait_for_successor(0);
    println!("sentinel-behind: replaced after {:?}", began.elapsed());
    drop(cut);
    lab.pass(LONG);
    lab.net.heal();
    lab.healed();
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY + LONG_POLL))
}

/// An instance leaves, and a session is added: what follows from that is known to the master alone.
fn move_leases(lab: &mut Lab<'_, Watched>) -> Vec<String> {
    let mut leaver = lab.world.fleet.pop().unwrap();
    let mut moved = lab.world.owners();
    moved.retain(|_, owner| *owner == leaver.id());
    assert!(leaver.term().success());
    lab.world.put_session("added");
    lab.world.endpoints.push("added".into());
    moved.into_keys().chain(["added".into()]).collect()
}

/// No word of the master reaches a replica any more.
fn unheard(net: Option<&Net>) -> Cut {
    let [master, replicas, _] = ips(net.unwrap());
    let mut cut = Cut::default();
    cut.add(&master, &replicas);
    cut
}

/// The master is gone before its replicas could hear what they missed.
fn replace_deaf(lab: &mut Lab<'_, Watched>, cut: Cut) {
    lab.world.site.servers[0].kill();
    lab.world.site.wait_for_successor(0);
    drop(cut);
    // What its application would do: the session is not there, either.
    lab.world.put_session("added");
    lab.healed();
}

fn lost(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    let cut = unheard(net);
    let before = Instant::now();
    let moved = move_leases(&mut lab);
    lab.world.target.wait_for_polls(&moved, before + ms(500), SOON);
    let knows = |server: &RedisServer, id: &str| server.cli(&["GET", &format!("poll:lease:{id}")]);
    let [master, replicas @ ..] = &lab.world.site.servers[..] else { unreachable!() };
    let is_lost = |id: &String| replicas.iter().all(|it| knows(it, id) != knows(master, id));
    let all_lost = moved.iter().all(is_lost);
    lab.expect(all_lost, "no grant was lost");
    lab.fault();
    replace_deaf(&mut lab, cut);
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY))
}

/// So long leases are asked for in vain.
const IN_VAIN: Duration = ms(1_000);

fn lost_min(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &["--min-replicas=1"])?;
    lab.fault();
    let cut = unheard(net);
    let before = Instant::now();
    move_leases(&mut lab);
    lab.pass(IN_VAIN);
    let polled = lab.world.target.polls("added").iter().any(|it| it.start > before);
    lab.expect(!polled, "something was granted that no replica had");
    replace_deaf(&mut lab, cut);
    // The new master needs a replica, too, before anything counts.
    Ok(lab.judge(IN_VAIN + REPLACED + HOLD_OFF + RECOVERY + ms(2_000)))
}

fn hangs(mut lab: Lab<'_, Watched>, bound: Duration) -> Verdict {
    lab.fault();
    lab.world.site.servers[0].pause();
    lab.world.site.wait_for_successor(0);
    lab.healed();
    lab.world.site.servers[0].resume();
    lab.pass(DEMOTED);
    lab.judge(bound)
}

fn hung(net: Option<&Net>) -> Result<Verdict, String> {
    Ok(hangs(lab(net, &[], &[])?, REPLACED + HOLD_OFF + RECOVERY))
}

fn hung_min(net: Option<&Net>) -> Result<Verdict, String> {
    let options = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"];
    let lab = lab(net, &options, &["--min-replicas=1"])?;
    // The new master needs a replica, too, before anything counts.
    Ok(hangs(lab, REPLACED + HOLD_OFF + RECOVERY + ms(2_000)))
}

/// For ten seconds there are two masters, one of which knows nothing.
fn comes_back_empty(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    lab.fault();
    lab.world.site.servers[0].kill();
    lab.world.site.wait_for_successor(0);
    lab.world.site.servers[0].restart_empty();
    lab.healed();
    lab.pass(DEMOTED);
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY))
}

/// Its replicas forget with it; the owners put back what they have.
fn quickly_back(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net, &[], &[])?;
    lab.fault();
    lab.world.site.servers[0].restart_empty();
    for id in &lab.world.endpoints {
        lab.world.put_session(id);
    }
    lab.healed();
    lab.pass(LONG);
    let named = lab.world.site.named();
    lab.expect(named == Some(0), format!("it was replaced by {named:?}"));
    Ok(lab.judge(HOLD_OFF + RECOVERY))
}

/// The servers of `lab`, except that one sentinel is on the master's side, and maybe a replica.
fn torn<'a>(
    net: Option<&'a Net>,
    with_replica: bool,
    args: &[&str],
) -> Result<(Lab<'a, Watched>, Cut), String> {
    let net = net.ok_or(NO_NET)?;
    let [here, there, others] = ips(net);
    let near = if with_replica { here.clone() } else { there.clone() };
    let servers = vec![here.clone(), near, there.clone()];
    let sentinels = [here.clone(), others.clone(), others.clone()];
    let site = Watched::start_at(&Addresses { servers, sentinels }, &[]);
    let mut lab = Lab::new(net, site, args);
    lab.fault();
    let cut = halved(net, &[&here], &[&there, &others]);
    lab.world.site.wait_for_successor(0);
    Ok((lab, cut))
}

/// The network is whole again.
fn mended(net: Option<&Net>, lab: &mut Lab<'_, Watched>, cut: Cut) {
    drop(cut);
    net.unwrap().heal();
    lab.healed();
}

fn apart(net: Option<&Net>) -> Result<Verdict, String> {
    let (mut lab, cut) = torn(net, false, &["--min-replicas=1"])?;
    lab.world.target.wait_for_polls(&lab.world.endpoints, Instant::now(), 2 * SOON);
    lab.pass(LONG);
    mended(net, &mut lab, cut);
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY + ms(2_000)))
}

/// Neither side has as many replicas as are asked for.
fn apart_with_replica(net: Option<&Net>) -> Result<Verdict, String> {
    let (mut lab, cut) = torn(net, true, &["--min-replicas=2"])?;
    lab.pass(LONG);
    let before = Instant::now();
    lab.pass(ms(1_000));
    let polled = lab.world.target.requests().iter().filter(|it| it.start > before).count();
    lab.expect(polled == 0, format!("{polled} polls in the last second before it was over"));
    mended(net, &mut lab, cut);
    // The old master goes on as one for ten seconds before the new one has its second replica.
    Ok(lab.judge(REPLACED + LONG + DEMOTED + HOLD_OFF + RECOVERY))
}

fn apart_bare(net: Option<&Net>) -> Result<Verdict, String> {
    let (mut lab, cut) = torn(net, false, &[])?;
    lab.pass(2 * LONG);
    mended(net, &mut lab, cut);
    Ok(lab.report(REPLACED + HOLD_OFF + RECOVERY))
}

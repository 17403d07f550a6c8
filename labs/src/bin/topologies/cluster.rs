//! Shards of a cluster are replaced, and slots move.

use std::time::Duration;

use crate::lab::{HOLD_OFF, LONG_POLL, Lab, NO_NET, RECOVERY, REPLACED};
use crate::wall::{Cut, halved, ips};
use testkit::lab::net::{Net, REDIS_IP};
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{SOON, TTL, eventually, ms};
use testkit::shards::Shards;

pub(crate) const SCENES: &[Scenario] = &[
    ("cluster-kill", "the master of the home shard is killed", home_killed),
    ("cluster-kill-other", "the master of a shard with sessions is killed", other_killed),
    ("cluster-planned", "CLUSTER FAILOVER of the home shard", planned),
    (
        "cluster-behind",
        "CLUSTER FAILOVER TAKEOVER by a replica that lacks the last 3.5 s; an owner is cut off",
        behind,
    ),
    ("cluster-apart", "the master of the home shard and one instance are cut off", apart),
    (
        "cluster-home-moves",
        "the home slot moves to another shard, for longer than a lease",
        home_moves,
    ),
    ("cluster-sessions-move", "slots with sessions move to other shards", sessions_move),
];

const HOME: &str = "{poll}:epoch";
/// Who has it at the beginning.
const HOME_SHARD: usize = 1;
/// Longer than any right lasts.
const LONG: Duration = ms(5_500);

fn lab(net: Option<&Net>) -> Result<Lab<'_, Shards>, String> {
    let net = net.ok_or(NO_NET)?;
    Ok(Lab::new(net, Shards::start_at([REDIS_IP; 6]), &[]))
}

fn killed(net: Option<&Net>, key: &str) -> Result<Verdict, String> {
    let mut lab = lab(net)?;
    let slot = lab.world.site.slot(key);
    let owner = lab.world.site.owner(slot).unwrap();
    lab.fault();
    lab.world.site.nodes[owner].kill();
    lab.world.site.wait_for_successor(slot, owner);
    lab.healed();
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY))
}

fn home_killed(net: Option<&Net>) -> Result<Verdict, String> {
    killed(net, HOME)
}

/// Meanwhile the whole cluster is down, as it is by default.
fn other_killed(net: Option<&Net>) -> Result<Verdict, String> {
    killed(net, "session:e1")
}

/// Nobody was without a master, and everybody kept what it had.
fn planned(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net)?;
    let slot = lab.world.site.slot(HOME);
    let owner = lab.world.site.owner(slot).unwrap();
    lab.fault();
    assert_eq!(lab.world.site.nodes[owner + 3].cli(&["CLUSTER", "FAILOVER"]), "OK");
    lab.world.site.wait_for_successor(slot, owner);
    lab.healed();
    Ok(lab.judge(RECOVERY))
}

/// The master of the home shard is on one side of a broken network with the machine 0, the rest on the
/// other. One that most of the others do not reach stops by itself.
fn apart(net: Option<&Net>) -> Result<Verdict, String> {
    let net = net.ok_or(NO_NET)?;
    let [here, there, _] = ips(net);
    let mut places = [there.as_str(); 6];
    places[HOME_SHARD] = &here;
    let mut lab = Lab::new(net, Shards::start_at(places), &[]);
    let slot = lab.world.site.slot(HOME);
    assert_eq!(lab.world.site.owner(slot), Some(HOME_SHARD));
    lab.fault();
    let cut = halved(net, &[&here], &[&there]);
    let site = &lab.world.site;
    let named = || site.owner_by(&site.nodes[0], slot).filter(|it| *it != HOME_SHARD);
    eventually(2 * SOON, "another owner", String::new, || named().is_some());
    lab.pass(LONG);
    drop(cut);
    net.heal();
    lab.healed();
    Ok(lab.judge(REPLACED + HOLD_OFF + RECOVERY))
}

/// The new master of the home shard knows of no lease at all, and one of the owners of nobody.
fn behind(net: Option<&Net>) -> Result<Verdict, String> {
    let net = net.ok_or(NO_NET)?;
    let [here, there, _] = ips(net);
    let mut places = [there.as_str(); 6];
    places[HOME_SHARD] = &here;
    let mut lab = Lab::new(net, Shards::start_at(places), &[]);
    let site = &lab.world.site;
    let (slot, port) = (site.slot(HOME), site.nodes[HOME_SHARD].port().to_string());
    let mut cut = Cut::default();
    cut.rule(&["-p", "tcp", "-s", &here, "--sport", &port, "-d", &there]);
    lab.make_polls_long();
    lab.pass(TTL + ms(500));
    lab.wait_for_poll_of(0);
    lab.fault();
    for ip in [&here, &there] {
        net.rule(0, &["OUTPUT", "-d", ip, "-j", "DROP"]);
        net.rule(0, &["INPUT", "-s", ip, "-j", "DROP"]);
    }
    let take_over = ["CLUSTER", "FAILOVER", "TAKEOVER"];
    assert_eq!(lab.world.site.nodes[HOME_SHARD + 3].cli(&take_over), "OK");
    lab.world.site.wait_for_successor(slot, HOME_SHARD);
    drop(cut);
    lab.pass(LONG);
    net.heal();
    lab.healed();
    Ok(lab.judge(HOLD_OFF + RECOVERY + LONG_POLL))
}

/// So long each half of the move takes.
const HALF: Duration = ms(2_000);

/// Nothing is granted, renewed or heard of while it lasts, and then a new life of the store begins.
fn home_moves(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net)?;
    let site = &lab.world.site;
    let slot = site.slot(HOME);
    let from = site.owner(slot).unwrap();
    let to = (from + 1) % 3;
    lab.fault();
    let site = &lab.world.site;
    site.open(slot, from, to);
    lab.pass(HALF);
    site.carry(slot, from, to);
    lab.pass(HALF);
    site.close(slot, to);
    lab.healed();
    Ok(lab.judge(2 * HALF + HOLD_OFF + RECOVERY))
}

/// Nobody notices.
fn sessions_move(net: Option<&Net>) -> Result<Verdict, String> {
    let mut lab = lab(net)?;
    lab.fault();
    for id in &lab.world.endpoints {
        let site = &lab.world.site;
        let slot = site.slot(&format!("session:{id}"));
        let from = site.owner(slot).unwrap();
        let to = (from + 1) % 3;
        site.open(slot, from, to);
        lab.pass(ms(300));
        assert_eq!(site.carry(slot, from, to), 1);
        lab.pass(ms(300));
        site.close(slot, to);
    }
    lab.healed();
    Ok(lab.judge(RECOVERY))
}

//! A replica that lacks what was granted last becomes the master.

use std::time::{Duration, Instant};

use crate::lab::{HOLD_OFF, Lab, RECOVERY, Setup};
use testkit::lab::net::{Net, REDIS_IP};
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{SOON, eventually, ms};
use testkit::proxy::Proxy;
use testkit::redis::RedisServer;
use testkit::sentinel::{Addresses, Sentinels};

pub(crate) const SCENES: &[Scenario] = &[
    ("failover", "a replica that lacks the last grants is promoted, by hand", by_hand),
    ("failover-sentinel", "the same, by three Sentinels that lost the master", by_sentinels),
];

/// How long Sentinels wait for a master: for the grants that are to be lost.
const PATIENCE: Duration = ms(4_000);

/// The master, its replica, and the way that instances go, which leads to whichever it is.
struct Pair<'a> {
    lab: Lab<'a>,
    replica: RedisServer,
    /// Where instances find the master.
    address: Proxy,
    /// The replica, and every process on its side, reaches the master over this proxy.
    link: Proxy,
}

impl<'a> Pair<'a> {
    fn new(net: Option<&'a Net>) -> Self {
        let mut lab = Lab::empty(net, &Setup::default());
        let ip = net.map_or("127.0.0.1", |_| REDIS_IP);
        let address = Proxy::start_on(ip, lab.scene.redis.port());
        let link = Proxy::start(lab.scene.redis.port());
        let replica = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
        let port = link.port().to_string();
        assert_eq!(replica.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        let synced = || replica.cli(&["INFO", "replication"]);
        eventually(SOON, "the replica follows", synced, || synced().contains("link_status:up"));
        lab.populate(&address.url(), &Setup::default());
        Self { lab, replica, address, link }
    }

    /// From here on the replica hears nothing. An instance leaves, and what it had is granted to others;
    /// a session is added, and an instance acquires it.
    fn lose_grants(&mut self) {
        self.link.clog();
        let lab = &mut self.lab;
        let mut leaver = lab.fleet.pop().unwrap();
        let moved = lab.scene.owned_by(&leaver);
        let before = Instant::now();
        assert!(leaver.term().success());
        lab.scene.endpoints.push("added".into());
        lab.scene.put_sessions();
        lab.scene.target.wait_for_polls(&lab.scene.endpoints, before + ms(500), SOON);
        let knows =
            |server: &RedisServer, id: &str| server.cli(&["GET", &format!("poll:lease:{id}")]);
        let lost = moved.iter().all(|it| knows(&self.replica, it) != knows(&lab.scene.redis, it));
        let lost = lost && knows(&self.replica, "added") == "(nil)";
        lab.expect(lost, "no grant was lost");
    }

    /// The master is gone, the replica is one, and instances find it.
    fn replaced(self) -> Verdict {
        let Self { mut lab, replica, address, .. } = self;
        lab.scene.redis.kill();
        address.cut();
        address.lead_to(replica.port());
        address.heal();
        lab.results[0].go_to(&replica.url());
        // What its application would do: the session is not there, either.
        lab.scene.redis = replica;
        lab.scene.put_sessions();
        lab.healed();
        lab.judge(HOLD_OFF + RECOVERY)
    }
}

fn by_hand(net: Option<&Net>) -> Result<Verdict, String> {
    let mut pair = Pair::new(net);
    pair.lose_grants();
    pair.lab.fault();
    pair.lab.scene.redis.kill();
    assert_eq!(pair.replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    Ok(pair.replaced())
}

/// The master grants to its side of a broken network, while Sentinels on the other side replace it.
fn by_sentinels(net: Option<&Net>) -> Result<Verdict, String> {
    let mut pair = Pair::new(net);
    let replica = ("127.0.0.1", pair.replica.port());
    let ips = Addresses::of_loopback(1).sentinels;
    let sentinels = Sentinels::watch(&ips, ("127.0.0.1", pair.link.port()), &[replica], PATIENCE);
    pair.lose_grants();
    let named = || sentinels.named();
    eventually(
        2 * SOON,
        "another master",
        || format!("{:?}", named()),
        || named() == Some(pair.replica.port()),
    );
    let role = || pair.replica.cli(&["ROLE"]);
    eventually(SOON, "its promotion", role, || role().starts_with("master"));
    pair.lab.fault();
    Ok(pair.replaced())
}

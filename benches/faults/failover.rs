//! A replica that lacks what was granted last becomes the master.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Scenario;
use crate::lab::{HOLD_OFF, Lab, Net, RECOVERY, REDIS_IP, Setup, Verdict};
use crate::support::process::{SOON, TempDir, eventually, ms};
use crate::support::proxy::Proxy;
use crate::support::redis::RedisServer;

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
    /// Over which the replica, and whoever is on its side, hears of the master.
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
    /// a session is added, and granted to somebody.
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
        lab.results.go_to(&replica.url());
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
    let sentinels = Sentinels::watch(pair.link.port());
    pair.lose_grants();
    let named = || sentinels.master();
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

/// Three Sentinels, of which two have to agree.
struct Sentinels {
    dir: TempDir,
    children: Vec<Child>,
    ports: Vec<u16>,
}

impl Sentinels {
    fn watch(master: u16) -> Self {
        let dir = TempDir::new();
        let mut all = Self { dir, children: Vec::new(), ports: Vec::new() };
        for n in 0..3 {
            // Bound as long as it takes to know the number.
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let path = all.dir.path().join(format!("sentinel-{n}.conf"));
            let patience = PATIENCE.as_millis();
            let settings = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor it 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds it {patience}\nsentinel failover-timeout it 4000\n",
                all.dir.path().display()
            );
            fs::write(&path, settings).unwrap();
            let mut command = Command::new("redis-server");
            command.arg(&path).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
            all.children.push(command.spawn().unwrap());
            all.ports.push(port);
        }
        // Each knows the replica and the two others.
        let knows = |port: u16| ask(port, &["SENTINEL", "MASTER", "it"]).unwrap_or_default();
        let is_ready = |said: &[String]| {
            let after = |name: &str| said.iter().skip_while(|it| *it != name).nth(1).cloned();
            after("num-slaves") == Some("1".into())
                && after("num-other-sentinels") == Some("2".into())
        };
        let said =
            || all.ports.iter().map(|it| knows(*it).join(" ")).collect::<Vec<_>>().join("\n");
        eventually(2 * SOON, "Sentinels that know each other", said, || {
            all.ports.iter().all(|it| is_ready(&knows(*it)))
        });
        all
    }

    /// The port of whom the first takes for the master.
    fn master(&self) -> Option<u16> {
        ask(self.ports[0], &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "it"])?.get(1)?.parse().ok()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for it in &mut self.children {
            let _ = it.kill();
            let _ = it.wait();
        }
    }
}

fn ask(port: u16, command: &[&str]) -> Option<Vec<String>> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).ok()?;
    let mut connection = client.get_connection_with_timeout(ms(1_000)).ok()?;
    connection.set_read_timeout(Some(ms(1_000))).ok()?;
    redis::cmd(command[0]).arg(&command[1..]).query(&mut connection).ok()
}

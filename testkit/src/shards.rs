//! A cluster: three masters, and a replica of each.

use crate::process::{SOON, eventually};
use crate::redis::{RedisServer, free_port};
use crate::site::Site;

const MASTERS: usize = 3;
const SLOTS: u32 = 16_384;
/// How long nodes wait for one that says nothing.
const PATIENCE_MS: &str = "1000";

pub struct Shards {
    /// The first three were the masters when it began, in the order of their slots; the replica of each
    /// is three places behind it.
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
    ips: [String; 2 * MASTERS],
}

/// Slots as one node has them: first, last, and the port of their master.
type Map = Vec<(u32, u32, u16)>;

impl Shards {
    pub fn start() -> Self {
        Self::start_at(["127.0.0.1"; 2 * MASTERS])
    }

    /// At addresses that others can reach, too.
    pub fn start_at(ips: [&str; 2 * MASTERS]) -> Self {
        let nodes: Vec<RedisServer> = ips.iter().map(|it| start_node(it)).collect();
        let ids = nodes.iter().map(|it| it.cli(&["CLUSTER", "MYID"])).collect();
        let shards = Self { nodes, ids, ips: ips.map(Into::into) };
        shards.introduce();
        for n in 0..MASTERS {
            let replicate = ["CLUSTER", "REPLICATE", &shards.ids[n]];
            assert_eq!(shards.nodes[n + MASTERS].cli(&replicate), "OK");
        }
        let story = || shards.nodes[0].cli(&["CLUSTER", "NODES"]);
        eventually(2 * SOON, "a cluster that is ready", story, || shards.is_ready());
        shards
    }

    /// Everybody gets its slots, and to know the others.
    fn introduce(&self) {
        for (n, node) in self.nodes.iter().enumerate() {
            let epoch = (n + 1).to_string();
            assert_eq!(node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "OK");
            if n < MASTERS {
                let bound = |n: usize| SLOTS * u32::try_from(n).unwrap() / 3;
                let (first, last) = (bound(n).to_string(), (bound(n + 1) - 1).to_string());
                assert_eq!(node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]), "OK");
            }
        }
        let bus = |it: &RedisServer| it.cli(&["CONFIG", "GET", "cluster-port"]);
        for (other, ip) in self.nodes.iter().zip(&self.ips).skip(1) {
            let (port, bus) = (other.port().to_string(), bus(other));
            let bus = bus.lines().last().unwrap();
            let meet = ["CLUSTER", "MEET", ip, &port, bus];
            assert_eq!(self.nodes[0].cli(&meet), "OK");
        }
        let known = |it: &RedisServer| it.cli(&["CLUSTER", "INFO"]);
        let met = |it: &RedisServer| {
            known(it).contains("cluster_known_nodes:6") && known(it).contains("cluster_state:ok")
        };
        let story = || self.nodes.iter().map(known).collect();
        eventually(2 * SOON, "nodes that know each other", story, || self.nodes.iter().all(met));
    }

    fn is_ready(&self) -> bool {
        let linked = |it: &RedisServer| it.cli(&["INFO", "replication"]).contains("link_status:up");
        let complete = |it: &RedisServer| {
            let nodes = it.cli(&["CLUSTER", "NODES"]);
            nodes.matches(" connected").count() == 6 && nodes.matches("slave").count() == MASTERS
        };
        self.nodes[MASTERS..].iter().all(linked) && self.nodes.iter().all(complete)
    }

    fn map(&self, node: &RedisServer) -> Map {
        let nodes = node.cli(&["CLUSTER", "NODES"]);
        let mut map = Map::new();
        for line in nodes.lines().filter(|it| it.contains("master") && !it.contains("fail")) {
            let parts: Vec<&str> = line.split(' ').collect();
            let port = parts[1].split(['@', ':']).nth(1).and_then(|it| it.parse().ok());
            for range in parts.iter().skip(8).filter(|it| !it.starts_with('[')) {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                map.push((first.parse().unwrap(), last.parse().unwrap(), port.unwrap()));
            }
        }
        map
    }

    pub fn slot(&self, key: &str) -> u32 {
        let said = self.nodes.iter().map(|it| it.cli(&["CLUSTER", "KEYSLOT", key]));
        said.filter_map(|it| it.parse().ok()).next().unwrap()
    }

    /// Who has this slot, by its own word.
    pub fn owner(&self, slot: u32) -> Option<usize> {
        (0..self.nodes.len()).find(|it| self.owner_by(&self.nodes[*it], slot) == Some(*it))
    }

    /// Who has this slot, as this node knows.
    pub fn owner_by(&self, node: &RedisServer, slot: u32) -> Option<usize> {
        let map = self.map(node);
        let (_, _, port) = map.into_iter().find(|it| (it.0..=it.1).contains(&slot))?;
        self.nodes.iter().position(|it| it.port() == port)
    }

    pub fn owner_of(&self, key: &str) -> Option<usize> {
        self.owner(self.slot(key))
    }

    /// Waits until this slot has another owner.
    #[track_caller]
    pub fn wait_for_successor(&self, slot: u32, of: usize) -> usize {
        let story = || self.nodes[(of + 1) % 3].cli(&["CLUSTER", "NODES"]);
        let other = || self.owner(slot).filter(|it| *it != of);
        eventually(2 * SOON, "another owner", story, || other().is_some());
        other().unwrap()
    }

    /// Slots begin to move: what is asked for meanwhile is here or there.
    pub fn open(&self, slot: u32, from: usize, to: usize) {
        let slot = slot.to_string();
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]];
        assert_eq!(self.nodes[to].cli(&importing), "OK");
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]];
        assert_eq!(self.nodes[from].cli(&migrating), "OK");
    }

    /// Moves every key of a slot that is open; how many.
    pub fn carry(&self, slot: u32, from: usize, to: usize) -> usize {
        let (slot, port) = (slot.to_string(), self.nodes[to].port().to_string());
        let mut moved = 0;
        loop {
            let keys = self.nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            let keys: Vec<&str> = keys.lines().collect();
            if keys.is_empty() {
                return moved;
            }
            moved += keys.len();
            let migrate = ["MIGRATE", &self.ips[to], &port, "", "0", "5000", "REPLACE", "KEYS"];
            let done = self.nodes[from].cli(&[&migrate[..], &keys].concat());
            assert!(["OK", "NOKEY"].contains(&done.as_str()), "{done}");
        }
    }

    /// Ends a move: from now on it is there.
    pub fn close(&self, slot: u32, to: usize) {
        let slot = slot.to_string();
        // The new owner first, so that nobody is sent to one that does not know.
        for n in std::iter::once(to).chain((0..self.nodes.len()).filter(|it| *it != to)) {
            // Replicas and the dead learn it from the others.
            drop(self.nodes[n].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]));
        }
    }
}

impl Site for Shards {
    fn url(&self) -> String {
        let seeds = self.nodes[..MASTERS].iter().zip(&self.ips);
        let seeds: Vec<String> = seeds.map(|(it, ip)| format!("{ip}:{}", it.port())).collect();
        format!("redis+cluster://{}", seeds.join(","))
    }

    fn prefix(&self) -> &'static str {
        "{poll}"
    }

    fn at(&self, key: &str) -> Option<&RedisServer> {
        self.owner_of(key).map(|it| &self.nodes[it])
    }

    fn servers(&self) -> Vec<&RedisServer> {
        self.nodes.iter().collect()
    }
}

fn start_node(ip: &str) -> RedisServer {
    let bus = free_port().to_string();
    let cluster = [
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        "nodes.conf",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        PATIENCE_MS,
        "--cluster-announce-ip",
        ip,
        "--repl-diskless-sync-delay",
        "0",
    ];
    let place = ["--bind", "127.0.0.1", ip, "--bind-source-addr", ip, "--protected-mode", "no"];
    let place = if ip == "127.0.0.1" { &[][..] } else { &place[..] };
    RedisServer::start_with(&[&cluster, place].concat())
}

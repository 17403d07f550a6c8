//! A master, its replicas, and three sentinels that watch them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{SOON, TempDir, eventually, ms};
use crate::redis::{RedisServer, free_port, program};
use crate::site::Site;

/// What the sentinels call it.
pub const NAME: &str = "it";
/// How long they wait for a master that says nothing.
pub const PATIENCE: Duration = ms(1_000);

/// Where everybody listens, and where from they speak to each other.
#[derive(Clone)]
pub struct Addresses {
    /// The master first.
    pub servers: Vec<String>,
    pub sentinels: [String; 3],
}

impl Addresses {
    pub fn of_loopback(replicas: usize) -> Self {
        let ip = || "127.0.0.1".to_owned();
        Self { servers: vec![ip(); 1 + replicas], sentinels: [ip(), ip(), ip()] }
    }
}

/// Dropped in this order.
pub struct Watched {
    pub sentinels: Sentinels,
    /// The first was the master when it began.
    pub servers: Vec<RedisServer>,
    addresses: Addresses,
}

impl Watched {
    pub fn start(replicas: usize, options: &[&str]) -> Self {
        Self::start_at(&Addresses::of_loopback(replicas), options)
    }

    pub fn start_at(addresses: &Addresses, options: &[&str]) -> Self {
        let ips = &addresses.servers;
        let mut servers = vec![start_server(&ips[0], options)];
        let port = servers[0].port().to_string();
        for ip in &ips[1..] {
            let follow = ["--replicaof", &ips[0], &port];
            servers.push(start_server(ip, &[options, &follow].concat()));
        }
        let story = || servers[0].cli(&["INFO", "replication"]);
        let online = || story().matches("state=online").count() + 1;
        eventually(SOON, "replicas that follow", story, || online() == servers.len());
        let places: Vec<(&str, u16)> =
            ips.iter().zip(&servers).map(|(ip, it)| (ip.as_str(), it.port())).collect();
        let (master, replicas) = places.split_first().unwrap();
        let sentinels = Sentinels::watch(&addresses.sentinels, *master, replicas, PATIENCE);
        Self { sentinels, servers, addresses: addresses.clone() }
    }

    /// Which server most sentinels name; it may be down.
    pub fn named(&self) -> Option<usize> {
        let named = self.sentinels.named()?;
        self.servers.iter().position(|it| it.port() == named)
    }

    /// Waits until the sentinels name another master than this, which is one.
    #[track_caller]
    pub fn wait_for_successor(&self, of: usize) -> usize {
        let story = || format!("{:?}, {:?}", self.named(), self.sentinels.told());
        eventually(2 * SOON, "another master", story, || {
            self.named().is_some_and(|it| it != of && self.is_master(it))
        });
        self.named().unwrap()
    }

    pub fn is_master(&self, n: usize) -> bool {
        self.servers[n].cli(&["ROLE"]).starts_with("master")
    }
}

impl Site for Watched {
    fn url(&self) -> String {
        self.sentinels.url(&self.addresses)
    }

    fn prefix(&self) -> &'static str {
        "poll"
    }

    fn at(&self, _key: &str) -> Option<&RedisServer> {
        self.named().map(|it| &self.servers[it])
    }

    fn servers(&self) -> Vec<&RedisServer> {
        self.servers.iter().collect()
    }
}

fn start_server(ip: &str, options: &[&str]) -> RedisServer {
    let usual = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
    let place = ["--bind", "127.0.0.1", ip, "--bind-source-addr", ip, "--protected-mode", "no"];
    let place = if ip == "127.0.0.1" { &[][..] } else { &place[..] };
    RedisServer::start_with(&[&usual, place, options].concat())
}

/// Three, of which two have to agree.
pub struct Sentinels {
    dir: TempDir,
    children: Vec<Child>,
    ports: Vec<u16>,
}

impl Sentinels {
    /// They know each other from the start, so that nobody has to wait until they have met.
    pub fn watch(
        ips: &[String; 3],
        master: (&str, u16),
        replicas: &[(&str, u16)],
        patience: Duration,
    ) -> Self {
        let ports: Vec<u16> = ips.iter().map(|_| free_port()).collect();
        let mut all = Self { dir: TempDir::new(), children: Vec::new(), ports };
        for n in 0..ips.len() {
            let settings = all.settings(n, ips, master, replicas, patience);
            let path = all.dir.path().join(format!("sentinel-{n}.conf"));
            fs::write(&path, settings).unwrap();
            let mut command = Command::new(program());
            command.arg(&path).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
            all.children.push(command.spawn().unwrap());
        }
        let told = || format!("{:?}", all.told());
        eventually(2 * SOON, "sentinels that are ready", told, || {
            all.ports.iter().all(|it| is_ready(*it, replicas.len()))
        });
        all
    }

    fn settings(
        &self,
        n: usize,
        ips: &[String; 3],
        master: (&str, u16),
        replicas: &[(&str, u16)],
        patience: Duration,
    ) -> String {
        let (dir, port, ip) = (self.dir.path().display(), self.ports[n], &ips[n]);
        let own = if ip == "127.0.0.1" { "" } else { ip };
        let from = if own.is_empty() { String::new() } else { format!("bind-source-addr {ip}\n") };
        let id = |n: usize| format!("{n}").repeat(40);
        let mut text = format!(
            "port {port}\nbind 127.0.0.1 {own}\n{from}protected-mode no\ndir {dir}\n\
             logfile {dir}/sentinel-{n}.log\nsentinel myid {}\n\
             sentinel monitor {NAME} {} {} 2\nsentinel down-after-milliseconds {NAME} {}\n\
             sentinel failover-timeout {NAME} 4000\n",
            id(n + 1),
            master.0,
            master.1,
            patience.as_millis()
        );
        for (ip, port) in replicas {
            text += &format!("sentinel known-replica {NAME} {ip} {port}\n");
        }
        for other in (0..ips.len()).filter(|it| *it != n) {
            let (ip, port, id) = (&ips[other], self.ports[other], id(other + 1));
            text += &format!("sentinel known-sentinel {NAME} {ip} {port} {id}\n");
        }
        text
    }

    /// What instances are told.
    pub fn url(&self, at: &Addresses) -> String {
        let each = at.sentinels.iter().zip(&self.ports);
        let places: Vec<String> = each.map(|(ip, port)| format!("{ip}:{port}")).collect();
        format!("redis+sentinel://{}/{NAME}/0", places.join(","))
    }

    /// The port of whom more than one takes for the master.
    pub fn named(&self) -> Option<u16> {
        let told = self.told();
        told.iter().flatten().copied().find(|it| {
            let same = told.iter().flatten().filter(|other| *other == it);
            same.count() > 1
        })
    }

    fn told(&self) -> Vec<Option<u16>> {
        let one = |port: &u16| {
            ask(*port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?.get(1)?.parse().ok()
        };
        self.ports.iter().map(one).collect()
    }

    /// An order to replace the master although it is well.
    pub fn fail_over(&self) {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.ports[0])).unwrap();
        let mut connection = client.get_connection_with_timeout(ms(1_000)).unwrap();
        redis::cmd("SENTINEL").arg("FAILOVER").arg(NAME).exec(&mut connection).unwrap();
    }

    pub fn pause(&self, n: usize) {
        self.signal(n, Signal::SIGSTOP);
    }

    pub fn resume(&self, n: usize) {
        self.signal(n, Signal::SIGCONT);
    }

    fn signal(&self, n: usize, signal: Signal) {
        let pid = Pid::from_raw(self.children[n].id().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    pub fn kill(&mut self, n: usize) {
        let _ = self.children[n].kill();
        let _ = self.children[n].wait();
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        (0..self.children.len()).for_each(|it| self.kill(it));
    }
}

/// Whether it knows the replicas and the two others, and could replace the master.
fn is_ready(port: u16, replicas: usize) -> bool {
    let said = ask(port, &["SENTINEL", "MASTER", NAME]).unwrap_or_default();
    let after = |name: &str| said.iter().skip_while(|it| *it != name).nth(1).cloned();
    let known = |name: &str, n: usize| after(name) == Some(n.to_string());
    let usable = ask_text(port, &["SENTINEL", "CKQUORUM", NAME]).unwrap_or_default();
    known("num-slaves", replicas)
        && known("num-other-sentinels", 2)
        && usable.contains("3 usable")
        && follow(port) == replicas
}

/// How many replicas it has seen to follow the master.
fn follow(port: u16) -> usize {
    let said: Vec<Vec<String>> = query(port, &["SENTINEL", "REPLICAS", NAME]).unwrap_or_default();
    let is_up =
        |it: &&Vec<String>| it.windows(2).any(|it| it[0] == "master-link-status" && it[1] == "ok");
    said.iter().filter(is_up).count()
}

fn ask(port: u16, command: &[&str]) -> Option<Vec<String>> {
    query(port, command)
}

fn ask_text(port: u16, command: &[&str]) -> Option<String> {
    query(port, command)
}

fn query<T: redis::FromRedisValue>(port: u16, command: &[&str]) -> Option<T> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).ok()?;
    let mut connection = client.get_connection_with_timeout(ms(500)).ok()?;
    connection.set_read_timeout(Some(ms(500))).ok()?;
    redis::cmd(command[0]).arg(&command[1..]).query(&mut connection).ok()
}

//! Machines on a network of their own, whose cables can be pulled.

use std::process::Command;

const VMS: usize = 3;
pub const REDIS_IP: &str = "10.77.0.1";
pub const TARGET_IP: &str = "10.77.0.2";

#[track_caller]
pub fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", command.join(" "));
}

/// Three machines on the switch that all share. Scenes that are played at the same time have their own.
pub struct Net {
    pub lane: usize,
}

impl Net {
    /// Redis, the endpoint, and a switch.
    pub fn switch() {
        let runtime = format!("{REDIS_IP}/24");
        let endpoint = format!("{TARGET_IP}/24");
        run(&["mkdir", "-p", "/run/netns"]);
        run(&["mount", "-t", "tmpfs", "tmpfs", "/run/netns"]);
        run(&["ip", "link", "set", "lo", "up"]);
        run(&["ip", "link", "add", "br0", "type", "bridge"]);
        run(&["ip", "addr", "add", &runtime, "dev", "br0"]);
        run(&["ip", "addr", "add", &endpoint, "dev", "br0"]);
        run(&["ip", "link", "set", "br0", "up"]);
    }

    pub fn build(lane: usize) -> Self {
        let net = Self { lane };
        for n in 0..VMS {
            let (vm, port) = (net.vm(n), net.port(n));
            let ip = format!("10.77.0.{}/24", 10 * (1 + lane) + n);
            run(&["ip", "netns", "add", &vm]);
            run(&[
                "ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &vm,
            ]);
            run(&["ip", "link", "set", &port, "master", "br0", "up"]);
            run(&["ip", "-n", &vm, "addr", "add", &ip, "dev", "eth0"]);
            run(&["ip", "-n", &vm, "link", "set", "eth0", "up"]);
            run(&["ip", "-n", &vm, "link", "set", "lo", "up"]);
        }
        net
    }

    pub fn vm(&self, n: usize) -> String {
        format!("vm{}{n}", self.lane)
    }

    fn port(&self, n: usize) -> String {
        format!("port{}{n}", self.lane)
    }

    /// On the machine `n`.
    #[track_caller]
    pub fn exec(&self, n: usize, command: &[&str]) {
        run(&[&["ip", "netns", "exec", &self.vm(n)], command].concat());
    }

    /// The cable of the machine `n`, at the switch.
    pub fn link(&self, n: usize, up: bool) {
        run(&["ip", "link", "set", &self.port(n), if up { "up" } else { "down" }]);
    }

    /// A rule of the machine `n`'s packet filter.
    pub fn rule(&self, n: usize, rule: &[&str]) {
        self.exec(n, &[&["iptables", "-A"], rule].concat());
    }

    pub fn heal(&self) {
        for n in 0..VMS {
            self.exec(n, &["iptables", "-F"]);
            // There is mostly none to delete.
            let (vm, tc) = (self.vm(n), ["tc", "qdisc", "del", "dev", "eth0", "root"]);
            drop(Command::new("ip").args(["netns", "exec", &vm]).args(tc).output());
            self.link(n, true);
        }
    }
}

//! Machines of the lab: network namespaces on one switch, with Redis and the endpoints on the other side of the switch.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::lab::net::{Net, REDIS_IP, run};

/// Machines get addresses of their own, so that nothing remembers an earlier machine at the same address.
const MACHINES_NET: &str = "10.77.255.254/16";
const PER_BLOCK: usize = 250;
/// A bridge without an address of its own takes the lowest one of its ports, and so changes it when a machine comes or goes. What
/// the other machines send then goes to nobody, until they ask for the new address.
const SWITCH_MAC: &str = "02:00:00:00:00:01";

/// Builds the switch. Once, before the first machine.
pub(crate) fn switch() {
    Net::switch();
    run(&["ip", "link", "set", "br0", "address", SWITCH_MAC]);
    run(&["ip", "addr", "add", MACHINES_NET, "dev", "br0"]);
}

/// One machine. Dropping it deletes its cable and its namespace: what its kernel would still send reaches nobody.
pub(crate) struct Machine {
    name: String,
    port: String,
}

impl Machine {
    pub(crate) fn boot() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let machine = Self { name: format!("m{n}"), port: format!("port{n}") };
        let ip = format!("10.77.{}.{}/16", 1 + n / PER_BLOCK, 1 + n % PER_BLOCK);
        let (vm, port) = (machine.name.as_str(), machine.port.as_str());
        run(&["ip", "netns", "add", vm]);
        run(&["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", vm]);
        run(&["ip", "link", "set", port, "master", "br0", "up"]);
        run(&["ip", "-n", vm, "addr", "add", &ip, "dev", "eth0"]);
        run(&["ip", "-n", vm, "link", "set", "eth0", "up"]);
        run(&["ip", "-n", vm, "link", "set", "lo", "up"]);
        machine
    }

    /// A command that runs on this machine.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Pulls the cable, at the switch.
    pub(crate) fn unplug(&self) {
        run(&["ip", "link", "set", &self.port, "down"]);
    }

    /// Drops every packet to and from Redis. The endpoints can still be reached.
    pub(crate) fn cut_off_redis(&self) {
        self.filter(&["-A", "OUTPUT", "-d", REDIS_IP, "-j", "DROP"]);
        self.filter(&["-A", "INPUT", "-s", REDIS_IP, "-j", "DROP"]);
    }

    /// Loses 30 % of the packets in each direction.
    pub(crate) fn lose_packets(&self) {
        let some = ["-m", "statistic", "--mode", "random", "--probability", "0.3", "-j", "DROP"];
        for chain in ["OUTPUT", "INPUT"] {
            self.filter(&[&["-A", chain], &some[..]].concat());
        }
    }

    /// Removes all rules of the packet filter.
    pub(crate) fn heal(&self) {
        self.filter(&["-F"]);
    }

    fn filter(&self, rule: &[&str]) {
        run(&[&["ip", "netns", "exec", &self.name, "iptables", "-w"], rule].concat());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for command in [["link", "del", &self.port], ["netns", "del", &self.name]] {
            drop(Command::new("ip").args(command).output());
        }
    }
}

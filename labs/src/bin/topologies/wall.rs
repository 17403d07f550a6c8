//! Where the servers of a lane are, and walls between them.

use testkit::lab::net::{Net, run};

/// Three places for the servers of a lane.
pub(crate) fn ips(net: &Net) -> [String; 3] {
    let ips = [0, 1, 2].map(|n| format!("10.77.0.{}", 100 + 10 * net.lane + n));
    for ip in &ips {
        run(&["ip", "addr", "replace", &format!("{ip}/24"), "dev", "br0"]);
    }
    ips
}

/// Rules of a packet filter, as long as this lives.
#[derive(Default)]
pub(crate) struct Cut(Vec<Vec<String>>);

impl Cut {
    /// What is sent from one of these to one of those, and back, is dropped.
    fn between(these: &[&str], those: &[&str]) -> Self {
        let mut cut = Self::default();
        for (one, other) in these.iter().flat_map(|one| those.iter().map(move |it| (one, it))) {
            cut.add(one, other);
            cut.add(other, one);
        }
        cut
    }

    /// What one sends to the other is dropped.
    pub(crate) fn add(&mut self, from: &str, to: &str) {
        self.rule(&["-s", from, "-d", to]);
    }

    /// Such packets are dropped.
    pub(crate) fn rule(&mut self, packets: &[&str]) {
        let rule = [&["OUTPUT"], packets, &["-j", "DROP"]].concat();
        run(&[&["iptables", "-A"], &rule[..]].concat());
        self.0.push(rule.into_iter().map(Into::into).collect());
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        for rule in &self.0 {
            let rule: Vec<&str> = rule.iter().map(String::as_str).collect();
            run(&[&["iptables", "-D"], &rule[..]].concat());
        }
    }
}

/// Some are on the old master's side of a broken network, with the machine 0; everybody reaches the endpoint.
pub(crate) fn halved(net: &Net, here: &[&str], there: &[&str]) -> Cut {
    for n in 0..3 {
        for far in if n == 0 { there } else { here } {
            net.rule(n, &["OUTPUT", "-d", far, "-j", "DROP"]);
            net.rule(n, &["INPUT", "-s", far, "-j", "DROP"]);
        }
    }
    Cut::between(here, there)
}

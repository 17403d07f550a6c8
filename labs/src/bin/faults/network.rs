//! The network of one machine fails.

use crate::lab::{LONG, Lab, RECOVERY, Setup, TAKEOVER};
use testkit::lab::net::{Net, REDIS_IP};
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::process::{SOON, TTL, eventually, ms};
use testkit::target::Answer;

pub(crate) const SCENES: &[Scenario] = &[
    ("partition", "a machine's cable is pulled", partition),
    ("partition-redis", "a machine reaches the endpoints, but not Redis", partition_redis),
    ("requests-lost", "what a machine says to Redis is lost", requests_lost),
    ("replies-lost", "what Redis says to a machine is lost", replies_lost),
    ("reset", "every packet to Redis is answered with RST", reset),
    ("unreachable", "the route to Redis is gone (ICMP)", unreachable),
    ("lossy", "a third of a machine's packets is lost", lossy),
    ("slow", "a machine sends 16 kbit/s", slow),
    ("flapping", "a machine's cable is pulled and plugged again and again", flapping),
    ("late-publish", "a machine does not reach Redis for 4 s, a third of a lease", late_publish),
    ("large-lost", "what a machine says to Redis in more than 850 bytes is lost", large_lost),
];

const NO_NET: &str = "needs network namespaces";

/// The machine 0 has a fault for longer than any right lasts, and then none any more.
fn broken(net: Option<&Net>, fault: fn(&Net)) -> Result<Lab<'_>, String> {
    let network = net.ok_or(NO_NET)?;
    let mut lab = Lab::new(net);
    lab.fault();
    fault(network);
    lab.pass(LONG);
    network.heal();
    lab.healed();
    Ok(lab)
}

/// The others have it all when the TTL is over, and nothing of it overlaps.
fn taken_over(net: Option<&Net>, fault: fn(&Net)) -> Result<Verdict, String> {
    Ok(broken(net, fault)?.judge(TAKEOVER))
}

fn partition(net: Option<&Net>) -> Result<Verdict, String> {
    taken_over(net, |net| net.link(0, false))
}

fn partition_redis(net: Option<&Net>) -> Result<Verdict, String> {
    taken_over(net, |net| {
        net.rule(0, &["OUTPUT", "-d", REDIS_IP, "-j", "DROP"]);
        net.rule(0, &["INPUT", "-s", REDIS_IP, "-j", "DROP"]);
    })
}

fn requests_lost(net: Option<&Net>) -> Result<Verdict, String> {
    taken_over(net, |net| net.rule(0, &["OUTPUT", "-d", REDIS_IP, "-j", "DROP"]))
}

fn replies_lost(net: Option<&Net>) -> Result<Verdict, String> {
    taken_over(net, |net| net.rule(0, &["INPUT", "-s", REDIS_IP, "-j", "DROP"]))
}

fn reset(net: Option<&Net>) -> Result<Verdict, String> {
    taken_over(net, |net| {
        let refuse = ["-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"];
        net.rule(0, &[&["OUTPUT", "-d", REDIS_IP], &refuse[..]].concat());
    })
}

fn unreachable(net: Option<&Net>) -> Result<Verdict, String> {
    taken_over(net, |net| {
        let refuse = ["-j", "REJECT", "--reject-with", "icmp-host-unreachable"];
        net.rule(0, &[&["OUTPUT", "-d", REDIS_IP], &refuse[..]].concat());
    })
}

/// Neither alive nor dead: twice what a death may cost, since a renewal may get through and the next not.
fn limping(net: Option<&Net>, fault: fn(&Net)) -> Result<Verdict, String> {
    Ok(broken(net, fault)?.judge(TAKEOVER + TTL))
}

fn lossy(net: Option<&Net>) -> Result<Verdict, String> {
    limping(net, |net| {
        let some = ["-m", "statistic", "--mode", "random", "--probability", "0.33", "-j", "DROP"];
        net.rule(0, &[&["OUTPUT"], &some[..]].concat());
        net.rule(0, &[&["INPUT"], &some[..]].concat());
    })
}

fn slow(net: Option<&Net>) -> Result<Verdict, String> {
    limping(net, |net| {
        let rate = ["tbf", "rate", "16kbit", "burst", "1600", "latency", "2000ms"];
        net.exec(0, &[&["tc", "qdisc", "replace", "dev", "eth0", "root"], &rate[..]].concat());
    })
}

fn flapping(net: Option<&Net>) -> Result<Verdict, String> {
    let network = net.ok_or(NO_NET)?;
    let mut lab = Lab::new(net);
    lab.fault();
    for n in 0..6 {
        network.link(0, n % 2 == 1);
        lab.pass(ms(900));
    }
    network.heal();
    lab.healed();
    Ok(lab.judge(TAKEOVER + TTL))
}

/// G2: what a closed socket owed is retransmitted, and delivered after newer results of the same tenure.
fn late_publish(net: Option<&Net>) -> Result<Verdict, String> {
    const CUT: std::time::Duration = ms(4_000);
    let network = net.ok_or(NO_NET)?;
    let args = [
        "--lease-ttl=12s",
        "--renew-interval=4s",
        "--heartbeat-ttl=12s",
        "--heartbeat-interval=4s",
    ];
    let mut lab = Lab::with(net, &Setup { args: &args, ..Setup::default() });
    lab.fault();
    network.rule(0, &["OUTPUT", "-d", REDIS_IP, "-j", "DROP"]);
    network.rule(0, &["INPUT", "-s", REDIS_IP, "-j", "DROP"]);
    lab.pass(CUT);
    network.heal();
    lab.healed();
    // The pauses between two retransmissions double: the last one that began in time may end as much later.
    lab.pass(CUT);
    Ok(lab.judge(CUT + RECOVERY))
}

/// Renewals get through, and results do not: others poll what this machine had, and it has its share again later.
fn large_lost(net: Option<&Net>) -> Result<Verdict, String> {
    let network = net.ok_or(NO_NET)?;
    let mut lab = Lab::new(net);
    for endpoint in &lab.scene.endpoints {
        lab.scene.target.answer(endpoint, Answer { body: "x".repeat(2_000), ..Answer::default() });
    }
    lab.fault();
    let large = ["-m", "length", "--length", "850:65535", "-j", "DROP"];
    network.rule(0, &[&["OUTPUT", "-d", REDIS_IP], &large[..]].concat());
    let name = format!("{}-", network.vm(0));
    let owned = || lab.scene.owners().values().filter(|it| it.starts_with(&name)).count();
    eventually(SOON, "others have it all", || format!("{:?}", lab.scene.owners()), || owned() == 0);
    // It stays so.
    lab.pass(LONG);
    let (left, said) = (owned(), lab.said(0, "publish.failed"));
    lab.expect(left == 0, format!("it has {left} again, and cannot publish"));
    lab.expect(said == 1, format!("it said publish.failed {said} times"));
    network.heal();
    lab.healed();
    Ok(lab.judge(TAKEOVER + TTL))
}

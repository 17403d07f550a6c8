//! Secrets are exchanged while everything runs.

use std::fs;
use std::net::TcpListener;

use crate::lab::{Lab, NO_NET, RECOVERY};
use testkit::lab::net::{Net, REDIS_IP};
use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::paths::root;
use testkit::process::ms;
use testkit::redis::RedisServer;
use testkit::site::Site;
use testkit::temp_dir::TempDir;

pub(crate) const SCENES: &[Scenario] = &[
    (
        "password",
        "the user's password changes, the file is rewritten, every connection is killed",
        password,
    ),
    (
        "certificate",
        "over TLS, the server gets a certificate of another authority, every connection is killed",
        certificate,
    ),
];

/// One server, and how the fleet gets there.
struct Alone(RedisServer, String);

impl Site for Alone {
    fn url(&self) -> String {
        self.1.clone()
    }

    fn prefix(&self) -> &'static str {
        "poll"
    }

    fn at(&self, _key: &str) -> Option<&RedisServer> {
        Some(&self.0)
    }

    fn servers(&self) -> Vec<&RedisServer> {
        vec![&self.0]
    }
}

fn password(net: Option<&Net>) -> Result<Verdict, String> {
    let net = net.ok_or(NO_NET)?;
    let server =
        RedisServer::start_with(&["--bind", "127.0.0.1", REDIS_IP, "--protected-mode", "no"]);
    let user = |rules: &[&str]| {
        assert_eq!(server.cli(&[&["ACL", "SETUSER", "fleet"], rules].concat()), "OK");
    };
    user(&["on", ">one", "~*", "&*", "+@all"]);
    let dir = TempDir::new();
    let file = dir.path().join("password");
    fs::write(&file, "one\n").unwrap();
    let option = format!("--redis-password-file={}", file.display());
    let url = format!("redis://fleet@{REDIS_IP}:{}/0", server.port());
    let mut lab = Lab::new(net, Alone(server, url), &[&option]);
    lab.fault();
    let redis = &lab.world.site.0;
    // The order that costs nobody a poll: both are right until nobody has the old one any more.
    let user = |rule: &str| assert_eq!(redis.cli(&["ACL", "SETUSER", "fleet", rule]), "OK");
    user(">two");
    fs::write(&file, "two\n").unwrap();
    user("<one");
    for _ in 0..10 {
        redis.cli(&["CLIENT", "KILL", "USER", "fleet"]);
        lab.pass(ms(300));
    }
    lab.healed();
    let refused = lab.world.fleet.iter().map(|it| it.lines(&["WRONGPASS"]).len()).sum::<usize>();
    lab.expect(refused == 0, format!("{refused} times the old password was used"));
    Ok(lab.judge(RECOVERY))
}

fn certificate(net: Option<&Net>) -> Result<Verdict, String> {
    let net = net.ok_or(NO_NET)?;
    let of = |name: &str| format!("{}/tests/it/store/certificates/{name}", root().display());
    // Bound as long as it takes to know the number.
    let port = TcpListener::bind((REDIS_IP, 0)).unwrap().local_addr().unwrap().port().to_string();
    let server = RedisServer::start_with(&[
        "--bind",
        "127.0.0.1",
        REDIS_IP,
        "--protected-mode",
        "no",
        "--tls-port",
        &port,
        "--tls-cert-file",
        &of("server.pem"),
        "--tls-key-file",
        &of("server.key"),
        "--tls-ca-cert-file",
        &of("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let dir = TempDir::new();
    let file = dir.path().join("ca.pem");
    let [old, new] = ["ca.pem", "other-ca.pem"].map(|it| fs::read(of(it)).unwrap());
    fs::write(&file, &old).unwrap();
    let option = format!("--redis-ca={}", file.display());
    let site = Alone(server, format!("rediss://{REDIS_IP}:{port}/0"));
    let mut lab = Lab::new(net, site, &[&option]);
    lab.fault();
    let redis = &lab.world.site.0;
    // The order that costs nobody a poll: both are believed until nobody shows the old one any more.
    fs::write(&file, [old, new.clone()].concat()).unwrap();
    let (cert, key) = (of("other-server.pem"), of("other-server.key"));
    let set = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(redis.cli(&set), "OK");
    fs::write(&file, new).unwrap();
    for _ in 0..10 {
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        lab.pass(ms(300));
    }
    lab.healed();
    let refused = lab.world.fleet.iter().map(|it| it.lines(&["certificate"]).len()).sum::<usize>();
    lab.expect(refused == 0, format!("{refused} times the server was not believed"));
    Ok(lab.judge(RECOVERY))
}

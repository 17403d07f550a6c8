//! Secrets are exchanged while everything runs.

use std::fs;

use crate::lab::{Lab, NO_NET, RECOVERY};
use crate::net::{Net, REDIS_IP};
use crate::play::Scenario;
use crate::support::process::ms;
use crate::support::redis::RedisServer;
use crate::support::site::Site;
use crate::support::temp_dir::TempDir;
use crate::verdict::Verdict;

pub(crate) const SCENES: &[Scenario] = &[(
    "password",
    "the user's password changes, the file is rewritten, every connection is killed",
    password,
)];

/// One server, and the user that the fleet is there.
struct Alone(RedisServer);

impl Site for Alone {
    fn url(&self) -> String {
        format!("redis://fleet@{REDIS_IP}:{}/0", self.0.port())
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
    let mut lab = Lab::new(net, Alone(server), &[&option]);
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

//! Which rights does Leasehold need in Redis, which of them does this user have, and which ACL rule gives the rest?
//!
//! The one list of them: docs/redis.md shows the same text, and a test compares the two.

mod rule;
mod trial;

use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

pub use crate::store::admin::acl::rule::{Purpose, Rule};

use crate::model::{EndpointId, InstanceId};
use crate::store::admin::acl::rule::WRITING;
use crate::store::admin::acl::trial::{NOBODY, Trial, trials};
use crate::store::redis::RedisStore;
use crate::store::redis::script::{self, Call};
use crate::store::redis::server_check;
use crate::store::{Fault, StoreError, StoreResult};

/// What a right is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The commands of the purpose do not work without it: `leasehold run`, unless another is asked about.
    Run,
    /// Roles do not: `lead`, `once`, `run --lead`.
    Roles,
    /// Messages between instances and announcements of results are refused.
    Messages,
    /// Only `status`, `top` and `history` do not, as this user.
    Reading,
    /// Changes are noticed later.
    Pushes,
    /// A killed instance is noticed by its silence, seconds later.
    Failover,
    /// Every call takes a second round, in which the script is sent whole.
    RoundTrips,
    /// A server is busier with leases.
    ServerLoad,
    /// `leasehold history` has nothing to show.
    History,
}

/// A right that the user does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// As it stands in the rule.
    pub right: String,
    /// What showed it.
    pub shown_by: String,
    /// What for.
    pub need: Need,
    /// The server knows no such command, so no rule can give it: renamed, or switched off.
    pub is_unknown: bool,
}

/// What a user may do, as far as it could be found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// What it may not.
    pub missing: Vec<Missing>,
    /// How many rights were looked at.
    pub n_checked: usize,
    /// The server was asked what it would say, and nothing was tried.
    pub by_dry_run: bool,
}

impl Rights {
    /// Whether this user was meant to look only: it may do nothing that changes anything.
    pub fn only_looks(&self) -> bool {
        WRITING.iter().all(|it| self.missing.iter().any(|had| had.right == *it))
    }
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Command,
    KeyOrChannel,
}

/// The refusal of a command that the server does not know.
const UNKNOWN: &str = "to run the command: unknown";

/// Whether this text denies a permission. Only a denial of the command names it as something to run.
fn about(denial: &str) -> About {
    if denial.contains("to run the") { About::Command } else { About::KeyOrChannel }
}

impl RedisStore {
    /// Whom the URL names.
    pub fn user(&self) -> Option<&str> {
        self.server.locator.user()
    }

    /// Who we are for the server; `None` where it does not tell.
    pub fn whoami(&self, timeout: Duration) -> StoreResult<Option<String>> {
        let asked =
            self.refusable("read the user name on", timeout, redis::cmd("ACL").arg("WHOAMI"))?;
        match asked {
            Ok(value) => Ok(redis::from_redis_value(value).ok()),
            // Before a password was given nothing else is answered.
            Err(error) if error.code() == Some("NOAUTH") => {
                Err(self.server.error("log in to", &error))
            }
            Err(_) => Ok(None),
        }
    }

    /// Which of the rights that `rule` gives for `purpose` this user has. Where the server may be asked what it
    /// would say, nothing is tried; elsewhere everything is, on a key of this trial's own that expires.
    pub fn rights(
        &self,
        rule: &Rule,
        purpose: Purpose,
        user: Option<&str>,
        timeout: Duration,
    ) -> StoreResult<Rights> {
        let db = self.server.locator.database().to_string();
        let trials = trials(rule, purpose, &self.server.keys, &db);
        let dry = match user {
            Some(user) => self.may_ask(user, timeout)?.then_some(user),
            None => None,
        };
        let mut rights = Rights { by_dry_run: dry.is_some(), ..Rights::default() };
        let lacks = |rights: &Rights, it: &str| rights.missing.iter().any(|had| had.right == it);
        for trial in trials {
            let verb = format!("+{}", trial.command[0].to_ascii_lowercase());
            let hopeless = trial.right != verb && lacks(&rights, &verb);
            if dry.is_none() && (hopeless || trial.needs_a_string() && lacks(&rights, "+set")) {
                continue; // nothing would be learned, or a key would stay
            }
            rights.n_checked += 1;
            let Some(denial) = self.denial(&trial, dry, timeout)? else { continue };
            // A command that may be run, on a key that may not be touched, is told of by the key's trial.
            let is_command = trial.right.starts_with('+');
            if is_command != (about(&denial) == About::Command) || lacks(&rights, &trial.right) {
                continue;
            }
            let shown_by = trial.command[..trial.command.len().min(4)].join(" ");
            let Trial { right, need, .. } = trial;
            rights.missing.push(Missing { right, shown_by, need, is_unknown: denial == UNKNOWN });
        }
        Ok(rights)
    }

    /// Whether this user may do what an instance must do to take, keep and publish. One that can ask others for leases
    /// and cannot take them would only disturb them, so this is found out before it says that it is there.
    pub(crate) fn try_rights(&self, timeout: Duration) -> StoreResult<()> {
        let keys = &self.server.keys;
        let nobody = InstanceId::new(NOBODY);
        let mut call = Call::default();
        call.key(keys.ask(&nobody, &InstanceId::new(&uuid::Uuid::new_v4().to_string())));
        if let Ok(endpoint) = EndpointId::parse(NOBODY) {
            call.lease_and_record(keys, &endpoint);
        }
        call.key(keys.node(&nobody)).key(keys.grants_key(&nobody));
        call.key(keys.epoch()).key(keys.drain()).key(keys.highest_fence_key());
        let op = "try rights on";
        let denied =
            self.call(op, timeout, |connection| script::RIGHTS.run_once(connection, &call))?;
        let denied: Vec<String> =
            redis::from_redis_value(denied).map_err(|_| self.server.unexpected(op))?;
        if denied.is_empty() {
            return Ok(());
        }
        let reason = format!("the user may not run {}{}", denied.join(", "), server_check::DENIED);
        let target = self.server.shown.clone();
        Err(StoreError { op, target, fault: Fault::Misconfigured, reason })
    }

    fn may_ask(&self, user: &str, timeout: Duration) -> StoreResult<bool> {
        let mut command = redis::cmd("ACL");
        command.arg("DRYRUN").arg(user).arg("PING");
        Ok(self.refusable("ask about rights on", timeout, &command)?.is_ok())
    }

    /// Why it is denied, if it is. Any other refusal shows that it would be allowed.
    fn denial(
        &self,
        trial: &Trial,
        dry: Option<&str>,
        timeout: Duration,
    ) -> StoreResult<Option<String>> {
        let op = "try rights on";
        if let Some(user) = dry {
            let mut command = redis::cmd("ACL");
            command.arg("DRYRUN").arg(user).arg(&trial.command);
            return Ok(match self.refusable(op, timeout, &command)? {
                Ok(Value::Okay) => None,
                Ok(Value::BulkString(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
                Ok(_) => None,
                // The server does not know such a command.
                Err(_) => Some(UNKNOWN.into()),
            });
        }
        let mut command = Cmd::new();
        command.arg(&trial.command);
        // A connection that has subscribed takes no other command any more.
        let answer = match trial.command[0].as_str() {
            "SUBSCRIBE" | "PSUBSCRIBE" => self.connection().refusable(op, timeout, &command)?,
            _ => self.refusable(op, timeout, &command)?,
        };
        Ok(answer.err().and_then(|error| {
            let detail = error.detail().unwrap_or_default();
            // The second is looked at before the rights are: a trial of that kind would show nothing.
            let unknown = detail.starts_with("unknown command")
                || detail.starts_with("wrong number of arguments");
            match error.code() {
                Some("NOPERM") => Some(detail.to_owned()),
                _ if unknown => Some(UNKNOWN.into()),
                _ => None,
            }
        }))
    }

    /// One command, and the server's own refusal as an answer.
    pub(crate) fn refusable(
        &self,
        op: &'static str,
        timeout: Duration,
        command: &Cmd,
    ) -> StoreResult<Result<Value, RedisError>> {
        self.call(op, timeout, |connection| -> RedisResult<Result<Value, RedisError>> {
            match command.query::<Value>(connection) {
                // Only what the server says has a code: not a broken line, nor what is no reply at all.
                Err(error) if error.code().is_none() => Err(error),
                answer => Ok(answer),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::keys::Keys;

    fn rule() -> Rule {
        Rule {
            prefix: "poll".into(),
            session_prefix: "session:".into(),
            leader_prefix: "leader".into(),
            tells_reading: true,
            in_cluster: false,
            waits: false,
        }
    }

    #[test]
    fn the_page_shows_the_same_rules() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md"));
        for purpose in Purpose::ALL {
            let rule = rule().to_paste(purpose, None);
            assert!(page.contains(&format!("\n{rule}\n```")), "docs/redis.md lacks\n{rule}");
        }
    }

    #[test]
    fn the_page_names_what_doctor_may_be_given_beside_a_rule() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md"));
        let [config, whoami, dry_run] = rule::EXAMINING.map(|it| format!("`+{it}`"));
        let sentence = format!("{config}, {whoami} and {dry_run}");
        assert!(page.contains(&sentence), "docs/redis.md lacks {sentence}");
    }

    #[test]
    fn every_line_fits_and_an_odd_name_is_one_word_for_a_shell() {
        let rule = Rule { prefix: "{it's}".into(), tells_reading: false, ..rule() };
        let text = rule.to_paste(Purpose::Daemon, Some("joe doe"));
        assert!(text.lines().all(|it| it.len() <= 100), "{text}");
        assert!(text.starts_with("redis-cli ACL SETUSER 'joe doe' on resetkeys "), "{text}");
        assert!(text.contains("'~{it'\\''s}:*' '~session:*' "), "{text}");
    }

    #[test]
    fn every_right_of_every_rule_is_tried() {
        let keys = Keys::new("poll", "session:");
        for purpose in Purpose::ALL {
            let trials = trials(&rule(), purpose, &keys, "0");
            let commands = rule().commands(purpose).concat();
            let commands = commands.into_iter().map(|it| format!("+{it}"));
            let patterns = rule().patterns(purpose).into_iter().map(|it| it.1);
            for right in commands.chain(patterns) {
                let tried = trials.iter().any(|it| it.right == right);
                assert!(tried, "{right} of {purpose:?} is not tried");
            }
        }
    }

    #[test]
    fn a_denied_command_is_told_from_a_denied_key() {
        for (text, is) in [
            ("this user has no permissions to run the 'get' command", About::Command),
            ("User joe has no permissions to run the 'client|tracking' command", About::Command),
            (
                "this user has no permissions to access one of the keys used as arguments",
                About::KeyOrChannel,
            ),
            ("User joe has no permissions to access the 'poll:epoch' key", About::KeyOrChannel),
            ("User joe has no permissions to access the 'poll:wake' channel", About::KeyOrChannel),
        ] {
            assert_eq!(about(text), is, "{text}");
        }
    }
}

//! Which Redis is asked by a command that was told of none? The one of the service of this host, as its settings file says.
//!
//! What was said comes first: an option, a `--settings` file, a variable. `run` and `agent` are told by their units, and read nothing unasked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cli::args::{Command, Env, is_typed, parse};
use crate::cli::settings::{Found, Settings};
use crate::cli::task::{AuditWhat, Task};
use crate::cli::usage::UsageError;
use crate::cli::warn;
use crate::config::Config;
use crate::config::setting::variable;

/// Where the package and `make install` keep the settings of the service.
const INSTALLED: &str = "/etc/leasehold/leasehold.env";
/// Names another file; empty: none is read unasked. Tests use it.
pub(crate) const VARIABLE: &str = "LEASEHOLD_SERVICE_SETTINGS";

/// Commands that run beside the service and for themselves: they need its Redis, and not its metrics file or its port.
const CONNECT: [&str; 3] = ["lead", "once", "release"];
/// Commands that are told by their unit, or ask no Redis.
const TOLD: [&str; 5] = ["run", "agent", "dev", "man", "completions"];
/// Where Redis is, how to get in, and how the keys are called.
const OF_CONNECTION: [&str; 8] = [
    "redis",
    "redis-password-file",
    "redis-ca",
    "redis-cert",
    "redis-key",
    "prefix",
    "session-prefix",
    "leader-prefix",
];

/// What became of the file of the service.
static OUTCOME: OnceLock<Outcome> = OnceLock::new();

#[derive(Debug)]
enum Outcome {
    Read(PathBuf),
    Denied(PathBuf),
}

/// Understands `args`; what they and the environment leave open is as in the settings of the service, if they may be read.
pub(crate) fn parse_with_service_file(
    args: &[OsString],
    env: Env<'_>,
) -> Result<Command, UsageError> {
    let Some(path) = wanted(args, env) else { return parse(args, env) };
    let settings = match Settings::find(&path).map_err(UsageError::Settings)? {
        Found::Settings(settings) => settings,
        Found::Denied => {
            let _ = OUTCOME.set(Outcome::Denied(path));
            return parse(args, env);
        }
        Found::Nothing => return parse(args, env),
    };
    let connects = args.first().is_some_and(|it| CONNECT.iter().any(|name| it == name));
    let counts = |name: &str| !connects || OF_CONNECTION.iter().any(|it| variable(it) == name);
    let said = |name: &str| env(name).filter(|it| !it.is_empty());
    let mut command =
        parse(args, &|name| said(name).or_else(|| settings.value(name).filter(|_| counts(name))))?;
    if let Command::Task(config, _) = &mut command {
        config.settings = vec![path.clone()];
        let _ = OUTCOME.set(Outcome::Read(path));
    }
    Ok(command)
}

/// The file to read; `None` where something was said about Redis.
fn wanted(args: &[OsString], env: Env<'_>) -> Option<PathBuf> {
    let command = args.first()?;
    let is_told = TOLD.iter().any(|it| command == it) || is_typed(args, "redis")?;
    let is_set = |name: &str| env(&variable(name)).is_some_and(|it| !it.is_empty());
    if is_told || is_set("redis") || is_set("settings") {
        return None;
    }
    let path = env(VARIABLE).map_or_else(|| PathBuf::from(INSTALLED), PathBuf::from);
    Some(path).filter(|it| !it.as_os_str().is_empty())
}

/// Says which Redis is asked, where nobody named it on this command line. Not for `lead` and `once`: they have a log, and cron mails what `once` prints.
pub(crate) fn tell(config: &Config, task: &Task) {
    let asks_nothing = matches!(task, Task::Audit(how) if matches!(how.what, AuditWhat::Replay(_)));
    let is_quiet = asks_nothing || matches!(task, Task::Names { .. });
    if let Some(Outcome::Read(path)) = OUTCOME.get()
        && config.redis != Config::default().redis
        && !is_quiet
    {
        warn(&format!("asking {}, as {} says", config.redis, path.display()));
    }
}

/// For an operator who cannot connect: the settings that this user may not read.
pub(crate) fn hint() -> String {
    let denied = |path: &Path| {
        let path = path.display();
        format!("; the settings of the service are in {path}, and this user may not read them")
    };
    match OUTCOME.get() {
        Some(Outcome::Denied(path)) => denied(path),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_a_unit_tells_read_nothing_unasked() {
        let read = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            wanted(&args, &|name| (name == VARIABLE).then(|| "/x".into()))
        };
        for line in ["run", "agent --socket /s", "dev", "connect --socket /s", "status --redis=r"] {
            assert_eq!(read(line), None, "{line}");
        }
        for line in ["status", "web", "get e1", "lead tea -- true"] {
            assert_eq!(read(line), Some("/x".into()), "{line}");
        }
    }
}

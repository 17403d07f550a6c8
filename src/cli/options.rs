//! The table of all commands and options.
//!
//! Parsing, `--help`, the man page, completions and the names of the environment variables all come from here. `set` stores
//! the value of an option; `crate::config` checks whether the values agree with each other.

mod agent;
mod asking;
mod changing;
mod commands;
mod dev;
mod draft;
mod groups;
mod hidden;
mod instance;
mod lease;
mod polling;
mod roles;
mod server;
mod telling;

use std::ffi::OsStr;

pub(crate) use crate::cli::options::commands::{COMMANDS, NAMES};
pub(crate) use crate::cli::options::draft::Draft;
use crate::cli::service_file;
use crate::cli::usage::nearest;
use crate::config::setting::variable;
use crate::config::value::ValueError;

/// All options, in the order of the help.
static TABLES: [&[Opt]; 11] = [
    asking::OPTIONS,
    server::OPTIONS,
    lease::OPTIONS,
    polling::OPTIONS,
    instance::OPTIONS,
    telling::OPTIONS,
    roles::OPTIONS,
    agent::OPTIONS,
    changing::OPTIONS,
    dev::OPTIONS,
    hidden::OPTIONS,
];

/// Every option of every command, in the order of the help.
pub(crate) fn options() -> impl Iterator<Item = &'static Opt> + Clone {
    TABLES.iter().copied().flatten()
}

/// A command, as `--help` shows it.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
    pub(crate) takes: Takes,
    /// Hidden commands are started by Leasehold itself. They are not listed and ignore the environment.
    pub(crate) hidden: bool,
}

impl Spec {
    /// Whether variables of the environment are options of this command. Not of `dev`, because they may name a fleet in service.
    pub(crate) fn reads_environment(&self) -> bool {
        (!self.hidden || self.name == NAMES) && self.name != "dev"
    }

    /// Whether it starts an instance, which needs all settings checked. The other commands ask the store, or change it.
    pub(crate) fn starts(&self) -> bool {
        matches!(self.name, "run" | "lead" | "once" | "agent")
    }
}

/// The arguments besides the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) words_max: usize,
    /// A program behind `--`.
    pub(crate) program: bool,
}

/// An option: `--name VALUE` and `LEASEHOLD_NAME`.
pub(crate) struct Opt {
    pub(crate) name: &'static str,
    /// The name of the value in the help; `None` for a switch.
    pub(crate) value: Option<&'static str>,
    /// The default, as a value or a phrase; empty if there is none.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) commands: &'static [&'static str],
    pub(crate) set: fn(&mut Draft, &OsStr) -> Result<(), ValueError>,
}

impl Opt {
    /// `LEASEHOLD_LEASE_TTL` for `lease-ttl`.
    pub(crate) fn variable(&self) -> String {
        variable(self.name)
    }

    pub(crate) fn belongs_to(&self, command: &Spec) -> bool {
        self.commands.contains(&command.name)
    }

    /// Whether the environment may give it. The settings of a service have durations of `run`, which are not those of a session.
    pub(crate) fn is_variable_of(&self, command: &Spec) -> bool {
        let is_of_a_session =
            matches!((command.name, self.name), ("sessions", "interval" | "timeout"));
        command.reads_environment() && !is_of_a_session
    }

    /// The help for this command.
    pub(crate) fn help_of(&self, command: &Spec) -> &'static str {
        match (command.name, self.name) {
            ("drain", "force") => "Drain even if no instance is left to take the work.",
            ("sessions", "interval") => "add: the time from one poll of this session to the next.",
            ("sessions", "timeout") => "add: how long one poll of this session may take.",
            ("sessions", "for") => "pause: resume by itself after this time.",
            ("audit", "for") => {
                "How long to audit the live fleet; without it, until SIGINT or SIGTERM. An \
                 endpoint that nobody polls is found after the lease TTL: give it at least twice \
                 that."
            }
            ("audit", "check") => {
                "For monitoring systems: print one line, and audit the last hour unless --since, \
                 --for or --replay says otherwise. Exit code 0: nothing found; 1: nothing found, \
                 but not everything could be observed; 2: something was found; 3: it could not be \
                 audited."
            }
            ("watch" | "audit", "json") => "Print one JSON document per line.",
            ("lead" | "once", "renew-interval") => "How often the role is renewed.",
            ("agent", "renew-interval") => "How often every held lease and role is renewed.",
            ("agent", "drain-timeout") => {
                "How long a stop waits for the clients to finish and to end their connections."
            }
            ("agent", "runtime-dir") => {
                "A directory in which the agent keeps its instance id, for release --runtime-dir. \
                 What a killed agent held is then given back before its TTL: only where every \
                 client looks at its connection before each effect."
            }
            ("release", "runtime-dir") => {
                "The directory in which the dead process kept its instance id."
            }
            _ => self.help,
        }
    }

    /// The default for this command.
    pub(crate) fn default_of(&self, command: &Spec) -> &'static str {
        match (command.name, self.name) {
            ("once", "log-level") => "warn", // cron mails what a command prints
            ("lead" | "once" | "agent", "renew-interval") => "a third of --lease-ttl",
            ("agent", "runtime-dir") => "none",
            ("sessions", "interval" | "timeout" | "for") | ("audit", "for") => "",
            _ => self.default,
        }
    }
}

/// Variables that Leasehold sets for the commands it starts, because such a command may start Leasehold again; and the one that
/// names the settings of the service.
const TOLD: [&str; 5] = [
    "LEASEHOLD_ENDPOINT",
    "LEASEHOLD_FENCE",
    "LEASEHOLD_ROLE",
    "LEASEHOLD_TERM",
    service_file::VARIABLE,
];

/// `Some` if a variable begins with `LEASEHOLD_` and belongs to no option; inside, the variable that was probably meant.
pub(crate) fn is_stranger(variable: &str) -> Option<Option<String>> {
    let is_ours = |it: &&'static Opt| {
        COMMANDS.iter().any(|command| !command.hidden && it.belongs_to(command))
    };
    let upper = variable.to_ascii_uppercase();
    let name = upper.strip_prefix("LEASEHOLD_")?.to_ascii_lowercase().replace('_', "-");
    let mut ours = options().filter(is_ours);
    if TOLD.contains(&variable) || ours.any(|it| it.variable() == variable) {
        return None;
    }
    let meant = nearest(&name, options().filter(is_ours).map(|it| it.name));
    let meant = options().find(|it| Some(it.name) == meant);
    Some(meant.map(Opt::variable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_defaults_that_help_shows_are_the_defaults() {
        for opt in options() {
            let worded = ["store-timeout", "host-name", "runtime-dir", "metrics-name"];
            let worded = worded.contains(&opt.name);
            if opt.default.is_empty() || worded {
                continue;
            }
            let mut draft = Draft::default();
            (opt.set)(&mut draft, OsStr::new(opt.default)).unwrap();
            assert_eq!(draft.config, Config::default(), "--{}", opt.name);
            assert!(!draft.force, "--{}", opt.name);
        }
    }

    #[test]
    fn every_option_has_one_name_and_belongs_to_a_command() {
        for (i, opt) in options().enumerate() {
            assert!(options().take(i).all(|it| it.name != opt.name), "--{} twice", opt.name);
            assert!(COMMANDS.iter().any(|it| opt.belongs_to(it)), "--{}", opt.name);
        }
    }
}

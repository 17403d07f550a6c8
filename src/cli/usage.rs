//! What is wrong with a command line? A sentence that names it and says what to write instead.

use std::fmt;

use crate::cli::completions::SHELLS;
use crate::cli::options::{COMMANDS, Opt, Spec};
use crate::cli::settings::SettingsError;
use crate::config::ConfigError;
use crate::config::value::ValueError;
use crate::model::{InvalidId, InvalidRole, SessionError, distance};

/// Every verb of `sessions`, as it is written.
const VERBS_WRITTEN: &str = "list, add ADDRESS, set ID field=value…, pause ID…, resume ID…, remove ID…, \
                             export, import [FILE] or sync FILE";

/// The name closest to what was typed, if it is close enough to be a slip of the finger.
pub(crate) fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed: String = typed.chars().take(40).collect();
    let closest = names.map(|name| (distance(&typed, name), name)).min()?;
    (closest.0 <= 1 + typed.chars().count() / 4).then_some(closest.1)
}

/// Where a value came from.
pub(crate) enum Origin {
    Flag(&'static Opt),
    Variable(&'static Opt),
}

/// Why the command line cannot be followed. Texts given are kept only if they can be shown.
pub(crate) enum UsageError {
    NoCommand,
    OptionFirst {
        given: Option<String>,
    },
    UnknownCommand {
        given: Option<String>,
        nearest: Option<&'static str>,
    },
    UnknownOption {
        command: &'static str,
        given: Option<String>,
        nearest: Option<&'static str>,
    },
    OtherCommands {
        command: &'static str,
        opt: &'static Opt,
    },
    Unexpected {
        command: &'static Spec,
        given: Option<String>,
    },
    MissingValue {
        opt: &'static Opt,
    },
    NoRole {
        command: &'static Spec,
    },
    NoVerb {
        command: &'static Spec,
    },
    UnknownVerb {
        command: &'static Spec,
        given: Option<String>,
        nearest: Option<&'static str>,
    },
    Field {
        why: String,
    },
    NoField {
        command: &'static Spec,
    },
    NoFile {
        command: &'static Spec,
    },
    NoId {
        command: &'static Spec,
    },
    NoInstance {
        command: &'static Spec,
    },
    NoShell {
        command: &'static Spec,
    },
    NoSocket {
        command: &'static Spec,
    },
    WordText {
        command: &'static Spec,
    },
    Id {
        why: InvalidId,
    },
    Address {
        why: SessionError,
    },
    Role {
        why: InvalidRole,
    },
    NoProgram {
        command: &'static Spec,
    },
    ProgramText,
    NoDashes {
        command: &'static Spec,
    },
    Value {
        from: Origin,
        why: ValueError,
    },
    /// Names of options; the second with more words behind it, if it stands for several.
    Together {
        one: &'static str,
        other: &'static str,
    },
    FleetOnly,
    EndpointAndRole,
    ReleaseNothing,
    ReleaseBoth,
    ForceWithoutInstance,
    InstanceId,
    Hidden {
        command: &'static Spec,
    },
    PollCommand {
        why: String,
    },
    DevInstances {
        most: usize,
    },
    DevCluster,
    Settings(SettingsError),
    Config(ConfigError),
}

impl From<ConfigError> for UsageError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(opt) => write!(f, "--{}", opt.name),
            Self::Variable(opt) => f.write_str(&opt.variable()),
        }
    }
}

impl UsageError {
    /// About the words beside the options, and about `dev`.
    fn words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRole { command } => {
                write!(f, "{} needs a role: write {}", command.name, command.usage)
            }
            Self::NoVerb { command } => {
                write!(f, "{} needs a verb and what it is about: {VERBS_WRITTEN}", command.name)
            }
            Self::UnknownVerb { command, given, nearest } => {
                write!(f, "unknown verb{} of {}: ", after_space(given), command.name)?;
                match nearest {
                    Some(name) => write!(f, "did you mean {name}?"),
                    None => write!(f, "write {VERBS_WRITTEN}"),
                }
            }
            Self::Field { why } => write!(f, "{why}"),
            Self::NoField { command } => {
                let name = command.name;
                write!(
                    f,
                    "{name} set needs an id and fields: write leasehold {name} set ID field=value…"
                )
            }
            Self::NoFile { command } => {
                let name = command.name;
                write!(
                    f,
                    "{name} sync needs a file: write leasehold {name} sync FILE, or - for stdin"
                )
            }
            Self::NoId { command } => {
                write!(f, "{} needs the id of a session: write {}", command.name, command.usage)
            }
            Self::NoInstance { command } => {
                let name = command.name;
                write!(f, "{name} needs an instance id or a host name: write {}", command.usage)
            }
            Self::NoShell { command } => {
                write!(f, "{} needs the name of a shell: {}", command.name, SHELLS.join(", "))
            }
            Self::NoSocket { command } => {
                write!(f, "{} needs the path of a socket: write {}", command.name, command.usage)
            }
            Self::WordText { command } => {
                write!(f, "an argument of {} is not valid UTF-8: write ", command.name)?;
                write!(f, "{}", command.usage)
            }
            Self::Id { why } => write!(f, "{why}"),
            Self::Address { why } => write!(f, "{why}"),
            Self::Role { why } => write!(f, "{why}"),
            Self::NoProgram { command } => {
                write!(f, "{} needs a command to run: write {}", command.name, command.usage)
            }
            Self::DevInstances { most } => {
                write!(f, "--instances is more than {most}: that is enough to try things on")
            }
            Self::DevCluster => {
                write!(f, "dev does not work on a cluster: name one server, or leave --redis out")
            }
            Self::ProgramText => write!(f, "the command to run is not valid UTF-8"),
            Self::NoDashes { command } => {
                write!(f, "the command to run comes after two dashes: write {}", command.usage)
            }
            _ => Ok(()),
        }
    }
}

impl UsageError {
    /// About options that need others, or exclude them.
    fn together(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Together { one, other } => {
                write!(f, "--{one} and --{other} do not go together: leave one of them out")
            }
            Self::EndpointAndRole => {
                write!(f, "an endpoint and --role do not go together: leave one of them out")
            }
            Self::FleetOnly => write!(f, "--fleet-only is for --check: write both, or neither"),
            Self::ReleaseNothing => {
                write!(
                    f,
                    "release needs to know whose leases: give --instance ID or --runtime-dir DIR"
                )
            }
            Self::ReleaseBoth => {
                write!(f, "--instance and --runtime-dir both say whose leases to release: give one")
            }
            Self::ForceWithoutInstance => {
                write!(
                    f,
                    "--force is for --instance; with --runtime-dir the lock in the directory "
                )?;
                write!(f, "tells whether the instance is dead: leave --force out")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => write!(f, "no command given: try leasehold --help"),
            Self::OptionFirst { given } => {
                let given = given.as_deref().unwrap_or("an option");
                write!(f, "{given} comes before the command: write leasehold COMMAND [OPTIONS], ")?;
                write!(f, "and see leasehold --help")
            }
            Self::UnknownCommand { given, nearest } => {
                write!(f, "unknown command{}", after_space(given))?;
                match nearest {
                    Some(name) => write!(f, ": did you mean {name}?"),
                    None => write!(f, ": see leasehold --help"),
                }
            }
            Self::UnknownOption { command, given, nearest } => {
                write!(f, "unknown option{} of {command}", after_space(given))?;
                match nearest {
                    Some(name) => write!(f, ": did you mean --{name}?"),
                    None => write!(f, ": see leasehold {command} --help"),
                }
            }
            Self::OtherCommands { command, opt } => {
                let is_hidden = |name: &str| COMMANDS.iter().any(|it| it.hidden && it.name == name);
                let shown: Vec<&str> =
                    opt.commands.iter().copied().filter(|it| !is_hidden(it)).collect();
                write!(f, "--{} is no option of {command}, but of ", opt.name)?;
                write!(f, "{}: see leasehold {command} --help", shown.join(" and "))
            }
            Self::Unexpected { command, given } => {
                let (name, given) = (command.name, after_space(given));
                write!(f, "unexpected argument{given} of {name}: write {}", command.usage)
            }
            Self::MissingValue { opt } => {
                let (name, value) = (opt.name, opt.value.unwrap_or("VALUE"));
                write!(
                    f,
                    "--{name} needs a value: write --{name} {value}, or --{name}={value} for "
                )?;
                write!(f, "one that begins with a dash")
            }
            Self::Value { from, why } => write!(f, "{from} {why}"),
            Self::InstanceId => {
                write!(
                    f,
                    "--instance must be 1 to 256 bytes without spaces or control characters: "
                )?;
                write!(f, "write the id as the log shows it after instance=")
            }
            Self::Hidden { command } => write!(f, "write {}", command.usage),
            Self::PollCommand { why } => write!(f, "--poll-command {why}"),
            Self::Settings(error) => write!(f, "{error}"),
            Self::Config(error) => write!(f, "{error}"),
            _ => self.words(f).and_then(|()| self.together(f)),
        }
    }
}

fn after_space(given: &Option<String>) -> String {
    given.as_ref().map_or(String::new(), |it| format!(" {it}"))
}

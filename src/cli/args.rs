//! What did the user ask for? Arguments and environment become one checked [`Command`], or a sentence
//! saying which flag or variable is wrong and what to write instead.
//!
//! A pure function of its two inputs; only [`Command::with_files_checked`] touches a file. An error
//! never repeats what could be a password.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::dev::DevSettings;
use crate::cli::options::{COMMANDS, Draft, NAMES, Opt, Spec, options};
use crate::cli::task::{self, Instance, Task};
use crate::cli::usage::{Origin, UsageError, nearest};
use crate::cli::{completions, help, man};
use crate::config::setting::Names;
use crate::config::value::showable;
use crate::config::{CheckedConfig, Config, ConfigError};
use crate::inspect::doctor::program::runnable;

/// What to do.
#[derive(Debug)]
pub(crate) enum Command {
    Instance(Box<CheckedConfig>, Instance),
    Task(Box<Config>, Task),
    Dev(Box<DevSettings>),
    Connect(PathBuf),
    PollSupervisor { program: Vec<String>, grace: Duration, soft_files: Option<u64> },
    Supervisor { program: Vec<String>, grace: Duration, orders: RawFd, report: RawFd },
    ExecShim { program: Vec<String>, orders: RawFd, report: RawFd },
    Help(String),
    Version,
}

/// Reads a variable of the environment.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Parses `args` (without the program's name), or explains the first mistake in them.
pub(crate) fn parse(args: &[OsString], env: Env<'_>) -> Result<Command, UsageError> {
    let Some((first, rest)) = args.split_first() else { return Err(UsageError::NoCommand) };
    let first = first.to_string_lossy();
    match first.as_ref() {
        "-h" | "--help" => return Ok(Command::Help(help::overview())),
        "-V" | "--version" => return Ok(Command::Version),
        _ if first.starts_with('-') => {
            return Err(UsageError::OptionFirst { given: name_of(&first) });
        }
        _ => (),
    }
    let command = named(&first)?;
    match scan(command, rest)? {
        Scanned::Help => Ok(Command::Help(help::of(command))),
        Scanned::Version => Ok(Command::Version),
        Scanned::Typed(typed) => build(command, typed, env),
    }
}

/// The command of this name, or which was probably meant.
fn named(name: &str) -> Result<&'static Spec, UsageError> {
    COMMANDS.iter().find(|it| it.name == name).ok_or_else(|| {
        let names = COMMANDS.iter().filter(|it| !it.hidden).map(|it| it.name);
        UsageError::UnknownCommand { given: showable(name), nearest: nearest(name, names) }
    })
}

/// The settings files that `args` name, or else the environment.
pub(crate) fn settings_files(args: &[OsString], env: Env<'_>) -> Result<Vec<PathBuf>, UsageError> {
    let Some((first, rest)) = args.split_first() else { return Ok(vec![]) };
    let command = COMMANDS.iter().find(|it| first.to_str() == Some(it.name));
    let opt = options().find(|it| it.name == "settings");
    let (Some(command), Some(opt)) = (command, opt) else { return Ok(vec![]) };
    // Whatever is wrong with the line, `parse` will say.
    let Ok(Scanned::Typed(typed)) = scan(command, rest) else { return Ok(vec![]) };
    let typed = typed.value_of(opt.name).map(OsStr::to_os_string);
    let from_env = || env(&opt.variable()).filter(|it| opt.belongs_to(command) && !it.is_empty());
    let (value, from) = match typed {
        Some(value) => (value, Origin::Flag(opt)),
        None => match from_env() {
            Some(value) => (value, Origin::Variable(opt)),
            None => return Ok(vec![]),
        },
    };
    let mut draft = Draft::default();
    (opt.set)(&mut draft, &value).map_err(|why| UsageError::Value { from, why })?;
    Ok(draft.config.settings)
}

/// Whether this option stands on the command line; `None` if the line cannot be understood, or has no such option.
pub(crate) fn is_typed(args: &[OsString], name: &str) -> Option<bool> {
    let (first, rest) = args.split_first()?;
    let command = COMMANDS.iter().find(|it| first.to_str() == Some(it.name))?;
    let _known = options().find(|it| it.name == name && it.belongs_to(command))?;
    match scan(command, rest) {
        Ok(Scanned::Typed(typed)) => Some(typed.value_of(name).is_some()),
        _ => None,
    }
}

impl Command {
    /// Opens every file that connecting or polling needs, so that a missing file is an error at the start.
    pub(crate) fn with_files_checked(self) -> Result<Self, UsageError> {
        let config: &Config = match &self {
            Self::Instance(config, _) => config,
            Self::Task(config, _) => config,
            Self::Dev(settings) => &settings.config,
            _ => return Ok(self),
        };
        let named = |error| ConfigError::new(error, Names::OPTIONS);
        config.access.check().map_err(named)?;
        config.poll_access.check().map_err(named)?;
        let polls = matches!(self, Self::Instance(_, Instance::Run { .. }));
        if let Some([name, ..]) = config.poll_command.as_deref().filter(|_| polls) {
            let path = env::var_os("PATH");
            runnable(name, path.as_deref()).map_err(|why| UsageError::PollCommand { why })?;
        }
        Ok(self)
    }
}

/// What the arguments after the command's name turned out to be.
enum Scanned {
    Help,
    Version,
    Typed(Typed),
}

/// Options with their values as typed, words beside them, and what followed `--`.
#[derive(Default)]
pub(crate) struct Typed {
    options: Vec<(&'static Opt, OsString)>,
    pub(crate) words: Vec<String>,
    pub(crate) rest: Vec<OsString>,
}

fn scan(command: &'static Spec, args: &[OsString]) -> Result<Scanned, UsageError> {
    let mut typed = Typed::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-h" | "--help") => return Ok(Scanned::Help),
            Some("-V" | "--version") => return Ok(Scanned::Version),
            Some("--") => {
                typed.rest = args.cloned().collect();
                break;
            }
            _ => (),
        }
        let (name, value) = split_at_equals(arg);
        let name = name.to_string_lossy();
        if !name.starts_with('-') || name == "-" {
            let given = arg.to_str().ok_or(UsageError::WordText { command })?;
            if typed.words.len() == command.takes.words_max {
                return Err(match command.takes.program {
                    true if !command.hidden => UsageError::NoDashes { command },
                    _ => UsageError::Unexpected { command, given: showable(given) },
                });
            }
            typed.words.push(given.into());
            continue;
        }
        let opt = find(command, &name)?;
        let value = match (value, opt.value) {
            (Some(value), _) => value.to_os_string(),
            (None, None) => "true".into(),
            (None, Some(_)) => match args.next() {
                // `--prefix --redis x` is a forgotten value far more often than a prefix of dashes.
                Some(value) if !value.as_bytes().starts_with(b"-") => value.clone(),
                _ => return Err(UsageError::MissingValue { opt }),
            },
        };
        typed.options.push((opt, value));
    }
    Ok(Scanned::Typed(typed))
}

fn split_at_equals(arg: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = arg.as_bytes();
    match bytes.iter().position(|c| *c == b'=') {
        Some(at) => (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..]))),
        None => (arg, None),
    }
}

/// The short names that options have.
const SHORT: [(&str, &str); 1] = [("-o", "--output")];

fn find(command: &'static Spec, typed: &str) -> Result<&'static Opt, UsageError> {
    let long = SHORT.iter().find(|it| it.0 == typed).map(|it| it.1);
    let typed = long.unwrap_or(typed);
    let named = |it: &&'static Opt| typed.strip_prefix("--") == Some(it.name);
    match options().find(named) {
        Some(opt) if opt.belongs_to(command) => Ok(opt),
        Some(opt) => Err(UsageError::OtherCommands { command: command.name, opt }),
        None => {
            let names = options().filter(|it| it.belongs_to(command)).map(|it| it.name);
            let nearest = nearest(typed.trim_start_matches('-'), names);
            Err(UsageError::UnknownOption { command: command.name, given: name_of(typed), nearest })
        }
    }
}

/// The name of an option in quotes, if it can be one.
fn name_of(typed: &str) -> Option<String> {
    showable(typed.split('=').next().unwrap_or(typed))
}

fn build(command: &'static Spec, typed: Typed, env: Env<'_>) -> Result<Command, UsageError> {
    let mut draft = Draft::default();
    draft.config.names = Names::OPTIONS;
    let wanted = options().filter(|it| it.belongs_to(command) && it.is_variable_of(command));
    // A variable that the command line overrides is not even looked at.
    for opt in wanted.filter(|it| typed.value_of(it.name).is_none()) {
        if let Some(value) = env(&opt.variable()).filter(|it| !it.is_empty()) {
            (opt.set)(&mut draft, &value)
                .map_err(|why| UsageError::Value { from: Origin::Variable(opt), why })?;
        }
    }
    for (opt, value) in &typed.options {
        (opt.set)(&mut draft, value)
            .map_err(|why| UsageError::Value { from: Origin::Flag(opt), why })?;
    }
    if let Some(extra) = typed.rest.first().filter(|_| !command.takes.program) {
        let given = extra.to_str().and_then(showable);
        return Err(UsageError::Unexpected { command, given });
    }
    match (command.name, typed.words.first()) {
        ("man", _) => return Ok(Command::Help(man::page())),
        ("version", _) => return Ok(Command::Version),
        ("help", None) => return Ok(Command::Help(help::overview())),
        ("help", Some(name)) => return named(name).map(|it| Command::Help(help::of(it))),
        ("completions", shell) => {
            let script = shell.and_then(|it| completions::of(it));
            return script.map(Command::Help).ok_or(UsageError::NoShell { command });
        }
        _ => (),
    }
    if command.hidden && command.name != NAMES {
        return hidden(command, &draft, &typed);
    }
    if command.name == "dev" {
        return task::dev(draft).map(|it| Command::Dev(Box::new(it)));
    }
    if command.name == "connect" {
        return draft.socket.map(Command::Connect).ok_or(UsageError::NoSocket { command });
    }
    if command.starts() {
        let (config, instance) = task::instance(command, draft, &typed, env)?;
        return Ok(Command::Instance(Box::new(config), instance));
    }
    let (config, task) = task::of(command, draft, &typed, env)?;
    Ok(Command::Task(Box::new(config), task))
}

impl Typed {
    pub(crate) fn value_of(&self, name: &str) -> Option<&OsStr> {
        self.options.iter().rev().find(|(opt, _)| opt.name == name).map(|(_, value)| value.as_ref())
    }
}

/// One that Leasehold starts itself: everything has to be there.
fn hidden(command: &'static Spec, draft: &Draft, typed: &Typed) -> Result<Command, UsageError> {
    let program: Option<Vec<String>> =
        typed.rest.iter().map(|it| it.to_str().map(String::from)).collect();
    let program = program.filter(|it| !it.is_empty()).ok_or(UsageError::Hidden { command })?;
    match (command.name, draft.grace, draft.orders, draft.report) {
        ("poll-supervisor", Some(grace), ..) => {
            Ok(Command::PollSupervisor { program, grace, soft_files: draft.soft_files })
        }
        ("supervisor", Some(grace), Some(orders), Some(report)) => {
            Ok(Command::Supervisor { program, grace, orders, report })
        }
        ("exec-shim", _, Some(orders), Some(report)) => {
            Ok(Command::ExecShim { program, orders, report })
        }
        _ => Err(UsageError::Hidden { command }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::task::{Output, ReleaseWhat, StatusHow, Which};

    fn parsed(args: &[&str], env: &[(&str, &str)]) -> Result<Command, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let variable = |name: &str| {
            let found = env.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| OsString::from(value))
        };
        parse(&args, &variable).map_err(|it| it.to_string())
    }

    fn config(args: &[&str], env: &[(&str, &str)]) -> Config {
        match parsed(&[&["run", "--host-name", "vm1"], args].concat(), env) {
            Ok(Command::Instance(config, Instance::Run { .. })) => Config::from(*config),
            other => panic!("{other:?}"),
        }
    }

    fn refused(args: &[&str], env: &[(&str, &str)]) -> String {
        parsed(args, env).unwrap_err()
    }

    fn released(args: &[&str], env: &[(&str, &str)]) -> ReleaseWhat {
        match parsed(&[&["release"], args].concat(), env) {
            Ok(Command::Task(_, Task::Release(what))) => what,
            other => panic!("{other:?}"),
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn no_options_are_the_defaults() {
        assert_eq!(config(&[], &[]), Config { host_name: "vm1".into(), ..Config::default() });
    }

    #[test]
    fn a_value_may_follow_its_option_or_an_equals_sign_and_the_last_one_wins() {
        assert_eq!(config(&["--weight", "3"], &[]).weight, 3);
        assert_eq!(config(&["--weight=3"], &[]).weight, 3);
        assert_eq!(config(&["--weight=3", "--weight", "4"], &[]).weight, 4);
        assert_eq!(config(&["--prefix=a=b"], &[]).prefix, "a=b");
        assert_eq!(config(&["--prefix=-p"], &[]).prefix, "-p");
        let command = config(&["--poll-command", "check  --fast -x"], &[]).poll_command;
        assert_eq!(command.unwrap(), ["check", "--fast", "-x"]);
    }

    #[test]
    fn the_command_line_wins_over_the_environment_and_the_environment_over_the_default() {
        let env = [("LEASEHOLD_INTERVAL", "7s"), ("LEASEHOLD_PREFIX", "")];
        assert_eq!(config(&[], &env).interval, secs(7));
        assert_eq!(config(&["--interval", "9s"], &env).interval, secs(9));
        assert_eq!(config(&[], &env).prefix, "poll", "an empty variable is not set");
        let wrong = [("LEASEHOLD_INTERVAL", "soon")];
        assert_eq!(config(&["--interval", "9s"], &wrong).interval, secs(9));
    }

    #[test]
    fn every_option_of_run_can_be_given_as_a_variable() {
        let command = COMMANDS.iter().find(|it| it.name == "run").unwrap();
        for opt in options().filter(|it| it.belongs_to(command)) {
            let variable = opt.variable();
            let asked = std::cell::Cell::new(false);
            let env = |name: &str| {
                asked.set(asked.get() || name == variable);
                None
            };
            let _ = parse(&["run".into()], &env);
            assert!(asked.get(), "{variable}");
        }
    }

    #[test]
    fn a_switch_can_be_turned_on_and_off_from_both_sides() {
        assert!(config(&["--new-fleet"], &[]).new_fleet);
        assert!(config(&[], &[("LEASEHOLD_NEW_FLEET", "yes")]).new_fleet);
        assert!(!config(&[], &[("LEASEHOLD_NEW_FLEET", "off")]).new_fleet);
        assert!(!config(&["--new-fleet=false"], &[("LEASEHOLD_NEW_FLEET", "1")]).new_fleet);
    }

    #[test]
    fn an_unset_store_timeout_follows_the_shortest_ttl() {
        let short = ["--lease-ttl", "3s", "--renew-interval", "1s"];
        assert_eq!(config(&short, &[]).store_timeout, Duration::from_millis(300));
        let set = [&short[..], &["--store-timeout", "200ms"]].concat();
        assert_eq!(config(&set, &[]).store_timeout, Duration::from_millis(200));
    }

    #[test]
    fn the_runtime_directory_of_systemd_is_the_default() {
        let env = [("RUNTIME_DIRECTORY", "/run/leasehold:/run/other")];
        assert_eq!(config(&[], &env).runtime_dir, Some("/run/leasehold".into()));
        assert_eq!(config(&["--runtime-dir", "/r"], &env).runtime_dir, Some("/r".into()));
        assert_eq!(config(&[], &[("RUNTIME_DIRECTORY", "")]).runtime_dir, None);
    }

    #[test]
    fn a_wrong_value_is_refused_in_the_name_of_where_it_came_from() {
        for (args, env, sentence) in [
            (&["--lease-ttl", "30"][..], &[][..], "--lease-ttl \"30\" has no unit"),
            (&["--workers=many"], &[], "--workers \"many\" is no whole number"),
            (&["--log-level", "loud"], &[], "--log-level \"loud\" is none of off, error"),
            (&["--log-renewals", "x"], &[], "--log-renewals \"x\" is none of auto"),
            (&["--redis", "h:6379"], &[], "--redis does not begin with redis://"),
            (&["--runtime-dir="], &[], "--runtime-dir is empty"),
            (&["--poll-command", "  "], &[], "--poll-command names no program"),
            (&[], &[("LEASEHOLD_LEASE_TTL", "1.5s")], "LEASEHOLD_LEASE_TTL \"1.5s\" has a frac"),
            (&[], &[("LEASEHOLD_NEW_FLEET", "maybe")], "LEASEHOLD_NEW_FLEET \"maybe\" is none"),
            (&[], &[("LEASEHOLD_REDIS", "x")], "LEASEHOLD_REDIS does not begin with redis://"),
            (&["--renew-interval", "30s"], &[], "--renew-interval 30s leaves no room"),
            (&["--prefix"], &[], "--prefix needs a value: write --prefix P"),
            (&["--prefix", "--new-fleet"], &[], "--prefix needs a value"),
        ] {
            let error = refused(&[&["run"], args].concat(), env);
            assert!(error.starts_with(sentence), "{error}");
        }
    }

    #[test]
    fn a_value_that_is_not_utf8_is_refused_except_in_a_path() {
        let odd = OsString::from(OsStr::from_bytes(b"a\xffb"));
        let none = |_: &str| None;
        let error = parse(&["run".into(), "--prefix".into(), odd.clone()], &none);
        assert_eq!(error.unwrap_err().to_string(), "--prefix is not valid UTF-8");
        let ok = parse(&["run".into(), "--runtime-dir".into(), odd.clone()], &none);
        assert!(
            matches!(ok, Ok(Command::Instance(it, Instance::Run { .. })) if it.runtime_dir == Some(odd.into()))
        );
    }

    #[test]
    fn a_slip_of_the_finger_is_answered_with_the_nearest_name() {
        for (args, sentence) in [
            (&["rum"][..], "unknown command \"rum\": did you mean run?"),
            (&["relase"], "unknown command \"relase\": did you mean release?"),
            (&["statsu"], "unknown command \"statsu\": did you mean status?"),
            (&["bogus"], "unknown command \"bogus\": see leasehold --help"),
            (&["guardain"], "unknown command \"guardain\": see leasehold --help"),
            (
                &["run", "--leas-ttl", "3s"],
                "unknown option \"--leas-ttl\" of run: did you mean --lease-ttl?",
            ),
            (
                &["run", "--lease_ttl=3s"],
                "unknown option \"--lease_ttl\" of run: did you mean --lease-ttl?",
            ),
            (&["run", "-weight=3"], "unknown option \"-weight\" of run: did you mean --weight?"),
            (&["run", "--bogus"], "unknown option \"--bogus\" of run: see leasehold run --help"),
            (&["release", "--weight", "3"], "--weight is no option of release, but of run"),
            (&["run", "now"], "unexpected argument \"now\" of run: write leasehold run"),
            (&["run", "-"], "unexpected argument \"-\""),
            (&["run", "--", "x"], "unexpected argument \"x\""),
            (&[], "no command given"),
            (&["--redis", "x", "run"], "\"--redis\" comes before the command"),
        ] {
            let error = refused(args, &[]);
            assert!(error.starts_with(sentence), "{error}");
        }
        assert!(parsed(&["run", "--"], &[]).is_ok());
    }

    #[test]
    fn help_and_version_are_found_wherever_an_option_may_stand() {
        for args in [&["-h"][..], &["--help"], &["run", "-h"], &["run", "--weight", "3", "--help"]]
        {
            assert!(matches!(parsed(args, &[]), Ok(Command::Help(_))), "{args:?}");
        }
        for args in [&["-V"][..], &["--version"], &["release", "-V"]] {
            assert!(matches!(parsed(args, &[]), Ok(Command::Version)), "{args:?}");
        }
    }

    #[test]
    fn status_reads_only_what_concerns_the_store() {
        let how = |args: &[&str], env: &[(&str, &str)]| match parsed(
            &[&["status"], args].concat(),
            env,
        ) {
            Ok(Command::Task(config, Task::Status(how))) => (how, *config),
            other => panic!("{other:?}"),
        };
        let (plain, config) = how(&[], &[("LEASEHOLD_LEASE_TTL", "nonsense")]);
        let expected = |output, all, stale_after| {
            let which = Which::default();
            StatusHow { output, all, stale_after, which, check: None }
        };
        assert_eq!(plain, expected(Output::Table, false, secs(120)));
        assert_eq!(config.store_timeout, secs(2));
        let args = ["--json", "--all", "--stale-after=1h", "--store-timeout", "20s"];
        let (all, config) = how(&args, &[("LEASEHOLD_SESSION_PREFIX", "s:")]);
        assert_eq!(all, expected(Output::Json, true, secs(3_600)));
        assert_eq!((config.store_timeout, config.session_prefix.as_str()), (secs(20), "s:"));
        assert!(
            refused(&["status", "--session-prefix", "poll:"], &[]).contains("--session-prefix")
        );
        assert!(
            refused(&["status", "e1"], &[]).starts_with("unexpected argument \"e1\" of status")
        );
        assert!(
            refused(&["status", "--weight=1"], &[]).contains("no option of status, but of run")
        );
    }

    #[test]
    fn release_is_told_whose_leases_and_the_command_line_wins() {
        let of = |id: &str, force| ReleaseWhat::Instance { id: id.into(), force };
        let dir = |it: &str| ReleaseWhat::RuntimeDir(it.into());
        let env = [("LEASEHOLD_RUNTIME_DIR", "/e"), ("RUNTIME_DIRECTORY", "/s")];
        assert_eq!(released(&["--instance", "a-1-b"], &[]), of("a-1-b", false));
        assert_eq!(released(&["--instance", "a", "--force"], &env), of("a", true));
        assert_eq!(released(&["--runtime-dir", "/r"], &[("LEASEHOLD_INSTANCE", "a")]), dir("/r"));
        assert_eq!(released(&[], &env), dir("/e"));
        assert_eq!(released(&[], &env[1..]), dir("/s"));
        assert_eq!(released(&[], &[("LEASEHOLD_LEASE_TTL", "nonsense"), env[1]]), dir("/s"));
    }

    #[test]
    fn release_refuses_to_guess() {
        for (args, sentence) in [
            (&[][..], "release needs to know whose leases"),
            (&["--instance", "a", "--runtime-dir", "/r"], "--instance and --runtime-dir both"),
            (&["--runtime-dir", "/r", "--force"], "--force is for --instance; with --runtime-dir"),
            (&["--instance", "a b"], "--instance must be"),
            (&["--instance="], "--instance must be"),
            (&["--instance", "a", "--store-timeout", "0s"], "--store-timeout 0s is out of range"),
        ] {
            let error = refused(&[&["release"], args].concat(), &[]);
            assert!(error.starts_with(sentence), "{error}");
        }
    }

    #[test]
    fn release_may_wait_longer_for_the_store_than_an_instance_could() {
        assert_eq!(
            released(&["--instance", "a", "--store-timeout", "20s"], &[]),
            ReleaseWhat::Instance { id: "a".into(), force: false }
        );
    }

    #[test]
    fn a_poll_supervisor_takes_its_program_as_it_is_and_nothing_from_the_environment() {
        let (files, end) = (["--soft-files", "1024"], ["--", "sh", "-c", "--help", "--"]);
        let args = [&["poll-supervisor", "--grace-ms", "1500"][..], &files, &end].concat();
        match parsed(&args, &[]) {
            Ok(Command::PollSupervisor { program, grace, soft_files }) => {
                assert_eq!(soft_files, Some(1_024));
                assert_eq!(program, ["sh", "-c", "--help", "--"]);
                assert_eq!(grace, Duration::from_millis(1_500));
            }
            other => panic!("{other:?}"),
        }
        let env = [("LEASEHOLD_GRACE_MS", "1")];
        for args in [&["poll-supervisor", "--", "sh"][..], &["poll-supervisor", "--grace-ms", "1"]]
        {
            assert!(refused(args, &env).starts_with("write leasehold poll-supervisor"), "{args:?}");
        }
    }

    #[test]
    fn a_supervisor_and_an_exec_shim_need_both_descriptors() {
        let fds = ["--orders-fd", "7", "--report-fd", "9"];
        let [grace, program] = [["--grace-ms", "1500"], ["--", "sh"]];
        match parsed(&[&["supervisor"][..], &grace, &fds, &program].concat(), &[]) {
            Ok(Command::Supervisor { program, grace, orders: 7, report: 9 }) => {
                assert_eq!((program, grace), (vec!["sh".into()], Duration::from_millis(1_500)));
            }
            other => panic!("{other:?}"),
        }
        match parsed(&[&["exec-shim"][..], &fds, &program].concat(), &[]) {
            Ok(Command::ExecShim { program, orders: 7, report: 9 }) => assert_eq!(program, ["sh"]),
            other => panic!("{other:?}"),
        }
        for args in [
            [&["supervisor"][..], &fds, &program].concat(),
            [&["supervisor"][..], &grace, &fds[..2], &program].concat(),
            [&["supervisor"][..], &grace, &fds].concat(),
            [&["exec-shim"][..], &fds[2..], &program].concat(),
        ] {
            let error = refused(&args, &[("LEASEHOLD_GRACE_MS", "1")]);
            assert!(error.starts_with(&format!("write leasehold {} ", args[0])), "{error}");
        }
    }

    #[test]
    fn a_password_is_in_no_error_wherever_its_url_was_put() {
        let urls = [
            "redis://user:hunter2@h/0",
            "redis://user:hunter2@h:x/0",
            "redis://user:hunter2@h/zero",
            "redis//user:hunter2@h",
            "user:hunter2@h",
            "redis://:hunter2",
            "rediss://user:hunter2@h/0",
        ];
        for url in urls {
            let mut lines: Vec<Vec<String>> = vec![
                vec![url.into()],
                vec![format!("--{url}")],
                vec!["run".into(), url.into()],
                vec!["run".into(), format!("--{url}")],
                vec!["run".into(), format!("--rediss={url}")],
                vec!["run".into(), format!("-r={url}")],
                vec!["run".into(), "--".into(), url.into()],
                vec!["run".into(), "--redis".into(), url.into(), "extra".into()],
                vec!["run".into(), "--redis".into(), url.into(), "--workers".into(), "0".into()],
                vec!["poll-supervisor".into(), url.into()],
            ];
            for opt in options().filter(|it| it.value.is_some()) {
                let value = opt.commands[0];
                lines.push(vec![value.into(), format!("--{}={url}", opt.name), "--bogus".into()]);
                if !["prefix", "session-prefix"].contains(&opt.name) {
                    lines.push(vec![value.into(), format!("--{}={url}", opt.name)]);
                }
            }
            for line in lines {
                let args: Vec<&str> = line.iter().map(String::as_str).collect();
                if let Err(error) = parsed(&args, &[]) {
                    assert!(!error.contains("hunter2"), "{args:?}: {error}");
                }
                if let Err(error) = parsed(&["run"], &[("LEASEHOLD_REDIS", url)]) {
                    assert!(!error.contains("hunter2"), "{url}: {error}");
                }
            }
        }
        let command = parsed(&["run", "--redis", "redis://user:hunter2@h/0"], &[]);
        let shown = format!("{command:?}");
        assert!(shown.contains("user:***@h/0") && !shown.contains("hunter2"), "{shown}");
    }
}

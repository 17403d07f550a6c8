//! The table of all commands and options.
//!
//! Parsing, `--help`, the man page, completions and the names of the environment variables all come from here. `set` stores
//! the value of an option; `crate::config` checks whether the values agree with each other.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::cli::usage::nearest;
use crate::config::{Config, DurationError, LogRenewals, RedisUrl, RedisUrlError, parse_duration};
use crate::model::{InvalidRole, Role};
use crate::store::admin::acl::Purpose;

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

/// The arguments besides the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) words_max: usize,
    /// A program behind `--`.
    pub(crate) program: bool,
}

const NOTHING: Takes = words(0);
const ROLE: Takes = words(1);
const PROGRAM: Takes = Takes { words_max: 0, program: true };
const ROLE_AND_PROGRAM: Takes = Takes { words_max: 1, program: true };

const fn words(words_max: usize) -> Takes {
    Takes { words_max, program: false }
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

/// The values of all options of one command line, before they are checked together.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) config: Config,
    /// Its default depends on the TTLs.
    pub(crate) store_timeout: Option<Duration>,
    pub(crate) instance: Option<String>,
    pub(crate) force: bool,
    pub(crate) json: bool,
    pub(crate) all: bool,
    pub(crate) stale_after: Option<Duration>,
    pub(crate) limit: Option<usize>,
    pub(crate) refresh: Option<Duration>,
    pub(crate) watch_for: Option<Duration>,
    pub(crate) purpose: Option<Purpose>,
    pub(crate) grace: Option<Duration>,
    pub(crate) renew_given: bool,
    pub(crate) heartbeat_given: bool,
    pub(crate) level_given: bool,
    pub(crate) restart: bool,
    pub(crate) at_least_for: Duration,
    pub(crate) skip_code: u8,
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) wait: Duration,
    pub(crate) absent: bool,
    pub(crate) join: usize,
    pub(crate) leave: Vec<String>,
    pub(crate) orders: Option<RawFd>,
    pub(crate) report: Option<RawFd>,
    pub(crate) soft_files: Option<u64>,
}

impl Opt {
    /// `LEASEHOLD_LEASE_TTL` for `lease-ttl`.
    pub(crate) fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    pub(crate) fn belongs_to(&self, command: &Spec) -> bool {
        self.commands.contains(&command.name)
    }

    /// The help for this command.
    pub(crate) fn help_of(&self, command: &Spec) -> &'static str {
        match (command.name, self.name) {
            ("drain", "force") => "Drain even if no instance is left to take the work.",
            ("watch", "json") => "Print one JSON document per line.",
            ("lead" | "once", "renew-interval") => "How often the role is renewed.",
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
            ("lead" | "once", "renew-interval") => "a third of --lease-ttl",
            _ => self.default,
        }
    }
}

pub(crate) static COMMANDS: &[Spec] = &[
    Spec {
        name: "run",
        usage: "leasehold run [OPTIONS]",
        summary: "one instance, until SIGTERM or SIGINT",
        about: "Runs one instance until SIGTERM or SIGINT. The instance finds the others through \
                Redis, takes its share of the stored sessions and polls them. If Redis is away at \
                the start, it waits for Redis. At a stop, running polls have --drain-timeout to \
                end, and the instance releases all its leases. A second signal aborts those polls \
                at once; the leases are released all the same. SIGHUP reads --settings again: log \
                level, interval, timeout, light polling, workers, weight, targets and body size \
                change at once. The log names every other setting that has changed; these take \
                effect after a restart.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "status",
        usage: "leasehold status [OPTIONS]",
        summary: "which instance polls which endpoint, and whether all is well",
        about: "Shows which instance polls which endpoint, and whether all is well. It prints a \
                verdict, then the instances with the number of endpoints that each owns and its \
                fair share, then the endpoints with owner, preferred owner, fence, time left of \
                the lease, and last result. Only reads: docs/redis.md lists the few rights it \
                needs in Redis. Exit code 0 means that the state could be read, not that all is \
                well; --json has \"healthy\" for that.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "top",
        usage: "leasehold top [OPTIONS]",
        summary: "the same, live, in the terminal; q quits",
        about: "Shows what status shows, live and full-screen, with bars for what each instance \
                owns, the latencies seen so far, and the last lease events. Keys: q quits; \
                arrows, PgUp, PgDn, Home and End scroll; s sorts by the next column, r reverses \
                the order; / filters by endpoint, owner or state, Esc clears the filter; p \
                pauses; ? helps. While Redis does not answer, the last state stays on the screen. \
                Needs a terminal; with --json it prints what status --json prints, once. Only \
                reads.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "plan",
        usage: "leasehold plan [--join N] [--leave INSTANCE]… [OPTIONS]",
        summary: "dry run: what would move where, without touching anything",
        about: "Says how many leases would move, from which instance to which, and how many each \
                instance would own, if N instances of weight 1 joined and the instances named by \
                --leave left. Without --join and --leave it says what will move anyway. Only \
                reads.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "explain",
        usage: "leasehold explain ENDPOINT [OPTIONS]",
        summary: "why an endpoint is where it is, and what would move it",
        about: "Says which instance owns ENDPOINT and why, which one should own it, in which \
                order instances are preferred, and what would have to happen for the lease to \
                move. Only reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "watch",
        usage: "leasehold watch [ENDPOINT] [OPTIONS]",
        summary: "follow lease events and results as they happen",
        about: "Prints a line for each lease event and for each result, of ENDPOINT or of all \
                endpoints, as they happen, until SIGINT, SIGTERM or a closed pipe. While Redis is \
                away, it says so on stderr and tries again. Afterwards it prints the lease events \
                of that time, but not the results. Only reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "history",
        usage: "leasehold history [ENDPOINT] [OPTIONS]",
        summary: "the last grants: who held what, when, why it moved",
        about: "Lists the last lease events, of ENDPOINT or of all endpoints, the newest last: \
                when, which endpoint, what happened (acquired, released, lost, reclaimed), which \
                instance, under which fence, and why. Redis keeps about the last 10,000 events. \
                Instances write them in the background, so a few may be missing. Only reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "doctor",
        usage: "leasehold doctor [OPTIONS]",
        summary: "check the Redis set-up: is everything as the promises need it?",
        about: "Checks the Redis server and this host. Each check says ok, warn (look at it) or \
                fail (mend it), what that means, and the way out. It checks that Redis is \
                reachable, latency, version, role, eviction, memory, persistence, replicas, every \
                right that --purpose needs (and prints the ACL rule to paste), pushes, the \
                timings of the fleet, the rate of the server's clock, and the systemd unit. Give \
                it the settings of run. It changes nothing: it tries writes only on keys of its \
                own, which expire. Exit code 1 if a check failed.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "release",
        usage: "leasehold release (--instance ID | --runtime-dir DIR) [OPTIONS]",
        summary: "give back the leases of an instance that is certainly dead",
        about: "Releases the leases of an instance that is certainly dead, so that the others \
                need not wait for them to expire. Made for systemd's ExecStopPost. An instance \
                that still runs would go on polling for a moment after its leases are gone. An id \
                without a heartbeat, a lease or an entry in the history is an error. Releasing an \
                instance a second time is not an error.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "sessions",
        usage: "leasehold sessions VERB [ADDRESS | ID… | FILE] [OPTIONS]",
        summary: "the stored sessions: list, add, pause, resume, remove, import",
        about: "Reads and changes the stored sessions: what is to be polled. VERB is list, add \
                ADDRESS, pause ID…, resume ID…, remove ID… or import [FILE]. list shows every \
                session and whether it is polled; if not, it shows the state that status shows, \
                such as unowned. add stores a session for ADDRESS (host:port, a URL, or \
                tcp://host:port) under --id or a new UUID, and prints the id. pause and resume \
                set isPaused and leave every other byte as it is; they do not overwrite a change \
                that another client makes at the same moment. remove deletes a session; its last \
                result is kept for a day. import reads JSON lines from FILE or stdin, checks all \
                of them, and then stores one session per line. It warns of ignored fields that \
                look like a known one (paused for isPaused).",
        // As many ids as fit on a command line.
        takes: words(usize::MAX),
        hidden: false,
    },
    Spec {
        name: "drain",
        usage: "leasehold drain INSTANCE [OPTIONS]",
        summary: "hand over everything an instance or a host owns",
        about: "Makes an instance, or every instance of a host, hand over all its leases and take \
                none, until undrain. INSTANCE is an instance id or a host name. A host name also \
                applies to instances that are started there later. Refuses if no instance would \
                be left to take the work, unless --force is given. Refuses a name that no \
                instance has or lately had, unless --absent is given.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "undrain",
        usage: "leasehold undrain INSTANCE [OPTIONS]",
        summary: "let an instance or a host have its share again",
        about: "Lets a drained instance or host have its share again. A name that is neither \
                drained nor known is an error. A known name that is not drained is not an error.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "lead",
        usage: "leasehold lead ROLE [OPTIONS] -- COMMAND…",
        summary: "run a command while, and only while, this host leads a role",
        about: "Stands for ROLE and runs COMMAND while, and only while, this host leads. One host \
                leads at a time. COMMAND runs in a process group of its own, with LEASEHOLD_ROLE, \
                LEASEHOLD_TERM and LEASEHOLD_INSTANCE in its environment. It is ended (TERM, then \
                KILL) before another host could lead, even if this program is killed or frozen. \
                COMMAND inherits every other variable, except a --redis URL with a user or a \
                password. Signals are passed on to it. When COMMAND ends by itself, lead gives up \
                the role and exits with the same code (128+n for a signal); with --restart it \
                starts COMMAND again.",
        takes: ROLE_AND_PROGRAM,
        hidden: false,
    },
    Spec {
        name: "once",
        usage: "leasehold once ROLE [OPTIONS] -- COMMAND…",
        summary: "run a command if no other host is doing it: for cron on many hosts",
        about: "Runs COMMAND if no host leads ROLE, and leads ROLE meanwhile. Does nothing if \
                another host leads it. Put the same line into the crontab of every host, and one \
                of them runs COMMAND. If Redis has just lost its data, once first waits until \
                every lease from before has expired. The exit code of COMMAND is passed on; \
                COMMAND gets the same variables as with lead. Cron mails what a command prints, \
                so only warnings are logged unless --log-level says otherwise.",
        takes: ROLE_AND_PROGRAM,
        hidden: false,
    },
    Spec {
        name: "leaders",
        usage: "leasehold leaders [OPTIONS]",
        summary: "who leads what, since when, under which term",
        about: "Lists every role that was ever led: which instance leads it, since when, under \
                which term, and how long the role lasts unless the leader renews it.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "resign",
        usage: "leasehold resign ROLE [OPTIONS]",
        summary: "make the leader of a role step down",
        about: "Asks the leader of ROLE to step down, and waits until it has. The leader ends its \
                work, gives up the role and does not take it again for two seconds, or until \
                another instance has led. A role that was never led is an error. A role without a \
                leader is not an error.",
        takes: ROLE,
        hidden: false,
    },
    Spec {
        name: "completions",
        usage: "leasehold completions SHELL",
        summary: "what bash, zsh or fish needs to complete a command line",
        about: "Prints completions for SHELL: bash, zsh or fish. make install and the package put them \
                where each shell looks for them.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "man",
        usage: "leasehold man",
        summary: "the manual page, in roff",
        about: "Prints the manual page. make install and the package put it where man looks for it.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "guardian",
        usage: "leasehold guardian --grace-ms N [--soft-files N] -- PROGRAM [ARGUMENTS]",
        summary: "run a program that must not outlive this one",
        about: "Runs PROGRAM in its own process group and ends the group when the daemon that \
                started this supervisor is gone. Started by Leasehold itself.",
        takes: PROGRAM,
        hidden: true,
    },
    Spec {
        name: "warden",
        usage: "leasehold warden --grace-ms N --orders-fd N --report-fd N -- PROGRAM…",
        summary: "run a program that must end at a deadline",
        about: "Runs PROGRAM and ends its process group at the last deadline that it received, or \
                when the process that sends deadlines is gone. Started by Leasehold itself.",
        takes: PROGRAM,
        hidden: true,
    },
    Spec {
        name: "ward",
        usage: "leasehold ward --orders-fd N --report-fd N -- PROGRAM [ARGUMENTS]",
        summary: "become a program when told to",
        about: "Becomes PROGRAM when its supervisor says so, and dies with the supervisor. \
                Started by leasehold warden.",
        takes: PROGRAM,
        hidden: true,
    },
];

const RUN: &[&str] = &["run"];
/// Options of `run` that `doctor` checks.
const CHECKED: &[&str] = &["run", "doctor"];
const RELEASE: &[&str] = &["release"];
const STATUS: &[&str] = &["status"];
const KEPT: &[&str] = &["run", "lead", "release", "doctor"];
const SHOWN: &[&str] = &["status", "top"];
const SESSIONS: &[&str] =
    &["run", "status", "top", "plan", "explain", "sessions", "drain", "undrain", "doctor"];
const POLLS: &[&str] = &[
    "run", "release", "status", "top", "plan", "explain", "watch", "history", "sessions", "drain",
    "undrain", "doctor",
];
/// Commands that stand for a role.
const STAND: &[&str] = &["run", "lead", "once"];
const WAITING: &[&str] = &["run", "lead", "once", "doctor"];
const LEAD: &[&str] = &["run", "lead"];
const LOGGING: &[&str] = &["run", "release", "lead", "once", "leaders", "resign"];
const READ: &[&str] =
    &["status", "top", "plan", "explain", "watch", "history", "sessions", "leaders", "doctor"];
/// Commands that stand for a role, and `doctor`, which checks their timings.
const TIMED: &[&str] = &["run", "lead", "once", "doctor"];
const ROLES: &[&str] =
    &["run", "release", "status", "top", "lead", "once", "leaders", "resign", "doctor"];
const ALL: &[&str] = &[
    "run", "release", "status", "top", "plan", "explain", "watch", "history", "sessions", "drain",
    "undrain", "lead", "once", "leaders", "resign", "doctor",
];

pub(crate) static OPTIONS: &[Opt] = &[
    Opt {
        name: "instance",
        value: Some("ID"),
        default: "",
        help: "The instance whose leases to release.",
        commands: RELEASE,
        set: |draft, value| text(value).map(|it| draft.instance = Some(it)),
    },
    Opt {
        name: "force",
        value: None,
        default: "off",
        help: "Release even if the instance still has a heartbeat; only for an instance that is \
               certainly dead.",
        commands: &["release", "drain"],
        set: |draft, value| switch(value).map(|it| draft.force = it),
    },
    Opt {
        name: "json",
        value: None,
        default: "off",
        help: "Print one JSON document for programs.",
        commands: READ,
        set: |draft, value| switch(value).map(|it| draft.json = it),
    },
    Opt {
        name: "all",
        value: None,
        default: "off",
        help: "List every endpoint, with results of any length. Without it, a fleet of more than \
               20 endpoints shows only those that need attention, at most 50; and a terminal \
               shows each result cut at the end of the line.",
        commands: STATUS,
        set: |draft, value| switch(value).map(|it| draft.all = it),
    },
    Opt {
        name: "stale-after",
        value: Some("DURATION"),
        default: "2m",
        help: "An endpoint with an owner but without a result for this long is called stale. An \
               endpoint is called late sooner: after two missed polls. If a tenth of the \
               endpoints of one owner are overdue by half an interval, these are called late, \
               too.",
        commands: SHOWN,
        set: |draft, value| duration(value).map(|it| draft.stale_after = Some(it)),
    },
    Opt {
        name: "refresh",
        value: Some("DURATION"),
        default: "1s",
        help: "How often to read everything. If reading takes long, top reads less often, so that \
               reading takes at most a tenth of the time.",
        commands: &["top"],
        set: |draft, value| duration(value).map(|it| draft.refresh = Some(it)),
    },
    Opt {
        name: "limit",
        value: Some("N"),
        default: "50",
        help: "Print at most the last N events; N is at least 1.",
        commands: &["history"],
        set: |draft, value| at_least_one(value).map(|it| draft.limit = Some(it)),
    },
    Opt {
        name: "for",
        value: Some("DURATION"),
        default: "2s",
        help: "How long to watch the server's clock. The longer, the more precisely its rate is \
               measured.",
        commands: &["doctor"],
        set: |draft, value| duration(value).map(|it| draft.watch_for = Some(it)),
    },
    Opt {
        name: "purpose",
        value: Some("PURPOSE"),
        default: "daemon",
        help: "What the Redis user is for. It decides which rights are checked and which ACL rule \
               is printed: daemon (run), onlooker (status, top, explain, plan, watch, history, \
               leaders, sessions list), operator (also drain, undrain, sessions, resign, release) \
               or elector (lead, once).",
        commands: &["doctor"],
        set: |draft, value| {
            let word = text(value)?;
            let choices = "daemon, onlooker, operator or elector";
            let known = Purpose::named(&word);
            let known = known.ok_or(ValueError::Choice { shown: showable(&word), choices })?;
            draft.purpose = Some(known);
            Ok(())
        },
    },
    Opt {
        name: "redis",
        value: Some("URL"),
        default: "redis://127.0.0.1:6379/0",
        help: "The server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// over TLS, \
               unix:///PATH[?db=DB]; redis+sentinel://HOST:PORT,HOST:PORT/NAME[/DB] for the \
               master that sentinels name, redis+cluster://HOST:PORT,HOST:PORT for a cluster, \
               rediss+sentinel:// and rediss+cluster:// for these over TLS. Percent-encode \
               special characters in a password. Every user of the host can read a command line: \
               better put the password into a file.",
        commands: ALL,
        set: |draft, value| {
            let url = value.to_str().ok_or(ValueError::NotText)?;
            RedisUrl::parse(url).map(|it| draft.config.redis = it).map_err(ValueError::Redis)
        },
    },
    Opt {
        name: "redis-password-file",
        value: Some("PATH"),
        default: "",
        help: "A file whose one line is the password. The file is read for every connection, so \
               it can change without a restart. The same holds for --redis-ca, --redis-cert and \
               --redis-key.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.password = Some(it)),
    },
    Opt {
        name: "redis-ca",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file of certificate authorities. The server's certificate \
               must be signed by one of them. Without this file, the public authorities are \
               trusted.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.ca = Some(it)),
    },
    Opt {
        name: "redis-cert",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file with the client certificate, for a server that asks for \
               one.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.cert = Some(it)),
    },
    Opt {
        name: "redis-key",
        value: Some("PATH"),
        default: "",
        help: "The PEM file with the private key of --redis-cert.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.key = Some(it)),
    },
    Opt {
        name: "prefix",
        value: Some("P"),
        default: "poll",
        help: "The prefix of all coordination keys.",
        commands: POLLS,
        set: |draft, value| text(value).map(|it| draft.config.prefix = it),
    },
    Opt {
        name: "session-prefix",
        value: Some("P"),
        default: "session:",
        help: "The prefix of the keys that hold the sessions.",
        commands: SESSIONS,
        set: |draft, value| text(value).map(|it| draft.config.session_prefix = it),
    },
    Opt {
        name: "lease-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long a lease or a role lasts without a renewal. Must be the same on all \
               instances.",
        commands: TIMED,
        set: |draft, value| duration(value).map(|it| draft.config.lease_ttl = it),
    },
    Opt {
        name: "renew-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often every held lease is renewed. With the default, a lease survives one \
               failed renewal.",
        commands: STAND,
        set: |draft, value| {
            draft.renew_given = true;
            duration(value).map(|it| draft.config.renew_interval = it)
        },
    },
    Opt {
        name: "heartbeat-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long after its last heartbeat an instance counts as alive; at most the lease TTL.",
        commands: &["run", "doctor"],
        set: |draft, value| {
            draft.heartbeat_given = true;
            duration(value).map(|it| draft.config.heartbeat_ttl = it)
        },
    },
    Opt {
        name: "heartbeat-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often this instance writes its heartbeat.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.heartbeat_interval = it),
    },
    Opt {
        name: "reconcile-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often to check for changes that were not pushed. The check is made at least \
               every second, so only values below 1s change anything.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.reconcile_interval = it),
    },
    Opt {
        name: "store-timeout",
        value: Some("DURATION"),
        default: "2s, or a tenth of the shortest TTL if that is less",
        help: "The time limit of a whole connect to Redis, and of a whole call.",
        commands: ALL,
        set: |draft, value| duration(value).map(|it| draft.store_timeout = Some(it)),
    },
    Opt {
        name: "workers",
        value: Some("N"),
        default: "256",
        help: "The most polls at a time. Threads start when a poll waits and end when idle. Slow \
               endpoints get at most half of them. Each poll needs 4 open files, with \
               --poll-command 8. run raises its own limit of open files as far as it may; doctor \
               says whether that is enough.",
        commands: CHECKED,
        set: |draft, value| number(value).map(|it| draft.config.workers = it),
    },
    Opt {
        name: "interval",
        value: Some("DURATION"),
        default: "5s",
        help: "The time from one poll of an endpoint to the next. A session's own intervalMs \
               takes precedence.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.interval = it),
    },
    Opt {
        name: "timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one poll may take. A session's own timeoutMs takes precedence.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.timeout = it),
    },
    Opt {
        name: "light-after",
        value: Some("N"),
        default: "5",
        help: "After this many failures in a row an endpoint is polled at the light interval, until \
               a poll succeeds.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.light_after = it),
    },
    Opt {
        name: "light-interval",
        value: Some("DURATION"),
        default: "30s",
        help: "The shortest interval of endpoints that keep failing. Each is polled at this \
               interval or at twice its own, whichever is longer; from its second light poll on, \
               at four times its own.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.light_interval = it),
    },
    Opt {
        name: "poll-command",
        value: Some("CMD"),
        default: "",
        help: "Poll by running this program instead of the built-in poller. Arguments are split \
               at spaces, without a shell. The program gets the session's JSON on stdin, and \
               LEASEHOLD_ENDPOINT, LEASEHOLD_INSTANCE and LEASEHOLD_FENCE in its environment. Its \
               stdout is the body; exit code 0 is success. If it fails, the end of its stderr \
               becomes part of the result's error and is never logged.",
        commands: CHECKED,
        set: |draft, value| {
            let words = text(value)?;
            let words = words.split(' ').filter(|it| !it.is_empty()).map(String::from);
            draft.config.poll_command = Some(words.collect());
            Ok(())
        },
    },
    Opt {
        name: "allow-targets",
        value: Some("CIDRS"),
        default: "all",
        help: "Networks that may be polled, separated by commas. Checked on the resolved address at \
               connect time.",
        commands: RUN,
        set: |draft, value| text(value).map(|it| draft.config.allow_targets = it),
    },
    Opt {
        name: "deny-targets",
        value: Some("CIDRS"),
        default: "169.254.0.0/16,fe80::/10",
        help: "Networks that may not be polled, even if allowed.",
        commands: RUN,
        set: |draft, value| text(value).map(|it| draft.config.deny_targets = it),
    },
    Opt {
        name: "max-body",
        value: Some("BYTES"),
        default: "65536",
        help: "How many bytes of a response are read and kept.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.max_body = it),
    },
    Opt {
        name: "weight",
        value: Some("N"),
        default: "1",
        help: "This instance's share relative to the others'; 0 takes none.",
        commands: RUN,
        set: |draft, value| number(value).map(|it| draft.config.weight = it),
    },
    Opt {
        name: "host-name",
        value: Some("NAME"),
        default: "the host's",
        help: "The first part of the instance id. The id is unique, whatever the name.",
        commands: STAND,
        set: |draft, value| text(value).map(|it| draft.config.host_name = it),
    },
    Opt {
        name: "drain-timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "run: how long a stop or a hand-over waits for a running poll. lead, once: how long a \
               stop waits for the command before TERM; KILL follows after this time or a fifth of \
               the usable TTL, whichever is shorter. The same limit holds when the role is given \
               up or lost.",
        commands: TIMED,
        set: |draft, value| duration(value).map(|it| draft.config.drain_timeout = it),
    },
    Opt {
        name: "min-replicas",
        value: Some("N"),
        default: "0",
        help: "How many replicas must acknowledge each grant and renewal before it counts. If N \
               is the number of replicas that could be promoted, a failover cannot forget the \
               owner of a lease.",
        commands: WAITING,
        set: |draft, value| number(value).map(|it| draft.config.min_replicas = it),
    },
    Opt {
        name: "new-fleet",
        value: None,
        default: "off",
        help: "Declares that no other instance runs on this Redis: if Redis has no record of an \
               earlier fleet, grant leases without a hold-off.",
        commands: STAND,
        set: |draft, value| switch(value).map(|it| draft.config.new_fleet = it),
    },
    Opt {
        name: "runtime-dir",
        value: Some("DIR"),
        default: "$RUNTIME_DIRECTORY",
        help: "The directory in which the process keeps its instance id.",
        commands: KEPT,
        set: |draft, value| path(value).map(|it| draft.config.runtime_dir = Some(it)),
    },
    Opt {
        name: "metrics-file",
        value: Some("PATH"),
        default: "",
        help: "Write metrics to this file every five seconds, in the Prometheus text format, for \
               node_exporter's textfile collector. The name must end in .prom. The file is \
               removed at a stop.",
        commands: &["run", "lead", "doctor"],
        set: |draft, value| path(value).map(|it| draft.config.metrics_file = Some(it)),
    },
    Opt {
        name: "metrics-name",
        value: Some("NAME"),
        default: "the name of --metrics-file without .prom, or leasehold",
        help: "The value of the label daemon of all metrics. It tells the processes of one host \
               apart.",
        commands: LEAD,
        set: |draft, value| text(value).map(|it| draft.config.metrics_name = Some(it)),
    },
    Opt {
        name: "settings",
        value: Some("FILES"),
        default: "",
        help: "Files, separated by colons, with settings as lines of NAME=value, like an \
               EnvironmentFile of systemd. They are read at the start; run reads them again on \
               SIGHUP. Precedence, highest first: the command line, the last file, earlier files, \
               the environment. The files of the service work for every command: a command \
               ignores settings that are not its own.",
        commands: ALL,
        set: |draft, value| {
            let files = value.as_bytes().split(|c| *c == b':').map(OsStr::from_bytes);
            draft.config.settings = files.map(path).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Opt {
        name: "metrics-listen",
        value: Some("ADDR"),
        default: "",
        help: "Also serve metrics at http://ADDR/metrics, such as 127.0.0.1:9464. ADDR must be a \
               loopback address. A request is answered only if its Host header is a name of this \
               host or a loopback address.",
        commands: LEAD,
        set: |draft, value| {
            let given = text(value)?;
            let address = given.parse().map_err(|_| ValueError::Listen)?;
            draft.config.metrics_listen = Some(address);
            Ok(())
        },
    },
    Opt {
        name: "metrics-hosts",
        value: Some("NAMES"),
        default: "",
        help: "Further names, separated by commas, that --metrics-listen accepts in the Host \
               header: for a proxy that passes its own name on.",
        commands: LEAD,
        set: |draft, value| {
            let names = text(value)?;
            let names = names.split(',').map(str::trim).filter(|it| !it.is_empty());
            draft.config.metrics_hosts = names.map(str::to_owned).collect();
            Ok(())
        },
    },
    Opt {
        name: "log-level",
        value: Some("LEVEL"),
        default: "info",
        help: "What to log on stderr: off, error, warn, info, debug or trace.",
        commands: LOGGING,
        set: |draft, value| {
            draft.level_given = true;
            let level = text(value)?;
            let known = log::LevelFilter::from_str(&level);
            let choices = "off, error, warn, info, debug or trace";
            draft.config.log_level =
                known.map_err(|_| ValueError::Choice { shown: showable(&level), choices })?;
            Ok(())
        },
    },
    Opt {
        name: "log-renewals",
        value: Some("HOW"),
        default: "auto",
        help: "How to log renewals: each logs every renewal at info; summary logs counts per \
               minute at info; auto logs the counts at info and every renewal at debug.",
        commands: RUN,
        set: |draft, value| {
            let how = text(value)?;
            draft.config.log_renewals = match how.as_str() {
                "auto" => LogRenewals::Auto,
                "each" => LogRenewals::Each,
                "summary" => LogRenewals::Summary,
                _ => {
                    let choices = "auto, each or summary";
                    return Err(ValueError::Choice { shown: showable(&how), choices });
                }
            };
            Ok(())
        },
    },
    Opt {
        name: "lead",
        value: Some("ROLES"),
        default: "",
        help: "Also stand for these roles, separated by commas. Roles have the same timings as \
               leases.",
        commands: RUN,
        set: |draft, value| {
            for role in text(value)?.split(',').map(str::trim) {
                draft.config.lead.push(Role::parse(role).map_err(ValueError::Role)?);
            }
            Ok(())
        },
    },
    Opt {
        name: "leader-prefix",
        value: Some("P"),
        default: "leader",
        help: "The prefix of all keys of roles.",
        commands: ROLES,
        set: |draft, value| text(value).map(|it| draft.config.leader_prefix = it),
    },
    Opt {
        name: "election-interval",
        value: Some("DURATION"),
        default: "15s",
        help: "The longest time between two checks of a role by an instance that does not lead \
               it. A pushed change is noticed at once.",
        commands: LEAD,
        set: |draft, value| duration(value).map(|it| draft.config.election_interval = it),
    },
    Opt {
        name: "startup-jitter",
        value: Some("DURATION"),
        default: "0s",
        help: "Wait a random time, at most this long, before standing for a role for the first \
               time.",
        commands: STAND,
        set: |draft, value| duration(value).map(|it| draft.config.startup_jitter = it),
    },
    Opt {
        name: "priority",
        value: Some("N"),
        default: "0",
        help: "A leader gives way to an instance with a higher priority.",
        commands: LEAD,
        set: |draft, value| number(value).map(|it| draft.config.priority = it),
    },
    Opt {
        name: "no-candidate",
        value: None,
        default: "off",
        help: "Never lead: only observe and log which instance leads.",
        commands: LEAD,
        set: |draft, value| switch(value).map(|it| draft.config.no_candidate = it),
    },
    Opt {
        name: "restart",
        value: None,
        default: "off",
        help: "Start the command again one second after it ends by itself, and stay the leader.",
        commands: &["lead"],
        set: |draft, value| switch(value).map(|it| draft.restart = it),
    },
    Opt {
        name: "at-least-for",
        value: Some("DURATION"),
        default: "0s",
        help: "Keep the role this long from the start, even if the command ends sooner. A host \
               whose clock is late then does not run the command again.",
        commands: &["once"],
        set: |draft, value| duration(value).map(|it| draft.at_least_for = it),
    },
    Opt {
        name: "skip-code",
        value: Some("N"),
        default: "0",
        help: "The exit code when another host runs the command.",
        commands: &["once"],
        set: |draft, value| number(value).map(|it| draft.skip_code = it),
    },
    Opt {
        name: "id",
        value: Some("ID"),
        default: "",
        help: "add: the id of the new session.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.id = Some(it)),
    },
    Opt {
        name: "name",
        value: Some("TEXT"),
        default: "",
        help: "add: a name for people to read.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.name = Some(it)),
    },
    Opt {
        name: "wait",
        value: Some("DURATION"),
        default: "0s",
        help: "Wait at most this long until the drained instances own nothing. Exit code 1 if \
               they still own something.",
        commands: &["drain"],
        set: |draft, value| duration(value).map(|it| draft.wait = it),
    },
    Opt {
        name: "absent",
        value: None,
        default: "off",
        help: "Drain a host on which no instance has run yet, so that instances started there \
               take nothing. Without it, such a name is refused as a likely typing error.",
        commands: &["drain"],
        set: |draft, value| switch(value).map(|it| draft.absent = it),
    },
    Opt {
        name: "join",
        value: Some("N"),
        default: "0",
        help: "Assume that this many instances join.",
        commands: &["plan"],
        set: |draft, value| number(value).map(|it: u16| draft.join = it.into()),
    },
    Opt {
        name: "leave",
        value: Some("INSTANCE"),
        default: "",
        help: "Assume that this instance, or every instance of this host, leaves. May be given \
               several times.",
        commands: &["plan"],
        set: |draft, value| text(value).map(|it| draft.leave.push(it)),
    },
    Opt {
        name: "grace-ms",
        value: Some("N"),
        default: "",
        help: "Milliseconds between TERM and KILL.",
        commands: &["guardian", "warden"],
        set: |draft, value| {
            number(value).map(|it| draft.grace = Some(Duration::from_millis(u32::into(it))))
        },
    },
    Opt {
        name: "soft-files",
        value: Some("N"),
        default: "",
        help: "The soft limit of open files for the program.",
        commands: &["guardian"],
        set: |draft, value| number(value).map(|it| draft.soft_files = Some(it)),
    },
    Opt {
        name: "orders-fd",
        value: Some("N"),
        default: "",
        help: "The file descriptor to read orders from.",
        commands: &["warden", "ward"],
        set: |draft, value| number(value).map(|it| draft.orders = Some(it)),
    },
    Opt {
        name: "report-fd",
        value: Some("N"),
        default: "",
        help: "The file descriptor to report to.",
        commands: &["warden", "ward"],
        set: |draft, value| number(value).map(|it| draft.report = Some(it)),
    },
];

/// Variables that Leasehold sets for the commands it starts. Such a command may start Leasehold again.
const TOLD: [&str; 4] =
    ["LEASEHOLD_ENDPOINT", "LEASEHOLD_FENCE", "LEASEHOLD_ROLE", "LEASEHOLD_TERM"];

/// `Some` if a variable begins with `LEASEHOLD_` and belongs to no option; inside, the variable that was probably meant.
pub(crate) fn is_stranger(variable: &str) -> Option<Option<String>> {
    let is_ours =
        |it: &&Opt| COMMANDS.iter().any(|command| !command.hidden && it.belongs_to(command));
    let upper = variable.to_ascii_uppercase();
    let name = upper.strip_prefix("LEASEHOLD_")?.to_ascii_lowercase().replace('_', "-");
    let mut ours = OPTIONS.iter().filter(is_ours);
    if TOLD.contains(&variable) || ours.any(|it| it.variable() == variable) {
        return None;
    }
    let meant = nearest(&name, OPTIONS.iter().filter(is_ours).map(|it| it.name));
    let meant = OPTIONS.iter().find(|it| Some(it.name) == meant);
    Some(meant.map(Opt::variable))
}

/// Why a value does not fit its option. Keeps the given text only where it cannot be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    NotText,
    Empty,
    Duration { shown: Option<String>, why: DurationError },
    Number { shown: Option<String> },
    Choice { shown: Option<String>, choices: &'static str },
    Redis(RedisUrlError),
    Role(InvalidRole),
    Listen,
    Zero,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Duration { shown: Some(shown), .. }
        | Self::Number { shown: Some(shown) }
        | Self::Choice { shown: Some(shown), .. } = self
        {
            write!(f, "{shown} ")?;
        }
        match self {
            Self::NotText => write!(f, "is not valid UTF-8"),
            Self::Empty => write!(f, "is empty: give it a value, or leave it out"),
            Self::Duration { why, .. } => write!(f, "{why}"),
            Self::Number { .. } => {
                write!(f, "is no whole number that fits: write digits, such as 16")
            }
            Self::Choice { choices, .. } => write!(f, "is none of {choices}"),
            Self::Redis(why) => write!(f, "{why}"),
            Self::Role(why) => write!(f, "{why}"),
            Self::Zero => write!(f, "is 0, which would show nothing: write 1 or more"),
            Self::Listen => write!(f, "is no address with a port: write 127.0.0.1:9464"),
        }
    }
}

/// The text in quotes, if it can be shown: a URL that strayed here may have a password in it.
pub(crate) fn showable(text: &str) -> Option<String> {
    let harmless = |c: char| c.is_ascii_graphic() && c != '@' && c != ':' || c == ' ';
    (text.len() <= 40 && text.chars().all(harmless)).then(|| format!("{text:?}"))
}

fn text(value: &OsStr) -> Result<String, ValueError> {
    value.to_str().map(String::from).ok_or(ValueError::NotText)
}

fn path(value: &OsStr) -> Result<PathBuf, ValueError> {
    if value.is_empty() { Err(ValueError::Empty) } else { Ok(value.into()) }
}

fn duration(value: &OsStr) -> Result<Duration, ValueError> {
    let value = text(value)?;
    parse_duration(&value).map_err(|why| ValueError::Duration { shown: showable(&value), why })
}

fn number<T: FromStr>(value: &OsStr) -> Result<T, ValueError> {
    let value = text(value)?;
    // FromStr would take a sign, too.
    let digits = value.bytes().all(|c| c.is_ascii_digit());
    let parsed = value.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| ValueError::Number { shown: showable(&value) })
}

fn at_least_one(value: &OsStr) -> Result<usize, ValueError> {
    number(value).and_then(|it| if it > 0 { Ok(it) } else { Err(ValueError::Zero) })
}

fn switch(value: &OsStr) -> Result<bool, ValueError> {
    let value = text(value)?;
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" | "" => Ok(false),
        _ => Err(ValueError::Choice { shown: showable(&value), choices: "true or false" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_that_help_shows_are_the_defaults() {
        for opt in OPTIONS {
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
        for (i, opt) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..i].iter().all(|it| it.name != opt.name), "--{} twice", opt.name);
            assert!(COMMANDS.iter().any(|it| opt.belongs_to(it)), "--{}", opt.name);
        }
    }

    #[test]
    fn a_switch_is_said_in_several_ways_and_in_no_other() {
        for yes in ["1", "true", "yes", "on", "TRUE"] {
            assert_eq!(switch(OsStr::new(yes)), Ok(true), "{yes}");
        }
        for no in ["0", "false", "no", "off", "", "Off"] {
            assert_eq!(switch(OsStr::new(no)), Ok(false), "{no}");
        }
        for bad in ["2", "maybe", "y", " "] {
            assert!(switch(OsStr::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_digits_that_fit() {
        assert_eq!(number::<u32>(OsStr::new("16")), Ok(16));
        for bad in ["", "-1", "+1", "1.0", "1e3", "0x10", " 1", "NaN", "4294967296", "١"] {
            assert!(number::<u32>(OsStr::new(bad)).is_err(), "{bad}");
        }
    }
}

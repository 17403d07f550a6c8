//! Which commands and options are there? One table, and everything else is read off it.
//!
//! Parsing, `--help` and the names of the environment variables all come from here. An option's
//! meaning is its `set`; whether the values agree with each other is `crate::config`'s business.

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

/// A command, as `--help` tells of it.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
    pub(crate) takes: Takes,
    /// Hidden commands are started by Leasehold itself: not listed, and deaf to the environment.
    pub(crate) hidden: bool,
}

/// What may stand beside the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) words_max: usize,
    /// Behind `--`.
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
    /// What to call the value; `None` for a switch.
    pub(crate) value: Option<&'static str>,
    /// What holds when it is not given: a value, words, or nothing to tell.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) commands: &'static [&'static str],
    pub(crate) set: fn(&mut Draft, &OsStr) -> Result<(), ValueError>,
}

/// What the options of one command line add up to, before it is checked.
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

    /// What holds for this command when it is not given.
    pub(crate) fn default_of(&self, command: &Spec) -> &'static str {
        match (command.name, self.name) {
            ("once", "log-level") => "warn", // cron mails what a command says
            _ => self.default,
        }
    }
}

pub(crate) static COMMANDS: &[Spec] = &[
    Spec {
        name: "run",
        usage: "leasehold run [OPTIONS]",
        summary: "one instance, until SIGTERM or SIGINT",
        about: "Runs one instance until SIGTERM or SIGINT. The polls that run then have --drain-timeout \
                to end; a second signal aborts them at once, and leases are given back all the same. \
                It finds the others through Redis, takes \
                its share of the stored sessions, polls them, and gives everything back when it \
                stops. Started while Redis is away, it waits for it. SIGHUP reloads --settings: log \
                level, interval, timeout, light polling, workers, weight, targets and body size \
                change at once; what else differs is named in the log and waits for a restart.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "status",
        usage: "leasehold status [OPTIONS]",
        summary: "who polls what, and whether all is well",
        about: "Shows who polls what, and whether all is well: a verdict, the instances with what they \
                own and what would be their fair share, and the endpoints with owner, preferred \
                owner, fence, time left of the lease, and last result. Only reads: docs/redis.md lists \
                the few rights it needs in Redis. Exit code 0 says that it could be read, not that \
                all is well; --json has \"healthy\" for that.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "top",
        usage: "leasehold top [OPTIONS]",
        summary: "the same, live, in the terminal; q quits",
        about: "Shows what status shows, live and full-screen, with bars for what each instance owns, the \
                latencies seen so far, and the last lease events. Keys: q quits; arrows, PgUp, PgDn, \
                Home and End scroll; s sorts by the next column, r the other way round; / filters by \
                endpoint, owner or state, Esc clears that; p pauses; ? helps. While Redis does not \
                answer the last picture stays. Needs a terminal; with --json it prints what status \
                --json prints, once. Only reads.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "plan",
        usage: "leasehold plan [--join N] [--leave INSTANCE]… [OPTIONS]",
        summary: "dry run: what would move where, without touching anything",
        about: "Says how many leases would move, from whom to whom, and how many each instance would \
                own, if N instances of weight 1 joined and those named by --leave left; without \
                either, what will move by itself. Only reads.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "explain",
        usage: "leasehold explain ENDPOINT [OPTIONS]",
        summary: "why an endpoint is where it is, and what would move it",
        about: "Says who owns ENDPOINT and why, who should, in which order instances are preferred, and \
                what would have to happen for it to move. Only reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "watch",
        usage: "leasehold watch [ENDPOINT] [OPTIONS]",
        summary: "follow lease events and results as they happen",
        about: "Prints a line for each lease event and for each result, of ENDPOINT or of all, as they \
                happen, until SIGINT, SIGTERM or a closed pipe. While Redis is away it says so on stderr \
                and tries again; lease events of that time are told afterwards, results are not. Only \
                reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "history",
        usage: "leasehold history [ENDPOINT] [OPTIONS]",
        summary: "the last grants: who held what, when, why it moved",
        about: "Lists the last lease events, of ENDPOINT or of all, the newest last: when, which endpoint, \
                what happened (acquired, released, lost, reclaimed), who, under which fence, and why. \
                Instances remember about the last 10,000 events in Redis, as well as they can: nothing \
                waits for that. Only reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "doctor",
        usage: "leasehold doctor [OPTIONS]",
        summary: "check the Redis set-up: is everything as the promises need it?",
        about: "Looks at the Redis server and at this host, and says of each thing whether it is ok, to be \
                looked at (warn) or has to be mended (fail), what that means, and the way out: \
                reachable, latency, version, role, eviction, memory, persistence, replicas, every \
                right that --purpose needs (and the ACL rule to paste), pushes, the fleet's timing, the \
                rate of the server's clock, the systemd unit. Give it the settings of run. Changes \
                nothing: what has to be tried is tried on keys of its own that expire. Exit code 1 \
                if anything failed.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "release",
        usage: "leasehold release (--instance ID | --runtime-dir DIR) [OPTIONS]",
        summary: "give back the leases of an instance that is certainly dead",
        about: "Gives back the leases of an instance that is certainly dead, so that the others need \
                not wait for them to expire. Made for systemd's ExecStopPost. An instance that still \
                runs would go on polling for a moment after its leases are gone. An id that has no \
                heartbeat, no lease and no place in the history is an error; to release one a second \
                time is none.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "sessions",
        usage: "leasehold sessions VERB [ADDRESS | ID… | FILE] [OPTIONS]",
        summary: "the stored sessions: list, add, pause, resume, remove, import",
        about: "Reads and changes what is to be polled. VERB is list, add ADDRESS, pause ID…, resume \
                ID…, remove ID… or import [FILE]. list shows every stored session, and whether it is polled: if not, the state that status \
                shows, such as unowned; add stores one \
                for ADDRESS (host:port, a URL, or tcp://host:port) under --id, or a new UUID, and \
                prints the id; pause and resume set isPaused and leave every other byte as it is; \
                remove deletes, and its last result is kept for a day; import stores one session for each line of JSON of FILE, or of \
                stdin, after all of them have been checked, and warns of fields that are ignored and look \
                like others (paused for isPaused). A session that somebody else changes at \
                the same moment is not overwritten by pause and resume.",
        // As many ids as fit on a command line.
        takes: words(usize::MAX),
        hidden: false,
    },
    Spec {
        name: "drain",
        usage: "leasehold drain INSTANCE [OPTIONS]",
        summary: "hand over everything an instance or a host owns",
        about: "Makes an instance, or every instance of a host, hand over everything it owns and take \
                nothing, until undrain. INSTANCE is an instance id or a host name; a host name also \
                holds for instances that are started there later. Refuses to leave nobody, and a name \
                that no instance has or lately had, unless --absent says that it is meant.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "undrain",
        usage: "leasehold undrain INSTANCE [OPTIONS]",
        summary: "let an instance or a host have its share again",
        about: "Lets an instance or a host that was drained have its share again. A name that is neither drained \
                nor known is an error; one that is only not drained is none.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "lead",
        usage: "leasehold lead ROLE [OPTIONS] -- COMMAND…",
        summary: "run a command while, and only while, this host leads a role",
        about: "Stands for ROLE and runs COMMAND while, and only while, it leads. One host at a time \
                does. COMMAND runs in a process group of its own, with LEASEHOLD_ROLE, \
                LEASEHOLD_TERM and LEASEHOLD_INSTANCE in its environment, and is ended (TERM, then \
                KILL) before another host could lead, even if this program is killed or frozen. \
                It inherits every other variable, but no --redis URL with a user or a password. \
                Signals are passed on to it. When it ends by itself the role is given up and its \
                exit code passed on (128+n for a signal); with --restart it is started again.",
        takes: ROLE_AND_PROGRAM,
        hidden: false,
    },
    Spec {
        name: "once",
        usage: "leasehold once ROLE [OPTIONS] -- COMMAND…",
        summary: "run a command if no other host is doing it: for cron on many hosts",
        about: "Runs COMMAND if nobody leads ROLE, and leads it meanwhile; does nothing if somebody \
                does. Put the same line into the crontab of every host, and one of them runs it. \
                Waits if the store has just lost its memory, then tries. The exit code of COMMAND \
                is passed on; it gets the same variables as with lead. Cron mails what a command says, so only warnings are logged unless \
                --log-level says otherwise.",
        takes: ROLE_AND_PROGRAM,
        hidden: false,
    },
    Spec {
        name: "leaders",
        usage: "leasehold leaders [OPTIONS]",
        summary: "who leads what, since when, under which term",
        about: "Lists every role that was ever led: who leads it, since when, under which term, and \
                for how long unless it is renewed.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "resign",
        usage: "leasehold resign ROLE [OPTIONS]",
        summary: "make the leader of a role step down",
        about: "Asks the leader of ROLE to step down, and waits until it has. It ends its work, gives \
                the role up and leaves it to the others for two seconds, or until another has led. A role \
                that was never led is an error; one that nobody leads at the moment is none.",
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
                started the guardian is gone. Started by Leasehold itself.",
        takes: PROGRAM,
        hidden: true,
    },
    Spec {
        name: "warden",
        usage: "leasehold warden --grace-ms N --orders-fd N --report-fd N -- PROGRAM…",
        summary: "run a program that must end at a moment",
        about: "Runs PROGRAM and ends its process group at the moment that it was last told, or when \
                nobody is left to tell. Started by Leasehold itself.",
        takes: PROGRAM,
        hidden: true,
    },
    Spec {
        name: "ward",
        usage: "leasehold ward --orders-fd N --report-fd N -- PROGRAM [ARGUMENTS]",
        summary: "become a program when told to",
        about: "Becomes PROGRAM at the word of its warden, and dies with it. Started by the warden.",
        takes: PROGRAM,
        hidden: true,
    },
];

const RUN: &[&str] = &["run"];
/// Of `run`, and looked at by `doctor`.
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
/// Who stands for a role, or may.
const STAND: &[&str] = &["run", "lead", "once"];
const WAITING: &[&str] = &["run", "lead", "once", "doctor"];
const LEAD: &[&str] = &["run", "lead"];
const LOGGING: &[&str] = &["run", "release", "lead", "once", "leaders", "resign"];
const READ: &[&str] =
    &["status", "top", "plan", "explain", "watch", "history", "sessions", "leaders", "doctor"];
/// Who stands for a role, or looks whether all is ready for that.
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
        help: "The instance whose leases to give back.",
        commands: RELEASE,
        set: |draft, value| text(value).map(|it| draft.instance = Some(it)),
    },
    Opt {
        name: "force",
        value: None,
        default: "off",
        help: "release --instance: do it even if the instance still has a heartbeat; only for one that \
               is certainly dead. drain: do it even if nobody is left to take the work.",
        commands: &["release", "drain"],
        set: |draft, value| switch(value).map(|it| draft.force = it),
    },
    Opt {
        name: "json",
        value: None,
        default: "off",
        help: "Print one JSON document with everything, for programs; watch: one for each line.",
        commands: READ,
        set: |draft, value| switch(value).map(|it| draft.json = it),
    },
    Opt {
        name: "all",
        value: None,
        default: "off",
        help: "List every endpoint, with results of any length. Without it, where there are more than 20, \
               only those that need attention, and of these the first 50; and on a terminal each result \
               is cut where the line ends.",
        commands: STATUS,
        set: |draft, value| switch(value).map(|it| draft.all = it),
    },
    Opt {
        name: "stale-after",
        value: Some("DURATION"),
        default: "2m",
        help: "An endpoint that has an owner, but no result for this long, is called stale. It is called \
               late sooner: after two missed polls, or half a missed one if a tenth of its owner's \
               endpoints missed that.",
        commands: SHOWN,
        set: |draft, value| duration(value).map(|it| draft.stale_after = Some(it)),
    },
    Opt {
        name: "refresh",
        value: Some("DURATION"),
        default: "1s",
        help: "How often to read everything; less often where reading takes long, so that it is never \
               more than a tenth of the time.",
        commands: &["top"],
        set: |draft, value| duration(value).map(|it| draft.refresh = Some(it)),
    },
    Opt {
        name: "limit",
        value: Some("N"),
        default: "50",
        help: "No more than the last N events, at least 1.",
        commands: &["history"],
        set: |draft, value| at_least_one(value).map(|it| draft.limit = Some(it)),
    },
    Opt {
        name: "for",
        value: Some("DURATION"),
        default: "2s",
        help: "How long to watch the server's clock: the longer, the finer its rate is told.",
        commands: &["doctor"],
        set: |draft, value| duration(value).map(|it| draft.watch_for = Some(it)),
    },
    Opt {
        name: "purpose",
        value: Some("PURPOSE"),
        default: "daemon",
        help: "What the Redis user is for: which rights to check, and which ACL rule to print. daemon (run), \
               onlooker (status, top, explain, plan, watch, history, leaders, sessions list), operator \
               (also drain, undrain, sessions, resign, release) or elector (lead, once).",
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
               unix:///PATH[?db=DB]; redis+sentinel://HOST:PORT,HOST:PORT/NAME[/DB] for the master \
               that sentinels name, redis+cluster://HOST:PORT,HOST:PORT for a cluster, \
               rediss+sentinel:// and rediss+cluster:// for these over TLS. \
               Percent-encode special characters in a password. A command line can be read by \
               everybody on the host: better put the password into a file.",
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
        help: "A file whose one line is the password. It is read for every connection, so that it can \
               be changed without a restart; so are the next three.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.password = Some(it)),
    },
    Opt {
        name: "redis-ca",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file of the authorities whose signature on the server's certificate \
               is believed. Without it, the public ones are.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.ca = Some(it)),
    },
    Opt {
        name: "redis-cert",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file with our own certificate, for a server that asks for one.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.cert = Some(it)),
    },
    Opt {
        name: "redis-key",
        value: Some("PATH"),
        default: "",
        help: "The PEM file with the key of --redis-cert.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.key = Some(it)),
    },
    Opt {
        name: "prefix",
        value: Some("P"),
        default: "poll",
        help: "How the names of all coordination keys begin.",
        commands: POLLS,
        set: |draft, value| text(value).map(|it| draft.config.prefix = it),
    },
    Opt {
        name: "session-prefix",
        value: Some("P"),
        default: "session:",
        help: "How the names of the keys that hold the sessions begin.",
        commands: SESSIONS,
        set: |draft, value| text(value).map(|it| draft.config.session_prefix = it),
    },
    Opt {
        name: "lease-ttl",
        value: Some("DURATION"),
        default: "30s",
        help: "How long a lease, or a role, lasts without being renewed. The same on all instances.",
        commands: TIMED,
        set: |draft, value| duration(value).map(|it| draft.config.lease_ttl = it),
    },
    Opt {
        name: "renew-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often every held lease is renewed. One renewal may fail within the lease's TTL. \
               lead and once renew three times in a TTL unless this is given.",
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
        help: "How often this instance says that it is alive.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.heartbeat_interval = it),
    },
    Opt {
        name: "reconcile-interval",
        value: Some("DURATION"),
        default: "10s",
        help: "How often to look for what was not heard of; once a second at the least.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.reconcile_interval = it),
    },
    Opt {
        name: "store-timeout",
        value: Some("DURATION"),
        default: "2s, or a tenth of the shortest TTL if that is less",
        help: "For a whole connect and for a whole call to Redis.",
        commands: ALL,
        set: |draft, value| duration(value).map(|it| draft.store_timeout = Some(it)),
    },
    Opt {
        name: "workers",
        value: Some("N"),
        default: "256",
        help: "The most polls at a time. Threads start when a poll waits and end when idle. Endpoints that \
               are slow have at most half of them. Each poll needs 4 open files, with --poll-command 8: \
               run raises its own limit as far as it may, and doctor says whether that is enough.",
        commands: CHECKED,
        set: |draft, value| number(value).map(|it| draft.config.workers = it),
    },
    Opt {
        name: "interval",
        value: Some("DURATION"),
        default: "5s",
        help: "From one poll of an endpoint to the next. A session's own intervalMs wins.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.interval = it),
    },
    Opt {
        name: "timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long one poll may take. A session's own timeoutMs wins.",
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
        help: "The shortest interval for endpoints that keep failing. One whose own interval is longer is \
               polled at twice that, then at four times.",
        commands: RUN,
        set: |draft, value| duration(value).map(|it| draft.config.light_interval = it),
    },
    Opt {
        name: "poll-command",
        value: Some("CMD"),
        default: "",
        help: "Poll by running this program instead of the built-in poller. Arguments are split at \
               spaces, without a shell. It gets the session's JSON on stdin and LEASEHOLD_ENDPOINT, \
               LEASEHOLD_INSTANCE and LEASEHOLD_FENCE in its environment; its stdout is the body, \
               exit code 0 is success. If it fails, the last words of its stderr are part of the \
               result's error; they are never logged.",
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
        help: "How much of a response is read and kept.",
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
        help: "First part of the instance id; the id is unique whatever it is.",
        commands: STAND,
        set: |draft, value| text(value).map(|it| draft.config.host_name = it),
    },
    Opt {
        name: "drain-timeout",
        value: Some("DURATION"),
        default: "10s",
        help: "How long a stop or a hand-over waits for a poll or a command that is still running.",
        commands: TIMED,
        set: |draft, value| duration(value).map(|it| draft.config.drain_timeout = it),
    },
    Opt {
        name: "min-replicas",
        value: Some("N"),
        default: "0",
        help: "Replicas that must acknowledge each grant and renewal before it counts. With as many as \
               could be promoted, a failover cannot forget who owns what.",
        commands: WAITING,
        set: |draft, value| number(value).map(|it| draft.config.min_replicas = it),
    },
    Opt {
        name: "new-fleet",
        value: None,
        default: "off",
        help: "Nobody else is running on this Redis: do not hold off when it has no record of an \
               earlier fleet.",
        commands: STAND,
        set: |draft, value| switch(value).map(|it| draft.config.new_fleet = it),
    },
    Opt {
        name: "runtime-dir",
        value: Some("DIR"),
        default: "$RUNTIME_DIRECTORY",
        help: "Where run and lead keep their instance id, and release finds it.",
        commands: KEPT,
        set: |draft, value| path(value).map(|it| draft.config.runtime_dir = Some(it)),
    },
    Opt {
        name: "metrics-file",
        value: Some("PATH"),
        default: "",
        help: "Write metrics there every five seconds, in the Prometheus text format, for \
               node_exporter's textfile collector: the name has to end in .prom. Removed at a stop.",
        commands: &["run", "lead", "doctor"],
        set: |draft, value| path(value).map(|it| draft.config.metrics_file = Some(it)),
    },
    Opt {
        name: "metrics-name",
        value: Some("NAME"),
        default: "the name of --metrics-file without .prom, or leasehold",
        help: "The label daemon of all metrics: tells the processes of one host apart.",
        commands: LEAD,
        set: |draft, value| text(value).map(|it| draft.config.metrics_name = Some(it)),
    },
    Opt {
        name: "settings",
        value: Some("FILES"),
        default: "",
        help: "Files, separated by colons, with settings as lines of NAME=value, like an EnvironmentFile \
               of systemd; read at the start, and by run again on SIGHUP. Of two files the last one \
               wins, over both the command line, and over the environment the files. Those of the \
               service do for every command: what does not concern it is passed over.",
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
        help: "Also show metrics at http://ADDR/metrics, such as 127.0.0.1:9464; loopback only, and only to \
               who asks for this host by its name or a loopback address.",
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
        help: "Further names in the Host header, separated by commas, to which --metrics-listen answers: \
               for a proxy that passes its own name on.",
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
        help: "What to log on stderr: off, error, warn, info, debug or trace. once logs no more than \
               warn unless this is given.",
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
        help: "Log each renewal at info (each), counts a minute at info (summary), or the counts at info and \
               each renewal at debug (auto). One of auto, each or summary.",
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
        help: "Also stand for these roles, separated by commas; the lease's times are theirs, too.",
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
        help: "How the names of all keys of roles begin.",
        commands: ROLES,
        set: |draft, value| text(value).map(|it| draft.config.leader_prefix = it),
    },
    Opt {
        name: "election-interval",
        value: Some("DURATION"),
        default: "15s",
        help: "How often an instance that does not lead looks even if nothing happened. Whatever \
               happens is noticed at once.",
        commands: LEAD,
        set: |draft, value| duration(value).map(|it| draft.config.election_interval = it),
    },
    Opt {
        name: "startup-jitter",
        value: Some("DURATION"),
        default: "0s",
        help: "Wait by chance up to this long before standing for a role for the first time.",
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
        help: "Never lead: only know, and log, who does.",
        commands: LEAD,
        set: |draft, value| switch(value).map(|it| draft.config.no_candidate = it),
    },
    Opt {
        name: "restart",
        value: None,
        default: "off",
        help: "Start the command again, after a second, when it ends by itself, and stay the leader.",
        commands: &["lead"],
        set: |draft, value| switch(value).map(|it| draft.restart = it),
    },
    Opt {
        name: "at-least-for",
        value: Some("DURATION"),
        default: "0s",
        help: "Keep the role this long from the start, also when the command ends sooner, so that a \
               host whose clock is late does not run it again.",
        commands: &["once"],
        set: |draft, value| duration(value).map(|it| draft.at_least_for = it),
    },
    Opt {
        name: "skip-code",
        value: Some("N"),
        default: "0",
        help: "The exit code when another host is doing it.",
        commands: &["once"],
        set: |draft, value| number(value).map(|it| draft.skip_code = it),
    },
    Opt {
        name: "id",
        value: Some("ID"),
        default: "",
        help: "add: the id of the session.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.id = Some(it)),
    },
    Opt {
        name: "name",
        value: Some("TEXT"),
        default: "",
        help: "add: a name for people.",
        commands: &["sessions"],
        set: |draft, value| text(value).map(|it| draft.name = Some(it)),
    },
    Opt {
        name: "wait",
        value: Some("DURATION"),
        default: "0s",
        help: "Wait until nothing is left there, at most so long; 1 is the exit code if something is.",
        commands: &["drain"],
        set: |draft, value| duration(value).map(|it| draft.wait = it),
    },
    Opt {
        name: "absent",
        value: None,
        default: "off",
        help: "Drain a host that no instance has run on yet, so that what is started there takes nothing. \
               Without it such a name is taken for a slip of the finger.",
        commands: &["drain"],
        set: |draft, value| switch(value).map(|it| draft.absent = it),
    },
    Opt {
        name: "join",
        value: Some("N"),
        default: "0",
        help: "So many instances join.",
        commands: &["plan"],
        set: |draft, value| number(value).map(|it: u16| draft.join = it.into()),
    },
    Opt {
        name: "leave",
        value: Some("INSTANCE"),
        default: "",
        help: "This instance, or all of this host, leaves; may be given again.",
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
        help: "The soft limit of open files to start the program with.",
        commands: &["guardian"],
        set: |draft, value| number(value).map(|it| draft.soft_files = Some(it)),
    },
    Opt {
        name: "orders-fd",
        value: Some("N"),
        default: "",
        help: "The descriptor to be told through.",
        commands: &["warden", "ward"],
        set: |draft, value| number(value).map(|it| draft.orders = Some(it)),
    },
    Opt {
        name: "report-fd",
        value: Some("N"),
        default: "",
        help: "The descriptor to report through.",
        commands: &["warden", "ward"],
        set: |draft, value| number(value).map(|it| draft.report = Some(it)),
    },
];

/// Variables that are told to commands which we start. One of those may start us.
const TOLD: [&str; 4] =
    ["LEASEHOLD_ENDPOINT", "LEASEHOLD_FENCE", "LEASEHOLD_ROLE", "LEASEHOLD_TERM"];

/// Whether a variable looks like ours and is no option's: with the one that was meant, if that can be told.
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

/// Why a value does not fit its option. What was given is kept only where it cannot be a secret.
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

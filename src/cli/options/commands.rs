//! All commands, with what `--help` says about each.

use crate::cli::options::{Spec, Takes};

const NOTHING: Takes = words(0);
const ROLE: Takes = words(1);
const PROGRAM: Takes = Takes { words_max: 0, program: true };
const ROLE_AND_PROGRAM: Takes = Takes { words_max: 1, program: true };

const fn words(words_max: usize) -> Takes {
    Takes { words_max, program: false }
}

/// The command that the completions of a shell run. It is hidden, and asks Redis as every other.
pub(crate) const NAMES: &str = "names";

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
                level, interval, timeout, light polling, workers, weight, targets, body size and \
                what polls believe change at once. The log names every other setting that has changed; these take \
                effect after a restart.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "dev",
        usage: "leasehold dev [OPTIONS]",
        summary: "a private Redis and a fleet on this host, to try things on",
        about: "Starts a private Redis server (redis-server or valkey-server must be on PATH), a \
                sample target with endpoints that answer, are slow and fail, three instances that \
                poll them, and the page of leasehold web, and prints the commands to try. Every \
                part is a process of its own: kill one and watch the others. A part that ends is \
                started again. SIGINT or SIGTERM ends and removes all of it, and so does the \
                death of this process. No variable of the environment counts, so that nothing \
                here touches a fleet in service. With --redis it uses your server, one or behind \
                Sentinels, under prefixes of its own, leasehold-dev and leasehold-dev-leader, and \
                removes these keys at the end. The timings are short: a lease lasts 6 s, a \
                heartbeat 3 s.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "status",
        usage: "leasehold status [OPTIONS]",
        summary: "which instance polls which endpoint, and whether all is well",
        about: "Shows which instance polls which endpoint, and whether all is well. It prints a \
                verdict, then the instances with the number of endpoints that each owns and its \
                fair share, then the endpoints with owner, address and last result. A line fits \
                the terminal; in a pipe nothing is cut. Only reads: docs/redis.md lists the few \
                rights it needs in Redis. Exit code 0 means that the state could be read, not \
                that all is well; --check has exit codes for that, and --json \"healthy\".",
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
        name: "web",
        usage: "leasehold web [OPTIONS]",
        summary: "the same as a page in the browser, read-only",
        about: "Shows what status, explain and history show, live, as a page at http://ADDR/ for \
                browsers on this host: the verdict, instances with their load, leaders, lists of \
                endpoints to filter, and a page for each endpoint. Also answers /status.json \
                (as status --json), /metrics and /healthz. Redis is read only while somebody looks, \
                at most once a second. A request is answered only if its Host header is a name of \
                this host or of --web-hosts. While Redis does not answer, the last state stays on \
                the page. Runs until SIGTERM or SIGINT. Only reads.",
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
        name: "get",
        usage: "leasehold get ENDPOINT [OPTIONS]",
        summary: "one endpoint: address, verdict, last result, next poll, owner",
        about: "Shows one endpoint: its address, its state, its verdict and since when, its last \
                result with the whole error, when it is polled next, and its owner. It reads the \
                keys of this endpoint and of its owner, and no others. An endpoint that has \
                neither a session nor a lease is an error. Only reads.",
        takes: words(1),
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
        summary: "follow lease events, changes and results as they happen",
        about: "Prints a line for each lease event, each change of a verdict and each result, of \
                ENDPOINT or of all endpoints, as they happen, until SIGINT, SIGTERM or a closed pipe. While Redis is \
                away, it says so on stderr and tries again. Afterwards it prints the lease events \
                and changes of that time, but not the results. Only reads.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "audit",
        usage: "leasehold audit [--for D | --since D | --replay FILE] [OPTIONS]",
        summary: "did the fleet keep its promises: one owner, and all polled",
        about: "Judges results, changes of verdicts, lease events and owners, and prints one line \
                for each finding: two owners polled one endpoint at a time, a fence went back, two \
                instances have one fence, or an endpoint had nobody for longer than the life of a \
                lease. The last line says how much was audited, and for how long something could \
                not be observed. Live until SIGINT, SIGTERM or the end of --for; over what Redis \
                remembers with --since; from a file with --replay. Exit code 0: nothing found; 1: \
                something was found, or it could not be audited. Only reads.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "history",
        usage: "leasehold history [ENDPOINT] [OPTIONS]",
        summary: "the last grants: who held what, when, why it moved",
        about: "Lists the last lease events and changes of verdicts, of ENDPOINT or of all \
                endpoints, the newest last: when, which endpoint, what happened (acquired, \
                released, lost, reclaimed; failing, recovered), which instance, under which fence, and why. Redis keeps about the last 10,000 events. \
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
        summary: "give back the leases of an instance that is dead",
        about: "Releases the leases of an instance that is dead, so that the others \
                need not wait for them to expire. Made for systemd's ExecStopPost. With --force an \
                instance that may be alive is revoked first, and comes back as a newcomer. An id \
                without a heartbeat, a lease or an entry in the history is an error. Releasing an \
                instance a second time is not an error.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "sessions",
        usage: "leasehold sessions VERB [ADDRESS | ID… | FILE] [FIELD=VALUE…] [OPTIONS]",
        summary: "the stored sessions: list, add, set, pause, export, sync, …",
        about: "Reads and changes the stored sessions: what is to be polled. VERB is list, add \
                ADDRESS [FIELD=VALUE…], set ID FIELD=VALUE…, pause ID…, resume ID…, remove ID…, \
                export, import [FILE] or sync FILE. list shows every session and whether it is \
                polled; if not, it shows the state that status shows, such as unowned. add stores \
                a session for ADDRESS (host:port, a URL, or tcp://host:port) under --id or a new \
                UUID, and prints the id. set changes fields of a session: VALUE is JSON or text, \
                and null is as if the field were not there. pause and resume set isPaused; with \
                --for the session resumes by itself. set, pause and resume leave every other byte \
                as it is, and do not overwrite a change that another client makes at the same \
                moment. remove deletes a session; its last result is kept for a day. export \
                prints one session per line, as import and sync read them. import reads JSON \
                lines from FILE or stdin (-), checks all of them, and then stores one session per \
                line. sync stores only what differs, keeps isPaused where a line does not say it, \
                and with --prune removes the sessions that are not in FILE; with --dry-run it \
                says what it would do. Each warns of ignored fields that look like a known one \
                (paused for isPaused).",
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
        name: "agent",
        usage: "leasehold agent --socket PATH [OPTIONS]",
        summary: "hold leases and roles for programs in any language, by a socket",
        about: "Listens at --socket, and holds leases and roles for the programs that connect: \
                ACQUIRE nightly is answered with HELD, a fence and how long the lease lasts; LEAD \
                cleanup stands for a role. The connection is the session: when the program ends or \
                dies, everything it held is given back at once. docs/agent.md has the protocol. \
                Every client is a holder of its own. If Redis is away at the start, the agent \
                waits for it, and the socket is there once the agent can grant. At a stop, clients \
                are told, and have --drain-timeout to finish; a second signal ends that wait.",
        takes: NOTHING,
        hidden: false,
    },
    Spec {
        name: "connect",
        usage: "leasehold connect --socket PATH",
        summary: "talk to an agent by stdin and stdout, such as from a shell script",
        about: "Passes lines from stdin to the agent at --socket, and its lines to stdout. When \
                stdin ends, the agent carries out what was said, and ends the session. Ends when \
                the agent ends the connection.",
        takes: NOTHING,
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
        name: "help",
        usage: "leasehold help [COMMAND]",
        summary: "all commands, or all about one",
        about: "Prints what leasehold --help prints, or all about COMMAND.",
        takes: words(1),
        hidden: false,
    },
    Spec {
        name: "version",
        usage: "leasehold version",
        summary: "the version",
        about: "Prints the version.",
        takes: NOTHING,
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
        name: NAMES,
        usage: "leasehold names (endpoints | instances | roles) [BEGINNING] [OPTIONS]",
        summary: "names for the completions of a shell",
        about: "Prints the names in Redis that begin with BEGINNING, one a line. Says nothing about \
                a failure. Started by the completions.",
        takes: words(2),
        hidden: true,
    },
    Spec {
        name: "poll-supervisor",
        usage: "leasehold poll-supervisor --grace-ms N [--soft-files N] -- PROGRAM…",
        summary: "run a program that must not outlive this one",
        about: "Runs PROGRAM in its own process group and ends the group when the daemon that \
                started this supervisor is gone. Started by Leasehold itself.",
        takes: PROGRAM,
        hidden: true,
    },
    Spec {
        name: "supervisor",
        usage: "leasehold supervisor --grace-ms N --orders-fd N --report-fd N -- PROGRAM…",
        summary: "run a program that must end at a deadline",
        about: "Runs PROGRAM and ends its process group at the last deadline that it received, or \
                when the process that sends deadlines is gone. Started by Leasehold itself.",
        takes: PROGRAM,
        hidden: true,
    },
    Spec {
        name: "exec-shim",
        usage: "leasehold exec-shim --orders-fd N --report-fd N -- PROGRAM [ARGUMENTS]",
        summary: "become a program when told to",
        about: "Becomes PROGRAM when its supervisor says so, and dies with the supervisor. \
                Started by leasehold supervisor.",
        takes: PROGRAM,
        hidden: true,
    },
];

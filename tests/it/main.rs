//! Whole-system tests, one binary. Each module says what belongs there.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

/// R1–R14 and the promises: what holds whatever goes wrong.
mod protocol {
    /// US2: failover and self-healing, real processes.
    mod failover;
    /// Redis misbehaves, real processes.
    mod faults;
    /// R1–R14 on the in-memory cluster: one test a clause.
    mod rules;
    /// R16 on a whole fleet in memory: who is revoked, and who is spared.
    mod revocation;
    /// A short run of the simulator, and of the explorer of the small case.
    mod simulated;
    /// How long an endpoint is without a poll when its owner dies or its heir hangs.
    mod takeover;
}
/// Who owns what: discovery, placement, hand-over.
mod fleet {
    /// US4: balance.
    mod balance;
    /// What counts as an endpoint, and how soon it is found, in memory.
    mod discovery;
    /// US1: work is shared out.
    mod distribution;
    /// Weights and `poll:drain`, changed while the fleet runs.
    mod drain;
    /// Looking is cheap and nothing is overlooked, in memory.
    mod looking;
    /// How long an endpoint is without a poll when it changes hands, as distributions.
    mod moves;
    /// Ways in which something was once overlooked, in memory.
    mod overlooked;
}
/// What Redis is asked, and what it answers: every make, topology and set of rights.
mod store {
    /// The same cases over the in-memory store and a real Redis.
    mod contract;
    /// What each make and version of a server answers at first, recorded.
    mod handshake;
    /// The wake-up channels are hints, whatever is said on them.
    mod hints;
    /// Servers on which commands were renamed away, and users who may not use them.
    mod managed;
    /// Two fleets in two databases of one Redis: neither hears the other.
    mod databases;
    /// The rules of docs/redis.md: enough, and no more than is needed.
    mod rights;
    /// Redis over TLS, and secrets that are exchanged while everything runs.
    mod tls;
    /// Sentinels and clusters: the same promises through another URL, real processes.
    mod topologies;
}
/// Leader election: in memory, as a library, and from the command line.
mod election {
    /// The rows of the specification of elections, in memory.
    mod documents;
    /// Work that only a leader may do, in memory.
    mod duties;
    /// What listeners hear, in memory.
    mod events;
    /// Redis, clocks and networks fail, in memory.
    mod faults;
    /// What becomes of the role when `lead` or `once` is killed, real processes.
    mod killed;
    /// A command on the leader, and on nobody else, real processes.
    mod lead;
    /// The same as a library: real threads, a real Redis.
    mod library;
    /// Hundreds of roles of one process, and a Redis that is far away or hangs.
    mod many;
    /// Work that is called when a leadership begins and ends.
    mod run;
    /// Roles from the command line: once, leaders, run --lead, real processes.
    mod once;
    /// Priorities, observers and single attempts, in memory.
    mod precedence;
    /// The history of runs, and what depends on it, real processes.
    mod runs;
    /// Random stories, in memory.
    mod stories;
}
/// Polls, and what strangers answer.
mod polling {
    /// Which certificates are believed, and how long they last: on real servers.
    mod certificates;
    /// Which answer is ok: the fields of a session that describe its check.
    mod checks;
    /// Each change of a verdict is told once; what runs then.
    mod changes;
    /// Generated input from strangers: sessions, settings, replies, responses, words.
    mod hostile;
    /// Commands as pollers, under their poll supervisor.
    mod poll_command;
    /// US3: never two pollers, real processes.
    mod single_poller;
}
/// The commands and their output.
mod cli {
    /// `leasehold audit`: what it finds, and what it does not.
    mod audit;
    /// `leasehold status` for monitoring systems, and for scripts.
    mod check;
    /// Commands, options, exit codes and messages of the real binary.
    mod commands;
    /// `leasehold doctor`, on servers that were set up badly on purpose.
    mod doctor;
    /// One endpoint, with everything that is stored about it.
    mod get;
    /// The shape of every document, and every page of help.
    mod golden;
    /// What was remembered, and what is happening: `leasehold history` and `watch`.
    mod history;
    /// Endpoints that are polled less often than they should be: `status` and `explain` say so.
    mod late;
    /// A dry run, and reasons.
    mod plan;
    /// Stored sessions and drains, as people change them.
    mod sessions;
    /// Fields of sessions, pauses that end, and files that are the truth.
    mod sync;
    /// `leasehold status`, on real fleets and on what strangers left in Redis.
    mod status;
    /// `leasehold top` in a terminal of its own.
    mod top;
    /// Settings for every command, and errors that say the way out.
    mod settings;
}
/// The program as a process, and the library in another program's process.
mod process {
    /// The daemon under hostile input and faults that are not about ownership.
    mod daemon;
    /// `leasehold dev`: a fleet to try things on, and nothing left of it.
    mod dev;
    /// The public face of the library.
    mod library;
    /// Code of the user, or a thread of ours, panics.
    mod library_panics;
    /// Thousands of leases in one call.
    mod library_batches;
    /// Guards of a `LeaseManager`: one tenure each, given back by the last.
    mod library_guards;
    /// Threads that wait for a lease of another instance.
    mod library_waiting;
    /// Several threads of one process use one `LeaseManager`.
    mod library_threads;
    /// `--metrics-file`, and what is to be made of it.
    mod metrics;
    /// How many lines an outage, skipped polls and renewals make.
    mod quiet_log;
    /// SIGHUP: what changes, what has to wait, and what is refused.
    mod reload;
    /// R15 and R16 with real processes, at leases of 30 s.
    mod revocation;
    /// What the service manager hears and says: readiness, status, watchdog, reload.
    mod service;
    /// Descriptors, threads and programs that we lack; a stop that is hurried.
    mod shortage;
    /// Commands that end before their lease can move.
    mod supervisor;
    /// The page: what it shows, to whom, and what it costs.
    mod web;
}
/// Tests of a user's own program: a Redis in memory, and a clock that a test moves.
mod testing {
    /// The clock: one course of things, and no time.
    mod clock;
    /// Leaderships that are won, lost, given back and waited for.
    mod elections;
    /// Leases that are kept, lost, given back and waited for.
    mod leases;
}
/// `leasehold agent`: leases and roles for programs in any language, real processes.
mod agent {
    /// The examples of docs/agent.md, run.
    mod examples;
    /// Clients, agents and Redis are killed, frozen and restarted.
    mod faults;
    /// 200 clients of two agents want the same names.
    mod hammer;
    /// Strangers at the socket.
    mod hostile;
    /// Roles.
    mod roles;
    /// Leases, sessions and their ends.
    mod sessions;
}
/// The source tree, the documents and the package.
mod meta {
    /// Rules about the source tree itself: imports point one way, documents are true.
    mod architecture;
    /// The protocol, the contract and what cites them.
    mod book;
    /// Paths in examples are those that are installed.
    mod packaging;
    /// The README and the pages under docs/ can be read, and `make help` is complete.
    mod pages;
    /// What is computed from measured numbers is what those numbers say.
    mod paper;
    /// Every requirement has its test.
    mod requirements;
}

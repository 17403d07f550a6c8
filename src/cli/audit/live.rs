//! Audits the live fleet: the followers of `watch`, and looks at all sessions, leases and results.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::inspect::audit::{Look, Observation, Source, Unattended, unattended};
use crate::inspect::status::Status;
use crate::stop_on_signal;
use crate::store::Fault;
use crate::store::history::Stream;
use crate::store::redis::RedisStore;
use crate::thread::{Stop, Thread, stop};

use crate::cli::audit::{Auditor, Ended, Gaps};
use crate::cli::explained;
use crate::cli::follow::{self, Begun, Follower, News};
use crate::cli::table::printable;
use crate::cli::task::STALE_AFTER;
use crate::cli::watch::{complain, say_refused};

/// How often everything is looked at, if that takes no longer than a tenth of it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Looks take at most one part in this many of the time.
const LOOKING_SHARE: u32 = 10;
/// More than this waits where it comes from.
const NEWS_MAX: usize = 1_024;

/// What a look came to.
pub(super) enum Looked {
    Seen(Look, Vec<Unattended>),
    Failed(String),
    /// The user may not read what a look needs.
    Refused(String),
}

/// Reads everything once.
pub(super) fn look(store: &RedisStore, timeout: Duration) -> Looked {
    match store.overview(timeout) {
        Ok(overview) => {
            let (took, epoch) = (overview.took, overview.epoch);
            let status = Status::of(overview, STALE_AFTER);
            let (found, wanted) = unattended(&status, took);
            Looked::Seen(Look { server_ms: status.server_ms, epoch, wanted }, found)
        }
        Err(error) if error.fault == Fault::Misconfigured => Looked::Refused(error.to_string()),
        Err(error) => Looked::Failed(error.to_string()),
    }
}

/// Audits until a signal or the end of `lasting`.
pub(super) fn audit(
    config: &Config,
    lasting: Option<Duration>,
    auditor: Auditor,
) -> Result<Auditor, Ended> {
    // First of all: what it blocks must be blocked in every thread.
    let signalled = stop_on_signal().map_err(|_| Ended::Failed("cannot handle signals".into()))?;
    let ends = lasting.map_or_else(never, after);
    let Begun { followers, refused } = Follower::begin(config, None)
        .map_err(|error| Ended::Failed(printable(&error.to_string())))?;
    // Dropped behind everything that its threads wait for, however this ends.
    let mut threads = Vec::new();
    let (source, when) = stop();
    let (tell, news) = bounded(NEWS_MAX);
    let (tell_look, looks) = bounded(1);
    let mut live = Live { auditor, gaps: Gaps::new(), refused: vec![], began_at: BootClock.now() };
    refused
        .iter()
        .for_each(|(source, error)| live.refuse(of(*source), || say_refused(*source, error)));
    let thread = |spawned: std::io::Result<Thread>| {
        spawned.map_err(|error| Ended::Failed(format!("cannot start a thread: {error}")))
    };
    for follower in followers {
        threads.push(thread(follower.spawn(&tell, &when))?);
    }
    let store = Arc::new(RedisStore::of_endpoints(config));
    let timeout = config.store_timeout;
    let looking = when.clone();
    threads.push(thread(Thread::spawn("look", move || {
        go_on_looking(&store, timeout, &tell_look, &looking);
    }))?);
    drop(tell);
    let ended = live.run(news, looks, &signalled, &ends);
    // In this order: the threads that wait to tell something have been left, and end with their stop.
    drop((source, threads));
    ended.map(|()| live.auditor)
}

fn go_on_looking(store: &RedisStore, timeout: Duration, tell: &Sender<Looked>, stop: &Stop) {
    loop {
        let began_at = BootClock.now();
        let looked = look(store, timeout);
        let took = BootClock.now().since(began_at);
        let is_last = matches!(looked, Looked::Refused(_));
        if tell.send(looked).is_err() || is_last {
            return;
        }
        if stop.within(LOOK_EVERY.max(took * (LOOKING_SHARE - 1))) {
            return;
        }
    }
}

fn of(source: follow::Source) -> Source {
    match source {
        follow::Source::Leases => Source::Leases,
        follow::Source::Changes => Source::Changes,
        follow::Source::Results => Source::Results,
    }
}

struct Live {
    auditor: Auditor,
    gaps: Gaps,
    /// Sources that this user may not read.
    refused: Vec<Source>,
    began_at: Moment,
}

impl Live {
    fn run(
        &mut self,
        mut news: Receiver<News>,
        mut looks: Receiver<Looked>,
        signalled: &Stop,
        ends: &Receiver<std::time::Instant>,
    ) -> Result<(), Ended> {
        let mut looked_at = BootClock.now();
        loop {
            select! {
                recv(signalled.receiver()) -> _ => break,
                recv(ends) -> _ => break,
                recv(news) -> it => match it {
                    Ok(it) => self.take_news(it)?,
                    Err(_) => news = never(),
                },
                recv(looks) -> it => match it {
                    Ok(it) => self.take_look(it, &mut looked_at)?,
                    Err(_) => looks = never(),
                },
            }
            for it in news.try_iter().take(NEWS_MAX) {
                self.take_news(it)?;
            }
            self.auditor.flush()?;
        }
        for it in news.try_iter().take(NEWS_MAX) {
            self.take_news(it)?;
        }
        for source in Source::ALL {
            if self.refused.contains(&source) {
                let all = BootClock.now().since(self.began_at);
                let for_ms = u64::try_from(all.as_millis()).unwrap_or(u64::MAX);
                self.auditor.take(Observation::Unobserved { source, for_ms })?;
            } else {
                self.end_gap(source)?;
            }
        }
        Ok(())
    }

    fn take_news(&mut self, it: News) -> Result<(), Ended> {
        let observed = match it {
            News::Result(it) => Some(Observation::of_announced(&it)),
            News::Change(it) => Observation::of_entry(Stream::Changes, &it),
            News::Lease(it) => Observation::of_entry(Stream::Leases, &it),
            News::Foreign(n) => {
                for _ in 0..n {
                    self.auditor.take(Observation::Foreign)?;
                }
                None
            }
            News::Away(source, why, received_at) => {
                self.gaps.begin(of(source), received_at, &why);
                None
            }
            News::Back(source) => return self.end_gap(of(source)),
            News::Refused(source, error) => {
                self.refuse(of(source), || say_refused(source, &error));
                None
            }
        };
        observed.map_or(Ok(()), |it| self.auditor.take(it))
    }

    fn take_look(&mut self, it: Looked, looked_at: &mut Moment) -> Result<(), Ended> {
        match it {
            Looked::Seen(look, unattended) => {
                *looked_at = BootClock.now();
                self.end_gap(Source::Looks)?;
                for it in unattended {
                    // Since a look saw it: what is stored may be older than a pause of the session.
                    let it = Unattended { since_ms: None, ..it };
                    self.auditor.take(Observation::Unattended(it))?;
                }
                self.auditor.take(Observation::Look(look))?;
            }
            Looked::Failed(why) => self.gaps.begin(Source::Looks, *looked_at, &why),
            Looked::Refused(why) => self.refuse(Source::Looks, || {
                let why = explained(printable(&why));
                complain(&format!("sessions and owners are not audited: {why}"));
            }),
        }
        Ok(())
    }

    fn end_gap(&mut self, source: Source) -> Result<(), Ended> {
        self.gaps.end(source).map_or(Ok(()), |it| self.auditor.take(it))
    }

    fn refuse(&mut self, source: Source, complain: impl FnOnce()) {
        complain();
        self.refused.push(source);
    }
}

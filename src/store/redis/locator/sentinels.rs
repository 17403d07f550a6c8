//! Asking sentinels who the master is: all at once, under a deadline, and believing only most of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;
use redis::{ErrorKind, RedisError, RedisResult};

use crate::clock::{BootClock, Clock, Moment};
use crate::config::{HostPort, Login};
use crate::model::LeaseDuration;
use crate::store::redis::connection::{Connection, Credentials};
use crate::store::redis::locator::{Peer, ReadCredentials};

/// Longest time between two lookups. A demoted master answers for about ten seconds, and what it confirms then is
/// lost.
const ASK_EVERY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Sentinels {
    peers: Vec<Arc<Peer>>,
    name: String,
    /// How old an answer may be.
    every: Duration,
    /// After this long without a lookup this process holds no lease.
    ttl: Duration,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    master: Option<Arc<Peer>>,
    /// The master was reachable ever since the sentinels last named it. Otherwise there may be another by now.
    stayed: bool,
    ask_at: Moment,
    moves: u64,
}

/// What one of them said: an address, or that it knows no such master.
type Told = RedisResult<Option<HostPort>>;

impl Sentinels {
    /// For leases of this duration. The hold-off of a new master (R5) outlasts by two margins what the old one
    /// has confirmed until then: what it confirms later must come to an end within that, too.
    pub(crate) fn new(peers: Vec<Arc<Peer>>, name: &str, duration: LeaseDuration) -> Self {
        let known = Known { master: None, stayed: false, ask_at: Moment::default(), moves: 0 };
        let every = duration.margin().min(ASK_EVERY_MAX);
        Self { peers, name: name.into(), every, ttl: duration.ttl, known: Mutex::new(known) }
    }

    pub(crate) fn moves(&self) -> u64 {
        self.known.lock().moves
    }

    pub(crate) fn doubt(&self, error: &RedisError) {
        let mut known = self.known.lock();
        known.ask_at = BootClock.now();
        known.stayed &= !error.is_io_error();
    }

    /// The master by a lookup at most `every` old. Without a majority, the known master stays while it is reachable.
    pub(crate) fn master(
        &self,
        credentials: ReadCredentials<'_>,
        deadline: Moment,
    ) -> RedisResult<Arc<Peer>> {
        let now = BootClock.now();
        let known = {
            let mut known = self.known.lock();
            known.stayed &= now.since(known.ask_at) < self.ttl;
            match &known.master {
                Some(master) if known.stayed && now < known.ask_at => {
                    return Ok(Arc::clone(master));
                }
                _ => (),
            }
            // One caller asks; the others go on with what is known.
            known.ask_at = now + self.every;
            known.master.clone().filter(|_| known.stayed)
        };
        // The caller needs the rest of the time for its own request.
        let share = deadline.since(now) / if known.is_some() { 4 } else { 2 };
        let told = credentials().and_then(|credentials| self.ask_all(credentials, now + share));
        let mut kept = self.known.lock();
        match (told, known) {
            (Ok(master), _) => {
                kept.stayed = true;
                let is_other = kept.master.as_deref() != Some(&master);
                let master = Arc::new(master);
                if is_other {
                    kept.moves += 1;
                    kept.master = Some(Arc::clone(&master));
                }
                Ok(master)
            }
            (Err(_), Some(master)) => {
                // Not each time: the caller waits for the sentinels that are away.
                kept.ask_at = now + 2 * self.every;
                Ok(master)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Each on a thread of its own: one that hangs must not keep the answer of the others. It ends at the
    /// deadline, and nobody waits for it.
    fn ask_all(&self, credentials: Credentials, deadline: Moment) -> RedisResult<Peer> {
        let (told, answers) = bounded(self.peers.len());
        let login = credentials.login;
        let anonymous = Credentials { login: Login::default(), database: 0, ..credentials };
        let credentials = Arc::new((anonymous, login));
        for peer in &self.peers {
            let (told, credentials) = (told.clone(), Arc::clone(&credentials));
            let (peer, name) = (Arc::clone(peer), self.name.clone());
            std::thread::Builder::new().name("sentinel".into()).spawn(move || {
                told.send(one(&peer, &name, &credentials.0, &credentials.1, deadline))
            })?;
        }
        drop(told);
        self.most_of(&answers)
    }

    /// The address that more than half of all sentinels name. Fewer may be cut off together with a master
    /// that the others have replaced.
    fn most_of(&self, answers: &Receiver<Told>) -> RedisResult<Peer> {
        let (mut named, mut n_unknown) = (Vec::<(HostPort, usize)>::new(), 0);
        let mut failure = None;
        // Each answers or fails by the deadline, which is then over for the answers, too.
        for told in answers {
            match told {
                Ok(Some(it)) => match named.iter_mut().find(|had| had.0 == it) {
                    Some(had) => had.1 += 1,
                    None => named.push((it, 1)),
                },
                Ok(None) => n_unknown += 1,
                Err(error) => failure = Some(error),
            }
            if let Some((it, _)) = named.iter().find(|it| 2 * it.1 > self.peers.len()) {
                return Ok(Peer::Tcp(it.clone()));
            }
        }
        Err(self.undecided(named.len(), n_unknown, failure))
    }

    fn undecided(&self, named: usize, n_unknown: usize, failure: Option<RedisError>) -> RedisError {
        let (all, name) = (self.peers.len(), &self.name);
        if 2 * n_unknown > all {
            let why = format!("the sentinels know no master {name}: see SENTINEL MASTERS");
            return (ErrorKind::InvalidClientConfig, "settings", why).into();
        }
        match failure {
            // A password or a certificate, and not a sentinel that is away.
            Some(error) if !error.is_io_error() && named == 0 => error,
            Some(error) => io::Error::other(format!(
                "too few of {all} sentinels answered to know the master of {name}: {error}"
            ))
            .into(),
            None => io::Error::other(format!(
                "the {all} sentinels do not agree who the master of {name} is"
            ))
            .into(),
        }
    }
}

/// A sentinel that wants a password gets ours; any other does not see it.
fn one(
    peer: &Arc<Peer>,
    name: &str,
    credentials: &Credentials,
    login: &Login,
    deadline: Moment,
) -> Told {
    let mut connection = Connection::connect(peer, credentials, deadline)?;
    let answer = look_up(&mut connection, name);
    match (answer, &login.password) {
        (Err(error), Some(password)) if error.code() == Some("NOAUTH") => {
            let mut auth = redis::cmd("AUTH");
            auth.arg(login.user.as_slice()).arg(password).exec(&mut connection)?;
            look_up(&mut connection, name)
        }
        (answer, _) => answer,
    }
}

fn look_up(connection: &mut Connection, name: &str) -> Told {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let found: Option<(String, u16)> = command.query(connection)?;
    Ok(found.map(|(host, port)| HostPort { host, port }))
}

/// Refuses a replica that a sentinel calls the master.
pub(crate) fn check_role(connection: &mut Connection) -> RedisResult<()> {
    let info: String = redis::cmd("INFO").arg("replication").query(connection)?;
    if info.contains("role:master") {
        return Ok(());
    }
    let peer = &connection.peer;
    Err(io::Error::other(format!("the sentinels name {peer}, which is a replica: wait")).into())
}

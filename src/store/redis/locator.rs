//! Where is the store now? One server, the master that sentinels name, or the shards of a cluster.
//!
//! Where it can move, callers ask every now and then where it is, and leaves a server that is no
//! longer the one: a demoted master goes on answering for seconds. Nothing here is believed to be safe by
//! itself; which life of the store it is, is read inside every script (R5).

mod sentinels;
pub(crate) mod shards;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult};

use crate::clock::Moment;
use crate::config::{Access, AccessError, HostPort, Login, RedisUrl, Topology};
use crate::model::LeaseDuration;
use crate::store::redis::connection::{Connection, Entry};
use crate::store::redis::locator::sentinels::Sentinels;
use crate::store::redis::locator::shards::{Shards, slot_of};
use crate::store::redis::tls::Tls;

/// A server that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Tcp(HostPort),
    Unix(PathBuf),
}

/// Which part of the store is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route<'a> {
    /// Where everything but the sessions is.
    Home,
    /// Where this key is.
    Key(&'a str),
    /// This server.
    At(&'a Arc<Peer>),
}

#[derive(Debug)]
pub(crate) struct ServerLocator {
    url: RedisUrl,
    access: Access,
    guide: LocatorKind,
}

/// Who says where it is.
#[derive(Debug)]
enum LocatorKind {
    Fixed(Arc<Peer>),
    Sentinels(Sentinels),
    Shards(Shards),
}

impl ServerLocator {
    /// Nothing is connected yet. `home` is a key of those that belong together, `duration` that of the leases
    /// which are kept there.
    pub(crate) fn new(
        url: &RedisUrl,
        access: &Access,
        home: &str,
        duration: LeaseDuration,
    ) -> Self {
        let mut peers = url.places().iter().map(|it| Arc::new(Peer::Tcp(it.clone())));
        let guide = match url.topology() {
            Topology::Sentinel => {
                LocatorKind::Sentinels(Sentinels::new(peers.collect(), url.master(), duration))
            }
            Topology::Cluster => LocatorKind::Shards(Shards::new(peers.collect(), slot_of(home))),
            Topology::Tcp | Topology::Unix => {
                let socket = || Arc::new(Peer::Unix(url.socket().to_owned()));
                LocatorKind::Fixed(peers.next().unwrap_or_else(socket))
            }
        };
        Self { url: url.clone(), access: access.clone(), guide }
    }

    pub(crate) fn database(&self) -> u32 {
        self.url.database()
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.url.login().user.as_deref()
    }

    pub(crate) fn topology(&self) -> Topology {
        self.url.topology()
    }

    /// Whether it can be at several servers.
    pub(crate) fn is_many(&self) -> bool {
        !matches!(self.guide, LocatorKind::Fixed(_))
    }

    /// Who is to be asked about `spot` now.
    pub(crate) fn peer(&self, spot: Route<'_>, deadline: Moment) -> RedisResult<Arc<Peer>> {
        match (&self.guide, spot) {
            (_, Route::At(peer)) => Ok(Arc::clone(peer)),
            (LocatorKind::Fixed(peer), _) => Ok(Arc::clone(peer)),
            (LocatorKind::Sentinels(it), _) => it.master(&|| self.entry(), deadline),
            (LocatorKind::Shards(it), Route::Home) => it.home(&|| self.entry(), deadline),
            (LocatorKind::Shards(it), Route::Key(key)) => {
                it.owner(slot_of(key), &|| self.entry(), deadline)
            }
        }
    }

    /// Everybody who has a part of the store, home first.
    pub(crate) fn peers(&self, deadline: Moment) -> RedisResult<Vec<Arc<Peer>>> {
        match &self.guide {
            LocatorKind::Shards(it) => it.masters(&|| self.entry(), deadline),
            _ => Ok(vec![self.peer(Route::Home, deadline)?]),
        }
    }

    /// Changes whenever the store was found to be elsewhere.
    pub(crate) fn moves(&self) -> u64 {
        match &self.guide {
            LocatorKind::Fixed(_) => 0,
            LocatorKind::Sentinels(it) => it.moves(),
            LocatorKind::Shards(it) => it.moves(),
        }
    }

    /// Something failed: before the next question, ask where it is.
    pub(crate) fn doubt(&self, error: &RedisError) {
        match &self.guide {
            LocatorKind::Fixed(_) => (),
            LocatorKind::Sentinels(it) => it.doubt(error),
            LocatorKind::Shards(it) => it.doubt(error),
        }
    }

    /// Connects to one of [`Self::peers`].
    pub(crate) fn connect(&self, peer: &Arc<Peer>, deadline: Moment) -> RedisResult<Connection> {
        let mut connection = Connection::connect(peer, &self.entry()?, deadline)?;
        if let LocatorKind::Sentinels(_) = self.guide {
            sentinels::check_role(&mut connection)?;
        }
        Ok(connection)
    }

    /// Connects to where everything but the sessions is.
    pub(crate) fn connect_home(&self, deadline: Moment) -> RedisResult<Connection> {
        let peer = self.peer(Route::Home, deadline)?;
        let connection = self.connect(&peer, deadline);
        connection.inspect_err(|error| self.doubt(error))
    }

    /// Reads the files, so only when something is to be connected.
    fn entry(&self) -> RedisResult<Entry> {
        let tls = self.url.uses_tls().then(|| Tls::read(&self.access)).transpose();
        let login = self.url.login().clone();
        let password = self.access.password().map_err(unusable)?;
        let login = Login { password: login.password.or(password), ..login };
        Ok(Entry { login, tls: tls.map_err(unusable)?, database: self.url.database() })
    }
}

/// What it takes to be let in, when it is needed.
type Keyring<'a> = &'a dyn Fn() -> RedisResult<Entry>;

fn unusable(error: AccessError) -> RedisError {
    (ErrorKind::InvalidClientConfig, "settings", error.to_string()).into()
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => place.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

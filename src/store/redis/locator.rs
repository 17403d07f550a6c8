//! On which server is the store now? On a fixed one, on the master that Sentinels name, or on the shards of a cluster.
//!
//! A demoted master goes on answering for seconds. So callers look up the server regularly where it can change, and leave one
//! that is no longer the master. Safety does not depend on this: every script checks the epoch (R5).

mod sentinels;
pub(crate) mod shards;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult};

use crate::clock::Moment;
use crate::config::setting::Names;
use crate::config::{
    Access, AccessError, Config, ConfigError, HostPort, Login, RedisUrl, Topology,
};
use crate::model::LeaseDuration;
use crate::store::redis::connection::{Connection, Credentials};
use crate::store::redis::locator::sentinels::Sentinels;
use crate::store::redis::locator::shards::{Shards, slot_of};
use crate::store::redis::tls::Tls;

/// A server that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Tcp(HostPort),
    Unix(PathBuf),
}

/// To which server a request goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route<'a> {
    /// The server of all keys but the sessions.
    Home,
    /// The server of this key.
    Key(&'a str),
    /// This server.
    At(&'a Arc<Peer>),
}

#[derive(Debug)]
pub(crate) struct ServerLocator {
    url: RedisUrl,
    access: Access,
    names: Names,
    kind: LocatorKind,
}

/// How the server is found.
#[derive(Debug)]
enum LocatorKind {
    Fixed(Arc<Peer>),
    Sentinels(Sentinels),
    Shards(Shards),
}

impl ServerLocator {
    /// Connects to no server yet. `home` is one of the keys that are on one server, `duration` that of the leases.
    pub(crate) fn new(config: &Config, home: &str) -> Self {
        let Config { redis: url, access, names, .. } = config;
        let duration = LeaseDuration::new(config.lease_ttl);
        let mut peers = url.places().iter().map(|it| Arc::new(Peer::Tcp(it.clone())));
        let kind = match url.topology() {
            Topology::Sentinel => {
                LocatorKind::Sentinels(Sentinels::new(peers.collect(), url.master(), duration))
            }
            Topology::Cluster => LocatorKind::Shards(Shards::new(peers.collect(), slot_of(home))),
            Topology::Tcp | Topology::Unix => {
                let socket = || Arc::new(Peer::Unix(url.socket().to_owned()));
                LocatorKind::Fixed(peers.next().unwrap_or_else(socket))
            }
        };
        Self { url: url.clone(), access: access.clone(), names: *names, kind }
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

    /// Whether the store can be on several servers.
    pub(crate) fn is_many(&self) -> bool {
        !matches!(self.kind, LocatorKind::Fixed(_))
    }

    /// The server for `route` now.
    pub(crate) fn peer(&self, route: Route<'_>, deadline: Moment) -> RedisResult<Arc<Peer>> {
        match (&self.kind, route) {
            (_, Route::At(peer)) => Ok(Arc::clone(peer)),
            (LocatorKind::Fixed(peer), _) => Ok(Arc::clone(peer)),
            (LocatorKind::Sentinels(it), _) => it.master(&|| self.credentials(), deadline),
            (LocatorKind::Shards(it), Route::Home) => it.home(&|| self.credentials(), deadline),
            (LocatorKind::Shards(it), Route::Key(key)) => {
                it.owner(slot_of(key), &|| self.credentials(), deadline)
            }
        }
    }

    /// Every server with a part of the store, home first.
    pub(crate) fn peers(&self, deadline: Moment) -> RedisResult<Vec<Arc<Peer>>> {
        match &self.kind {
            LocatorKind::Shards(it) => it.masters(&|| self.credentials(), deadline),
            _ => Ok(vec![self.peer(Route::Home, deadline)?]),
        }
    }

    /// Changes whenever the store has moved to another server.
    pub(crate) fn moves(&self) -> u64 {
        match &self.kind {
            LocatorKind::Fixed(_) => 0,
            LocatorKind::Sentinels(it) => it.moves(),
            LocatorKind::Shards(it) => it.moves(),
        }
    }

    /// A request failed: look the server up again before the next one.
    pub(crate) fn doubt(&self, error: &RedisError) {
        match &self.kind {
            LocatorKind::Fixed(_) => (),
            LocatorKind::Sentinels(it) => it.doubt(error),
            LocatorKind::Shards(it) => it.doubt(error),
        }
    }

    /// Connects to one of [`Self::peers`].
    pub(crate) fn connect(&self, peer: &Arc<Peer>, deadline: Moment) -> RedisResult<Connection> {
        let mut connection = Connection::connect(peer, &self.credentials()?, deadline)?;
        if let LocatorKind::Sentinels(_) = self.kind {
            sentinels::check_role(&mut connection)?;
        }
        Ok(connection)
    }

    /// Connects to the server of all keys but the sessions.
    pub(crate) fn connect_home(&self, deadline: Moment) -> RedisResult<Connection> {
        let peer = self.peer(Route::Home, deadline)?;
        let connection = self.connect(&peer, deadline);
        connection.inspect_err(|error| self.doubt(error))
    }

    /// Reads the certificate files, so it is called only for a new connection.
    fn credentials(&self) -> RedisResult<Credentials> {
        let unusable = |error: AccessError| -> RedisError {
            let why = ConfigError::new(error, self.names).to_string();
            (ErrorKind::InvalidClientConfig, "settings", why).into()
        };
        let tls = self.url.uses_tls().then(|| Tls::read(&self.access, self.names)).transpose();
        let login = self.url.login().clone();
        let password = self.access.password().map_err(unusable)?;
        let login = Login { password: login.password.or(password), ..login };
        Ok(Credentials { login, tls: tls.map_err(unusable)?, database: self.url.database() })
    }

    /// What errors call the settings.
    pub(crate) fn names(&self) -> Names {
        self.names
    }
}

/// User, password and TLS, read when they are needed.
type ReadCredentials<'a> = &'a dyn Fn() -> RedisResult<Credentials>;

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => place.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

//! Reads everything once, as instances do.

use std::io;
use std::time::Duration;

use leasehold::model::EndpointId;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{BATCH_MAX, Store};

use testkit::bench::holder;

pub(crate) struct Reader {
    store: RedisStore,
    endpoints: Vec<EndpointId>,
}

const TIMEOUT: Duration = Duration::from_secs(10);

impl Reader {
    pub(crate) fn new(url: &str, sessions: u32) -> io::Result<Self> {
        let store = RedisStore::new(url, url, Keys::new("poll", "session:"));
        let endpoints = holder::endpoints(0..sessions)?;
        Ok(Self { store: store.map_err(io::Error::other)?, endpoints })
    }

    pub(crate) fn names(&self) -> io::Result<()> {
        let mut cursor = 0;
        loop {
            cursor = self.store.session_names(cursor, TIMEOUT).map_err(io::Error::other)?.cursor;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn owners(&self) -> io::Result<()> {
        let read = |it| self.store.owners(it, TIMEOUT).map(drop).map_err(io::Error::other);
        self.endpoints.chunks(BATCH_MAX).try_for_each(read)
    }

    pub(crate) fn sessions(&self) -> io::Result<()> {
        let read = |it| self.store.sessions(it, TIMEOUT).map(drop).map_err(io::Error::other);
        self.endpoints.chunks(200).try_for_each(read)
    }

    /// All that `status` reads.
    pub(crate) fn overview(&self) -> io::Result<()> {
        let found = self.store.overview(TIMEOUT).map_err(io::Error::other)?;
        holder::all("seen", self.endpoints.len(), found.endpoints.len())
    }
}

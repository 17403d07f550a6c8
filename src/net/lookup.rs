//! Which addresses does a host name have? Each lookup runs on a thread of its own, and a [`Lookups`] bounds these threads.
//!
//! `getaddrinfo` has no deadline and cannot be cancelled: a caller stops waiting, and the thread ends when the resolver
//! answers. Touches only the resolver.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lookups of one purpose, running or abandoned. Clones share the bound.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    running: Arc<AtomicUsize>,
    most: usize,
}

/// Why a lookup did not begin.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// As many lookups as allowed wait for the resolver.
    Busy,
    /// The thread could not be started.
    NoThread(io::Error),
}

impl Lookups {
    /// At most `most` at a time: a resolver that hangs must not take every thread.
    pub(crate) fn at_most(most: usize) -> Self {
        Self { running: Arc::default(), most }
    }

    /// Looks `host` up, and passes the answer to `tell` on the lookup's thread.
    pub(crate) fn start(
        &self,
        host: &str,
        port: u16,
        tell: impl FnOnce(io::Result<Vec<SocketAddr>>) + Send + 'static,
    ) -> Result<(), NotStarted> {
        let ticket = self.ticket().ok_or(NotStarted::Busy)?;
        let name = (host.to_owned(), port);
        let spawned = std::thread::Builder::new().name("lookup".into()).spawn(move || {
            let addresses = name.to_socket_addrs().map(Iterator::collect);
            drop(ticket);
            tell(addresses);
        });
        spawned.map(drop).map_err(NotStarted::NoThread)
    }

    /// Room for one more lookup, until it is dropped.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        let more = |it| (it < self.most).then_some(it + 1);
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Ticket(Arc::clone(&self.running)))
    }
}

/// One running lookup; given back when its thread ends or could not start.
pub(crate) struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

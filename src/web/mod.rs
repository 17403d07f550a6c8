//! The page: who polls what, and is all well, in a browser. Only reads.
//!
//! Two threads. `web-http` answers requests from what was read last, and never waits (`net::http_server`). `web-reader` reads
//! the fleet while somebody looks (`overview`). In between everything is pure: `router` makes a response of a request and of
//! what was read (`snapshot`), and `views` make the HTML.

mod history;
mod html;
mod overview;
mod router;
mod snapshot;
mod views;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::config::Config;
use crate::instance::exposition::Exposition;
use crate::instance::metrics_http::metrics;
use crate::net::http_server::{Hosts, HttpServer, Place, Request, Response, Site, Status};
use crate::web::overview::{Cache, Reader};
use crate::web::router::{PATHS, Route, route};

/// A client waits this long for what is being read.
const PATIENCE: Duration = Duration::from_secs(4);

/// The page, as long as this is kept.
pub(crate) struct Web {
    // Dropped from left to right: the server goes before the reader that answers it.
    _server: HttpServer,
    _reader: Reader,
}

/// Where the metrics of this process come from; `None` until there are any.
pub(crate) type Metrics = Box<dyn Fn() -> Option<Arc<Exposition>> + Send>;

impl Web {
    /// Shows the fleet of `config` at `place`.
    pub(crate) fn start(
        config: &Config,
        place: Place,
        hosts: Hosts,
        stale_after: Duration,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let (reader, cache) = Reader::start(config, stale_after)?;
        let site = Pages { cache, redis: config.redis.to_string(), metrics };
        Ok(Self { _server: HttpServer::start("web-http", place, hosts, site)?, _reader: reader })
    }
}

struct Pages {
    cache: Arc<Cache>,
    redis: String,
    metrics: Metrics,
}

impl Site for Pages {
    fn knows(&self, path: &str) -> bool {
        PATHS.iter().any(|it| it.0 == path)
    }

    fn answer(&mut self, request: &Request, waited: Duration) -> Option<Response> {
        match PATHS.iter().find(|it| it.0 == request.path)?.1 {
            Route::Metrics => Some(match (self.metrics)() {
                Some(exposition) => metrics(&exposition),
                None => Response::text(Status::UNAVAILABLE, "this process is still starting\n"),
            }),
            Route::Asset(asset) => Some(asset.response()),
            Route::Health => Some(Response::text(Status::OK, "ok\n")),
            wanted => {
                let seen = self.cache.look(request, wanted, BootClock.now());
                if !seen.is_current(wanted) && waited < PATIENCE {
                    return None;
                }
                Some(route(request, wanted, &seen, &self.redis))
            }
        }
    }
}

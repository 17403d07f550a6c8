//! Which page is asked for, and what is answered? Pure.

use crate::net::http_server::{Request, Response, Status};
use crate::web::html::Html;
use crate::web::overview::Seen;
use crate::web::snapshot::{Filter, Snapshot};
use crate::web::views::{endpoint, endpoints, fleet, instance, layout};

/// Styles, script and pictures of this page, and nothing else: no code inside of a page, none of another site. No other
/// site shows it in a frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Fleet,
    Endpoints,
    Endpoint,
    Instance,
    /// What `status --json` prints.
    Document,
    Metrics,
    /// Whether this process answers. Says nothing about the fleet.
    Health,
    Asset(Asset),
}

/// A file that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asset {
    Style,
    Script,
    Icon,
}

/// Every path that there is.
pub(crate) const PATHS: [(&str, Route); 10] = [
    ("/", Route::Fleet),
    ("/endpoints", Route::Endpoints),
    ("/endpoint", Route::Endpoint),
    ("/instance", Route::Instance),
    ("/status.json", Route::Document),
    ("/metrics", Route::Metrics),
    ("/healthz", Route::Health),
    ("/page.css", Route::Asset(Asset::Style)),
    ("/page.js", Route::Asset(Asset::Script)),
    ("/icon.svg", Route::Asset(Asset::Icon)),
];

impl Asset {
    pub(crate) fn response(self) -> Response {
        let (content_type, text) = match self {
            Self::Style => ("text/css; charset=utf-8", include_str!("assets/page.css")),
            Self::Script => ("text/javascript; charset=utf-8", include_str!("assets/page.js")),
            Self::Icon => ("image/svg+xml", include_str!("assets/icon.svg")),
        };
        Response::new(Status::OK, content_type, text.as_bytes())
    }
}

/// The answer to a request for something that was read.
pub(crate) fn route(request: &Request, wanted: Route, seen: &Seen, redis: &str) -> Response {
    let Some(snapshot) = &seen.snapshot else {
        return match wanted {
            Route::Document => unavailable(seen),
            _ => html(Status::UNAVAILABLE, layout::nothing_read(seen, redis)),
        };
    };
    let frame = layout::Frame { seen, snapshot, redis, wanted };
    let field = |name: &str| request.field(name).unwrap_or_default();
    match wanted {
        Route::Document => the_document(snapshot, seen),
        Route::Endpoints => {
            let filter = Filter::of(field("state"), field("owner"), field("q"));
            let asked = endpoints::Asked {
                state: field("state"),
                owner: field("owner"),
                text: field("q"),
                page: field("page").parse().unwrap_or(1),
            };
            html(Status::OK, frame.around("Endpoints", &endpoints::list(snapshot, &filter, &asked)))
        }
        Route::Endpoint => match snapshot.endpoint(field("id")) {
            Some(it) => {
                let page = endpoint::page(snapshot, it, &seen.latencies);
                html(Status::OK, frame.around(&it.name, &page))
            }
            None => {
                let why = "There is neither a session nor a lease of this name.";
                html(Status::NOT_FOUND, frame.around("No such endpoint", &layout::missing(why)))
            }
        },
        Route::Instance => match snapshot.instance(field("id")) {
            Some(it) => {
                html(Status::OK, frame.around(snapshot.name(&it.id), &instance::page(snapshot, it)))
            }
            None => {
                let why = "This instance has no heartbeat, and it owns nothing.";
                html(Status::NOT_FOUND, frame.around("No such instance", &layout::missing(why)))
            }
        },
        _ => html(Status::OK, frame.around("Fleet", &fleet::page(snapshot, &seen.loads, seen.now))),
    }
}

fn html(status: Status, page: Html) -> Response {
    let content_type = "text/html; charset=utf-8";
    Response::new(status, content_type, page.into_bytes()).under(POLICY)
}

/// A program must not take what was true once for what is.
fn the_document(snapshot: &Snapshot, seen: &Seen) -> Response {
    match snapshot.document.get() {
        Some(text) if seen.trouble.is_none() => {
            Response::new(Status::OK, "application/json", std::sync::Arc::clone(text))
        }
        _ => unavailable(seen),
    }
}

fn unavailable(seen: &Seen) -> Response {
    let why = seen.trouble.as_ref().map_or("it is being read", |it| it.1.as_str());
    Response::text(Status::UNAVAILABLE, &format!("{why}\n"))
}

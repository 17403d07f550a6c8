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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Moment;
    use crate::model::{EndpointId, FenceToken, InstanceId, Weight};
    use crate::store::admin::overview::{LastResult, Overview, Stored};
    use crate::store::history::Entry;
    use crate::store::{Lasting, RawSession};

    const HOSTILE: &str = "\"><script>alert(1)</script>\u{202e}";

    fn stored(id: &str, address: &str, error: Option<&str>) -> Stored {
        let document = serde_json::json!({"id": id, "address": address}).to_string();
        let owner = InstanceId::new("vm1-1-aaaa");
        let result = LastResult {
            ok: error.is_none(),
            status: Some(200),
            error: error.map(str::to_owned),
            started_at_ms: Some(1_000_000),
            duration_ms: Some(5),
            interval_ms: Some(1_000),
            fence: Some(FenceToken(7)),
            instance: Some(owner.clone()),
            state: None,
            certificate: None,
        };
        Stored {
            id: EndpointId::parse(id).unwrap(),
            session: Some(RawSession::Value(document.into_bytes())),
            lease: Some(Lasting { value: owner, left: Duration::from_secs(20) }),
            granted: Some(FenceToken(7)),
            result: Some(result),
        }
    }

    fn snapshot(endpoints: Vec<Stored>) -> Snapshot {
        let beat = Lasting { value: Weight(1), left: Duration::from_secs(20) };
        let overview = Overview {
            server_ms: 1_000_500,
            instances: vec![(InstanceId::new("vm1-1-aaaa"), beat)],
            endpoints,
            misnamed: vec![HOSTILE.into()],
            odd_keys: vec![(HOSTILE.into(), "has no name of ours")],
            drained: vec![HOSTILE.into()],
            ..Overview::default()
        };
        let entry = Entry {
            id: "1-1".into(),
            at_ms: 1_000_000,
            event: HOSTILE.into(),
            endpoint: "e1".into(),
            instance: HOSTILE.into(),
            fence: None,
            reason: Some(HOSTILE.into()),
            owner: None,
            heir: None,
        };
        let times = (Moment::from_nanos(8_000_000_000), Duration::from_millis(3));
        Snapshot::of(overview, vec![], Some(vec![entry]), Duration::from_secs(120), times)
    }

    fn some() -> Snapshot {
        snapshot(vec![
            stored("e1", "http://h:1/a?token=s3cret", Some(HOSTILE)),
            stored("e2", "http://user:hunter2@h:1/", None),
            stored("e3", "tcp://h:3", None),
        ])
    }

    fn asked(target: &str, seen: &Seen) -> (u16, String) {
        let request = Request::parse(format!("GET {target} HTTP/1.0").as_bytes());
        let wanted = PATHS.iter().find(|it| it.0 == request.path).unwrap().1;
        let response = route(&request, wanted, seen, "redis://h");
        let text = String::from_utf8(response.body.to_vec()).unwrap();
        (response.status.0, text)
    }

    #[test]
    fn what_strangers_wrote_is_text_on_every_page_and_no_secret_is_on_any() {
        let seen = Seen::of(Some(some()), Some(HOSTILE));
        let quoted = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
        for target in [
            "/".to_owned(),
            "/endpoints".into(),
            format!("/endpoints?q={quoted}&state={quoted}&owner={quoted}&page={quoted}"),
            "/endpoint?id=e1".into(),
            "/endpoint?id=e2".into(),
            format!("/endpoint?id={quoted}%E2%80%AE"),
            "/instance?id=vm1-1-aaaa".into(),
            format!("/instance?id={quoted}"),
        ] {
            let page = asked(&target, &seen).1;
            assert!(!page.contains("<script>"), "{target}: {page}");
            assert!(!page.contains('\u{202e}'), "{target}: {page}");
            assert!(!page.contains("s3cret") && !page.contains("hunter2"), "{target}: {page}");
            assert_eq!(page.matches("<script").count(), 1, "{target}: only its own script");
        }
        assert!(asked("/endpoint?id=e1", &seen).1.contains("http://h:1/a?…"));
    }

    #[test]
    fn a_page_carries_its_policy_and_no_code() {
        let request = Request::parse(b"GET / HTTP/1.0");
        let seen = Seen::of(Some(some()), None);
        let response = route(&request, Route::Fleet, &seen, "redis://h");
        let head = response.head();
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
        {
            assert!(head.contains(part), "{part} in {head}");
        }
        assert!(!head.contains("unsafe"), "{head}");
        let page = String::from_utf8(response.body.to_vec()).unwrap();
        for inline in [" style=", " onclick=", " onload=", "<style", "javascript:"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn a_list_is_filtered_and_cut_into_pages() {
        let many =
            (0..250).map(|n| stored(&format!("e{n:03}"), "h:1", (n == 7).then_some("refused")));
        let seen = Seen::of(Some(snapshot(many.collect())), None);
        let rows = |target: &str| asked(target, &seen).1.matches("<tr><th scope=\"row\"").count();
        assert_eq!(rows("/endpoints"), 100);
        assert_eq!(rows("/endpoints?page=3"), 51, "with the misnamed one");
        assert_eq!(rows("/endpoints?page=99"), 51, "behind the last page is the last page");
        assert_eq!(rows("/endpoints?state=failing"), 1);
        assert_eq!(rows("/endpoints?state=attention"), 2);
        assert_eq!(rows("/endpoints?q=E00"), 10);
        assert_eq!(rows("/endpoints?q=REFUSED"), 1);
        assert_eq!(rows("/endpoints?owner=vm1-1-aaaa&page=3"), 50);
        assert_eq!(rows("/endpoints?owner=nobody"), 0);
        let page = asked("/endpoints?state=ok&q=e&page=2", &seen).1;
        assert!(page.contains("101–200 of 249"), "{page}");
        assert!(page.contains("state=ok&amp;q=e&amp;page=3"), "{page}");
    }

    #[test]
    fn an_endpoint_says_why_in_the_words_of_explain() {
        let (status, page) = asked("/endpoint?id=e3", &Seen::of(Some(some()), None));
        assert_eq!(status, 200);
        assert!(page.contains("vm1-1-aaaa owns e3, and polls it."), "{page}");
        assert!(page.contains("tcp://h:3"), "{page}");
        assert_eq!(asked("/endpoint?id=none", &Seen::of(Some(some()), None)).0, 404);
        assert_eq!(asked("/instance?id=none", &Seen::of(Some(some()), None)).0, 404);
    }

    #[test]
    fn while_redis_is_away_people_see_the_last_state_and_programs_see_none() {
        let away = Seen::of(Some(some()), Some("cannot ask"));
        let (status, page) = asked("/", &away);
        assert_eq!(status, 200);
        assert!(page.contains("Redis has not answered for 7.0s") && page.contains("cannot ask"));
        let snapshot = some();
        let _ = snapshot.document.set(b"{}".as_slice().into());
        assert_eq!(asked("/status.json", &Seen::of(Some(snapshot), Some("away"))).0, 503);
        assert_eq!(asked("/status.json", &Seen::of(Some(some()), None)).0, 503, "not made yet");
        let snapshot = some();
        let _ = snapshot.document.set(b"{}".as_slice().into());
        assert_eq!(asked("/status.json", &Seen::of(Some(snapshot), None)), (200, "{}".into()));
        let (status, page) = asked("/", &Seen::of(None, Some("cannot ask")));
        assert_eq!(status, 503);
        assert!(page.contains("cannot ask"), "{page}");
    }
}

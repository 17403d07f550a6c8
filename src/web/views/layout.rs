//! What is around every view: head, landmarks, the verdict, and where all of it was read.

use std::time::Duration;

use crate::inspect::status::brief;
use crate::inspect::utc;
use crate::web::html::{Html, put};
use crate::web::overview::Seen;
use crate::web::router::Route;
use crate::web::snapshot::Snapshot;
use crate::web::views::words::tone;

/// The outside of a page.
pub(crate) struct Frame<'a> {
    pub(crate) seen: &'a Seen,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) redis: &'a str,
    pub(crate) wanted: Route,
}

impl Frame<'_> {
    /// The page with this view in it.
    pub(crate) fn around(&self, title: &str, view: &Html) -> Html {
        let Self { seen, snapshot, redis, wanted } = self;
        let mut html = Html::default();
        top(&mut html, title, Some(*wanted));
        away(&mut html, seen);
        verdict(&mut html, snapshot, *wanted == Route::Fleet);
        html.add(view);
        put!(html; "<p class=\"source\">As read from <code>" (redis) "</code> at "
            (utc::time(snapshot.status.server_ms)) " UTC in " (brief(snapshot.took)) ".</p>");
        bottom(&mut html);
        html
    }
}

/// The page as long as nothing was read.
pub(crate) fn nothing_read(seen: &Seen, redis: &str) -> Html {
    let mut html = Html::default();
    top(&mut html, "Waiting for Redis", None);
    away(&mut html, seen);
    put!(html; "<h1>Nothing to show yet</h1><p>The fleet is being read from <code>" (redis)
        "</code>. This page shows it as soon as it was read.</p>");
    bottom(&mut html);
    html
}

/// A view of something that is not there.
pub(crate) fn missing(why: &'static str) -> Html {
    let mut html = Html::default();
    html.markup("<h1>Not found</h1><p>").text(&why);
    put!(html; "</p><p><a href=\"/endpoints\">All endpoints</a></p>");
    html
}

fn top(html: &mut Html, title: &str, wanted: Option<Route>) {
    put!(html; "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
        <meta name=\"color-scheme\" content=\"light dark\"><title>" (title) " · Leasehold</title>\
        <link rel=\"icon\" href=\"/icon.svg\"><link rel=\"stylesheet\" href=\"/page.css\">\
        <script src=\"/page.js\" defer></script>\
        <noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript></head><body>\
        <a class=\"skip\" href=\"#main\">Skip to content</a>\
        <header><a class=\"brand\" href=\"/\">Leasehold</a><nav aria-label=\"Pages\">");
    put!(html; "<a href=\"/\"");
    current(html, wanted == Some(Route::Fleet));
    put!(html; ">Fleet</a><a href=\"/endpoints\"");
    current(html, wanted == Some(Route::Endpoints));
    put!(html; ">Endpoints</a></nav>\
        <button id=\"pause\" type=\"button\" aria-pressed=\"false\" hidden>Pause</button></header>\
        <p id=\"offline\" class=\"banner bad\" role=\"alert\" hidden>No answer from this page's server. \
        What you see is what it said last.</p><main id=\"main\" tabindex=\"-1\">");
}

fn current(html: &mut Html, is_current: bool) {
    if is_current {
        put!(html; " aria-current=\"page\"");
    }
}

fn bottom(html: &mut Html) {
    put!(html; "</main><footer><p>Read-only. <a href=\"/status.json\">status.json</a> \
        <a href=\"/metrics\">metrics</a> <a href=\"/healthz\">healthz</a></p>\
        <p>leasehold " (env!("CARGO_PKG_VERSION")) "</p></footer></body></html>\n");
}

fn away(html: &mut Html, seen: &Seen) {
    let Some((since, why)) = &seen.trouble else { return };
    put!(html; "<p class=\"banner bad\"><strong>Redis has not answered for " (brief(*since))
        ".</strong> " (why));
    if seen.snapshot.is_some() {
        put!(html; " What follows is from before.");
    }
    put!(html; "</p>");
}

/// The words of `status`. Announced to a screen reader when they change.
fn verdict(html: &mut Html, snapshot: &Snapshot, is_title: bool) {
    let tone = tone(snapshot.alarm);
    let label = match tone {
        "good" => "All is well",
        "watch" => "Keep an eye on it",
        _ => "Needs attention",
    };
    let size = if is_title { "large" } else { "slim" };
    put!(html; "<section class=\"verdict " (tone) " " (size) "\" aria-label=\"Verdict\">");
    match is_title {
        true => put!(html; "<h1>" (label) "</h1>"),
        false => put!(html; "<p class=\"label\">" (label) "</p>"),
    }
    put!(html; "<p id=\"verdict\" aria-live=\"polite\">" (snapshot.verdict) "</p>");
    if let Some(left) = snapshot.status.hold_off {
        hold_off(html, left);
    }
    put!(html; "</section>");
}

fn hold_off(html: &mut Html, left: Duration) {
    put!(html; "<p>Hold-off: Redis is new or has lost its memory, so nothing is granted for another "
        (brief(left)) ". Owners from before go on.</p>");
}

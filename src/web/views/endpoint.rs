//! One endpoint: where it is and why, how it answers, and how it got there.

use crate::fleet::placement::preference;
use crate::inspect::status::explain::reasons;
use crate::inspect::status::{EndpointStatus, brief};
use crate::model::{EndpointId, InstanceId};
use crate::web::history::Latencies;
use crate::web::html::{Html, put};
use crate::web::snapshot::Snapshot;
use crate::web::views::chart;
use crate::web::views::fleet::words_of_heartbeat;
use crate::web::views::words::{
    ago, grouped, instance_link, known, latency, left, moves, result, state,
};

/// No more moves are listed.
const MOVES: usize = 20;
/// No more instances are, in the order of preference.
const PREFERRED: usize = 10;

/// The view.
pub(crate) fn page(snapshot: &Snapshot, it: &EndpointStatus, latencies: &Latencies) -> Html {
    let mut html = Html::default();
    put!(html; "<p class=\"path\"><a href=\"/endpoints\">Endpoints</a></p><h1 class=\"id\">" (it.name) "</h1>");
    put!(html; "<p class=\"under\">");
    state(&mut html, it.state);
    if let Some(address) = snapshot.address(it) {
        put!(html; " <code>" (address) "</code>");
    }
    put!(html; "</p><section aria-labelledby=\"why\"><h2 id=\"why\">Why</h2>");
    for sentence in reasons(&snapshot.status, it) {
        put!(html; "<p>" (sentence) "</p>");
    }
    put!(html; "</section><div class=\"halves\">");
    facts(&mut html, snapshot, it);
    answers(&mut html, it, latencies);
    put!(html; "</div>");
    preferred(&mut html, snapshot, it);
    let mut of_it = snapshot.moves_of(&it.name).take(MOVES).peekable();
    if of_it.peek().is_some() {
        put!(html; "<section aria-labelledby=\"moves\"><h2 id=\"moves\">Last moves</h2>");
        moves(&mut html, snapshot, of_it, true);
        put!(html; "</section>");
    }
    html
}

fn facts(html: &mut Html, snapshot: &Snapshot, it: &EndpointStatus) {
    let lease = it.lease.as_ref();
    put!(html; "<section aria-labelledby=\"lease\"><h2 id=\"lease\">Lease</h2><dl><div><dt>Owner</dt><dd>");
    instance_link(html, snapshot, lease.map(|it| &it.value));
    put!(html; "</dd></div><div><dt>Preferred owner</dt><dd>");
    instance_link(html, snapshot, it.preferred.as_ref());
    put!(html; "</dd></div><div><dt>Lease</dt><dd>");
    known(html, lease.map(|it| left(it.left)));
    put!(html; "</dd></div><div><dt>Granted</dt><dd>");
    known(html, ago(it.granted_ago));
    put!(html; "</dd></div><div><dt>Fence</dt><dd>");
    known(html, it.fence.map(|it| it.to_string()));
    put!(html; "</dd></div></dl></section>");
}

fn answers(html: &mut Html, it: &EndpointStatus, latencies: &Latencies) {
    put!(html; "<section aria-labelledby=\"answers\"><h2 id=\"answers\">Last poll</h2><dl><div><dt>Result</dt><dd>");
    let failed = it.result.as_ref().is_some_and(|it| !it.ok);
    put!(html; "<span class=\"" (if failed { "bad" } else { "plain" }) "\">");
    known(html, result(it));
    put!(html; "</span></dd></div><div><dt>Latency</dt><dd>");
    known(html, latency(it));
    put!(html; "</dd></div><div><dt>When</dt><dd>");
    known(html, ago(it.age));
    put!(html; "</dd></div><div><dt>Interval</dt><dd>");
    known(html, it.interval.map(brief));
    put!(html; "</dd></div></dl>");
    chart::latencies(html, latencies);
    put!(html; "</section>");
}

fn preferred(html: &mut Html, snapshot: &Snapshot, it: &EndpointStatus) {
    let Ok(id) = EndpointId::parse(&it.name) else { return };
    let live = snapshot.status.instances.iter().filter(|it| it.heartbeat.is_some());
    let takes = live.filter(|it| it.heartbeat.as_ref().is_some_and(|it| it.value.0 > 0));
    let live: Vec<InstanceId> = takes.map(|it| it.id.clone()).collect();
    if live.is_empty() {
        return;
    }
    put!(html; "<section aria-labelledby=\"order\"><h2 id=\"order\">Order of preference</h2><div class=\"scroll\">\
        <table><thead><tr><th scope=\"col\" class=\"n rank\">Rank</th><th scope=\"col\">Instance</th>\
        <th scope=\"col\" class=\"n\">Owned</th><th scope=\"col\" class=\"n\">Share</th>\
        <th scope=\"col\" class=\"wide\">Heartbeat</th></tr></thead><tbody>");
    let order = preference(&id, &live).into_iter().take(PREFERRED);
    let found = order.filter_map(|id| snapshot.instance(id.as_str()));
    for (rank, it) in found.enumerate() {
        put!(html; "<tr><td class=\"n\">" (rank + 1) "</td><td>");
        instance_link(html, snapshot, Some(&it.id));
        put!(html; "</td><td class=\"n\">" (grouped(it.owned)) "</td><td class=\"n\">"
            (format!("{:.1}", it.fair_share)) "</td><td class=\"wide\">");
        words_of_heartbeat(html, it);
        put!(html; "</td></tr>");
    }
    put!(html; "</tbody></table></div></section>");
}

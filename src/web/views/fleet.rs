//! The first page: what needs attention, who carries what, who leads, what moved.

use crate::clock::Moment;
use crate::inspect::status::{Alarm, InstanceStatus, State, brief};
use crate::web::history::Loads;
use crate::web::html::{Html, put, url};
use crate::web::snapshot::Snapshot;
use crate::web::views::words::{grouped, instance_link, known, left, moves, tone_of, word};
use crate::web::views::{chart, words};

/// No more instances are listed.
const INSTANCES_MAX: usize = 200;
/// No more moves, departures and odd keys are.
const RECENT: usize = 10;

/// The view.
pub(crate) fn page(snapshot: &Snapshot, loads: &Loads, now: Moment) -> Html {
    let mut html = Html::default();
    counts(&mut html, snapshot);
    if !snapshot.status.instances.is_empty() {
        instances(&mut html, snapshot, loads, now);
    }
    departures(&mut html, snapshot);
    leaders(&mut html, snapshot);
    if !snapshot.moves.is_empty() {
        put!(html; "<section aria-labelledby=\"moves\"><h2 id=\"moves\">Last moves</h2>");
        moves(&mut html, snapshot, snapshot.moves.iter().rev().take(RECENT), false);
        put!(html; "</section>");
    }
    odd_keys(&mut html, snapshot);
    html
}

/// The worst first; those that need attention apart from the others.
fn counts(html: &mut Html, snapshot: &Snapshot) {
    put!(html; "<section aria-labelledby=\"counts\"><h2 id=\"counts\">Endpoints</h2><ul class=\"counts\">");
    for state in State::ALL {
        let n = snapshot.count(state);
        let always = matches!(state, State::Failing | State::Late | State::Unowned);
        if n == 0 && !always {
            continue;
        }
        let tone = if n == 0 { "zero" } else { tone_of(state) };
        let class = if state.alarm() == Alarm::Act { "alarm" } else { "calm" };
        let address = url("/endpoints", &[("state", &word(state))]);
        put!(html; "<li class=\"" (class) "\"><a class=\"count " (tone) "\" href=\"" (address)
            "\"><b>" (grouped(n)) "</b> <span>" (state.word()) "</span></a></li>");
    }
    put!(html; "<li class=\"calm\"><a class=\"count plain\" href=\"/endpoints\"><b>"
        (grouped(snapshot.status.endpoints.len())) "</b> <span>in all</span></a></li></ul></section>");
}

fn instances(html: &mut Html, snapshot: &Snapshot, loads: &Loads, now: Moment) {
    let all = &snapshot.status.instances;
    put!(html; "<section aria-labelledby=\"instances\"><h2 id=\"instances\">Instances</h2>");
    chart::loads(html, loads, now);
    put!(html; "<div class=\"scroll\"><table class=\"instances\"><thead><tr><th scope=\"col\">Instance</th>\
        <th scope=\"col\" class=\"bar wide\">Load</th><th scope=\"col\" class=\"n\">Owned</th>\
        <th scope=\"col\" class=\"n\">Share</th><th scope=\"col\" class=\"n wide\">Weight</th>\
        <th scope=\"col\">Heartbeat</th><th scope=\"col\" class=\"n wide\">Busy</th>\
        <th scope=\"col\" class=\"n wide\">Lag</th><th scope=\"col\" class=\"n wide\">Polls/min</th>\
        </tr></thead><tbody>");
    let scale = all.iter().map(chart::load_of).fold(1.0, f64::max);
    for it in all.iter().take(INSTANCES_MAX) {
        row(html, snapshot, it, (loads.colour(&it.id), scale));
    }
    put!(html; "</tbody></table></div>");
    if all.len() > INSTANCES_MAX {
        put!(html; "<p>And " (grouped(all.len() - INSTANCES_MAX)) " more.</p>");
    }
    put!(html; "</section>");
}

fn row(html: &mut Html, snapshot: &Snapshot, it: &InstanceStatus, (colour, scale): (usize, f64)) {
    put!(html; "<tr><th scope=\"row\"><span class=\"swatch c" (colour) "\"></span>");
    instance_link(html, snapshot, Some(&it.id));
    put!(html; "<small>" (about(snapshot, it)) "</small></th><td class=\"bar wide\">");
    chart::bar(html, it, scale, colour);
    put!(html; "</td><td class=\"n\"><a href=\"" (url("/endpoints", &[("owner", it.id.as_str())]))
        "\">" (grouped(it.owned)) "</a></td><td class=\"n\">");
    let heartbeat = it.heartbeat.as_ref();
    known(html, heartbeat.map(|_| format!("{:.1}", it.fair_share)));
    put!(html; "</td><td class=\"n wide\">");
    known(html, heartbeat.map(|it| it.value.to_string()));
    put!(html; "</td><td class=\"nowrap\">");
    words_of_heartbeat(html, it);
    let class = if it.shortfall().is_some() { "n wide bad" } else { "n wide" };
    let polling = it.polling();
    put!(html; "</td><td class=\"" (class) "\">");
    known(html, polling.map(|it| format!("{}/{}", it.busy, it.workers)));
    put!(html; "</td><td class=\"" (class) "\">");
    known(html, polling.map(|it| brief(it.lag)));
    put!(html; "</td><td class=\"n wide\">");
    known(html, polling.map(|it| it.polls_per_min.to_string()));
    put!(html; "</td></tr>");
}

/// Version and age.
pub(crate) fn about(snapshot: &Snapshot, it: &InstanceStatus) -> String {
    let version = it.info.as_ref().map(|it| it.version.clone());
    let up = it.up(snapshot.status.server_ms).map(|it| format!("up {}", brief(it)));
    let words: Vec<String> = version.into_iter().chain(up).collect();
    words.join(" · ")
}

pub(crate) fn words_of_heartbeat(html: &mut Html, it: &InstanceStatus) {
    match &it.heartbeat {
        None => put!(html; "<span class=\"state bad\">gone</span>"),
        Some(_) if it.revoked => put!(html; "<span class=\"state bad\">revoked</span>"),
        Some(_) if it.drained => put!(html; "<span class=\"state watch\">drained</span>"),
        Some(beat) => put!(html; "<span class=\"state good\">" (left(beat.left)) "</span>"),
    }
}

fn departures(html: &mut Html, snapshot: &Snapshot) {
    let left = snapshot.lately.as_ref().map(|it| it.left.as_slice()).unwrap_or_default();
    if left.is_empty() && snapshot.status.drained.is_empty() {
        return;
    }
    put!(html; "<section aria-labelledby=\"left\"><h2 id=\"left\">Gone or drained</h2><ul class=\"plain\">");
    for it in &snapshot.status.drained {
        put!(html; "<li><code>" (it) "</code> is drained</li>");
    }
    for it in left.iter().take(RECENT) {
        let how = if it.stopped { "stopped" } else { "died or was cut off" };
        put!(html; "<li><code>" (it.id) "</code> " (how) " " (brief(it.ago)) " ago</li>");
    }
    if left.len() > RECENT {
        put!(html; "<li>and " (left.len() - RECENT) " more in the last hour</li>");
    }
    put!(html; "</ul></section>");
}

fn leaders(html: &mut Html, snapshot: &Snapshot) {
    if snapshot.led.is_empty() {
        return;
    }
    put!(html; "<section aria-labelledby=\"leaders\"><h2 id=\"leaders\">Leaders</h2><div class=\"scroll\"><table>\
        <thead><tr><th scope=\"col\">Role</th><th scope=\"col\">Leader</th>\
        <th scope=\"col\" class=\"n wide\">Term</th><th scope=\"col\">Since</th>\
        <th scope=\"col\">Heartbeat</th></tr></thead><tbody>");
    for (role, status) in &snapshot.led {
        put!(html; "<tr><th scope=\"row\">" (role) "</th><td>");
        match &status.leader {
            Some(it) => {
                put!(html; "<span title=\"" (it.value) "\">" (snapshot.name(&it.value)) "</span>")
            }
            None => put!(html; "<span class=\"state watch\">nobody</span>"),
        }
        put!(html; "</td><td class=\"n wide\">" (status.term) "</td><td class=\"nowrap\">");
        known(html, words::ago(status.leader.as_ref().and(status.led_for)));
        put!(html; "</td><td class=\"nowrap\">");
        match &status.leader {
            Some(_) if status.is_stale => put!(html; "<span class=\"state bad\">stale</span>"),
            Some(it) => put!(html; (left(it.left))),
            None => put!(html; "<span class=\"none\">–</span>"),
        }
        put!(html; "</td></tr>");
    }
    put!(html; "</tbody></table></div></section>");
}

fn odd_keys(html: &mut Html, snapshot: &Snapshot) {
    let odd = &snapshot.status.odd_keys;
    if odd.is_empty() {
        return;
    }
    put!(html; "<section aria-labelledby=\"odd\"><h2 id=\"odd\">Keys that are not as they should be</h2>\
        <ul class=\"plain\">");
    for (key, why) in odd.iter().take(RECENT) {
        put!(html; "<li><code>" (key) "</code> " (why) "</li>");
    }
    if odd.len() > RECENT {
        put!(html; "<li>and " (grouped(odd.len() - RECENT)) " more: <code>leasehold status --all</code></li>");
    }
    put!(html; "</ul></section>");
}

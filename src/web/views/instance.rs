//! One instance: what it carries, how it keeps up, what it did last.

use crate::inspect::status::{InstanceStatus, brief};
use crate::web::html::{Html, put, url};
use crate::web::snapshot::Snapshot;
use crate::web::views::fleet::words_of_heartbeat;
use crate::web::views::words::{grouped, known, moves};

/// No more moves are listed.
const MOVES: usize = 20;

/// The view.
pub(crate) fn page(snapshot: &Snapshot, it: &InstanceStatus) -> Html {
    let mut html = Html::default();
    put!(html; "<p class=\"path\"><a href=\"/\">Fleet</a></p><h1 class=\"id\">" (snapshot.name(&it.id))
        "</h1><p class=\"under\">");
    words_of_heartbeat(&mut html, it);
    put!(html; " <code>" (it.id) "</code></p>");
    if let Some(why) = it.shortfall_sentence() {
        put!(html; "<p class=\"banner bad\">" (why) "." "</p>");
    }
    put!(html; "<div class=\"halves\"><section aria-labelledby=\"load\"><h2 id=\"load\">Load</h2><dl>\
        <div><dt>Owned</dt><dd><a href=\"" (url("/endpoints", &[("owner", it.id.as_str())])) "\">"
        (grouped(it.owned)) " endpoints</a></dd></div><div><dt>Fair share</dt><dd>"
        (format!("{:.1}", it.fair_share)) "</dd></div><div><dt>Weight</dt><dd>");
    known(&mut html, it.heartbeat.as_ref().map(|it| it.value.to_string()));
    let roles =
        snapshot.led.iter().filter(|led| led.1.leader.as_ref().is_some_and(|l| l.value == it.id));
    let roles: Vec<String> = roles.map(|it| it.0.to_string()).collect();
    put!(html; "</dd></div><div><dt>Leads</dt><dd>");
    known(&mut html, Some(roles.join(", ")).filter(|it| !it.is_empty()));
    put!(html; "</dd></div><div><dt>Version</dt><dd>");
    known(&mut html, it.info.as_ref().map(|it| it.version.clone()));
    put!(html; "</dd></div><div><dt>Up</dt><dd>");
    known(&mut html, it.up(snapshot.status.server_ms).map(brief));
    put!(html; "</dd></div></dl></section>");
    polling(&mut html, it);
    put!(html; "</div>");
    let mut of_it = snapshot
        .moves
        .iter()
        .rev()
        .filter(|entry| entry.instance == it.id.as_str())
        .take(MOVES)
        .peekable();
    if of_it.peek().is_some() {
        put!(html; "<section aria-labelledby=\"moves\"><h2 id=\"moves\">What it did last</h2>");
        moves(&mut html, snapshot, of_it, false);
        put!(html; "</section>");
    }
    html
}

fn polling(html: &mut Html, it: &InstanceStatus) {
    let Some(polling) = it.polling() else { return };
    put!(html; "<section aria-labelledby=\"polling\"><h2 id=\"polling\">Polling</h2><dl>\
        <div><dt>Busy workers</dt><dd>" (polling.busy) " of " (polling.workers)
        "</dd></div><div><dt>Threads</dt><dd>" (polling.threads)
        "</dd></div><div><dt>Polls a minute</dt><dd>" (polling.polls_per_min)
        "</dd></div><div><dt>Skipped a minute</dt><dd>" (polling.skipped_per_min)
        "</dd></div><div><dt>Put off a minute</dt><dd>" (polling.deferred_per_min)
        "</dd></div><div><dt>Lag</dt><dd>" (brief(polling.lag)) "</dd></div></dl></section>");
}

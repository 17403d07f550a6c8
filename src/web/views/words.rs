//! The small words of every view: states, names with a link, times, numbers.

use std::time::Duration;

use crate::inspect::status::json::camel;
use crate::inspect::status::{Alarm, EndpointStatus, State, brief};
use crate::inspect::utc;
use crate::model::InstanceId;
use crate::store::history::Entry;
use crate::web::html::{Html, put, url};
use crate::web::snapshot::Snapshot;

/// The word for an alarm in a style sheet.
pub(crate) fn tone(alarm: Alarm) -> &'static str {
    match alarm {
        Alarm::None => "good",
        Alarm::Watch => "watch",
        Alarm::Act => "bad",
    }
}

/// A paused endpoint is neither good nor bad.
pub(crate) fn tone_of(state: State) -> &'static str {
    match state {
        State::Paused | State::NoSession => "idle",
        state => tone(state.alarm()),
    }
}

/// A dot, and the word: colour alone says nothing to many.
pub(crate) fn state(html: &mut Html, state: State) {
    put!(html; "<span class=\"state " (tone_of(state)) "\">" (state.word()) "</span>");
}

/// What a query calls a state.
pub(crate) fn word(state: State) -> String {
    camel(state.word())
}

pub(crate) fn endpoint_link(html: &mut Html, name: &str) {
    put!(html; "<a href=\"" (url("/endpoint", &[("id", name)])) "\">" (name) "</a>");
}

/// By its short name; a dash for nobody. The whole id is its title.
pub(crate) fn instance_link(html: &mut Html, snapshot: &Snapshot, id: Option<&InstanceId>) {
    match id {
        None => put!(html; "<span class=\"none\">–</span>"),
        Some(id) => {
            let address = url("/instance", &[("id", id.as_str())]);
            put!(html; "<a href=\"" (address) "\" title=\"" (id) "\">" (snapshot.name(id)) "</a>");
        }
    }
}

/// A dash for what is not known.
pub(crate) fn known(html: &mut Html, text: Option<String>) {
    match text {
        Some(text) => put!(html; (text)),
        None => put!(html; "<span class=\"none\">–</span>"),
    }
}

/// `100,000`.
pub(crate) fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// What the last poll came to, without when and how long: `ok 200`, `failed 500, too slow`.
pub(crate) fn result(it: &EndpointStatus) -> Option<String> {
    if let Some(error) = it.invalid() {
        return Some(error.to_string());
    }
    let result = it.result.as_ref()?;
    let mut words = String::from(if result.ok { "ok" } else { "failed" });
    if let Some(status) = result.status {
        words += &format!(" {status}");
    }
    if let Some(error) = &result.error {
        words += &format!(", {error}");
    }
    Some(words)
}

pub(crate) fn latency(it: &EndpointStatus) -> Option<String> {
    Some(format!("{} ms", it.result.as_ref()?.duration_ms?))
}

pub(crate) fn ago(time: Option<Duration>) -> Option<String> {
    time.map(|it| format!("{} ago", brief(it)))
}

/// What is left of something that is renewed.
pub(crate) fn left(time: Duration) -> String {
    if time == Duration::MAX { "never ends".into() } else { format!("{} left", brief(time)) }
}

/// `12:03:04`, with the date where a machine looks.
pub(crate) fn time(html: &mut Html, at_ms: u64) {
    let (whole, short) = (utc::date_and_time(at_ms), utc::time(at_ms));
    put!(html; "<time datetime=\"" (whole) "\" title=\"" (whole) "\">" (short) "</time>");
}

/// A table of moves. Of one endpoint, its name is not repeated.
pub(crate) fn moves<'a>(
    html: &mut Html,
    snapshot: &Snapshot,
    moves: impl Iterator<Item = &'a Entry>,
    of_one: bool,
) {
    use crate::inspect::moves;
    let names = snapshot.names();
    put!(html; "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Time (UTC)</th>");
    if !of_one {
        put!(html; "<th scope=\"col\">Endpoint</th>");
    }
    put!(html; "<th scope=\"col\">What</th><th scope=\"col\">Instance</th>\
        <th scope=\"col\" class=\"wide\">Why</th></tr></thead><tbody>");
    for it in moves {
        put!(html; "<tr><td class=\"nowrap\">");
        time(html, it.at_ms);
        put!(html; "</td>");
        if !of_one {
            put!(html; "<td class=\"id\">");
            match it.endpoint.as_str() {
                "" => put!(html; "<span class=\"none\">–</span>"),
                name => endpoint_link(html, name),
            }
            put!(html; "</td>");
        }
        let class = if it.event == "lost" { "bad" } else { "plain" };
        put!(html; "<td><span class=\"" (class) "\">" (it.event) "</span></td><td>"
            (moves::name(&it.instance, &names)) "</td><td class=\"wide\">"
            (moves::why(it, &names)) "</td></tr>");
    }
    put!(html; "</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        let shown = [0, 999, 1_000, 100_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "100,000", "1,234,567"]);
    }
}

//! The list of endpoints: filtered and cut into pages before it is sent.

use crate::inspect::status::{EndpointStatus, State};
use crate::web::html::{Html, put, url};
use crate::web::snapshot::{Filter, ROWS, Snapshot};
use crate::web::views::words::{
    ago, endpoint_link, grouped, instance_link, known, latency, result, state, word,
};

/// What was asked for, in the words of the query.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) state: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) text: &'a str,
    pub(crate) page: usize,
}

/// The view.
pub(crate) fn list(snapshot: &Snapshot, filter: &Filter, asked: &Asked<'_>) -> Html {
    let page = snapshot.page(filter, asked.page);
    let mut html = Html::default();
    put!(html; "<h1>Endpoints</h1>");
    form(&mut html, snapshot, asked);
    put!(html; "<p class=\"found\">");
    let (first, last) = (page.before + 1, page.before + page.rows.len());
    match page.total {
        0 => put!(html; "No endpoint is like that."),
        total => put!(html; (grouped(first)) "–" (grouped(last)) " of " (grouped(total))
            " <span class=\"faint\">the worst first</span>"),
    }
    put!(html; "</p>");
    if page.total > 0 {
        table(&mut html, snapshot, &page.rows);
    }
    pages(&mut html, asked, page.before / ROWS + 1, page.total.div_ceil(ROWS));
    html
}

fn form(html: &mut Html, snapshot: &Snapshot, asked: &Asked<'_>) {
    put!(html; "<form class=\"filter\" action=\"/endpoints\" role=\"search\">\
        <label>Search <input type=\"search\" name=\"q\" value=\"" (asked.text)
        "\" placeholder=\"id, owner or error\" maxlength=\"200\"></label>\
        <label>State <select name=\"state\"><option value=\"\">any</option>");
    option(html, "attention", "needs attention", asked.state);
    for it in State::ALL {
        let words = format!("{} ({})", it.word(), grouped(snapshot.count(it)));
        option(html, &word(it), &words, asked.state);
    }
    put!(html; "</select></label>");
    if !asked.owner.is_empty() {
        put!(html; "<label>Owner <input name=\"owner\" value=\"" (asked.owner) "\"></label>");
    }
    put!(html; "<button type=\"submit\">Filter</button>");
    if !(asked.text.is_empty() && asked.state.is_empty() && asked.owner.is_empty()) {
        put!(html; "<a href=\"/endpoints\">Clear</a>");
    }
    put!(html; "</form>");
}

fn option(html: &mut Html, value: &str, words: &str, chosen: &str) {
    put!(html; "<option value=\"" (value) "\"");
    if value == chosen {
        put!(html; " selected");
    }
    put!(html; ">" (words) "</option>");
}

fn table(html: &mut Html, snapshot: &Snapshot, rows: &[&EndpointStatus]) {
    put!(html; "<div class=\"scroll\"><table class=\"endpoints\"><thead><tr><th scope=\"col\">Endpoint</th>\
        <th scope=\"col\">State</th><th scope=\"col\" class=\"wide\">Owner</th>\
        <th scope=\"col\" class=\"wide\">Last result</th><th scope=\"col\" class=\"n wide\">Latency</th>\
        <th scope=\"col\" class=\"n\">Last poll</th></tr></thead><tbody>");
    for it in rows {
        put!(html; "<tr><th scope=\"row\" class=\"id\">");
        endpoint_link(html, &it.name);
        if let Some(address) = snapshot.address(it) {
            put!(html; "<small>" (address) "</small>");
        }
        put!(html; "</th><td class=\"nowrap\">");
        state(html, it.state);
        put!(html; "</td><td class=\"wide\">");
        instance_link(html, snapshot, it.lease.as_ref().map(|it| &it.value));
        put!(html; "</td><td class=\"wide result\">");
        known(html, result(it));
        put!(html; "</td><td class=\"n wide nowrap\">");
        known(html, latency(it));
        put!(html; "</td><td class=\"n nowrap\">");
        known(html, ago(it.age));
        put!(html; "</td></tr>");
    }
    put!(html; "</tbody></table></div>");
}

fn pages(html: &mut Html, asked: &Asked<'_>, number: usize, last: usize) {
    if last < 2 {
        return;
    }
    let link = |html: &mut Html, to: usize, rel: &'static str, words: &'static str| {
        let page = to.to_string();
        let fields =
            [("state", asked.state), ("owner", asked.owner), ("q", asked.text), ("page", &page)];
        put!(html; "<a rel=\"" (rel) "\" href=\"" (url("/endpoints", &fields)) "\">" (words) "</a>");
    };
    put!(html; "<nav class=\"pages\" aria-label=\"Pages of the list\">");
    if number > 1 {
        link(html, 1, "first", "First");
        link(html, number - 1, "prev", "Previous");
    }
    put!(html; "<span>Page " (grouped(number)) " of " (grouped(last)) "</span>");
    if number < last {
        link(html, number + 1, "next", "Next");
        link(html, last, "last", "Last");
    }
    put!(html; "</nav>");
}

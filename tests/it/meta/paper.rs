//! What is computed from measured numbers is what those numbers say.

use std::fs;

use serde_json::Value;
use testkit::bench::million;

/// Neither docs/results/million.md nor what it is derived from changes alone: `make growth BLESS=1` writes both.
#[test]
fn the_page_on_a_million_endpoints_is_derived_from_what_was_measured() {
    let read = |name: &str| {
        fs::read_to_string(format!("{}/docs/results/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let measured: Vec<Value> = serde_json::from_str(&read("bench.json")).unwrap();
    let page = read("million.md");
    let derived = million::page(&page, &measured).expect("everything it needs was measured");
    assert!(derived == page, "docs/results/million.md should read:\n{derived}");
}

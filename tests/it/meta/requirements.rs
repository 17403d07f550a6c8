//! Every requirement has its test: `tests/REQUIREMENTS.md` is complete, and what it names exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::Config;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Requirement → the tests that its row names.
fn table() -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(root().join("tests/REQUIREMENTS.md")).unwrap();
    let rows = page.lines().filter(|it| it.starts_with("| ") && it.contains('`'));
    rows.map(|row| {
        let id = row[2..].split(' ').next().unwrap().to_owned();
        let tests = row.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (id, tests)
    })
    .collect()
}

fn required() -> Vec<String> {
    let mut ids: Vec<String> = (1..=22).map(|it| format!("FR-{it:03}")).collect();
    ids.extend((1..=6).map(|it| format!("SC-{it:03}")));
    ids.extend((1..=5).map(|it| format!("EC{it}")));
    ids.extend((1..=4).flat_map(|us| (1..=3).map(move |it| format!("US{us}.{it}"))));
    ids
}

#[test]
fn every_requirement_of_the_specification_has_a_test() {
    let table = table();
    let missing: Vec<String> =
        required().into_iter().filter(|it| !table.contains_key(it)).collect();
    assert!(missing.is_empty(), "no test for {missing:?}");
    assert!(table.values().all(|it| !it.is_empty()));
}

/// Fails unless `test` is one: by itself, or as a case of the store contract that is on its list.
fn assert_exists(test: &str, wanted_by: &str) {
    let (place, name) = test.rsplit_once("::").unwrap();
    let file = match place.starts_with("src/") {
        true => place.to_owned(),
        false => format!("tests/it/{}.rs", place.replace("::", "/")),
    };
    let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
    let list = fs::read_to_string(root().join("tests/it/store/contract.rs")).unwrap();
    let is_case = place.starts_with("store::contract::")
        && text.contains(&format!("\npub fn {name}(world"))
        && list.contains(&format!("        {name}\n"));
    let is_test = text.contains(&format!("#[test]\nfn {name}()"))
        || text.contains(&format!("    #[test]\n    fn {name}()"));
    assert!(is_test || is_case, "{wanted_by}: there is no test {name} in {file}");
}

#[test]
fn every_test_the_table_names_exists() {
    for (id, tests) in table() {
        tests.iter().for_each(|it| assert_exists(it, &id));
    }
}

/// 003 has four failure scenarios; 004 has three, three rows of failover and four of events.
#[test]
fn every_row_of_the_election_documents_has_a_test_that_exists() {
    let page = fs::read_to_string(root().join("tests/ELECTIONS.md")).unwrap();
    let mut rows = 0;
    for row in page.lines().filter(|it| it.starts_with("| ") && it.contains("::")) {
        let names = row.split('`').skip(1).step_by(2);
        let tests: Vec<&str> = names.filter(|it| it.contains("::")).collect();
        assert!(!tests.is_empty(), "no test in {row}");
        tests.iter().for_each(|it| assert_exists(it, row));
        rows += 1;
    }
    for row in [
        "| Leader crashes",
        "| Network partition",
        "| Redis unavailable",
        "| Graceful shutdown",
        "| Scenario 1",
        "| Scenario 2",
        "| Scenario 3",
        "| Failover: clean",
        "| Failover: crash",
        "| Failover: partition",
        "| `* → LEADER`",
        "| `LEADER → *`",
        "| `* → FOLLOWER`",
        "| Election failed",
    ] {
        let has_test = |it: &str| it.starts_with(row) && it.contains("election::");
        assert!(page.lines().any(has_test), "{row} of the documents has no test");
    }
    assert!(rows > 30, "{rows} rows");
}

/// FR-004; the other defaults of the contract that the specification fixes.
#[test]
fn the_defaults_are_the_specifications() {
    let Config { lease_ttl, renew_interval, heartbeat_ttl, heartbeat_interval, .. } =
        Config::default();
    let seconds = Duration::from_secs;
    assert_eq!((lease_ttl, renew_interval), (seconds(30), seconds(10)));
    assert_eq!((heartbeat_ttl, heartbeat_interval), (seconds(30), seconds(10)));
    let Config { prefix, session_prefix, reconcile_interval, .. } = Config::default();
    assert_eq!((prefix.as_str(), session_prefix.as_str()), ("poll", "session:"));
    assert_eq!(reconcile_interval, seconds(10));
    assert!(Config::default().checked().is_ok());
}

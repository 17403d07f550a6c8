//! What scripts rely on: the shape of every `--json` document, and every page of help. A change here is a
//! change for users; `LEASEHOLD_BLESS=1` writes it down anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use testkit::process::{SOON, Scene, eventually, leasehold};

const COMMANDS: [&str; 27] = [
    "run",
    "dev",
    "release",
    "status",
    "top",
    "web",
    "plan",
    "get",
    "explain",
    "watch",
    "audit",
    "history",
    "sessions",
    "drain",
    "undrain",
    "lead",
    "once",
    "agent",
    "connect",
    "leaders",
    "resign",
    "doctor",
    "completions",
    "help",
    "version",
    "man",
    "",
];

/// Says if this is not what the file has.
#[track_caller]
fn compare(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/golden").join(name);
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        return fs::write(path, found).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let lacks = |it: &str, of: &str| -> Vec<String> {
        of.lines().filter(|line| !it.lines().any(|it| it == *line)).map(String::from).collect()
    };
    assert!(
        found == kept,
        "{name} is not what it was; new: {:#?}, gone: {:#?}. LEASEHOLD_BLESS=1 writes it down anew",
        lacks(&kept, found),
        lacks(found, &kept)
    );
}

#[test]
fn every_page_of_help_is_as_it_was_and_fits() {
    let mut pages = String::new();
    for command in COMMANDS {
        let args: Vec<&str> = [command, "--help"].into_iter().filter(|it| !it.is_empty()).collect();
        let output = leasehold(&args);
        assert!(output.status.success(), "{command}: {output:?}");
        let page = String::from_utf8(output.stdout).unwrap();
        let long = page.lines().find(|it| it.chars().count() > 80);
        assert_eq!(long, None, "{command}");
        pages += &format!("$ leasehold {}\n{page}\n", args.join(" "));
    }
    compare("help.txt", &pages);
}

/// Which names there are, and of which types.
fn shape(at: &str, value: &Value, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            items.iter().for_each(|it| shape(&format!("{at}[]"), it, found));
            "array"
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, it)| shape(&format!("{at}.{name}"), it, found));
            "object"
        }
    };
    found.entry(at.into()).or_default().insert(kind);
}

#[test]
fn every_document_has_the_shape_it_had() {
    let scene = Scene::new(3);
    scene.put_session("resting", json!({"isPaused": true}));
    scene.redis.cli(&["SET", "session:broken", "{"]);
    let mut fleet = scene.fleet_with(2, &["--lead=mailer"]);
    assert!(fleet.pop().unwrap().term().success());
    scene.wait_for_balance(&[&fleet[0]], SOON);
    let redis = format!("--redis={}", scene.redis.url());
    let ask = |args: &[&str]| {
        let output = leasehold(&[args, &["--json", &redis]].concat());
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let settled = || {
        let status = ask(&["status"]);
        let results = status["endpoints"].as_array().unwrap().iter();
        results.filter(|it| it["lastResult"].is_object()).count() == 3
            && status["left"].as_array().unwrap().len() == 1
            && ask(&["leaders"]).to_string().contains(&fleet[0].id())
    };
    eventually(SOON, "results", || format!("{:#}", ask(&["status"])), settled);
    let mut shapes = String::new();
    for args in [
        &["status", "--all"][..],
        &["top"],
        &["plan", "--join", "1"],
        &["get", "e1", "--body"],
        &["explain", "e1"],
        &["history"],
        &["sessions", "list"],
        &["leaders"],
    ] {
        let mut found = BTreeMap::new();
        shape("", &ask(args), &mut found);
        shapes += &format!("$ leasehold {} --json\n", args.join(" "));
        for (at, kinds) in found {
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(" or ");
            shapes += &format!("{}: {kinds}\n", if at.is_empty() { "." } else { &at });
        }
        shapes.push('\n');
    }
    compare("json.txt", &shapes);
}

//! Rules about the source tree itself: imports point one way, documents are true.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Lowest first. A module may import those before it in this list, never those behind it.
const LAYERS: &[&str] = &[
    "model",
    "clock",
    "config",
    "event",
    "metrics",
    "backoff",
    "thread",
    "net",
    "store",
    "lease",
    "fleet",
    "supervise",
    "polling",
    "election",
    "manager",
    "testing",
    "instance",
    "agent",
    "inspect",
    "web",
    "cli",
    "main",
];
/// May be imported by nothing between themselves and the layer named: `election` stands on `lease` and not on `fleet`.
const APART: &[(&str, &[&str])] = &[
    ("election", &["fleet", "supervise", "polling"]),
    ("manager", &["supervise", "polling", "election"]),
    ("agent", &["store", "fleet", "supervise", "polling", "instance"]),
    ("supervise", &["store", "lease", "fleet"]),
    ("inspect", &["instance", "polling", "supervise", "election", "manager"]),
];
/// Every folder with Rust in it.
const FOLDERS: &[&str] = &["src", "tests", "testkit", "labs", "examples", "benches"];
/// Longest file, without its tests.
const LINES_MAX: usize = 400;

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The path below `src/`, as module names.
    fn modules(&self) -> Vec<String> {
        let below = self.path.strip_prefix(root().join("src")).unwrap().with_extension("");
        let names = below.iter().map(|it| it.to_str().unwrap().to_owned());
        names.filter(|it| it != "mod").collect()
    }

    /// Without its tests.
    fn production(&self) -> &str {
        self.text.split("#[cfg(test)]").next().unwrap()
    }

    /// Without its tests and comments.
    fn code(&self) -> String {
        let lines = self.production().lines().filter(|it| !it.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn name(&self) -> String {
        self.path.strip_prefix(root()).unwrap().display().to_string()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources(dir: &str) -> Vec<Source> {
    let mut found = Vec::new();
    files(&root().join(dir), ".rs", &mut found);
    assert!(!found.is_empty());
    let source = |path: PathBuf| Source { text: fs::read_to_string(&path).unwrap(), path };
    found.into_iter().map(source).collect()
}

/// The modules that `text` names behind `prefix`.
fn named_behind<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(prefix).map(move |(at, _)| {
        let rest = &text[at + prefix.len()..];
        &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())]
    })
}

fn rank(list: &[&str], name: &str) -> Option<usize> {
    list.iter().position(|it| *it == name)
}

#[test]
fn imports_point_upstream_only() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let modules = source.modules();
        if modules == ["lib"] {
            continue;
        }
        let layer =
            rank(LAYERS, &modules[0]).unwrap_or_else(|| panic!("{}: no layer", source.name()));
        for named in named_behind(&source.code(), "crate::") {
            if rank(LAYERS, named).is_some_and(|it| it > layer) {
                wrong.push(format!("{} imports {named}", source.name()));
            }
        }
        let apart = APART.iter().find(|it| it.0 == modules[0]).map_or(&[][..], |it| it.1);
        for named in named_behind(&source.code(), "crate::").filter(|it| apart.contains(it)) {
            wrong.push(format!("{} imports {named}, beside which it stands", source.name()));
        }
    }
    assert!(wrong.is_empty(), "imports against the flow:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_opens_with_what_it_answers() {
    let all = FOLDERS.iter().copied().flat_map(sources);
    let silent: Vec<String> =
        all.filter(|it| !it.text.starts_with("//!")).map(|it| it.name()).collect();
    assert!(silent.is_empty(), "no //! at the top of {silent:?}");
}

/// A file belongs to one crate. What two of them need is in testkit, where everything is public and unused items are
/// deleted instead of allowed.
#[test]
fn no_file_is_compiled_twice_and_no_file_allows_dead_code() {
    for source in FOLDERS.iter().copied().flat_map(sources) {
        // However the attribute is wrapped, and whatever else it allows.
        let text: String = source.text.split_whitespace().collect();
        assert!(!text.contains(concat!("#[", "path")), "{} has a path attribute", source.name());
        let mut allowed = text.split("#![allow(").skip(1).flat_map(|it| it.split(")]").next());
        let is_blanket = allowed.any(|it| it.split(',').any(|it| it == "dead_code"));
        assert!(!is_blanket, "{} allows dead code", source.name());
    }
}

#[test]
fn imports_are_written_so_that_the_direction_can_be_seen() {
    let all = sources("src");
    let hidden: Vec<String> =
        all.iter().filter(|it| it.production().contains("super::")).map(Source::name).collect();
    assert!(hidden.is_empty(), "super:: outside of tests in {hidden:?}");
}

#[test]
fn only_the_store_knows_redis() {
    let all = sources("src");
    let outside = all.iter().filter(|it| it.modules()[0] != "store");
    let knowing: Vec<String> = outside
        .filter(|it| {
            let text = it.code().replace("store::redis::", "");
            text.contains("\nuse redis") || text.contains(" redis::") || text.contains("::redis::")
        })
        .map(Source::name)
        .collect();
    assert!(knowing.is_empty(), "the redis crate is used in {knowing:?}");
}

/// `doctor` is a command of its own, that a signal ends.
#[test]
fn no_thread_waits_for_time_alone() {
    let is_wait = |it: &str| it.contains("after(") && it.contains(").recv()");
    for source in sources("src").iter().filter(|it| !it.name().contains("doctor")) {
        let deaf = source.code().lines().find(|it| is_wait(it)).map(str::to_owned);
        assert_eq!(deaf, None, "{}: a wait that no stop ends", source.name());
    }
}

#[test]
fn a_file_fits_in_the_head() {
    for source in sources("src") {
        let lines = source.production().lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines without its tests", source.name());
    }
}

/// What holds settings is as long as there are settings.
const SETTINGS: [&str; 3] = ["Config", "Draft", "Scene"];
const FIELDS_MAX: usize = 14;

/// The names of all structs with named fields, and how many fields each has.
fn structs(code: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut is_inside = false;
    for line in code.lines() {
        let item = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        if let Some(head) = item.strip_prefix("struct ").filter(|it| it.ends_with('{')) {
            let name = head.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default();
            found.push((name.into(), 0));
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if is_inside && line.trim_end().ends_with(',') && !line.trim().starts_with("//") {
            found.last_mut().unwrap().1 += 1;
        }
    }
    found
}

#[test]
fn no_struct_is_about_everything() {
    assert_eq!(
        structs("pub struct A<T> {\n    a: T,\n    // b,\n    pub c: u8,\n}"),
        [("A".into(), 2)]
    );
    let all: Vec<Source> =
        ["src", "testkit/src", "labs/src"].into_iter().flat_map(sources).collect();
    let structs = all.iter().flat_map(|it| structs(it.production()));
    let large: Vec<(String, usize)> = structs
        .filter(|(name, fields)| *fields > FIELDS_MAX && !SETTINGS.contains(&name.as_str()))
        .collect();
    assert!(large.is_empty(), "more than {FIELDS_MAX} fields: {large:?}");
}

#[test]
fn there_is_no_async_runtime_in_the_tree() {
    let lock = read("Cargo.lock");
    for runtime in ["tokio", "async-std", "smol", "async-io", "mio"] {
        assert!(!lock.contains(&format!("name = \"{runtime}\"\n")), "{runtime} is in Cargo.lock");
    }
}

#[test]
fn every_dependency_has_its_reason_in_the_architecture_page() {
    let page = read("ARCHITECTURE.md");
    let manifest = read("Cargo.toml");
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    for line in section.lines().filter(|it| it.contains('=') && !it.starts_with('#')) {
        let name = line.split('=').next().unwrap().trim();
        assert!(page.contains(&format!("`{name}`")), "{name} has no reason in ARCHITECTURE.md");
    }
}

/// What is required of a user's program: Cargo lets one version and one set of features of each package serve all of it.
#[test]
fn the_library_requires_nothing_that_changes_a_users_program() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let ours = packages.iter().find(|it| it["name"] == "leasehold").unwrap();
    let dependencies = ours["dependencies"].as_array().unwrap();
    assert!(dependencies.len() > 8, "{dependencies:?}");
    for it in dependencies.iter().filter(|it| it["kind"].is_null()) {
        let (name, version) = (it["name"].as_str().unwrap(), it["req"].as_str().unwrap());
        let is_open = version.starts_with('^') && !version.contains(',');
        assert!(is_open, "{name} {version}: forbids versions that others in the program may need");
        let features = it["features"].as_array().unwrap();
        assert!(
            !features.iter().any(|it| it == "termination"),
            "{name}: takes SIGTERM from the user"
        );
        assert_ne!(name, "idna_adapter", "takes international host names from the user");
    }
}

/// What only the binary wants is in the lock file.
#[test]
fn the_binary_is_built_without_tables_that_it_does_not_need() {
    let lock = read("Cargo.lock");
    assert!(lock.contains("name = \"idna_adapter\"\nversion = \"1.0.0\""), "see ARCHITECTURE.md");
    assert!(!lock.contains("name = \"icu_"), "cargo update -p idna_adapter --precise 1.0.0");
}

/// A user's build with the Rust that Cargo.toml promises must not fail in a dependency.
#[test]
fn every_dependency_builds_with_the_promised_rust() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--format-version", "1"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let needed: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let version = |it: &Value| -> Vec<u32> {
        it.as_str().unwrap_or("1.0").split('.').take(2).map(|it| it.parse().unwrap()).collect()
    };
    let of = |name: &str| packages.clone().find(|it| it["name"] == name).unwrap();
    let promised = version(&of("leasehold")["rust_version"]);
    assert_eq!(promised, [1, 88], "README, CONTRIBUTING and docs/library.md name it, too");
    let newer: Vec<&Value> = packages
        .clone()
        .filter(|it| needed.contains(it["id"].as_str().unwrap()))
        .filter(|it| version(&it["rust_version"]) > promised)
        .map(|it| &it["name"])
        .collect();
    assert!(newer.is_empty(), "need a newer Rust than {promised:?}: {newer:?}");
}

/// The rows of the tables of `text` that end with functions, or constants, and their file. Finds each in that file; says how
/// many rows there are.
fn find_every_function(text: &str) -> usize {
    let rows = text.lines().filter(|it| it.starts_with("| ") && it.contains("| `src/"));
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [.., functions, file, ""] = cells[..] else { panic!("{row}") };
        let file = file.trim_matches('`');
        let source = read(file);
        let mut found = 0;
        for function in functions.split('`').skip(1).step_by(2) {
            let (of, name) = function.rsplit_once("::").unwrap_or(("", function));
            let is_there = [format!("fn {name}("), format!("fn {name}<"), format!("const {name}:")]
                .iter()
                .any(|it| source.contains(it));
            assert!(is_there, "{function} is not in {file}");
            assert!(
                of.is_empty() || source.contains(&format!("impl {of}")),
                "{of} is not in {file}"
            );
            found += 1;
        }
        assert!(found > 0, "no function in {row}");
        count += 1;
    }
    count
}

/// ARCHITECTURE.md walks through the source, hop by hop: every function it names is in the file it names.
#[test]
fn every_hop_of_the_walks_is_in_the_source() {
    let text = read("ARCHITECTURE.md");
    let walks = text.split("\n## ").filter(|it| it.lines().next().unwrap().ends_with("hop by hop"));
    let hops: usize = walks.map(find_every_function).sum();
    assert!(hops >= 15, "{hops} hops");
}

/// So it is with the repair paths of a hand-over.
#[test]
fn every_repair_path_of_a_hand_over_is_in_the_source() {
    let paths = find_every_function(&read("docs/lease-lifecycle.md"));
    assert_eq!(paths, 8, "repair paths of docs/lease-lifecycle.md");
}

/// Every path of the source tree that ARCHITECTURE.md names exists.
#[test]
fn every_place_of_the_code_map_exists() {
    let text = read("ARCHITECTURE.md");
    let paths = text.split('`').filter(|it| {
        ["src/", "tests/", "testkit/", "labs/", "benches/", "docs/"]
            .iter()
            .any(|top| it.starts_with(top))
            && !it.contains([' ', '<', '*', '{'])
    });
    let missing: Vec<&str> = paths.filter(|it| !root().join(it).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

/// The names that a module passes on with `pub use`.
fn exported(text: &str) -> Vec<String> {
    let uses = text.split("\npub use ").skip(1).map(|it| it.split(';').next().unwrap());
    let names = uses.flat_map(|it| it.rsplit("::").next().unwrap().split(','));
    let names = names.map(|it| it.trim_matches(['{', '}', '\n', ' ']).to_owned());
    names.filter(|it| !it.is_empty()).collect()
}

/// The library is the names at its root: no module is public without the feature `__internals`. `make lint` compiles both
/// directions of this (`scripts/public-face`).
#[test]
fn the_public_face_is_the_kept_list_of_names() {
    let text = read("src/lib.rs");
    let without = text.rsplit("} else {").next().unwrap();
    let public: Vec<&str> = without.lines().filter(|it| it.contains("pub mod ")).collect();
    assert_eq!(public, ["pub mod testing;"], "behind the feature testing");
    assert!(text.contains("if #[cfg(feature = \"__internals\")]"));
    // The one module that is public, with a feature for the tests of users.
    let testing = exported(&read("src/testing/mod.rs"));
    let mut names = exported(&text);
    names.extend(testing.iter().map(|it| format!("testing::{it}")));
    names.sort();
    assert_eq!(names.join("\n") + "\n", read("tests/it/meta/public_names.txt"));
}

/// A user copies the examples and the pages. They are compiled with the modules in reach, so the compiler does not notice.
#[test]
fn no_example_for_users_reaches_behind_the_public_face() {
    let pages = ["README.md", "docs/library.md", "docs/elections.md"].map(str::to_owned);
    let examples = fs::read_dir(root().join("examples")).unwrap();
    let examples = examples.map(|it| it.unwrap().path()).filter(|it| it.is_file());
    let examples = examples.map(|it| it.strip_prefix(root()).unwrap().display().to_string());
    for name in pages.into_iter().chain(examples) {
        let text = read(&name);
        let mut named = named_behind(&text, "leasehold::");
        let inside = named.find(|it| LAYERS.contains(it) && *it != "testing");
        assert_eq!(inside, None, "{name} uses a module of the library");
    }
}

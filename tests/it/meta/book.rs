//! Is the book true? Every rule, key, channel, event and option that is cited anywhere is in `docs/protocol.md` or
//! `docs/contract.md`, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The text of every file below `dirs` whose name ends in one of `endings`, with its name.
fn texts(dirs: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    fn collect(path: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                collect(&entry.unwrap().path(), endings, found);
            }
        } else if endings.iter().any(|it| path.to_str().unwrap().ends_with(it)) {
            found.push(path.to_owned());
        }
    }
    let mut found = Vec::new();
    dirs.iter().for_each(|it| collect(&root().join(it), endings, &mut found));
    assert!(!found.is_empty(), "nothing in {dirs:?}");
    let name = |it: &Path| it.strip_prefix(root()).unwrap().display().to_string();
    found.iter().map(|it| (name(it), fs::read_to_string(it).unwrap())).collect()
}

/// The pages that people read.
fn pages() -> Vec<(String, String)> {
    texts(
        &[
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "docs",
            "systemd",
            "monitoring",
        ],
        &[".md", ".service", ".yml"],
    )
}

/// The part of a page under this heading, down to the next heading of the same depth.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = format!("\n{heading}\n");
    let rest = page.split_once(&start).unwrap_or_else(|| panic!("no {heading:?}")).1;
    let depth = &heading[..=heading.find(' ').unwrap()];
    rest.split(&format!("\n{depth}")).next().unwrap()
}

/// The first cell of each row of the tables in `text`, and the rest of the row.
fn rows(text: &str) -> Vec<(&str, &str)> {
    let rows = text.lines().filter(|it| it.starts_with("| `"));
    rows.map(|it| it[2..].split_once(" |").unwrap()).collect()
}

/// The parts of `text` in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|it| it.split('`').skip(1).step_by(2))
}

fn rules_of_the_book() -> BTreeSet<u32> {
    let page = read("docs/protocol.md");
    page.lines()
        .filter_map(|it| it.strip_prefix("### R")?.split(' ').next()?.parse().ok())
        .collect()
}

/// The numbers that stand behind the letter as a word of their own: `R5` in `R5: …`.
fn numbered(text: &str, letter: char) -> BTreeSet<u32> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter_map(|it| it.strip_prefix(letter)?.parse().ok()).collect()
}

#[test]
fn every_rule_that_is_cited_is_in_the_protocol_and_every_rule_there_is_kept_somewhere() {
    let book = rules_of_the_book();
    assert_eq!(book, (1..=16).collect(), "docs/protocol.md");
    let mut kept = BTreeSet::new();
    for (name, text) in
        texts(&["src", "tests", "testkit", "labs", "benches", "examples"], &[".rs", ".lua"])
    {
        let cited = numbered(&text, 'R');
        assert!(cited.is_subset(&book), "{name} cites {:?}", cited.difference(&book));
        if name.starts_with("src/") {
            kept.extend(cited);
        }
    }
    assert_eq!(kept, book, "rules that src/ does not name");
    for (name, text) in pages() {
        let cited = numbered(&text, 'R');
        assert!(cited.is_subset(&book), "{name} cites {:?}", cited.difference(&book));
    }
}

#[test]
fn every_promise_that_is_cited_is_in_the_protocol() {
    let book: BTreeSet<u32> = (1..=7).collect();
    let page = read("docs/protocol.md");
    book.iter().for_each(|it| assert!(page.contains(&format!("| **G{it}**")), "G{it}"));
    for (name, text) in
        texts(&["src", "tests", "testkit", "labs", "benches", "docs"], &[".rs", ".lua", ".md"])
    {
        let cited = numbered(&text, 'G');
        assert!(cited.is_subset(&book), "{name} cites {:?}", cited.difference(&book));
    }
}

fn events_of_the_source() -> BTreeSet<String> {
    let source = read("src/event.rs");
    let names = source.split("=> \"").skip(1).filter_map(|it| it.split('"').next());
    names.filter(|it| it.contains('.')).map(String::from).collect()
}

#[test]
fn every_event_is_in_the_contract_and_the_contract_names_no_other() {
    let contract = read("docs/contract.md");
    let told: BTreeSet<String> = rows(section(&contract, "## Events"))
        .iter()
        .map(|it| it.0.trim_matches('`').into())
        .collect();
    let said = events_of_the_source();
    assert!(said.len() > 20, "{said:?}");
    assert_eq!(told, said);
}

#[test]
fn every_event_that_a_page_cites_exists() {
    let said = events_of_the_source();
    let families: BTreeSet<&str> = said.iter().map(|it| it.split('.').next().unwrap()).collect();
    let is_file = |it: &str| {
        [".rs", ".lua", ".md", ".json", ".yml", ".sh", ".toml"].iter().any(|end| it.ends_with(end))
    };
    for (name, text) in pages() {
        for word in quoted(&text).flat_map(|it| it.split(' ')).filter(|it| !is_file(it)) {
            let Some((family, what)) = word.split_once('.') else { continue };
            let is_name =
                !what.is_empty() && what.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
            if families.contains(family) && is_name && what != "service" && what != "env" {
                assert!(said.contains(word), "{name} cites the event {word}");
            }
        }
    }
}

/// The names of keys and channels by which a script could find them: `poll:lease:<endpoint>` → `poll:lease:`.
fn stem(key: &str) -> &str {
    &key[..key.find('<').unwrap_or(key.len())]
}

fn keys_of_the_contract() -> BTreeSet<String> {
    let contract = read("docs/contract.md");
    let cells = rows(section(&contract, "## Redis keys")).into_iter().map(|it| it.0.to_owned());
    let keys = cells.flat_map(|it| quoted(&it).map(|it| stem(it).to_owned()).collect::<Vec<_>>());
    keys.collect()
}

#[test]
fn every_key_and_channel_is_in_the_contract_and_the_contract_names_no_other() {
    let told = keys_of_the_contract();
    let source = read("src/store/keys.rs");
    let production = source.split("#[cfg(test)]").next().unwrap();
    let names =
        production.split("format!(\"{}:").skip(1).filter_map(|it| it.split(['{', '"']).next());
    let of_polls: BTreeSet<String> =
        names.map(|it| format!("poll:{it}")).filter(|it| it.len() > "poll:".len()).collect();
    assert!(of_polls.len() > 8, "{of_polls:?}");
    let lacking: Vec<&String> = of_polls.iter().filter(|it| !told.contains(*it)).collect();
    assert!(lacking.is_empty(), "not in docs/contract.md: {lacking:?}");
    // Made elsewhere: the session's own name, the prefixes of `Keys::new`, `doctor`'s trial keys.
    let elsewhere = ["session:", "poll:lease:", "poll:result:", "poll:doctor:"];
    for key in told.iter().filter(|it| !it.starts_with("leader:")) {
        assert!(of_polls.contains(key) || elsewhere.contains(&key.as_str()), "no such key: {key}");
    }
}

#[test]
fn every_key_that_a_page_cites_is_in_the_contract() {
    let told = keys_of_the_contract();
    for (name, text) in pages() {
        for word in quoted(&text).flat_map(|it| it.split([' ', ',', '\''])) {
            let is_key = ["poll:", "leader:"].iter().any(|it| word.starts_with(it));
            let rest = word.split_once(':').map_or("", |it| it.1);
            if !is_key || rest.is_empty() || rest.starts_with(['*', '<']) {
                continue;
            }
            let known = |it: &String| {
                word == it
                    || it.strip_suffix(':') == Some(word)
                    || it.ends_with(':') && word.starts_with(it.as_str())
            };
            let known = told.iter().any(known);
            assert!(known, "{name} cites the key {word}");
        }
    }
}

/// Each option of the pages of help that another test keeps, with its default.
fn options_of_the_help() -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    let help = read("tests/it/cli/golden/help.txt");
    let mut name = String::new();
    for line in help.lines() {
        if let Some(option) = line.strip_prefix("  --") {
            name = option.split(' ').next().unwrap().into();
            options.entry(name.clone()).or_default();
        } else if let Some(default) = line.trim().strip_prefix("[default: ") {
            let default = default.trim_end_matches(']').to_owned();
            options.entry(name.clone()).and_modify(|it: &mut String| {
                if it.is_empty() {
                    *it = default;
                }
            });
        }
    }
    options
}

#[test]
fn every_option_is_in_the_contract_with_its_default_and_the_contract_names_no_other() {
    let contract = read("docs/contract.md");
    let mut told = BTreeMap::new();
    for (option, rest) in rows(section(&contract, "## Options")) {
        let name = option.trim_matches('`').trim_start_matches("--").split(' ').next().unwrap();
        let default = rest.split('|').next().unwrap().trim().trim_matches('`');
        told.insert(name.to_owned(), default.to_owned());
    }
    assert_eq!(told, options_of_the_help());
}

#[test]
fn every_option_that_a_page_cites_exists() {
    let options = options_of_the_help();
    // Of cargo, of systemd's commands, and of scripts/mutants.
    let foreign = [
        "check",
        "doc",
        "example",
        "help",
        "lib",
        "locked",
        "nocapture",
        "now",
        "open",
        "precise",
        "recursive-errors",
        "test",
    ];
    let pattern = "foo-bar";
    for (name, text) in pages() {
        for option in named_with_hyphens(&text, "--") {
            let known = options.contains_key(&option)
                || foreign.contains(&option.as_str())
                || option == pattern;
            assert!(known, "{name} cites --{option}");
        }
    }
    let settings = read("systemd/leasehold.env.example");
    for name in settings.split("LEASEHOLD_").skip(1) {
        let end = name.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(name.len());
        let option = name[..end].to_lowercase().replace('_', "-");
        assert!(options.contains_key(&option), "the example settings name {option}");
    }
}

/// The lower-case words with hyphens that stand behind `prefix`.
fn named_with_hyphens(text: &str, prefix: &str) -> Vec<String> {
    let words = text.split(prefix).skip(1).map(|it| {
        let end = it.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(it.len());
        it[..end].trim_end_matches('-').to_owned()
    });
    words.filter(|it| it.len() > 2).collect()
}

/// The innermost paths of the documents whose shape another test keeps, by command.
fn fields_of_the_documents() -> BTreeMap<String, BTreeSet<String>> {
    let shapes = read("tests/it/cli/golden/json.txt");
    let mut documents = BTreeMap::new();
    for document in shapes.split("$ leasehold ").skip(1) {
        let (command, fields) = document.split_once('\n').unwrap();
        let words = command.split(' ').take_while(|it| !it.starts_with("--") && *it != "e1");
        let paths: Vec<&str> =
            fields.lines().filter_map(|it| Some(it.split_once(':')?.0)).collect();
        let inner = |it: &&&str| {
            let within = |other: &&str| {
                other.starts_with(&format!("{it}.")) || other.starts_with(&format!("{it}[]"))
            };
            **it != "." && !paths.iter().any(within)
        };
        let paths = paths.iter().filter(inner).map(|it| it.trim_start_matches('.').to_owned());
        documents.insert(words.collect::<Vec<_>>().join(" "), paths.collect());
    }
    documents
}

#[test]
fn every_field_of_a_document_is_in_the_contract_and_the_contract_names_no_other() {
    let contract = read("docs/contract.md");
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (commands, fields) in rows(section(&contract, "## JSON")) {
        let fields: BTreeSet<String> = quoted(fields).map(String::from).collect();
        told.extend(quoted(commands).map(|it| (it.to_owned(), fields.clone())));
    }
    assert_eq!(told, fields_of_the_documents());
}

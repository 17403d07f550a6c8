//! Can the pages be read? The README is short, every link leads somewhere, every page can be reached, the quick start
//! works as written, and `make help` has every target in one group.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use testkit::process::{SOON, TempDir, binary, eventually};
use testkit::redis::RedisServer;

const README: &str = "README.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &Path) -> String {
    fs::read_to_string(root().join(page))
        .unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Every page below docs/.
fn docs() -> BTreeSet<PathBuf> {
    fn collect(dir: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(root().join(dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|it| it == "md") {
                found.insert(path);
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(Path::new("docs"), &mut found);
    assert!(found.len() > 10, "{found:?}");
    found
}

/// The lines of a page that are not inside a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The anchors that GitHub gives the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|it| it.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    headings.map(anchor).collect()
}

/// The targets of the relative links and pictures of a page: path and anchor.
fn links(text: &str) -> Vec<(String, Option<String>)> {
    let lines = prose(text).flat_map(|it| it.split("](").skip(1));
    let targets = lines.filter_map(|it| it.split(')').next()).filter(|it| !it.contains("://"));
    targets
        .map(|it| match it.split_once('#') {
            Some((path, anchor)) => (path.to_owned(), Some(anchor.to_owned())),
            None => (it.to_owned(), None),
        })
        .collect()
}

/// `docs/../monitoring` → `monitoring`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
        plain
    })
}

fn target(page: &Path, link: &str) -> PathBuf {
    if link.is_empty() { page.to_owned() } else { plain(&page.parent().unwrap().join(link)) }
}

#[test]
fn the_readme_is_short_and_names_the_commands() {
    let readme = read(Path::new(README));
    assert!(readme.lines().count() <= 200, "{} lines", readme.lines().count());
    for command in ["make dev", "make demo", "make test"] {
        let is_there = readme.lines().any(|it| it.starts_with(command));
        assert!(is_there, "the README has no line to paste for {command}");
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let others = [README, "CONTRIBUTING.md", "CHANGELOG.md"].map(PathBuf::from);
    let mut count = 0;
    for page in docs().into_iter().chain(others) {
        for (link, anchor) in links(&read(&page)) {
            let target = target(&page, &link);
            assert!(root().join(&target).exists(), "{} links to {link}", page.display());
            if let Some(anchor) = anchor {
                let is_there = anchors(&read(&target)).contains(&anchor);
                assert!(is_there, "{} links to {link}#{anchor}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count} links");
}

#[test]
fn every_page_can_be_reached_from_the_readme() {
    let (mut reached, mut next) = (BTreeSet::new(), vec![PathBuf::from(README)]);
    while let Some(page) = next.pop() {
        let is_page = page.extension().is_some_and(|it| it == "md");
        if !is_page || !reached.insert(page.clone()) {
            continue;
        }
        next.extend(links(&read(&page)).iter().map(|(link, _)| target(&page, link)));
    }
    let lost: Vec<PathBuf> = docs().into_iter().filter(|it| !reached.contains(it)).collect();
    assert!(lost.is_empty(), "no page links to {lost:?}");
}

/// Group → the targets under it, as `make help` prints them.
fn groups() -> BTreeMap<String, Vec<String>> {
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "help"]).current_dir(root()).env_remove("MAKEFLAGS");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (mut groups, mut group) = (BTreeMap::<String, Vec<String>>::new(), String::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(target) = line.strip_prefix("  make ") {
            let (name, description) = target.split_once(' ').unwrap();
            assert!(description.trim().len() > 5, "make {name} says nothing");
            groups.entry(group.clone()).or_default().push(name.into());
        } else {
            group = line.into();
        }
    }
    groups
}

#[test]
fn every_target_of_the_makefile_is_in_one_group_of_its_help() {
    let groups = groups();
    let names: Vec<&str> = groups.keys().map(String::as_str).collect();
    assert_eq!(names, ["develop", "measure", "package", "prove", "use"]);
    let mut shown: Vec<&String> = groups.values().flatten().collect();
    shown.sort_unstable();
    let makefile = read(Path::new("Makefile"));
    let phony = makefile.lines().find_map(|it| it.strip_prefix(".PHONY: ")).unwrap();
    let mut phony: Vec<&str> = phony.split(' ').collect();
    phony.sort_unstable();
    assert_eq!(shown, phony);
}

/// The README's quick start as pasted, but for the build and the address of Redis.
#[test]
fn the_quick_start_works_as_written() {
    let readme = read(Path::new(README));
    let section = readme.split_once("\n## Quick start\n").unwrap().1;
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(block.lines().count(), 6, "{block}");
    let (redis, dir) = (RedisServer::start(), TempDir::new());
    let bin = dir.path().join("target/release");
    fs::create_dir_all(&bin).unwrap();
    symlink(binary(), bin.join("leasehold")).unwrap();
    let (build, pasted) = block.split_once('\n').unwrap();
    assert_eq!(build, "make build");
    let address = "redis://127.0.0.1:6379/0";
    assert!(pasted.contains(address), "{pasted}");
    // Without the network: the endpoint is the server itself, which is no matter of the quick start.
    let pasted = pasted.replace(address, &redis.url());
    let pasted = pasted.replace("example.com:80", &format!("tcp://127.0.0.1:{}", redis.port()));
    // Two seconds may be too short here, where all tests run at once: wait for the first instance itself.
    let registered = format!("redis-cli -p {} exists poll:epoch", redis.port());
    let wait = format!("& until [ \"$({registered})\" = 1 ]; do sleep 0.1; done");
    assert!(pasted.contains("& sleep 2 "), "{pasted}");
    let pasted = pasted.replace("& sleep 2 ", &wait);
    let log = dir.path().join("log");
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec 2>{}\n{pasted}\nwait", log.display())]);
    shell.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let _group = Group(shell.spawn().unwrap());
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let result = || redis.cli(&["HGET", "poll:result:example", "ok"]);
    eventually(SOON, "a result", said, || result() == "1");
    eventually(SOON, "both instances", said, || said().matches("event=daemon.ready").count() == 2);
}

/// A shell with a process group of its own, which ends with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

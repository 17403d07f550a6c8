//! `BLESS=1` writes what was measured into docs/results/starvation.md, scene by scene. Scenes that were not played stay.

use std::fs;

use testkit::bench::table::{is_blessed, load};
use testkit::paths::root;

const PAGE: &str = "docs/results/starvation.md";
/// What stands on the page below this line is written here.
const MARK: &str = "<!-- from here on: make starve BLESS=1 -->";

/// What was measured in one scene.
pub(crate) struct Section {
    name: &'static str,
    load: f64,
    lines: Vec<String>,
}

impl Section {
    /// Before the scene is played: the load is the machine's without it.
    pub(crate) fn begin(name: &'static str) -> Self {
        Self { name, load: load(), lines: Vec::new() }
    }

    pub(crate) fn end(self, lines: Vec<String>) -> Self {
        Self { lines, ..self }
    }

    fn heading(&self) -> String {
        format!("\n### {}\n", self.name)
    }

    fn text(&self) -> String {
        let lines: String = self.lines.iter().map(|it| format!("- {it}\n")).collect();
        format!("{}\nLoad at the beginning: {:.2}.\n\n{lines}", self.heading(), self.load)
    }
}

/// Keeps what these scenes measured, in the order of `names`, if that was asked for.
pub(crate) fn write(names: &[&'static str], sections: &[Section]) {
    if !is_blessed() {
        return;
    }
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (prose, kept) = page.split_once(MARK).unwrap();
    fs::write(path, format!("{prose}{MARK}\n{}", merged(kept, names, sections))).unwrap();
}

fn merged(kept: &str, names: &[&'static str], sections: &[Section]) -> String {
    let kept: Vec<&str> = kept.split("\n### ").skip(1).collect();
    let of_scene = |name: &&'static str| match sections.iter().find(|it| it.name == *name) {
        Some(section) => section.text(),
        None => {
            let old = kept.iter().find(|it| it.lines().next() == Some(name));
            old.map(|it| format!("\n### {}\n", it.trim_end())).unwrap_or_default()
        }
    };
    names.iter().map(of_scene).collect()
}

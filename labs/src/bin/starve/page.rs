//! `BLESS=1` writes what was measured into docs/results/starvation.md, scene by scene. Scenes that were not played stay.

use testkit::bench::table::load;
use testkit::sections;

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

    fn text(&self) -> String {
        let lines: String = self.lines.iter().map(|it| format!("- {it}\n")).collect();
        let measured = format!("Load at the beginning: {:.2}.\n\n{lines}", self.load);
        sections::text(self.name, &measured)
    }
}

/// Keeps what these scenes measured, in the order of `names`, if that was asked for.
pub(crate) fn write(names: &[&'static str], sections: &[Section]) {
    let sections: Vec<_> = sections.iter().map(|it| (it.name, it.text())).collect();
    sections::keep(PAGE, MARK, names, &sections);
}

//! A page of results whose end is written by a lab, a section for each kind of measurement. `BLESS=1` asks for it.

use std::fs;

use crate::bench::table::is_blessed;
use crate::paths::root;

fn heading(name: &str) -> String {
    format!("\n### {name}\n")
}

/// A section: its heading, and what was measured.
pub fn text(name: &str, measured: &str) -> String {
    format!("{}\n{measured}", heading(name))
}

/// Writes `sections` behind `mark` on the page `path`, in the order of `names`, if `BLESS` asks for it. Sections that are
/// on the page and were not measured now stay.
pub fn keep(path: &str, mark: &str, names: &[&str], sections: &[(&str, String)]) {
    if !is_blessed() {
        return;
    }
    let path = root().join(path);
    let page = fs::read_to_string(&path).unwrap();
    let (prose, kept) = page.split_once(mark).unwrap();
    fs::write(path, format!("{prose}{mark}\n{}", merged(kept, names, sections))).unwrap();
}

fn merged(kept: &str, names: &[&str], sections: &[(&str, String)]) -> String {
    let kept: Vec<&str> = kept.split("\n### ").skip(1).collect();
    let of_name = |name: &&str| match sections.iter().find(|it| it.0 == *name) {
        Some((_, text)) => text.clone(),
        None => {
            let old = kept.iter().find(|it| it.lines().next() == Some(name));
            old.map(|it| format!("\n### {}\n", it.trim_end())).unwrap_or_default()
        }
    };
    names.iter().map(of_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_that_was_not_measured_stays() {
        let (old, new) = (text("a", "old a\n") + &text("b", "old b\n"), text("b", "new b\n"));
        let merged = merged(&old, &["a", "b", "c"], &[("b", new)]);
        assert_eq!(merged, "\n### a\n\nold a\n\n### b\n\nnew b\n");
    }
}

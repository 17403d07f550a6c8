//! How does a table look on a terminal? Aligned, coloured where that is wanted, and harmless.
//!
//! Strangers wrote much of the text in a table: control characters that could move the cursor are removed.

use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

pub(crate) use crate::inspect::printable::printable;
pub(crate) use crate::inspect::status::brief;

/// A colour with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Heading,
    Good,
    Watch,
    Bad,
}

/// Paints, or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painter {
    pub(crate) colours: bool,
}

impl Painter {
    /// Colours on a terminal that knows them, unless `NO_COLOR` is set.
    pub(crate) fn for_stdout() -> Self {
        let set = |name: &str| env::var_os(name).is_some_and(|it| !it.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|it| it == "dumb" || it.is_empty());
        Self { colours: io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// `text` in its colour, and back.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            _ if !self.colours => return text.into(),
            Paint::Plain => return text.into(),
            Paint::Heading => "1",
            Paint::Good => "32",
            Paint::Watch => "33",
            Paint::Bad => "1;31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A cell, safe to print.
pub(crate) struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: printable(text), paint: Paint::Plain }
    }

    pub(crate) fn painted(text: &str, paint: Paint) -> Self {
        Self { text: printable(text), paint }
    }

    fn cut(&mut self, room: usize) {
        if self.text.chars().count() > room {
            let kept: String = self.text.chars().take(room.saturating_sub(3)).collect();
            self.text = kept + "...";
        }
    }
}

/// Which side of its column a cell keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows under headings. The last column is as long as it is.
pub(crate) struct Table {
    columns: &'static [(&'static str, Side)],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &'static [(&'static str, Side)]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// A row has a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|it| it.get(at));
            let heading = self.columns[at].0.chars().count();
            cells.map(|it| it.text.chars().count()).chain([heading]).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }

    /// Cuts columns until a line has at most `columns` characters: the first of `order` first, each to no fewer characters
    /// than it names.
    pub(crate) fn fit(&mut self, columns: usize, order: &[(usize, usize)]) {
        let mut widths = self.widths();
        let taken: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let mut over = taken.saturating_sub(columns);
        for (at, least) in order {
            let room = widths[*at].saturating_sub(over).max(*least).min(widths[*at]);
            over -= widths[*at] - room;
            widths[*at] = room;
            for cell in self.rows.iter_mut().filter_map(|it| it.get_mut(*at)) {
                cell.cut(room);
            }
        }
    }

    /// The lines of the table, each with its end.
    pub(crate) fn shown(&self, painter: Painter) -> String {
        let heading = |it: &(&str, Side)| Cell::painted(it.0, Paint::Heading);
        let headings: Vec<Cell> = self.columns.iter().map(heading).collect();
        let widths = self.widths();
        let mut out = String::new();
        for row in [&headings].into_iter().chain(&self.rows) {
            let mut line = String::new();
            let cells = row.iter().zip(self.columns).zip(&widths).enumerate();
            for (at, ((cell, (_, side)), width)) in cells {
                let gap = " ".repeat(width - cell.text.chars().count());
                let text = painter.paint(cell.paint, &cell.text);
                let last = at + 1 == row.len();
                line.push_str(if at == 0 { "" } else { "  " });
                match side {
                    Side::Right => line.push_str(&format!("{gap}{text}")),
                    Side::Left if last => line.push_str(&text),
                    Side::Left => line.push_str(&format!("{text}{gap}")),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// How wide the terminal is that stdout goes to; `None` where it is none, or does not tell.
pub(crate) fn width_of_stdout() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let set = env::var("COLUMNS").ok().and_then(|it| it.parse().ok());
    set.or_else(asked_width).filter(|it| *it > 0)
}

/// By way of stty: asking the kernel oneself is `unsafe`, and asking the terminal would eat what was typed ahead.
fn asked_width() -> Option<usize> {
    let terminal = io::stdout().as_fd().try_clone_to_owned().ok()?;
    let mut stty = Command::new("stty");
    let output = stty.arg("size").stdin(terminal).stderr(Stdio::null()).output().ok()?;
    let size = String::from_utf8(output.stdout).ok()?;
    size.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nothing_that_a_stranger_wrote_reaches_the_terminal_as_a_control() {
        let hostile = "a\x1b[2J\x07\r\n\t\x7f\u{9b}31m\u{202e}\u{200b}\0é'\"";
        let shown = printable(hostile);
        assert_eq!(shown, "a\\u{1b}[2J\\u{7}\\r\\n\\t\\u{7f}\\u{9b}31m\\u{202e}\\u{200b}\\0é'\"");
        let mut table = Table::new(&[("A", Side::Left)]);
        table.row(vec![Cell::new(hostile)]);
        let shown = table.shown(Painter { colours: false });
        assert!(shown.chars().all(|it| it == '\n' || !it.is_control()), "{shown:?}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let mut table =
            Table::new(&[("NAME", Side::Left), ("N", Side::Right), ("WHY", Side::Left)]);
        table.row(vec![Cell::new("é"), Cell::new("10"), Cell::new("")]);
        table.row(vec![Cell::new("longer"), Cell::new("9"), Cell::painted("so", Paint::Bad)]);
        let shown = table.shown(Painter { colours: false });
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            ["NAME     N  WHY", "é       10", "longer   9  so"]
        );
        let coloured = table.shown(Painter { colours: true });
        assert!(coloured.contains("longer   9  \x1b[1;31mso\x1b[0m\n"), "{coloured:?}");
    }

    #[test]
    fn the_last_column_is_cut_between_characters_where_the_line_ends() {
        let shown = |columns: usize| {
            let mut table = Table::new(&[("A", Side::Left), ("B", Side::Left)]);
            table.row(vec![Cell::new("éé"), Cell::new(&"é".repeat(12))]);
            table.fit(columns, &[(1, 5)]);
            table.shown(Painter { colours: false }).lines().last().unwrap().to_owned()
        };
        assert_eq!(shown(16), format!("éé  {}", "é".repeat(12)));
        assert_eq!(shown(15), format!("éé  {}...", "é".repeat(8)));
        assert_eq!(shown(3), "éé  éé...", "something is always shown");
    }

    #[test]
    fn columns_are_cut_in_the_order_that_is_given_until_the_line_fits() {
        let shown = |columns: usize| {
            let mut table = Table::new(&[("A", Side::Left), ("B", Side::Left), ("C", Side::Left)]);
            table.row(["a", "b", "c"].map(|it| Cell::new(&it.repeat(10))).into());
            table.fit(columns, &[(2, 6), (0, 5)]);
            table.shown(Painter { colours: false }).lines().last().unwrap().to_owned()
        };
        let b = "b".repeat(10);
        assert_eq!(shown(34), format!("aaaaaaaaaa  {b}  cccccccccc"));
        assert_eq!(shown(31), format!("aaaaaaaaaa  {b}  cccc..."));
        assert_eq!(shown(28), format!("aaaaa...  {b}  ccc..."));
        assert_eq!(shown(1), format!("aa...  {b}  ccc..."), "no more than that");
    }

    #[test]
    fn a_time_is_shown_with_two_digits_or_so() {
        for (ms, shown) in [
            (0, "0.0s"),
            (9_960, "9.9s"),
            (29_500, "29s"),
            (119_999, "119s"),
            (120_000, "2m"),
            (7_200_000, "2h"),
            (864_000_000, "10d"),
        ] {
            assert_eq!(brief(Duration::from_millis(ms)), shown);
        }
        assert_eq!(brief(Duration::MAX), "no end");
        assert_eq!(brief(Duration::from_millis(u64::MAX)), "213503982334d");
    }
}

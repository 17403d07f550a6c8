//! What a line of the screen is made of: pieces with colours, cut where the screen ends.

use std::env;

use crate::cli::table::{Paint, Painter, Side, printable};

/// The signs for pictures: finer ones where the locale has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signs {
    pub(crate) bars: [char; 8],
    pub(crate) full: char,
    pub(crate) mark: char,
    pub(crate) failed: char,
    pub(crate) cut: char,
}

impl Signs {
    /// By the locale: a terminal whose own is not UTF-8 says so there. Where nothing is said, it is.
    pub(crate) fn of_locale() -> Self {
        let set = |name: &&str| env::var(name).ok().filter(|it| !it.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        match locale.is_empty() || locale.contains("utf-8") || locale.contains("utf8") {
            true => Self {
                bars: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
                full: '█',
                mark: '┆',
                failed: '×',
                cut: '…',
            },
            false => Self {
                bars: ['_', '.', ',', '-', '~', '=', '+', '#'],
                full: '#',
                mark: '|',
                failed: 'x',
                cut: '>',
            },
        }
    }
}

/// Pieces of a line, each in its colour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Vec<(Paint, String)>);

impl Line {
    pub(crate) fn new(paint: Paint, text: &str) -> Self {
        Self::default().with(paint, text)
    }

    /// With one more piece. Whatever a stranger wrote can do nothing to the screen.
    pub(crate) fn with(mut self, paint: Paint, text: &str) -> Self {
        self.0.push((paint, printable(text)));
        self
    }

    fn width(&self) -> usize {
        self.0.iter().map(|it| it.1.chars().count()).sum()
    }

    /// For a screen of this many columns.
    pub(crate) fn shown(&self, columns: usize, painter: Painter, signs: Signs) -> String {
        let too_long = self.width() > columns;
        let mut room = columns.saturating_sub(usize::from(too_long));
        let mut out = String::new();
        for (paint, text) in &self.0 {
            let piece: String = text.chars().take(room).collect();
            room -= piece.chars().count();
            out.push_str(&painter.paint(*paint, &piece));
        }
        if too_long {
            out.push(signs.cut);
        }
        out
    }
}

/// A text on as many lines as it needs, but no more than `most`: broken between words, and cut only where the
/// last line ends.
pub(crate) fn wrapped(paint: Paint, text: &str, columns: usize, most: usize) -> Vec<Line> {
    let text = printable(text);
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let n = lines.len();
        let line = &mut lines[n - 1];
        let fits = line.chars().count() + 1 + word.chars().count() <= columns;
        if line.is_empty() {
            line.push_str(word);
        } else if fits || n >= most {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines.into_iter().map(|it| Line(vec![(paint, it)])).collect()
}

/// A cell of a table.
pub(crate) type Cell = (Paint, String);

/// Rows under headings, each column as wide as its widest cell.
pub(crate) fn aligned(headings: &[(&str, Side)], rows: Vec<Vec<Cell>>) -> Vec<Line> {
    let first = headings.iter().map(|it| (Paint::Heading, it.0.to_owned())).collect();
    let rows: Vec<Vec<Cell>> = [first].into_iter().chain(rows).collect();
    let length = |it: &Cell| printable(&it.1).chars().count();
    let widest = |at: usize| rows.iter().filter_map(|it| it.get(at)).map(length).max();
    let widths: Vec<usize> = (0..headings.len()).map(|at| widest(at).unwrap_or(0)).collect();
    let line = |row: &Vec<Cell>| {
        let mut line = Line::default();
        for (at, ((cell, (_, side)), width)) in row.iter().zip(headings).zip(&widths).enumerate() {
            let gap = " ".repeat(width - length(cell));
            let between = if at == 0 { "" } else { "  " };
            line = match side {
                Side::Left => line.with(Paint::Plain, between).with(cell.0, &cell.1),
                Side::Right => {
                    line.with(Paint::Plain, &format!("{between}{gap}")).with(cell.0, &cell.1)
                }
            };
            if *side == Side::Left && at + 1 < row.len() {
                line = line.with(Paint::Plain, &gap);
            }
        }
        line
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words_and_cut_only_where_the_last_line_ends() {
        let (painter, signs) = (Painter { colours: false }, Signs::of_locale());
        let lines = |text: &str, columns: usize, most: usize| -> Vec<String> {
            let lines = wrapped(Paint::Bad, text, columns, most);
            lines.iter().map(|it| it.shown(columns, painter, signs)).collect()
        };
        assert_eq!(lines("one two three", 80, 3), ["one two three"]);
        assert_eq!(lines("one two three", 7, 3), ["one two", "three"]);
        let cut = signs.cut;
        assert_eq!(lines("one two three four", 7, 2), ["one two".into(), format!("three {cut}")]);
        assert_eq!(lines("endless", 4, 2), [format!("end{cut}")]);
        assert_eq!(lines("", 4, 2), [""]);
    }

    #[test]
    fn a_line_ends_where_the_screen_does_and_nothing_in_it_moves_a_cursor() {
        let (painter, signs) = (Painter { colours: false }, Signs::of_locale());
        let line = Line::new(Paint::Bad, "abc").with(Paint::Plain, "déf\x1b[2J");
        assert_eq!(line.shown(6, painter, signs).chars().count(), 6);
        assert!(line.shown(5, painter, signs).starts_with("abcd"));
        assert!(!line.shown(80, painter, signs).contains('\x1b'));
        assert_eq!(line.shown(0, painter, signs).chars().count(), 1);
        let coloured = line.shown(2, Painter { colours: true }, signs);
        assert!(coloured.starts_with("\x1b[1;31ma\x1b[0m"), "{coloured:?}");
    }
}

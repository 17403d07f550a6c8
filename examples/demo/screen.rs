//! What is shown: plain lines of at most 80 columns, colour only on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::fleet::Shares;
use crate::judge::Seen;

const BOLD: &str = "1";
const FAINT: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const CYAN: &str = "36";

/// Standard output. A closed pipe is an error like any other, and ends the demo quietly.
pub(crate) struct Screen {
    colour: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Self { colour: io::stdout().is_terminal() && !no_colour }
    }

    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{text}")
    }

    pub(crate) fn title(&self, text: &str) -> io::Result<()> {
        self.line(&format!("\n{}", self.painted(BOLD, text)))
    }

    /// A bar per instance; one that is gone stays on the list.
    pub(crate) fn shares(&self, known: &[&str], shares: &Shares) -> io::Result<()> {
        for name in known {
            let bar = match shares.get(*name) {
                Some(owned) => format!("{} {owned}", self.painted(CYAN, &"■".repeat(*owned))),
                None => self.painted(FAINT, "gone"),
            };
            self.line(&format!("     {name}  {bar}"))?;
        }
        Ok(())
    }

    pub(crate) fn table(&self, acts: &[(&str, Duration, Seen)]) -> io::Result<()> {
        let (settled, gap, back) = ("settled in", "longest gap", "fence back");
        let (polls, overlaps) = ("polls", "overlaps");
        self.title(&format!("{:22}{settled:>12}{gap:>13}{polls:>8}{overlaps:>10}{back:>12}", ""))?;
        for (title, settled, seen) in acts {
            let (settled, gap) = (settled.as_secs_f32(), seen.gap.as_secs_f32());
            let Seen { polls, overlaps, regressions, .. } = seen;
            self.line(&format!(
                "{title:22}{settled:>10.2} s{gap:>11.2} s{polls:>8}{overlaps:>10}{regressions:>12}"
            ))?;
        }
        Ok(())
    }

    pub(crate) fn verdict(&self, good: bool, text: &str) -> io::Result<()> {
        self.line(&format!("\n{}", self.painted(if good { GREEN } else { RED }, text)))
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }
}

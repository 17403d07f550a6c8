//! Which commands and options can a user type? `--help`, read off the table of options.
//!
//! Shows defaults and the names of environment variables, never a value that is set.

use crate::cli::options::{COMMANDS, Opt, Spec, options};

const COLUMNS: usize = 80;

/// The help of `leasehold --help`.
pub(crate) fn overview() -> String {
    let mut out = concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n").to_string();
    wrap(&mut out, 0, concat!(env!("CARGO_PKG_DESCRIPTION"), "."));
    out.push_str("\nUsage: leasehold COMMAND [OPTIONS]\n\nCommands:\n");
    for command in COMMANDS.iter().filter(|it| !it.hidden) {
        out.push_str(&format!("  {:<12}{}\n", command.name, command.summary));
    }
    out.push_str("\nOptions:\n  -h, --help     this, or after a command, all about it\n");
    out.push_str("  -V, --version  the version\n\n");
    wrap(&mut out, 0, CONVENTIONS);
    out.push('\n');
    wrap(&mut out, 0, EXIT_CODES);
    out
}

pub(crate) const CONVENTIONS: &str = "Every option --foo-bar of a command can also be given as the environment \
    variable LEASEHOLD_FOO_BAR. The command line takes precedence, and an empty variable counts as not set. \
    Durations are a whole number and a unit: 500ms, 30s, 5m, 1h.";

pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done; 1 the command failed; 2 the command line or a setting is wrong. \
    With 1 and 2 stderr says why in one sentence. lead and once pass on the exit code of their command, 128+n for a signal.";

/// The help of `leasehold COMMAND --help`.
pub(crate) fn of(command: &Spec) -> String {
    let mut out = format!("Usage: {}\n\n", command.usage);
    wrap(&mut out, 0, command.about);
    out.push_str("\nOptions:\n");
    for opt in options().filter(|it| it.belongs_to(command)) {
        option(&mut out, opt, command);
    }
    out.push_str("  -h, --help\n");
    wrap(&mut out, 10, "This text.");
    if !command.hidden {
        out.push('\n');
        wrap(&mut out, 0, CONVENTIONS);
    }
    out
}

fn option(out: &mut String, opt: &Opt, command: &Spec) {
    match opt.value {
        Some(value) => out.push_str(&format!("  --{} {value}\n", opt.name)),
        None => out.push_str(&format!("  --{}\n", opt.name)),
    }
    wrap(out, 10, opt.help_of(command));
    if !opt.default_of(command).is_empty() {
        wrap(out, 10, &format!("[default: {}]", opt.default_of(command)));
    }
    if opt.is_variable_of(command) {
        wrap(out, 10, &format!("[env: {}]", opt.variable()));
    }
}

/// Breaks at spaces so that every line fits, each `indent` columns in.
fn wrap(out: &mut String, indent: usize, text: &str) {
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_help_fits_eighty_columns() {
        for text in COMMANDS.iter().map(of).chain([overview()]) {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }

    #[test]
    fn the_help_of_a_command_mentions_its_options_with_default_and_variable_and_no_others() {
        for command in COMMANDS {
            // Undo the wrapping, so that a default may span lines.
            let text = of(command).split_whitespace().collect::<Vec<_>>().join(" ");
            for opt in options() {
                let name = match opt.value {
                    Some(value) => format!("--{} {value} ", opt.name),
                    None => format!("--{} {}", opt.name, &opt.help_of(command)[..10]),
                };
                let ours = opt.belongs_to(command);
                assert_eq!(text.contains(&name), ours, "{} {name}", command.name);
                let env = text.contains(&format!("[env: {}]", opt.variable()));
                assert_eq!(env, ours && opt.is_variable_of(command), "{} {name}", command.name);
                if ours && !opt.default_of(command).is_empty() {
                    let default = format!("[default: {}]", opt.default_of(command));
                    assert!(text.contains(&default), "{name}");
                }
            }
        }
    }

    #[test]
    fn the_overview_lists_every_command_but_the_hidden_ones() {
        let text = overview();
        for command in COMMANDS {
            assert_eq!(text.contains(command.summary), !command.hidden, "{}", command.name);
        }
    }
}

//! leasehold(1): the same table as `--help`, for `man`.

use crate::cli::help::{CONVENTIONS, EXIT_CODES};
use crate::cli::options::{COMMANDS, Opt, Spec, options};

/// The page, in roff.
pub(crate) fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = format!(".TH LEASEHOLD 1 \"\" \"leasehold {version}\" \"User Commands\"\n");
    section(&mut out, "NAME");
    out.push_str("leasehold \\- share out polling work among plain VMs through Redis\n");
    section(&mut out, "SYNOPSIS");
    out.push_str(".B leasehold\n.I COMMAND\n.RI [ OPTIONS ]\n");
    section(&mut out, "DESCRIPTION");
    paragraph(&mut out, concat!(env!("CARGO_PKG_DESCRIPTION"), "."));
    paragraph(&mut out, CONVENTIONS);
    section(&mut out, "COMMANDS");
    shown().for_each(|it| command(&mut out, it));
    section(&mut out, "OPTIONS");
    options().filter(|it| shown().any(|c| it.belongs_to(c))).for_each(|it| {
        option(&mut out, it);
    });
    tagged(&mut out, "\\-h, \\-\\-help", "All commands, or after a command, all about it.");
    tagged(&mut out, "\\-V, \\-\\-version", "The version.");
    section(&mut out, "SIGNALS");
    tagged(&mut out, "SIGTERM, SIGINT", "run gives everything back and ends.");
    tagged(&mut out, "SIGHUP", "run reads --settings again; lead and once pass it on.");
    section(&mut out, "FILES");
    for (path, what) in FILES {
        tagged(&mut out, &escaped(path), what);
    }
    section(&mut out, "EXIT STATUS");
    paragraph(&mut out, EXIT_CODES.trim_start_matches("Exit codes: "));
    section(&mut out, "SEE ALSO");
    out.push_str(".BR systemctl (1),\n.BR journalctl (1),\n.BR redis\\-server (1)\n");
    out
}

const FILES: [(&str, &str); 3] = [
    (
        "/etc/leasehold/leasehold.env",
        "Settings of leasehold.service, and of all leasehold@.service.",
    ),
    ("/etc/leasehold/NAME.env", "Settings of leasehold@NAME.service on top of those."),
    ("/etc/leasehold/leasehold.env.example", "Every setting with its default."),
];

fn shown() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().filter(|it| !it.hidden)
}

fn command(out: &mut String, command: &Spec) {
    out.push_str(&format!(".SS {}\n", escaped(command.name)));
    out.push_str(&format!(".B {}\n", escaped(command.usage)));
    paragraph(out, command.about);
    let options = options().filter(|it| it.belongs_to(command));
    let options: Vec<String> = options.map(|it| format!("--{}", it.name)).collect();
    if !options.is_empty() {
        paragraph(out, &format!("Options: {}.", options.join(", ")));
    }
}

fn option(out: &mut String, opt: &Opt) {
    let name = escaped(&format!("--{}", opt.name));
    match opt.value {
        Some(value) => out.push_str(&format!(".TP\n.BI {name} \" {}\"\n", escaped(value))),
        None => out.push_str(&format!(".TP\n.B {name}\n")),
    }
    for (commands, help, default) in meanings(opt) {
        match commands {
            Some(commands) => text(out, &format!("{}: {help}", commands.join(", "))),
            None => text(out, help),
        }
        if !default.is_empty() {
            text(out, &format!("Default: {default}."));
        }
    }
    let of: Vec<&str> = shown().filter(|it| opt.belongs_to(it)).map(|it| it.name).collect();
    text(out, &format!("Of {}; {}.", of.join(", "), opt.variable()));
}

/// Help and default of an option, and the commands for which they hold: `None` if they hold for all.
fn meanings(opt: &Opt) -> Vec<(Option<Vec<&'static str>>, &'static str, &'static str)> {
    let mut meanings: Vec<(Option<Vec<_>>, _, _)> = Vec::new();
    for command in shown().filter(|it| opt.belongs_to(it)) {
        let (help, default) = (opt.help_of(command), opt.default_of(command));
        match meanings.iter_mut().find(|it| (it.1, it.2) == (help, default)) {
            Some((commands, ..)) => commands.iter_mut().for_each(|it| it.push(command.name)),
            None => meanings.push((Some(vec![command.name]), help, default)),
        }
    }
    if let [only] = &mut meanings[..] {
        only.0 = None;
    }
    meanings
}

fn section(out: &mut String, name: &str) {
    out.push_str(&format!(".SH {name}\n"));
}

fn tagged(out: &mut String, tag: &str, what: &str) {
    out.push_str(&format!(".TP\n.B {tag}\n"));
    text(out, what);
}

fn paragraph(out: &mut String, words: &str) {
    out.push_str(".PP\n");
    text(out, words);
}

/// A line of text: not a request, whatever it begins with.
fn text(out: &mut String, words: &str) {
    let words = escaped(words);
    if words.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    out.push_str(&words);
    out.push('\n');
}

/// In ASCII, with hyphens that can be copied.
fn escaped(words: &str) -> String {
    let mut out = String::new();
    for c in words.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '"' => out.push_str("\\(dq"),
            '\'' => out.push_str("\\(aq"),
            '…' => out.push_str("..."),
            c if c.is_ascii() => out.push(c),
            c => out.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_every_option_is_in_the_page_and_no_hidden_one() {
        let page = page();
        for command in COMMANDS {
            let title = format!("\n.SS {}\n", escaped(command.name));
            assert_eq!(page.contains(&title), !command.hidden, "{}", command.name);
        }
        for opt in options() {
            let shown = shown().any(|it| opt.belongs_to(it));
            let name = escaped(&format!("--{}", opt.name));
            let tag = match opt.value {
                Some(value) => format!(".BI {name} \" {}\"\n", escaped(value)),
                None => format!(".B {name}\n"),
            };
            assert_eq!(page.contains(&tag), shown, "--{}", opt.name);
            assert_eq!(page.contains(&format!(" {}.\n", opt.variable())), shown, "--{}", opt.name);
        }
    }

    #[test]
    fn a_line_is_a_known_request_or_text_in_ascii() {
        for line in page().lines() {
            assert!(line.is_ascii() && !line.is_empty(), "{line}");
            if let Some(request) = line.strip_prefix('.') {
                let name = request.split(' ').next().unwrap();
                let known = ["TH", "SH", "SS", "TP", "PP", "B", "I", "BI", "BR", "RI"];
                assert!(known.contains(&name), "{line}");
            }
            assert!(!line.starts_with('\''), "{line}");
        }
    }
}

//! What can come next on a command line? Completions for bash, zsh and fish, from the table of options.

use crate::cli::options::{COMMANDS, Opt, Spec, options};
use crate::cli::task::VERBS;

/// For which there are completions.
pub(crate) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The script for `shell`, if it is one of these.
pub(crate) fn of(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

/// What a value can be.
enum Values {
    OneOf(&'static [&'static str]),
    /// Names in Redis, of which `leasehold names` knows.
    Live(&'static str),
    Files,
    Directories,
    Anything,
}

fn values(opt: &Opt) -> Values {
    match (opt.name, opt.value) {
        ("log-level", _) => Values::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
        ("log-renewals", _) => Values::OneOf(&["auto", "each", "summary"]),
        ("output", _) => Values::OneOf(&["table", "wide", "names", "json"]),
        ("state", _) => Values::OneOf(&[
            "ok",
            "failing",
            "late",
            "stale",
            "paused",
            "invalid",
            "unowned",
            "abandoned",
            "uncertain",
            "moving",
            "new",
            "no-session",
        ]),
        ("purpose", _) => Values::OneOf(&["daemon", "onlooker", "operator", "elector"]),
        ("owner" | "leave" | "instance", _) => Values::Live("instances"),
        ("role", _) => Values::Live("roles"),
        (_, Some("PATH" | "FILES")) => Values::Files,
        (_, Some("DIR")) => Values::Directories,
        _ => Values::Anything,
    }
}

/// The words that a command takes, where they are known.
fn words(command: &Spec) -> &'static [&'static str] {
    match command.name {
        "sessions" => VERBS,
        "completions" => &SHELLS,
        _ => &[],
    }
}

/// The names in Redis that the words of a command are.
fn live(command: &Spec) -> Option<&'static str> {
    match command.name {
        "get" | "explain" | "watch" | "history" | "sessions" => Some("endpoints"),
        "drain" | "undrain" => Some("instances"),
        "lead" | "once" | "resign" => Some("roles"),
        _ => None,
    }
}

fn shown() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().filter(|it| !it.hidden)
}

fn options_of(command: &Spec) -> impl Iterator<Item = &'static Opt> {
    options().filter(move |it| it.belongs_to(command))
}

/// Those of any command that is shown.
fn all_options() -> impl Iterator<Item = &'static Opt> {
    options().filter(|it| shown().any(|command| it.belongs_to(command)))
}

/// The first sentence of a help text.
fn brief(help: &str) -> &str {
    help.split_once(". ").map_or(help, |it| it.0).trim_end_matches('.')
}

fn bash() -> String {
    let mut out = String::from(BASH_HEAD);
    let valued = all_options().filter(|it| it.value.is_some());
    for opt in valued {
        let reply = match values(opt) {
            Values::OneOf(choices) => {
                format!("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", choices.join(" "))
            }
            Values::Live(names) => format!("_leasehold_names {names} \"$cur\""),
            Values::Files => {
                "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")".into()
            }
            Values::Directories => {
                "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")".into()
            }
            Values::Anything => ":".to_owned(),
        };
        out.push_str(&format!("  --{}) {reply}; return ;;\n", opt.name));
    }
    out.push_str("  esac\n  case $command in\n");
    let names: Vec<&str> = shown().map(|it| it.name).collect();
    out.push_str(&format!("  '') words='{} --help --version' ;;\n", names.join(" ")));
    for command in shown() {
        let mut all: Vec<String> = words(command).iter().map(|it| (*it).to_owned()).collect();
        all.extend(options_of(command).map(|it| format!("--{}", it.name)));
        all.push("--help".into());
        let live = live(command).map_or(String::new(), |it| format!("; names={it}"));
        out.push_str(&format!("  {}) words='{}'{live} ;;\n", command.name, all.join(" ")));
    }
    out.push_str(BASH_TAIL);
    out
}

const BASH_HEAD: &str = r#"# bash completion for leasehold
_leasehold_names() {
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" names "$1" "$2" 2>/dev/null)
}
_leasehold() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= names= i
  # --option=value arrives as three words.
  if [[ $cur == '=' ]]; then cur=
  elif [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
      return
    fi
  done
  case $prev in
"#;

const BASH_TAIL: &str = r#"  esac
  # sessions takes ids behind its verb.
  [[ $command == sessions ]] && { ((COMP_CWORD == 2)) && names= || words=; }
  if [[ $names && $cur != -* ]]; then
    _leasehold_names "$names" "$cur"
    [[ $words ]] || return 0
  fi
  COMPREPLY+=($(compgen -W "$words" -- "$cur"))
}
complete -F _leasehold leasehold
"#;

/// Between single quotes, where brackets and colons mean something.
fn zsh_escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\'' => out.push_str("'\\''"),
            '[' | ']' | ':' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

fn zsh() -> String {
    let mut out = String::from(ZSH_HEAD);
    out.push_str("  local -a commands\n  commands=(\n");
    for command in shown() {
        out.push_str(&format!("    '{}:{}'\n", command.name, zsh_escaped(command.summary)));
    }
    out.push_str("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n");
    out.push_str(
        "    _arguments '--help[all commands]' '--version[the version]'\n    return\n  fi\n",
    );
    out.push_str(
        "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n",
    );
    for command in shown() {
        out.push_str(&format!("  {})\n    _arguments", command.name));
        for opt in options_of(command) {
            let help = zsh_escaped(brief(opt.help_of(command)));
            let spec = match (opt.value, values(opt)) {
                (None, _) => format!("--{}[{help}]", opt.name),
                (Some(value), values) => {
                    let action = match values {
                        Values::OneOf(choices) => format!("({})", choices.join(" ")),
                        Values::Files => "_files".into(),
                        Values::Directories => "_files -/".into(),
                        Values::Live(names) => format!("_leasehold_names {names}"),
                        Values::Anything => " ".into(),
                    };
                    format!("--{}=[{help}]:{value}:{action}", opt.name)
                }
            };
            out.push_str(&format!(" \\\n      '{spec}'"));
        }
        out.push_str(" \\\n      '--help[all about it]'");
        if !words(command).is_empty() {
            out.push_str(&format!(" \\\n      '1:word:({})'", words(command).join(" ")));
        }
        match (live(command), command.name) {
            (Some(names), "sessions") => {
                out.push_str(&format!(" \\\n      '*:id:_leasehold_names {names}'"));
            }
            (Some(names), _) => {
                out.push_str(&format!(" \\\n      '1:name:_leasehold_names {names}'"));
            }
            (None, _) => (),
        }
        if command.takes.program {
            out.push_str(" \\\n      '*:: :_normal'");
        }
        out.push_str("\n    ;;\n");
    }
    out.push_str("  esac\n}\n\n_leasehold \"$@\"\n");
    out
}

const ZSH_HEAD: &str = r#"#compdef leasehold

_leasehold_names() {
  local -a found
  found=(${(f)"$(leasehold names $1 ${(q)PREFIX} 2>/dev/null)"})
  compadd -a found
}

_leasehold() {
"#;

fn fish_escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

fn fish_names(of: &str) -> String {
    format!("(leasehold names {of} (commandline -ct) 2>/dev/null)")
}

fn fish() -> String {
    let mut out = String::from("# fish completion for leasehold\ncomplete -c leasehold -f\n");
    let first = "complete -c leasehold -n __fish_use_subcommand";
    out.push_str(&format!("{first} -l help -d 'all commands'\n"));
    out.push_str(&format!("{first} -l version -d 'the version'\n"));
    for command in shown() {
        let (name, summary) = (command.name, fish_escaped(command.summary));
        out.push_str(&format!("{first} -a {name} -d '{summary}'\n"));
    }
    for command in shown() {
        let seen =
            format!("complete -c leasehold -n '__fish_seen_subcommand_from {}'", command.name);
        for opt in options_of(command) {
            let takes = match (opt.value, values(opt)) {
                (None, _) => String::new(),
                (_, Values::OneOf(choices)) => format!(" -x -a '{}'", choices.join(" ")),
                (_, Values::Live(names)) => format!(" -x -a '{}'", fish_names(names)),
                (_, Values::Files) => " -r -F".into(),
                (_, Values::Directories) => " -x -a '(__fish_complete_directories)'".into(),
                (_, Values::Anything) => " -x".into(),
            };
            let help = fish_escaped(brief(opt.help_of(command)));
            out.push_str(&format!("{seen} -l {}{takes} -d '{help}'\n", opt.name));
        }
        out.push_str(&format!("{seen} -l help -d 'all about it'\n"));
        if !words(command).is_empty() {
            out.push_str(&format!("{seen} -a '{}'\n", words(command).join(" ")));
        }
        if let Some(names) = live(command) {
            out.push_str(&format!("{seen} -a '{}'\n", fish_names(names)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::cli::options::Draft;

    #[test]
    fn every_command_and_every_option_is_in_each_and_no_hidden_one() {
        let (bash, zsh, fish) = (bash(), zsh(), fish());
        for command in COMMANDS {
            let name = command.name;
            let shown = !command.hidden;
            assert_eq!(bash.contains(&format!("\n  {name}) words=")), shown, "{name}");
            assert_eq!(zsh.contains(&format!("\n    '{name}:")), shown, "{name}");
            assert_eq!(fish.contains(&format!(" -a {name} -d ")), shown, "{name}");
            let list = bash.lines().find_map(|it| it.strip_prefix(&format!("  {name}) words='")));
            let part = zsh.split(&format!("\n  {name})\n")).nth(1);
            let part = part.and_then(|it| it.split("    ;;\n").next());
            for opt in options() {
                let ours = shown && opt.belongs_to(command);
                let words =
                    list.unwrap_or_default().split('\'').next().unwrap_or_default().split(' ');
                let long = format!("--{}", opt.name);
                assert_eq!(words.into_iter().any(|it| it == long), ours, "bash {name} {long}");
                let spec = format!("'{long}{}[", if opt.value.is_some() { "=" } else { "" });
                assert_eq!(part.is_some_and(|it| it.contains(&spec)), ours, "zsh {name} {long}");
                let line = format!("_from {name}' -l {} ", opt.name);
                assert_eq!(fish.contains(&line), ours, "fish {name} {long}");
            }
        }
    }

    #[test]
    fn a_choice_that_is_offered_is_accepted() {
        for opt in options() {
            if let Values::OneOf(choices) = values(opt) {
                for choice in choices {
                    let set = (opt.set)(&mut Draft::default(), OsStr::new(choice));
                    assert!(set.is_ok(), "--{} {choice}", opt.name);
                }
            }
        }
    }
}

//! What can a newcomer try? The few commands to paste, with the right Redis in them.

use std::ffi::OsStr;
use std::path::Path;

use crate::cli::dev::DevSettings;
use crate::cli::dev::directory::Directory;
use crate::cli::dev::parts::{Parts, environment};
use crate::config::Config;
use crate::inspect::status::counted;

pub(super) struct Guide<'a> {
    pub(super) config: &'a Config,
    pub(super) redis: &'a str,
    /// The port of the page.
    pub(super) page: u16,
    pub(super) leasehold: &'a Path,
    pub(super) directory: &'a Directory,
    pub(super) sessions: usize,
}

impl Guide<'_> {
    pub(super) fn text(&self, parts: &Parts, names: &[String], settings: &DevSettings) -> String {
        let (instances, endpoints) =
            (counted(names.len(), "instance"), counted(self.sessions, "endpoint"));
        let server = if settings.own_redis.is_some() { "your Redis" } else { "a private Redis" };
        let mut text = format!(
            "\n{instances} share {endpoints} through {server}. Ctrl-C ends and removes all of it.\n\n"
        );
        let logs = self.directory.path().join("vm1.log");
        text += &format!("  page    http://127.0.0.1:{}/\n", self.page);
        text += &format!("  Redis   {}\n  log     {}\n", self.config.redis, logs.display());
        text += "\nIn another terminal, first paste this line:\n\n";
        text += &format!("  export {}\n\nthen try:\n\n", self.variables());
        let first = names.first().map_or("vm1", String::as_str);
        let endpoint = if settings.sessions.is_none() { "web-1" } else { "ENDPOINT" };
        let pid = parts.pid(first).map_or_else(|| "PID".into(), |it| it.to_string());
        let (kill, explain) = (format!("kill -9 {pid}"), format!("leasehold explain {endpoint}"));
        let (drain, undrain) =
            (format!("leasehold drain {first}"), format!("leasehold undrain {first}"));
        let killed = format!("{first} dies; the others take over, and it is back 10 s later");
        for (command, why) in [
            ("leasehold status", "who polls what, and whether all is well"),
            ("leasehold top", "the same, live; q quits"),
            ("leasehold watch", "results and moves as they happen"),
            (&explain, "why an endpoint is where it is"),
            (&kill, &killed),
            (&drain, "it hands everything over"),
            (&undrain, "and gets its share back"),
            ("leasehold lead job -- sleep 60", "in two terminals: one leads, Ctrl-C it"),
        ] {
            text += &format!("  {command:<32} # {why}\n");
        }
        text + "\n"
    }

    /// For a shell: the Redis, the prefixes, and this binary unless it is found anyway.
    fn variables(&self) -> String {
        let mut all: Vec<String> = environment(self.config, self.redis)
            .iter()
            .map(|(name, value)| format!("{name}={}", quoted(value)))
            .collect();
        if let Some(folder) = self.leasehold.parent().filter(|_| !self.is_on_path()) {
            all.insert(0, format!("PATH={}:\"$PATH\"", quoted(folder.as_os_str())));
        }
        all.join(" ")
    }

    fn is_on_path(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found =
            std::env::split_paths(&path).map(|it| it.join("leasehold")).find(|it| it.exists());
        found.and_then(|it| it.canonicalize().ok()) == self.leasehold.canonicalize().ok()
    }
}

/// As a shell reads it back.
fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+,=%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_special_characters_is_quoted_for_a_shell() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("/a folder", "'/a folder'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(OsStr::new(text)), shown);
        }
    }
}

//! Who may see the page? Processes of this host, unless a setting says that others may.

use crate::config::{Config, Problem};

impl Config {
    /// Everyone who reaches the page sees every endpoint. So an address that other hosts reach is a decision of its own.
    pub(super) fn check_web(&self) -> Result<(), Problem> {
        let is_for_others = |it: &std::net::SocketAddr| !it.ip().is_loopback() && !self.web_remote;
        if let Some(address) = self.web_listen.filter(is_for_others) {
            return Err(Problem::WebForAll { address });
        }
        if !are_hosts(&self.web_hosts) {
            return Err(Problem::WebHost);
        }
        Ok(())
    }
}

/// Whether a Host header can have these names.
pub(super) fn are_hosts(names: &[String]) -> bool {
    let illegal = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    !names.iter().any(|it| it.chars().any(illegal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(address: &str, remote: bool) -> Result<Config, Problem> {
        let web_listen = Some(address.parse().unwrap());
        Config { web_listen, web_remote: remote, ..Config::default() }.with_reading_checked()
    }

    #[test]
    fn the_page_is_for_this_host_unless_told_otherwise() {
        for address in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80"] {
            let error = checked(address, false).unwrap_err();
            assert!(matches!(error, Problem::WebForAll { .. }), "{error:?}");
            assert!(checked(address, true).is_ok());
        }
        for address in ["127.0.0.1:80", "127.1.2.3:1", "[::1]:80"] {
            assert!(checked(address, false).is_ok());
        }
        let bad = Config { web_hosts: vec!["a/b".into()], ..Config::default() };
        assert!(matches!(bad.with_reading_checked(), Err(Problem::WebHost)));
    }
}

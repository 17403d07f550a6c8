//! Who may see the page? Processes of this host, unless a setting says that others may.

use crate::config::{Config, ConfigError};

impl Config {
    /// Whoever reaches the page sees every endpoint. So an address that other hosts reach is a decision of its own.
    pub(super) fn check_web(&self) -> Result<(), ConfigError> {
        let is_for_others = |it: &std::net::SocketAddr| !it.ip().is_loopback() && !self.web_remote;
        if let Some(address) = self.web_listen.filter(is_for_others) {
            return Err(ConfigError::WebForAll { address });
        }
        if !are_hosts(&self.web_hosts) {
            return Err(ConfigError::WebHost);
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

    fn checked(address: &str, remote: bool) -> Result<Config, ConfigError> {
        let web_listen = Some(address.parse().unwrap());
        Config { web_listen, web_remote: remote, ..Config::default() }.checked_reading()
    }

    #[test]
    fn the_page_is_for_this_host_unless_told_otherwise() {
        for address in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80"] {
            let error = checked(address, false).unwrap_err().to_string();
            assert!(error.contains("--web-remote"), "{error}");
            assert!(checked(address, true).is_ok());
        }
        for address in ["127.0.0.1:80", "127.1.2.3:1", "[::1]:80"] {
            assert!(checked(address, false).is_ok());
        }
        let bad = Config { web_hosts: vec!["a/b".into()], ..Config::default() };
        assert!(matches!(bad.checked_reading(), Err(ConfigError::WebHost)));
    }
}

//! The values of all options of one command line, before they are checked together.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::task::{Output, Which};
use crate::config::Config;
use crate::config::setting::{Given, Setting};
use crate::config::value::ValueError;
use crate::store::admin::acl::Purpose;

/// The values of all options of one command line, before they are checked together.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) config: Config,
    /// Those of `config` that were given.
    pub(crate) given: Given,
    pub(crate) instance: Option<String>,
    pub(crate) force: bool,
    pub(crate) json: bool,
    pub(crate) all: bool,
    pub(crate) body: bool,
    pub(crate) output: Option<Output>,
    pub(crate) which: Which,
    pub(crate) check: bool,
    pub(crate) fleet_only: bool,
    pub(crate) stale_after: Option<Duration>,
    pub(crate) limit: Option<usize>,
    pub(crate) refresh: Option<Duration>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) watch_for: Option<Duration>,
    pub(crate) since: Option<Duration>,
    pub(crate) record: Option<PathBuf>,
    pub(crate) replay: Option<PathBuf>,
    pub(crate) purpose: Option<Purpose>,
    pub(crate) grace: Option<Duration>,
    pub(crate) restart: bool,
    pub(crate) at_least_for: Duration,
    pub(crate) skip_code: u8,
    pub(crate) retry: usize,
    pub(crate) catch_up: Option<Duration>,
    pub(crate) role: Option<String>,
    pub(crate) id: Option<String>,
    /// Fields of a session that have options, by the names of the fields.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) dry_run: bool,
    pub(crate) prune: bool,
    pub(crate) wait: Duration,
    pub(crate) absent: bool,
    pub(crate) join: usize,
    pub(crate) leave: Vec<String>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) socket_mode: Option<u32>,
    pub(crate) clients_max: Option<usize>,
    pub(crate) orders: Option<RawFd>,
    pub(crate) report: Option<RawFd>,
    pub(crate) soft_files: Option<u64>,
    /// The text of --redis, with its password.
    pub(crate) redis_url: Option<String>,
    pub(crate) instances: Option<usize>,
    pub(crate) sessions: Option<PathBuf>,
    pub(crate) data: Option<PathBuf>,
}

impl Draft {
    /// Takes the value of an option that is a setting.
    pub(crate) fn set(&mut self, setting: Setting, value: &OsStr) -> Result<(), ValueError> {
        self.given.insert(setting);
        self.config.set(setting, value)
    }
}

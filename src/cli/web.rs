//! `leasehold web`: what `status` shows, as a page. And the same beside an instance, with `run --web-listen`.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::config::Config;
use crate::event::Event;
use crate::instance::exposition::Exposition;
use crate::lease::trouble::{Change, Trouble};
use crate::model::InstanceId;
use crate::net::http_server::{Hosts, Place};
use crate::thread::signals::stops_on_signals;
use crate::web::Web;

use crate::cli::task::STALE_AFTER;
use crate::cli::{FAILED, fail, say};

/// Shows the page until told to stop.
pub(crate) fn web(config: &Config, stale_after: Duration) -> ExitCode {
    match shown(config, stale_after) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(FAILED, &why),
    }
}

fn shown(config: &Config, stale_after: Duration) -> Result<(), String> {
    let Some(address) = config.web_listen else { return Ok(()) };
    // Before any thread exists.
    let (signalled, _hurried) =
        stops_on_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let bound = TcpListener::bind(address).and_then(|it| Ok((it.local_addr()?, it)));
    let (address, listener) = bound.map_err(|error| {
        format!("cannot listen on {address}: {error}; --listen takes another address")
    })?;
    let exposition = Arc::new(Exposition::of_roles(config.metrics_name()));
    let metrics = Box::new(move || Some(Arc::clone(&exposition)));
    let place = Place::Bound(listener);
    let _web = Web::start(config, place, hosts(config, address), stale_after, metrics)
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let _ = say(&format!("{} is shown at http://{address}/ until Ctrl-C\n", config.redis));
    let _ = signalled.receiver().recv();
    Ok(())
}

fn hosts(config: &Config, address: SocketAddr) -> Hosts {
    Hosts::of(address, &config.host_name, &config.web_hosts, "--web-hosts")
}

/// The metrics of an instance, once it has any.
pub(crate) type Told = Arc<OnceLock<Arc<Exposition>>>;

/// The page beside an instance, if its settings say so. A port that is taken keeps nobody from polling.
pub(crate) fn beside(config: &Config, me: &InstanceId, told: &Told) -> Result<Option<Web>, String> {
    let Some(address) = config.web_listen else { return Ok(None) };
    let (me, mut trouble) = (me.clone(), Trouble::default());
    let tell = move |error: Option<&std::io::Error>| {
        let why = error.map(|error| format!("cannot listen on {address}: {error}"));
        match trouble.update(why) {
            Some(Change::Failed(error)) => Event::WebFailed { error: &error }.log(&me),
            Some(Change::Resumed) => Event::WebResumed.log(&me),
            None => (),
        }
    };
    let place = Place::Awaited(address, Box::new(tell));
    let told = Arc::clone(told);
    let metrics = Box::new(move || told.get().cloned());
    let web = Web::start(config, place, hosts(config, address), STALE_AFTER, metrics);
    web.map(Some).map_err(|error| format!("cannot start a thread: {error}"))
}

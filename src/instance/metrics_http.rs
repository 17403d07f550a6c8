//! Serves the metrics of this process at `/metrics` to clients on this host that ask for it by a name of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::instance::exposition::Exposition;
use crate::instance::metrics_file::MetricsTrouble;
use crate::model::InstanceId;
use crate::net::http_server::{Hosts, HttpServer, Place, Request, Response, Site, Status};

/// The thread `metrics-http`, as long as this is kept.
pub struct MetricsHttp {
    _server: HttpServer,
}

impl MetricsHttp {
    /// Listens where `config` says, if it does.
    pub fn of(
        config: &Config,
        me: &InstanceId,
        exposition: &Arc<Exposition>,
    ) -> io::Result<Option<Self>> {
        let Some(address) = config.metrics_listen else { return Ok(None) };
        let mut trouble = MetricsTrouble::of(me, format!("cannot listen on {address}"));
        let place = Place::Awaited(address, Box::new(move |error| trouble.tell(error)));
        let more = &config.metrics_hosts;
        let hosts = Hosts::of(address, &config.host_name, more, "--metrics-hosts");
        let site = Metrics(Arc::clone(exposition));
        HttpServer::start("metrics-http", place, hosts, site).map(|it| Some(Self { _server: it }))
    }
}

struct Metrics(Arc<Exposition>);

impl Site for Metrics {
    fn knows(&self, path: &str) -> bool {
        path == "/metrics"
    }

    fn answer(&mut self, _: &Request, _: Duration) -> Option<Response> {
        Some(metrics(&self.0))
    }
}

/// What Prometheus is answered.
pub(crate) fn metrics(exposition: &Exposition) -> Response {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    Response::new(Status::OK, content_type, exposition.text().into_bytes())
}

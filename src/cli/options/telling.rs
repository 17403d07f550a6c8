//! What a process tells: metrics and log; and where its settings are.

use crate::cli::options::Opt;
use crate::cli::options::groups::{ALL, LEAD, LOGGING, RUN, WEB};
use crate::config::setting::Setting;
use crate::config::value::address;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "metrics-file",
        value: Some("PATH"),
        default: "",
        help: "Write metrics to this file every five seconds, in the Prometheus text format, for \
               node_exporter's textfile collector. The name must end in .prom. The file is \
               removed at a stop.",
        commands: &["run", "lead", "doctor"],
        set: |draft, value| draft.set(Setting::MetricsFile, value),
    },
    Opt {
        name: "metrics-name",
        value: Some("NAME"),
        default: "the name of --metrics-file without .prom, or leasehold",
        help: "The value of the label daemon of all metrics. It tells the processes of one host \
               apart.",
        commands: LEAD,
        set: |draft, value| draft.set(Setting::MetricsName, value),
    },
    Opt {
        name: "settings",
        value: Some("FILES"),
        default: "",
        help: "Files, separated by colons, with settings as lines of NAME=value, like an \
               EnvironmentFile of systemd. They are read at the start; run reads them again on \
               SIGHUP. Precedence, highest first: the command line, the last file, earlier files, \
               the environment. The files of the service work for every command: a command \
               ignores settings that are not its own.",
        commands: ALL,
        set: |draft, value| draft.set(Setting::Settings, value),
    },
    Opt {
        name: "metrics-listen",
        value: Some("ADDR"),
        default: "",
        help: "Also serve metrics at http://ADDR/metrics, such as 127.0.0.1:9464. ADDR must be a \
               loopback address. A request is answered only if its Host header is a name of this \
               host or a loopback address.",
        commands: LEAD,
        set: |draft, value| draft.set(Setting::MetricsListen, value),
    },
    Opt {
        name: "metrics-hosts",
        value: Some("NAMES"),
        default: "",
        help: "Further names, separated by commas, that --metrics-listen accepts in the Host \
               header: for a proxy that passes its own name on.",
        commands: LEAD,
        set: |draft, value| draft.set(Setting::MetricsHosts, value),
    },
    Opt {
        name: "metrics-endpoints",
        value: Some("N"),
        default: "0",
        help: "The metrics also have series for each of at most this many endpoints that this \
               instance owns, failing ones first. The most is 10,000.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::MetricsEndpoints, value),
    },
    Opt {
        name: "listen",
        value: Some("ADDR"),
        default: "127.0.0.1:9465",
        help: "Show the page at http://ADDR/. Port 0 takes a free port.",
        commands: &["web"],
        set: |draft, value| address(value).map(|it| draft.listen = Some(it)),
    },
    Opt {
        name: "web-listen",
        value: Some("ADDR"),
        default: "",
        help: "Also show the page of leasehold web at http://ADDR/, such as 127.0.0.1:9465. It needs \
               the rights that status needs.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::WebListen, value),
    },
    Opt {
        name: "web-hosts",
        value: Some("NAMES"),
        default: "",
        help: "Further names, separated by commas, that the page accepts in the Host header: for a \
               proxy that passes its own name on.",
        commands: WEB,
        set: |draft, value| draft.set(Setting::WebHosts, value),
    },
    Opt {
        name: "web-remote",
        value: None,
        default: "off",
        help: "Allow an address for the page that other hosts can reach. The page asks for no \
               password: let a proxy do that, or a firewall.",
        commands: WEB,
        set: |draft, value| draft.set(Setting::WebRemote, value),
    },
    Opt {
        name: "log-level",
        value: Some("LEVEL"),
        default: "info",
        help: "What to log on stderr: off, error, warn, info, debug or trace.",
        commands: LOGGING,
        set: |draft, value| draft.set(Setting::LogLevel, value),
    },
    Opt {
        name: "log-renewals",
        value: Some("HOW"),
        default: "auto",
        help: "How to log renewals: each logs every renewal at info; summary logs counts per \
               minute at info; auto logs the counts at info and every renewal at debug.",
        commands: RUN,
        set: |draft, value| draft.set(Setting::LogRenewals, value),
    },
];

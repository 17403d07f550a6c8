//! What a process tells: metrics and log; and where its settings are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use crate::cli::options::Opt;
use crate::cli::options::commands::{ALL, LEAD, LOGGING, RUN, WEB};
use crate::cli::options::values::{ValueError, address, hosts, path, showable, switch, text};
use crate::config::LogRenewals;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "metrics-file",
        value: Some("PATH"),
        default: "",
        help: "Write metrics to this file every five seconds, in the Prometheus text format, for \
               node_exporter's textfile collector. The name must end in .prom. The file is \
               removed at a stop.",
        commands: &["run", "lead", "doctor"],
        set: |draft, value| path(value).map(|it| draft.config.metrics_file = Some(it)),
    },
    Opt {
        name: "metrics-name",
        value: Some("NAME"),
        default: "the name of --metrics-file without .prom, or leasehold",
        help: "The value of the label daemon of all metrics. It tells the processes of one host \
               apart.",
        commands: LEAD,
        set: |draft, value| text(value).map(|it| draft.config.metrics_name = Some(it)),
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
        set: |draft, value| {
            let files = value.as_bytes().split(|c| *c == b':').map(OsStr::from_bytes);
            draft.config.settings = files.map(path).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Opt {
        name: "metrics-listen",
        value: Some("ADDR"),
        default: "",
        help: "Also serve metrics at http://ADDR/metrics, such as 127.0.0.1:9464. ADDR must be a \
               loopback address. A request is answered only if its Host header is a name of this \
               host or a loopback address.",
        commands: LEAD,
        set: |draft, value| {
            draft.config.metrics_listen = Some(address(value)?);
            Ok(())
        },
    },
    Opt {
        name: "metrics-hosts",
        value: Some("NAMES"),
        default: "",
        help: "Further names, separated by commas, that --metrics-listen accepts in the Host \
               header: for a proxy that passes its own name on.",
        commands: LEAD,
        set: |draft, value| {
            draft.config.metrics_hosts = hosts(value)?;
            Ok(())
        },
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
        set: |draft, value| address(value).map(|it| draft.config.web_listen = Some(it)),
    },
    Opt {
        name: "web-hosts",
        value: Some("NAMES"),
        default: "",
        help: "Further names, separated by commas, that the page accepts in the Host header: for a \
               proxy that passes its own name on.",
        commands: WEB,
        set: |draft, value| hosts(value).map(|it| draft.config.web_hosts = it),
    },
    Opt {
        name: "web-remote",
        value: None,
        default: "off",
        help: "Allow an address for the page that other hosts can reach. The page asks for no \
               password: let a proxy do that, or a firewall.",
        commands: WEB,
        set: |draft, value| switch(value).map(|it| draft.config.web_remote = it),
    },
    Opt {
        name: "log-level",
        value: Some("LEVEL"),
        default: "info",
        help: "What to log on stderr: off, error, warn, info, debug or trace.",
        commands: LOGGING,
        set: |draft, value| {
            draft.level_given = true;
            let level = text(value)?;
            let known = log::LevelFilter::from_str(&level);
            let choices = "off, error, warn, info, debug or trace";
            draft.config.log_level =
                known.map_err(|_| ValueError::Choice { shown: showable(&level), choices })?;
            Ok(())
        },
    },
    Opt {
        name: "log-renewals",
        value: Some("HOW"),
        default: "auto",
        help: "How to log renewals: each logs every renewal at info; summary logs counts per \
               minute at info; auto logs the counts at info and every renewal at debug.",
        commands: RUN,
        set: |draft, value| {
            let how = text(value)?;
            draft.config.log_renewals = match how.as_str() {
                "auto" => LogRenewals::Auto,
                "each" => LogRenewals::Each,
                "summary" => LogRenewals::Summary,
                _ => {
                    let choices = "auto, each or summary";
                    return Err(ValueError::Choice { shown: showable(&how), choices });
                }
            };
            Ok(())
        },
    },
];

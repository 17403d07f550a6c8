//! Which Redis, and how to get in.

use crate::cli::options::Opt;
use crate::cli::options::commands::ALL;
use crate::cli::options::values::{ValueError, path};
use crate::config::RedisUrl;

pub(super) static OPTIONS: &[Opt] = &[
    Opt {
        name: "redis",
        value: Some("URL"),
        default: "redis://127.0.0.1:6379/0",
        help: "The server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// over TLS, \
               unix:///PATH[?db=DB]; redis+sentinel://HOST:PORT,HOST:PORT/NAME[/DB] for the \
               master that sentinels name, redis+cluster://HOST:PORT,HOST:PORT for a cluster, \
               rediss+sentinel:// and rediss+cluster:// for these over TLS. Percent-encode \
               special characters in a password. Every user of the host can read a command line: \
               better put the password into a file.",
        commands: ALL,
        set: |draft, value| {
            let url = value.to_str().ok_or(ValueError::NotText)?;
            draft.config.redis = RedisUrl::parse(url).map_err(ValueError::Redis)?;
            draft.redis_url = Some(url.into());
            Ok(())
        },
    },
    Opt {
        name: "redis-password-file",
        value: Some("PATH"),
        default: "",
        help: "A file whose one line is the password. The file is read for every connection, so \
               it can change without a restart. The same holds for --redis-ca, --redis-cert and \
               --redis-key.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.password = Some(it)),
    },
    Opt {
        name: "redis-ca",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file of certificate authorities. The server's certificate \
               must be signed by one of them. Without this file, the public authorities are \
               trusted.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.ca = Some(it)),
    },
    Opt {
        name: "redis-cert",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file with the client certificate, for a server that asks for \
               one.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.cert = Some(it)),
    },
    Opt {
        name: "redis-key",
        value: Some("PATH"),
        default: "",
        help: "The PEM file with the private key of --redis-cert.",
        commands: ALL,
        set: |draft, value| path(value).map(|it| draft.config.access.key = Some(it)),
    },
];

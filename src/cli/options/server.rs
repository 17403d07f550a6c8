//! Which Redis, and how to get in.

use crate::cli::options::Opt;
use crate::cli::options::groups::ALL;
use crate::config::setting::Setting;

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
            draft.set(Setting::Redis, value)?;
            draft.redis_url = value.to_str().map(String::from);
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
        set: |draft, value| draft.set(Setting::RedisPasswordFile, value),
    },
    Opt {
        name: "redis-ca",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file of certificate authorities. The server's certificate \
               must be signed by one of them. Without this file, the public authorities are \
               trusted.",
        commands: ALL,
        set: |draft, value| draft.set(Setting::RedisCa, value),
    },
    Opt {
        name: "redis-cert",
        value: Some("PATH"),
        default: "",
        help: "With rediss://, a PEM file with the client certificate, for a server that asks for \
               one.",
        commands: ALL,
        set: |draft, value| draft.set(Setting::RedisCert, value),
    },
    Opt {
        name: "redis-key",
        value: Some("PATH"),
        default: "",
        help: "The PEM file with the private key of --redis-cert.",
        commands: ALL,
        set: |draft, value| draft.set(Setting::RedisKey, value),
    },
];

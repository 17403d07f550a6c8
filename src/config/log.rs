//! How much is logged?

/// How renewals are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogRenewals {
    /// One line for every renewal at `debug`, and one line with counts a minute at `info`.
    Auto,
    /// One line for every renewal at `info`.
    Each,
    /// One line with counts a minute at `info`.
    Summary,
}

impl LogRenewals {
    pub(super) const ALL: &[(&str, Self)] =
        &[("auto", Self::Auto), ("each", Self::Each), ("summary", Self::Summary)];
}

/// How much the program logs. A library user's logger decides for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Only errors.
    Error,
    /// Warnings, too.
    Warn,
    /// What happens.
    Info,
    /// Each renewal and each poll, too.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    pub(super) const CHOICES: &str = "off, error, warn, info, debug or trace";
    pub(super) const ALL: &[(&str, Self)] = &[
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

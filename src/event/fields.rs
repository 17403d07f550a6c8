//! How is a field of a log line written? As ` key=value`.

use std::fmt;

use crate::event::Event;

/// Writes ` key=value`, quoting a value that would not survive being split at spaces.
pub(super) struct Fields<'a, 'b>(pub(super) &'a mut fmt::Formatter<'b>);

impl Fields<'_, '_> {
    pub(super) fn put(
        &mut self,
        key: &str,
        value: &dyn fmt::Display,
    ) -> Result<&mut Self, fmt::Error> {
        let text = value.to_string();
        let plain = !text.is_empty()
            && text.bytes().all(|c| c.is_ascii_graphic() && c != b'"' && c != b'=');
        if plain {
            write!(self.0, " {key}={text}")?;
        } else {
            write!(self.0, " {key}={}", serde_json::Value::from(text))?;
        }
        Ok(self)
    }

    pub(super) fn maybe(
        &mut self,
        key: &str,
        value: &Option<impl fmt::Display>,
    ) -> Result<&mut Self, fmt::Error> {
        match value {
            Some(value) => self.put(key, value),
            None => Ok(self),
        }
    }

    pub(super) fn end(&mut self) {}
}

impl<'a> Event<'a> {
    /// Of an event that tells an error and nothing else.
    pub(super) fn error_alone(&self) -> Option<&&'a dyn fmt::Display> {
        match self {
            Self::StoreUnreachable { error }
            | Self::DaemonReloadRefused { error }
            | Self::HeartbeatFailed { error }
            | Self::PublishFailed { error }
            | Self::HistoryFailed { error }
            | Self::MetricsFailed { error }
            | Self::WebFailed { error }
            | Self::ManagerUnreachable { error } => Some(error),
            _ => None,
        }
    }
}

//! One line for many events of a kind: the same name and level, with a count instead of an endpoint.

use std::fmt;

use log::Level;

use crate::event::fields::Fields;
use crate::model::{EndpointId, InstanceId};

/// Events that were not logged by name above `debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The name of the events.
    pub name: &'static str,
    /// Their level.
    pub level: Level,
    /// The key and the value of what they have in common: `reason` or `error`.
    pub cause: Option<(&'static str, String)>,
    /// How many events were not logged by name since the last line of this kind.
    pub count: usize,
    /// The endpoints of these events, where one endpoint can have many of them.
    pub worst: Option<Worst>,
}

/// The endpoints that most events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worst {
    /// How many endpoints the events are about.
    pub endpoints: usize,
    /// The endpoints with the most events, and the number of their events. The worst comes first.
    pub first: Vec<(EndpointId, usize)>,
}

impl Repeated {
    /// Logs the line for `instance`.
    pub fn log(&self, instance: &InstanceId) {
        log::log!(self.level, "event={} instance={instance}{self}", self.name);
    }
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Fields(f);
        if let Some((key, value)) = &self.cause {
            line.put(key, value)?;
        }
        let Some(Worst { endpoints, first }) = &self.worst else {
            return line.put("others", &self.count).map(Fields::end);
        };
        let first: Vec<String> = first.iter().map(|it| format!("{}:{}", it.0, it.1)).collect();
        line.put("count", &self.count)?.put("endpoints", endpoints)?;
        line.put("worst", &first.join(",")).map(Fields::end)
    }
}

//! What is to be done with the stored sessions?

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::cli::args::Typed;
use crate::cli::options::{Draft, Spec};
use crate::cli::usage::{UsageError, nearest};
use crate::config::value::showable;
use crate::model::{Address, EndpointId};

/// What to do with the stored sessions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionsVerb {
    List,
    Add {
        id: Option<EndpointId>,
        /// Every field but the id.
        fields: Fields,
    },
    Set {
        id: EndpointId,
        fields: Fields,
    },
    Pause {
        ids: Vec<EndpointId>,
        /// `None`: until somebody resumes them.
        lasts: Option<Duration>,
    },
    Resume(Vec<EndpointId>),
    Remove(Vec<EndpointId>),
    Export,
    /// From a file, or from stdin.
    Import(Option<PathBuf>),
    Sync {
        /// `None`: stdin.
        from: Option<PathBuf>,
        dry_run: bool,
        prune: bool,
    },
}

/// Names and values, in the order in which they were given.
pub(crate) type Fields = Vec<(String, Value)>;

/// The words for the verbs.
pub(crate) const VERBS: &[&str] =
    &["list", "add", "set", "pause", "resume", "remove", "export", "import", "sync"];
/// The fields whose values are text: `name=123` is a name, and not a number.
const TEXTS: [&str; 6] = ["name", "address", "path", "method", "expectStatus", "expectBody"];

/// The verb of a command line, with what it is about.
pub(super) fn sessions(
    command: &'static Spec,
    draft: &Draft,
    typed: &Typed,
) -> Result<SessionsVerb, UsageError> {
    let Some((verb, words)) = typed.words.split_first() else {
        return Err(UsageError::NoVerb { command });
    };
    if !VERBS.contains(&verb.as_str()) {
        let nearest = nearest(verb, VERBS.iter().copied());
        return Err(UsageError::UnknownVerb { command, given: showable(verb), nearest });
    }
    let ids = || -> Result<Vec<EndpointId>, UsageError> {
        let ids: Vec<EndpointId> = words.iter().map(|it| id(it)).collect::<Result<_, _>>()?;
        if ids.is_empty() { Err(UsageError::NoId { command }) } else { Ok(ids) }
    };
    let file = |path: &String| (path != "-").then(|| PathBuf::from(path));
    match (verb.as_str(), words) {
        ("list", []) => Ok(SessionsVerb::List),
        ("export", []) => Ok(SessionsVerb::Export),
        ("add", [address, fields @ ..]) => add(draft, typed, address, fields),
        ("set", [first, fields @ ..]) if !fields.is_empty() => {
            let fields = fields.iter().map(|it| field(it)).collect::<Result<_, _>>()?;
            Ok(SessionsVerb::Set { id: id(first)?, fields })
        }
        ("set", _) => Err(UsageError::NoField { command }),
        ("pause", _) => Ok(SessionsVerb::Pause { ids: ids()?, lasts: draft.watch_for }),
        ("resume", _) => ids().map(SessionsVerb::Resume),
        ("remove", _) => ids().map(SessionsVerb::Remove),
        ("import", []) => Ok(SessionsVerb::Import(None)),
        ("import", [path]) => Ok(SessionsVerb::Import(file(path))),
        ("sync", [path]) => {
            let (dry_run, prune) = (draft.dry_run, draft.prune);
            Ok(SessionsVerb::Sync { from: file(path), dry_run, prune })
        }
        ("sync", []) => Err(UsageError::NoFile { command }),
        _ => Err(UsageError::NoVerb { command }),
    }
}

fn id(word: &str) -> Result<EndpointId, UsageError> {
    EndpointId::parse(word).map_err(|why| UsageError::Id { why })
}

/// `intervalMs=5000`. A value is JSON where it can be; a text needs no quotes.
fn field(word: &str) -> Result<(String, Value), UsageError> {
    let refused = |why: String| Err(UsageError::Field { why });
    let Some((name, text)) = word.split_once('=') else {
        return refused(format!("{word:?} is no field: write field=value"));
    };
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let value = match parsed {
        _ if name.is_empty() => return refused(format!("{word:?} names no field")),
        _ if name == "id" => {
            return refused("the id of a session is that of its key: add another session".into());
        }
        Some(it @ (Value::String(_) | Value::Null)) => it,
        Some(it) if !TEXTS.contains(&name) => it,
        _ => text.into(),
    };
    Ok((name.into(), value))
}

/// Durations of `run` stand in the service's settings too, so only those that were typed are the session's.
fn add(
    draft: &Draft,
    typed: &Typed,
    address: &str,
    words: &[String],
) -> Result<SessionsVerb, UsageError> {
    let id = draft.id.as_deref().map(EndpointId::parse).transpose();
    let id = id.map_err(|why| UsageError::Id { why })?;
    Address::parse(address, None).map_err(|why| UsageError::Address { why })?;
    let mut fields: Fields = vec![("address".into(), address.into())];
    let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
    for (option, name, value) in [
        ("interval", "intervalMs", draft.config.interval),
        ("timeout", "timeoutMs", draft.config.timeout),
    ] {
        if typed.value_of(option).is_some() {
            fields.push((name.into(), ms(value).into()));
        }
    }
    fields.extend(draft.fields.iter().map(|(name, text)| ((*name).into(), text.as_str().into())));
    if !draft.headers.is_empty() {
        let headers = draft.headers.iter().map(|it| (it.0.clone(), it.1.as_str().into()));
        fields.push(("headers".into(), headers.collect::<Map<String, Value>>().into()));
    }
    for word in words {
        fields.push(field(word)?);
    }
    Ok(SessionsVerb::Add { id, fields })
}

//! What is to be done with the stored sessions?

use std::path::PathBuf;

use crate::cli::args::Typed;
use crate::cli::options::{Draft, Spec};
use crate::cli::usage::UsageError;
use crate::model::{Address, EndpointId};

/// What to do with the stored sessions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionsVerb {
    List,
    Add {
        address: String,
        id: Option<EndpointId>,
        name: Option<String>,
    },
    Pause(Vec<EndpointId>),
    Resume(Vec<EndpointId>),
    Remove(Vec<EndpointId>),
    /// From a file, or from stdin.
    Import(Option<PathBuf>),
}

/// The verb of a command line, with what it is about.
pub(super) fn sessions(
    command: &'static Spec,
    draft: &Draft,
    typed: &Typed,
) -> Result<SessionsVerb, UsageError> {
    let Some((verb, words)) = typed.words.split_first() else {
        return Err(UsageError::NoVerb { command });
    };
    let ids = || -> Result<Vec<EndpointId>, UsageError> {
        let ids =
            words.iter().map(|it| EndpointId::parse(it).map_err(|why| UsageError::Id { why }));
        let ids: Vec<EndpointId> = ids.collect::<Result<_, _>>()?;
        if ids.is_empty() { Err(UsageError::NoId { command }) } else { Ok(ids) }
    };
    match (verb.as_str(), words) {
        ("list", []) => Ok(SessionsVerb::List),
        ("add", [address]) => {
            let id = draft.id.as_deref().map(EndpointId::parse).transpose();
            let id = id.map_err(|why| UsageError::Id { why })?;
            Address::parse(address, None).map_err(|why| UsageError::Address { why })?;
            Ok(SessionsVerb::Add { address: address.clone(), id, name: draft.name.clone() })
        }
        ("pause", _) => ids().map(SessionsVerb::Pause),
        ("resume", _) => ids().map(SessionsVerb::Resume),
        ("remove", _) => ids().map(SessionsVerb::Remove),
        ("import", []) => Ok(SessionsVerb::Import(None)),
        ("import", [path]) if path == "-" => Ok(SessionsVerb::Import(None)),
        ("import", [path]) => Ok(SessionsVerb::Import(Some(path.into()))),
        _ => Err(UsageError::NoVerb { command }),
    }
}

//! Whose certificate does a session believe, and how long before its end does it warn?

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::model::certificate::certificates_in;
use crate::model::check::wrong;
use crate::model::session::{Address, SessionError, flag, text};

/// The fields that [`TlsCheck::parse`] reads.
pub(in crate::model) const FIELDS: [&str; 3] = ["tlsCa", "tlsInsecure", "certWarnDays"];

const CA_MAX_BYTES: usize = 16_384;
const WARN_DAYS_MAX: u64 = 3_650;

/// What an `https` poll demands of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsCheck {
    /// The only authorities that are believed, in DER; without one, those of the instance.
    pub authorities: Option<Arc<[Vec<u8>]>>,
    /// Any certificate is believed, if the instance allows that.
    pub is_insecure: bool,
    /// The certificate deserves attention when it has fewer days left than this; `None`: as the instance says.
    pub warn_days: Option<u32>,
}

/// What a session without these fields demands.
pub(super) const USUAL: TlsCheck =
    TlsCheck { authorities: None, is_insecure: false, warn_days: None };

impl TlsCheck {
    pub(super) fn parse(
        fields: &Map<String, Value>,
        address: &Address,
    ) -> Result<Self, SessionError> {
        let is_there = |it: &&str| fields.get(*it).is_some_and(|it| !it.is_null());
        let Some(first) = FIELDS.into_iter().find(is_there) else { return Ok(USUAL) };
        if !matches!(address, Address::Http(url) if url.starts_with("https://")) {
            return Err(wrong(first, "is for https: this address has no certificate"));
        }
        let (authorities, is_insecure) = (authorities(fields)?, flag(fields, "tlsInsecure")?);
        if authorities.is_some() && is_insecure {
            let why =
                "contradicts tlsCa: with it every certificate is believed. Leave one of them out";
            return Err(wrong("tlsInsecure", why));
        }
        Ok(Self { authorities, is_insecure, warn_days: warn_days(fields)? })
    }
}

fn authorities(fields: &Map<String, Value>) -> Result<Option<Arc<[Vec<u8>]>>, SessionError> {
    let Some(pem) = text(fields, "tlsCa")? else { return Ok(None) };
    let found = Some(pem).filter(|it| it.len() <= CA_MAX_BYTES).and_then(certificates_in);
    let useless = || {
        let why = format!(
            "must be certificates in PEM, at most {CA_MAX_BYTES} bytes: their text, not a path"
        );
        wrong("tlsCa", why)
    };
    Ok(Some(found.ok_or_else(useless)?.into()))
}

fn warn_days(fields: &Map<String, Value>) -> Result<Option<u32>, SessionError> {
    let value = match fields.get("certWarnDays") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_u64().filter(|it| *it <= WARN_DAYS_MAX),
    };
    let days = value.and_then(|it| u32::try_from(it).ok());
    days.map(Some).ok_or(SessionError::OutOfRange("certWarnDays", 0, WARN_DAYS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Session;

    const CA: &str = include_str!("../../../tests/it/store/certificates/ca.pem");

    fn tls(address: &str, fields: Value) -> Result<TlsCheck, String> {
        let mut session = serde_json::json!({"id": "x", "address": address});
        session.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let session = Session::parse("x", session.to_string().as_bytes());
        session.map(|it| it.check().tls.clone()).map_err(|it| it.to_string())
    }

    #[test]
    fn a_session_says_whom_it_believes_and_when_it_warns() {
        use serde_json::json;
        let found = tls("https://h/", json!({"tlsCa": CA, "certWarnDays": 30})).unwrap();
        assert_eq!(found.authorities.unwrap().len(), 1);
        assert_eq!((found.is_insecure, found.warn_days), (false, Some(30)));
        assert!(tls("https://h/", json!({"tlsInsecure": true})).unwrap().is_insecure);
        assert_eq!(tls("https://h/", json!({"certWarnDays": 0})).unwrap().warn_days, Some(0));
        let nulls = json!({"tlsCa": null, "tlsInsecure": null, "certWarnDays": null});
        assert_eq!(tls("h:1", nulls.clone()), Ok(USUAL));
        assert_eq!(tls("tcp://h:1", nulls), Ok(USUAL));
    }

    #[test]
    fn a_demand_that_makes_no_sense_is_refused_in_a_sentence() {
        use serde_json::json;
        let long = format!("{CA}{}", " ".repeat(CA_MAX_BYTES));
        for (fields, why) in [
            (json!({"tlsCa": "/etc/ssl/ca.pem"}), "tlsCa must be certificates in PEM"),
            (json!({"tlsCa": ""}), "tlsCa must be certificates in PEM"),
            (json!({"tlsCa": long}), "at most 16384 bytes"),
            (json!({"tlsCa": 1}), "tlsCa must be a string"),
            (json!({"tlsCa": CA, "tlsInsecure": true}), "tlsInsecure contradicts tlsCa"),
            (json!({"tlsInsecure": "yes"}), "tlsInsecure must be true or false"),
            (json!({"certWarnDays": -1}), "certWarnDays must be a whole number from 0 to 3650"),
            (json!({"certWarnDays": 3_651}), "certWarnDays must be a whole number"),
            (json!({"certWarnDays": "14"}), "certWarnDays must be a whole number"),
        ] {
            let error = tls("https://h/", fields.clone()).unwrap_err();
            assert!(error.contains(why) && error.len() < 200, "{fields}: {error}");
        }
        for address in ["h:1", "http://h/"] {
            let error = tls(address, json!({"tlsInsecure": false})).unwrap_err();
            assert!(error.starts_with("tlsInsecure is for https"), "{address}: {error}");
        }
    }
}

//! Why was there no TLS with an endpoint? In words, which repeat what a stranger sent only where it is harmless.

use std::fmt;
use std::io;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error};

/// How many names of a certificate are repeated.
const NAMES_MAX: usize = 3;
const NAME_MAX_CHARS: usize = 80;

/// A sentence that was already found.
#[derive(Debug)]
pub(super) struct Told(pub(super) String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Told {}

/// The same error, with a sentence about TLS in place of that of rustls.
pub(super) fn in_words(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    match cause.map(sentence) {
        Some(sentence) => io::Error::new(error.kind(), sentence),
        None => error,
    }
}

fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => about_certificate(why),
        Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        ) => {
            "the endpoint refused: it may ask for a certificate of ours, and polls have none".into()
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) | Error::PeerIncompatible(_) => {
            "the endpoint speaks no version of TLS that is safe (1.2, 1.3)".into()
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the endpoint does not know this name of its".into()
        }
        Error::AlertReceived(alert) => format!("the endpoint refused ({alert:?})"),
        Error::InvalidMessage(_) => "the endpoint does not speak TLS there".into(),
        other => other.to_string(),
    }
}

fn about_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Other(it) => match it.0.downcast_ref::<Told>() {
            Some(told) => told.to_string(),
            None => format!("the certificate cannot be believed ({it})"),
        },
        CertificateError::UnknownIssuer => {
            "an unknown authority signed the certificate: name it in tlsCa or --poll-ca".into()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!("the certificate expired {}", ago(seconds(*not_after, *time)))
        }
        CertificateError::Expired => "the certificate has expired".into(),
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "the certificate is not valid yet, but {}",
                from_now(seconds(*time, *not_before))
            )
        }
        CertificateError::NotValidYet => "the certificate is not valid yet".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            about_name(expected, presented)
        }
        CertificateError::NotValidForName => "the certificate is for another name".into(),
        CertificateError::BadEncoding => "the certificate cannot be read".into(),
        CertificateError::Revoked => "the certificate was revoked".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for servers".into()
        }
        other => format!("the certificate cannot be believed ({other})"),
    }
}

fn about_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let expected = expected.to_str();
    if presented.is_empty() {
        return format!("the certificate has no subjectAltName, and so is not for {expected}");
    }
    let mut names: Vec<String> = presented.iter().take(NAMES_MAX).map(|it| name(it)).collect();
    if presented.len() > NAMES_MAX {
        names.push(format!("{} more", presented.len() - NAMES_MAX));
    }
    let last = names.pop().unwrap_or_default();
    let names = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
    format!("the certificate is for {names}, and not for {expected}")
}

/// `DnsName("a.example")` and `IpAddress(10.0.0.1)` without what is around the name.
fn name(presented: &str) -> String {
    let inner = presented.split_once('(').map_or(presented, |it| it.1);
    let inner = inner.trim_end_matches(')').trim_matches('"');
    let is_harmless = |it: char| it.is_ascii_alphanumeric() || "-._*:/".contains(it);
    inner.chars().take(NAME_MAX_CHARS).map(|it| if is_harmless(it) { it } else { '?' }).collect()
}

fn seconds(from: UnixTime, to: UnixTime) -> i64 {
    i64::try_from(to.as_secs().saturating_sub(from.as_secs())).unwrap_or(i64::MAX)
}

/// `3 days ago`.
pub(super) fn ago(seconds: i64) -> String {
    format!("{} ago", span(seconds))
}

fn from_now(seconds: i64) -> String {
    format!("only in {}", span(seconds))
}

/// In the largest unit of which there is one.
fn span(seconds: i64) -> String {
    let (count, unit) = match seconds {
        86_400.. => (seconds / 86_400, "day"),
        3_600.. => (seconds / 3_600, "hour"),
        60.. => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn every_certificate_that_is_not_believed_has_words() {
        let expired = |seconds: u64| CertificateError::ExpiredContext {
            time: at(1_000_000),
            not_after: at(1_000_000 - seconds),
        };
        let expected = ServerName::try_from("x.example").unwrap();
        let misnamed = |names: &[&str]| CertificateError::NotValidForNameContext {
            expected: expected.clone(),
            presented: names.iter().map(|it| (*it).to_owned()).collect(),
        };
        let not_yet = CertificateError::NotValidYetContext { time: at(0), not_before: at(7_200) };
        for (why, words) in [
            (expired(3 * 86_400 + 5), "the certificate expired 3 days ago"),
            (expired(86_400), "the certificate expired 1 day ago"),
            (expired(3_601), "the certificate expired 1 hour ago"),
            (expired(119), "the certificate expired 1 minute ago"),
            (expired(0), "the certificate expired 0 seconds ago"),
            (not_yet, "the certificate is not valid yet, but only in 2 hours"),
            (misnamed(&[]), "the certificate has no subjectAltName, and so is not for x.example"),
            (
                misnamed(&["DnsName(\"other.example\")"]),
                "the certificate is for other.example, and not for x.example",
            ),
            (
                misnamed(&["DnsName(\"*.a\")", "IpAddress(10.0.0.1)", "IpAddress(::1)", "x", "y"]),
                "the certificate is for *.a, 10.0.0.1, ::1 and 2 more, and not for x.example",
            ),
            (
                misnamed(&["DnsName(\"a\u{1b}[31m\nb \")"]),
                "the certificate is for a??31m?b?, and not for x.example",
            ),
            (
                CertificateError::UnknownIssuer,
                "an unknown authority signed the certificate: name it in tlsCa or --poll-ca",
            ),
        ] {
            assert_eq!(about_certificate(&why), words);
        }
        let long = misnamed(&[&format!("DnsName(\"{}\")", "a".repeat(5_000))]);
        assert!(about_certificate(&long).len() < 200);
    }
}

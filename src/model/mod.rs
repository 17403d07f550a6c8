//! The plain values everything else speaks of. No I/O, no time, no threads.

mod certificate;
mod check;
mod document;
mod hash;
mod id;
mod instance_info;
mod role;
mod sample;
mod session;
mod spelling;
mod timing;
mod verdict;

pub use certificate::{Certificate, CertificateLeft, certificates_in};
pub use check::{Check, Header, HeaderValue, Method, TlsCheck, USUAL_CHECK};
pub(crate) use check::{VALUE_MAX_BYTES, is_header_value};
pub use document::with_field;
pub use hash::spread;
pub(crate) use hash::{affinity, fnv1a};
pub use id::{EndpointId, Epoch, FenceToken, InstanceId, InvalidId, Tenure, Weight};
pub use instance_info::{Behind, InstanceInfo, PROTOCOL, PollingInfo};
pub use role::{InvalidRole, Role};
pub(crate) use sample::STDERR;
pub use sample::Sample;
pub(crate) use session::MOMENT_MS_MAX;
pub use session::{Address, SESSION_MAX_BYTES, Session, SessionError};
pub use spelling::{OddField, distance};
pub use timing::LeaseDuration;
pub use verdict::{Change, KnownVerdict, Thresholds, Verdict, VerdictState};

//! The plain values everything else speaks of. No I/O, no time, no threads.

mod id;
mod role;
mod sample;
mod session;
mod timing;

pub use id::{EndpointId, Epoch, FenceToken, InstanceId, InvalidId, Tenure, Weight};
pub use role::{InvalidRole, Role};
pub use sample::Sample;
pub use session::{Address, SESSION_MAX_BYTES, Session, SessionError};
pub use timing::Term;

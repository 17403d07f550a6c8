//! Elections on the in-memory electorate: what the two documents ask for, and what they do not.
//!
//! `tests/ELECTIONS.md` says which of these tests shows which row of which document.

mod documents;
mod duties;
mod events;
mod faults;
mod precedence;
mod stories;

//! The tests that notice mutants, as a small binary of their own: `scripts/mutants` builds it a hundred times.
//! Not part of `cargo test`: everything here is in `tests/it`, too.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

mod election {
    mod documents;
    mod duties;
    mod events;
    mod faults;
    mod precedence;
    mod stories;
}
mod fleet {
    mod discovery;
    mod looking;
    mod overlooked;
}
mod protocol {
    mod rules;
}
mod store {
    mod contract;
}

//! The program `leasehold`. It touches one name of the library, which has the command line inside: modules are private there.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold::command_line()
}

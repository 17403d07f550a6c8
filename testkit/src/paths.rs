//! Where the source tree and the program under test are.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The root of the source tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The path of the program `leasehold`. For a test or a benchmark it is the one that Cargo builds along with it; for a
/// lab it is the release binary, which `make` builds before it starts the lab.
///
/// # Panics
/// If the program is not there: the message names the command that builds it.
pub fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        let path = binary_beside(&std::env::current_exe().unwrap());
        let way_out = "`cargo build --bin leasehold` builds it, with --release for a lab";
        assert!(path.is_file(), "{} is missing: {way_out}", path.display());
        path.to_str().unwrap().to_owned()
    });
    &BINARY
}

/// Cargo puts tests and benchmarks into `target/PROFILE/deps`, programs into `target/PROFILE`. Labs have a profile of
/// their own, which unwinds; the program under test is the one that users get.
fn binary_beside(executable: &Path) -> PathBuf {
    let dir = executable.parent().unwrap();
    let profile = if dir.ends_with("deps") { dir.parent().unwrap() } else { dir };
    let profile =
        if profile.ends_with("lab") { profile.with_file_name("release") } else { profile.into() };
    profile.join("leasehold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_uses_the_program_of_its_profile_and_a_lab_the_release_binary() {
        let beside = |it: &str| binary_beside(Path::new(it)).display().to_string();
        assert_eq!(beside("/target/debug/deps/it-0123"), "/target/debug/leasehold");
        assert_eq!(beside("/target/release/deps/scale-0123"), "/target/release/leasehold");
        assert_eq!(beside("/target/lab/faults"), "/target/release/leasehold");
        assert_eq!(beside("/target/release/sim"), "/target/release/leasehold");
    }
}

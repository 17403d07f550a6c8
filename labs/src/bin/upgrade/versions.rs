//! Builds two revisions of leasehold from git, each from its own sources below `target/upgrade/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::paths::root;

/// The two versions that share a fleet.
static VERSIONS: OnceLock<[PathBuf; 2]> = OnceLock::new();

/// Which of the two versions an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Old,
    New,
}

impl Version {
    /// The path of this version's program.
    pub(crate) fn program(self) -> &'static Path {
        let [old, new] = VERSIONS.get().unwrap();
        if self == Self::Old { old } else { new }
    }
}

/// Builds the revisions that the variables BEFORE and AFTER name, unless an earlier run did.
pub(crate) fn build() -> Result<(), String> {
    let revision = |name: &str| {
        std::env::var(name).map_err(|_| format!("{name} names no revision: use `make upgrade`"))
    };
    let programs = [program_of(&revision("BEFORE")?)?, program_of(&revision("AFTER")?)?];
    let [old, new] = VERSIONS.get_or_init(|| programs);
    println!("old: {}\nnew: {}", old.display(), new.display());
    Ok(())
}

fn program_of(revision: &str) -> Result<PathBuf, String> {
    let commit = commit_of(revision)?;
    let dir = target_dir().join("upgrade");
    let program = dir.join(format!("leasehold-{commit}"));
    if program.is_file() {
        return Ok(program);
    }
    println!("building {revision} ({commit}) …");
    let sources = unpack(&commit, &dir)?;
    let build = dir.join("build");
    // The profile that users get spends minutes on link-time optimisation, which changes no behaviour.
    run(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--locked", "--release", "--quiet", "--bin", "leasehold"])
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_TARGET_DIR", &build)
        .current_dir(&sources))?;
    // Renamed at the end: a copy that was cut off is no program.
    let part = program.with_extension("part");
    let kept = fs::copy(build.join("release/leasehold"), &part);
    kept.and_then(|_| fs::rename(&part, &program)).map_err(|error| error.to_string())?;
    Ok(program)
}

/// The short name of the commit, or why this clone does not have it.
fn commit_of(revision: &str) -> Result<String, String> {
    let wanted = format!("{revision}^{{commit}}");
    let found = run(git().args(["rev-parse", "--verify", "--quiet", "--short=10", &wanted]));
    found.map(|it| it.trim().to_owned()).map_err(|_| {
        format!(
            "no revision {revision} here. A shallow clone lacks it until `git fetch --unshallow`, and a tree without .git \
             always does; `make upgrade BEFORE=REVISION` compares with another one"
        )
    })
}

/// Writes the sources of `commit` into a directory of their own.
fn unpack(commit: &str, dir: &Path) -> Result<PathBuf, String> {
    let sources = dir.join(format!("source-{commit}"));
    let archive = dir.join(format!("{commit}.tar"));
    fs::create_dir_all(&sources).map_err(|error| error.to_string())?;
    run(git().args(["archive", "--output"]).arg(&archive).arg(commit))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&sources))?;
    fs::remove_file(&archive).map_err(|error| error.to_string())?;
    Ok(sources)
}

/// Cargo's target directory: this program is in `target/lab/`.
fn target_dir() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    executable.parent().and_then(Path::parent).unwrap().to_owned()
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(root());
    git
}

/// Runs a command to its end, and returns its stdout or says how it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

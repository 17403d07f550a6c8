//! Can the program of `--poll-command` be started? Looked up as exec does; nothing is run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

/// Where exec looks when there is no PATH.
const USUAL_PATH: &str = "/bin:/usr/bin";
/// As much of a script's first line as the kernel reads.
const SHEBANG_BYTES: u64 = 256;

/// Whether `name` can be started by a process whose PATH is `path`; why not, in a sentence that begins with the name.
pub fn runnable(name: &str, path: Option<&OsStr>) -> Result<(), String> {
    // A URL with a password may have strayed here.
    let hidden = String::from("the program");
    let shown = if name.contains('@') { hidden } else { name.escape_debug().to_string() };
    if name.contains('/') {
        let sentence = |why: String| format!("{shown}: {why}");
        return startable(Path::new(name))
            .and_then(|()| interpreted(Path::new(name)))
            .map_err(sentence);
    }
    let path = path.unwrap_or(OsStr::new(USUAL_PATH));
    // Like exec: one that may not be run is passed over, and told only if there is no other.
    let mut refused = None;
    for file in std::env::split_paths(path).map(|it| it.join(name)) {
        let file =
            if file.parent() == Some(Path::new("")) { Path::new(".").join(file) } else { file };
        match startable(&file) {
            Ok(()) => {
                return interpreted(&file)
                    .map_err(|why| format!("{shown}: {}: {why}", file.display()));
            }
            Err(why) if file.exists() => {
                refused.get_or_insert(format!("{shown}: {}: {why}", file.display()));
            }
            Err(_) => (),
        }
    }
    let path = String::from_utf8_lossy(path.as_bytes());
    Err(refused.unwrap_or_else(|| format!("{shown}: no directory of PATH has it ({path})")))
}

fn startable(file: &Path) -> Result<(), String> {
    if file.is_dir() {
        return Err("it is a directory: name a program".into());
    }
    match access(file, AccessFlags::X_OK) {
        Ok(()) => Ok(()),
        Err(Errno::ENOENT | Errno::ENOTDIR) => {
            Err("there is no such file: give the path of a program".into())
        }
        Err(Errno::EACCES) => Err("it is not executable for this user: chmod +x may help".into()),
        Err(errno) => Err(errno.desc().into()),
    }
}

/// A script needs its interpreter, too: without the interpreter, exec fails with "no such file", as if the script were missing.
fn interpreted(script: &Path) -> Result<(), String> {
    let mut head = Vec::new();
    let read = File::open(script).and_then(|it| it.take(SHEBANG_BYTES).read_to_end(&mut head));
    let Some(rest) = read.ok().and_then(|_| head.strip_prefix(b"#!")) else { return Ok(()) };
    let line = rest.split(|it| *it == b'\n').next().unwrap_or_default();
    let mut words = line.split(|it| b" \t\r".contains(it)).filter(|it| !it.is_empty());
    let Some(interpreter) = words.next() else { return Ok(()) };
    let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
    startable(&interpreter).map_err(|why| {
        format!("its first line names {}, and that cannot be started: {why}", interpreter.display())
    })
}

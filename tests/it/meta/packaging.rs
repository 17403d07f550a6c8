//! What the pages and the units name is what `make install` and the package put there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use testkit::process::{SOON, TempDir, binary, eventually};
use testkit::redis::RedisServer;

/// Everything that `make install` puts under `dir`, by its path on a host.
fn installed(dir: &Path, prefix: &str) -> Vec<String> {
    let (target, stage) = (dir.join("target"), dir.join("stage").join(&prefix[1..]));
    fs::create_dir_all(target.join("release")).unwrap();
    let release = target.join("release/leasehold");
    if !release.exists() {
        symlink(binary(), &release).unwrap();
    }
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "install", &format!("PREFIX={prefix}")]);
    make.arg(format!("DESTDIR={}", stage.display()));
    make.arg(format!("CARGO_TARGET_DIR={}", target.display()));
    make.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("MAKEFLAGS");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut found = Vec::new();
    walk(&stage, &mut |path| {
        let path = path.strip_prefix(&stage).unwrap();
        found.push(format!("/{}", path.display()));
    });
    found
}

fn walk(dir: &Path, meet: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, meet) } else { meet(&path) }
    }
}

/// The blocks of the README and of the pages under docs/ that are to be pasted into a shell.
fn shell_blocks() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|it| it.unwrap().path());
    pages.extend(docs.filter(|it| it.extension().is_some_and(|it| it == "md")));
    let text: String = pages.iter().map(|it| fs::read_to_string(it).unwrap()).collect();
    let blocks = text.split("```sh\n").skip(1).map(|it| it.split("```").next().unwrap().to_owned());
    let blocks: Vec<String> = blocks.collect();
    assert!(blocks.len() > 10, "{blocks:?}");
    blocks
}

/// What a library user downloads. `make crate` also compiles it.
#[test]
fn the_package_for_the_registry_has_what_it_needs_and_nothing_of_ours() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--list", "--locked", "--allow-dirty", "-p", "leasehold"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).unwrap();
    let files: Vec<&str> = list.lines().collect();
    for needed in ["src/lib.rs", "src/store/redis/lua/acquire.lua", "docs/library.md", "LICENSE"] {
        assert!(files.contains(&needed), "{needed} is not in the package");
    }
    let ours = ["tests/", "testkit/", "labs/", "benches/", "scripts/", ".ci/", "examples/demo/"];
    let wrong: Vec<_> =
        files.iter().filter(|it| ours.iter().any(|top| it.starts_with(top))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // The front page of the registry and of the reference: a relative link leads nowhere there.
    let page = include_str!("../../../docs/library.md");
    let links = page.split("](").skip(1).map(|it| it.split(')').next().unwrap());
    let relative: Vec<&str> =
        links.filter(|it| !it.starts_with("https://") && !it.starts_with('#')).collect();
    assert!(relative.is_empty(), "{relative:?}");
}

/// `scripts/deb` installs with the prefix `/usr`, `make install` with `/usr/local`.
#[test]
fn every_path_of_ours_in_an_example_is_installed() {
    let dir = TempDir::new();
    let package = installed(dir.path(), "/usr");
    let source = installed(dir.path(), "/usr/local");
    let deb = include_str!("../../../scripts/deb");
    assert!(
        deb.contains("make --no-print-directory install") && deb.contains("PREFIX=/usr "),
        "{deb}"
    );
    assert!(package.contains(&"/usr/bin/leasehold".into()), "{package:?}");
    assert!(source.contains(&"/usr/local/bin/leasehold".into()), "{source:?}");
    let ours = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| c.is_whitespace() || "'\"`()=:,;".contains(c));
        let ours = words.filter(|it| it.starts_with("/usr") && it.contains("leasehold"));
        ours.map(String::from).collect()
    };
    for block in shell_blocks() {
        for path in ours(&block) {
            assert!(package.contains(&path), "the package does not install {path}:\n{block}");
        }
        let settings = block.split_whitespace().filter(|it| it.starts_with("/etc/leasehold/"));
        for path in settings {
            let known =
                ["leasehold.env", "leasehold.env.example"].map(|it| format!("/etc/leasehold/{it}"));
            assert!(known.iter().any(|it| it == path), "nobody reads {path}:\n{block}");
        }
    }
    for (files, prefix) in [(&package, "/usr"), (&source, "/usr/local")] {
        let stage = dir.path().join("stage").join(&prefix[1..]);
        for unit in files.iter().filter(|it| it.ends_with(".service")) {
            let text = fs::read_to_string(stage.join(&unit[1..])).unwrap();
            let command = if unit.contains("agent") { "agent" } else { "run" };
            let start = format!("ExecStart={prefix}/bin/leasehold {command} ");
            assert!(text.contains(&start), "{unit}:\n{text}");
            for path in ours(&text) {
                assert!(files.contains(&path), "{unit} names {path}");
            }
        }
    }
}

/// Pasted as it is, on a VM whose Redis is elsewhere.
#[test]
fn the_cron_example_finds_the_program_and_the_redis_of_the_service() {
    let block = shell_blocks().into_iter().find(|it| it.contains("/etc/cron.d/")).unwrap();
    let file = block.split("<<'EOF'\n").nth(1).unwrap().split("EOF").next().unwrap();
    assert!(!file.contains("LEASEHOLD_REDIS=") && !file.contains("127.0.0.1"), "{file}");
    let variable = |name: &str| {
        let line = file.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name} in {file}"))
    };
    let dirs: Vec<&str> = variable("PATH").split(':').collect();
    assert!(dirs.contains(&"/usr/bin") && dirs.contains(&"/usr/local/bin"), "{dirs:?}");
    assert_eq!(variable("LEASEHOLD_SETTINGS"), "/etc/leasehold/leasehold.env");
    // Minute, hour, day, month, weekday, user, and what cron hands to a shell.
    let line = file.lines().find(|it| it.contains(" root ")).unwrap();
    let command = line.split_once(" root ").unwrap().1;

    let (redis, dir) = (RedisServer::start(), TempDir::new());
    let settings = dir.path().join("leasehold.env");
    let lines = format!("LEASEHOLD_REDIS={}\nLEASEHOLD_NEW_FLEET=on\n", redis.url());
    fs::write(&settings, lines + "LEASEHOLD_WORKERS=3\n").unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(binary(), bin.join("leasehold")).unwrap();
    let told = dir.path().join("told");
    let logger = format!("#!/bin/sh\necho \"$@\" >>{}\n", told.display());
    fs::write(bin.join("logger"), logger).unwrap();
    fs::set_permissions(bin.join("logger"), fs::Permissions::from_mode(0o755)).unwrap();
    let start = || {
        let mut cron = Command::new("/bin/sh");
        cron.args(["-c", &format!("exec {command}")]);
        cron.env_clear().env("LEASEHOLD_SETTINGS", &settings);
        cron.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        cron.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let log = || fs::read_to_string(&told).unwrap_or_default();
    let first = start();
    eventually(SOON, "the job", log, || !log().is_empty());
    let second = start().wait_with_output().unwrap();
    assert!(second.status.success() && second.stderr.is_empty(), "{second:?}");
    kill(Pid::from_raw(first.id().cast_signed()), Signal::SIGTERM).unwrap();
    let first = first.wait_with_output().unwrap();
    assert_eq!(log(), "the nightly job\n", "once, of two VMs: {first:?}");
}

/// Issue 19: `run` raises its soft limit to the hard one, so the hard one has to be enough for the default of `--workers`,
/// each with a command.
#[test]
fn the_units_allow_as_many_open_files_as_the_workers_need() {
    for unit in ["systemd/leasehold.service", "systemd/leasehold@.service"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(unit)).unwrap();
        let limit = text.lines().find_map(|it| it.strip_prefix("LimitNOFILE=")).unwrap_or_default();
        let hard: u64 = limit.rsplit(':').next().and_then(|it| it.parse().ok()).unwrap_or(0);
        let default =
            leasehold::config::Config { poll_command: Some(vec![]), ..Default::default() };
        let needed = leasehold::inspect::doctor::files::needed(&default);
        assert!(hard >= needed, "{unit} has LimitNOFILE={limit}, and {needed} are needed");
    }
}

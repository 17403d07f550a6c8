//! `leasehold doctor`: is this Redis, and this host, set up so that the promises hold?

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use crate::config::Config;
use crate::inspect::doctor::{Finding, Grade, Report, examine, files, program, unit};
use crate::store::admin::acl::Purpose;
use nix::unistd::{AccessFlags, access};
use serde_json::json;

use crate::cli::table::{Paint, Painter, printable};
use crate::cli::{FAILED, limits, say};

/// How long `systemctl` may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks, for about as long as `watch`, and shows what was found.
pub(crate) fn doctor(config: &Config, purpose: Purpose, watch: Duration, json: bool) -> ExitCode {
    let mut report = examine(config, purpose, watch);
    report.findings.extend(config.runtime_dir.as_deref().map(runtime_dir));
    report.findings.extend(config.metrics_file.as_deref().map(metrics_file));
    report.findings.extend(poll_command(config));
    report.findings.push(files::judged(limits::hard_files(), config));
    report.findings.extend(unit::judged(systemctl().as_deref(), config));
    say(&if json {
        document(&report)
    } else {
        page(config, purpose, &report, Painter::for_stdout())
    });
    match report.findings.iter().any(|it| it.grade == Grade::Fail) {
        true => ExitCode::from(FAILED),
        false => ExitCode::SUCCESS,
    }
}

fn page(config: &Config, purpose: Purpose, report: &Report, painter: Painter) -> String {
    let width = report.findings.iter().map(|it| it.check.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Finding { check, grade, found, way_out } in &report.findings {
        let paint = match grade {
            Grade::Ok => Paint::Good,
            Grade::Warn => Paint::Watch,
            Grade::Fail => Paint::Bad,
        };
        let word = painter.paint(paint, &format!("{:4}", grade.word()));
        let arrow = if way_out.is_empty() { "" } else { " → " };
        let (found, way_out) = (printable(found), printable(way_out));
        out += &format!("{word}  {check:width$}  {found}{arrow}{way_out}\n");
    }
    // The rule of any other purpose is what was asked for.
    if purpose != Purpose::Daemon || report.missing.iter().any(|it| !it.is_unknown) {
        out += &format!("\n{}:\n{}\n", printable(&report.rule_is_for), report.rule);
    }
    if let Some(looking) = &report.looking {
        out += &format!("\nFor people who only look:\n{looking}\n");
    }
    let count = |grade: Grade| report.findings.iter().filter(|it| it.grade == grade).count();
    out + &format!(
        "\n{} checks: {} ok, {} to look at, {} failed. Nothing was changed; what had to be tried was \
         tried on keys {}:doctor:… that expire.\n",
        report.findings.len(),
        count(Grade::Ok),
        count(Grade::Warn),
        count(Grade::Fail),
        config.prefix
    )
}

/// Keys may be added, and are never renamed: other people's scripts rely on them.
fn document(report: &Report) -> String {
    let checks = report.findings.iter().map(|it| {
        let way_out = Some(&it.way_out).filter(|it| !it.is_empty());
        json!({
            "check": it.check,
            "grade": it.grade.word(),
            "found": it.found,
            "wayOut": way_out,
        })
    });
    let missing = report
        .missing
        .iter()
        .map(|it| json!({"right": it.right, "shownBy": it.shown_by, "isUnknown": it.is_unknown}));
    let document = json!({
        "healthy": report.findings.iter().all(|it| it.grade != Grade::Fail),
        "checks": checks.collect::<Vec<_>>(),
        "missingRights": missing.collect::<Vec<_>>(),
        "aclRule": report.rule,
        "aclRuleIsFor": report.rule_is_for,
        "aclRuleForLooking": report.looking,
    });
    format!("{document:#}\n")
}

fn runtime_dir(dir: &Path) -> Finding {
    let shown = dir.display();
    match access(dir, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Finding::ok("files", format!("{shown} is there for the instance's id")),
        Err(error) => Finding::fail(
            "files",
            format!(
                "--runtime-dir {shown} cannot be written: {}; run will not start",
                error.desc()
            ),
            "RuntimeDirectory=leasehold in the unit makes one; or look as the user that runs it",
        ),
    }
}

fn metrics_file(path: &Path) -> Finding {
    let dir = path.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new("."));
    let shown = dir.display();
    match access(dir, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Finding::ok("files", format!("{shown} is there for metrics")),
        Err(error) => Finding::warn(
            "files",
            format!("{shown} cannot be written: {}; there will be no metrics", error.desc()),
            "let the user that runs it write there, or look as that user",
        ),
    }
}

/// Whether the program is there, where one is named.
fn poll_command(config: &Config) -> Option<Finding> {
    let name = config.poll_command.as_ref()?.first()?;
    let found = program::runnable(name, std::env::var_os("PATH").as_deref());
    Some(match found {
        Ok(()) => Finding::ok("command", format!("--poll-command {name} can be started")),
        Err(why) => Finding::fail(
            "command",
            format!("--poll-command {why}; run will not start"),
            "name one that the service's user may run",
        ),
    })
}

/// What systemd knows of units of ours; `None` where there is no systemd, or none that answers.
fn systemctl() -> Option<String> {
    let mut command = Command::new("systemctl");
    command.args(["show", unit::PATTERN, "--no-pager", "--property", unit::PROPERTIES]);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let tick = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait().ok()? {
            break status;
        }
        if waited > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        let _ = crossbeam_channel::after(tick).recv();
        waited += tick;
    };
    // The few lines there are fit into a pipe.
    let output = child.wait_with_output().ok()?;
    status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

//! What must be true of the trace of a guest test: nothing is lost, nothing in it can't be, and babeltrace2 and Perfetto's own schema read what is made of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use trace::Point;
use traces::{check::Checker, ctf, file::Trace, perfetto, Filter};

/// Where a test's trace goes.
pub fn file(directory: &Path) -> PathBuf {
    directory.join("trace")
}

fn project() -> PathBuf {
    PathBuf::from(std::env::var_os("COB_PROJECT").unwrap_or_default())
}

/// Whether `./cob` could get Perfetto's schema from PyPI.
pub fn has_schema() -> bool {
    project().join(".cob/python/ready").exists()
}

/// Looks at the trace of a test.
pub fn verdict(directory: &Path) -> Result<(), String> {
    judge(directory).map_err(|error| format!("{error:#}")).and_then(|wrong| wrong.map_or(Ok(()), Err))
}

/// What is wrong, if anything is.
fn judge(directory: &Path) -> Result<Option<String>> {
    let trace = Trace::open(&file(directory))?;
    if trace.is_cut() || trace.lost() > 0 {
        return Ok(Some(format!("{} events lost, cut: {}", trace.lost(), trace.is_cut())));
    }
    let mut checker = Checker::of(&trace)?;
    let mut switches = 0;
    for event in trace.events()? {
        let event = event?;
        switches += u64::from(event.point == Point::SchedSwitch);
        checker.take(&event);
    }
    if let Some(first) = checker.found().first() {
        let (time, count) = (first.time as f64 / 1e9, checker.found().len());
        return Ok(Some(format!("{count} things that can't be, the first at {time:.9}: {}", first.what)));
    }
    let common = directory.join("ctf");
    ctf::write(&trace, Filter::default(), &common)?;
    let output = Command::new("babeltrace2").arg(&common).output()?;
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    let complaints = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if !output.status.success() || lines != checker.events || !complaints.is_empty() {
        return Ok(Some(format!("babeltrace2 finds {lines} of {} events: {complaints}", checker.events)));
    }
    if !has_schema() {
        return Ok(None);
    }
    let picture = directory.join("perfetto");
    perfetto::write(&trace, Filter::default(), &mut std::fs::File::create(&picture)?)?;
    let mut command = Command::new(project().join(".cob/python/bin/python"));
    command.arg(project().join("tests/trace/read_perfetto.py")).arg(&picture).arg(switches.to_string());
    let output = command.output()?;
    if !output.status.success() {
        return Ok(Some(format!("Perfetto's schema: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(None)
}

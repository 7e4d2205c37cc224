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

/// Marks of a program that counts them: it writes `mark ...` while that is recorded, `unseen ...` while it is not, and once `marks: N`.
#[derive(Default)]
struct Marks {
    found: u64,
    unseen: u64,
    said: Option<u64>,
}

impl Marks {
    fn take(&mut self, text: &str) {
        self.found += u64::from(text.starts_with("mark "));
        self.unseen += u64::from(text.starts_with("unseen "));
        self.said = text.strip_prefix("marks: ").and_then(|count| count.parse().ok()).or(self.said);
    }

    fn wrong(&self) -> Option<String> {
        let all = self.said.unwrap_or(self.found);
        (self.found != all || self.unseen != 0).then(|| {
            format!("{} of {all} marks, and {} that were written while tracing was off", self.found, self.unseen)
        })
    }
}

/// What is wrong, if anything is.
fn judge(directory: &Path) -> Result<Option<String>> {
    let trace = Trace::open(&file(directory))?;
    if trace.is_cut() || trace.lost() > 0 {
        return Ok(Some(format!("{} events lost, cut: {}", trace.lost(), trace.is_cut())));
    }
    let mut checker = Checker::of(&trace)?;
    let mut switches = 0;
    let mut marks = Marks::default();
    for event in trace.events()? {
        let event = event?;
        switches += u64::from(event.point == Point::SchedSwitch);
        if event.point == Point::Marker {
            marks.take(&event.text());
        }
        checker.take(&event);
    }
    if let Some(first) = checker.found().first() {
        let (time, count) = (first.time as f64 / 1e9, checker.found().len());
        return Ok(Some(format!("{count} things that can't be, the first at {time:.9}: {}", first.what)));
    }
    if let Some(wrong) = marks.wrong() {
        return Ok(Some(wrong));
    }
    let common = directory.join("ctf");
    let written = ctf::write(&trace, Filter::default(), &common)?;
    let output = Command::new("babeltrace2").arg(&common).output()?;
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    let complaints = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if !output.status.success() || lines != written || written < checker.events || !complaints.is_empty() {
        return Ok(Some(format!("babeltrace2 finds {lines} of {written} events: {complaints}")));
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

#[cfg(test)]
mod tests {
    use super::Marks;

    #[test]
    fn marks_that_are_missing_or_should_be_are_found() {
        let of = |texts: &[&str]| {
            let mut marks = Marks::default();
            texts.iter().for_each(|text| marks.take(text));
            marks.wrong().is_some()
        };
        assert!(!of(&["half way", "mark 1", "mark 2"]));
        assert!(!of(&["mark 1", "mark 2", "marks: 2"]));
        assert!(of(&["mark 1", "marks: 2"]));
        assert!(of(&["mark 1", "mark 1", "marks: 1"]));
        assert!(of(&["mark 1", "unseen 1", "marks: 1"]));
    }
}

//! What must be true of the profile of a guest test: the shares that the program has measured by the clock, and the chains of calls that it has made.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use profile::{Functions, Options, Table};
use trace::Point;
use traces::file::Trace;

use crate::prepare::kernel_image;

/// Percent of the time by which a share may be wrong.
const MOST_WRONG: f64 = 2.0;
/// Of a thousand samples, those whose chain may end too early: of a program that begins, ends, or has just been moved.
const MOST_CUT: u64 = 50;
/// The calls of the program's that are deepest.
const DEEPEST: [&str; 14] = [
    "fifth",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "deep",
    "main",
    "__libc_start_call_main",
];

/// Where a test's samples go.
pub fn file(directory: &Path) -> PathBuf {
    directory.join("samples")
}

/// Looks at the samples of a test.
pub fn verdict(directory: &Path) -> Result<(), String> {
    judge(directory).map_err(|error| format!("{error:#}")).and_then(|wrong| wrong.map_or(Ok(()), Err))
}

/// What is wrong, if anything is.
fn judge(directory: &Path) -> Result<Option<String>> {
    let path = file(directory);
    let trace = Trace::open(&path)?;
    let mut said = None;
    for event in trace.events()? {
        let event = event?;
        if event.point == Point::Marker && event.text().starts_with("shares ") {
            said = Some(event.text());
        }
    }
    let said = said.context("the program has not said its shares")?;
    let options = Options {
        kernel: kernel_image()?,
        root: PathBuf::from("/"),
        jit_maps: PathBuf::from("/tmp"),
        since: std::time::SystemTime::now(),
        process: Some("profile-shares.".to_string()),
    };
    let mut functions = Functions::default();
    let (mut table, mut deepest, mut from_kernel) = (Table::default(), false, false);
    let quality = profile::read(&trace, &options, &mut functions, |functions, chain| {
        table.take(chain);
        let names = || chain.frames.iter().map(|frame| functions.get(frame.function).name.as_str());
        deepest |= names().zip(DEEPEST).filter(|(is, wanted)| is == wanted).count() == DEEPEST.len();
        let is_of_kernel = chain.frames.first().is_some_and(|frame| functions.get(frame.function).is_of_kernel());
        from_kernel |= is_of_kernel && names().any(|name| name == "calls");
    })?;
    let shares: Vec<(&str, f64)> = said
        .split(' ')
        .filter_map(|word| word.split_once('='))
        .filter_map(|(name, share)| Some((name, share.parse().ok()?)))
        .collect();
    let found = |name: &str| table.share(&functions, name) * 100.0;
    let all: f64 = shares.iter().map(|(name, _)| found(name)).sum();
    for (name, share) in &shares {
        let found = found(name) * 100.0 / all.max(1.0);
        if (found - share).abs() > MOST_WRONG {
            let text = table.text(&functions, 20, None);
            return Ok(Some(format!("{name} has {found:.2} % of the profile, but by the clock {share:.2} %\n{text}")));
        }
    }
    let cut: u64 = quality.cut.iter().sum();
    let wrong = [
        (shares.len() == 4, format!("it has said {said:?}")),
        (quality.lost == 0, format!("{} records lost", quality.lost)),
        (quality.samples > 1000, format!("only {} samples", quality.samples)),
        (cut * 1000 <= quality.samples * MOST_CUT, format!("{:?} of {} chains are cut", quality.cut, quality.samples)),
        (deepest, format!("no chain is {DEEPEST:?}")),
        (from_kernel, "no chain goes from `calls` into the kernel".to_string()),
    ];
    Ok(wrong.into_iter().find(|(right, _)| !right).map(|(_, what)| what))
}

//! What a machine of 4 kernels costs while nothing happens in it: memory of each kernel (from `--stats`), and
//! CPU time of QEMU on the host. Measured twice: with a program of a few hundred bytes from an initramfs, where all
//! the memory is the kernels' own; and with this machine's /bin/sleep, whose files the primary then has in its cache.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::{machines::Setup, progress::Progress};
use crate::cli::{Accel, BenchOptions};
use crate::vm::with_parent_death_signal;

/// Until the boot is over.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURE: Duration = Duration::from_secs(10);
/// USER_HZ on x86-64 Linux.
const TICKS_PER_SECOND: f64 = 100.0;

pub fn run(options: &BenchOptions, project: &Path) -> Result<()> {
    let setup =
        Setup::with_init(&[project.join("tests/bench/idle.c")], &["-nostdlib", "-ffreestanding"], 4, options.accel)?;
    let sleep = ((SETTLE + MEASURE).as_secs() + 2).to_string();
    let archive = setup.initramfs.to_string_lossy();
    let progress = Progress::new();
    println!("idle machines of 4 kernels; their memory as they ended, and the host's CPU time over {MEASURE:?}:");
    for (what, words) in [
        ("a program of a few hundred bytes in an initramfs", vec!["--initramfs", &archive, "--", "/init", &sleep]),
        ("this machine's files, with those of /bin/sleep in the primary's cache", vec!["--", "/bin/sleep", &sleep]),
    ] {
        progress.say(&format!("idle: {what}"));
        let (percent, stats) = measure(options, &words)?;
        println!("{what}: {percent:.1} % of a host CPU\n{}", stats.trim_end());
    }
    Ok(())
}

/// CPU time of the machine while it idles, in percent, and what `--stats` says of it.
fn measure(options: &BenchOptions, words: &[&str]) -> Result<(f64, String)> {
    let accel = match options.accel {
        Accel::Auto => "auto",
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg",
    };
    let child = with_parent_death_signal("KILL", std::env::current_exe()?)
        .args(["run", "--stats", "--kernels", "4", "--accel", accel])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    thread::sleep(SETTLE);
    let before = machine_ticks(child.id());
    let start = Instant::now();
    thread::sleep(MEASURE);
    let (after, time) = (machine_ticks(child.id()), start.elapsed().as_secs_f64());
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("the idle machine ended with {}: {text}", output.status);
    }
    Ok(((after? - before?) / TICKS_PER_SECOND / time * 100.0, text))
}

/// CPU time of the QEMU below `cob run`.
fn machine_ticks(cob: u32) -> Result<f64> {
    let children = fs::read_to_string(format!("/proc/{cob}/task/{cob}/children"))?;
    let qemu = children.split_whitespace().next().context("cob run has no machine")?;
    let stat = fs::read_to_string(format!("/proc/{qemu}/stat"))?;
    // The name may hold spaces; the fields after it start with the third (man 5 proc).
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    Ok(field(14).context("utime")? + field(15).context("stime")?)
}

//! What a machine of 4 kernels costs while nothing happens in it: memory of each kernel (from `--stats`), and
//! CPU time of QEMU on the host.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cli::{Accel, BenchOptions};

/// Until the boot is over.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURE: Duration = Duration::from_secs(10);
/// USER_HZ on x86-64 Linux.
const TICKS_PER_SECOND: f64 = 100.0;

pub fn run(options: &BenchOptions) -> Result<()> {
    let sleep = (SETTLE + MEASURE).as_secs() + 2;
    let accel = match options.accel {
        Accel::Auto => "auto",
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg",
    };
    let child = Command::new(std::env::current_exe()?)
        .args(["run", "--stats", "--accel", accel, "--", "/bin/sleep", &sleep.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    thread::sleep(SETTLE);
    let before = machine_ticks(child.id());
    let start = Instant::now();
    thread::sleep(MEASURE);
    let (after, time) = (machine_ticks(child.id()), start.elapsed().as_secs_f64());
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("the idle machine ended with {}: {text}", output.status);
    }
    let percent = (after? - before?) / TICKS_PER_SECOND / time * 100.0;
    println!("an idle machine of 4 kernels uses {percent:.1} % of a host CPU; its kernels:\n{text}");
    Ok(())
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

//! From the start of QEMU to the first user program: Cob with 4 kernels against Debian's cloud kernel, in the
//! same machine with the same initramfs.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::machines::{Setup, System};
use super::{progress::Progress, sample::Sample};
use crate::cli::BenchOptions;

const MARKER: &str = "COB-BENCH-INIT";
const KERNELS: u16 = 4;

pub fn run(options: &BenchOptions, project: &Path) -> Result<()> {
    let sources = [project.join("tests/bench/hello.c")];
    let mut setup = Setup::with_init(&sources, &["-nostdlib", "-ffreestanding"], KERNELS, options.accel)?;
    // Short against what is measured.
    setup.interval = Duration::from_millis(1);
    let mut systems = vec![System::cob(KERNELS)?];
    match System::linux(project) {
        Ok(linux) => systems.push(linux),
        Err(error) => println!("Debian's kernel is skipped, so there is nothing to compare with: {error:#}"),
    }
    let mut times = vec![Sample::default(); systems.len()];
    let progress = Progress::new();
    // In turns, so that whatever else the machine does meets both.
    for round in 1..=options.runs {
        for (system, times) in systems.iter().zip(&mut times) {
            progress.say(&format!("boot: round {round} of {}: {}", options.runs, system.name));
            let (_, time) = setup.watch(system, "", |text| text.contains(MARKER).then_some(()))?;
            times.add(time.as_secs_f64());
        }
    }
    drop(progress);
    println!("boot: from the start of QEMU to the first program, {KERNELS} CPUs, {} runs in turns", options.runs);
    println!("  {:<26} {:>8} {:>8} {:>8}", "seconds", "median", "least", "most");
    for (system, times) in systems.iter().zip(&times) {
        println!("  {:<26} {:>8.3} {:>8.3} {:>8.3}", system.name, times.median(), times.least(), times.most());
    }
    if let [cob, linux] = &times[..] {
        println!("  Cob is {:.1} times as fast", linux.median() / cob.median());
    }
    Ok(())
}

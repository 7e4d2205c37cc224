//! `cob bench`: measurements. They print what was measured and on what. Nothing here passes or fails, but that a wrong result of a
//! workload, or one that does not end, makes the status 1.
//!
//! `boot`, `disk`, `idle`, `fabric`, `micro`, `npb`, `scale`, `streams`, `umt`: one measurement each. `table`, `plot`: how results are shown. `machines`: the systems that are
//! compared, in the same QEMU; `content`, `postgres`: what files they have.
//! The programs that run inside are in `tests/bench`.

mod boot;
mod content;
mod disk;
mod fabric;
mod idle;
mod machines;
mod micro;
mod npb;
mod plot;
mod postgres;
mod progress;
mod sample;
mod scale;
mod streams;
mod table;
mod umt;

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::cli::{Bench, BenchOptions};
use crate::test::project;
use crate::vm;

pub fn main(options: BenchOptions) -> Result<u8> {
    options.check_places()?;
    let project = project()?;
    let machine = this_machine(&options)?;
    println!("{machine}");
    let all = [
        Bench::Boot,
        Bench::Micro,
        Bench::Npb,
        Bench::Streams,
        Bench::Disk,
        Bench::Umt,
        Bench::Fabric,
        Bench::Scale,
        Bench::Idle,
    ];
    let wanted = match options.what {
        None | Some(Bench::All) => all.to_vec(),
        Some(one) => vec![one],
    };
    let mut status = 0;
    for bench in wanted {
        // One that can't run doesn't keep the others from it.
        match one(bench, &options, &project, &machine) {
            Ok(failed) => status |= failed,
            Err(error) if options.several() => {
                eprintln!("cob: bench {}: {error:#}", format!("{bench:?}").to_lowercase());
                status = 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(status)
}

fn one(bench: Bench, options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    match bench {
        Bench::Boot => boot::run(options, project)?,
        Bench::Micro => micro::run(options, project, machine)?,
        Bench::Npb => return npb::run(options, project, machine),
        Bench::Streams => return streams::run(options, project, machine),
        Bench::Disk => return disk::run(options, project, machine),
        Bench::Umt => return umt::run(options, project, machine),
        Bench::Fabric => fabric::run(project)?,
        Bench::Scale => return scale::run(options, project, machine),
        Bench::Idle => idle::run(options, project)?,
        Bench::All => {}
    }
    Ok(0)
}

fn this_machine(options: &BenchOptions) -> Result<String> {
    let accel = if vm::use_kvm(options.accel)? { "KVM" } else { "TCG" };
    Ok(format!("on {}, QEMU with {accel}", processors()?))
}

/// The CPUs of this machine.
pub fn processors() -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    Ok(format!("{cpus} x {}", model.trim_start_matches([' ', '\t', ':'])))
}

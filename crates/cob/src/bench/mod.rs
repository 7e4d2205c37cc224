//! `cob bench`: measurements. They print what was measured and on what. Nothing here passes or fails, but that a wrong result of a
//! workload, or one that does not end, makes the status 1.
//!
//! `boot`, `idle`, `fabric`, `micro`, `npb`, `scale`: one measurement each. `table`, `svg`: how results are shown. `machines`: the systems that are compared, in the same QEMU.
//! The programs that run inside are in `tests/bench`.

mod boot;
mod fabric;
mod idle;
mod machines;
mod micro;
mod npb;
mod progress;
mod sample;
mod scale;
mod svg;
mod table;

use std::fs;

use anyhow::Result;

use crate::cli::{Bench, BenchOptions};
use crate::test::project;
use crate::vm;

pub fn main(options: BenchOptions) -> Result<u8> {
    let wanted = |what| matches!(options.what, None | Some(Bench::All)) || options.what == Some(what);
    let project = project()?;
    let machine = this_machine(&options)?;
    println!("{machine}");
    if wanted(Bench::Boot) {
        boot::run(&options, &project)?;
    }
    if wanted(Bench::Idle) {
        idle::run(&options, &project)?;
    }
    if wanted(Bench::Fabric) {
        fabric::run(&project)?;
    }
    if wanted(Bench::Micro) {
        micro::run(&options, &project, &machine)?;
    }
    let mut status = 0;
    if wanted(Bench::Npb) {
        status |= npb::run(&options, &project, &machine)?;
    }
    if wanted(Bench::Scale) {
        status |= scale::run(&options, &project, &machine)?;
    }
    Ok(status)
}

fn this_machine(options: &BenchOptions) -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let accel = if vm::use_kvm(options.accel)? { "KVM" } else { "TCG" };
    Ok(format!("on {cpus} x {}, QEMU with {accel}", model.trim_start_matches([' ', '\t', ':'])))
}

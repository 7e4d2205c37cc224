//! `cob bench`: measurements. They print what was measured and on what; nothing here passes or fails.

mod boot;
mod idle;

use std::fs;

use anyhow::Result;

use crate::cli::{Bench, BenchOptions};
use crate::vm;

pub fn main(options: BenchOptions) -> Result<u8> {
    let wanted = |what| options.what.is_none_or(|only| only == what);
    println!("{}", this_machine(&options)?);
    if wanted(Bench::Boot) {
        boot::run(&options)?;
    }
    if wanted(Bench::Idle) {
        idle::run(&options)?;
    }
    Ok(0)
}

fn this_machine(options: &BenchOptions) -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let accel = if vm::use_kvm(options.accel)? { "KVM" } else { "TCG" };
    Ok(format!("on {cpus} x {}, QEMU with {accel}", model.trim_start_matches([' ', '\t', ':'])))
}

/// The middle one; of an even number the lower.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    #[test]
    fn medians() {
        assert_eq!(super::median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(super::median(vec![4.0, 1.0, 2.0, 3.0]), 2.0);
    }
}

//! `cob fuzz`: random programs of system calls (crate `fuzz`) in the machine, without privileges.
//!
//! A batch is a file of programs that one machine runs (`fuzz/executor.c`). Nothing may panic, hang or outlive SIGKILL,
//! and what init looks at afterwards (`--audit`) must be as before. A finding is made shorter: fewer programs, then
//! fewer calls; what is left is written as a short C program.
//!
//! - `machine`: one machine with one batch;
//! - `errnos`: the same programs here and on this machine's Linux.

mod errnos;
mod machine;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::fuzz::{c, describe::Calls, draw, program::Program, shrink};
use anyhow::{bail, Context, Result};

use crate::cli::FuzzOptions;
use errnos::Differences;
use machine::{Found, Fuzzer};

/// Programs of a batch, and calls of a program.
const BATCH: u64 = 100;
const LENGTH: usize = 80;
/// How often a candidate runs in the machine that tries it: what depends on timing needs several.
const REPEATS: usize = 10;

pub fn main(options: FuzzOptions) -> Result<u8> {
    let directory = crate::test::project()?.join("target/fuzz");
    fs::create_dir_all(&directory)?;
    if !rustix::process::geteuid().is_root() {
        bail!("cob fuzz needs root: the programs inside have no privileges, but who watches and kills them has");
    }
    let calls = Calls::new();
    let fuzzer = Fuzzer::new(&options, &directory)?;
    if let Some(file) = &options.replay {
        let programs = read(file)?;
        return Ok(match fuzzer.run(&programs, 1)? {
            Err(found) => report(&found.why),
            Ok(count) => {
                println!("{count} calls: nothing was found");
                0
            }
        });
    }
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let (mut made, mut differences) = (0, Differences::default());
    for batch in 0.. {
        if Instant::now() >= end || options.calls.is_some_and(|most| made >= most) {
            break;
        }
        let seeds = |index: u64| options.seed.wrapping_mul(1 << 32).wrapping_add(batch * BATCH + index);
        let seeds: Vec<u64> = (0..BATCH).map(seeds).collect();
        if options.errnos {
            made += differences.compare(&fuzzer, &calls, &seeds, LENGTH)? as u64;
            println!("{made} programs\n{differences}");
            continue;
        }
        let programs: Vec<Program> = seeds.iter().map(|seed| draw::draw(&calls, *seed, LENGTH)).collect();
        match fuzzer.run(&programs, 1)? {
            Ok(count) => made += count,
            Err(found) => {
                let place = directory.join(format!("found-{}-{batch}", options.seed));
                return conclude(&fuzzer, &calls, programs, found, &place, options.trials);
            }
        }
        println!("{made} calls");
    }
    if !options.errnos {
        println!("{made} calls: nothing was found");
    }
    Ok(0)
}

fn report(why: &str) -> u8 {
    println!("FOUND: {why}");
    1
}

/// Makes a finding shorter and says where it is.
fn conclude(
    fuzzer: &Fuzzer,
    calls: &Calls,
    programs: Vec<Program>,
    found: Found,
    place: &Path,
    trials: usize,
) -> Result<u8> {
    let why = found.why.clone();
    report(&why);
    let (whole, source) = (place.with_extension("bin"), place.with_extension("c"));
    write(&whole, &programs)?;
    println!("the batch: cob fuzz --replay {}", whole.display());
    let left = &mut trials.clone();
    let mut fails = |programs: &[Program]| -> bool {
        if *left == 0 || programs.is_empty() {
            return false;
        }
        *left -= 1;
        let times = (2 * REPEATS / programs.len()).clamp(1, REPEATS) as u32;
        // Another finding is not this one made shorter.
        matches!(fuzzer.run(programs, times), Ok(Err(other)) if other.kind == found.kind)
    };
    let programs = fewer(programs, found.last, &mut fails);
    write(&whole.with_extension("short.bin"), &programs)?;
    let shortest = match &programs[..] {
        [one] => shrink::shrink(one.clone(), trials, &mut |program| fails(std::slice::from_ref(program))),
        _ => {
            println!("{} programs together: --replay {}", programs.len(), whole.with_extension("short.bin").display());
            return Ok(1);
        }
    };
    write(&whole.with_extension("short.bin"), std::slice::from_ref(&shortest))?;
    fs::write(&source, c::write(calls, &shortest, &why))?;
    println!("{} calls are left: {}", shortest.steps.len(), source.display());
    Ok(1)
}

/// The fewest programs that still fail. The last that began is the first to be suspected.
fn fewer(programs: Vec<Program>, last: usize, fails: &mut dyn FnMut(&[Program]) -> bool) -> Vec<Program> {
    let begun = &programs[..programs.len().min(last + 1)];
    for count in [1, 4] {
        let suspects = &begun[begun.len().saturating_sub(count)..];
        if fails(suspects) {
            return suspects.to_vec();
        }
    }
    let mut kept = begun.to_vec();
    let mut chunk = kept.len().div_ceil(2);
    while kept.len() > 1 {
        let mut at = 0;
        while at < kept.len() {
            let mut without = kept.clone();
            without.drain(at..(at + chunk).min(kept.len()));
            match fails(&without) {
                true => kept = without,
                false => at += chunk,
            }
        }
        if chunk == 1 {
            break;
        }
        chunk = chunk.div_ceil(2);
    }
    kept
}

/// Programs in a file: the length of each before it.
fn write(path: &Path, programs: &[Program]) -> Result<()> {
    let mut bytes = Vec::new();
    for program in programs {
        let program = program.encode();
        bytes.extend((program.len() as u32).to_le_bytes());
        bytes.extend(program);
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn read(path: &PathBuf) -> Result<Vec<Program>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let (mut rest, mut programs) = (&bytes[..], Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (program, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize).context("cut off")?;
        programs.push(Program::decode(program).context("these are no programs")?);
        rest = tail;
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_programs_those_that_matter_are_left() {
        let calls = Calls::new();
        let programs: Vec<Program> = (0..20).map(|seed| draw::draw(&calls, seed, 10)).collect();
        let (one, other) = (programs[3].clone(), programs[11].clone());
        let mut fails = |some: &[Program]| some.contains(&one) && some.contains(&other);
        assert_eq!(fewer(programs, 15, &mut fails), [one.clone(), other.clone()]);
    }

    #[test]
    fn a_file_gives_back_its_programs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("programs");
        let programs: Vec<Program> = (0..50).map(|seed| draw::draw(&Calls::new(), seed, 80)).collect();
        write(&path, &programs).unwrap();
        assert_eq!(read(&path).unwrap(), programs);
    }
}

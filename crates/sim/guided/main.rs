//! Programs of system calls on simulated kernels, guided by the code that they reach: libFuzzer keeps what reached
//! something new and changes it (crate `fuzz`, mutate.rs). `cob sim guided` builds it with the counters that this needs, and
//! starts it; a program that fails is a file, which `cob sim --program FILE` shortens and writes in C.
//!
//! No `#![forbid(unsafe_code)]`: the macros of libfuzzer-sys make the C functions that libFuzzer calls.
#![no_main]

use fuzz::{mutate::mutate, program::Program};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use sim::calls::{self, CALLS};

fuzz_target!(|bytes: &[u8]| {
    let Some(program) = Program::decode(bytes) else { return };
    if let Err(error) = calls::run(&program, calls::seed_of(&program), calls::kernels_of(&program)) {
        panic!("{error}");
    }
});

fuzz_mutator!(|bytes: &mut [u8], size: usize, most: usize, seed: u32| {
    let program = Program::decode(&bytes[..size]).unwrap_or_default();
    let changed = mutate(&CALLS, &program, None, u64::from(seed)).encode();
    if changed.len() > most.min(bytes.len()) {
        return size;
    }
    bytes[..changed.len()].copy_from_slice(&changed);
    changed.len()
});

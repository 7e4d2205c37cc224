//! Random programs of system calls, for kernels that must not mind them.
//!
//! Problem: what nobody thought of. An unprivileged program may make any call with any argument, from several threads and
//! processes, while they move between kernels; no kernel may panic, hang or keep something for it afterwards.
//!
//! Idea (syzkaller, Vyukov 2015): every call has a description of what its arguments and structures mean
//! (`calls/*.txt`), so that a random program gets past the first check of each call; results of calls (descriptors, ids,
//! addresses) are arguments of later ones. A program is data: whoever runs it needs no compiler. Three do:
//!
//! | runs it | where |
//! |---|---|
//! | crate `sim` (`sim/src/calls`) | whole kernels in one process of the host: fast, repeatable, and guided by the code that it reaches |
//! | `executor.c` | an unprivileged program, in the machine or on this Linux |
//! | gcc, after [`c::write`] | a short C program, for whoever mends what was found |
//!
//! So this crate knows neither kernels nor machines, and depends on nothing of Cob; `cob fuzz` and `sim` depend on it.
//!
//! A program has up to [`program::ACTORS`] actors. Actor 0 is its first thread; the others begin as the children of calls
//! that make threads or processes (`Step::birth`), each once, so that no program grows. All do their steps in order and
//! beside each other.
//!
//! | file | subject |
//! |---|---|
//! | describe.rs | the descriptions, read from `calls/*.txt` |
//! | program.rs | programs, and the bytes they are stored as |
//! | draw.rs | a random program, call after call |
//! | values.rs | random arguments |
//! | mutate.rs | a program like another one |
//! | shrink.rs | a shorter one that still fails |
//! | c.rs | a program in C |
#![forbid(unsafe_code)]

pub mod c;
pub mod describe;
pub mod draw;
pub mod mutate;
pub mod program;
pub mod shrink;
mod values;

/// The program that runs programs, in C.
pub const EXECUTOR: &str = concat!(include_str!("../head.c"), include_str!("../executor.c"));

//! What becomes of the samples of `cob profile` on the host. A sample has the registers of a CPU and pieces of the kernel's and the program's stack; here they become chains
//! of calls with names, one after the other, in one pass over a trace.
//!
//! | file | subject |
//! |---|---|
//! | samples.rs | samples and the address spaces that they are of, out of a trace |
//! | image.rs | an ELF file: its symbols, and what the compiler says of its frames |
//! | space.rs | which file's code is where in an address space; unwinding there |
//! | stack.rs | pieces of stacks |
//! | jit.rs | code that a program has made itself, as perf reads it from /tmp/perf-PID.map |
//! | table.rs | shares of time by object and by function |
//! | flame.rs | a flame graph |
//! | script.rs | the text of `perf script` |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod flame;
mod image;
mod jit;
mod samples;
mod script;
mod space;
mod stack;
mod table;
#[cfg(test)]
mod tests;

pub use flame::Flame;
pub use samples::{read, Chain, Doing, Frame, Function, FunctionId, Functions, Options, Quality};
pub use script::Script;
pub use table::Table;

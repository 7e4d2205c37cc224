//! Processes, threads, signals and waiting on many kernels, compared with what they are on one.
//!
//! | file | subject |
//! |---|---|
//! | model.rs | what processes are, sequentially: as the man pages have it |
//! | explain.rs | is there an order of steps of the model that explains what was seen? |
//! | program.rs | random programs |
//! | shared.rs | maps of which a copy is cheap |

pub mod explain;
pub mod model;
pub mod program;
mod shared;

pub use program::Program;

//! What becomes of a trace on the host. The rings of all CPUs are copied into one file as they are ([`file`]); everything else is made from that file
//! afterwards, in one pass over its events in the order of time.
//!
//! | file | subject |
//! |---|---|
//! | file.rs | the file: written while the machine runs, read in the order of time |
//! | event.rs, text.rs | one event, and a line of text for it |
//! | names.rs | what threads, system calls and messages are called |
//! | states.rs | who was where, when, and waited for what: the stretches of time that everything below is made from |
//! | levels.rs | what goes up and down: requests of disks, ready threads of CPUs |
//! | filter.rs | which events are wanted |
//! | check.rs | what can't be in a trace |
//! | report.rs | figures, and a line for each CPU |
//! | ctf.rs | Common Trace Format 1.8 with the names of LTTng |
//! | perfetto.rs | Perfetto's protobuf |
//! | svg.rs | a picture of threads and CPUs over time |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod ctf;
mod event;
pub mod file;
mod filter;
pub mod levels;
mod names;
pub mod perfetto;
pub mod report;
mod states;
pub mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use event::{Event, Place};
pub use filter::Filter;
pub use names::{message_name, role_name, syscall_name, Names};
pub use states::{Doing, States, Stretch};

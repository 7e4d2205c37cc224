//! Disks that the host command serves itself, so that they can be slow, fail, and lose their power.
//!
//! QEMU opens the file of a usual disk. Where `--disk` has `delay`, `depth`, `errors` or `log`, QEMU is a client of the server here, by the NBD
//! protocol on a unix socket in the session's private directory; the server carries out the requests on the file.
//!
//! | file | what is in it |
//! |---|---|
//! | server.rs | one client from the first byte to the last; its threads |
//! | protocol.rs | the bytes of NBD |
//! | schedule.rs | when each request may be answered: `delay` and `depth` |
//! | faults.rs | which requests fail: `errors` |
//! | store.rs | the file, and the order in which it and the log change |
//! | log.rs | the log of all changes: its format, writer and reader |
//! | cut.rs | `cob disk cut`: what a disk could hold after a power cut. `cob disk log` |
//!
//! `cli` parses what these are told; `vm` starts a [`Server`] for each such disk before QEMU.

mod cut;
mod faults;
mod log;
mod protocol;
mod schedule;
mod server;
mod store;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

pub use faults::Fault;
pub use server::Server;

use crate::cli::{DiskCommand, DiskOptions};

/// How a served disk differs from its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// From the arrival of a request to its answer, at least.
    pub delay: Duration,
    /// So many requests are served at the same time; without it, all.
    pub depth: Option<NonZeroUsize>,
    pub errors: Vec<Fault>,
    /// The file that gets the log of all changes. What was in it is gone.
    pub log: Option<PathBuf>,
}

/// `cob disk`.
pub fn main(options: DiskOptions) -> Result<u8> {
    match options.command {
        DiskCommand::Cut(options) => println!("{}", cut::cut(&options)?),
        DiskCommand::Log { file } => print!("{}", cut::summary(&file)?),
    }
    Ok(0)
}

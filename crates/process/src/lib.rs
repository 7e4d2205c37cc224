//! Processes and threads over all kernels.
//!
//! A process has a *home*, the kernel it was created on, which knows its members and decides the order of
//! everything its threads share. Any other kernel that has run a thread of it holds a *replica*: the same
//! [`Process`] type without the home's part. A process that never left home sends no message.
//!
//! A thread is a future on the scheduler of the kernel it is on; what moves is its registers and its
//! [`ThreadState`](messages::process::ThreadState), and what stays behind is a *shadow* (the suspended future).
//!
//! Not here: the system call table and its structures (crate `linux`, which plugs in through [`Abi`]),
//! memory (crate `vm`), files themselves (crate `fs`).
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod account;
mod arch;
mod balance;
mod barrier;
mod births;
pub mod cgroup;
mod change;
mod death;
mod exit;
mod facts;
pub mod files;
mod fork;
mod group;
mod guests;
mod heir;
mod home;
pub mod image;
mod inject;
mod inspect;
mod limits;
pub mod load;
mod migrate;
mod monitor;
mod nodes;
mod orphan;
mod packing;
mod pairs;
pub mod placement;
mod pressure;
mod process;
mod replica;
mod reservation;
mod route;
mod run_state;
mod scheduling;
mod scratch;
mod service;
mod sharing;
mod stop;
mod system;
mod thread;
mod timer;
mod tracing;
mod usage;
mod users;
mod vdso;
mod wait;
mod watch;

pub use exit::Ended;
pub use files::Files;
pub use fork::CloneRequest;
pub use image::Program;
pub use inject::{FaultInjector, RandomPlacement};
pub use limits::taken_over;
pub use migrate::Absence;
pub use placement::{Candidate, Placement};
pub use pressure::NEVER as OOM_NEVER;
pub use process::{Flags, KnownSpace, Process};
pub use route::{may_signal, Target};
pub use system::{Abi, AtEnd, Counters, DescriptorTransfer, Parts, System};
pub use thread::{Context, Interrupted, Thread, RESET_ON_FORK};
pub use wait::WaitOptions;

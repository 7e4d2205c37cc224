//! The scheduler of one kernel: tasks, run queues per CPU, and timers.
//!
//! A task is a future: a user thread (which runs user code inside its poll) or a piece of kernel work.
//! Every CPU has a queue of its own, which it alone takes from unless it idles and helps a sibling of the
//! same kernel, with the classes of Linux in it: kernel work, deadlines (deadline.rs), real time (realtime.rs), fair (fair.rs). Nothing here knows other kernels; moving a thread to another kernel is crate `process`.
//!
//! [`Scheduler::turn`] is one step of a CPU's main loop; the loop itself, which also drains the fabric and
//! idles, is in crate `kernel` (and in `sim`, with one simulated CPU per kernel).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod class;
#[cfg(test)]
mod cpu_tests;
mod deadline;
#[cfg(test)]
mod deadline_tests;
mod deferred;
mod fair;
mod load;
mod local;
mod monitor;
#[cfg(test)]
mod monitor_tests;
mod monitored;
mod moving;
#[cfg(test)]
mod overload_tests;
mod patience;
mod queue;
mod realtime;
mod scheduler;
mod spawner;
mod sync;
mod talk;
mod task;
#[cfg(test)]
mod tests;
mod timer;
mod tracing;
mod turns;

pub use class::{Class, UNIT};
pub use deadline::Reservation;
pub use monitored::{Edge, Monitor, PendingWake};
pub use patience::Patience;
pub use scheduler::Scheduler;
pub use spawner::KernelTasks;
pub use talk::{Guest, Pair, Talk};
pub use task::TaskRef;
pub use timer::{Sleep, Timers};
pub use turns::{BURST_NS, MOST_DEBT_NS};

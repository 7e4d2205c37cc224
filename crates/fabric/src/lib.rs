//! Messages between kernels.
//!
//! Here live the lanes (rings in the receiver's memory), the doorbells, and on top of them the
//! [`Endpoint`]: remote calls, notices, multicast, handlers, flow control. What the messages are is in
//! crate `messages`; what they mean is in the services, which see nothing of this crate but the
//! endpoint. Large data does not travel here: it is lent as frames, whose numbers travel.
//!
//! From bottom to top:
//!
//! | file | what it does |
//! |---|---|
//! | lane.rs, doorbell.rs | shared memory; `unsafe`, model-checked with loom |
//! | port.rs, lane_port.rs | how an endpoint reaches the others; the simulator has its own `Port` |
//! | wire.rs, outbox.rs | headers, fragments, credits; why no lane being full can stop the machine |
//! | call.rs, handler.rs, drain.rs | callers, callees, delivery |
//! | endpoint.rs | what services use |
//! | local.rs | kernels within one process, for tests |
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod call;
mod doorbell;
mod drain;
mod endpoint;
mod handler;
mod lane;
mod lane_port;
pub mod local;
mod outbox;
mod port;
mod stats;
mod sync;
mod wire;

pub use call::{Answers, Call, CallError, Multicast};
pub use doorbell::Doorbell;
pub use endpoint::Endpoint;
pub use lane::{Full, Receiver, Sender, Slot, PAYLOAD};
pub use lane_port::{LanePort, Link};
pub use outbox::CREDITS;
pub use port::Port;
pub use stats::{Stats, TypeStats};

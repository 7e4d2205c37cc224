//! Messages between kernels.
//!
//! Here live the lanes (rings in the receiver's memory), the doorbells, and on top of them the
//! [`Endpoint`]: remote calls, notices, multicast, handlers, flow control. What the messages are is in
//! crate `messages`; what they mean is in the services, which see nothing of this crate but the
//! endpoint. Large data does not travel here: it is lent as frames, whose numbers travel.
//!
//! ```
//! # use fabric::{local, CallError, Endpoint};
//! # use machine::{BoxFuture, KernelId, Spawner};
//! # use messages::control::{Ping, Stop};
//! # use std::{future::Future, sync::Arc};
//! # struct Executor;
//! # impl Spawner for Executor { fn spawn(&self, _: BoxFuture<'static, ()>) { unreachable!() } }
//! async fn caller(fabric: &Endpoint, peer: KernelId) -> Result<(), CallError> {
//!     let echo = fabric.call(peer, Ping { payload: vec![1, 2] }).await?;
//!     assert_eq!(echo, [1, 2]);
//!     fabric.send(peer, Stop { status: 0 })?; // A notice: nobody answers.
//!     for (kernel, answer) in fabric.multicast(&fabric.others(), Ping { payload: vec![] }).await {
//!         println!("{kernel} is {}", if answer.is_ok() { "there" } else { "gone" });
//!     }
//!     Ok(())
//! }
//!
//! fn callee(fabric: &Endpoint) {
//!     fabric.on::<Ping, _, _>(|_from, ping| async move { ping.payload }); // May wait.
//!     fabric.on_sync::<Stop, _>(|from, stop| println!("{from} says stop with {}", stop.status));
//! }
//!
//! # let kernels: Vec<_> = local::ports(2, 64, |_| ()).into_iter().enumerate().map(|(id, port)| {
//! #     let kernel = Endpoint::new(KernelId(id as u16), 2, Box::new(port), Arc::new(Executor));
//! #     callee(&kernel);
//! #     (0..2).for_each(|peer| kernel.add_peer(KernelId(peer)));
//! #     kernel
//! # }).collect();
//! # let mut call = std::pin::pin!(caller(&kernels[0], KernelId(1)));
//! # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! # while call.as_mut().poll(&mut context).is_pending() {
//! kernels[0].drain(64); // Each kernel, at its entries and when idle.
//! kernels[1].drain(64);
//! # }
//! # assert_eq!(kernels[1].stats().messages_received(), 3);
//! ```
//!
//! From bottom to top:
//!
//! | file | what it does |
//! |---|---|
//! | lane.rs, doorbell.rs | shared memory; `unsafe`, model-checked with loom |
//! | port.rs, lane_port.rs | how an endpoint reaches the others; the simulator has its own `Port` |
//! | wire.rs, outbox.rs | headers, fragments, credits; why no lane being full can stop the machine |
//! | stall.rs | what has waited for seconds is reported |
//! | call.rs, handler.rs, drain.rs | callers, callees, delivery |
//! | endpoint.rs | what services use |
//! | local.rs | kernels within one process, for tests |
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate self as fabric;
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
mod stall;
mod stats;
mod sync;
mod wire;

#[cfg(all(test, not(loom)))]
mod races;

pub use call::{Answers, Call, CallError, Multicast};
pub use doorbell::Doorbell;
pub use endpoint::Endpoint;
pub use lane::{Full, Receiver, Sender, Slot, PAYLOAD};
pub use lane_port::{LanePort, Link};
pub use outbox::CREDITS;
pub use port::Port;
pub use stall::{Stall, StallState, Stalls, STALL_NS};
pub use stats::{Stats, TypeStats};
pub use wire::{describe, kind_of};

//! Kernels inside one process, connected by real lanes on the heap: for host tests of the services.

use crate::doorbell::Doorbell;
use crate::lane::{Receiver, Sender, Slot};
use crate::lane_port::{LanePort, Link};
use alloc::{boxed::Box, vec::Vec};
use core::ptr::NonNull;
use machine::KernelId;
use messages::Priority;

/// Both ends of a new lane of `slots` slots on the heap. The memory is never given back.
pub fn lane(slots: usize) -> (Sender, Receiver) {
    let memory: Box<[Slot]> = (0..slots).map(|_| Slot::new()).collect();
    let first = NonNull::from(Box::leak(memory)).cast::<Slot>();
    // SAFETY: leaked, so valid for ever; fresh; one sender and one receiver are made of it.
    unsafe { (Sender::attach(first, slots), Receiver::attach(first, slots)) }
}

/// A port of a machine of at most `kernels` kernels, connected with nobody. `interrupt` is called
/// when it would interrupt another.
pub fn port(kernels: usize, interrupt: impl Fn(KernelId) + Send + Sync + 'static) -> LanePort {
    LanePort::new(kernels, Box::leak(Box::new(Doorbell::new())), interrupt)
}

/// The ports of `kernels` kernels, all connected with each other.
pub fn ports(
    kernels: usize,
    slots: usize,
    interrupt: impl Fn(KernelId) + Clone + Send + Sync + 'static,
) -> Vec<LanePort> {
    let ports: Vec<LanePort> = (0..kernels).map(|_| port(kernels, interrupt.clone())).collect();
    for (a, port) in ports.iter().enumerate() {
        for (b, other) in ports[..a].iter().enumerate() {
            connect((KernelId(a as u16), port), (KernelId(b as u16), other), slots);
        }
    }
    ports
}

/// Connects two ports by new lanes of `slots` slots; also anew, when one kernel was started again.
pub fn connect(a: (KernelId, &LanePort), b: (KernelId, &LanePort), slots: usize) {
    let (to_a, from_b) = split(Priority::ALL.map(|_| lane(slots)));
    let (to_b, from_a) = split(Priority::ALL.map(|_| lane(slots)));
    a.1.connect(b.0, Link { inbound: from_b, outbound: to_b, doorbell: b.1.doorbell() });
    b.1.connect(a.0, Link { inbound: from_a, outbound: to_a, doorbell: a.1.doorbell() });
}

fn split(lanes: [(Sender, Receiver); 2]) -> ([Sender; 2], [Receiver; 2]) {
    let [(first, first_end), (second, second_end)] = lanes;
    ([first, second], [first_end, second_end])
}

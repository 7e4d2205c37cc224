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

/// The ports of `kernels` kernels, all connected with each other. `interrupt` is called when one
/// would interrupt another.
pub fn ports(
    kernels: usize,
    slots: usize,
    interrupt: impl Fn(KernelId) + Clone + Send + Sync + 'static,
) -> Vec<LanePort> {
    let doorbells: Vec<&'static Doorbell> =
        (0..kernels).map(|_| &*Box::leak(Box::new(Doorbell::new()))).collect();
    let ports: Vec<LanePort> =
        doorbells.iter().map(|own| LanePort::new(kernels, own, interrupt.clone())).collect();
    for a in 0..kernels {
        for b in 0..a {
            let (to_a, from_b) = split(Priority::ALL.map(|_| lane(slots)));
            let (to_b, from_a) = split(Priority::ALL.map(|_| lane(slots)));
            let link = |inbound, outbound, peer: usize| Link { inbound, outbound, doorbell: doorbells[peer] };
            ports[a].connect(KernelId(b as u16), link(from_b, to_b, b));
            ports[b].connect(KernelId(a as u16), link(from_a, to_a, a));
        }
    }
    ports
}

fn split(lanes: [(Sender, Receiver); 2]) -> ([Sender; 2], [Receiver; 2]) {
    let [(first, first_end), (second, second_end)] = lanes;
    ([first, second], [first_end, second_end])
}

//! The fabric's lanes on the real machine: where they lie, how two kernels come to use a pair of them,
//! also again after one of them was restarted.
//!
//! # Problem
//!
//! A lane lies in the receiver's memory, and both ends must begin with it empty. When a kernel is
//! booted again, its peers still hold a lane in which its predecessor stopped somewhere. The new one
//! must not send before the receiver has emptied the lane, and cannot ask by message.
//!
//! # Idea
//!
//! Every boot of a kernel has a number on the board (`boot_generation`), and for each ordered pair the board has one
//! word, written by the receiver: for which boot of the sender its lanes are ready, and where. A kernel
//! sends only if that is its own.
//!
//! ```text
//!   receiver P                             sender N, boot 2
//!                                          state Running; rings P
//!   sees boot 2 of N
//!   empties the lane for N
//!   lanes[P][N] = (2, address); rings N
//!                                          sees 2: maps the lane, sends
//! ```
//!
//! A CPU of P may at this very moment be receiving from the old lane, on behalf of nobody. So there
//! are two sets per sender, used by even and odd boots: the one that is emptied was given up a
//! whole boot generation of N ago. A set is made when it is first needed, and kept.
//!
//! On the sending side nobody writes to the dead N's memory any more once it is declared dead: what is sent is for a boot generation
//! of N, and who sends looks for it under the lock that the declaration takes (`fabric/src/outbox.rs`). Only then its lanes are unmapped.

use crate::kmap::{self, SharedRegion};
use crate::layout::DIRECT_BASE;
use crate::{board, instance, pages};
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::*;
use fabric::{Doorbell, LanePort, Link, Receiver, Sender, Slot};
use machine::{sync::Lock, Errno, KernelId, PAGE_SIZE};

const PRIORITIES: usize = 2;
const SETS: usize = 2;
/// Slots of a lane on a machine of few kernels: 8 KiB.
const SLOTS: usize = 128;
/// All incoming lanes of a kernel take at most this, however many kernels there are.
const MOST_BYTES: usize = 1 << 20;

/// The incoming lanes of this kernel, and what it knows of its peers.
pub struct Lanes {
    shape: Shape,
    peers: Lock<Vec<Peer>>,
}

#[derive(Clone, Copy)]
struct Shape {
    slots: usize,
}

#[derive(Default)]
struct Peer {
    /// The boot of the peer that our lane is ready for, and that we send to; 0: none.
    ready_for: u32,
    connected: u32,
    /// Physical addresses of our lanes for its even and odd boots; 0: not made yet.
    incoming: [u64; SETS],
    outgoing: Option<SharedRegion>,
}

impl Shape {
    fn of(kernels: usize) -> Shape {
        let each = MOST_BYTES / kernels.next_power_of_two() / (SETS * PRIORITIES * size_of::<Slot>());
        // A page per set at least, so that a sender maps nothing but its own lanes.
        Shape { slots: each.clamp(PAGE_SIZE / PRIORITIES / size_of::<Slot>(), SLOTS) }
    }

    fn lane(self) -> usize {
        self.slots * size_of::<Slot>()
    }

    fn set(self) -> usize {
        PRIORITIES * self.lane()
    }

    /// A set of lanes as both ends want it to begin with; made if it is not there yet. None: no memory.
    fn empty(self, set: &mut u64) -> Option<u64> {
        if *set == 0 {
            *set = pages::alloc_run((self.set() / PAGE_SIZE).trailing_zeros() as usize)?;
        }
        // SAFETY: our own lanes; this set was last used two boots of the sender ago, and its present
        // boot doesn't use it before we say that it is ready.
        unsafe { core::ptr::write_bytes((DIRECT_BASE + *set) as *mut u8, 0, self.set()) };
        Some(*set)
    }
}

/// Bytes of the lanes from one kernel to another.
pub fn bytes() -> usize {
    Shape::of(crate::plan().kernels.len()).set()
}

fn set_of(boot: u32) -> usize {
    boot as usize % SETS
}

impl Lanes {
    /// Says that this kernel is running. Once.
    pub fn open() -> Lanes {
        let kernels = crate::plan().kernels.len();
        board::entry(crate::kernel()).set_state(board::State::Running);
        Lanes { shape: Shape::of(kernels), peers: Lock::new((0..kernels).map(|_| Peer::default()).collect()) }
    }

    /// The port to build an endpoint on. No peer is connected yet.
    pub fn port(&self) -> LanePort {
        LanePort::new(crate::plan().kernels.len(), doorbell(crate::kernel()), instance::ring_doorbell)
    }

    /// Looks on the board who has come (or come back) and connects whom it can; gives the kernels that
    /// messages may now be sent to. Call it after `open`, and whenever a doorbell comes while
    /// [`Lanes::incomplete`]: the other side takes part.
    pub fn connect(&self, port: &LanePort) -> Vec<KernelId> {
        let me = crate::kernel();
        let my_boot = board::entry(me).lifecycle().boot_generation.load(Relaxed);
        let mut new = Vec::new();
        for (index, peer) in self.peers.lock().iter_mut().enumerate() {
            let kernel = KernelId(index as u16);
            let entry = board::entry(kernel);
            if kernel == me || entry.state() != board::State::Running {
                continue;
            }
            let boot = entry.lifecycle().boot_generation.load(Relaxed);
            if peer.ready_for != boot {
                // Without memory it is tried again at the next doorbell.
                let Some(incoming) = self.shape.empty(&mut peer.incoming[set_of(boot)]) else { continue };
                peer.ready_for = boot;
                board::set_lanes(me, kernel, boot, incoming);
                crate::ring_doorbell(kernel);
            }
            // If it was connected in an earlier boot generation, that one's death comes first (`lost`).
            if peer.connected == 0 && board::lanes_for(kernel, me, my_boot).is_some() {
                let Ok(region) = map_outgoing(kernel) else { continue };
                let outbound = region.pointer();
                peer.outgoing = Some(region);
                peer.connected = boot;
                port.connect(kernel, self.link(kernel, peer.incoming[set_of(boot)], outbound));
                new.push(kernel);
            }
        }
        new
    }

    /// Whether some running kernel is not connected yet. Reads words that change only when kernels come
    /// and go.
    pub fn incomplete(&self) -> bool {
        let me = crate::kernel();
        self.peers.lock().iter().enumerate().any(|(index, peer)| {
            let kernel = KernelId(index as u16);
            let entry = board::entry(kernel);
            let running = entry.state() == board::State::Running;
            kernel != me && running && peer.connected != entry.lifecycle().boot_generation.load(Relaxed)
        })
    }

    /// Kernels that were connected and have died since, even if they live again. As cheap as
    /// [`Lanes::incomplete`].
    pub fn lost(&self) -> Vec<KernelId> {
        let mut lost = Vec::new();
        for (index, peer) in self.peers.lock().iter().enumerate().filter(|(_, peer)| peer.connected != 0) {
            let entry = board::entry(KernelId(index as u16));
            if entry.state() != board::State::Running
                || entry.lifecycle().boot_generation.load(Relaxed) != peer.connected
            {
                lost.push(KernelId(index as u16));
            }
        }
        lost
    }

    /// `kernel` was declared dead: its memory is somebody else's business from now on.
    pub fn disconnect(&self, kernel: KernelId) {
        let old = self.peers.lock().get_mut(kernel.index()).and_then(|peer| {
            peer.connected = 0;
            peer.outgoing.take()
        });
        drop(old);
    }

    /// Frames of the lanes made so far. They never go back: a set is there for its sender's next boot but one.
    pub fn frames(&self) -> u64 {
        let sets = self.peers.lock().iter().flat_map(|peer| peer.incoming).filter(|set| *set != 0).count();
        (sets * self.shape.set() / PAGE_SIZE) as u64
    }

    fn link(&self, peer: KernelId, incoming: u64, outbound: NonNull<u8>) -> Link {
        let slots = self.shape.slots;
        let inbound = NonNull::new((DIRECT_BASE + incoming) as *mut Slot).expect("the direct map isn't at 0");
        let outbound = outbound.cast::<Slot>();
        // SAFETY: both sets were zero when made ready, and each is attached once per boot of its sender. The incoming one lives
        // as long as this kernel, and nothing is sent to a peer after its death was declared, when the outgoing one is unmapped.
        unsafe {
            Link {
                inbound: [0, 1].map(|priority| Receiver::attach(inbound.add(priority * slots), slots)),
                outbound: [0, 1].map(|priority| Sender::attach(outbound.add(priority * slots), slots)),
                doorbell: doorbell(peer),
            }
        }
    }
}

fn doorbell(kernel: KernelId) -> &'static Doorbell {
    &board::entry(kernel).doorbell
}

/// Maps the lanes that `to` keeps for this boot of ours.
fn map_outgoing(to: KernelId) -> Result<SharedRegion, Errno> {
    let block = kmap::lanes_for_us(to).ok_or(Errno::ENOTCONN)?;
    kmap::map_shared(block.start, block.end - block.start)
}

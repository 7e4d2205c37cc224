//! The board: the one set of pages that all kernels share. Everything on it is an atomic with one
//! writer, or taken by compare-exchange; whoever reads it must expect the writer to be dead.
//!
//! | at | what | written by |
//! |---|---|---|
//! | 0 | clock, locks | the primary at boot; lock holders |
//! | 0x1000 | the plan, serialised | the primary at boot |
//! | 0x30000 | one entry per kernel | that kernel, and the one that boots it |
//! | 0x4f000 | where each kernel's trace rings are listed, for the host | that kernel |
//! | 0x50000 | for which boot of a sender a receiver's lanes are ready, and where | the receiver |

use crate::arch::memory_map::BOARD_PHYS;
use crate::layout::{BOARD_BYTES, BOARD_VIRT};
use crate::plan::Plan;
use alloc::{format, string::String};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use fabric::Doorbell;
use machine::KernelId;

const PLAN_AT: u64 = 0x1000;
const ENTRIES_AT: u64 = 0x30000;
const TRACES_AT: u64 = 0x4f000;
const LANES_AT: u64 = 0x50000;

/// Kernels the board has room for: the words per pair are the tightest.
pub const MOST_KERNELS: usize = 299;
const _: () = assert!(MOST_KERNELS * MOST_KERNELS * 8 <= (BOARD_BYTES - LANES_AT) as usize);
const _: () = assert!(MOST_KERNELS * core::mem::size_of::<Entry>() <= (TRACES_AT - ENTRIES_AT) as usize);
const _: () = assert!(MOST_KERNELS * 8 <= (LANES_AT - TRACES_AT) as usize);
const _: () = assert!(BOARD_PHYS + TRACES_AT == trace::DIRECTORIES_PHYS);

/// A cache line of its own, so that a writer disturbs only those who read this word.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

#[repr(C)]
pub struct Header {
    /// Id + 1 of the kernel that uses the trampoline; 0: free.
    pub trampoline: Line<AtomicU32>,
    /// Id + 1 of the kernel that prints; 0: free.
    pub console: Line<AtomicU32>,
    /// The cycle counter at machine start, and nanoseconds per tick as a 32.32 fraction.
    pub counter_base: AtomicU64,
    pub counter_rate: AtomicU64,
    /// Ticks per nanosecond of a timer that counts at a rate of its own, as a 32.32 fraction.
    pub timer_rate: AtomicU64,
    plan_bytes: AtomicU64,
}

/// Where a kernel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Not started, or stopped on purpose.
    Absent = 0,
    /// Somebody is booting it.
    Starting = 1,
    /// Runs its own code; the trampoline is free again.
    Up = 2,
    /// Its lanes are on the board.
    Running = 3,
    /// Panicked, or was declared dead.
    Dead = 4,
}

impl State {
    fn from(value: u32) -> State {
        match value {
            1 => State::Starting,
            2 => State::Up,
            3 => State::Running,
            4 => State::Dead,
            _ => State::Absent,
        }
    }
}

#[repr(C)]
pub struct Entry {
    lifecycle: Line<Lifecycle>,
    /// Read by every sender, written by the receiver when it starts or stops to look at its lanes.
    pub doorbell: Doorbell,
    pub pulse: Line<Pulse>,
    pub watch: Line<Watch>,
}

#[repr(C)]
pub struct Lifecycle {
    state: AtomicU32,
    /// How often it was started.
    pub boot_generation: AtomicU32,
    /// Hardware id of the CPU that takes doorbells.
    pub doorbell: AtomicU32,
}

/// Written often by its own kernel, read now and then by the others.
#[repr(C)]
pub struct Pulse {
    pub heartbeat: AtomicU64,
    /// In 1024ths of a thread of ordinary priority.
    pub load: AtomicU32,
}

/// Written only when a kernel is suspected (heartbeat.rs).
#[repr(C)]
pub struct Watch {
    /// Probes that were sent to the kernel, and how many had been when it last answered.
    pub probed: AtomicU32,
    pub answered: AtomicU32,
    /// The boot generation in which another kernel found that it hangs; 0: none.
    pub condemned: AtomicU32,
}

impl Entry {
    pub fn state(&self) -> State {
        // Pairs with the Release in `set_state`: who sees Running sees the lanes.
        State::from(self.lifecycle.0.state.load(Acquire))
    }

    pub fn set_state(&self, state: State) {
        self.lifecycle.0.state.store(state as u32, Release);
    }

    /// One booter wins.
    pub fn claim_boot(&self) -> bool {
        let claim =
            |from: State| self.lifecycle.0.state.compare_exchange(from as u32, State::Starting as u32, AcqRel, Acquire);
        claim(State::Absent).or_else(|_| claim(State::Dead)).is_ok()
    }

    /// Back to "not polling, not rung": nobody else writes it while the kernel doesn't run, except a
    /// late sender that sets the rung bit; the first poll clears that.
    pub fn reset_doorbell(&self) {
        // SAFETY: zeroed memory is a valid doorbell (it is one atomic word), and it is written whole.
        unsafe { (&raw const self.doorbell).cast::<AtomicU32>().as_ref().expect("not null").store(0, SeqCst) }
    }

    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle.0
    }
}

pub fn header() -> &'static Header {
    // SAFETY: the first page table of every kernel maps the board there for good; the header holds
    // atomics only.
    unsafe { &*(BOARD_VIRT as *const Header) }
}

pub fn entry(kernel: KernelId) -> &'static Entry {
    assert!(kernel.index() < MOST_KERNELS);
    // SAFETY: as above; the index was checked.
    unsafe { &*((BOARD_VIRT + ENTRIES_AT) as *const Entry).add(kernel.index()) }
}

/// Where `kernel`'s directory of trace rings is (`trace::Directory::word`); 0: it has none.
pub fn traces(kernel: KernelId) -> &'static AtomicU64 {
    assert!(kernel.index() < MOST_KERNELS);
    // SAFETY: as above; the index was checked.
    unsafe { &*((BOARD_VIRT + TRACES_AT) as *const AtomicU64).add(kernel.index()) }
}

/// How often the host has asked for samples of all CPUs.
pub fn asked() -> &'static AtomicU64 {
    let at = trace::ASKED_PHYS - trace::DIRECTORIES_PHYS;
    // SAFETY: as above; the word lies in the same page as those of the kernels, and behind them.
    unsafe { &*((BOARD_VIRT + TRACES_AT + at) as *const AtomicU64) }
}

fn lanes(receiver: KernelId, sender: KernelId) -> &'static AtomicU64 {
    assert!(receiver.index() < MOST_KERNELS && sender.index() < MOST_KERNELS);
    // SAFETY: as above; both indices were checked.
    unsafe { &*((BOARD_VIRT + LANES_AT) as *const AtomicU64).add(receiver.index() * MOST_KERNELS + sender.index()) }
}

/// Bits for a frame's number: 2^52 bytes are the most that is addressed.
const FRAME_BITS: u32 = 40;

/// Says that the lanes for this boot of `sender` are empty and lie at this physical address (lanes.rs).
pub fn set_lanes(receiver: KernelId, sender: KernelId, boot: u32, phys: u64) {
    // Release: they are empty before the sender reads this; pairs with the Acquire below.
    lanes(receiver, sender).store(u64::from(boot) << FRAME_BITS | phys >> 12, Release);
}

/// Where the lanes for this boot of `sender` lie in `receiver`'s memory; None while they are not ready.
pub fn lanes_for(receiver: KernelId, sender: KernelId, boot: u32) -> Option<u64> {
    let word = lanes(receiver, sender).load(Acquire);
    let same = word >> FRAME_BITS == u64::from(boot) << FRAME_BITS >> FRAME_BITS;
    (word != 0 && same).then_some((word & ((1 << FRAME_BITS) - 1)) << 12)
}

/// `receiver` is to be booted: what its last boot generation said of its lanes is not true any more.
pub fn forget_lanes(receiver: KernelId) {
    (0..MOST_KERNELS).for_each(|sender| lanes(receiver, KernelId(sender as u16)).store(0, Relaxed));
}

/// The plan, unless it has more kernels than the board.
pub fn room_for(plan: Plan) -> Result<Plan, String> {
    match plan.kernels.len() {
        0..=MOST_KERNELS => Ok(plan),
        count => Err(format!("{count} kernels are more than the {MOST_KERNELS} that a machine may have")),
    }
}

/// Puts the plan on the board. Only the primary, before any secondary runs.
pub fn publish_plan(plan: &Plan) {
    // SAFETY: nobody else runs yet; the area lies on the board, is mapped, and overlaps no atomic.
    let area =
        unsafe { core::slice::from_raw_parts_mut((BOARD_VIRT + PLAN_AT) as *mut u8, (ENTRIES_AT - PLAN_AT) as usize) };
    let bytes = postcard::to_slice(plan, area).expect("the plan fits on the board").len();
    header().plan_bytes.store(bytes as u64, Release);
}

pub fn read_plan() -> Plan {
    let bytes = header().plan_bytes.load(Acquire).min(ENTRIES_AT - PLAN_AT) as usize;
    // SAFETY: written before any secondary ran, never changed since.
    let area = unsafe { core::slice::from_raw_parts((BOARD_VIRT + PLAN_AT) as *const u8, bytes) };
    postcard::from_bytes(area).expect("the primary wrote a plan")
}

/// Takes one of the locks of the header; false if `patience` says so first. A holder that is dead
/// loses it.
pub fn acquire(lock: &AtomicU32, me: KernelId, mut patience: impl FnMut() -> bool) -> bool {
    let mine = u32::from(me.0) + 1;
    loop {
        match lock.compare_exchange(0, mine, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(holder) => {
                let dead = holder != mine && entry(KernelId((holder - 1) as u16)).state() == State::Dead;
                if dead && lock.compare_exchange(holder, mine, AcqRel, Relaxed).is_ok() {
                    return true;
                }
            }
        }
        if !patience() {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// Gives a lock back, if it is still ours.
pub fn release(lock: &AtomicU32, me: KernelId) {
    let _ = lock.compare_exchange(u32::from(me.0) + 1, 0, AcqRel, Relaxed);
}

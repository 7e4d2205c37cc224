//! Changes of this kernel's code while its CPUs run: the places of static keys (crate `static-keys`) become jumps, or do nothing again. Keys below 64 are trace points; the others are
//! switched on once, by who first does what they stand for.
//!
//! Another CPU may be about to execute the place, or may have fetched it long before. For code that one processor changes and another one runs, Intel asks that the other
//! does not run it meanwhile, and executes a serializing instruction before it does again (SDM 3A, "Handling Self- and Cross-Modifying Code"; AMD APM 2, 7.6.1, asks no more). So:
//!
//! ```text
//!   the CPU that changes                     each other CPU of this kernel
//!   CHANGE := n, an odd number
//!   non-maskable interrupt     ------->      in its handler: says that it waits for n,
//!   waits for all of them                    and waits while CHANGE = n
//!   writes all places
//!   CHANGE := n + 1            ------->      serializes, and goes on where it was
//! ```
//!
//! An interrupt comes between two instructions, and what stands at a place is one instruction before and after the change. So the other CPU goes on with either the new one or what follows.
//!
//! Dangerous: a CPU that the changing one waits for and that waits for the changing one. In the kernel, CPUs take no interrupts that can be masked; one that spins for a lock, or until all CPUs
//! have forgotten a translation, would never come here, and perhaps it is the changing CPU that has the lock. Hence the interrupt that comes through everywhere. Its handler takes no lock and
//! waits for this one thing, which waits for nothing but such handlers. A CPU that the host gives no time is waited for, as at a flush of translations.
//!
//! The changing CPU itself may be interrupted in this way between two places, by a question of the host, say. It finds whole instructions, since a place is written by one store.
//!
//! All this happens when somebody switches tracing, or for the first time has threads monitored; a CPU that only runs pays nothing.

use crate::percpu::PerCpu;
use crate::{arch, kmap, panic, percpu};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use machine::PAGE_SIZE;
use static_keys::{Site, LENGTH};

const PAGE: u64 = PAGE_SIZE as u64;
/// Window slots for a page of code and the one behind it: a place may lie in both.
const SLOTS: [usize; 2] = [2, 3];

/// Held while code changes. Not a lock whose contention is traced: those who wait must pass no place.
static TURN: spin::Mutex<()> = spin::Mutex::new(());
/// Odd: CPUs wait while it stays so.
static CHANGE: AtomicU32 = AtomicU32::new(0);
/// Keys from [`POINTS`] on that are on.
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// Keys below this are trace points.
const POINTS: u32 = 64;

/// Switches a key on that is no trace point.
pub(crate) fn switch_on(key: u32) {
    OTHERS.fetch_or(1 << (key - POINTS), Relaxed);
    // Also if somebody else is about to: it must be on when this returns.
    follow(trace::enabled);
}

/// Makes the code say which points are on (bit N: point N), as `points` says once nobody else changes it.
pub(crate) fn follow(points: impl FnOnce() -> u64) {
    let _turn = TURN.lock();
    let keys = u128::from(points()) | u128::from(OTHERS.load(Relaxed)) << POINTS;
    let change = stop_others();
    let mut pages = Pages { from: 0 };
    for site in static_keys::sites() {
        pages.write(site, keys >> site.key() & 1 == 1);
    }
    drop(pages);
    arch::serialize();
    // Release: pairs with the Acquire of those who wait.
    CHANGE.store(change.wrapping_add(1), Release);
}

/// Gives the number of this change.
fn stop_others() -> u32 {
    let me = percpu::current();
    let change = CHANGE.load(Relaxed).wrapping_add(1);
    // An interrupt of this CPU does not wait for itself.
    me.change.store(change, Relaxed);
    CHANGE.store(change, SeqCst);
    let others = || percpu::all().iter().filter(|other| other.index != me.index && other.online.load(Acquire));
    others().for_each(|other| arch::send_unmaskable(other.hardware_id));
    while others().any(|other| other.change.load(Acquire) != change) {
        core::hint::spin_loop();
    }
    change
}

/// In an interrupt that can't be masked: waits if code changes. True if the interrupt was sent for that, as far as one can know. `is_other`: another reason for it has been found.
pub(crate) fn wait_while_code_changes(is_other: bool) -> bool {
    let cpu = percpu::current();
    let change = CHANGE.load(Acquire);
    if change.is_multiple_of(2) || cpu.change.swap(change, AcqRel) == change {
        return cpu.change_comes_late.swap(false, Relaxed);
    }
    if is_other {
        // Perhaps both have come as one interrupt. If not, the next one has no other reason than this change.
        cpu.change_comes_late.store(true, Relaxed);
    }
    while CHANGE.load(Acquire) == change {
        panic::stop_if_asked();
        core::hint::spin_loop();
    }
    arch::serialize();
    true
}

/// This CPU runs code that may change, from now on: it is interrupted for that.
pub(crate) fn come_online(cpu: &PerCpu) {
    let _turn = TURN.lock();
    // Release: pairs with the Acquire of `start_siblings`.
    cpu.online.store(true, Release);
    arch::serialize();
}

/// Pages of code in windows of this CPU. Where code is executed it is never writable, and it is nowhere else.
struct Pages {
    /// Address of the first one, as it is executed; 0: none is open.
    from: u64,
}

impl Pages {
    fn write(&mut self, site: &Site, is_on: bool) {
        let at = site.address() as u64;
        let from = at / PAGE * PAGE;
        if self.from != from {
            for (slot, page) in SLOTS.into_iter().zip([from, from + PAGE]) {
                kmap::open_window(slot, kmap::physical(page).expect("the image is mapped"));
            }
            self.from = from;
        }
        let place = (kmap::window_address(SLOTS[0]) + at % PAGE) as *mut u64;
        // SAFETY: the eight bytes are in the two pages, which are mapped side by side; they are this kernel's code, or what lies behind it. Nobody else writes there: we have the turn.
        let before = unsafe { place.read_unaligned() };
        let mut bytes = before.to_le_bytes();
        bytes[..LENGTH].copy_from_slice(&site.instruction(is_on));
        if bytes != before.to_le_bytes() {
            // SAFETY: as above. One instruction has become another of its length, and the CPUs of this kernel are either in `wait_while_code_changes` or here.
            unsafe { arch::store_code(place, u64::from_le_bytes(bytes)) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.from != 0 {
            SLOTS.into_iter().for_each(kmap::close_window);
        }
    }
}

const _: () = assert!(LENGTH <= 8);

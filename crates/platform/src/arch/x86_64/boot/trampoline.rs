//! Starting a CPU: through one page of real-mode code below 1 MiB, used by one kernel at a time.
//!
//! Resets and start-up interrupts get lost, so they are repeated. Two cases are dangerous:
//!
//! - A reset that meets a CPU which was only slow, and is already in its kernel: it would begin again on an image
//!   whose data it has used. So the CPU first says that it is here, and goes on only when told. A CPU
//!   that was told is never reset for being slow.
//! - A CPU that comes after its starter has given up and another uses the page. So who gives up resets
//!   the CPU: held in reset, it does not read the page.

use super::super::{apic, entry::Bits};
use crate::layout::*;
use crate::tables::index;
use crate::{board, clock};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use machine::Errno;

core::arch::global_asm!(include_str!("trampoline.s"));

// SAFETY: trampoline.s, and `cpu_entry` start.s, define these so; no data is read through the names of places.
unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    fn cpu_entry();
}

/// Where a CPU begins.
pub struct Launch {
    pub hardware_id: u32,
    /// Its kernel's page table, and that table's entry for the image.
    pub root: u64,
    pub image_entry: u64,
    pub stack: u64,
    pub function: u64,
    pub argument: u64,
}

const WORDS_AT: u64 = 0xf00;
const HERE_AT: u64 = 0xf30;
const GO_AT: u64 = 0xf38;

/// Waiting for the trampoline, and for a CPU to answer: generous, since an emulated machine may have
/// far more CPUs than its host.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Starts a CPU and waits until `alive` says so. ETIMEDOUT if it never does, EBUSY if somebody else
/// keeps the trampoline.
pub fn launch(launch: &Launch, alive: impl Fn() -> bool) -> Result<(), Errno> {
    let me = crate::kernel();
    let lock = &board::header().trampoline.0;
    let give_up = clock::now() + PATIENCE_NS;
    if !board::acquire(lock, me, || clock::now() < give_up) {
        return Err(Errno::EBUSY);
    }
    prepare(launch);
    let started = start(launch.hardware_id, alive);
    if started.is_err() {
        apic::reset(launch.hardware_id);
    }
    board::release(lock, me);
    started
}

fn prepare(launch: &Launch) {
    let write = |page: u64, word: usize, value: u64| {
        let at = (TRAMPOLINE_VIRT + page * 0x1000) as *mut u64;
        // SAFETY: one of the trampoline's four pages, mapped for good; we hold the lock.
        unsafe { at.add(word).write_volatile(value) }
    };
    let table = (Bits::PRESENT | Bits::WRITE).bits();
    for page in 1..4 {
        (0..512).for_each(|word| write(page, word, 0));
    }
    write(1, 0, (TRAMPOLINE_PHYS + 0x2000) | table);
    write(1, index(IMAGE_BASE, 4), launch.image_entry);
    write(2, 0, (TRAMPOLINE_PHYS + 0x3000) | table);
    write(3, 0, table | Bits::LARGE.bits());
    // SAFETY: the code fits into the page before its words; we hold the lock.
    unsafe {
        let (from, to) = (&raw const trampoline_start, &raw const trampoline_end);
        let bytes = to.offset_from(from) as usize;
        assert!(bytes as u64 <= WORDS_AT);
        core::ptr::copy_nonoverlapping(from, TRAMPOLINE_VIRT as *mut u8, bytes);
    }
    let words = [launch.root, launch.stack, launch.function, launch.argument, cpu_entry as *const () as u64];
    for (word, value) in words.into_iter().enumerate() {
        write(0, WORDS_AT as usize / 8 + word, value);
    }
}

fn word(offset: u64) -> &'static AtomicU64 {
    // SAFETY: an aligned word of the trampoline's first page, mapped for good; CPUs in the trampoline
    // write its low half atomically.
    unsafe { &*((TRAMPOLINE_VIRT + offset) as *const AtomicU64) }
}

/// INIT, then start-up interrupts, until the CPU is here (SDM 3A, 9.4.4); then lets it go.
fn start(target: u32, alive: impl Fn() -> bool) -> Result<(), Errno> {
    let (here, go) = (word(HERE_AT), word(GO_AT));
    let give_up = clock::now() + PATIENCE_NS;
    let until = |end: u64, done: &dyn Fn() -> bool| {
        while !done() {
            if clock::now() > end.min(give_up) {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    };
    go.store(0, SeqCst);
    let mut patience = 10_000_000;
    loop {
        apic::reset(target);
        clock::delay(50_000);
        here.store(0, SeqCst);
        // A CPU that isn't waiting for one ignores a start-up interrupt: an emulated one that is still to
        // take the reset loses it, a started one isn't disturbed by it.
        let reset_again = clock::now() + patience;
        let came = loop {
            apic::send_startup(target, TRAMPOLINE_PHYS);
            if until(clock::now() + 100_000, &|| here.load(SeqCst) != 0) {
                break true;
            }
            if clock::now() > reset_again {
                break false;
            }
        };
        if came {
            break;
        }
        if clock::now() > give_up {
            return Err(Errno::ETIMEDOUT);
        }
        patience *= 4;
    }
    go.store(1, SeqCst);
    until(give_up, &alive).then_some(()).ok_or(Errno::ETIMEDOUT)
}

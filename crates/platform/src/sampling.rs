//! Samples for `cob profile`: where a CPU is when the host asks, also where it takes no interrupts.
//!
//! The host counts up a word on the board and interrupts all CPUs with a non-maskable interrupt, so often in a second. The handler writes the registers and a piece of each stack into a
//! ring of its own, for it may have come in the middle of a write to the CPU's other ring. The host finds the chains of calls afterwards: it has the programs, and what the compiler said of
//! their frames.
//!
//! The handler takes no lock and causes no fault: what it reads of a program's stack it finds by the page table, in the direct map. Another CPU may take pages out of that
//! table meanwhile; then it reads memory that is somebody else's now, and the chain is wrong from there on.

use crate::{arch, board, layout, pages, percpu};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::*};
use machine::{Frame, PAGE_BITS, PAGE_SIZE};
use spin::Once;
use trace::{Packer, Point, Ring, UserPosition};

/// Bytes of a stack that a sample has at most (of the kernel's always, if it has so many), and words of one record.
const MOST_STACK: u64 = MOST_PAGES as u64 * PAGE;
const MOST_PAGES: usize = 8;
const PAGE: u64 = PAGE_SIZE as u64;
const PIECE_WORDS: u64 = 240;

/// Where a CPU was: program counter, stack pointer, frame pointer.
pub(crate) type Place = [u64; 3];

struct Samples {
    /// By index of CPU.
    cpus: Vec<OfCpu>,
    /// Words of a program's stack.
    most_words: u64,
}

struct OfCpu {
    ring: Ring,
    /// How often the host had asked when it was last answered.
    seen: AtomicU64,
    position: UserPosition,
}

static SAMPLES: Once<Samples> = Once::new();

/// From now on the CPUs answer, each in its ring, with at most `bytes` of the program's stack.
pub(crate) fn start(rings: Vec<Ring>, bytes: u64) {
    let asked = board::asked().load(Relaxed);
    let of_cpu = |ring| OfCpu { ring, seen: AtomicU64::new(asked), position: UserPosition::default() };
    let cpus = rings.into_iter().map(of_cpu).collect();
    SAMPLES.call_once(|| Samples { cpus, most_words: bytes.min(MOST_STACK) / 8 });
}

fn here() -> Option<(&'static OfCpu, u64)> {
    let samples = SAMPLES.get()?;
    Some((samples.cpus.get(percpu::current_index())?, samples.most_words))
}

/// See [`trace::position`].
pub(crate) fn position() -> Option<&'static UserPosition> {
    here().map(|(cpu, _)| &cpu.position)
}

/// A non-maskable interrupt has found this CPU at `kernel`, or in user mode. True if the host asks for samples: then it has not sent the interrupt for another reason.
/// While it runs, the CPU takes no other such interrupt.
pub(crate) fn take(kernel: Option<Place>) -> bool {
    let asked = board::asked().load(Acquire);
    // The word, and not the code, which may just be changing.
    let Some((cpu, most_words)) = here().filter(|_| trace::enabled() & Point::Sample.bit() != 0) else {
        return asked != 0;
    };
    let ticks = asked.wrapping_sub(cpu.seen.swap(asked, Relaxed));
    if ticks == 0 {
        // It was asked twice before it could answer, and the interrupt of the second question comes after the answer.
        return asked != 0;
    }
    let time = crate::clock::now();
    let kernel = kernel.unwrap_or_default();
    let stack = kernel_stack(kernel[1]);
    let [root, user @ ..] = cpu.position.place();
    let pages = UserPages::find(root, user[1] & !7, most_words);
    let mut packer = <Packer>::default();
    let (space, home) = cpu.position.space();
    [space].into_iter().chain(kernel).chain(user).for_each(|word| packer.put(word, 64));
    packer.put(cpu.position.thread().into(), 32);
    packer.put(ticks.min(u32::MAX.into()), 32);
    packer.put(stack, 16);
    packer.put(pages.words(), 16);
    packer.put(home.into(), 16);
    cpu.ring.push(Point::Sample, time, packer.words());
    push_stack(&cpu.ring, time, kernel[1], stack, |at| {
        // SAFETY: `kernel_stack` has found these words on this CPU's stack, which is mapped for good.
        Some(unsafe { (at as *const u64).read_volatile() })
    });
    for (phys, start, end) in pages.present() {
        push_stack(&cpu.ring, time, start, (end - start) / 8, |at| read_own(phys + (at - start)));
    }
    true
}

/// How many words lie between this stack pointer and the end of this CPU's stack, if it is on that.
fn kernel_stack(pointer: u64) -> u64 {
    let end = percpu::current().stack;
    let on_it = pointer.is_multiple_of(8) && (end - layout::STACK_BYTES..end).contains(&pointer);
    if on_it {
        (end - pointer).min(MOST_STACK) / 8
    } else {
        0
    }
}

fn push_stack(ring: &Ring, time: u64, from: u64, words: u64, read: impl Fn(u64) -> Option<u64>) {
    let mut piece = [0; 1 + PIECE_WORDS as usize];
    for first in (0..words).step_by(PIECE_WORDS as usize) {
        let count = (words - first).min(PIECE_WORDS);
        piece[0] = from + first * 8;
        for (slot, number) in piece[1..].iter_mut().zip(first..first + count) {
            *slot = read(from + number * 8).unwrap_or(0);
        }
        ring.push(Point::StackPiece, time, &piece[..1 + count as usize]);
    }
}

/// Reads a word of this kernel's own memory.
fn read_own(phys: u64) -> Option<u64> {
    let partition = pages::try_partition()?;
    if !phys.is_multiple_of(8) || !partition.contains(Frame(phys >> PAGE_BITS)) {
        return None;
    }
    // SAFETY: an aligned word of the own partition, which the direct map has for good; whoever writes to it meanwhile makes it another number.
    Some(unsafe { ((layout::DIRECT_BASE + phys) as *const u64).read_volatile() })
}

/// Where pages of a program's stack are, as its page table says. Some may be missing: a large array that nobody has touched yet, or what a thread that has come from another kernel
/// has not touched here.
struct UserPages {
    from: u64,
    end: u64,
    phys: [Option<u64>; MOST_PAGES + 1],
}

impl UserPages {
    /// Those that have the next words from `from` on.
    fn find(root: u64, from: u64, most_words: u64) -> UserPages {
        let mut pages = UserPages { from, end: from, phys: [None; MOST_PAGES + 1] };
        if root != 0 && from < machine::USER_END - MOST_STACK {
            pages.end = from + most_words * 8;
            for (slot, page) in pages.phys.iter_mut().zip(from / PAGE..pages.end.div_ceil(PAGE)) {
                *slot = arch::translate(root, page * PAGE, &read_own);
            }
        }
        pages
    }

    /// Physical address and range of each page that is there.
    fn present(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.phys.iter().zip(self.from / PAGE..).filter_map(|(phys, page)| {
            let (start, end) = ((page * PAGE).max(self.from), ((page + 1) * PAGE).min(self.end));
            phys.map(|phys| (phys + start % PAGE, start, end))
        })
    }

    fn words(&self) -> u64 {
        self.present().map(|(_, start, end)| (end - start) / 8).sum()
    }
}

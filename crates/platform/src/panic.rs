//! The end of a kernel: says who, where and why, marks itself dead on the board, and leaves the machine
//! to the policy.

use crate::heartbeat::Found;
use crate::layout::{IMAGE_BASE, STACKS_BASE, STACK_BYTES, STACK_STRIDE, TOP_BYTES};
use crate::{arch, board, clock, percpu, serial};
use core::fmt::Arguments;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use machine::KernelId;

/// What the machine ends with ([`arch::exit_machine`]); QEMU ends with twice that plus one: 251.
const PANIC_CODE: u32 = 0x7d;
/// The same for a machine that cannot be made as it was asked for: 133.
const REFUSED_CODE: u32 = 0x42;

static PANICKING: AtomicBool = AtomicBool::new(false);
static STOPPING: AtomicBool = AtomicBool::new(false);
/// So long a kernel that dies waits for its CPUs.
const PATIENCE_NS: u64 = 10_000_000_000;
/// So long a CPU waits to say where it is while another one says it.
const TURN_NS: u64 = 2_000_000_000;
/// Words of its stack that a CPU shows then.
const MOST_ADDRESSES: usize = 64;
static POLICY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Called last in a panic, with this kernel's state already Dead on the board. The default ends the
/// whole machine.
pub fn set_policy(policy: fn() -> !) {
    POLICY.store(policy as *mut (), Release);
}

/// The primary cannot make the machine that it was asked for: says why in a line that the host command shows, and ends the machine.
pub fn refuse(reason: Arguments) -> ! {
    serial::early(format_args!("REFUSED: {reason}"));
    exit_machine(REFUSED_CODE)
}

/// Ends the whole machine with `code` where QEMU's debug exit exists; halts this CPU otherwise.
pub fn exit_machine(code: u32) -> ! {
    if crate::has_board() {
        serial::flush();
    }
    arch::exit_machine(code)
}

/// Stops the other CPUs of this kernel, whatever they hold. When the death is known their memory is used anew, also pages of
/// others that their programs map; and a reset does not say when it has come to a CPU (one that the host has taken away finishes
/// what it was about, when it is back). So each is interrupted first, and says that it has stopped.
fn stop_siblings() {
    if !percpu::is_installed() {
        return;
    }
    let me = percpu::current().index;
    let siblings = || percpu::all().iter().filter(|sibling| sibling.index != me);
    // Release: pairs with the Acquire of `stop_if_asked`.
    STOPPING.store(true, Release);
    siblings()
        .filter(|sibling| sibling.online.load(Acquire))
        .for_each(|sibling| arch::send_unmaskable(sibling.hardware_id));
    let give_up = clock::now() + PATIENCE_NS;
    while siblings().any(|sibling| sibling.online.load(Acquire)) && clock::now() < give_up {
        core::hint::spin_loop();
    }
    siblings().for_each(|sibling| arch::reset(sibling.hardware_id));
}

/// In an interrupt that can't be masked: perhaps a sibling wants this CPU to stop.
pub(crate) fn stop_if_asked() {
    if STOPPING.load(Acquire) {
        stopped();
    }
}

fn stopped() -> ! {
    if percpu::is_installed() {
        // Release: pairs with the Acquire of `stop_siblings`.
        percpu::current().online.store(false, Release);
    }
    arch::halt()
}

/// This kernel ends, and only this one: as a panic policy, or because it was told to stop. The others
/// are rung, and find it dead on the board.
pub fn die_alone() -> ! {
    stop_siblings();
    let me = crate::kernel();
    board::entry(me).set_state(board::State::Dead);
    for index in 0..crate::plan().kernels.len() {
        let other = KernelId(index as u16);
        if other != me {
            crate::ring_doorbell(other);
        }
    }
    arch::halt()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let here = Some(arch::here());
    match info.location() {
        Some(at) => die(format_args!("{}: {}", at, info.message()), here),
        None => die(format_args!("{}", info.message()), here),
    }
}

/// A trap in the kernel that is a bug of it.
pub(crate) fn from_trap(text: Arguments, place: CpuPosition) -> ! {
    die(text, Some(place))
}

pub(crate) fn from_overflow(place: CpuPosition) -> ! {
    let kibibytes = STACK_BYTES >> 10;
    die(format_args!("kernel stack overflow: {kibibytes} KiB are used up at {:#x}", place.pc), Some(place))
}

/// Another kernel has found that this one hangs, and interrupts it where it does.
pub(crate) fn from_hang(found: Found) -> ! {
    let place = match found {
        Found::InKernel(place) => Some(place),
        Found::UserMode => None,
    };
    die(format_args!("it hangs: no heartbeat for seconds, though its CPU runs"), place)
}

/// The host wants to know where this CPU is: the same lines as in a panic, and it goes on.
pub(crate) fn say_where(found: Found) {
    // In a row for each CPU of a kernel. Who has the lock is in here, too, and comes to an end.
    static TURN: AtomicBool = AtomicBool::new(false);
    let give_up = clock::now() + TURN_NS;
    while TURN.swap(true, Acquire) && clock::now() < give_up {
        core::hint::spin_loop();
    }
    let (kernel, area) = (crate::kernel(), percpu::current());
    let cpu = area.cpu.0;
    let say = |line: Arguments| serial::line(kernel, line);
    match found {
        Found::UserMode => say(format_args!("WHERE kernel {kernel} cpu {cpu}: in user mode")),
        Found::InKernel(place) if arch::is_halt(place.pc) => say(format_args!("WHERE kernel {kernel} cpu {cpu}: idle")),
        Found::InKernel(place) => {
            say(format_args!("WHERE kernel {kernel} cpu {cpu}: in the kernel"));
            say(format_args!("  at {:#x}", place.pc));
            for (offset, address) in place.return_addresses().take(MOST_ADDRESSES) {
                say(format_args!("  at {address:#x}, {offset} up the stack"));
            }
        }
    }
    TURN.store(false, Release);
}

fn die(text: Arguments, place: Option<CpuPosition>) -> ! {
    if PANICKING.swap(true, AcqRel) {
        stopped(); // a panic in a panic, or a sibling's
    }
    stop_siblings();
    let kernel = crate::kernel();
    let cpu = if percpu::is_installed() { percpu::current().cpu.0 } else { u32::MAX };
    let has_board = crate::has_board();
    if has_board {
        serial::flush();
    }
    let say = |line: Arguments| match has_board {
        true => serial::line(kernel, line),
        false => serial::early(line),
    };
    match has_board {
        true => say(format_args!("PANIC kernel {kernel} cpu {cpu}: {text}")),
        false => say(format_args!("PANIC kernel {kernel} before the board: {text}")),
    }
    if let Some(place) = place {
        say(format_args!("  at {:#x}", place.pc));
        for (offset, address) in place.return_addresses() {
            say(format_args!("  at {address:#x}, {offset} up the stack"));
        }
    }
    if has_board {
        board::entry(kernel).set_state(board::State::Dead);
    }
    let policy = POLICY.load(Acquire);
    if policy.is_null() {
        exit_machine(PANIC_CODE);
    }
    // SAFETY: `set_policy` stored a function of this type.
    unsafe { core::mem::transmute::<*mut (), fn() -> !>(policy)() }
}

/// Where a CPU was: an address in its code, and the stack pointer there.
#[derive(Clone, Copy)]
pub struct CpuPosition {
    pub pc: u64,
    pub stack: u64,
}

impl CpuPosition {
    /// What may be a return address, and how many bytes up the stack it lies. Code keeps no frame pointers, which would cost every call; which
    /// of these words belong to the chain of calls, and which a call that is over has left there, the host command knows by the image's
    /// `.debug_frame` (DWARF 5, 6.4).
    fn return_addresses(self) -> impl Iterator<Item = (u64, u64)> {
        let shape = crate::boot::image_shape();
        let (stacks, image) = (STACKS_BASE..STACKS_BASE + TOP_BYTES, IMAGE_BASE..IMAGE_BASE + shape.end);
        let end = match self.stack {
            at if stacks.contains(&at) => at.next_multiple_of(STACK_STRIDE),
            // The boot stack, in .bss.
            at if image.contains(&at) => image.end.min(at + STACK_BYTES),
            at => at,
        };
        // Not the guard below it, if it has overflowed.
        let start = self.stack.max(end.saturating_sub(STACK_BYTES)).next_multiple_of(8);
        let word = move |at: u64| {
            // SAFETY: an aligned word of a kernel stack or of .bss, both mapped, and this CPU is in here.
            (at.wrapping_sub(self.stack), unsafe { (at as *const u64).read_volatile() })
        };
        let text = IMAGE_BASE + 1..IMAGE_BASE + shape.text_end;
        // One less: it belongs to the call. What follows a call that does not return is another function.
        (start..end)
            .step_by(8)
            .map(word)
            .filter(move |(_, word)| text.contains(word))
            .map(|(offset, word)| (offset, word - 1))
    }
}

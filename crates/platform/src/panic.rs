//! The end of a kernel: says who, where and why, marks itself dead on the board, and leaves the machine
//! to the policy.

use crate::cpu::Frame;
use crate::layout::{IMAGE_BASE, STACKS_BASE, TOP_BYTES};
use crate::{apic, board, clock, percpu, serial};
use core::arch::asm;
use core::fmt::Arguments;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use machine::KernelId;
use x86_64::instructions::port::Port;

/// What `isa-debug-exit` gets; QEMU ends with twice that plus one: 251.
const PANIC_CODE: u32 = 0x7d;
const DEBUG_EXIT: u16 = 0xf4;

static PANICKING: AtomicBool = AtomicBool::new(false);
static STOPPING: AtomicBool = AtomicBool::new(false);
/// So long a kernel that dies waits for its CPUs.
const PATIENCE_NS: u64 = 10_000_000_000;
static POLICY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Called last in a panic, with this kernel's state already Dead on the board. The default ends the
/// whole machine.
pub fn set_policy(policy: fn() -> !) {
    POLICY.store(policy as *mut (), Release);
}

/// Ends the whole machine with `code` where QEMU's debug exit exists; halts this CPU otherwise.
pub fn exit_machine(code: u32) -> ! {
    // SAFETY: the port does nothing else, and nothing at all without the device.
    unsafe { Port::<u32>::new(DEBUG_EXIT).write(code) }
    halt()
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        // SAFETY: stops; that is the purpose.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
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
    siblings().filter(|sibling| sibling.online.load(Acquire)).for_each(|sibling| apic::send_nmi(sibling.apic));
    let give_up = clock::now() + PATIENCE_NS;
    while siblings().any(|sibling| sibling.online.load(Acquire)) && clock::now() < give_up {
        core::hint::spin_loop();
    }
    siblings().for_each(|sibling| apic::send_init(sibling.apic));
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
    halt()
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
    halt()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let frame: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack)) }
    match info.location() {
        Some(at) => die(format_args!("{}: {}", at, info.message()), None, frame),
        None => die(format_args!("{}", info.message()), None, frame),
    }
}

pub(crate) fn from_trap(frame: &Frame, address: u64) -> ! {
    let text = format_args!(
        "unexpected trap {} code {:#x} at {:#x}, address {:#x}\n{:#x?}",
        frame.vector, frame.code, frame.rip, address, frame
    );
    die(text, Some(frame.rip), frame.rbp)
}

/// Another kernel has found that this one hangs, and interrupts it where it does.
pub(crate) fn from_hang(frame: Option<&Frame>) -> ! {
    let (rip, base) = frame.map_or((None, 0), |frame| (Some(frame.rip), frame.rbp));
    die(format_args!("it hangs: no heartbeat for seconds, though its CPU runs"), rip, base)
}

fn die(text: Arguments, rip: Option<u64>, frame_pointer: u64) -> ! {
    if PANICKING.swap(true, AcqRel) {
        stopped(); // a panic in a panic, or a sibling's
    }
    stop_siblings();
    let kernel = crate::kernel();
    let cpu = if percpu::is_installed() { percpu::current().cpu.0 } else { u32::MAX };
    if crate::has_board() {
        serial::line(kernel, format_args!("PANIC kernel {kernel} cpu {cpu}: {text}"));
        for address in rip.into_iter().chain(Backtrace { frame: frame_pointer, left: 32 }) {
            serial::line(kernel, format_args!("  at {address:#x}"));
        }
        board::entry(kernel).set_state(board::State::Dead);
    } else {
        serial::early(format_args!("PANIC kernel {kernel} before the board: {text}"));
        for address in rip.into_iter().chain(Backtrace { frame: frame_pointer, left: 32 }) {
            serial::early(format_args!("  at {address:#x}"));
        }
    }
    let policy = POLICY.load(Acquire);
    if policy.is_null() {
        exit_machine(PANIC_CODE);
    }
    // SAFETY: `set_policy` stored a function of this type.
    unsafe { core::mem::transmute::<*mut (), fn() -> !>(policy)() }
}

/// Return addresses along the frame pointers.
struct Backtrace {
    frame: u64,
    left: u32,
}

impl Iterator for Backtrace {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let stacks = STACKS_BASE..STACKS_BASE + TOP_BYTES;
        let image = IMAGE_BASE..crate::image_end();
        let sane = |at: u64| at.is_multiple_of(8) && (stacks.contains(&at) || image.contains(&at));
        if self.left == 0 || !sane(self.frame) || !sane(self.frame + 8) {
            return None;
        }
        // SAFETY: frame pointers on a kernel stack or the boot stack, both mapped; a broken chain ends
        // because the next frame must lie higher, within a stack's size.
        let (next, address) = unsafe { (*(self.frame as *const u64), *((self.frame + 8) as *const u64)) };
        self.left -= 1;
        self.frame = if next > self.frame && next - self.frame < 64 << 10 { next } else { 0 };
        // One less: it belongs to the call. What follows a call that does not return is another function.
        address.checked_sub(1)
    }
}

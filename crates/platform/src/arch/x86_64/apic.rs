//! The local APIC of the current CPU: interrupts between CPUs and the timer. x2APIC where the CPU has
//! it, memory-mapped otherwise. Interrupts go to one CPU at a time, never to all: the others may
//! belong to another kernel.

use crate::layout::CPU_REGISTERS_VIRT;
use crate::{board, clock, percpu};
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

/// Vectors the kernel uses itself; devices get those below.
pub const TIMER: u8 = 0xf0;
pub const SPURIOUS: u8 = 0xff;

/// What one CPU interrupts another for, with the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// A message of another kernel lies in a lane.
    Doorbell = 0xf1,
    /// A CPU of the same kernel wants this one to leave user mode or its idle loop.
    Kick = 0xf2,
    /// The same, for a change of a page table.
    Flush = 0xf3,
}

const ID: u32 = 0x20;
const TASK_PRIORITY: u32 = 0x80;
const EOI: u32 = 0xb0;
const SPURIOUS_VECTOR: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const LVT_TIMER: u32 = 0x320;
const LVT_LINT0: u32 = 0x350;
const LVT_LINT1: u32 = 0x360;
const LVT_ERROR: u32 = 0x370;
const TIMER_INITIAL: u32 = 0x380;
const TIMER_CURRENT: u32 = 0x390;
const TIMER_DIVIDE: u32 = 0x3e0;

/// Delivery mode of a line (SDM 3A, 11.5.1).
const NMI_DELIVERY: u32 = 0b100 << 8;
const MASKED: u32 = 1 << 16;
const TSC_DEADLINE_MODE: u32 = 2 << 17;

static X2: AtomicBool = AtomicBool::new(false);
static DEADLINE: AtomicBool = AtomicBool::new(false);

fn msr(register: u32) -> Msr {
    Msr::new(0x800 + register / 16)
}

fn read(register: u32) -> u32 {
    if X2.load(Relaxed) {
        // SAFETY: an x2APIC register, and x2APIC mode is on.
        return unsafe { msr(register).read() as u32 };
    }
    // SAFETY: every kernel maps the APIC's page there, uncached, for good.
    unsafe { ((CPU_REGISTERS_VIRT + u64::from(register)) as *const u32).read_volatile() }
}

fn write(register: u32, value: u32) {
    if X2.load(Relaxed) {
        // SAFETY: as in `read`.
        unsafe { msr(register).write(value.into()) }
    } else {
        // SAFETY: as in `read`.
        unsafe { ((CPU_REGISTERS_VIRT + u64::from(register)) as *mut u32).write_volatile(value) }
    }
}

/// Turns the current CPU's APIC on.
pub fn init_cpu() {
    let features = __cpuid(1);
    let x2 = features.ecx >> 21 & 1 == 1;
    let mut base = Msr::new(0x1b);
    // SAFETY: sets the enable bits only; from xAPIC to x2APIC is a legal transition (SDM 3A 10.12.5).
    unsafe {
        let value = base.read() | 1 << 11;
        base.write(value);
        if x2 {
            base.write(value | 1 << 10);
        }
    }
    X2.store(x2, Relaxed);
    DEADLINE.store(features.ecx >> 24 & 1 == 1, Relaxed);
    write(TASK_PRIORITY, 0);
    for line in [LVT_LINT0, LVT_ERROR] {
        write(line, MASKED);
    }
    // The wire by which the machine, or QEMU on behalf of the host command, interrupts all CPUs.
    write(LVT_LINT1, NMI_DELIVERY);
    write(TIMER_DIVIDE, 0b1011);
    write(LVT_TIMER, u32::from(TIMER) | if DEADLINE.load(Relaxed) { TSC_DEADLINE_MODE } else { 0 });
    write(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
}

/// How CPUs interrupt each other here, for the log.
pub fn mode() -> &'static str {
    if X2.load(Relaxed) {
        "x2APIC"
    } else {
        "xAPIC"
    }
}

/// Whether the timer goes by the time-stamp counter. After `init_cpu`.
pub fn has_deadline() -> bool {
    DEADLINE.load(Relaxed)
}

/// The two legacy interrupt controllers must never speak. Once, by the primary.
pub fn silence_legacy() {
    for port in [0x21, 0xa1] {
        // SAFETY: masks all lines of a controller nobody uses.
        unsafe { Port::<u8>::new(port).write(0xff) }
    }
}

/// Hardware id of the current CPU.
pub fn hardware_id() -> u32 {
    let raw = read(ID);
    if X2.load(Relaxed) {
        raw
    } else {
        raw >> 24
    }
}

pub fn end_of_interrupt() {
    write(EOI, 0);
}

fn command(target: u32, low: u32) {
    if X2.load(Relaxed) {
        // WRMSR to an x2APIC register does not order earlier stores (SDM 3A 10.12.3); the receiver
        // must see what it is rung for.
        // SAFETY: fences and an x2APIC register.
        unsafe {
            core::arch::x86_64::_mm_mfence();
            core::arch::x86_64::_mm_lfence();
            msr(COMMAND).write(u64::from(target) << 32 | u64::from(low));
        }
    } else {
        while read(COMMAND) & 1 << 12 != 0 {
            core::hint::spin_loop();
        }
        write(COMMAND_HIGH, target << 24);
        write(COMMAND, low);
    }
}

/// Interrupts the CPU with that hardware id.
pub fn send(target: u32, signal: Signal) {
    command(target, 0x4000 | signal as u32);
}

/// Interrupts a CPU also where it takes no interrupts.
pub fn send_unmaskable(target: u32) {
    command(target, 0x4400);
}

/// Resets a CPU: it waits to be launched.
pub fn reset(target: u32) {
    command(target, 0x4500);
}

/// Starts a CPU in real mode at the page `phys`.
pub fn send_startup(target: u32, phys: u64) {
    command(target, 0x4600 | (phys >> 12) as u32);
}

/// Counts down from `count` without TSC deadline (calibration); 0 stops.
pub fn start_timer(count: u32) {
    let deadline = DEADLINE.load(Relaxed);
    write(
        LVT_TIMER,
        u32::from(TIMER)
            | if count == u32::MAX {
                MASKED
            } else if deadline {
                TSC_DEADLINE_MODE
            } else {
                0
            },
    );
    write(TIMER_INITIAL, count);
}

pub fn timer_count() -> u32 {
    read(TIMER_CURRENT)
}

/// A timer interrupt at `at` (ns of the clock) or earlier: one that was asked for before and is not wanted any
/// more may still come. So that the way into user mode writes no device register: that costs more than the rest
/// of a system call where the device is emulated.
pub fn set_alarm(at: Option<u64>) {
    let alarm = &percpu::current().alarm;
    let armed = alarm.load(Relaxed);
    match at {
        None => return,
        Some(at) if armed != 0 && armed <= at => return,
        Some(at) => alarm.store(at, Relaxed),
    }
    if DEADLINE.load(Relaxed) {
        let deadline = at.map_or(0, |at| clock::ticks_at(at).max(1));
        // SAFETY: IA32_TSC_DEADLINE, which CPUID says exists.
        unsafe { Msr::new(0x6e0).write(deadline) }
        return;
    }
    let count = at.map_or(0, |at| {
        let ns = at.saturating_sub(clock::now());
        let rate = board::header().timer_rate.load(Relaxed);
        let ticks = (u128::from(ns) * u128::from(rate)) >> 32;
        ticks.clamp(1, u32::MAX.into()) as u32
    });
    write(TIMER_INITIAL, count);
}

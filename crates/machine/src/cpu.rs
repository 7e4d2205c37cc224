//! A CPU as the kernel sees it: user mode is a function that is called and returns with a trap.

use crate::{CpuId, PageTable, UserAddr};
use alloc::boxed::Box;
use core::sync::atomic::AtomicBool;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

bitflags::bitflags! {
    /// What may be done with a page, or what a fault tried to do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Access: u8 {
        /// PROT_READ; every access implies it on x86-64.
        const READ = 1;
        /// PROT_WRITE.
        const WRITE = 2;
        /// PROT_EXEC.
        const EXEC = 4;
    }
}

/// The general registers of a user thread on x86-64. This, [`FpuState`] and nothing else is what a
/// thread is made of at the user boundary: what migrates, and what a signal frame saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Registers {
    /// Number of the system call, and its result.
    pub rax: u64,
    /// Kept across calls.
    pub rbx: u64,
    /// What `syscall` returns to.
    pub rcx: u64,
    /// Third argument.
    pub rdx: u64,
    /// Second argument.
    pub rsi: u64,
    /// First argument.
    pub rdi: u64,
    /// Kept across calls.
    pub rbp: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Fifth argument of a system call.
    pub r8: u64,
    /// Sixth argument of a system call.
    pub r9: u64,
    /// Fourth argument of a system call.
    pub r10: u64,
    /// Flags that `syscall` returns with.
    pub r11: u64,
    /// Kept across calls.
    pub r12: u64,
    /// Kept across calls.
    pub r13: u64,
    /// Kept across calls.
    pub r14: u64,
    /// Kept across calls.
    pub r15: u64,
    /// The next instruction.
    pub rip: u64,
    /// Flags (SDM 1, 3.4.3).
    pub rflags: u64,
    /// Base of segment FS: thread-local storage (ARCH_SET_FS).
    pub fs_base: u64,
    /// Base of segment GS (ARCH_SET_GS).
    pub gs_base: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Extended state (x87, SSE, AVX) in the XSAVE layout (Intel SDM 1, 13.4), 64-byte aligned.
#[derive(Clone, Debug)]
pub struct FpuState(Box<[Line]>);

/// How many lines, and the bytes of the first of them: those that follow are zero.
impl Serialize for FpuState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let used = self.0.iter().rposition(|line| line.0.iter().any(|word| *word != 0)).map_or(0, |last| last + 1);
        (self.0.len() as u16, Bytes::new(self.0[..used].as_bytes())).serialize(to)
    }
}

impl<'de> Deserialize<'de> for FpuState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (lines, bytes): (u16, &'de Bytes) = Deserialize::deserialize(from)?;
        let mut state = FpuState::zero(lines.into());
        state.set_bytes(bytes);
        Ok(state)
    }
}

impl FpuState {
    /// All zero, of the size the machine asks for ([`Cpu::fpu_size`]). A zero XSTATE_BV makes XRSTOR
    /// load the initial configuration (SDM 1, 13.8.1); MXCSR and FCW get their reset values here for
    /// machines that only have FXSAVE.
    pub fn initial(bytes: usize) -> Self {
        let mut state = FpuState::zero(bytes.div_ceil(64));
        state.bytes_mut(0, 2).copy_from_slice(&0x037fu16.to_le_bytes());
        state.bytes_mut(24, 4).copy_from_slice(&0x1f80u32.to_le_bytes());
        state
    }

    fn zero(lines: usize) -> Self {
        FpuState(FromZeros::new_box_zeroed_with_elems(lines).expect("the kernel has memory for a thread"))
    }

    /// Bytes of the area.
    pub fn size(&self) -> usize {
        self.0.len() * 64
    }

    /// Address and length for the instruction that saves or restores.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// The same, to be written by the instruction that saves.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// The area (for a signal frame).
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The area, to be changed.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }

    /// Replaces the area's first bytes (from a signal frame); longer input is cut.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.size());
        self.0.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    }

    fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.as_mut_bytes()[at..at + len]
    }
}

/// Why user mode was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// `syscall`: number in rax, arguments in rdi, rsi, rdx, r10, r8, r9; rip is past it.
    Syscall,
    /// A page was touched that the table does not allow.
    Page {
        /// The address touched (CR2).
        at: UserAddr,
        /// What the program tried.
        access: Access,
    },
    /// Timer, doorbell or kick: somebody wants the kernel to look around.
    Interrupt,
    /// Any other exception of the program, by its vector (SDM 3A, table 6-1) and error code.
    Exception {
        /// Number of the exception.
        vector: u8,
        /// Its error code; 0 of those that have none.
        code: u64,
    },
}

/// A cycle counter that programs can read: [`Cpu::now`] is `(rdtsc - base) * rate >> 32`.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Value of the counter when the machine started.
    pub base: u64,
    /// ns per tick, in 2^-32 ns.
    pub rate: u64,
}

/// The CPU that this code runs on, and its siblings in the same kernel.
pub trait Cpu: Send + Sync {
    /// Global number of the current CPU.
    fn current(&self) -> CpuId;
    /// CPUs of this kernel, ascending.
    fn cpus(&self) -> &[CpuId];
    /// Where the current CPU is among them.
    fn index(&self) -> usize {
        self.cpus().binary_search(&self.current()).unwrap_or(0)
    }
    /// Runs user code until a trap; none if `unless` is set when others can see that this CPU uses the table, which is
    /// then as if it had been interrupted at once. So who sets it and flushes the table knows that it is seen.
    fn run_user(&self, registers: &mut Registers, table: &dyn PageTable, unless: &AtomicBool) -> Trap;
    /// Bytes of extended state a thread needs.
    fn fpu_size(&self) -> usize;
    /// Makes `state` the live extended state of this CPU.
    fn fpu_load(&self, state: &FpuState);
    /// Saves the live extended state of this CPU into `state`.
    fn fpu_save(&self, state: &mut FpuState);
    /// Nanoseconds since the machine started, the same on every kernel (CLOCK_MONOTONIC).
    fn now(&self) -> u64;
    /// What programs need to read that clock themselves, if they can.
    fn counter(&self) -> Option<Counter> {
        None
    }
    /// Asks for an interrupt on this CPU at `at` (ns of [`Cpu::now`]) or earlier; None: none wanted. One that was
    /// asked for before may still come.
    fn set_alarm(&self, at: Option<u64>);
    /// Whether an alarm that is due ends user mode before its next instruction; else somebody must look at the clock first.
    fn alarm_ends_user_mode(&self) -> bool {
        false
    }
    /// Makes another CPU of this kernel leave user mode or its idle loop.
    fn kick(&self, cpu: CpuId);
    /// AT_HWCAP (CPUID 1 EDX) and AT_HWCAP2 (bit 1: FSGSBASE is usable) for programs.
    fn capabilities(&self) -> (u64, u64);
    /// CPUID of a leaf and subleaf: eax, ebx, ecx, edx; all zero where the machine has no such thing.
    fn identify(&self, _leaf: u32, _sub: u32) -> [u32; 4] {
        [0; 4]
    }
    /// Rate of the cycle counter in kHz; 0: unknown.
    fn cycle_rate(&self) -> u64 {
        0
    }
    /// Fills `bytes` from the machine's random source.
    fn random(&self, bytes: &mut [u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_state_travels_whole_and_without_its_zeroes() {
        let mut state = FpuState::initial(832);
        let empty = postcard::to_allocvec(&state).unwrap();
        assert!(empty.len() < 72, "{}", empty.len());
        state.bytes_mut(830, 1)[0] = 7;
        for state in [FpuState::initial(832), state, FpuState::initial(0x3000)] {
            let sent = postcard::to_allocvec(&state).unwrap();
            let received: FpuState = postcard::from_bytes(&sent).unwrap();
            assert_eq!(received.as_bytes(), state.as_bytes());
        }
    }
}

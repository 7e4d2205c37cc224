//! A CPU as the kernel sees it: user mode is a function that is called and returns with a trap.

use crate::arch::{Exception, Registers, EXTENDED_STATE};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Floating point and vector registers, in the layout in which the CPU saves them, 64-byte aligned.
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
    /// Of a thread that has just begun, of the size the machine asks for ([`Cpu::fpu_size`]).
    pub fn initial(bytes: usize) -> Self {
        let mut state = FpuState::zero(bytes.div_ceil(64));
        for (at, word) in EXTENDED_STATE {
            state.bytes_mut(*at, 4).copy_from_slice(&word.to_le_bytes());
        }
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
    /// A system call: [`UserRegisters`](crate::UserRegisters) says which. The thread goes on behind the instruction.
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
    /// Any other exception of the program, as the processor describes it.
    Exception(Exception),
}

/// A cycle counter that programs can read: [`Cpu::now`] is `(counter - base) * rate >> 32`.
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
    /// AT_HWCAP and AT_HWCAP2 for programs: what they may use of the processor.
    fn capabilities(&self) -> (u64, u64);
    /// What the processor says that it is (x86-64: CPUID of a leaf and subleaf), for the architecture's parts; all zero where the machine has
    /// no such thing.
    fn identify(&self, _leaf: u32, _sub: u32) -> [u32; 4] {
        [0; 4]
    }
    /// Rate of the cycle counter in kHz; 0: unknown.
    fn cycle_rate(&self) -> u64 {
        0
    }
    /// Switches a static key of this kernel's code on (crate `static-keys`), one of 64 to 127; when this returns it is on for all its CPUs. Nothing to do where such a key is always on, as on the host.
    fn switch_key_on(&self, _key: u32) {}
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

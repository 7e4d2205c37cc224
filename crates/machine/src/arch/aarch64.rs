//! AArch64: the data that every crate above sees. `platform` has no part for it yet.

use super::{ReturnAddress, UserRegisters};
use crate::UserAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// First address past user space: Linux's `TASK_SIZE` with pages of 4 KiB in four levels.
pub const USER_END: u64 = 1 << 48;

/// The general registers of a user thread. This, [`FpuState`](crate::FpuState) and nothing else is what a
/// thread is made of at the user boundary: what migrates, and what a signal frame saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Registers {
    /// x0 to x30.
    pub x: [u64; 31],
    /// Stack pointer.
    pub sp: u64,
    /// The next instruction.
    pub pc: u64,
    /// Condition flags and modes, as SPSR_EL1 has them.
    pub pstate: u64,
    /// Thread-local storage.
    pub tpidr_el0: u64,
    /// x0 as it was when the system call was made, whose result takes its place (`orig_x0` of Linux).
    pub first_argument: u64,
}

/// Bytes of an instruction; `svc` has been executed when the kernel sees it.
const INSTRUCTION_BYTES: u64 = 4;
const LINK: usize = 30;

impl UserRegisters for Registers {
    fn of_program(entry: u64, stack: u64) -> Self {
        Registers { pc: entry, sp: stack, ..Registers::default() }
    }

    fn instruction(&self) -> u64 {
        self.pc
    }

    fn set_instruction(&mut self, at: u64) {
        self.pc = at;
    }

    fn stack(&self) -> u64 {
        self.sp
    }

    fn set_stack(&mut self, at: u64) {
        self.sp = at;
    }

    fn thread_pointer(&self) -> u64 {
        self.tpidr_el0
    }

    fn set_thread_pointer(&mut self, at: u64) {
        self.tpidr_el0 = at;
    }

    fn call_number(&self) -> u64 {
        self.x[8]
    }

    fn call_arguments(&self) -> [u64; 6] {
        let [_, b, c, d, e, f, ..] = self.x;
        [self.first_argument, b, c, d, e, f]
    }

    fn result(&self) -> u64 {
        self.x[0]
    }

    fn set_result(&mut self, result: u64) {
        self.x[0] = result;
    }

    fn repeat_call(&mut self, number: u64) {
        self.pc -= INSTRUCTION_BYTES;
        self.x[0] = self.first_argument;
        self.x[8] = number;
    }

    fn return_address(&self) -> ReturnAddress {
        ReturnAddress::Known(UserAddr(self.x[LINK]))
    }
}

/// An exception of the program that is no page fault: what ESR_EL1 says, and FAR_EL1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// ESR_EL1.
    pub syndrome: u64,
    /// FAR_EL1.
    pub address: u64,
}

/// FPSR, FPCR and all vector registers are zero at first.
pub(crate) const EXTENDED_STATE: &[(usize, u32)] = &[];

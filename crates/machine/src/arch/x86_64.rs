//! x86-64.

use super::{ReturnAddress, UserRegisters};
use crate::UserAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// First address past user space: Linux's `TASK_SIZE_MAX` with four-level tables (one guard page
/// below the canonical hole).
pub const USER_END: u64 = 0x7fff_ffff_f000;

/// The general registers of a user thread. This, [`FpuState`](crate::FpuState) and nothing else is what a
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

/// Bytes of `syscall`, after which rip stands.
const SYSCALL_BYTES: u64 = 2;

impl UserRegisters for Registers {
    fn of_program(entry: u64, stack: u64) -> Self {
        // Interrupts on, bit 1 always set.
        Registers { rip: entry, rsp: stack, rflags: 0x202, ..Registers::default() }
    }

    #[inline]
    fn instruction(&self) -> u64 {
        self.rip
    }

    fn set_instruction(&mut self, at: u64) {
        self.rip = at;
    }

    fn stack(&self) -> u64 {
        self.rsp
    }

    fn set_stack(&mut self, at: u64) {
        self.rsp = at;
    }

    fn thread_pointer(&self) -> u64 {
        self.fs_base
    }

    fn set_thread_pointer(&mut self, at: u64) {
        self.fs_base = at;
    }

    #[inline]
    fn call_number(&self) -> u64 {
        self.rax
    }

    #[inline]
    fn call_arguments(&self) -> [u64; 6] {
        let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *self;
        [rdi, rsi, rdx, r10, r8, r9]
    }

    #[inline]
    fn result(&self) -> u64 {
        self.rax
    }

    #[inline]
    fn set_result(&mut self, result: u64) {
        self.rax = result;
    }

    fn repeat_call(&mut self, number: u64) {
        self.rip -= SYSCALL_BYTES;
        self.rax = number;
    }

    fn return_address(&self) -> ReturnAddress {
        ReturnAddress::At(UserAddr(self.rsp))
    }
}

/// An exception of the program that is no page fault: its vector (SDM 3A, table 6-1) and error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Number of the exception (SDM 3A, table 6-1).
    pub vector: u8,
    /// Its error code; 0 of those that have none.
    pub code: u64,
}

/// Words of the XSAVE layout (Intel SDM 1, 13.4) that are not zero at first, by their place. A zero XSTATE_BV makes XRSTOR
/// load the initial configuration (SDM 1, 13.8.1); MXCSR and FCW get their reset values here for machines that only have FXSAVE.
pub(crate) const EXTENDED_STATE: &[(usize, u32)] = &[(0, 0x037f), (24, 0x1f80)];

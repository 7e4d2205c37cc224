//! What a user thread is made of on the architecture that this is built for. Everybody else uses [`UserRegisters`] only; the fields are for the
//! `arch` folders of `platform` and `linux`.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use self::x86_64::{Exception, Registers, USER_END};
#[cfg(target_arch = "aarch64")]
pub use aarch64::{Exception, Registers, USER_END};

#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::EXTENDED_STATE;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::EXTENDED_STATE;

use crate::UserAddr;

/// The registers of a user thread, as far as all architectures agree about them.
pub trait UserRegisters: Copy + Default {
    /// Of a program whose first instruction is at `entry`, with an empty stack below `stack`.
    fn of_program(entry: u64, stack: u64) -> Self;

    /// Where the thread goes on.
    fn instruction(&self) -> u64;
    /// The thread goes on at `at`.
    fn set_instruction(&mut self, at: u64);
    /// Stack pointer.
    fn stack(&self) -> u64;
    /// Moves the stack pointer to `at`.
    fn set_stack(&mut self, at: u64);
    /// By which the thread finds its own data (TLS).
    fn thread_pointer(&self) -> u64;
    /// Sets it to `at` (CLONE_SETTLS).
    fn set_thread_pointer(&mut self, at: u64);

    /// After [`Trap::Syscall`](crate::Trap::Syscall): which call it is.
    fn call_number(&self) -> u64;
    /// And its arguments, first to sixth.
    fn call_arguments(&self) -> [u64; 6];
    /// What the call answers. Where a register is an argument, too, the argument is gone.
    fn result(&self) -> u64;
    /// What the call is to answer: a value, or a negated errno.
    fn set_result(&mut self, result: u64);
    /// After a call, also with a result set: the thread goes on by making call `number` with the same arguments.
    fn repeat_call(&mut self, number: u64);

    /// Where a function returns to that has called nothing yet.
    fn return_address(&self) -> ReturnAddress;
}

/// Where a return address stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnAddress {
    /// In a register: this one.
    Known(UserAddr),
    /// In memory, here.
    At(UserAddr),
}

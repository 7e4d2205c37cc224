//! Whole nodes in one process: every service of a kernel, the Linux ABI on top, and programs that run on it.
//!
//! What is not real is below the services (memory, lanes, clock) and above the system calls: a program is no machine
//! code but a [`user::User`] that makes the calls it is told to make, through the same registers and the same
//! user memory. All between is what runs in the kernel.
//!
//! | file | subject |
//! |---|---|
//! | cpu.rs | the CPUs of one kernel |
//! | user.rs | user mode: threads that do as they are told |
//! | elf.rs | the program they run, as a file |
//! | machine.rs | kernels put together, and the order of their steps |

pub mod cpu;
pub mod elf;
pub mod machine;
pub mod user;

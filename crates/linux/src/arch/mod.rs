//! What of the Linux ABI differs between architectures. The rest of the crate names this module and [`machine::UserRegisters`], and no register.
//!
//! Each architecture is a folder that offers the names below. There is one, `x86_64`; what AArch64 would need is a folder beside it.
//!
//! | name | what it is |
//! |---|---|
//! | `with_own_calls!` | system calls that only this architecture has |
//! | `Frame`, `Saved`, `restore`, `RED_ZONE` | the frame that a signal handler runs on, and the way back |
//! | `fault_code`, `signal_of` | what a fault is to a signal frame; the signal of an exception |
//! | `clone_arguments`, `set_thread_pointer` | the order of clone's arguments; TLS of a new thread |
//! | `Stat`, `EpollEvent`, `with_time` | structures that are laid out differently |
//! | `cpuinfo`, `caches` | what /proc/cpuinfo and /sys say of the CPUs |
//! | `MAP_32BIT`, `MACHINE`, `MACHINE_32` | a flag of mmap; the names of the machine in uname |

#[cfg(not(target_arch = "x86_64"))]
compile_error!("linux: no folder in src/arch for this architecture");

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::*;

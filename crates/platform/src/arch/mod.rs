//! The processor architecture: registers, traps, how page tables are encoded, interrupts between CPUs, the counter, the first and
//! the last instruction of a kernel. The rest of the platform names this module and no register.
//!
//! Each architecture is a folder that offers the names below. There is one, `x86_64`; a second one (AArch64, say) is a folder beside it, with
//! the same names, and `machine/src/arch` and `linux/src/arch` have their parts of it.
//!
//! | name | what it is |
//! |---|---|
//! | `entry`, `translate` | what an entry of a page table says; where a table leads |
//! | `memory_map` | where fixed things lie in physical memory |
//! | `Head`, `set_area`, `area`, `has_area` | what the architecture keeps in each CPU's area ([`crate::percpu`]), and the register that leads there |
//! | `prepare_cpu`, `prepare_traps`, `prepare_timer`, `init_cpu`, `ThisCpu` | a CPU's set-up; user mode, as [`machine::Cpu`] |
//! | `Mmu`, `flush_page`, `load_kernel_root` | [`crate::paging::Hardware`]; a kernel's own translations |
//! | `Signal`, `send`, `send_unmaskable`, `reset`, `hardware_id`, `interrupt_controller` | interrupts between CPUs; for the log, how |
//! | `accept_interrupts`, `halt_until_interrupt`, `is_halt`, `message_interrupt`, `DEVICE_VECTORS` | interrupts of this CPU and of devices |
//! | `serialize`, `store_code` | what a change of code asks for ([`crate::patching`]) |
//! | `ticks`, `measure_rates` | the counter that the clock is made of |
//! | `cpu_id`, `cpu_node` | CPUs in ACPI's tables |
//! | `Launch`, `launch`, `call_on` | starting another CPU; another stack for this one |
//! | `random`, `uart`, `pci` | the random instruction, the serial port, PCI without a memory window |
//! | `selftest` | its part of `cob.selftest=platform` |
//! | `exit_machine`, `halt`, `here` | the end of the machine or of a CPU; where this CPU is |

#[cfg(not(target_arch = "x86_64"))]
compile_error!("platform: no folder in src/arch for this architecture");

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use self::x86_64::*;

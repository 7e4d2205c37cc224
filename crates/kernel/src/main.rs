//! The kernel image. As thin as it can be: the platform calls `kernel_main` on the boot CPU of every kernel,
//! which builds the services on the platform and then runs tasks until the machine ends.
//!
//! | file | subject |
//! |---|---|
//! | services.rs | one kernel's services (`linux::node`) on the lanes and devices of this machine |
//! | cpu.rs | what a CPU does all day: fabric, timers, tasks, idling |
//! | control.rs | what kernels say about themselves: joining, status, booting others |
//! | report.rs | what the host command prints about the kernels |
//! | pressure.rs | what goes when memory runs out |
//! | death.rs | what a panic ends, and how the others go on without a dead kernel |
//! | audit.rs | is anything left over when the programs have ended? |
//! | inject.rs | messages that come late, for tests |
//! | root.rs | the root file system and /dev, on the kernel that has the devices |
//! | tracing.rs | which events are recorded |
//! | watch.rs | heartbeats, and what becomes of a kernel that hangs |
//! | terminal.rs | terminals ask processes about sessions and groups |
//! | init.rs | runs the program that the host asked for |
//! | console.rs | what runs when there is no host command: an initramfs and a serial line |
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

/// On a host this package only exists so that the workspace builds.
#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
extern crate alloc;
#[cfg(target_os = "none")]
mod audit;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod control;
#[cfg(target_os = "none")]
mod cpu;
#[cfg(target_os = "none")]
mod death;
#[cfg(target_os = "none")]
mod init;
#[cfg(target_os = "none")]
mod inject;
#[cfg(target_os = "none")]
mod pressure;
#[cfg(target_os = "none")]
mod report;
#[cfg(target_os = "none")]
mod root;
#[cfg(target_os = "none")]
mod services;
#[cfg(target_os = "none")]
mod tracing;
#[cfg(target_os = "none")]
mod watch;

#[cfg(target_os = "none")]
platform::entry!(kernel_main);

#[cfg(target_os = "none")]
fn kernel_main(boot: platform::Boot) -> ! {
    log::info!("kernel {} on CPUs {:?}, {}", boot.kernel, boot.cpus, platform::interrupt_controller());
    match platform::plan::option(boot.command_line(), "cob.selftest") {
        Some("platform") => platform::selftest::run(&boot),
        Some("stack") => platform::selftest::overflow_stack(),
        _ => {}
    }
    tracing::start(boot.command_line(), boot.kernel);
    let kernel = services::Kernel::start(&boot);
    control::start(kernel);
    watch::start(kernel);
    pressure::start(kernel);
    kernel.scheduler.spawn(kernel.system.sample_load());
    if boot.kernel == machine::KernelId::PRIMARY {
        init::start(kernel);
    } else {
        root::drive_disks(kernel);
    }
    cpu::run(kernel)
}

//! The kernel image. As thin as it can be: the platform calls `kernel_main` on the boot CPU of every
//! kernel, which wires the services together.
#![cfg_attr(target_os = "none", no_std, no_main)]

/// On a host this package only exists so that the workspace builds.
#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
platform::entry!(kernel_main);

#[cfg(target_os = "none")]
fn kernel_main(boot: platform::Boot) -> ! {
    log::info!("kernel {} on {:?}, {:x?}", boot.kernel, boot.cpus, boot.memory);
    if platform::plan::option(boot.command_line(), "cob.selftest") == Some("platform") {
        platform::selftest::run(&boot);
    }
    loop {
        platform::idle();
    }
}

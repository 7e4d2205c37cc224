//! The kernel image. As thin as it can be: the platform calls `kernel_main` on the boot CPU of every
//! kernel, which wires the services together.
#![cfg_attr(target_os = "none", no_std, no_main)]

/// On a host this package only exists so that the workspace builds.
#[cfg(not(target_os = "none"))]
fn main() {}

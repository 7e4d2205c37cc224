//! The image's layout is the platform's; a bin's link arguments can only come from its own package.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../platform/src/arch/x86_64/kernel.ld");
    println!("cargo:rerun-if-changed={script}");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        println!("cargo:rustc-link-arg-bins=-T{script}");
        println!("cargo:rustc-link-arg-bins=-zmax-page-size=4096");
        // One copy of functions that are the same code for different types. Nothing here compares their addresses; a backtrace may name
        // another function of the same code.
        println!("cargo:rustc-link-arg-bins=--icf=all");
    }
}

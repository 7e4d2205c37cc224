//! The vDSO's page (user/vdso): a shared object for programs, made by the C compiler that links programs of the host. It is x86-64's only.

use std::{env, fs, path::PathBuf, process::Command};

const PAGE: usize = 4096;

fn main() {
    if env::var("CARGO_CFG_TARGET_ARCH").unwrap() != "x86_64" {
        return;
    }
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../user/vdso");
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    println!("cargo:rerun-if-changed={}", source.display());
    let object = out.join("vdso.so");
    let options = [
        "-O2 -fPIC -shared -nostdlib -ffreestanding -fno-stack-protector -fcf-protection=none -Wall -Wextra -Werror",
        "-Wl,-soname,linux-vdso.so.1 -Wl,--hash-style=both -Wl,--build-id=none -Wl,--eh-frame-hdr -Wl,-z,noexecstack -s",
    ];
    let mut compile = Command::new(env::var("CC").unwrap_or_else(|_| String::from("cc")));
    compile.args(options.iter().flat_map(|line| line.split(' ')));
    compile
        .arg(format!("-Wl,-T,{}", source.join("vdso.ld").display()))
        .arg("-o")
        .arg(&object)
        .arg(source.join("vdso.c"));
    let status = compile.status().expect("the vDSO needs a C compiler");
    assert!(status.success(), "{compile:?}");
    // Sections are for linkers: what is behind the segment (p_filesz of the first program header) is theirs, and goes.
    let mut page = fs::read(object).unwrap();
    page.truncate(u64::from_le_bytes(page[64 + 32..64 + 40].try_into().unwrap()) as usize);
    page[0x28..0x30].fill(0); // e_shoff
    page[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    page.resize(PAGE, 0);
    fs::write(out.join("vdso.page"), page).unwrap();
}

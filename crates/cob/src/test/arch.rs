//! What is x86-64 stays in folders called `arch`; all else compiles for another architecture as well.

use std::fs;
use std::path::Path;

use super::cargo::{bare_metal_words, cargo, outcome};
use super::check::entries;

/// Crates that have a folder for x86-64 only, and the one that needs both.
const NOT_NEUTRAL: [&str; 3] = ["kernel", "linux", "platform"];

/// Programs of this machine, and what they know of programs inside: Cob's own architecture is not in them.
const HOSTED: [&str; 5] = ["cob", "fuzz", "profile", "sim", "traces"];

/// What names an architecture.
const WORDS: [&str; 26] = [
    "rax",
    "rbx",
    "rcx",
    "rdx",
    "rsi",
    "rdi",
    "rbp",
    "rsp",
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
    "rip",
    "rflags",
    "fs_base",
    "gs_base",
    "cr0",
    "cr2",
    "cr3",
    "cr4",
    "target_arch",
    "msr",
];

/// The same within words.
const PARTS: [&str; 3] = ["asm!", "core::arch", "x86_64::"];

/// Checks the neutral crates for AArch64, and says which they are.
///
/// # Errors
///
/// What the compiler says.
pub fn compiles_elsewhere(project: &Path) -> Result<(), String> {
    let neutral = neutral(&project.join("crates"))?;
    println!("        neutral: {}", neutral.join(" "));
    let words = bare_metal_words().into_iter().map(|word| word.replace("x86_64", "aarch64"));
    let mut command = cargo(project);
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", project.join("target/neutral"));
    command.arg("check").args(neutral.iter().flat_map(|name| ["-p", name])).args(words);
    outcome(&mut command).map(|_| ())
}

/// The crates of the kernel that are to be the same on every architecture.
fn neutral(crates: &Path) -> Result<Vec<String>, String> {
    let mut neutral = Vec::new();
    for member in entries(crates)? {
        let name = member.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let known = NOT_NEUTRAL.iter().chain(&HOSTED).any(|other| *other == name);
        if !known && member.join("Cargo.toml").is_file() {
            neutral.push(name);
        }
    }
    Ok(neutral)
}

/// # Errors
///
/// Each line of a kernel's crate, outside of the folders `arch`, that names a register or chooses by architecture.
pub fn names_stay_in_arch(crates: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    for member in entries(crates)? {
        let name = member.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let source = member.join("src");
        if source.is_dir() && !HOSTED.contains(&name.as_str()) {
            look_into(&source, &mut wrong)?;
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

fn look_into(directory: &Path, wrong: &mut Vec<String>) -> Result<(), String> {
    for entry in entries(directory)? {
        if entry.is_dir() {
            if entry.file_name().is_none_or(|name| name != "arch") {
                look_into(&entry, wrong)?;
            }
            continue;
        }
        let text = fs::read_to_string(&entry).map_err(|error| format!("{}: {error}", entry.display()))?;
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = named(line) {
                wrong.push(format!("{}:{}: {word}", entry.display(), number + 1));
            }
        }
    }
    Ok(())
}

/// The first word of a line that names an architecture.
fn named(line: &str) -> Option<&str> {
    let mut words = line.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    words.find(|word| WORDS.contains(word)).or_else(|| PARTS.into_iter().find(|part| line.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_crates_name_no_register_outside_of_arch() {
        assert_eq!(names_stay_in_arch(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")), Ok(()));
    }

    #[test]
    fn a_register_is_found_in_code_and_in_comments() {
        assert_eq!(named("    context.registers.rax = value;"), Some("rax"));
        assert_eq!(named("/// The stack pointer (rsp)."), Some("rsp"));
        assert_eq!(named("use x86_64::instructions::tlb;"), Some("x86_64::"));
        assert_eq!(named("unsafe { asm!(\"cli\") }"), Some("asm!"));
        assert_eq!(named("#[cfg(target_arch = \"x86_64\")]"), Some("target_arch"));
        assert_eq!(named("// arch/x86_64/cpu/trap.rs: grip, tripped, r88, asm-generic"), None);
    }

    #[test]
    fn folders_called_arch_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one/src/arch/a.rs", "one/src/b/arch/c.rs", "one/src/b/d.rs", "sim/src/e.rs"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "fn f() {}\nlet rip = 1;\n").unwrap();
        }
        let complaint = names_stay_in_arch(dir.path()).unwrap_err();
        assert!(complaint.ends_with("one/src/b/d.rs:2: rip") && complaint.lines().count() == 1, "{complaint}");
    }
}

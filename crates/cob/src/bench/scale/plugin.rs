//! The plugin of QEMU (`tests/bench/scale/plugin`): builds it, says how QEMU is to load it, and reads what it wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::model::{Code, Counted, Cpu, Pair, NODE};

/// Compiles the plugin; it needs no header of QEMU.
pub fn build(source: &Path, place: &Path) -> Result<PathBuf> {
    let library = place.join("plugin.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o"]).arg(&library).arg(source);
    let output = gcc.output().context("gcc")?;
    if !output.status.success() {
        bail!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(library)
}

/// QEMU's -plugin.
pub fn option(library: &Path, out: &Path, timer: u64) -> String {
    format!("{},out={},node={NODE},skip={timer:x}", library.display(), out.display())
}

/// The measurements in a file, in their order, without the operations.
pub fn read(text: &str) -> Result<Vec<Counted>> {
    let mut all = Vec::new();
    let mut one = Counted::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(number).collect();
        match (kind, &numbers[..]) {
            ("BEGIN", []) => one = Counted::default(),
            ("CPU", [_, user @ .., a, b, c, d, e]) if user.len() == 5 => one.cpus.push(Cpu {
                instructions: [user[0], *a],
                transfers: [[user[1], user[2]], [*b, *c]],
                recalls: [[user[3], user[4]], [*d, *e]],
            }),
            ("LINES", [user, kernel, hottest]) => {
                one.distinct = [*user, *kernel];
                one.hottest = *hottest;
            }
            ("PAIR", [at, writer, transfers, recalls, _]) => {
                one.pairs.push(Pair { at: *at, writer: *writer, transfers: *transfers, recalls: *recalls });
            }
            ("CODE", [at, instructions, executed]) => {
                one.codes.push(Code { at: *at, instructions: *instructions, executed: *executed });
            }
            ("END", []) => all.push(std::mem::take(&mut one)),
            _ => bail!("the plugin wrote {line:?}"),
        }
    }
    Ok(all)
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_writes_is_read() {
        let text = "BEGIN\nCPU 0 10 1 2 3 4 20 5 6 7 8\nCPU 1 11 0 0 0 0 21 0 0 0 0\nLINES 1 2 9\nPAIR 0xff 0 4 5 1\nCODE 0x10 8 2\nEND\n\
                    BEGIN\nLINES 0 0 0\nEND\nBEGIN\nCPU 0 1 1 1 1 1 1 1 1 1 1\n";
        let all = read(text).unwrap();
        assert_eq!(all.len(), 2);
        let cpu = Cpu { instructions: [10, 20], transfers: [[1, 2], [5, 6]], recalls: [[3, 4], [7, 8]] };
        assert_eq!((all[0].cpus.len(), &all[0].cpus[0], all[0].distinct, all[0].hottest), (2, &cpu, [1, 2], 9));
        assert_eq!(all[0].pairs, [Pair { at: 255, writer: 0, transfers: 4, recalls: 5 }]);
        assert_eq!(all[0].codes, [Code { at: 16, instructions: 8, executed: 2 }]);
        assert!(read("BEGIN\nCPU 0 1\n").is_err());
    }
}

//! Names for addresses in the kernels: Cob's from its image, Linux' from /proc/kallsyms of one more machine, because Debian's package has no
//! table of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::bench::machines::{Setup, System};

/// Functions of a kernel image by their first address.
pub struct Image(BTreeMap<u64, String>);

impl Image {
    pub fn read(kernel: &Path) -> Result<Image> {
        let output = Command::new("nm").args(["-C", "--defined-only"]).arg(kernel).output().context("nm")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let symbols = text.lines().filter_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            let code = kind.eq_ignore_ascii_case("t");
            Some((u64::from_str_radix(address, 16).ok()?, name.to_string())).filter(|_| code)
        });
        Ok(Image(symbols.collect()))
    }

    pub fn address(&self, name: &str) -> Option<u64> {
        self.0.iter().find_map(|(address, known)| (known == name).then_some(*address))
    }

    pub fn name(&self, address: u64) -> Option<&str> {
        self.0.range(..=address).next_back().map(|(_, name)| name.as_str())
    }
}

/// What a machine with Linux says of addresses and names: the words again as addresses, with the symbol of each.
pub fn ask_linux(setup: &Setup, linux: &System, words: &[String]) -> Result<Vec<(u64, String)>> {
    let (text, _) = setup.watch(linux, &format!("names {}", words.join(" ")), |text| {
        text.contains("BENCH-END").then(|| text.to_string())
    })?;
    let symbols = text.lines().filter_map(|line| {
        let (address, name) = line.trim_end().strip_prefix("SYMBOL 0x")?.split_once(' ')?;
        Some((u64::from_str_radix(address, 16).ok()?, name.to_string()))
    });
    let symbols: Vec<_> = symbols.collect();
    if symbols.len() != words.len() {
        bail!("{}: {} of {} symbols were told of", linux.name, symbols.len(), words.len());
    }
    Ok(symbols)
}

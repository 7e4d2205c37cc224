//! Names for the addresses in a panicking kernel's log. The kernel prints numbers only: it carries no symbols,
//! and the image with them lies here.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The kernel is linked in the uppermost 2 GiB (`-Ccode-model=kernel`), so such a number is an address in it.
const PREFIX: &str = "0xffffffff";

/// The kernel addresses in a line of the log.
pub fn addresses(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.len() == 18 && word.starts_with(PREFIX) && word.as_bytes()[10] >= b'8')
}

/// Function, file and line for every address in `lines`; nothing where binutils' addr2line knows nothing.
pub fn name(kernel: &Path, lines: &[&str]) -> BTreeMap<String, String> {
    let wanted: Vec<&str> = lines.iter().flat_map(|line| addresses(line)).collect();
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let output = Command::new("addr2line").args(["-Cfpe"]).arg(kernel).args(&wanted).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let named = wanted.iter().zip(text.lines()).filter(|(_, name)| !name.starts_with("??"));
    named.map(|(address, name)| (address.to_string(), name.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_addresses_are_found_in_any_dress() {
        let found: Vec<&str> =
            addresses("  #2: 0xffffffff80101abc [0xffffffff8fffffff] 0x12 0xffff888000000000").collect();
        assert_eq!(found, ["0xffffffff80101abc", "0xffffffff8fffffff"]);
        assert!(name(Path::new("/nonexistent"), &["0xffffffff80101abc"]).is_empty());
    }
}

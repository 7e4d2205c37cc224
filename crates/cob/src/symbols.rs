//! What the addresses in a panicking kernel's log are: which of them are the chain of calls, and their names. The kernel prints numbers only: it
//! carries neither symbols nor frames, and the image with both lies here.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::Command,
};

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

/// The lines, each with the name of the first address in it.
pub fn with_names(kernel: Option<&Path>, lines: &[&str]) -> Vec<String> {
    let names = kernel.map(|kernel| name(kernel, lines)).unwrap_or_default();
    let named = |line: &&str| match addresses(line).next().and_then(|address| names.get(address)) {
        Some(name) => format!("{line}  {name}"),
        None => line.to_string(),
    };
    lines.iter().map(named).collect()
}

/// How far above the stack pointer the caller's begins, at each place of the code (DWARF 5, 6.4).
pub struct Frames {
    /// From an address on; None where that is not known.
    rows: BTreeMap<u64, Option<u64>>,
}

impl Frames {
    /// Those of an image; none where binutils' readelf knows nothing.
    pub fn of(kernel: &Path) -> Frames {
        let output = Command::new("readelf").args(["-W", "--debug-dump=frames-interp"]).arg(kernel).output();
        Frames::parse(&String::from_utf8_lossy(&output.map(|output| output.stdout).unwrap_or_default()))
    }

    fn parse(text: &str) -> Frames {
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        let mut rows = BTreeMap::new();
        for line in text.lines() {
            if let Some((start, end)) = line.split_once(" pc=").and_then(|(_, range)| range.split_once("..")) {
                // At its start only the return address is on the stack.
                number(start).map(|start| rows.insert(start, Some(8)));
                number(end).map(|end| rows.entry(end).or_insert(None));
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            if let (Some(at), Some(frame)) = (words.next().filter(|at| at.len() == 16).and_then(number), words.next()) {
                rows.insert(at, frame.strip_prefix("rsp+").and_then(|bytes| bytes.parse().ok()));
            }
        }
        Frames { rows }
    }

    fn at(&self, pc: u64) -> Option<u64> {
        self.rows.range(..=pc).next_back().and_then(|(_, bytes)| *bytes)
    }

    /// Of the words that a dying kernel found on its stack (`platform::panic`), leaves out those that no call returns to. Where it is not known
    /// which do, all stay.
    pub fn chains<'a>(&self, lines: &[&'a str]) -> Vec<&'a str> {
        // By kernel: how far up the stack the next return address lies.
        let mut next: HashMap<&str, Option<u64>> = HashMap::new();
        let mut is_one = |line: &&&'a str| {
            let at = line.split_once("] [k").and_then(|(_, line)| line.split_once("]   at "));
            let Some((kernel, rest)) = at else { return true };
            let Some(pc) = addresses(rest).next().and_then(|pc| u64::from_str_radix(&pc[2..], 16).ok()) else {
                return true;
            };
            let up = rest.strip_suffix(" up the stack").and_then(|rest| rest.split_once(", "));
            let Some(up) = up.and_then(|(_, up)| up.parse::<u64>().ok()) else {
                next.insert(kernel, self.at(pc).and_then(|frame| frame.checked_sub(8)));
                return true;
            };
            let expected = next.entry(kernel).or_default();
            match *expected {
                Some(there) if up < there => return false,
                Some(there) if up == there => *expected = self.at(pc).map(|frame| up + frame),
                _ => *expected = None,
            }
            true
        };
        lines.iter().filter(|line| is_one(line)).copied().collect()
    }
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

    #[test]
    fn a_chain_of_calls_is_found_among_what_old_calls_left() {
        let frames = Frames::parse(
            "00000018 0000000000000014 00000000 FDE cie=00000000 pc=ffffffff80000010..ffffffff80000020\n\n\
             00000090 0000000000000044 00000000 FDE cie=00000000 pc=ffffffff80000100..ffffffff80000200\n   \
             LOC           CFA      rbx   ra\n\
             ffffffff80000100 rsp+8    u     c-8\n\
             ffffffff80000101 rsp+32   c-16  c-8\n\n\
             00000090 0000000000000044 00000000 FDE cie=00000000 pc=ffffffff80000300..ffffffff80000400\n   \
             LOC           CFA      rbp   ra\n\
             ffffffff80000301 rbp+16   c-16  c-8\n",
        );
        let log = [
            "[    1.000001] [k1] PANIC kernel 1 cpu 1: no",
            "[    1.000002] [k1]   at 0xffffffff80000150",
            "[    1.000003] [k1]   at 0xffffffff80000010, 0 up the stack",
            "[    1.000004] [k2]   at 0xffffffff80000012",
            "[    1.000005] [k1]   at 0xffffffff80000012, 24 up the stack",
            "[    1.000006] [k1]   at 0xffffffff80000150, 32 up the stack",
            "[    1.000007] [k2]   at 0xffffffff80000350, 0 up the stack",
            "[    1.000008] [k1]   at 0xffffffff80000151, 48 up the stack",
            "[    1.000009] [k1]   at 0xffffffff80000012, 64 up the stack",
            "[    1.000010] [k2]   at 0xffffffff80000151, 8 up the stack",
            "[    1.000011] [k1] the end",
        ];
        let kept: Vec<usize> =
            frames.chains(&log).iter().map(|line| log.iter().position(|it| it == line).unwrap()).collect();
        assert_eq!(kept, [0, 1, 3, 4, 5, 6, 8, 9, 10]);
        assert_eq!(Frames::parse("").chains(&log), log);
    }
}

//! Code that a program has made itself, as perf reads it from /tmp/perf-PID.map: a line for each function, its start and length in hexadecimal, and its name.

use std::{fs, path::Path, time::SystemTime};

/// Larger files are not read.
const MOST_BYTES: u64 = 1 << 30;

/// The functions of one process.
#[derive(Default)]
pub struct Jit {
    /// Start, end, name; a later line replaces what it overlaps.
    functions: Vec<(u64, u64, String)>,
}

impl Jit {
    /// Reads the file of a process, if it has been written since then: else it is of another process that once had this id.
    pub fn read(directory: &Path, process: u32, since: SystemTime) -> Jit {
        let path = directory.join(format!("perf-{process}.map"));
        let about = fs::metadata(&path).ok();
        let is_of_now =
            about.is_some_and(|about| about.len() <= MOST_BYTES && about.modified().is_ok_and(|time| time >= since));
        let text = if is_of_now { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        Jit::parse(&String::from_utf8_lossy(&text))
    }

    /// The lines of such a file.
    pub fn parse(text: &str) -> Jit {
        let mut functions: Vec<(u64, u64, String)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.splitn(3, ' ');
                let mut number = || {
                    let word = words.next()?;
                    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
                };
                let (start, bytes) = (number()?, number()?);
                Some((start, start.checked_add(bytes)?, words.next()?.to_string()))
            })
            .collect();
        // Of the same place the last line holds.
        functions.reverse();
        functions.sort_by_key(|(start, ..)| *start);
        functions.dedup_by_key(|(start, ..)| *start);
        Jit { functions }
    }

    /// The function at an address, and how far it is into it.
    pub fn function(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, end, name) = &self.functions[after.checked_sub(1)?];
        (address < *end).then_some((name, address - start))
    }
}

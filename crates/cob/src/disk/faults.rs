//! Requests that fail, as `errors=` says: a list of `read`, `write` or `flush`, each with `:N` or `:START-END`, joined by `+`.
//!
//! - `read:START-END`: each read that touches a byte from START up to END (which is not one of them). `write:START-END` likewise.
//! - `read:N`, `write:N`, `flush:N`: the Nth of them since the start, counted from 1, and no other.
//!
//! START and END are bytes, or have a unit: K, M, G. Zeroing counts as writing; a trim never fails. What fails changes nothing.

use std::ops::Range;
use std::str::FromStr;

use super::protocol::Op;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Flush,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    /// Counted from 1.
    Nth(u64),
    Touching(Range<u64>),
}

/// One word of `errors=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    class: Class,
    which: Which,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let wrong = || format!("errors={text}: expected read:START-END, write:START-END, read:N, write:N or flush:N");
        let (class, which) = text.split_once(':').ok_or_else(wrong)?;
        let class = match class {
            "read" => Class::Read,
            "write" => Class::Write,
            "flush" => Class::Flush,
            _ => return Err(wrong()),
        };
        let which = match which.split_once('-') {
            None => Which::Nth(which.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?),
            Some(_) if class == Class::Flush => return Err(format!("errors={text}: a flush has no bytes; flush:N")),
            Some((start, end)) => {
                let range = byte(start).ok_or_else(wrong)?..byte(end).ok_or_else(wrong)?;
                if range.is_empty() {
                    return Err(format!("errors={text}: END must be more than START"));
                }
                Which::Touching(range)
            }
        };
        Ok(Fault { class, which })
    }
}

fn byte(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// The faults of a disk, and how many requests of each class it has seen.
pub struct Faults {
    faults: Vec<Fault>,
    seen: [u64; 3],
}

impl Faults {
    pub fn new(faults: Vec<Fault>) -> Faults {
        Faults { faults, seen: [0; 3] }
    }

    /// Counts the request, and says whether it fails.
    pub fn fails(&mut self, op: Op, offset: u64, length: u32) -> bool {
        let class = match op {
            Op::Read => Class::Read,
            Op::Write { .. } | Op::WriteZeroes { .. } => Class::Write,
            Op::Flush => Class::Flush,
            Op::Trim { .. } => return false,
        };
        let seen = &mut self.seen[class as usize];
        *seen += 1;
        let end = offset + u64::from(length);
        self.faults.iter().any(|fault| {
            fault.class == class
                && match &fault.which {
                    Which::Nth(n) => n == seen,
                    Which::Touching(range) => offset < range.end && range.start < end,
                }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Faults {
        Faults::new(text.split('+').map(|word| word.parse().unwrap()).collect())
    }

    #[test]
    fn what_touches_a_range_fails_always() {
        let mut faults = faults("read:4096-8K+write:1M-2M");
        let mut read = |offset, length| faults.fails(Op::Read, offset, length);
        assert!(!read(0, 4096) && read(0, 4097) && read(4096, 1) && read(8191, 512) && !read(8192, 512));
        assert!(read(4096, 1), "again");
        assert!(!faults.fails(Op::Write { durable: true }, 4096, 512));
        assert!(faults.fails(Op::Write { durable: true }, 1 << 20, 512));
        assert!(faults.fails(Op::WriteZeroes { durable: false, allocate: false }, 0, 4 << 20));
        assert!(!faults.fails(Op::Trim { durable: false }, 0, 4 << 20) && !faults.fails(Op::Flush, 0, 0));
    }

    #[test]
    fn the_nth_fails_once() {
        let mut faults = faults("write:2+write:3+flush:1+read:1-2");
        let write = Op::Write { durable: false };
        let failed: Vec<bool> = (0..5).map(|_| faults.fails(write, 0, 512)).collect();
        assert_eq!(failed, [false, true, true, false, false]);
        assert_eq!([(); 2].map(|()| faults.fails(Op::Flush, 0, 0)), [true, false]);
    }

    #[test]
    fn silly_words_are_one_clear_line() {
        for text in [
            "",
            "read",
            "read:",
            "read:0",
            "read:-1",
            "read:x",
            "write:5-5",
            "write:9-4",
            "flush:0-4096",
            "trim:1",
            "read:1T-2T",
            "read:1-2-3",
            "READ:1",
            "read:99999999999999999999",
            "read:1-99999999999G",
            "read:1+2",
        ] {
            let complaint = text.parse::<Fault>().unwrap_err();
            assert!(complaint.contains("errors=") && !complaint.contains('\n'), "{text}: {complaint}");
        }
    }
}

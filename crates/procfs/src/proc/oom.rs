//! oom_score, oom_score_adj and the older oom_adj (man 5 proc): who goes when memory is used up.

use super::{
    made::{put, Text},
    Subject,
};
use ::machine::{errno::Result, BoxFuture, Errno};
use abi::capability;
use alloc::{boxed::Box, vec::Vec};
use core::num::IntErrorKind;
use fs::{synthetic::Content, Caller};

/// OOM_SCORE_ADJ_MAX, and what oom_adj has for it, and for the least.
const MOST: i32 = 1000;
const OLD_MOST: i32 = 15;
const OLD_NEVER: i32 = -17;

/// Of a write more is not looked at (PROC_NUMBUF).
const NUMBER: usize = 12;

/// Two thirds of a thousand for a process that has nothing, twice that for one that goes first, as on Linux.
fn points(resident: u64, machine: u64, adjust: i16) -> i64 {
    if adjust == ::process::OOM_NEVER {
        return 0;
    }
    let thousandths = resident * 1000 / machine.max(1);
    (1000 + thousandths as i64 + i64::from(adjust)).max(0) * 2 / 3
}

pub(super) async fn score(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let machine = subject.proc.system.vm.machine_pages();
    let mut text = Text::default();
    put!(text, "{}\n", if view.zombie { 0 } else { points(view.resident_pages, machine, view.shared.oom.0) });
    Ok(text.0)
}

/// oom_score_adj, or oom_adj.
pub(super) struct Adjust {
    pub subject: Subject,
    pub old_file: bool,
}

impl Content for Adjust {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let now = i32::from(self.subject.view(caller).await?.shared.oom.0);
            let mut text = Text::default();
            put!(text, "{}\n", if self.old_file { to_old(now) } else { now });
            Ok(text.0)
        })
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let data = &data[..data.len().min(NUMBER)];
            let wanted = number(data)?;
            let adjust = match self.old_file {
                true => from_old(wanted)?,
                false if (-MOST..=MOST).contains(&wanted) => wanted,
                false => return Err(Errno::EINVAL),
            };
            let privileged = caller.credentials.can(capability::SYS_RESOURCE);
            let system = &self.subject.proc.system;
            system.adjust_oom(self.subject.pid, adjust as i16, self.old_file, privileged).await?;
            Ok(data.len())
        })
    }
}

fn to_old(adjust: i32) -> i32 {
    match adjust {
        MOST => OLD_MOST,
        other => (other * -OLD_NEVER / MOST).min(OLD_MOST),
    }
}

fn from_old(old: i32) -> Result<i32> {
    match old {
        OLD_MOST => Ok(MOST),
        OLD_NEVER..OLD_MOST => Ok(old * MOST / -OLD_NEVER),
        _ => Err(Errno::EINVAL),
    }
}

/// An int between white space: decimal, octal behind a zero, or hexadecimal (kstrtoint).
fn number(data: &[u8]) -> Result<i32> {
    // A string ends where it ends.
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let text = core::str::from_utf8(&data[..end]).map_err(|_| Errno::EINVAL)?.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, base) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(rest) => (rest, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return Err(Errno::EINVAL);
    }
    let value = i64::from_str_radix(digits, base).map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => Errno::ERANGE,
        _ => Errno::EINVAL,
    })?;
    i32::try_from(if negative { -value } else { value }).map_err(|_| Errno::ERANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        let good: [(&[u8], i32); 9] = [
            (b"500", 500),
            (b" -7 \n", -7),
            (b"0x10", 16),
            (b"010", 8),
            (b"+4", 4),
            (b"0", 0),
            (b"-0x1F", -31),
            (b"12\0x", 12),
            (b"-2147483648", i32::MIN),
        ];
        for (text, value) in good {
            assert_eq!(number(text), Ok(value), "{text:?}");
        }
        for wrong in [&b""[..], b"\n", b"x", b"5x", b"12 13", b"--1", b"0x", b"09", b"0x-1"] {
            assert_eq!(number(wrong), Err(Errno::EINVAL), "{wrong:?}");
        }
        assert_eq!([number(b"99999999999"), number(b"2147483648")], [Err(Errno::ERANGE); 2]);
    }

    #[test]
    fn the_old_scale_is_kept() {
        assert_eq!([-1000, -60, 0, 58, 59, 999, 1000].map(to_old), [-17, -1, 0, 0, 1, 15, 15]);
        assert_eq!([-17, -16, 0, 5, 14, 15].map(from_old), [-1000, -941, 0, 294, 823, 1000].map(Ok));
        assert_eq!([from_old(-18), from_old(16)], [Err(Errno::EINVAL); 2]);
    }

    #[test]
    fn points_follow_memory_and_adjustment() {
        assert_eq!([0, 500, 1000, -500, -1000].map(|adjust| points(0, 1000, adjust)), [666, 1000, 1333, 333, 0]);
        assert_eq!([points(500, 1000, 0), points(3, 1000, -999)], [1000, 2]);
    }
}

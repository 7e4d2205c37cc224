//! Periodic timers: their expirations follow from the clock, by division, however many were missed. No kernel makes up for missed ones
//! one by one: an interval of a nanosecond would keep its CPU for ever.

/// The last moment there is, in ns: `KTIME_MAX` of Linux. What a program asks for beyond it becomes this.
pub const END: u64 = i64::MAX as u64;

/// A kernel wakes whoever waits for a periodic timer again this long (ns) after it was last asked to, or later: a wake-up takes a few us.
pub const GRAIN_NS: u64 = 50_000;

/// `wait` from `now`.
pub fn after(now: u64, wait: u64) -> u64 {
    now.saturating_add(wait).min(END)
}

/// How often a timer has expired at `now` that expires first at `next`, and then each `interval`. 0: only once.
pub fn expirations(next: u64, interval: u64, now: u64) -> u64 {
    match now.checked_sub(next) {
        None => 0,
        Some(since) => 1 + since.checked_div(interval).unwrap_or(0),
    }
}

/// Its first expiration after `now`.
pub fn first_after(next: u64, interval: u64, now: u64) -> Option<u64> {
    match expirations(next, interval, now) {
        0 => Some(next),
        _ if interval == 0 => None,
        missed => Some(after(next, missed.saturating_mul(interval))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_expirations_are_counted_by_division() {
        assert_eq!((expirations(100, 10, 99), first_after(100, 10, 99)), (0, Some(100)));
        assert_eq!((expirations(100, 10, 100), first_after(100, 10, 100)), (1, Some(110)));
        assert_eq!((expirations(100, 10, 135), first_after(100, 10, 135)), (4, Some(140)));
        assert_eq!((expirations(100, 0, 135), first_after(100, 0, 135)), (1, None));
    }

    #[test]
    fn the_longest_interval_ends_with_time() {
        assert_eq!((expirations(1, END, 5), first_after(1, END, 5)), (1, Some(END)));
        assert_eq!(first_after(1, u64::MAX, 5), Some(END));
        assert_eq!(expirations(0, 1, END), 1 + END);
        assert_eq!(after(5, u64::MAX), END);
    }
}

//! Time: structures, clocks, sleeping (man 7 time).

pub(crate) mod clock;
pub(crate) mod itimer;
pub(crate) mod posix;
pub(crate) mod sleep;

use machine::{errno::Result, period, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl Timespec {
    pub fn from_ns(ns: u64) -> Self {
        Timespec { seconds: (ns / SECOND) as i64, nanoseconds: (ns % SECOND) as i64 }
    }

    /// Nanoseconds, [`period::END`] at most. EINVAL if negative or not normalized.
    pub fn to_ns(self) -> Result<u64> {
        if self.seconds < 0 || !(0..SECOND as i64).contains(&self.nanoseconds) {
            return Err(Errno::EINVAL);
        }
        Ok(period::after((self.seconds as u64).saturating_mul(SECOND), self.nanoseconds as u64))
    }
}

/// `struct itimerspec`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Itimerspec {
    pub interval: Timespec,
    pub value: Timespec,
}

/// `struct timeval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Timeval {
    pub seconds: i64,
    pub microseconds: i64,
}

impl Timeval {
    pub fn from_ns(ns: u64) -> Self {
        Timeval { seconds: (ns / SECOND) as i64, microseconds: (ns % SECOND / 1000) as i64 }
    }

    pub fn to_ns(self) -> Result<u64> {
        if self.seconds < 0 || !(0..1_000_000).contains(&self.microseconds) {
            return Err(Errno::EINVAL);
        }
        Ok(period::after((self.seconds as u64).saturating_mul(SECOND), self.microseconds as u64 * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_not_normalized_are_refused() {
        assert_eq!(Timespec { seconds: 1, nanoseconds: 5 }.to_ns(), Ok(SECOND + 5));
        for bad in [(-1, 0), (0, -1), (0, SECOND as i64)] {
            assert_eq!(Timespec { seconds: bad.0, nanoseconds: bad.1 }.to_ns(), Err(Errno::EINVAL));
        }
        assert_eq!(Timespec { seconds: i64::MAX, nanoseconds: 0 }.to_ns(), Ok(period::END));
        assert_eq!(Timeval::from_ns(1_500_000_000), Timeval { seconds: 1, microseconds: 500_000 });
    }
}

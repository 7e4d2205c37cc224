//! How a task is scheduled (man 7 sched).

use crate::deadline::Reservation;

/// The policy of a task, with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Kernel work: short, runs before any thread, is not stopped.
    Kernel,
    /// SCHED_DEADLINE.
    Deadline(Reservation),
    /// SCHED_FIFO and SCHED_RR with a priority of 1..=99.
    Fifo(u8),
    RoundRobin(u8),
    /// SCHED_OTHER and SCHED_BATCH with a nice value of -20..=19.
    Normal(i8),
    Batch(i8),
    /// SCHED_IDLE: what the others leave.
    Idle,
}

/// `sched_prio_to_weight` of Linux: each step of nice is worth 1.25 times the CPU time.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];
/// Weight of nice 0; what a thread of ordinary priority is worth as load.
pub const UNIT: u32 = 1024;
const IDLE_WEIGHT: u32 = 3;
/// [`Class::level`] of the deadline class: above all priorities.
pub(crate) const DEADLINE_LEVEL: u8 = 102;

impl Class {
    /// Share of the fair class.
    pub(crate) fn weight(self) -> u32 {
        match self {
            Class::Normal(nice) | Class::Batch(nice) => WEIGHTS[(i32::from(nice).clamp(-20, 19) + 20) as usize],
            Class::Idle => IDLE_WEIGHT,
            _ => UNIT,
        }
    }

    /// What it is worth as load: its share of the fair class, as far as one thread can use that.
    pub fn worth(self) -> usize {
        self.weight().min(UNIT) as usize
    }

    /// Priority in the real-time class.
    pub(crate) fn priority(self) -> Option<u8> {
        match self {
            Class::Fifo(priority) | Class::RoundRobin(priority) => Some(priority),
            _ => None,
        }
    }

    /// Who may take the CPU from whom, for choosing a CPU: more is more urgent, 0 is an idle CPU.
    pub(crate) fn level(self) -> u8 {
        match self {
            Class::Idle => 1,
            Class::Normal(_) | Class::Batch(_) => 2,
            Class::Fifo(priority) | Class::RoundRobin(priority) => 2 + priority.min(99),
            Class::Deadline(_) => DEADLINE_LEVEL,
            Class::Kernel => u8::MAX,
        }
    }

    /// As one word, but for what the deadline class reserves.
    pub(crate) fn to_bits(self) -> u32 {
        let (kind, value) = match self {
            Class::Kernel => (0, 0),
            Class::Fifo(priority) => (1, priority),
            Class::RoundRobin(priority) => (2, priority),
            Class::Normal(nice) => (3, nice as u8),
            Class::Batch(nice) => (4, nice as u8),
            Class::Idle => (5, 0),
            Class::Deadline(_) => (6, 0),
        };
        kind << 8 | u32::from(value)
    }

    pub(crate) fn from_bits(bits: u32, reservation: impl FnOnce() -> Reservation) -> Class {
        let value = bits as u8;
        match bits >> 8 {
            0 => Class::Kernel,
            1 => Class::Fifo(value),
            2 => Class::RoundRobin(value),
            4 => Class::Batch(value as i8),
            5 => Class::Idle,
            6 => Class::Deadline(reservation()),
            _ => Class::Normal(value as i8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class::*, Reservation};

    #[test]
    fn a_class_survives_its_word() {
        let reservation = Reservation { runtime: 1, deadline: 2, period: 3 };
        let reserved = Deadline(reservation);
        for class in [Kernel, Fifo(1), RoundRobin(99), Normal(-20), Normal(0), Batch(19), Idle, reserved] {
            assert_eq!(super::Class::from_bits(class.to_bits(), || reservation), class);
        }
    }
}

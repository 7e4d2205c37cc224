//! The load of a CPU as one word: how many threads, and what they are worth to others. So one addition keeps both.

use crate::class::Class;

/// A thread among the load of a CPU: one, and in the lower bits what it is worth as load, in [`UNIT`](crate::UNIT)ths: a thread of low priority leaves the
/// CPU to others, and no thread takes more than one.
const ONE: usize = 1 << 32;

pub(crate) fn load_of(class: Class) -> usize {
    match class {
        Class::Kernel => 0,
        class => ONE + class.worth(),
    }
}

pub(crate) fn threads(load: usize) -> usize {
    load / ONE
}

pub(crate) fn worth(load: usize) -> usize {
    load % ONE
}

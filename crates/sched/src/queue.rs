//! The run queue of one CPU.

use crate::scheduler::Runnable;
use alloc::collections::VecDeque;

/// How urgent a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Kernel work: short, runs before any thread.
    Kernel,
    /// User threads: round robin by time slice.
    Thread,
}

#[derive(Default)]
pub(crate) struct Queue {
    kernel: VecDeque<Runnable>,
    threads: VecDeque<Runnable>,
}

impl Queue {
    pub fn push(&mut self, task: Runnable, class: Class) {
        match class {
            Class::Kernel => self.kernel.push_back(task),
            Class::Thread => self.threads.push_back(task),
        }
    }

    pub fn pop(&mut self) -> Option<Runnable> {
        self.kernel.pop_front().or_else(|| self.threads.pop_front())
    }

    /// The first task that `may` run elsewhere, for an idle sibling.
    pub fn steal(&mut self, may: impl Fn(&Runnable) -> bool) -> Option<Runnable> {
        let index = self.threads.iter().position(may)?;
        self.threads.remove(index)
    }

    pub fn has_kernel_work(&self) -> bool {
        !self.kernel.is_empty()
    }

    pub fn len(&self) -> usize {
        self.kernel.len() + self.threads.len()
    }
}

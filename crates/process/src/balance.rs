//! When threads and programs are placed, and how a thread that waits for a CPU comes to another kernel.
//!
//! - A **thread** is placed when it is born: it has no memory of its own yet.
//! - A **program** is placed by execve, as Linux does it (sched_exec): that is the moment when a process is at
//!   its smallest. The thread moves first, by the migration that exists, and repeats the call there; so the new
//!   address space and the descriptor table are made on the kernel that the program runs on, and everything it
//!   does with them is local. At fork it would be too early: parent and child share all their memory.
//!   What stays at the parent's kernel is the home of the process (its id says so): waiting for it and
//!   signalling it cost its parent no message. A process is sent away once at most, and only by another thread
//!   that wants the CPU here just now: a shell that waits for its command keeps it.
//!
//! The board shows loads a moment late. Dangerous: ten programs started in that moment all see the same idle
//! kernel. So what is on its way to a kernel from here is counted as if it were there (`under_way`).

use crate::{placement::Candidate, process::Flags, System, Thread};
use core::sync::atomic::Ordering::*;
use machine::KernelId;

impl System {
    /// Has `kernel` a CPU of this affinity?
    pub(crate) fn reaches(&self, kernel: KernelId, affinity: &abi::CpuSet) -> bool {
        let machine = self.machine.lock();
        let cpus = machine.iter().find(|(known, _)| *known == kernel);
        cpus.is_some_and(|(_, cpus)| cpus.iter().any(|&cpu| affinity.contains(cpu)))
    }

    /// The kernel for a thread with this affinity, by the placement policy; None if no kernel has such a CPU.
    pub(crate) fn place(&self, affinity: &abi::CpuSet) -> Option<KernelId> {
        self.with_candidates(affinity, 0, |candidates| self.placement.choose(self.kernel, candidates))
    }

    /// Shows `ask` the kernels that this affinity allows; `own` of the load here are the one in question.
    fn with_candidates<T>(
        &self,
        affinity: &abi::CpuSet,
        own: usize,
        ask: impl FnOnce(&[Candidate<'_>]) -> T,
    ) -> Option<T> {
        let machine = self.machine.lock();
        let candidates: alloc::vec::Vec<_> = machine
            .iter()
            .filter(|(_, cpus)| cpus.iter().any(|&cpu| affinity.contains(cpu)))
            .map(|(kernel, cpus)| Candidate { kernel: *kernel, cpus, load: self.expected_load(*kernel, own) })
            .collect();
        (!candidates.is_empty()).then(|| ask(&candidates))
    }

    /// Load of a kernel as the board says, and what is on its way there from here.
    fn expected_load(&self, kernel: KernelId, own: usize) -> usize {
        let under_way = self.under_way.lock().get(&kernel).copied().unwrap_or(0);
        let load = match kernel == self.kernel {
            // The board is told only now and then.
            true => self.thread_load().saturating_sub(own),
            false => (self.board_load)(kernel),
        };
        load + under_way
    }

    /// A thread has been told to go to `kernel` (`true`), or has arrived or given up (`false`).
    pub(crate) fn note_under_way(&self, kernel: KernelId, leaves: bool) {
        let mut under_way = self.under_way.lock();
        let count = under_way.entry(kernel).or_default();
        *count = if leaves { *count + 1 } else { count.saturating_sub(1) };
    }
}

impl Thread {
    /// A new thread, before it runs: it starts where the policy says.
    pub(crate) fn place_at_birth(&self) {
        let affinity = self.state.lock().affinity.clone();
        if let Some(kernel) = self.process.system.place(&affinity) {
            self.send_to(kernel);
        }
    }

    /// execve asks, when it has found the program: true if the thread is to go to another kernel first and
    /// repeat the call there. It goes at its user boundary.
    pub fn place_program(&self) -> bool {
        let process = &self.process;
        let system = &process.system;
        let Some(home) = process.home().filter(|_| !process.has(Flags::PLACED)) else { return false };
        let alone = {
            let state = home.state.lock();
            state.members.len() == 1 && state.replicas.is_empty()
        };
        if !alone {
            return false;
        }
        let affinity = self.state.lock().affinity.clone();
        let choice = system.with_candidates(&affinity, 1, |all| system.placement.choose(system.kernel, all));
        match choice {
            Some(kernel) if kernel != system.kernel => {
                process.set_flags(Flags::PLACED, true);
                self.send_to(kernel);
                true
            }
            _ => false,
        }
    }

    /// The thread goes to `kernel` at its next user boundary.
    pub(crate) fn send_to(&self, kernel: KernelId) {
        let system = &self.process.system;
        if kernel == system.kernel {
            return;
        }
        system.note_under_way(kernel, true);
        if let Some(before) = self.destination.lock().replace(kernel) {
            system.note_under_way(before, false);
        }
        self.misplaced.store(true, SeqCst);
    }

    /// It ends, and goes nowhere.
    pub(crate) fn forget_destination(&self) {
        if let Some(kernel) = self.destination.lock().take() {
            self.process.system.note_under_way(kernel, false);
        }
    }
}

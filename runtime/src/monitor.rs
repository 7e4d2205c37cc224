//! Who tells the runtime that its threads wait.

use crate::{bpf, cpu::Cpu, sys};

/// Who counts on the counters of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Monitor {
    /// Nobody.
    Nobody,
    /// The kernel.
    Kernel,
    /// A program of BPF in Linux.
    Bpf,
    /// The runtime itself, and the tasks of a test: as the kernel would.
    #[cfg(test)]
    Test,
}

/// What an event adds to the sums of a CPU.
pub(crate) const BLOCK: u64 = 1;
pub(crate) const UNBLOCK: u64 = 1 << 32;

impl Monitor {
    /// The calling thread, a worker or a leader, is about to begin. A CPU has more workers than one that can go on then, for a while: one that is woken must not take it from the one
    /// that is in the middle of a task.
    pub fn begin(self) {
        if matches!(self, Monitor::Kernel | Monitor::Bpf) {
            sys::use_batch_class();
        }
    }

    /// The calling thread is counted from now on, or no more.
    pub fn watch(self, cpu: &Cpu, on: bool) {
        match self {
            Monitor::Nobody => {}
            // It fails only before umt_enable and after execve.
            Monitor::Kernel => _ = sys::umt_monitor(on),
            Monitor::Bpf => bpf::watch(cpu.number, on),
            #[cfg(test)]
            Monitor::Test => cpu.count(if on { UNBLOCK } else { BLOCK }),
        }
    }

    /// The calling worker, on this CPU, is about to sleep, or has slept.
    pub fn sleeps(self, _cpu: &Cpu, _begins: bool) {
        #[cfg(test)]
        if self == Monitor::Test {
            _cpu.count(if _begins { BLOCK } else { UNBLOCK });
        }
    }
}

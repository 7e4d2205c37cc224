//! Who was where, when, and waited for what. The events of a trace become stretches of time: of each thread, what it did, and of each CPU, whom it had.

use crate::{Event, Names};
use std::collections::{BTreeMap, HashMap};
use trace::{Point, KERNEL_WORK};

/// What a thread does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// It runs its program on a CPU.
    User {
        /// The CPU.
        cpu: u16,
    },
    /// It has a CPU, in a system call.
    InCall {
        /// The CPU.
        cpu: u16,
        /// Which call.
        call: u32,
    },
    /// It has a CPU, in a page fault.
    InFault {
        /// The CPU.
        cpu: u16,
    },
    /// It could run, and waits for a CPU.
    Ready,
    /// It waits for something else.
    Waits {
        /// In this system call.
        call: Option<u32>,
        /// In a page fault.
        fault: bool,
        /// For the answer to this kind of message.
        message: Option<u16>,
    },
    /// It is under way to another kernel.
    Moves {
        /// To this one.
        to: u16,
    },
}

impl Doing {
    /// The CPU that it has.
    pub fn cpu(&self) -> Option<u16> {
        match self {
            Doing::User { cpu } | Doing::InCall { cpu, .. } | Doing::InFault { cpu } => Some(*cpu),
            _ => None,
        }
    }
}

/// What one thread did for a while, or whom a CPU had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Of a thread.
    Thread {
        /// The thread.
        tid: u32,
        /// The kernel that it was on.
        kernel: u16,
        /// What it did.
        doing: Doing,
        /// From then, in ns.
        from: u64,
        /// Until then.
        to: u64,
    },
    /// Of a CPU.
    Cpu {
        /// The CPU.
        cpu: u16,
        /// Its kernel.
        kernel: u16,
        /// Whom it had; [`trace::IDLE`] and [`KERNEL_WORK`] are no threads.
        tid: u32,
        /// From then, in ns.
        from: u64,
        /// Until then.
        to: u64,
    },
}

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    doing: Option<Doing>,
    since: u64,
    kernel: u16,
    call: Option<u32>,
    fault: bool,
    /// Requests that were sent for it and not answered: kind, by number and receiver.
    asked: Vec<(u64, u16, u16)>,
    /// It was woken before the CPU had said that it left it.
    woken: bool,
}

impl Thread {
    fn on(&self, cpu: u16) -> Doing {
        match (self.fault, self.call) {
            (true, _) => Doing::InFault { cpu },
            (false, Some(call)) => Doing::InCall { cpu, call },
            (false, None) => Doing::User { cpu },
        }
    }

    fn waits(&self) -> Doing {
        Doing::Waits { call: self.call, fault: self.fault, message: self.asked.last().map(|(.., kind)| *kind) }
    }
}

/// Requests of a thread that are remembered: one that was cancelled is never answered.
const MOST_ASKED: usize = 32;

/// Turns events into stretches. Events go in in the order of time.
#[derive(Default)]
pub struct States {
    /// What threads are called.
    pub names: Names,
    threads: HashMap<u32, Thread>,
    /// Kernel, whom the CPU has, and since when.
    cpus: BTreeMap<u16, (u16, u32, u64)>,
    now: u64,
}

impl States {
    fn set(&mut self, tid: u32, kernel: u16, doing: Option<Doing>, give: &mut dyn FnMut(Stretch)) {
        let thread = self.threads.entry(tid).or_default();
        if thread.doing == doing && thread.kernel == kernel {
            return;
        }
        if let Some(doing) = thread.doing.filter(|_| self.now > thread.since) {
            give(Stretch::Thread { tid, kernel: thread.kernel, doing, from: thread.since, to: self.now });
        }
        (thread.doing, thread.since, thread.kernel) = (doing, self.now, kernel);
    }

    /// The thread runs on as before, but in a call or fault, or not any more.
    fn refresh(&mut self, tid: u32, give: &mut dyn FnMut(Stretch)) {
        let Some(thread) = self.threads.get(&tid) else { return };
        if let Some(cpu) = thread.doing.and_then(|doing| doing.cpu()) {
            let (kernel, doing) = (thread.kernel, thread.on(cpu));
            self.set(tid, kernel, Some(doing), give);
        }
    }

    /// The next event. `give` gets the stretches that it ends.
    pub fn take(&mut self, event: &Event, give: &mut dyn FnMut(Stretch)) {
        self.now = self.now.max(event.time);
        self.names.take(event);
        let kernel = event.place.kernel;
        match event.point {
            Point::SchedSwitch => self.switch(event, give),
            Point::SchedWakeup => {
                let tid = event.tid("tid");
                let thread = self.threads.entry(tid).or_default();
                if thread.doing.and_then(|doing| doing.cpu()).is_some() {
                    thread.woken = true;
                } else {
                    self.set(tid, kernel, Some(Doing::Ready), give);
                }
            }
            Point::ThreadLeave => {
                let to = event.number("to") as u16;
                self.set(event.tid("tid"), kernel, Some(Doing::Moves { to }), give);
            }
            Point::SyscallEntry => {
                let tid = event.tid("tid");
                let thread = self.threads.entry(tid).or_default();
                thread.call = Some(event.number("nr") as u32);
                thread.asked.clear();
                self.refresh(tid, give);
            }
            Point::SyscallExit => {
                let tid = event.tid("tid");
                self.threads.entry(tid).or_default().call = None;
                self.refresh(tid, give);
            }
            Point::PageFaultUser => {
                let tid = event.tid("tid");
                let thread = self.threads.entry(tid).or_default();
                thread.fault = true;
                thread.asked.clear();
                self.refresh(tid, give);
            }
            Point::FaultDone => {
                let tid = event.tid("tid");
                self.threads.entry(tid).or_default().fault = false;
                self.refresh(tid, give);
            }
            Point::MessageSend if event.number("role") == 0 => {
                if let Some(thread) = self.threads.get_mut(&event.tid("tid")) {
                    if thread.asked.len() < MOST_ASKED && thread.kernel == kernel {
                        let asked = (event.number("id"), event.number("to") as u16, event.number("kind") as u16);
                        thread.asked.push(asked);
                    }
                }
            }
            Point::MessageReceive if event.number("role") == 2 => {
                let (id, from) = (event.number("id"), event.number("from") as u16);
                if let Some(thread) = self.threads.get_mut(&event.tid("tid")) {
                    thread.asked.retain(|(asked, of, _)| (*asked, *of) != (id, from));
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, event: &Event, give: &mut dyn FnMut(Stretch)) {
        let (cpu, kernel) = (event.place.cpu, event.place.kernel);
        let (prev, next) = (event.tid("prev_tid"), event.tid("next_tid"));
        if is_thread(prev) {
            let thread = self.threads.entry(prev).or_default();
            let woken = std::mem::take(&mut thread.woken);
            let doing = match event.number("prev_state") {
                0 => Some(Doing::Ready),
                1 if woken => Some(Doing::Ready),
                16 => None,
                _ => Some(thread.waits()),
            };
            self.set(prev, kernel, doing, give);
        }
        if is_thread(next) {
            let doing = self.threads.entry(next).or_default().on(cpu);
            self.set(next, kernel, Some(doing), give);
        }
        if let Some((kernel, tid, from)) = self.cpus.insert(cpu, (kernel, next, self.now)) {
            if self.now > from {
                give(Stretch::Cpu { cpu, kernel, tid, from, to: self.now });
            }
        }
    }

    /// The trace is over: gives what goes on.
    pub fn end(&mut self, give: &mut dyn FnMut(Stretch)) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            let kernel = self.threads[&tid].kernel;
            self.set(tid, kernel, None, give);
        }
        for (&cpu, &(kernel, tid, from)) in &self.cpus {
            if self.now > from {
                give(Stretch::Cpu { cpu, kernel, tid, from, to: self.now });
            }
        }
    }

    /// Time of the last event.
    pub fn now(&self) -> u64 {
        self.now
    }
}

/// Whether this is a thread, and not a CPU's idling or its kernel's work.
pub(crate) fn is_thread(tid: u32) -> bool {
    tid != trace::IDLE && tid != KERNEL_WORK
}

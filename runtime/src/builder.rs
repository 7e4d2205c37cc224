//! How a runtime is made.

use crate::{
    central::Guarded,
    cpu::Cpu,
    monitor::Monitor,
    process,
    runtime::{Limits, OnPanic, Runtime},
    schedule::{Fifo, Lifo, Locality, Schedule},
    sys, topology,
};
use std::{any::Any, io, sync::Arc};

/// Whether the kernel tells of threads that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does not, or is not asked to.
    Baseline,
    /// It does (user-monitored threads).
    Umt,
}

/// Who counts waits, and tells of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Cob's kernel, and it tells of each.
    EachEvent,
    /// It tells only of CPUs that have nothing to run (UMT_IDLE).
    IdleOnly,
    /// A program of BPF in Linux.
    Bpf,
}

/// Which of the schedulers that come with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Fifo,
    Lifo,
    Locality,
}

/// How a runtime is made.
pub struct Builder {
    mode: Option<Mode>,
    counting: Counting,
    policy: Policy,
    own: Option<Box<dyn Schedule>>,
    cpus: Option<Vec<usize>>,
    workers_per_cpu: usize,
    threads_per_cpu: usize,
    at_most_cpus: usize,
    on_panic: Option<OnPanic>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            mode: None,
            counting: Counting::EachEvent,
            policy: Policy::Fifo,
            own: None,
            cpus: None,
            workers_per_cpu: 64,
            threads_per_cpu: 1,
            at_most_cpus: usize::MAX,
            on_panic: None,
        }
    }
}

impl Builder {
    /// What the environment says: COB_TASKS (`baseline`, `umt`, `umt-idle`, or for root of Linux `bpf`), COB_TASKS_SCHEDULER (`fifo`, `lifo` or `locality`), COB_TASKS_WORKERS_PER_CPU,
    /// COB_TASKS_THREADS_PER_CPU.
    pub fn from_environment() -> Builder {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let mut builder = Builder::default();
        match variable("COB_TASKS").as_str() {
            "baseline" => builder.mode = Some(Mode::Baseline),
            "umt" => builder.mode = Some(Mode::Umt),
            "umt-idle" => (builder.mode, builder.counting) = (Some(Mode::Umt), Counting::IdleOnly),
            "bpf" => (builder.mode, builder.counting) = (Some(Mode::Umt), Counting::Bpf),
            "" => {}
            other => eprintln!("cob-tasks: COB_TASKS={other}: expected baseline, umt, umt-idle or bpf"),
        }
        match variable("COB_TASKS_SCHEDULER").as_str() {
            "lifo" => builder.policy = Policy::Lifo,
            "locality" => builder.policy = Policy::Locality,
            "fifo" | "" => {}
            other => eprintln!("cob-tasks: COB_TASKS_SCHEDULER={other}: expected fifo, lifo or locality"),
        }
        let number = |name: &str, into: &mut usize| match variable(name).as_str() {
            "" => {}
            value => match value.parse() {
                Ok(value) => *into = value,
                Err(_) => eprintln!("cob-tasks: {name}={value}: expected a number"),
            },
        };
        number("COB_TASKS_WORKERS_PER_CPU", &mut builder.workers_per_cpu);
        number("COB_TASKS_THREADS_PER_CPU", &mut builder.threads_per_cpu);
        builder
    }

    /// None, and nothing in the environment: user-monitored threads where there are any.
    pub fn mode(mut self, mode: Option<Mode>) -> Builder {
        self.mode = mode;
        self
    }

    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// A scheduler of the program's own.
    pub fn scheduler(mut self, scheduler: Box<dyn Schedule>) -> Builder {
        self.own = Some(scheduler);
        self
    }

    /// The CPUs that get workers, by their numbers; otherwise all that the thread may use.
    pub fn cpus(mut self, cpus: Vec<usize>) -> Builder {
        self.cpus = Some(cpus);
        self
    }

    /// Of all these, the first `most`.
    pub fn at_most_cpus(mut self, most: usize) -> Builder {
        self.at_most_cpus = most;
        self
    }

    /// Is called with what tasks panic with for which nobody waits ([`Handle::spawn`](crate::Handle::spawn)).
    pub fn on_panic(mut self, told: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static) -> Builder {
        self.on_panic = Some(Box::new(told));
        self
    }

    /// The runtime has at most so many times as many workers as CPUs, at least one. Those that wait in the kernel or in taskwait are among them. A new one is made only for a
    /// CPU to which fewer are bound.
    pub fn workers_per_cpu(mut self, most: usize) -> Builder {
        self.workers_per_cpu = most;
        self
    }

    /// Without user-monitored threads: how many workers a CPU has at a time, at least one. More than one is the usual remedy for tasks that wait; it has to be
    /// guessed how many.
    pub fn threads_per_cpu(mut self, threads: usize) -> Builder {
        self.threads_per_cpu = threads;
        self
    }

    /// Starts it: a worker on each CPU, and with user-monitored threads a leader for each kernel.
    pub fn build(self) -> io::Result<Runtime> {
        let mut numbers = match self.cpus {
            Some(cpus) => cpus,
            None => sys::allowed_cpus()?,
        };
        numbers.truncate(self.at_most_cpus);
        let counted = match self.mode {
            Some(Mode::Baseline) => None,
            wanted => match process::cpus(self.counting) {
                Ok(counted) => Some(counted),
                Err(error) => {
                    let taken = error.raw_os_error() == Some(libc::EBUSY);
                    if taken {
                        eprintln!("cob-tasks: another library of this process has its counters: threads that wait leave their CPUs idle");
                    } else if wanted.is_some() {
                        eprintln!("cob-tasks: no user-monitored threads here ({error}): threads that wait leave their CPUs idle");
                    }
                    None
                }
            },
        };
        let (monitor, counted) = match counted {
            None => (Monitor::Nobody, None),
            Some((Counting::Bpf, cpus)) => (Monitor::Bpf, Some(cpus)),
            Some((_, cpus)) => (Monitor::Kernel, Some(cpus)),
        };
        let groups = topology::groups(&numbers);
        let cpu = |(number, group): (&usize, &usize)| {
            let counted = counted.as_ref().and_then(|counted| counted.get(*number)).cloned();
            counted.unwrap_or_else(|| Arc::new(Cpu::new(*number, *group, None)))
        };
        let cpus = numbers.iter().zip(&groups).map(cpu).collect::<Vec<Arc<Cpu>>>();
        let queue: Box<dyn Schedule> = match (self.own, self.policy) {
            (Some(own), _) => own,
            (None, Policy::Fifo) => Box::new(Fifo::default()),
            (None, Policy::Lifo) => Box::new(Lifo::default()),
            (None, Policy::Locality) => Box::new(Locality::new(cpus.iter().map(|cpu| cpu.group).collect())),
        };
        let threads_per_cpu = if monitor == Monitor::Nobody { self.threads_per_cpu.max(1) } else { 1 };
        let limits = Limits { workers_per_cpu: self.workers_per_cpu.max(threads_per_cpu), threads_per_cpu };
        Runtime::start(monitor, cpus, Guarded(queue), limits, self.on_panic)
    }
}

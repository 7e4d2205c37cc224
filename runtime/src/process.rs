//! What the runtimes of a process share: the process's counters (man umt_enable: there is one set). They are made once and stay.
//!
//! Two runtimes count together: a CPU on which a worker of one of them can go on does not stall for the other either, and the operating system divides the CPU
//! among those that can go on. That each keeps at least one worker there while it has tasks is `Worker::surrender`'s business. An event is
//! read by one thread of one runtime, so it tells the others when a CPU stalls.

use crate::{
    bpf,
    builder::Counting,
    cpu::{Counter, Cpu},
    runtime::Shared,
    sys,
    task::lock,
    topology,
};
use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Arc, Mutex, Weak,
    },
};

struct Process {
    /// A child of fork has the descriptors, but no counters.
    id: u32,
    counting: Counting,
    /// All CPUs of the machine.
    cpus: Vec<Arc<Cpu>>,
}

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);
static RUNTIMES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// How many there are in [`RUNTIMES`].
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// All CPUs of the machine with their counters, by their numbers, and how these count: as who asked first wanted.
pub(crate) fn cpus(counting: Counting) -> io::Result<(Counting, Vec<Arc<Cpu>>)> {
    let mut process = lock(&PROCESS);
    if let Some(process) = process.as_ref().filter(|process| process.id == std::process::id()) {
        return Ok((process.counting, process.cpus.clone()));
    }
    let counters: Vec<Counter> = match counting {
        Counting::Bpf => {
            let counters = bpf::start(sys::most_cpus())?;
            counters.into_iter().map(|(file, sums, ring)| Counter { file, sums, ring: Some(ring) }).collect()
        }
        _ => {
            let files = sys::umt_enable(counting == Counting::IdleOnly)?.into_iter().enumerate();
            let counter = |(cpu, file)| Ok(Counter { sums: sys::Sums::map(&file, cpu)?, file, ring: None });
            files.map(counter).collect::<io::Result<_>>()?
        }
    };
    let groups = match counting {
        // They have one ring buffer, which one leader empties.
        Counting::Bpf => vec![0; counters.len()],
        _ => topology::groups(&(0..counters.len()).collect::<Vec<_>>()),
    };
    let cpus = counters.into_iter().zip(groups).enumerate();
    let cpus = cpus.map(|(number, (counter, group))| Arc::new(Cpu::new(number, group, Some(counter))));
    let cpus: Vec<Arc<Cpu>> = cpus.collect();
    *process = Some(Process { id: std::process::id(), counting, cpus: cpus.clone() });
    Ok((counting, cpus))
}

/// A runtime that uses counters begins.
pub(crate) fn enter(runtime: &Arc<Shared>) {
    let mut runtimes = lock(&RUNTIMES);
    runtimes.push(Arc::downgrade(runtime));
    COUNT.store(runtimes.len(), SeqCst);
}

/// It has ended, and its threads. `last` is called for its CPUs if nobody else uses one of them.
pub(crate) fn leave(runtime: &Arc<Shared>, last: impl Fn(&Cpu)) {
    let mut runtimes = lock(&RUNTIMES);
    runtimes.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(runtime)));
    COUNT.store(runtimes.len(), SeqCst);
    if !runtimes.iter().filter_map(Weak::upgrade).any(|other| other.shares_a_cpu(runtime)) {
        runtime.cpus.iter().for_each(|cpu| last(cpu));
    }
}

/// Something was read from the counter of this CPU: other runtimes look whether it stalls.
pub(crate) fn tell_others(reader: &Shared, cpu: &Arc<Cpu>) {
    if COUNT.load(SeqCst) < 2 || !cpu.stalls() {
        return;
    }
    let others: Vec<Arc<Shared>> = lock(&RUNTIMES).iter().filter_map(Weak::upgrade).collect();
    for other in others.iter().filter(|other| !std::ptr::eq(&***other, reader)) {
        other.fill_counted(cpu);
    }
}

//! The leader of a kernel's CPUs: sleeps until threads on them have waited or can go on, and gives CPUs that stall a worker. It is not monitored, and may use
//! all of these CPUs.

use crate::{runtime::Shared, sys, task::lock};
use std::{io, sync::atomic::Ordering::*, sync::Arc, time::Duration};

/// How often it looks around though nothing has happened.
const CHORES: Duration = Duration::from_millis(100);
/// How often it reads what has come while it read.
const ROUNDS: usize = 4;
/// What epoll calls the end of the runtime.
const EXIT: u64 = u64::MAX;

pub(crate) struct Leader {
    shared: Arc<Shared>,
    epoll: sys::Epoll,
    group: usize,
    /// Indices of its CPUs.
    cpus: Vec<usize>,
}

impl Leader {
    pub fn new(shared: Arc<Shared>, group: usize) -> io::Result<Leader> {
        let epoll = sys::Epoll::new()?;
        let cpus: Vec<usize> =
            shared.cpus.iter().enumerate().filter(|(_, cpu)| cpu.group == group).map(|(index, _)| index).collect();
        for &cpu in &cpus {
            if let Some(file) = shared.cpus[cpu].file() {
                epoll.add(file, cpu as u64)?;
            }
        }
        if let Some(exit) = &shared.exit {
            epoll.add(exit, EXIT)?;
        }
        Ok(Leader { shared, epoll, group, cpus })
    }

    pub fn live(self) {
        let numbers: Vec<usize> = self.cpus.iter().map(|&cpu| self.shared.cpus[cpu].number).collect();
        // Otherwise it may be anywhere, which costs messages and is right all the same.
        let _ = sys::set_cpus(0, &numbers);
        self.shared.monitor.begin();
        while !self.shared.exiting.load(SeqCst) {
            let mut events = self.epoll.wait(Some(CHORES));
            // More may have come; but a CPU that stalls must not wait until nothing comes any more.
            for _ in 0..ROUNDS {
                if events.is_empty() || events.contains(&EXIT) {
                    break;
                }
                for cpu in events {
                    self.shared.cpus[cpu as usize].hear();
                    self.shared.refresh(cpu as usize);
                }
                events = self.epoll.wait(Some(Duration::ZERO));
            }
            self.fill();
        }
    }

    /// Wakes a worker on each CPU that stalls, as long as there are tasks.
    fn fill(&self) {
        let shared = &self.shared;
        let mut wakings = Vec::new();
        {
            let mut central = lock(&shared.central);
            for &cpu in &self.cpus {
                shared.statistics.looks.fetch_add(1, Relaxed);
                if shared.cpus[cpu].stalls() {
                    shared.statistics.stalls.fetch_add(1, Relaxed);
                    central.fill(shared, cpu, &mut wakings);
                }
            }
        }
        shared.wake_all(wakings);
    }
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "leader {}", self.group)
    }
}

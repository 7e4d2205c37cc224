//! /proc/cob/activity: what all kernels and threads have done so far, in one text. Whoever reads it twice has what they did in between:
//! `cobctl top` inside, and `cob top` on the host, to which the link brings the same text.
//!
//! Each line begins with what it is about; lines that begin with `#` name the columns. Times are in microseconds since the machine started.
//! No page is counted for it: who looks every second must not be noticed by programs.

use super::{
    machine::statuses,
    made::{put, Text},
    Proc,
};
use ::machine::{errno::Result, KernelId};
use ::process::System;
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::{cmp::Reverse, fmt::Write};
use fs::Caller;
use messages::{
    control::{KernelState, KernelStatus, Partition, Partitions},
    inspect::{Inspect, Inspection, ProcessView, RunState, ThreadView},
};

/// Most threads, and most processes, that the text lists.
const LISTED: usize = 500;

pub(super) async fn file(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    Ok(activity(&proc.system).await)
}

/// The text. Asks all kernels.
pub async fn activity(system: &Arc<System>) -> Vec<u8> {
    let partitions = system.endpoint.call(system.kernel, Partitions {}).await.unwrap_or_default();
    let statuses = statuses(system).await.into_iter().collect();
    let mut text = kernels(&partitions, &statuses);
    let (mut processes, mut threads) = (Busiest::default(), Busiest::default());
    for pid in system.list().await {
        // Who asks is the machine itself, which nobody keeps anything from.
        if let Ok(Inspection::View(view)) = system.inspect(pid, Inspect::Threads, fs::Credentials::default()).await {
            add(&view, &mut processes, &mut threads);
        }
    }
    put!(text, "# process cpu_us faults_local faults_remote kernel:threads name\n");
    processes.put(&mut text);
    put!(text, "# thread process kernel cpu state cpu_us name\n");
    threads.put(&mut text);
    text.0
}

fn kernels(partitions: &[Partition], statuses: &BTreeMap<KernelId, KernelStatus>) -> Text {
    let mut text = Text::default();
    put!(text, "# kernel state time_us memory_kB free_kB threads load moved_in moved_out faults_local faults_remote sent received doorbells\n");
    for Partition { kernel, state, .. } in partitions {
        put!(text, "kernel {kernel} {}", name_of(*state));
        if let Some(status) = statuses.get(kernel) {
            let (time, total, free) = (status.uptime_ns / 1000, status.memory_total / 1024, status.memory_free / 1024);
            put!(text, " {time} {total} {free} {} {}", status.threads_now, status.load);
            put!(text, " {} {}", status.migrations_in, status.migrations_out);
            put!(text, " {} {}", status.faults_local, status.faults_remote);
            put!(text, " {} {} {}", status.messages_sent, status.messages_received, status.doorbells_sent);
        }
        put!(text, "\n");
    }
    put!(text, "# cpu kernel user_us idle_us\n");
    for (kernel, status) in statuses {
        for (index, cpu) in status.cpus.iter().enumerate() {
            let of = |list: &[u64]| list.get(index).copied().unwrap_or(0) / 1000;
            put!(text, "cpu {} {kernel} {} {}\n", cpu.0, of(&status.user_ns), of(&status.idle_ns));
        }
    }
    text
}

/// The state of a kernel in a word.
pub(super) fn name_of(state: KernelState) -> &'static str {
    match state {
        KernelState::Absent => "absent",
        KernelState::Starting => "starting",
        KernelState::Running => "running",
        KernelState::Dead => "dead",
    }
}

/// Adds a process and its threads. A zombie does nothing any more.
fn add(view: &ProcessView, processes: &mut Busiest, threads: &mut Busiest) {
    if view.zombie {
        return;
    }
    let (pid, cpu, near, far) = (view.process, view.usage.cpu_ns(), view.faults_local, view.faults_remote);
    let runs = |thread: &ThreadView| thread.state == RunState::Runnable && !view.stopped;
    let line = alloc::format!("process {pid} {} {near} {far} {} ", cpu / 1000, places(&view.threads));
    processes.add(view.threads.iter().any(runs), cpu, line + &printable(&view.name));
    for thread in &view.threads {
        let (id, kernel, number, cpu) = (thread.thread, thread.kernel, thread.cpu.0, thread.usage.cpu_ns());
        let state = match thread.state {
            RunState::Uninterruptible => 'D',
            _ if view.stopped => 'T',
            RunState::Runnable => 'R',
            RunState::Interruptible => 'S',
        };
        let line = alloc::format!("thread {id} {pid} {kernel} {number} {state} {} ", cpu / 1000);
        threads.add(runs(thread), cpu, line + &printable(&thread.name));
    }
}

/// How many threads are where: `0:1,2:3`; `-` while the only ones are moving.
fn places(threads: &[ThreadView]) -> String {
    let mut counts: BTreeMap<KernelId, usize> = BTreeMap::new();
    threads.iter().for_each(|thread| *counts.entry(thread.kernel).or_default() += 1);
    let mut text = String::new();
    for (kernel, count) in counts {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{kernel}:{count}");
    }
    if text.is_empty() {
        String::from("-")
    } else {
        text
    }
}

/// A name is whatever bytes a program likes, and the text goes to terminals.
fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// The lines about those that run, then those about who has had most CPU time; more than [`LISTED`] are counted only, so that a program
/// with very many threads does not make a very long text.
#[derive(Default)]
struct Busiest {
    lines: Vec<(Reverse<(bool, u64)>, String)>,
    left_out: usize,
}

impl Busiest {
    fn add(&mut self, runs: bool, cpu_ns: u64, line: String) {
        self.lines.push((Reverse((runs, cpu_ns)), line));
        if self.lines.len() >= 2 * LISTED {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.lines.sort_unstable();
        self.left_out += self.lines.len().saturating_sub(LISTED);
        self.lines.truncate(LISTED);
    }

    fn put(mut self, text: &mut Text) {
        self.cut();
        for (_, line) in &self.lines {
            put!(text, "{line}\n");
        }
        if self.left_out > 0 {
            put!(text, "# {} more, which wait and have had less CPU time\n", self.left_out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::machine::CpuId;

    fn lines(text: Text) -> Vec<String> {
        let text = String::from_utf8(text.0).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(String::from).collect()
    }

    #[test]
    fn kernels_that_do_not_answer_have_a_state_only() {
        let partition = |id: u16, state| Partition {
            kernel: KernelId(id),
            state,
            boot_generation: 1,
            cpus: Vec::new(),
            memory_bytes: 0,
        };
        let status = KernelStatus {
            uptime_ns: 5_000_000,
            cpus: alloc::vec![CpuId(0), CpuId(2)],
            memory_total: 4096,
            memory_free: 1024,
            messages_sent: 7,
            user_ns: alloc::vec![1000, 2000],
            idle_ns: alloc::vec![3000],
            ..KernelStatus::default()
        };
        let partitions = [partition(0, KernelState::Running), partition(1, KernelState::Dead)];
        let text = kernels(&partitions, &BTreeMap::from([(KernelId(0), status)]));
        let expected = ["kernel 0 running 5000 4 1 0 0 0 0 0 0 7 0 0", "kernel 1 dead", "cpu 0 0 1 3", "cpu 2 0 2 0"];
        assert_eq!(lines(text), expected);
    }

    #[test]
    fn of_very_many_those_that_run_are_listed_first() {
        let mut busiest = Busiest::default();
        for id in 0..3 * LISTED as u64 {
            busiest.add(id == 3, id, alloc::format!("{id}"));
        }
        let mut text = Text::default();
        busiest.put(&mut text);
        assert!(text.0.ends_with(b"\n# 1000 more, which wait and have had less CPU time\n"));
        let lines = lines(text);
        assert_eq!((lines.len(), &*lines[0], &*lines[1]), (LISTED, "3", "1499"));
    }

    #[test]
    fn names_do_not_reach_the_terminal_as_commands() {
        assert_eq!(printable(b"a b\x1b[2J\n\xff"), "a b?[2J?\u{fffd}");
        assert_eq!(places(&[]), "-");
    }
}

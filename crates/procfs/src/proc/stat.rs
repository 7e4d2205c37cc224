//! stat, statm, status, sched: a process or thread in numbers (man 5 proc).

use super::{
    made::{number_list, number_mask, put, Text},
    Subject, TICK_NS,
};
use ::machine::{errno::Result, PAGE_SIZE};
use abi::signal::{Action, Actions, Signal, SignalSet};
use alloc::vec::Vec;
use fs::Caller;
use messages::{
    inspect::{ProcessView, RunState, ThreadView},
    process::Usage,
};
use process::RESET_ON_FORK;

/// What of a process is shown in a per-thread file, and what of all its threads together.
struct Shown<'a> {
    view: &'a ProcessView,
    thread: Option<&'a ThreadView>,
    usage: Usage,
    name: &'a [u8],
    started: u64,
}

impl<'a> Shown<'a> {
    fn new(subject: &Subject, view: &'a ProcessView) -> Self {
        let thread = subject.thread_of(view);
        let own = thread.filter(|_| subject.thread.is_some());
        Shown {
            view,
            thread,
            usage: own.map_or(view.usage, |thread| thread.usage),
            name: own.map_or(&view.name, |thread| &thread.name),
            started: own.map_or(view.shared.started, |thread| thread.started),
        }
    }

    /// The state of the thread that the file is about, the main one in a process's own directory.
    fn state(&self) -> (char, &'static str) {
        match self.thread.map(|thread| thread.state) {
            // Only a main thread is shown when it has ended, with its process or before the others.
            None => ('Z', "zombie"),
            Some(RunState::Uninterruptible) => ('D', "disk sleep"),
            Some(_) if self.view.stopped => ('T', "stopped"),
            Some(RunState::Runnable) => ('R', "running"),
            Some(RunState::Interruptible) => ('S', "sleeping"),
        }
    }

    /// Threads of the process, a main one that has ended included.
    fn threads(&self) -> usize {
        let threads = &self.view.threads;
        threads.len() + usize::from(!threads.iter().any(|thread| thread.thread == self.view.process))
    }

    /// As Linux counts within the kernel: less is more urgent.
    fn priority(&self) -> i64 {
        match self.policy() {
            (1 | 2, priority) => 99 - i64::from(priority),
            (6, _) => -1,
            _ => 120 + self.nice(),
        }
    }

    fn policy(&self) -> (u32, u32) {
        self.thread.map_or((0, 0), |thread| (thread.policy.0 & !RESET_ON_FORK, thread.policy.1))
    }

    fn nice(&self) -> i64 {
        self.thread.map_or(0, |thread| i64::from(thread.nice))
    }
}

/// Signals that are ignored, and signals that have a handler.
fn dispositions(actions: &Actions) -> (SignalSet, SignalSet) {
    let (mut ignored, mut caught) = (SignalSet::EMPTY, SignalSet::EMPTY);
    for signal in (1..=64).filter_map(Signal::new) {
        match actions.get(signal).handler {
            Action::IGNORE => ignored.insert(signal),
            Action::DEFAULT => {}
            _ => caught.insert(signal),
        }
    }
    (ignored, caught)
}

fn ticks(ns: u64) -> u64 {
    ns / TICK_NS
}

pub(super) async fn stat(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let terminal = subject.proc.terminals.of_session(view.shared.session);
    let terminal = terminal.map(|tty| (tty.device(), tty.foreground().map_or(-1, |group| i64::from(group.0))));
    Ok(stat_text(&subject, &view, terminal))
}

fn stat_text(subject: &Subject, view: &ProcessView, terminal: Option<((u32, u32), i64)>) -> Vec<u8> {
    let shown = Shown::new(subject, view);
    let (shared, usage, layout) = (&view.shared, &shown.usage, &view.shared.layout);
    let (ignored, caught) = dispositions(&shared.actions);
    let low = |set: SignalSet| set.0 & 0x7fff_ffff;
    let pending = shown.thread.map_or(SignalSet::EMPTY, |thread| thread.pending);
    let blocked = shown.thread.map_or(SignalSet::EMPTY, |thread| thread.blocked);
    let (policy, rt_priority) = shown.policy();
    let priority = shown.priority() - 100;
    // The kernel's 32-bit form of a device number: minor's low byte, major, rest of the minor.
    let ((major, minor), foreground) = terminal.unwrap_or(((0, 0), -1));
    let tty = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    let rss_limit = shared.limits.get(5).map_or(u64::MAX, |limit| limit.0);
    let children = &view.children_usage;
    let of_children = subject.thread.is_none();
    let child = |value: u64| if of_children { value } else { 0 };

    let mut text = Text::default();
    put!(text, "{} (", subject.thread.unwrap_or(subject.pid));
    text.bytes(shown.name);
    put!(
        text,
        ") {} {} {} {} {tty} {foreground} 4194304",
        shown.state().0,
        shared.parent,
        shared.group,
        shared.session
    );
    put!(
        text,
        " {} {} {} {}",
        usage.minor_faults,
        child(children.minor_faults),
        usage.major_faults,
        child(children.major_faults)
    );
    put!(text, " {} {}", ticks(usage.user_ns), ticks(usage.system_ns));
    put!(text, " {} {}", child(ticks(children.user_ns)), child(ticks(children.system_ns)));
    put!(text, " {priority} {} {} 0 {}", shown.nice(), shown.threads(), ticks(shown.started));
    put!(text, " {} {} {rss_limit}", view.mapped_pages * PAGE_SIZE as u64, view.resident_pages);
    put!(text, " {} {} {} 0 0", layout.code[0], layout.code[1], layout.stack);
    put!(text, " {} {} {} {}", low(pending), low(blocked), low(ignored), low(caught));
    // wchan is 0 or 1 since Linux 4.
    put!(text, " {} 0 0 {}", u8::from(!shown.state().0.eq(&'R')), shared.exit_signal);
    put!(text, " {} {rt_priority} {policy} 0 0 0", shown.thread.map_or(0, |thread| thread.cpu.0));
    put!(
        text,
        " 0 0 {} {} {} {} {} 0\n",
        layout.brk,
        layout.arguments[0],
        layout.arguments[1],
        layout.environment[0],
        layout.environment[1]
    );
    text.0
}

pub(super) async fn statm(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let mut text = Text::default();
    let data = view.data_pages + view.stack_pages;
    put!(text, "{} {} 0 {} 0 {data} 0\n", view.mapped_pages, view.resident_pages, view.text_pages);
    Ok(text.0)
}

pub(super) async fn status(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let system = &subject.proc.system;
    let cpus = system.all_cpus().iter().map(|cpu| cpu.0 + 1).max().unwrap_or(1);
    let nodes: Vec<u32> = system.all_cpus().iter().map(|cpu| system.node_of(cpu.0)).collect();
    Ok(status_text(&subject, &view, cpus, &nodes))
}

fn status_text(subject: &Subject, view: &ProcessView, cpus: u32, nodes: &[u32]) -> Vec<u8> {
    let shown = Shown::new(subject, view);
    let (shared, usage) = (&view.shared, &shown.usage);
    let who = &view.credentials;
    let (letter, word) = shown.state();
    let mut text = Text::default();
    text.bytes(b"Name:\t");
    for &byte in shown.name {
        match byte {
            b'\n' => text.bytes(b"\\n"),
            b'\\' => text.bytes(b"\\\\"),
            _ => text.bytes(&[byte]),
        }
    }
    put!(text, "\nUmask:\t{:04o}\nState:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\n", shared.umask, subject.pid);
    put!(text, "Pid:\t{}\nPPid:\t{}\nTracerPid:\t0\n", subject.thread.unwrap_or(subject.pid), shared.parent);
    put!(text, "Uid:\t{}\t{}\t{}\t{}\n", who.uid, who.euid, who.suid, who.fsuid);
    put!(text, "Gid:\t{}\t{}\t{}\t{}\n", who.gid, who.egid, who.sgid, who.fsgid);
    put!(text, "FDSize:\t256\nGroups:\t");
    for group in &who.groups {
        put!(text, "{group} ");
    }
    let thread = subject.thread.unwrap_or(subject.pid);
    put!(text, "\nNStgid:\t{}\nNSpid:\t{thread}\nNSpgid:\t{}\nNSsid:\t{}\n", subject.pid, shared.group, shared.session);
    if !view.zombie {
        let kib = |pages: u64| pages * (PAGE_SIZE as u64 / 1024);
        let rows = [
            ("VmPeak", kib(view.most_mapped_pages)),
            ("VmSize", kib(view.mapped_pages)),
            ("VmLck", kib(view.locked_pages)),
            ("VmPin", 0),
            ("VmHWM", kib(view.most_resident_pages)),
            ("VmRSS", kib(view.resident_pages)),
            ("VmData", kib(view.data_pages)),
            ("VmStk", kib(view.stack_pages)),
            ("VmExe", shared.layout.code[1].saturating_sub(shared.layout.code[0]).div_ceil(1024)),
            (
                "VmLib",
                kib(view.text_pages)
                    .saturating_sub(shared.layout.code[1].saturating_sub(shared.layout.code[0]).div_ceil(1024)),
            ),
            ("VmSwap", 0),
        ];
        for (name, value) in rows {
            put!(text, "{name}:\t{value:8} kB\n");
        }
    }
    let (ignored, caught) = dispositions(&shared.actions);
    let signal_limit = shared.limits.get(11).map_or(0, |limit| limit.0);
    put!(text, "Threads:\t{}\nSigQ:\t{}/{signal_limit}\n", shown.threads(), view.queued);
    let (pending, blocked) =
        shown.thread.map_or((SignalSet::EMPTY, SignalSet::EMPTY), |thread| (thread.pending, thread.blocked));
    let sets =
        [("SigPnd", pending), ("ShdPnd", view.pending), ("SigBlk", blocked), ("SigIgn", ignored), ("SigCgt", caught)];
    for (name, set) in sets {
        put!(text, "{name}:\t{:016x}\n", set.0);
    }
    let sets = shown.thread.map(|thread| (thread.capabilities, thread.effective));
    let (sets, effective) = sets.unwrap_or((abi::Capabilities::of_user(who.uid), who.effective));
    let rows = [
        ("CapInh", sets.inheritable),
        ("CapPrm", sets.permitted),
        ("CapEff", effective),
        ("CapBnd", sets.bounding),
        ("CapAmb", sets.ambient),
    ];
    for (name, abi::CapabilitySet(set)) in rows {
        put!(text, "{name}:\t{set:016x}\n");
    }
    put!(text, "NoNewPrivs:\t{}\nSeccomp:\t0\nSeccomp_filters:\t0\n", u8::from(shared.no_new_privileges));
    let allowed: Vec<u32> =
        shown.thread.map_or_else(Vec::new, |thread| thread.affinity.iter().map(|cpu| cpu.0).collect());
    put!(text, "Cpus_allowed:\t{}\n", number_mask(allowed.iter().copied(), cpus));
    put!(text, "Cpus_allowed_list:\t{}\n", number_list(allowed));
    put!(text, "Mems_allowed:\t{}\n", number_mask(nodes.iter().copied(), 32));
    put!(text, "Mems_allowed_list:\t{}\n", number_list(nodes.iter().copied()));
    let (voluntary, involuntary) =
        shown.thread.map_or((usage.voluntary_switches, usage.involuntary_switches), |thread| {
            (thread.usage.voluntary_switches, thread.usage.involuntary_switches)
        });
    put!(text, "voluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n");
    text.0
}

pub(super) async fn sched(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let shown = Shown::new(&subject, &view);
    let usage = shown.thread.map_or(shown.usage, |thread| thread.usage);
    let mut text = Text::default();
    text.bytes(shown.name);
    put!(text, " ({}, #threads: {})\n", subject.thread.unwrap_or(subject.pid), view.threads.len());
    put!(text, "-------------------------------------------------------------------\n");
    let ns = usage.cpu_ns();
    let ms = |ns: u64| (ns / 1_000_000, ns % 1_000_000);
    put!(text, "{:<45}:{:>14}.{:06}\n", "se.exec_start", ms(shown.started).0, ms(shown.started).1);
    put!(text, "{:<45}:{:>14}.{:06}\n", "se.sum_exec_runtime", ms(ns).0, ms(ns).1);
    let switches = usage.voluntary_switches + usage.involuntary_switches;
    let (policy, _) = shown.policy();
    let rows = [
        ("nr_switches", switches as i64),
        ("nr_voluntary_switches", usage.voluntary_switches as i64),
        ("nr_involuntary_switches", usage.involuntary_switches as i64),
        ("policy", i64::from(policy)),
        ("prio", shown.priority()),
    ];
    for (name, value) in rows {
        put!(text, "{name:<45}:{value:>21}\n");
    }
    Ok(text.0)
}

/// Time on a CPU, time waiting for one (not measured), slices run.
pub(super) async fn schedstat(subject: Subject, caller: Caller) -> Result<Vec<u8>> {
    let view = subject.view(&caller).await?;
    let usage = subject.thread_of(&view).map_or(view.usage, |thread| thread.usage);
    let mut text = Text::default();
    let switches = usage.voluntary_switches + usage.involuntary_switches;
    put!(text, "{} 0 {switches}\n", usage.cpu_ns());
    Ok(text.0)
}

//! Figures of a trace, and a line for each CPU. What the figures mean is in docs/trace.md; execution time, idle share, ready jam, in-benchmark switches and threads are those
//! of the thesis on user-monitored threads (Roca Nonell 2017, 4.1 and 4.3.3).

use crate::{
    file::Trace,
    levels::Levels,
    names::{device_name, message_name, syscall_name},
    states::is_thread,
    Doing, Filter, Names, States, Stretch,
};
use anyhow::Result;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
};
use trace::{Point, IDLE, KERNEL_WORK};

/// What was measured of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct CpuFigures {
    kernel: u16,
    idle: u64,
    kernel_work: u64,
    threads: u64,
    /// Time in which more than one thread of the traced program ran or waited for it.
    jammed: u64,
}

/// What was measured of one kind of message.
#[derive(Clone, Copy, Debug, Default)]
struct MessageFigures {
    count: u64,
    bytes: u64,
    /// Sum of the times from sending to receiving, and how many there are.
    flight: (u64, u64),
}

/// What was measured of one thread.
#[derive(Clone, Debug, Default)]
struct ThreadFigures {
    user: u64,
    kernel: u64,
    ready: u64,
    waits: u64,
    moves: u64,
    kernels: BTreeSet<u16>,
}

/// The figures of a trace.
#[derive(Default)]
pub struct Report {
    about: String,
    lost: Vec<(u16, u16, u64)>,
    is_cut: bool,
    events: BTreeMap<&'static str, u64>,
    first: u64,
    last: u64,
    cpus: BTreeMap<u16, CpuFigures>,
    threads: BTreeMap<u32, ThreadFigures>,
    names: Names,
    created: u64,
    in_benchmark_switches: u64,
    preemptions: u64,
    messages: BTreeMap<u16, MessageFigures>,
    levels: Levels,
    waits: HashMap<Doing, (u64, u64)>,
    /// Stretches of CPUs, for the lines.
    lines: BTreeMap<u16, Vec<(u64, u64, u32)>>,
}

/// Columns of the line of a CPU.
const COLUMNS: usize = 80;
/// Most rows of a table.
const ROWS: usize = 15;

impl Report {
    /// Reads a trace, once.
    pub fn of(trace: &Trace, filter: Filter) -> Result<Report> {
        let mut report = Report { about: trace.about().into(), is_cut: trace.is_cut(), ..Report::default() };
        report.lost =
            trace.places().filter(|(_, lost)| *lost > 0).map(|(at, lost)| (at.kernel, at.cpu, lost)).collect();
        let mut states = States::default();
        let mut jam = Jam::default();
        let mut sent = HashMap::new();
        // A CPU's last preempted thread, until it is known who follows.
        let mut preempted: HashMap<u16, u32> = HashMap::new();
        for event in trace.events()?.filtered(filter) {
            let event = event?;
            if report.events.is_empty() {
                report.first = event.time;
            }
            *report.events.entry(event.info().name).or_default() += 1;
            jam.advance(event.time, &mut report.cpus);
            match event.point {
                Point::SchedSwitch => {
                    let (prev, next) = (event.tid("prev_tid"), event.tid("next_tid"));
                    let cpu = event.place.cpu;
                    report.cpus.entry(cpu).or_default().kernel = event.place.kernel;
                    if is_thread(prev) {
                        match event.number("prev_state") {
                            0 => _ = preempted.insert(cpu, prev),
                            _ => _ = preempted.remove(&cpu),
                        }
                        jam.leaves(prev, cpu, event.number("prev_state") == 0);
                    }
                    if is_thread(next) {
                        if let Some(before) = preempted.remove(&cpu).filter(|before| *before != next) {
                            report.preemptions += 1;
                            let same = states.names.process(before) == states.names.process(next);
                            report.in_benchmark_switches += u64::from(same);
                        }
                        jam.comes(next, cpu);
                    } else if next == IDLE {
                        preempted.remove(&cpu);
                    }
                }
                Point::SchedWakeup => jam.waits_for(event.tid("tid"), event.number("target_cpu") as u16),
                Point::SchedMigrateTask => jam.waits_for(event.tid("tid"), event.number("dest_cpu") as u16),
                Point::ThreadLeave => {
                    jam.gone(event.tid("tid"));
                    let thread = report.threads.entry(event.tid("tid")).or_default();
                    thread.moves += 1;
                    thread.kernels.extend([event.place.kernel, event.number("to") as u16]);
                }
                Point::SchedProcessFork => report.created += 1,
                Point::MessageSend => {
                    let (kind, to) = (event.number("kind") as u16, event.number("to") as u16);
                    if event.number("role") < 2 {
                        let figures = report.messages.entry(kind).or_default();
                        figures.count += 1;
                        figures.bytes += event.number("bytes");
                        sent.insert(
                            (event.place.kernel, to, kind, event.number("role"), event.number("id")),
                            event.time,
                        );
                    }
                }
                Point::MessageReceive => {
                    let (kind, from) = (event.number("kind") as u16, event.number("from") as u16);
                    let key = (from, event.place.kernel, kind, event.number("role"), event.number("id"));
                    if let Some(at) = sent.remove(&key) {
                        let flight = &mut report.messages.entry(kind).or_default().flight;
                        *flight = (flight.0 + event.time.saturating_sub(at), flight.1 + 1);
                    }
                }
                _ => {}
            }
            report.levels.take(&event, &mut |_, _| {});
            states.take(&event, &mut |stretch| report.stretch(stretch));
        }
        report.last = states.now();
        jam.advance(report.last, &mut report.cpus);
        states.end(&mut |stretch| report.stretch(stretch));
        report.names = states.names;
        Ok(report)
    }

    fn stretch(&mut self, stretch: Stretch) {
        match stretch {
            Stretch::Cpu { cpu, kernel, tid, from, to } => {
                let figures = self.cpus.entry(cpu).or_default();
                figures.kernel = kernel;
                let sum = match tid {
                    IDLE => &mut figures.idle,
                    KERNEL_WORK => &mut figures.kernel_work,
                    _ => &mut figures.threads,
                };
                *sum += to - from;
                self.lines.entry(cpu).or_default().push((from, to, tid));
            }
            Stretch::Thread { tid, kernel, doing, from, to } => {
                let figures = self.threads.entry(tid).or_default();
                figures.kernels.insert(kernel);
                let sum = match doing {
                    Doing::User { .. } => &mut figures.user,
                    Doing::InCall { .. } | Doing::InFault { .. } => &mut figures.kernel,
                    Doing::Ready | Doing::Moves { .. } => &mut figures.ready,
                    Doing::Waits { .. } => &mut figures.waits,
                };
                *sum += to - from;
                if !matches!(doing, Doing::User { .. } | Doing::InCall { .. } | Doing::InFault { .. }) {
                    let wait = self.waits.entry(doing).or_default();
                    *wait = (wait.0 + to - from, wait.1 + 1);
                }
            }
        }
    }

    fn span(&self) -> u64 {
        self.last - self.first
    }

    /// Share of the time of all CPUs in which they were idle, in per cent.
    pub fn idle_percent(&self) -> f64 {
        let idle: u64 = self.cpus.values().map(|cpu| cpu.idle).sum();
        let all: u64 = self.cpus.values().map(|cpu| cpu.idle + cpu.kernel_work + cpu.threads).sum();
        share(idle, all)
    }

    /// Mean over the CPUs of the share of time in which more than one thread ran or waited for it, in per cent.
    pub fn ready_jam_percent(&self) -> f64 {
        let sum: f64 = self.cpus.values().map(|cpu| share(cpu.jammed, self.span())).sum();
        sum / self.cpus.len().max(1) as f64
    }

    /// Switches from a thread that was preempted to another one of its process.
    pub fn in_benchmark_switches(&self) -> u64 {
        self.in_benchmark_switches
    }

    /// Threads that the trace has seen made.
    pub fn threads_created(&self) -> u64 {
        self.created
    }

    /// The line of each CPU, and what was lost.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let _ = self.write_cpus(&mut text);
        text
    }

    /// All of it, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let events: u64 = self.events.values().sum();
        writeln!(text, "{}", self.about)?;
        writeln!(text, "execution time        {:>12}", ms(self.span()))?;
        writeln!(text, "idle                  {:>11.1} %", self.idle_percent())?;
        writeln!(text, "ready jam             {:>11.1} %", self.ready_jam_percent())?;
        writeln!(text, "in-benchmark switches {:>13}", self.in_benchmark_switches)?;
        writeln!(text, "preemptions           {:>13}", self.preemptions)?;
        writeln!(text, "threads made          {:>13}", self.created)?;
        writeln!(text, "events                {events:>13}")?;
        let lost: u64 = self.lost.iter().map(|(.., lost)| lost).sum();
        writeln!(text, "events lost           {lost:>13}")?;
        for (kernel, cpu, lost) in &self.lost {
            writeln!(text, "  kernel {kernel}, CPU {cpu}: {lost}")?;
        }
        if self.is_cut {
            writeln!(text, "the file ends in the middle: what comes later is missing")?;
        }
        self.write_cpus(text)?;
        self.write_threads(text)?;
        self.write_waits(text)?;
        self.write_messages(text)?;
        self.write_disks(text)
    }

    fn write_cpus(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\nCPU  kernel  threads    kernel's own  idle     who (`.` idle, `:` kernel's own, a letter: a thread)"
        )?;
        let letters = self.letters();
        for (cpu, figures) in &self.cpus {
            let all = figures.idle + figures.kernel_work + figures.threads;
            let percent = |part| format!("{:.1} %", share(part, all));
            let (threads, own, idle) = (percent(figures.threads), percent(figures.kernel_work), percent(figures.idle));
            writeln!(
                text,
                "{cpu:<4} {:<7} {threads:<10} {own:<13} {idle:<8} {}",
                figures.kernel,
                self.line(*cpu, &letters)
            )?;
        }
        for (tid, letter) in &letters {
            if *letter != '#' {
                writeln!(text, "     {letter} {}", self.names.thread(*tid))?;
            }
        }
        Ok(())
    }

    /// The busiest threads have letters; all others are `#`.
    fn letters(&self) -> BTreeMap<u32, char> {
        let mut busiest: Vec<(u64, u32)> = self.threads.iter().map(|(tid, of)| (of.user + of.kernel, *tid)).collect();
        busiest.sort_unstable_by(|a, b| b.cmp(a));
        let letters = ('A'..='Z').chain(std::iter::repeat('#'));
        busiest.into_iter().zip(letters).map(|((_, tid), letter)| (tid, letter)).collect()
    }

    /// Who had a CPU most of the time, column by column.
    fn line(&self, cpu: u16, letters: &BTreeMap<u32, char>) -> String {
        let mut most: Vec<HashMap<u32, u64>> = vec![HashMap::new(); COLUMNS];
        let width = (self.span() / COLUMNS as u64).max(1);
        for &(from, to, tid) in self.lines.get(&cpu).into_iter().flatten() {
            let (from, to) = (from.saturating_sub(self.first), to.saturating_sub(self.first));
            for column in from / width..=(to.saturating_sub(1) / width).min(COLUMNS as u64 - 1) {
                let part = to.min((column + 1) * width).saturating_sub(from.max(column * width));
                *most[column as usize].entry(tid).or_default() += part;
            }
        }
        let of = |column: &HashMap<u32, u64>| match column
            .iter()
            .max_by_key(|(tid, part)| (**part, **tid))
            .map(|(tid, _)| *tid)
        {
            None => ' ',
            Some(IDLE) => '.',
            Some(KERNEL_WORK) => ':',
            Some(tid) => letters.get(&tid).copied().unwrap_or('#'),
        };
        most.iter().map(of).collect()
    }

    fn write_threads(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\nthread                     user        kernel      ready       waits       moves  kernels")?;
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_by_key(|(_, of)| std::cmp::Reverse(of.user + of.kernel));
        for (tid, of) in threads.iter().take(ROWS) {
            let kernels: Vec<String> = of.kernels.iter().map(u16::to_string).collect();
            writeln!(
                text,
                "{:<26} {:<11} {:<11} {:<11} {:<11} {:<6} {}",
                self.names.thread(**tid),
                ms(of.user),
                ms(of.kernel),
                ms(of.ready),
                ms(of.waits),
                of.moves,
                kernels.join(",")
            )?;
        }
        if threads.len() > ROWS {
            writeln!(text, "({} more)", threads.len() - ROWS)?;
        }
        Ok(())
    }

    fn write_waits(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\nwhat threads waited for                      time         times    mean")?;
        let mut named: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (doing, (time, count)) in &self.waits {
            let sum = named.entry(wait_name(doing)).or_default();
            *sum = (sum.0 + time, sum.1 + count);
        }
        let mut waits: Vec<_> = named.into_iter().collect();
        waits.sort_by(|(one, (a, _)), (other, (b, _))| b.cmp(a).then(one.cmp(other)));
        for (name, (time, count)) in waits.iter().take(ROWS) {
            writeln!(text, "{name:<44} {:<12} {count:<8} {}", ms(*time), ms(time / count.max(&1)))?;
        }
        Ok(())
    }

    fn write_messages(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\nmessage              sent       bytes        mean time to its receiver")?;
        let mut messages: Vec<_> = self.messages.iter().collect();
        messages.sort_by_key(|(_, of)| std::cmp::Reverse(of.count));
        for (kind, of) in messages.iter().take(ROWS) {
            let flight = of.flight.0.checked_div(of.flight.1).map(ms).unwrap_or_default();
            writeln!(text, "{:<20} {:<10} {:<12} {flight}", message_name(**kind), of.count, of.bytes)?;
        }
        Ok(())
    }
}

impl Report {
    fn write_disks(&self, text: &mut String) -> std::fmt::Result {
        if self.levels.disks().is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\ndisk     reads     writes    flushes   discards  errors  KiB read    KiB written  mean time    busy         at once: mean, most"
        )?;
        for (device, of) in self.levels.disks() {
            let [reads, writes, flushes, discards] = of.requests;
            let requests: u64 = of.requests.iter().sum();
            writeln!(
                text,
                "{:<8} {reads:<9} {writes:<9} {flushes:<9} {discards:<9} {:<7} {:<11} {:<12} {:<12} {:<12} {:.1}, {}",
                device_name((*device).into()),
                of.errors,
                of.bytes[0] / 1024,
                of.bytes[1] / 1024,
                ms(of.time / requests.max(1)),
                ms(of.busy),
                of.mean_at_once(),
                of.most
            )?;
        }
        Ok(())
    }
}

/// What a thread waits for, in words.
pub fn wait_name(doing: &Doing) -> String {
    match doing {
        Doing::Ready => "a CPU".into(),
        Doing::Moves { .. } => "its move to another kernel".into(),
        Doing::Waits { call, fault, message } => {
            let place = match (fault, call) {
                (true, _) => "page fault".into(),
                (false, Some(call)) => syscall_name(*call),
                (false, None) => "?".into(),
            };
            match message {
                Some(kind) => format!("{place}: answer to {}", message_name(*kind)),
                None => place.into_owned(),
            }
        }
        Doing::User { .. } | Doing::InCall { .. } | Doing::InFault { .. } => "nothing".into(),
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        part as f64 * 100.0 / all as f64
    }
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// How many threads run on each CPU or wait for it.
#[derive(Default)]
struct Jam {
    of: HashMap<u32, u16>,
    on: HashMap<u16, u32>,
    since: Option<u64>,
}

impl Jam {
    fn advance(&mut self, now: u64, cpus: &mut BTreeMap<u16, CpuFigures>) {
        let passed = self.since.map_or(0, |since| now.saturating_sub(since));
        if passed > 0 {
            for (cpu, _) in self.on.iter().filter(|(_, threads)| **threads > 1) {
                cpus.entry(*cpu).or_default().jammed += passed;
            }
        }
        self.since = Some(now);
    }

    fn gone(&mut self, tid: u32) {
        if let Some(cpu) = self.of.remove(&tid) {
            if let Some(threads) = self.on.get_mut(&cpu) {
                *threads = threads.saturating_sub(1);
            }
        }
    }

    fn waits_for(&mut self, tid: u32, cpu: u16) {
        self.gone(tid);
        self.of.insert(tid, cpu);
        *self.on.entry(cpu).or_default() += 1;
    }

    fn comes(&mut self, tid: u32, cpu: u16) {
        if self.of.get(&tid) != Some(&cpu) {
            self.waits_for(tid, cpu);
        }
    }

    fn leaves(&mut self, tid: u32, cpu: u16, goes_on: bool) {
        match goes_on {
            true => self.comes(tid, cpu),
            false => self.gone(tid),
        }
    }
}

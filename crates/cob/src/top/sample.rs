//! What the text of /proc/cob/activity says (crates/procfs/src/proc/activity.rs), and what happened between two of them.

use std::collections::BTreeMap;

/// One text, as numbers. What can't be read is left out: the machine may be of another version.
#[derive(Debug, Default)]
pub struct Sample {
    kernels: BTreeMap<u16, Kernel>,
    cpus: BTreeMap<u32, Cpu>,
    threads: BTreeMap<u32, Thread>,
}

#[derive(Debug)]
struct Kernel {
    state: String,
    /// As in the text, from time_us on; None while there is no kernel to ask.
    numbers: Option<[u64; 12]>,
}

#[derive(Debug)]
struct Cpu {
    kernel: u16,
    user_us: u64,
    idle_us: u64,
}

#[derive(Debug)]
struct Thread {
    process: u32,
    kernel: u16,
    cpu: u32,
    state: char,
    cpu_us: u64,
    name: String,
}

impl Sample {
    pub fn of(text: &str) -> Sample {
        let mut sample = Sample::default();
        for line in text.lines() {
            let _ = sample.take(line);
        }
        sample
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "kernel" => {
                let mut words = rest.split(' ');
                let (id, state) = (words.next()?.parse().ok()?, printable(words.next()?));
                let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
                let numbers = numbers?;
                self.kernels.insert(id, Kernel { state, numbers: numbers.try_into().ok() });
            }
            "cpu" => {
                let mut words = rest.split(' ');
                let id = words.next()?.parse().ok()?;
                let kernel = words.next()?.parse().ok()?;
                let (user_us, idle_us) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                self.cpus.insert(id, Cpu { kernel, user_us, idle_us });
            }
            "thread" => {
                let mut words = rest.splitn(7, ' ');
                let id = words.next()?.parse().ok()?;
                let (process, kernel) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let (cpu, state) = (words.next()?.parse().ok()?, words.next()?.chars().next()?);
                let cpu_us = words.next()?.parse().ok()?;
                let name = printable(words.next().unwrap_or_default());
                self.threads.insert(id, Thread { process, kernel, cpu, state, cpu_us, name });
            }
            _ => {}
        }
        Some(())
    }
}

/// What a program has chosen goes to a terminal: one column for each character, and no command among them.
pub fn printable(name: &str) -> String {
    name.chars().map(|char| if char == ' ' || char.is_ascii_graphic() { char } else { '?' }).collect()
}

/// What a machine did between two samples.
#[derive(Debug, Default)]
pub struct View {
    /// Since the machine started.
    pub up_seconds: u64,
    /// Ascending by id.
    pub kernels: Vec<KernelUse>,
    /// The busiest first.
    pub threads: Vec<ThreadUse>,
}

/// A kernel. Of one that is not running there is only the state.
#[derive(Debug, Default, Clone)]
pub struct KernelUse {
    pub id: u16,
    pub state: String,
    pub is_running: bool,
    pub cpus: Vec<CpuUse>,
    pub memory_kb: u64,
    pub used_kb: u64,
    pub threads: u64,
    /// Threads that run or wait for a CPU.
    pub load: u64,
    pub per_second: Rates,
}

/// Events of a kernel in a second.
#[derive(Debug, Default, Clone, Copy)]
pub struct Rates {
    pub moved: f64,
    pub faults_local: f64,
    pub faults_remote: f64,
    pub sent: f64,
    pub received: f64,
    pub doorbells: f64,
}

/// Parts of its time, from 0 to 1, that a CPU was in user mode and in the kernel; the rest it was idle.
#[derive(Debug, Default, Clone, Copy)]
pub struct CpuUse {
    pub user: f64,
    pub system: f64,
}

impl CpuUse {
    pub fn busy(self) -> f64 {
        self.user + self.system
    }
}

/// A thread, and the part of a CPU's time that it had.
#[derive(Debug)]
pub struct ThreadUse {
    pub id: u32,
    pub process: u32,
    pub kernel: u16,
    pub cpu: u32,
    pub state: char,
    pub part: f64,
    pub name: String,
}

impl KernelUse {
    /// The part of its CPUs' time that they were busy.
    pub fn busy(&self) -> f64 {
        average(&self.cpus)
    }
}

/// The part of their time that some CPUs were busy; 0 for none.
pub fn average(cpus: &[CpuUse]) -> f64 {
    cpus.iter().fold(0.0, |sum, cpu| sum + cpu.busy()) / cpus.len().max(1) as f64
}

impl View {
    pub fn between(old: &Sample, new: &Sample) -> View {
        let kernels = new.kernels.iter().map(|(id, kernel)| kernel_use(*id, kernel, old, new)).collect();
        let time = |sample: &Sample| sample.kernels.values().filter_map(|kernel| Some(kernel.numbers?[0])).max();
        let up = time(new).unwrap_or(0);
        let elapsed = up.saturating_sub(time(old).unwrap_or(up));
        let mut threads: Vec<(u64, ThreadUse)> =
            new.threads.iter().map(|(id, thread)| (thread.cpu_us, thread_use(*id, thread, old, elapsed))).collect();
        // Of equals those that run, then those that have had most.
        threads.sort_by(|(total, a), (other_total, b)| {
            let by_use = b.part.total_cmp(&a.part).then((b.state == 'R').cmp(&(a.state == 'R')));
            by_use.then(other_total.cmp(total)).then(a.id.cmp(&b.id))
        });
        let threads = threads.into_iter().map(|(_, thread)| thread).collect();
        View { up_seconds: up / 1_000_000, kernels, threads }
    }
}

fn kernel_use(id: u16, kernel: &Kernel, old: &Sample, new: &Sample) -> KernelUse {
    let known = KernelUse { id, state: kernel.state.clone(), ..KernelUse::default() };
    let Some(now) = kernel.numbers else { return known };
    // A kernel that was booted since has a past of nothing.
    let before = old.kernels.get(&id).and_then(|kernel| kernel.numbers).unwrap_or([0; 12]);
    let elapsed = now[0].saturating_sub(before[0]);
    let rate = |at: usize| now[at].saturating_sub(before[at]) as f64 * 1e6 / elapsed.max(1) as f64;
    let cpus = new.cpus.iter().filter(|(_, cpu)| cpu.kernel == id).map(|(number, cpu)| {
        let past = old.cpus.get(number).map_or((0, 0), |past| (past.user_us, past.idle_us));
        let part = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed.max(1) as f64;
        let (user, idle) = (part(cpu.user_us, past.0).min(1.0), part(cpu.idle_us, past.1).min(1.0));
        CpuUse { user, system: (1.0 - user - idle).max(0.0) }
    });
    KernelUse {
        is_running: true,
        cpus: cpus.collect(),
        memory_kb: now[1],
        used_kb: now[1].saturating_sub(now[2]),
        threads: now[3],
        load: now[4],
        per_second: Rates {
            moved: rate(5) + rate(6),
            faults_local: rate(7),
            faults_remote: rate(8),
            sent: rate(9),
            received: rate(10),
            doorbells: rate(11),
        },
        ..known
    }
}

fn thread_use(id: u32, thread: &Thread, old: &Sample, elapsed_us: u64) -> ThreadUse {
    let past = old.threads.get(&id).map_or(0, |past| past.cpu_us);
    let part = thread.cpu_us.saturating_sub(past) as f64 / elapsed_us.max(1) as f64;
    ThreadUse {
        id,
        process: thread.process,
        kernel: thread.kernel,
        cpu: thread.cpu,
        state: thread.state,
        // The samples of kernels and threads are not of one moment.
        part: part.min(1.0),
        name: thread.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
# kernel state time_us memory_kB free_kB threads load moved_in moved_out faults_local faults_remote sent received doorbells
kernel 0 running 1000000 4096 1024 3 1 0 0 10 0 100 50 7
kernel 1 dead
cpu 0 0 200000 700000
cpu 1 0 0 1000000
thread 5 5 0 0 S 300000 sh
thread 9 5 0 1 R 100000 a b
";
    const NEW: &str = "\
kernel 0 running 3000000 4096 512 4 2 1 3 30 2 300 450 7
kernel 1 running 3000000 2048 2048 0 0 0 0 0 0 6 0 0
cpu 0 0 1200000 1200000
cpu 1 0 0 3000000
cpu 2 1 0 1500000
process 5 2400000 1 2 0:2 sh
thread 5 5 0 0 S 300000 sh
thread 9 5 0 1 R 2100000 a b
thread 10 5 1 2 S 400000 new
";

    #[test]
    fn what_happened_is_the_difference() {
        let view = View::between(&Sample::of(OLD), &Sample::of(NEW));
        assert_eq!(view.up_seconds, 3);
        let [first, second] = &view.kernels[..] else { panic!("{view:?}") };
        assert_eq!((first.id, first.memory_kb, first.used_kb, first.threads, first.load), (0, 4096, 3584, 4, 2));
        let rates = first.per_second;
        assert_eq!((rates.moved, rates.faults_local, rates.faults_remote), (2.0, 10.0, 1.0));
        assert_eq!((rates.sent, rates.received, rates.doorbells), (100.0, 200.0, 0.0));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(first.cpus[0].user, 0.5) && near(first.cpus[0].system, 0.25), "{first:?}");
        assert!(near(first.busy(), 0.375) && near(first.cpus[1].busy(), 0.0));
        assert!(second.is_running && near(second.per_second.sent, 2.0) && near(second.busy(), 0.5));

        let order: Vec<u32> = view.threads.iter().map(|thread| thread.id).collect();
        assert_eq!(order, [9, 10, 5]);
        assert!(near(view.threads[0].part, 1.0) && near(view.threads[1].part, 0.2));
        assert_eq!(view.threads[0].name, "a b");
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let odd = "kernel\nkernel x running\nkernel 1 running 1 2\ncpu 1\nthread 1 2 3\nnew 5 6\n\n\u{1b}[2J\n\
            thread 1 1 0 0 S 5 \u{1b}[31m\u{9b}x\nkernel 70000 dead\nkernel 2 running 1 1 1 1 1 1 1 1 1 1 1 -1\n";
        let sample = Sample::of(odd);
        assert_eq!((sample.kernels.len(), sample.cpus.len(), sample.threads.len()), (1, 0, 1));
        let view = View::between(&sample, &sample);
        assert!(!view.kernels[0].is_running);
        assert_eq!(view.threads[0].name, "?[31m?x");
        View::between(&Sample::of(NEW), &Sample::of(OLD));
        View::between(&Sample::default(), &Sample::default());
    }
}

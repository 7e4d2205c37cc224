//! Shares of time by object and by function: of all kernels together, and of each.

use crate::samples::{Chain, Doing, FunctionId, Functions};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
};

/// Counts of samples, one for each kernel.
type ByKernel = BTreeMap<u16, u64>;

/// Counts samples.
#[derive(Default)]
pub struct Table {
    own: HashMap<FunctionId, ByKernel>,
    with_callees: HashMap<FunctionId, u64>,
    busy: ByKernel,
    idle: u64,
    in_kernel: u64,
    /// Samples, each once however much it counts.
    taken: u64,
    cpus: BTreeSet<u16>,
    first: Option<u64>,
    last: u64,
}

/// A row: its name, how much is its own, also by kernel, and how much with what it calls.
struct Row {
    own: u64,
    by_kernel: ByKernel,
    with_callees: u64,
    object: String,
    name: String,
}

impl Table {
    /// Counts a sample.
    pub fn take(&mut self, chain: &Chain<'_>) {
        self.taken += 1;
        self.cpus.insert(chain.place.cpu);
        self.first.get_or_insert(chain.time);
        self.last = chain.time;
        match chain.doing {
            Doing::Idle => return self.idle += chain.ticks,
            Doing::Kernel => self.in_kernel += chain.ticks,
            Doing::User => {}
        }
        let kernel = chain.place.kernel;
        *self.busy.entry(kernel).or_default() += chain.ticks;
        if let Some(frame) = chain.frames.first() {
            *self.own.entry(frame.function).or_default().entry(kernel).or_default() += chain.ticks;
        }
        // One that calls itself counts once.
        for function in chain.frames.iter().map(|frame| frame.function).collect::<BTreeSet<_>>() {
            *self.with_callees.entry(function).or_default() += chain.ticks;
        }
    }

    /// Samples in which a CPU was not idle.
    pub fn busy(&self) -> u64 {
        self.busy.values().sum()
    }

    /// The share of the busy time, 0 to 1, that a function took with what it called. Of functions of the same name the sum.
    pub fn share(&self, functions: &Functions, name: &str) -> f64 {
        let of_name = self.with_callees.iter().filter(|(function, _)| functions.get(**function).name == name);
        of_name.map(|(_, count)| count).sum::<u64>() as f64 / self.busy().max(1) as f64
    }

    fn rows(&self, functions: &Functions) -> Vec<Row> {
        let row = |(function, with_callees): (&FunctionId, &u64)| {
            let by_kernel = self.own.get(function).cloned().unwrap_or_default();
            let what = functions.get(*function);
            Row {
                own: by_kernel.values().sum(),
                by_kernel,
                with_callees: *with_callees,
                object: what.object_name().to_string(),
                name: what.name.clone(),
            }
        };
        let mut rows: Vec<Row> = self.with_callees.iter().map(row).collect();
        rows.sort_by(|a, b| (b.own, b.with_callees, &a.name).cmp(&(a.own, a.with_callees, &b.name)));
        rows
    }

    /// The tables, of at most `lines` rows each; `hertz`: how often a second the host wanted a sample of each CPU.
    pub fn text(&self, functions: &Functions, lines: usize, hertz: Option<u32>) -> String {
        let mut text = String::new();
        let (busy, all) = (self.busy(), self.busy() + self.idle);
        let seconds = self.last.saturating_sub(self.first.unwrap_or(0)) as f64 / 1e9;
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let rate = self.taken as f64 / self.cpus.len().max(1) as f64 / seconds.max(1e-3);
        // A sample counts for those that should have been taken before it and were not.
        let wanted = hertz.map(|hertz| format!(" of {hertz}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{} samples of {} CPUs in {seconds:.2} s ({rate:.0}{wanted} a second each): {:.1} % user, {:.1} % kernel, {:.1} % idle",
            self.taken,
            self.cpus.len(),
            percent(busy - self.in_kernel, all),
            percent(self.in_kernel, all),
            percent(self.idle, all),
        );
        let rows = self.rows(functions);
        let mut objects: BTreeMap<&str, (u64, ByKernel)> = BTreeMap::new();
        for row in &rows {
            let object = objects.entry(&row.object).or_default();
            object.0 += row.own;
            row.by_kernel.iter().for_each(|(kernel, count)| *object.1.entry(*kernel).or_default() += count);
        }
        let mut objects: Vec<_> = objects.into_iter().filter(|(_, (own, _))| *own > 0).collect();
        objects.sort_by_key(|(name, (own, _))| (std::cmp::Reverse(*own), *name));
        let columns = |by_kernel: &ByKernel| -> String {
            let of = |(kernel, busy): (&u16, &u64)| {
                format!("{:>6.1}", percent(by_kernel.get(kernel).copied().unwrap_or(0), *busy))
            };
            self.busy.iter().map(of).collect()
        };
        // With one kernel its column would say the same again.
        let columns = |by_kernel: &ByKernel| if self.busy.len() > 1 { columns(by_kernel) } else { String::new() };
        let names = self.busy.keys().map(|kernel| format!("{:>6}", format!("k{kernel}")));
        let head: String = if self.busy.len() > 1 { names.collect() } else { String::new() };
        let _ = writeln!(text, "\n  own %{head}  object");
        for (name, (own, by_kernel)) in objects.iter().take(lines) {
            let _ = writeln!(text, "{:>7.2}{}  {name}", percent(*own, busy), columns(by_kernel));
        }
        let _ = writeln!(text, "\n  own %{head}  with callees %  object            function");
        for row in rows.iter().filter(|row| row.own > 0).take(lines) {
            let _ = writeln!(
                text,
                "{:>7.2}{}  {:>14.2}  {:<16}  {}",
                percent(row.own, busy),
                columns(&row.by_kernel),
                percent(row.with_callees, busy),
                row.object,
                row.name,
            );
        }
        text
    }
}

//! What the examples share: words, a mixer, and the line of JSON that they end with.
#![allow(dead_code)]

use cob_tasks::{Mode, Runtime};
use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        Arc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Bytes as if they were random.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 29
}

/// FNV-1a, 8 bytes at a time.
pub fn sum_of(mut sum: u64, bytes: &[u8]) -> u64 {
    for word in bytes.chunks(8) {
        let mut value = [0; 8];
        value[..word.len()].copy_from_slice(word);
        sum = (sum ^ u64::from_le_bytes(value)).wrapping_mul(0x100_0000_01b3);
    }
    sum
}

/// `key=number`.
pub fn number<T: std::str::FromStr>(word: &str) -> T {
    let value = word.split_once('=').map_or("", |(_, value)| value);
    value.parse().unwrap_or_else(|_| panic!("{word}: expected a number"))
}

/// Times that threads of this process have left a CPU: because they waited, and for others.
pub fn switches() -> (i64, i64) {
    // SAFETY: a rusage is numbers, of which all values are valid, and the kernel writes at most its size.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    (usage.ru_nvcsw, usage.ru_nivcsw)
}

/// All of this is of the machine, by its own counts.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Of the CPUs, in clock ticks.
    idle: u64,
    all: u64,
    /// Requests that disks have done; how long they had any, and the sum of how long each took, in milliseconds.
    requests: u64,
    busy: u64,
    weighted: u64,
}

impl Counts {
    fn now() -> Counts {
        let mut counts = Counts::default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = ticks.filter_map(|word| word.parse().ok()).collect();
        counts.all = ticks.iter().sum();
        // Idle, and idle while a disk has requests.
        counts.idle = ticks.iter().skip(3).take(2).sum();
        for disk in disks() {
            let at = |place: usize| disk.get(place).copied().unwrap_or(0);
            counts.requests += at(0) + at(4) + at(11) + at(15);
            counts.busy += at(9);
            counts.weighted += at(10);
        }
        counts
    }
}

/// The numbers of each disk of /proc/diskstats.
fn disks() -> Vec<Vec<u64>> {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let numbers = |line: &str| line.split_whitespace().skip(3).filter_map(|word| word.parse().ok()).collect();
    text.lines().map(numbers).collect()
}

/// What a sampler has seen, five times a second: it costs a little.
#[derive(Clone, Copy, Default)]
struct Sampled {
    samples: u64,
    /// CPUs with more than one ready thread of this process, of all samples.
    jammed: u64,
    most_threads: usize,
    most_in_flight: u64,
}

impl Sampled {
    fn add(&mut self) {
        let own = fs::read_link("/proc/thread-self").unwrap_or_default();
        let mut ready = BTreeMap::new();
        let mut threads = 0;
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            threads += 1;
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
            if fields.first() == Some(&"R") && own.file_name() != Some(&entry.file_name()) {
                *ready.entry(fields.get(36).copied().unwrap_or_default().to_string()).or_insert(0) += 1;
            }
        }
        self.samples += 1;
        self.jammed += ready.values().filter(|count| **count > 1).count() as u64;
        // Without the sampler.
        self.most_threads = self.most_threads.max(threads - 1);
        let in_flight = disks().iter().filter_map(|disk| disk.get(8)).sum();
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }
}

/// What is measured from here to `end`. With UMT_SAMPLE in the environment also what is only seen by looking.
pub struct Measured {
    begin: Instant,
    counts: Counts,
    sampler: Option<(Arc<AtomicBool>, JoinHandle<Sampled>)>,
}

pub struct Figures {
    seconds: f64,
    idle: f64,
    requests: u64,
    /// The mean, while there were any.
    in_flight: f64,
    sampled: Option<Sampled>,
}

impl Measured {
    pub fn begin() -> Measured {
        let sampler = std::env::var_os("UMT_SAMPLE").map(|_| {
            let end = Arc::new(AtomicBool::new(false));
            let ended = end.clone();
            let look = move || {
                let mut sampled = Sampled::default();
                while !ended.load(SeqCst) {
                    std::thread::park_timeout(Duration::from_millis(200));
                    sampled.add();
                }
                sampled
            };
            (end, std::thread::spawn(look))
        });
        Measured { begin: Instant::now(), counts: Counts::now(), sampler }
    }

    pub fn end(self) -> Figures {
        let seconds = self.begin.elapsed().as_secs_f64();
        let (before, now) = (self.counts, Counts::now());
        let sampled = self.sampler.and_then(|(end, sampler)| {
            end.store(true, SeqCst);
            sampler.thread().unpark();
            sampler.join().ok()
        });
        let part = |one: u64, of: u64| one as f64 / (of as f64).max(1.0);
        Figures {
            seconds,
            idle: part(now.idle - before.idle, now.all - before.all),
            requests: now.requests - before.requests,
            in_flight: part(now.weighted - before.weighted, now.busy - before.busy),
            sampled,
        }
    }
}

/// The line of JSON that says what was done.
pub struct Line(String);

impl Line {
    pub fn new(benchmark: &str, runtime: &Runtime) -> Line {
        let mode = if runtime.mode() == Mode::Umt { "umt" } else { "baseline" };
        let line = Line(format!("{{\"benchmark\": \"{benchmark}\", \"mode\": \"{mode}\""));
        line.with("cpus", runtime.cpus())
    }

    pub fn with(self, name: &str, value: impl Display) -> Line {
        Line(format!("{}, \"{name}\": {value}", self.0))
    }

    pub fn text(self, name: &str, value: impl Display) -> Line {
        Line(format!("{}, \"{name}\": \"{value}\"", self.0))
    }

    pub fn measured(self, figures: &Figures) -> Line {
        let line = self
            .with("seconds", format!("{:.3}", figures.seconds))
            .with("idle", format!("{:.4}", figures.idle))
            .with("requests", figures.requests)
            .with("in_flight", format!("{:.2}", figures.in_flight));
        match figures.sampled {
            None => line,
            Some(Sampled { samples, jammed, most_threads, most_in_flight }) => line
                .with("samples", samples)
                .with("jammed", jammed)
                .with("most_threads", most_threads)
                .with("most_in_flight", most_in_flight),
        }
    }

    /// With what the runtime has counted.
    pub fn print(self, runtime: &Runtime) {
        let statistics = runtime.statistics();
        let (waited, preempted) = switches();
        let line = self
            .with("tasks", statistics.tasks())
            .with("workers", statistics.workers())
            .with("surrenders", statistics.surrenders())
            .with("leaders", format!("{:?}", statistics.leaders()))
            .with("voluntary_switches", waited)
            .with("involuntary_switches", preempted);
        println!("{}}}", line.0);
    }
}

//! The synthetic benchmark of Roca Nonell 2017, 4.2: tasks that read, change, write and msync random blocks of a mapped file.
//!
//! ```text
//! synthetic FILE [S1|S2|S3] [tasks=N] [elements=N] [operations=N] [bytes=N] [seed=N]
//! ```
//!
//! FILE is made if it is not there. Prints a line of JSON: what was done, how long that took, and a checksum of the file, which is the same for all ways to run it.
//! COB_TASKS=baseline or umt says how.

mod common;

use cob_tasks::{spawn, Builder};
use common::{mix, Line, Measured};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::fd::AsRawFd,
    sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        Arc,
    },
};

const PAGE: usize = 4096;

struct Preset {
    tasks: usize,
    elements: usize,
    /// Floating-point operations for each element.
    operations: usize,
    writes_only: bool,
}

/// A mapped file, whose bytes tasks change wherever they like: they all write the same there.
struct Map {
    start: usize,
    bytes: usize,
}

impl Map {
    fn new(file: &File, bytes: usize) -> io::Result<Map> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of a file that nobody makes shorter meanwhile.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Map { start: start as usize, bytes }),
        }
    }

    fn element(&self, index: usize) -> &AtomicU64 {
        assert!((index + 1) * 8 <= self.bytes);
        // SAFETY: within the mapping, aligned, and only ever used as atomics.
        unsafe { AtomicU64::from_ptr((self.start + index * 8) as *mut u64) }
    }

    fn sync(&self, first: usize, elements: usize) -> io::Result<()> {
        let from = (self.start + first * 8) & !(PAGE - 1);
        let to = self.start + (first + elements) * 8;
        // SAFETY: within the mapping.
        match unsafe { libc::msync(from as *mut libc::c_void, to - from, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn make(path: &str, bytes: usize) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let kind = file.metadata()?;
    if kind.is_file() && kind.len() < bytes as u64 {
        let piece: Vec<u8> = (0..1 << 17).flat_map(|at| mix(at).to_le_bytes()).collect();
        for _ in 0..bytes.div_ceil(piece.len()) {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
    }
    Ok(file)
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().expect("synthetic FILE [S1|S2|S3] [tasks=N] ...");
    let mut preset = Preset { tasks: 500, elements: 2000, operations: 0, writes_only: false };
    let (mut bytes, mut seed, mut name) = (100 << 20, 1, "S1".to_string());
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((&word, ""));
        let number = || value.parse::<usize>().unwrap_or_else(|_| panic!("{word}: expected a number"));
        match key {
            "S1" | "S2" | "S3" => {
                name = key.to_string();
                preset = match key {
                    "S1" => Preset { tasks: 500, elements: 2000, operations: 0, writes_only: false },
                    "S2" => Preset { tasks: 500, elements: 2000, operations: 2000, writes_only: false },
                    _ => Preset { tasks: 2000, elements: 256, operations: 0, writes_only: true },
                };
            }
            "tasks" => preset.tasks = number(),
            "elements" => preset.elements = number(),
            "operations" => preset.operations = number(),
            "bytes" => bytes = number(),
            "seed" => seed = number() as u64,
            _ => panic!("{word}: not known"),
        }
    }
    let file = make(&path, bytes)?;
    let map = Arc::new(Map::new(&file, bytes)?);
    let runtime = Builder::from_environment().build()?;
    let failed = Arc::new(AtomicUsize::new(0));
    let measured = Measured::begin();
    let (tasks, elements) = (preset.tasks, preset.elements);
    let (task_map, errors) = (map.clone(), failed.clone());
    runtime.run(move || {
        for task in 0..tasks as u64 {
            let (map, errors) = (task_map.clone(), errors.clone());
            let first = mix(seed << 32 | task) as usize % (bytes / 8 - elements);
            spawn(move || {
                let mut value = 1.0;
                for index in first..first + elements {
                    if !preset.writes_only {
                        value += map.element(index).load(Relaxed) as f64 * 1e-20;
                    }
                    for _ in 0..preset.operations {
                        value = std::hint::black_box(value * 1.000_001 + 0.5);
                    }
                    map.element(index).store(mix(index as u64 ^ seed), Relaxed);
                }
                std::hint::black_box(value);
                if map.sync(first, elements).is_err() {
                    errors.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let measured = measured.end();
    let sum = (0..bytes / 8).fold(0u64, |sum, index| sum.rotate_left(1) ^ map.element(index).load(Relaxed));
    Line::new("synthetic", &runtime)
        .text("preset", name)
        .with("elements", elements)
        .measured(&measured)
        .with("errors", failed.load(Relaxed))
        .text("checksum", format!("{sum:016x}"))
        .print(&runtime);
    Ok(())
}

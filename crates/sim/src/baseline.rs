//! Messages per operation: Cob's protocol and Popcorn's, on the same traces, both checked by the model.
//!
//! A trace is a process with a thread on every kernel that maps, touches, protects, grows and unmaps private anonymous
//! memory, one operation after the other. Half of the operations are done by the kernel that mapped the memory.

use crate::{
    cluster::Cluster,
    executor::Handle,
    machine::Machine,
    model::{Model, Operation, Outcome, Where},
    popcorn::Popcorn,
    rng::Rng,
    shape::Shape,
};
use machine::{Access, KernelId, SpaceId};
use std::{collections::BTreeSet, fmt::Write};

const KERNELS: [usize; 5] = [2, 4, 8, 16, 64];
const LENGTH: usize = 3000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Map,
    OwnFirst,
    OtherFirst,
    Fetch,
    Again,
    Protect,
    Grow,
    Unmap,
}

use Class::*;

const CLASSES: [(Class, &str); 8] = [
    (Map, "mmap"),
    (OwnFirst, "first touch of a page, on the kernel that mapped it"),
    (OtherFirst, "first touch of a page, on another kernel"),
    (Fetch, "first touch by this kernel of a page that others have"),
    (Again, "touch of a page that this kernel has touched before"),
    (Protect, "mprotect of a whole mapping"),
    (Grow, "mremap that grows a mapping"),
    (Unmap, "munmap of a whole mapping"),
];

#[derive(Clone, Copy, Debug)]
struct Traced {
    class: Class,
    kernel: usize,
    mapping: usize,
    /// Of the mapping, before.
    pages: u64,
    /// Touched; and for `Protect` the protection: 1 is read-only.
    page: u64,
    value: Option<u64>,
}

/// A mapping while the trace is made.
struct Mapping {
    number: usize,
    mapper: usize,
    touched: Vec<BTreeSet<usize>>,
}

fn trace(kernels: usize) -> Vec<Traced> {
    let rng = Rng::new(kernels as u64);
    let mut live: Vec<Mapping> = Vec::new();
    let (mut trace, mut next) = (Vec::new(), 0);
    while trace.len() < LENGTH {
        if live.is_empty() || live.len() < 8 && rng.one_in(12) {
            let (mapper, pages) = (rng.below(kernels), 1 + rng.below(16));
            trace.push(Traced { class: Map, kernel: mapper, mapping: next, pages: pages as u64, page: 0, value: None });
            live.push(Mapping { number: next, mapper, touched: vec![BTreeSet::new(); pages] });
            next += 1;
            continue;
        }
        let index = rng.below(live.len());
        let mapping = &mut live[index];
        let kernel = if rng.one_in(2) { mapping.mapper } else { rng.below(kernels) };
        let pages = mapping.touched.len();
        let traced =
            Traced { class: Again, kernel, mapping: mapping.number, pages: pages as u64, page: 0, value: None };
        match rng.below(100) {
            0..=3 => {
                // Read-only, and writable again.
                trace.push(Traced { class: Protect, page: 1, ..traced });
                trace.push(Traced { class: Protect, ..traced });
            }
            4..=5 if pages < 64 => {
                mapping.touched.extend((0..4).map(|_| BTreeSet::new()));
                trace.push(Traced { class: Grow, ..traced });
            }
            6..=9 => {
                trace.push(Traced { class: Unmap, ..traced });
                live.remove(index);
            }
            _ => {
                let page = rng.below(pages);
                let class = match &mapping.touched[page] {
                    by if by.contains(&kernel) => Again,
                    by if !by.is_empty() => Fetch,
                    _ if kernel == mapping.mapper => OwnFirst,
                    _ => OtherFirst,
                };
                mapping.touched[page].insert(kernel);
                let value = rng.one_in(2).then(|| rng.next() >> 8);
                trace.push(Traced { class, page: page as u64, value, ..traced });
            }
        }
    }
    trace
}

/// Operations and messages of each class.
type Counts = [(u64, u64); CLASSES.len()];

/// Runs a trace with `start`, which begins an operation on a kernel.
fn count(
    trace: &[Traced],
    machine: &Machine,
    space: SpaceId,
    start: impl Fn(usize, Operation) -> Handle<Outcome>,
) -> Counts {
    let mut model = Model::new(0, false);
    model.add_space(space, 0);
    let mut counts = Counts::default();
    // Where the protocol put each mapping.
    let mut places: Vec<u64> = Vec::new();
    for traced in trace {
        let place = places.get(traced.mapping).copied().unwrap_or_default();
        let operation = operation(traced, place);
        let before = machine.messages();
        let handle = start(traced.kernel, operation);
        machine.settle();
        let outcome = handle.take().expect("an operation alone ends");
        assert!(model.accepts(space, operation, outcome), "{traced:?}: {operation} -> {outcome}");
        match (traced.class, outcome) {
            (Map, Outcome::At(place)) => places.push(place),
            (Grow, Outcome::At(place)) => places[traced.mapping] = place,
            _ => {}
        }
        let (operations, messages) = &mut counts[traced.class as usize];
        *operations += 1;
        *messages += machine.messages() - before;
    }
    counts
}

fn operation(traced: &Traced, place: u64) -> Operation {
    let (writable, pages) = (Access::READ | Access::WRITE, traced.pages);
    match traced.class {
        Map => Operation::Map { at: Where::Anywhere, pages, prot: writable, shared: false, object: None },
        Protect => {
            let prot = if traced.page == 1 { Access::READ } else { writable };
            Operation::Protect { page: place, pages, prot }
        }
        Grow => Operation::Remap { page: place, old: pages, new: pages + 4, may_move: true, to: None },
        Unmap => Operation::Unmap { page: place, pages },
        OwnFirst | OtherFirst | Fetch | Again => match traced.value {
            Some(value) => Operation::Write { page: place + traced.page, word: 1, value },
            None => Operation::Read { page: place + traced.page, word: 1 },
        },
    }
}

fn shape(kernels: usize) -> Shape {
    Shape { frames: 1 << 16, ..Shape::of(1, kernels).calm() }
}

fn cob(kernels: usize, trace: &[Traced]) -> Counts {
    let cluster = Cluster::new(shape(kernels));
    let space = cluster.kernels[0].vm.create().expect("memory is empty").id();
    count(trace, &cluster, space, |kernel, operation| {
        let kernel = &cluster.kernels[kernel];
        let (replica, objects) = (kernel.vm.attach(space).expect("the space is there"), kernel.objects.clone());
        cluster.start(
            async move { crate::acts::perform(replica, operation, objects).await.unwrap_or_else(Outcome::Error) },
        )
    })
}

fn popcorn(kernels: usize, trace: &[Traced]) -> Counts {
    let machine = Machine::new(shape(kernels));
    let popcorn = Popcorn::new(&machine);
    let space = SpaceId { home: KernelId(0), serial: 1 };
    count(trace, &machine, space, |kernel, operation| {
        let popcorn = popcorn.clone();
        machine.start(async move { popcorn.perform(kernel, operation).await })
    })
}

/// In Markdown: messages per operation, Cob's and Popcorn's, for some numbers of kernels.
pub fn table() -> String {
    let runs: Vec<(Counts, Counts)> = KERNELS
        .iter()
        .map(|&kernels| {
            let trace = trace(kernels);
            (cob(kernels, &trace), popcorn(kernels, &trace))
        })
        .collect();
    let mut text = String::from("| messages per operation: Cob / Popcorn |");
    for kernels in KERNELS {
        let _ = write!(text, " {kernels} kernels |");
    }
    text.push_str("\n|---|---|---|---|---|---|\n");
    let mut row = |name: &str, of: &dyn Fn(&Counts) -> (u64, u64)| {
        let mean = |counts: &Counts| match of(counts) {
            (0, _) => 0.0,
            (operations, messages) => messages as f64 / operations as f64,
        };
        let cells = runs.iter().map(|(cob, popcorn)| format!(" {:.1} / {:.0} |", mean(cob), mean(popcorn)));
        let _ = writeln!(text, "| {name} |{}", cells.collect::<String>());
    };
    for (class, name) in CLASSES {
        row(name, &|counts| counts[class as usize]);
    }
    row("all", &|counts| counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1)));
    text
}

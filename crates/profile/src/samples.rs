//! Samples and the address spaces that they are of, out of a trace; each becomes a chain of calls with names.

use crate::{
    jit::Jit,
    space::{Cache, Images, Registers, Space},
    stack::{Piece, Stacks},
};
use anyhow::{Context, Result};
use std::{collections::HashMap, path::PathBuf, time::SystemTime};
use trace::{Point, IDLE, KERNEL_WORK, SAMPLES};
use traces::{file::Trace, Event, Names, Place};

/// Where files are that a trace names.
pub struct Options {
    /// The kernels' image.
    pub kernel: PathBuf,
    /// What programs call `/`.
    pub root: PathBuf,
    /// Where perf-PID.map are.
    pub jit_maps: PathBuf,
    /// When the recording began.
    pub since: SystemTime,
    /// Only this process, by id or by name.
    pub process: Option<String>,
}

/// A function, as [`Functions`] numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// The file's path; `[kernel]`, `[jit]`, or `[unknown]`.
    pub object: String,
    /// Its name; `[unknown]` if the file does not say.
    pub name: String,
}

impl Function {
    /// The file without its directory.
    pub fn object_name(&self) -> &str {
        self.object.rsplit('/').next().unwrap_or(&self.object)
    }

    /// Whether it is the kernels'.
    pub fn is_of_kernel(&self) -> bool {
        self.object == KERNEL
    }
}

const KERNEL: &str = "[kernel]";
const UNKNOWN: &str = "[unknown]";

/// All functions of a profile.
#[derive(Default)]
pub struct Functions {
    known: Vec<Function>,
    ids: HashMap<Function, FunctionId>,
}

impl Functions {
    /// The number of a function.
    pub fn id(&mut self, object: &str, name: &str) -> FunctionId {
        let function = Function { object: object.to_string(), name: name.to_string() };
        let known = &mut self.known;
        *self.ids.entry(function).or_insert_with_key(|function| {
            known.push(function.clone());
            FunctionId(known.len() as u32 - 1)
        })
    }

    /// The function of a number.
    pub fn get(&self, id: FunctionId) -> &Function {
        &self.known[id.0 as usize]
    }
}

/// One call of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function.
    pub function: FunctionId,
    /// The instruction's address.
    pub address: u64,
    /// How far it is into the function.
    pub inside: u64,
}

/// What a CPU was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It had nothing to do, and waited for an interrupt.
    Idle,
    /// A program's instructions.
    User,
    /// The kernel's.
    Kernel,
}

/// A sample.
pub struct Chain<'a> {
    /// In ns since the machine started.
    pub time: u64,
    /// Which CPU of which kernel.
    pub place: Place,
    /// The thread; [`IDLE`] and [`KERNEL_WORK`] are none.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The thread's name.
    pub comm: &'a str,
    /// How many samples it counts for.
    pub ticks: u64,
    /// What the CPU was at.
    pub doing: Doing,
    /// The calls, innermost first.
    pub frames: &'a [Frame],
}

/// How good a profile is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Records of samples that were lost because a ring was full.
    pub lost: u64,
    /// Samples of programs, and of kernels, whose chain does not go back to where chains begin.
    pub cut: [u64; 2],
    /// Samples, each once however much it counts.
    pub samples: u64,
}

/// A sample whose stack is not whole yet.
struct Pending {
    event: Event,
    kernel: Piece,
    user: Piece,
    wanted: [usize; 2],
}

struct Reader<'a, T> {
    options: &'a Options,
    kernel: Option<Space>,
    spaces: HashMap<(u64, u16), Space>,
    images: Images,
    stacks: Stacks,
    jits: HashMap<u32, Jit>,
    names: Names,
    functions: &'a mut Functions,
    cache: Cache,
    quality: Quality,
    /// The path of the file that each CPU has told of last, as far as it has come: a long one comes in parts.
    path: HashMap<Place, String>,
    take: T,
}

/// Reads a trace with samples and shows each to `take`, in the order of time.
pub fn read(
    trace: &Trace,
    options: &Options,
    functions: &mut Functions,
    take: impl FnMut(&Functions, &Chain<'_>),
) -> Result<Quality> {
    let kernel =
        Space::of_kernel(&options.kernel).with_context(|| format!("{}: no kernel", options.kernel.display()))?;
    let mut reader = Reader {
        options,
        kernel: Some(kernel),
        spaces: HashMap::new(),
        images: Images::new(options.root.clone()),
        stacks: Stacks::default(),
        jits: HashMap::new(),
        names: Names::default(),
        functions,
        cache: Cache::new_in(),
        quality: Quality::default(),
        path: HashMap::new(),
        take,
    };
    let mut pending: HashMap<Place, Pending> = HashMap::new();
    let mut has_program = false;
    for event in trace.events()? {
        let event = event?;
        has_program |= event.point == Point::MapFile;
        match event.point {
            // Kernels that boot.
            Point::Sample | Point::StackPiece if !has_program => {}
            Point::Sample => {
                let wanted = [event.number("words") as usize, event.number("user_words") as usize];
                let place = event.place;
                // One whose stack was lost in part.
                if let Some(cut) = pending.remove(&place) {
                    reader.sample(cut);
                }
                let new = Pending { event, kernel: Piece::default(), user: Piece::default(), wanted };
                if wanted == [0, 0] {
                    reader.sample(new);
                } else {
                    pending.insert(place, new);
                }
            }
            Point::StackPiece => {
                let Some(sample) = pending.get_mut(&event.place) else { continue };
                sample.add(&event);
                if sample.is_whole() {
                    let whole = pending.remove(&event.place);
                    whole.into_iter().for_each(|sample| reader.sample(sample));
                }
            }
            _ => reader.hear(&event),
        }
    }
    pending.into_values().for_each(|sample| reader.sample(sample));
    reader.quality.lost = trace.places().filter(|(place, _)| place.cpu & SAMPLES != 0).map(|(_, lost)| lost).sum();
    Ok(reader.quality)
}

impl Pending {
    fn add(&mut self, event: &Event) {
        let Some((address, words)) = event.words.split_first() else { return };
        let piece = if self.kernel.len() < self.wanted[0] { &mut self.kernel } else { &mut self.user };
        piece.add(*address, words);
    }

    fn is_whole(&self) -> bool {
        self.kernel.len() >= self.wanted[0] && self.user.len() >= self.wanted[1]
    }
}

impl<T: FnMut(&Functions, &Chain<'_>)> Reader<'_, T> {
    /// What is no sample.
    fn hear(&mut self, event: &Event) {
        self.names.take(event);
        let space = (event.number("space"), event.number("home") as u16);
        match event.point {
            Point::MapFile => {
                let part = event.number("part");
                let path = self.path.entry(event.place).or_default();
                if part == 0 {
                    path.clear();
                }
                path.push_str(&event.text());
                let (start, length, offset) = (event.number("start"), event.number("length"), event.number("offset"));
                self.spaces.entry(space).or_default().map(start, length, offset, path);
            }
            Point::ForkSpace => {
                let parent = (event.number("parent"), event.number("parent_home") as u16);
                let child = (event.number("child"), event.number("child_home") as u16);
                let copy = self.spaces.get(&parent).map(Space::fork).unwrap_or_default();
                self.spaces.insert(child, copy);
            }
            _ => {}
        }
    }

    fn sample(&mut self, sample: Pending) {
        let event = &sample.event;
        let tid = event.tid("tid");
        let (pid, comm) = match tid {
            IDLE | KERNEL_WORK => (0, "kernel".to_string()),
            tid => (self.names.process(tid), self.names.comm(tid).into_owned()),
        };
        let is_wanted = |process: &String| {
            pid != 0 && (pid.to_string() == *process || comm == *process || self.names.comm(pid) == *process)
        };
        if !self.options.process.as_ref().is_none_or(is_wanted) {
            return;
        }
        let registers = |prefix: &str| {
            let number = |name: &str| event.number(&format!("{prefix}{name}"));
            Registers { pc: number("pc"), sp: number("sp"), fp: number("fp") }
        };
        let (kernel, user) = (registers(""), registers("user_"));
        let mut frames = Vec::new();
        let mut doing = Doing::User;
        if kernel.pc != 0 {
            self.kernel_calls(kernel, &sample.kernel, user.pc != 0, &mut frames);
            doing = match frames.first() {
                Some(frame) if is_idle(&self.functions.get(frame.function).name) => Doing::Idle,
                _ => Doing::Kernel,
            };
        }
        if user.pc != 0 {
            let space = (event.number("space"), event.number("home") as u16);
            self.stacks.remember(tid, user.sp, sample.user);
            self.user_calls(space, pid, tid, user, &mut frames);
        }
        let chain = Chain {
            time: event.time,
            place: Place { cpu: event.place.cpu & !SAMPLES, ..event.place },
            tid,
            pid,
            comm: &comm,
            ticks: event.number("ticks"),
            doing,
            frames: &frames,
        };
        self.quality.samples += 1;
        (self.take)(self.functions, &chain);
    }

    /// `for_thread`: the calls of a program come next, so those that led to its thread are left out.
    fn kernel_calls(&mut self, from: Registers, stack: &Piece, for_thread: bool, frames: &mut Vec<Frame>) {
        let Some(kernel) = &mut self.kernel else { return };
        let (chain, _) = kernel.unwind(from, &|at| stack.word(at), &mut self.images, &mut self.cache);
        let mut reaches_task = false;
        for address in chain {
            let (name, inside) = match kernel.find(address, &mut self.images).and_then(|known| known.function) {
                Some((name, inside)) => (name.to_string(), inside),
                None => (UNKNOWN.to_string(), 0),
            };
            reaches_task |= is_task(&name);
            if for_thread && is_task(&name) {
                break;
            }
            frames.push(Frame { function: self.functions.id(KERNEL, &name), address, inside });
        }
        self.quality.cut[1] += u64::from(!reaches_task && for_thread);
    }

    fn user_calls(&mut self, space: (u64, u16), pid: u32, tid: u32, from: Registers, frames: &mut Vec<Frame>) {
        let space = self.spaces.entry(space).or_default();
        let stack = |at| self.stacks.word(tid, at);
        let (chain, is_whole) = space.unwind(from, &stack, &mut self.images, &mut self.cache);
        for address in chain {
            let (object, name, inside) = match space.find(address, &mut self.images) {
                Some(known) => match known.function {
                    Some((name, inside)) => (known.path.to_string(), name.to_string(), inside),
                    None => (known.path.to_string(), UNKNOWN.to_string(), known.address),
                },
                None => {
                    let read = || Jit::read(&self.options.jit_maps, pid, self.options.since);
                    match self.jits.entry(pid).or_insert_with(read).function(address) {
                        Some((name, inside)) => ("[jit]".to_string(), name.to_string(), inside),
                        None => (UNKNOWN.to_string(), UNKNOWN.to_string(), 0),
                    }
                }
            };
            frames.push(Frame { function: self.functions.id(&object, &name), address, inside });
        }
        let begins = |frame: &Frame| is_beginning(&self.functions.get(frame.function).name);
        self.quality.cut[0] += u64::from(!is_whole && !frames.last().is_some_and(begins));
    }
}

/// Where a CPU waits for an interrupt (platform's trap.s).
fn is_idle(function: &str) -> bool {
    matches!(function, "halt_with_interrupts" | "halted")
}

/// Where a program or a thread begins. Not all C libraries say in these functions that nothing has called them.
fn is_beginning(function: &str) -> bool {
    matches!(function, "_start" | "__clone" | "__clone3" | "clone" | "clone3")
}

/// Where the scheduler runs a task: what is further out is the same of all.
fn is_task(function: &str) -> bool {
    function.contains("async_task::raw::RawTask") && function.ends_with("::run")
}

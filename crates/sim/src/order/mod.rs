//! Calls that change one thing that threads on many kernels share: is there an order in which they could have been made
//! one after the other?
//!
//! Problem: what a futex, a pipe or a descriptor table answers depends on the order of the calls, and calls made at the
//! same moment on different kernels have none that anybody sees.
//!
//! Idea (Herlihy, Wing 1990, linearizability): a [`Subject`] says what each call does to one small state, at once. After
//! every round the machine rests, so each call has returned or waits. search.rs looks for an order of the calls of the
//! round, with the waiting ones of earlier rounds among them, that gives exactly these answers *and* leaves waiting
//! exactly those that must wait. Two things go wrong in protocols, and both have no such order:
//!
//! ```text
//!   a lost wake-up              A: wait(word == 0)      B: wake -> 0, and A still waits: no order, for after A before B
//!                                                       B would have answered 1, and after B before A the word was 1
//!   one byte read twice         A: read -> "x"          B: read -> "x", and x was written once
//! ```
//!
//! States that explain a round are all kept: what happened may show only later.
//!
//! | file | subject |
//! |---|---|
//! | search.rs | the search for an order |
//! | program.rs | random programs on whole kernels, of any subject: calls, threads, processes, moves |
//! | upheaval.rs | what they do now and then while nothing else is begun: execve, the death of a kernel |
//! | futex.rs | futex words and locks with owners |
//! | files.rs | descriptor tables, open files and their offsets, splices between them |
//! | channel.rs | what is behind the descriptors: files, pipes, eventfds |

mod channel;
mod files;
mod futex;
mod program;
mod search;
mod upheaval;

use crate::{nodes::user::Command, rng::Rng};
use machine::KernelId;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    hash::Hash,
};

pub use files::Files;
pub use futex::Futex;
pub use program::Program;

pub type Id = u32;

pub const EPERM: i64 = -1;
pub const ENOENT: i64 = -2;
pub const ESRCH: i64 = -3;
pub const EIO: i64 = -5;
pub const EBADF: i64 = -9;
pub const EAGAIN: i64 = -11;
pub const EEXIST: i64 = -17;
pub const EINVAL: i64 = -22;
pub const ESPIPE: i64 = -29;
pub const EPIPE: i64 = -32;
pub const EDEADLK: i64 = -35;
pub const ETIMEDOUT: i64 = -110;

/// What a call answers: the result, and how the output begins.
pub type Reply = (i64, Vec<u8>);

/// What becomes of a call that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Reply(Reply),
    /// It has done one thing, and goes on later: see [`Subject::go_on`].
    Waits,
    /// The thread is no more.
    Ends,
}

/// What a process had before a kernel died: for each descriptor whether its file is on that kernel.
pub type Lost = BTreeMap<(Id, i32), bool>;

/// The sequential model.
pub trait Subject: Clone + Eq + Hash + Debug + Send + 'static {
    const NAME: &'static str;
    const STEPS: u32;
    /// Threads of a program.
    const THREADS: usize;
    /// Whether there are processes too, that begin as copies of their parents; execute programs; and die with kernels.
    const FORKS: bool;
    type Op: Copy + Eq + Hash + Debug;

    /// The state before the first call. `call` makes one, on any kernel, and says its result and which kernel that was.
    fn new(first: Id, call: &mut dyn FnMut(Command) -> (i64, KernelId)) -> Self;

    /// A call for `thread`; it must not wait if `patient` is false.
    fn draw(&self, thread: Id, patient: bool, rng: &Rng) -> Self::Op;

    fn command(&self, op: Self::Op) -> Command;

    /// `child` begins, with all that `parent` has if it is a process.
    fn born(&mut self, parent: Id, child: Id, process: bool);

    /// What the call does when it begins.
    fn begin(&mut self, thread: Id, op: Self::Op) -> Outcome;

    /// The next thing that a call does that has begun and not ended; none: it must go on waiting.
    fn go_on(&mut self, thread: Id, op: Self::Op) -> Option<Outcome>;

    /// `thread` executes a program: from now on it is the only one of its process, and has the process's id, which this says.
    fn execute(&mut self, _thread: Id) -> Id {
        unreachable!("only subjects that fork execute programs")
    }

    /// Threads by their processes.
    fn processes(&self) -> BTreeMap<Id, Id> {
        BTreeMap::new()
    }

    /// A kernel has died, and with it `ended`. All states that may be left; none if that can't have happened here.
    fn lose(self, _ended: &BTreeSet<Id>, _lost: &Lost) -> Vec<Self> {
        vec![self]
    }
}

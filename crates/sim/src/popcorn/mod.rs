//! The memory protocol of Popcorn Linux (Katz 2014, chapter 5), as a baseline to count messages against.
//!
//! Problem: threads of one process run on several kernels and share its memory. Popcorn's answer has no owner: every kernel
//! keeps what it knows (areas and pages), and whoever needs more asks *all* the others. So that two that ask at once
//! don't both hear "nothing" and make two frames for one page, a fault holds a lock on its page, and a call that
//! changes areas holds the *heavy* lock, which stands for all pages. The locks are Lamport's: a queue on each kernel,
//! ordered by stamps from one shared clock; a request is sent to all, acknowledged by all, and granted when it is at
//! the head of the own queue; a release is sent to all.
//!
//! ```text
//! kernel 0: fault on p        REQUEST(p) to all   <- acks    ASK(p) to all   <- answers    install, RELEASE(p) to all
//! kernel 1: fault on p           REQUEST(p) to all   <- acks   . . . not at the head . . .   RELEASE of 0: ASK(p) ...
//! ```
//!
//! The dangerous interleaving is a request with an older stamp that arrives after a younger one was granted. It can't:
//! a stamp is drawn and the request sent in one step, lanes keep their order, so kernel 1's older request is in the lane
//! to kernel 0 before its acknowledgement of kernel 0's younger one.
//!
//! | file | subject |
//! |---|---|
//! | mod.rs | kernels, messages, lanes that keep the order of a pair and no other |
//! | lock.rs | the distributed locks |
//! | fault.rs | fetching mappings (5.7.3), with slots of neighbours (5.7.6) |
//! | calls.rs | munmap, mprotect, mremap, mmap (5.7.5) |
//! | scenario.rs | random programs on it, checked by the same model as Cob's |
//!
//! Left out: files, fork and brk, which the thesis leaves to the local kernel, and TLBs.

mod calls;
mod fault;
mod lock;
mod scenario;

pub use scenario::Program;

use crate::{
    executor::Executor,
    machine::Machine,
    model::{Operation, Outcome, WORDS},
    port::Network,
};
use lock::Scope;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Access, Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

/// A frame: the kernel in whose memory it lies, and its number there.
type Frame = (usize, u64);

/// The page of zeros, which is everyone's.
const ZERO: Frame = (usize::MAX, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    frame: Frame,
    /// Copied before it is written, and before another kernel gets it.
    cow: bool,
}

/// What one kernel knows of the process.
#[derive(Default)]
struct Replica {
    /// Protection by page: pages with the same next to each other are an area.
    areas: BTreeMap<u64, Access>,
    pages: BTreeMap<u64, Entry>,
    locks: lock::Queues,
    /// Answers so far, by question.
    answers: BTreeMap<u64, Vec<Answer>>,
    next_frame: u64,
}

/// What is asked of all other kernels.
#[derive(Clone, Debug)]
enum Ask {
    Lock(u64, Scope),
    Mapping(u64),
    /// The areas from a page on, and the pages there too if they are to move.
    Range {
        page: u64,
        pages: u64,
        contents: bool,
    },
    Unmap(Vec<(u64, u64)>),
    Protect {
        page: u64,
        pages: u64,
        prot: Access,
    },
}

#[derive(Debug, Default)]
struct Answer {
    areas: Vec<(u64, Access)>,
    pages: Vec<(u64, Frame)>,
}

enum Message {
    Ask(u64, Ask),
    Answer(u64, Answer),
    Release(u64, Scope),
}

/// All kernels of one process.
pub struct Popcorn {
    executor: Arc<Executor>,
    network: Arc<Network>,
    kernels: Vec<Lock<Replica>>,
    changed: Vec<WaitQueue>,
    lanes: Lock<HashMap<(usize, usize), VecDeque<Message>>>,
    memory: Lock<HashMap<Frame, [u64; WORDS]>>,
    /// The page with the clock, and question numbers.
    clock: AtomicU64,
}

impl Popcorn {
    /// On the kernels of `machine`, whose tasks and counters it uses.
    pub fn new(machine: &Machine) -> Arc<Self> {
        let kernels = machine.shape.kernels;
        Arc::new(Popcorn {
            executor: machine.executor.clone(),
            network: machine.network.clone(),
            kernels: (0..kernels).map(|_| Lock::default()).collect(),
            changed: (0..kernels).map(|_| WaitQueue::new()).collect(),
            lanes: Lock::default(),
            memory: Lock::new(HashMap::from([(ZERO, [0; WORDS])])),
            clock: AtomicU64::new(1),
        })
    }

    /// A new stamp.
    fn stamp(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn others(&self, kernel: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.kernels.len()).filter(move |other| *other != kernel)
    }

    /// Puts a message into the lane of its pair; a task takes it out, whenever it runs.
    fn send(self: &Arc<Self>, from: usize, to: usize, message: Message) {
        self.network.sent.fetch_add(1, Ordering::Relaxed);
        self.lanes.lock().entry((from, to)).or_default().push_back(message);
        let machine = self.clone();
        self.executor.spawn(
            None,
            Box::pin(async move {
                let message = machine.lanes.lock().get_mut(&(from, to)).and_then(VecDeque::pop_front);
                message.into_iter().for_each(|message| machine.receive(from, to, message));
            }),
        );
    }

    fn receive(self: &Arc<Self>, from: usize, me: usize, message: Message) {
        match message {
            Message::Ask(id, ask) => {
                let answer = self.answer(me, ask);
                self.send(me, from, Message::Answer(id, answer));
            }
            Message::Answer(id, answer) => {
                if let Some(answers) = self.kernels[me].lock().answers.get_mut(&id) {
                    answers.push(answer);
                }
            }
            Message::Release(stamp, scope) => self.kernels[me].lock().locks.remove(stamp, scope),
        }
        self.changed[me].wake_all();
    }

    fn answer(&self, me: usize, ask: Ask) -> Answer {
        match ask {
            Ask::Lock(stamp, scope) => {
                self.kernels[me].lock().locks.insert(stamp, scope);
                Answer::default()
            }
            Ask::Mapping(page) => self.mapping(me, page),
            Ask::Range { page, pages, contents } => self.range(me, page, pages, contents),
            Ask::Unmap(ranges) => self.unmap_here(me, &ranges),
            Ask::Protect { page, pages, prot } => self.protect_here(me, page, pages, prot),
        }
    }

    /// Asks all others and waits for all of them.
    async fn ask_all(self: &Arc<Self>, me: usize, ask: Ask) -> Vec<Answer> {
        let id = self.stamp();
        self.kernels[me].lock().answers.insert(id, Vec::new());
        self.others(me).for_each(|other| self.send(me, other, Message::Ask(id, ask.clone())));
        let all = self.kernels.len() - 1;
        let complete = || {
            let mut kernel = self.kernels[me].lock();
            (kernel.answers[&id].len() == all).then(|| kernel.answers.remove(&id).unwrap_or_default())
        };
        self.changed[me].wait_until(complete).await
    }

    /// Does an operation of a thread on kernel `me`.
    pub async fn perform(self: &Arc<Self>, me: usize, operation: Operation) -> Outcome {
        self.try_perform(me, operation).await.unwrap_or_else(Outcome::Error)
    }

    async fn try_perform(self: &Arc<Self>, me: usize, operation: Operation) -> Result<Outcome> {
        Ok(match operation {
            Operation::Map { at, pages, prot, shared: false, object: None } => {
                Outcome::At(self.map(me, at, pages, prot).await?)
            }
            Operation::Unmap { page, pages } => {
                self.unmap(me, page, pages).await;
                Outcome::Done
            }
            Operation::Protect { page, pages, prot } => {
                self.protect(me, page, pages, prot).await?;
                Outcome::Done
            }
            Operation::Remap { page, old, new, may_move, to: None } => {
                Outcome::At(self.remap(me, page, old, new, may_move).await?)
            }
            Operation::Read { page, word } => Outcome::Value(self.access(me, page, false, |words| words[word]).await?),
            Operation::Write { page, word, value } => {
                self.access(me, page, true, |words| words[word] = value).await?;
                Outcome::Done
            }
            Operation::Exchange { page, word, old, new } => {
                let exchange = |words: &mut [u64; WORDS]| {
                    let found = words[word] as u32;
                    if found != old {
                        return Err(found);
                    }
                    words[word] = words[word] & !0xffff_ffff | u64::from(new);
                    Ok(found)
                };
                Outcome::Exchanged(self.access(me, page, true, exchange).await?)
            }
            _ => return Err(Errno::ENOSYS),
        })
    }

    fn allocate(&self, me: usize, replica: &mut Replica, content: Frame) -> Frame {
        let frame = (me, replica.next_frame);
        replica.next_frame += 1;
        let mut memory = self.memory.lock();
        let words = memory[&content];
        memory.insert(frame, words);
        frame
    }

    /// The invariant of 5.7.1; panics where it does not hold. While nothing is under way.
    pub fn audit(&self) {
        let mut seen: BTreeMap<u64, (Frame, bool)> = BTreeMap::new();
        let mut areas: BTreeMap<u64, Access> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for (me, kernel) in self.kernels.iter().enumerate() {
            let kernel = kernel.lock();
            assert!(kernel.locks.is_empty(), "kernel {me}: a lock is left over");
            for (page, prot) in &kernel.areas {
                assert_eq!(areas.entry(*page).or_insert(*prot), prot, "kernel {me}: two protections of {page:x}");
            }
            for (page, entry) in &kernel.pages {
                let first = *seen.entry(*page).or_insert((entry.frame, entry.cow));
                assert_eq!(first, (entry.frame, entry.cow), "kernel {me}: two frames of {page:x}, or two statuses");
                assert!(kernel.areas.contains_key(page), "kernel {me}: page {page:x} without area");
                used.insert(entry.frame);
            }
        }
        used.insert(ZERO);
        assert_eq!(used, self.memory.lock().keys().copied().collect(), "frames used and frames there are");
    }
}

//! What other kernels hold of names and attributes, and how they are asked for it back.
//!
//! A file with a name lives on the kernel that has its file system (here: the owner). A kernel that asks it about a path may keep
//! the answer (remote/names.rs) and give it again without asking, so nothing may change here that makes the answer wrong
//! before that kernel has dropped it. Every inode therefore writes down, in its [`Sharers`], who holds an answer that rests
//! on it, by what of it the answer rests on (a *slot*): its attributes and contents, who may search it, a name in it. A
//! walk notes each slot *before* it looks there. Who changes something [recalls](Sharers::change) the slots first, changes
//! when all holders have answered, and only then lets new holders in:
//!
//! ```text
//! kernel K                            owner: stat(/a/f) for K            owner: chmod(/a/f)
//!                                     notes K with /a/f: nobody changes it
//!                                                                        changing: 1; takes K's note
//!   no entry of f's  <-------------------------------------------------- recall
//!   recalls: 1 --------------------------------------------------------> nobody holds anything
//!                                     reads the attributes: old          mode changes; changing: 0
//!   stat's answer arrives (asked at recalls = 0): given to the program, not kept
//! ```
//!
//! The program that asked may be told the old mode, for its call was under way while the other one was. But were the answer
//! kept, a stat after the chmod's end would say so again. So K counts recalls and keeps an answer only if there was none since
//! it asked. The other order, a walk that begins while the change waits for its recall, is met by `changing`: it finds a
//! change under way, and its answer is not to be kept. One of the two sees the other: the walk notes and then looks
//! at `changing`, the change counts up `changing` and then looks at the notes.
//!
//! Another thread here must not see the new mode, tell a thread of K, and that one see the old mode: so the change is *made*
//! after the recall, not only answered after it. And a second change of the same inode, which finds the notes taken, waits
//! for the recall of the first.
//!
//! The notes of an inode end with it, so before unused names are dropped, and inodes with them, all kernels drop all
//! answers (`LocalPaths::make_room_for_name`). A note stays when K forgets its entry by itself or dies; the next recall takes it.

use super::Inode;
use crate::SetAttributes;
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use machine::{
    sync::{Lock, WaitQueue},
    BoxFuture, KernelId, KernelSet,
};

/// Attributes, contents, locks: all that is the file's own.
pub const OWN: u8 = 0;
/// Who may do what with it; of a directory also where it hangs, which `..` asks.
pub const ACCESS: u8 = 1;
/// That nobody is told when it, or a file in this directory, is opened, read or closed (inotify).
pub const OPENS: u8 = 2;
const NAMES: u8 = 8;
const NAME_SLOTS: u32 = 64;

/// The slot of a name in a directory: some names share one, so that a directory's notes stay few.
pub fn name(name: &[u8]) -> u8 {
    let hash = name.iter().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    NAMES + (hash % NAME_SLOTS) as u8
}

/// Numbers inodes on the wire; never used again.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Who holds answers that rest on an inode.
#[derive(Default)]
pub struct Sharers {
    /// Changes that are being made: nobody may keep an answer.
    changing: AtomicU32,
    /// Whether there is anything in `held`: all that a change costs where nothing is shared.
    any: AtomicBool,
    held: Lock<Option<Arc<InodeLease>>>,
    /// Open descriptions that may write the file: nobody executes it meanwhile (ETXTBSY).
    writers: AtomicU32,
}

/// How other kernels are asked for what they hold ([`crate::remote`]).
pub trait Recall: Send + Sync {
    /// Kernels `from` keep no answer any more that rests on `tokens`; `watched`: they tell of every close from now on.
    fn recall_names(self: Arc<Self>, from: KernelSet, tokens: Vec<u64>, watched: bool) -> BoxFuture<'static, ()>;
    /// Runs a task of this kernel.
    fn run(&self, task: BoxFuture<'static, ()>);
}

struct InodeLease {
    id: u64,
    remote: Weak<dyn Recall>,
    notes: Lock<Notes>,
    recalled: WaitQueue,
}

#[derive(Default)]
struct Notes {
    slots: BTreeMap<u8, KernelSet>,
    /// Recalls that have not been answered.
    recalls: usize,
}

/// A change under way.
pub struct Changing<'a>(&'a Sharers);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.fetch_sub(1, SeqCst);
    }
}

impl Changing<'_> {
    /// Is there anything that would have to be recalled?
    pub fn is_shared(&self) -> bool {
        self.0.any.load(SeqCst)
    }
}

impl Sharers {
    /// A description that may write has been made (true), or has ended.
    pub fn count_writer(&self, more: bool) {
        match more {
            true => self.writers.fetch_add(1, SeqCst),
            false => self.writers.fetch_sub(1, SeqCst),
        };
    }

    /// Whether somebody has it open for writing.
    pub fn is_written(&self) -> bool {
        self.writers.load(SeqCst) > 0
    }

    /// From now on no answer may be kept.
    pub fn begin(&self) -> Changing<'_> {
        self.changing.fetch_add(1, SeqCst);
        Changing(self)
    }

    /// [`Self::begin`]s, and returns when nobody holds anything that rests on `slots`.
    pub async fn change(&self, slots: &[u8]) -> Changing<'_> {
        let changing = self.begin();
        self.recall(slots).await;
        changing
    }

    /// Only for who has begun a change.
    pub async fn recall(&self, slots: &[u8]) {
        if !self.any.load(SeqCst) {
            return;
        }
        let Some(held) = self.held.lock().clone() else { return };
        let (mut tokens, mut from) = (Vec::new(), KernelSet::new());
        {
            let mut notes = held.notes.lock();
            for &slot in slots {
                if let Some(kernels) = notes.slots.remove(&slot) {
                    tokens.push(held.token(slot));
                    for kernel in kernels.iter() {
                        from.insert(kernel);
                    }
                }
            }
            notes.recalls += usize::from(!from.is_empty());
            self.any.store(notes.recalls > 0 || !notes.slots.is_empty(), SeqCst);
        }
        if let (false, Some(remote)) = (from.is_empty(), held.remote.upgrade()) {
            let (watched, held) = (slots.contains(&OPENS), held.clone());
            let recalled = remote.clone().recall_names(from, tokens, watched);
            // To its end even if nobody waits any more: whoever changes it next finds the notes gone.
            remote.run(Box::pin(async move {
                recalled.await;
                held.notes.lock().recalls -= 1;
                held.recalled.wake_all();
            }));
        }
        held.recalled.wait_until(|| (held.notes.lock().recalls == 0).then_some(())).await;
    }

    /// `kernel` is to hold something that rests on `slot`. None: not now.
    fn note(&self, remote: &Weak<dyn Recall>, kernel: KernelId, slot: u8) -> Option<u64> {
        let held = {
            let mut held = self.held.lock();
            let new = || {
                let id = SERIAL.fetch_add(1, SeqCst);
                Arc::new(InodeLease { id, remote: remote.clone(), notes: Lock::default(), recalled: WaitQueue::new() })
            };
            held.get_or_insert_with(new).clone()
        };
        let mut notes = held.notes.lock();
        notes.slots.entry(slot).or_default().insert(kernel);
        self.any.store(true, SeqCst);
        drop(notes);
        (self.changing.load(SeqCst) == 0).then(|| held.token(slot))
    }
}

impl InodeLease {
    fn token(&self, slot: u8) -> u64 {
        self.id << 8 | u64::from(slot)
    }
}

/// What answers rest on that a change of attributes makes wrong.
pub fn of_change(set: &SetAttributes) -> &'static [u8] {
    match set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
        true => &[OWN, ACCESS],
        false => &[OWN],
    }
}

/// A change of `inode`: see [`Sharers::change`].
pub async fn change<'a>(inode: &'a Arc<dyn Inode>, slots: &[u8]) -> Option<Changing<'a>> {
    match inode.sharers() {
        Some(sharers) => Some(sharers.change(slots).await),
        None => None,
    }
}

/// What an answer for another kernel rests on, as it is found out.
pub struct Lease {
    kernel: KernelId,
    remote: Weak<dyn Recall>,
    noted: Lock<Noted>,
}

struct Noted {
    tokens: Vec<u64>,
    refused: bool,
    /// ns
    lasts: u64,
    anchor: Option<Anchored>,
}

/// An open file that the other kernel may open again by itself.
#[derive(Clone)]
pub struct Anchored {
    /// What stat(2) said when the answer was made.
    pub attributes: abi::Attributes,
    /// Reading it changes nothing here.
    pub quiet: bool,
    /// What the open file rests on, whatever becomes of its name.
    pub tokens: Vec<u64>,
}

impl Lease {
    pub(crate) fn new(remote: Weak<dyn Recall>, kernel: KernelId) -> Arc<Self> {
        let noted = Noted { tokens: Vec::new(), refused: false, lasts: u64::MAX, anchor: None };
        Arc::new(Lease { kernel, remote, noted: Lock::new(noted) })
    }

    /// The answer is not to be kept.
    pub fn refuse(&self) {
        self.noted.lock().refused = true;
    }

    /// Whether the answer must not be kept by who asked: something in it changes by itself.
    pub fn is_refused(&self) -> bool {
        self.noted.lock().refused
    }

    /// The answer is good for so many ns only.
    pub fn limit(&self, ns: u64) {
        let mut noted = self.noted.lock();
        noted.lasts = noted.lasts.min(ns);
    }

    /// The answer will rest on this, which is looked at after this call.
    pub fn note(&self, inode: &Arc<dyn Inode>, slot: u8) -> Option<u64> {
        match inode.sharers() {
            Some(sharers) => self.note_in(sharers, slot),
            None => {
                self.refuse();
                None
            }
        }
    }

    /// Notes the asker with `sharers`, which tell it of changes under the number that this gives; None: it is refused.
    pub fn note_in(&self, sharers: &Sharers, slot: u8) -> Option<u64> {
        if self.is_refused() {
            return None;
        }
        let token = sharers.note(&self.remote, self.kernel, slot);
        let mut noted = self.noted.lock();
        match token {
            Some(token) if !noted.tokens.contains(&token) => noted.tokens.push(token),
            Some(_) => {}
            None => noted.refused = true,
        }
        token
    }

    /// The answer ends at a file that the asker may keep open again by itself.
    pub fn anchor(&self, anchored: Anchored) {
        self.noted.lock().anchor = Some(anchored);
    }

    pub(crate) fn anchored(&self) -> Option<Anchored> {
        self.noted.lock().anchor.clone()
    }

    /// What the answer rests on (nothing: it is not to be kept), and how long it is good.
    pub(crate) fn end(&self) -> (Vec<u64>, u64) {
        let noted = &mut *self.noted.lock();
        match noted.refused {
            true => (Vec::new(), 0),
            false => (core::mem::take(&mut noted.tokens), noted.lasts),
        }
    }
}

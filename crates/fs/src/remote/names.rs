//! Answers about paths that this kernel keeps, so that stat, access, readlink and open of a file that nobody changes need no message.
//!
//! Who was asked, the owner of the file system, notes what each answer rests on, and recalls the answer before it changes that ([`crate::lease`], where the
//! dangerous interleaving is drawn). An answer is found again by all that it depends on: where the walk began, the
//! operation, and who asked. Failures are kept too: the dynamic linker and searches of PATH mostly get ENOENT.
//!
//! Leasing a file that is then written is a loss, since the first write recalls the lease. So the first time that a file is opened for
//! writing it is opened at the owner, and again whenever it was written since. An answer that is recalled before anybody has used it
//! (is there a journal? there is none; one is made) was such a loss as well: the same question is then asked some times without keeping the answer.

use super::leased::{give_back, Anchor};
use crate::{Attributes, Credentials, File, FileRef, PathOp};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{sync::Lock, Errno, KernelId};

/// How many answers are kept.
const LIMIT: usize = 512;

/// How often a question is asked without keeping the answer, after one was recalled unused.
const FLEETING: u8 = 15;

/// What an answer depends on.
#[derive(PartialEq, Eq)]
pub(super) struct Key {
    /// Who was asked.
    pub owner: KernelId,
    /// None: it is not the owner's, which makes no difference there.
    pub root: Option<FileRef>,
    /// None: the path is absolute.
    pub at: Option<FileRef>,
    pub credentials: Credentials,
    pub op: PathOp,
}

/// What an operation on a path gives.
#[derive(Clone)]
pub(super) enum Answer {
    Failed(Errno),
    Done,
    Attributes(Attributes),
    Bytes(Vec<u8>),
    Open(Arc<Anchor>),
}

/// An answer that has just come.
pub(super) struct Kept {
    pub key: Key,
    /// [`Key::number`].
    pub number: u64,
    pub tokens: Vec<u64>,
    /// When the lease ends without a recall, in ns of this kernel's clock.
    pub until: u64,
    pub answer: Answer,
}

/// How many [`Crossing`]s are kept.
const CROSSINGS: usize = 64;

/// Where walks along a path go on at another kernel: a mount of its, or above one.
pub(super) struct Crossing {
    /// Who said so.
    pub owner: KernelId,
    /// As in [`Key`].
    pub root: Option<FileRef>,
    pub at: Option<FileRef>,
    pub credentials: Credentials,
    /// The part of the path that leads there.
    pub prefix: Vec<u8>,
    /// The directory that it leads to, and with what a path from there begins: `.` or `..`.
    pub to: Arc<dyn File>,
    pub first: &'static [u8],
    /// Symbolic links in it.
    pub links: u32,
    pub tokens: Vec<u64>,
    /// As in [`Kept`].
    pub until: u64,
    /// When it was asked for.
    pub now: u64,
}

impl Crossing {
    fn is_same(&self, other: &Crossing) -> bool {
        (self.root, self.at, &self.prefix, &self.credentials)
            == (other.root, other.at, &other.prefix, &other.credentials)
    }
}

/// The answers that this kernel keeps.
#[derive(Default)]
pub(super) struct Names(Lock<State>);

#[derive(Default)]
struct State {
    /// By [`Key::number`].
    entries: BTreeMap<u64, Entry>,
    /// Counts uses. The answer that was not used for longest makes room for a new one.
    uses: u64,
    /// Counts recalls.
    recalls: u64,
    crossings: Vec<Crossing>,
    /// All anchors, also those that only open files still use.
    anchors: Vec<Weak<Anchor>>,
    /// Files opened for writing, and whether they were written since.
    writers: BTreeMap<u64, bool>,
    /// Questions whose last answer was recalled unused, and how often more they are asked without keeping the answer.
    fleeting: BTreeMap<u64, u8>,
}

struct Entry {
    /// When it was last used, counted in [`State::uses`].
    used: u64,
    /// Whether it has spared a message.
    useful: bool,
    kept: Kept,
}

impl Key {
    /// Whether the answer to `op` can be kept at all.
    pub fn can_be(op: &PathOp) -> bool {
        let not = crate::OpenFlags::CREAT | crate::OpenFlags::TRUNC | crate::OpenFlags::PATH | crate::OpenFlags::DIRECT;
        match op {
            PathOp::Open { flags, path, .. } => {
                !path.is_empty() && !flags.intersects(not) && !flags.contains(crate::OpenFlags::TMPFILE)
            }
            PathOp::Stat { path, .. } | PathOp::ReadLink { path, .. } | PathOp::Access { path, .. } => !path.is_empty(),
            _ => false,
        }
    }

    /// The path of an operation whose answer can be kept.
    pub fn path(op: &PathOp) -> &[u8] {
        match op {
            PathOp::Open { path, .. }
            | PathOp::Stat { path, .. }
            | PathOp::ReadLink { path, .. }
            | PathOp::Access { path, .. } => path,
            _ => &[],
        }
    }

    /// A hash of the key.
    pub fn number(&self) -> u64 {
        let more = match &self.op {
            PathOp::Open { flags, .. } => 8 | u64::from(flags.bits()) << 8,
            PathOp::Stat { follow, .. } => 2 | u64::from(*follow),
            PathOp::Access { mode, effective, .. } => 16 | u64::from(*mode) << 8 | u64::from(*effective),
            _ => 0,
        };
        let [root, at] = [self.root, self.at].map(|file| file.map_or(0, |file| file.id << 8 | u64::from(file.owner.0)));
        let who = u64::from(self.credentials.fsuid) << 32 | u64::from(self.credentials.fsgid);
        let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let hash = [root, at, who, more].into_iter().fold(0, mix);
        Self::path(&self.op).iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
    }

    fn writes(&self) -> bool {
        matches!(&self.op, PathOp::Open { flags, .. } if flags.writable())
    }
}

impl Names {
    /// The answer for `key` that is kept, if there is one. `number` is its [`Key::number`].
    pub fn find(&self, key: &Key, number: u64, now: u64) -> Option<Answer> {
        let mut state = self.0.lock();
        state.uses += 1;
        let uses = state.uses;
        let entry = state.entries.get_mut(&number)?;
        if entry.kept.until <= now || entry.kept.key != *key {
            return None;
        }
        (entry.used, entry.useful) = (uses, true);
        Some(entry.kept.answer.clone())
    }

    /// Called before the owner is asked. Answers how many recalls there were so far, and whether the answer is to be kept.
    pub fn asks(&self, key: &Key, number: u64) -> (u64, bool) {
        let mut state = self.0.lock();
        if !key.writes() {
            let left = state.fleeting.get_mut(&number).filter(|left| **left > 0);
            let keep = left.map(|left| *left -= 1).is_none();
            return (state.recalls, keep);
        }
        if state.writers.len() >= LIMIT {
            state.writers.clear();
        }
        let keep = match state.writers.get(&number) {
            Some(written) => !written,
            None => {
                state.writers.insert(number, false);
                false
            }
        };
        (state.recalls, keep)
    }

    /// Notes that a file was written which the answer `number` had opened.
    pub fn wrote(&self, number: u64) {
        if let Some(written) = self.0.lock().writers.get_mut(&number) {
            *written = true;
        }
    }

    /// Keeps an answer, unless there was a recall since it was asked for, after `asked` recalls: that may have been of this answer.
    pub fn keep(&self, new: Kept, asked: u64) {
        let mut dropped = Vec::new();
        let mut state = self.0.lock();
        state.uses += 1;
        let uses = state.uses;
        if state.recalls == asked {
            if state.entries.len() >= LIMIT {
                let oldest = state.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(number, _)| *number);
                dropped.extend(oldest.and_then(|number| state.entries.remove(&number)).map(|entry| entry.kept));
            }
            if let Answer::Open(anchor) = &new.answer {
                if state.anchors.len() == state.anchors.capacity() {
                    state.anchors.retain(|anchor| anchor.strong_count() > 0);
                }
                state.anchors.push(Arc::downgrade(anchor));
            }
            let entry = Entry { used: uses, useful: false, kept: new };
            dropped.extend(state.entries.insert(entry.kept.number, entry).map(|entry| entry.kept));
            drop(state);
        } else {
            drop(state);
            if let Answer::Open(anchor) = &new.answer {
                // The recall may have been for a watch, so the owner must hear of the close.
                anchor.recall(true);
            }
        }
    }

    /// [`messages::fs::NamesRecall`]: drops all answers that rest on one of `tokens`. Answers the references that go back to the owner.
    pub fn recall(&self, owner: KernelId, tokens: &[u64], watched: bool) -> Vec<(u64, u64)> {
        let rests = |on: &[u64]| on.iter().any(|token| tokens.contains(token));
        let mut state = self.0.lock();
        state.recalls += 1;
        let anchors: Vec<_> = state.anchors.iter().filter_map(Weak::upgrade).collect();
        anchors
            .iter()
            .filter(|anchor| anchor.owner() == Some(owner) && rests(&anchor.tokens))
            .for_each(|anchor| anchor.recall(watched));
        let is_wrong = |kept: &Kept| kept.key.owner == owner && rests(&kept.tokens);
        let wrong: Vec<u64> =
            state.entries.iter().filter(|(_, entry)| is_wrong(&entry.kept)).map(|(number, _)| *number).collect();
        let crossings: Vec<_> =
            state.crossings.extract_if(.., |known| known.owner == owner && rests(&known.tokens)).collect();
        let wrong: Vec<_> = wrong.iter().filter_map(|number| state.entries.remove(number)).collect();
        if state.fleeting.len() >= LIMIT {
            state.fleeting.clear();
        }
        // Of an open file it is not known whether it was used.
        let unused = wrong.iter().filter(|entry| !entry.useful && !matches!(entry.kept.answer, Answer::Open(_)));
        state.fleeting.extend(unused.map(|entry| (entry.kept.number, FLEETING)));
        // The last reference to a file may do anything: not under the lock.
        drop(state);
        drop((anchors, crossings));
        wrong.into_iter().filter_map(|entry| give_back(entry.kept.answer)).collect()
    }

    /// Drops all answers, because memory is short.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        let dropped = (core::mem::take(&mut state.entries), core::mem::take(&mut state.crossings));
        drop(state);
        drop(dropped);
    }

    /// Nothing that `dead` has answered holds any more.
    pub fn kernel_died(&self, dead: KernelId) {
        let mut state = self.0.lock();
        state.recalls += 1;
        let anchors: Vec<_> = state.anchors.iter().filter_map(Weak::upgrade).collect();
        let lost = |_: &u64, entry: &mut Entry| entry.kept.key.owner == dead;
        let entries: Vec<_> = state.entries.extract_if(.., lost).collect();
        let crossings: Vec<_> = state.crossings.extract_if(.., |known| known.owner == dead).collect();
        drop(state);
        anchors.iter().filter(|anchor| anchor.owner() == Some(dead)).for_each(|anchor| anchor.recall(true));
        drop((anchors, entries, crossings));
    }

    /// How many recalls there were so far: for a [`Crossing`] that is asked for.
    pub fn recalls(&self) -> u64 {
        self.0.lock().recalls
    }

    /// Keeps where walks go on, as [`Names::keep`] keeps an answer.
    pub fn keep_crossing(&self, new: Crossing, asked: u64) {
        let mut dropped = Vec::new();
        let mut state = self.0.lock();
        if state.recalls == asked {
            let known = |other: &mut Crossing| other.is_same(&new) || other.until <= new.now;
            dropped.extend(state.crossings.extract_if(.., known));
            if state.crossings.len() >= CROSSINGS {
                dropped.push(state.crossings.remove(0));
            }
            state.crossings.push(new);
        }
        drop(state);
        drop(dropped);
    }

    /// Where a walk from there along `path` goes on, and with what path, if that is known. `whole`: also if all of the path leads there.
    pub fn cross(
        &self,
        (root, at): (Option<FileRef>, Option<FileRef>),
        credentials: &Credentials,
        path: &[u8],
        whole: bool,
        now: u64,
    ) -> Option<(Arc<dyn File>, Vec<u8>, u32)> {
        let state = self.0.lock();
        let leads = |known: &&Crossing| {
            let Some(rest) = path.strip_prefix(&known.prefix[..]) else { return false };
            let is_below = rest.first() == Some(&b'/') && rest.iter().any(|byte| *byte != b'/');
            (known.root, known.at) == (root, at)
                && (is_below || whole && rest.is_empty())
                && now < known.until
                && known.credentials == *credentials
        };
        let known = state.crossings.iter().filter(leads).max_by_key(|known| known.prefix.len())?;
        let path = [known.first, &path[known.prefix.len()..]].concat();
        Some((known.to.clone(), path, known.links))
    }
}

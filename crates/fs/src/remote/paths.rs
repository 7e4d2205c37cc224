//! Paths of all kernels, as the programs of one use them.
//!
//! An operation goes to the kernel that owns the directory where its walk begins: whole, in one message, unless that is this kernel, or an answer from before is
//! kept (names.rs). A walk that leaves that kernel's file systems ([`crate::namespace::elsewhere`]) is answered with the place where it goes on and what is left of the path; the asker
//! goes on there. What led to such a place is kept too ([`Crossing`]), so that the next path below it goes there at once:
//!
//! ```text
//! J                              root's owner, kernel 0           K: /mnt/d is its
//! open /mnt/d/a/f
//! -- RunPath /mnt/d/a/f -------> walks to the mount
//! <- goes on at d, "./a/f" ----- (J noted with /, /mnt)
//! keeps: /mnt/d leads to d
//! -- RunPath d, "./a/f" ----------------------------------------> opens it
//! <-------------------------------------------------------------- the file
//! open /mnt/d/b
//! -- RunPath d, "./b" ------------------------------------------>
//! umount /mnt/d
//!   <--------------- recall ----- nobody may keep it now
//! ```
//!
//! A walk that is on its way to K when the mount goes away goes back to what the mount covered. Each hop has fewer components, or has followed a link, but
//! trees change meanwhile; so [`MOST_HOPS`] ends it.

use super::{
    leased::{owner_of, Anchor, LeasedFile},
    names::{Answer, Crossing, Kept, Key},
    stand_in, Counted, Remote,
};
use crate::{
    file::ready, namespace::resolve, Base, Caller, Clock, File, FileRef, GoesOn, Onward, Onwards, OpenFlags,
    PathAnswer, PathOp, Paths,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{errno::Result, BoxFuture, Errno, KernelId};
use messages::fs::{PathAnswered, PathReply, RootDirectory, RunPath};

/// How often a walk goes on at another kernel, before it is ELOOP.
const MOST_HOPS: u32 = 40;

/// [`Paths`] by those of this kernel, and by calls to others.
pub struct AllPaths {
    remote: Arc<Remote>,
    /// The file systems of this kernel.
    own: Option<Arc<dyn Paths>>,
    /// The kernel that owns the root.
    root: KernelId,
    clock: Arc<dyn Clock>,
}

/// What the program gets for an answer. `op` is the operation, and `number` its [`Key::number`].
fn give(remote: &Arc<Remote>, answer: Answer, number: u64, op: &PathOp) -> Result<PathAnswer> {
    Ok(match answer {
        Answer::Failed(errno) => return Err(errno),
        Answer::Done => PathAnswer::Done,
        Answer::Attributes(attributes) => PathAnswer::Attributes(Box::new(attributes)),
        Answer::Bytes(bytes) => PathAnswer::Bytes(bytes),
        Answer::Open(anchor) => {
            let flags = match op {
                PathOp::Open { flags, .. } => *flags,
                _ => OpenFlags::empty(),
            };
            PathAnswer::File(LeasedFile::open(remote, anchor, number, flags))
        }
    })
}

/// A question to the owner that has not been answered yet.
struct Asked {
    remote: Arc<Remote>,
    clock: Arc<dyn Clock>,
    /// The key and number to keep the answer under; None: it can't be kept.
    key: Option<(Key, u64)>,
    /// How many recalls there had been when it was asked.
    recalls: u64,
    /// When it was asked, in ns of `clock`.
    at: u64,
}

/// What an operation was answered.
enum Answered {
    Final(PathAnswer),
    /// Where it goes on; the answer may be kept as long as none of the tokens is recalled.
    GoesOn {
        onward: Onward,
        tokens: Vec<u64>,
        until: u64,
    },
}

impl Asked {
    /// Called when the answer arrives, even if nobody waits for it any more. Accepts references in it, and keeps it if it may be kept.
    fn take(self, answered: PathAnswered) -> Result<Answered> {
        let PathAnswered { reply, tokens, lasts } = answered;
        let Asked { remote, clock, key, recalls, at } = self;
        let until = at.saturating_add(lasts);
        if let Ok(PathReply::GoesOn { second, at, path, links, tail }) = reply {
            let at = at.map(|at| remote.accept(at)).transpose()?;
            let onward = Onward { second, at, path, links, tail: tail.map(|tail| tail as usize) };
            return Ok(Answered::GoesOn { onward, tokens, until });
        }
        Self::take_final(remote, clock, key, recalls, until, reply, tokens).map(Answered::Final)
    }

    fn take_final(
        remote: Arc<Remote>,
        clock: Arc<dyn Clock>,
        key: Option<(Key, u64)>,
        recalls: u64,
        until: u64,
        reply: Result<PathReply>,
        tokens: Vec<u64>,
    ) -> Result<PathAnswer> {
        let answer = match reply {
            Err(errno) => Answer::Failed(errno),
            Ok(PathReply::Done) => Answer::Done,
            Ok(PathReply::Attributes(attributes)) => Answer::Attributes(attributes),
            Ok(PathReply::Bytes(bytes)) => Answer::Bytes(bytes),
            Ok(PathReply::Anchor { file, attributes, quiet, tokens }) => {
                let file = remote.accept(file)?;
                Answer::Open(Anchor::new(file, attributes, quiet, tokens, until, clock))
            }
            Ok(PathReply::File(file)) => return Ok(PathAnswer::File(remote.accept(file)?)),
            Ok(PathReply::FileSystem(info)) => return Ok(PathAnswer::FileSystem(Box::new(info))),
            Ok(PathReply::Number(number)) => return Ok(PathAnswer::Number(number)),
            Ok(PathReply::GoesOn { .. }) => return Err(Errno::EIO),
        };
        let Some((key, number)) = key else { return give(&remote, answer, 0, &PathOp::Sync) };
        let given = give(&remote, answer.clone(), number, &key.op);
        match (tokens.is_empty(), &answer) {
            (false, _) => remote.names.keep(Kept { key, number, tokens, until, answer }, recalls),
            // Opened, but the owner will recall nothing, so nothing may be kept.
            (true, Answer::Open(anchor)) => anchor.recall(true),
            (true, _) => {}
        }
        given
    }
}

/// Where the walk of a path begins.
enum Start {
    /// All paths of the operation begin on one kernel.
    At(KernelId),
    /// They begin on two.
    Two,
}

/// Whether the operation may be sent to where a whole path leads: what it does is done to that, and not to the name.
fn goes_through(op: &PathOp) -> bool {
    match op {
        PathOp::Open { flags, .. } => !flags.intersects(OpenFlags::CREAT | OpenFlags::NOFOLLOW),
        PathOp::Stat { follow, .. }
        | PathOp::Access { follow, .. }
        | PathOp::SetAttributes { follow, .. }
        | PathOp::Xattr { follow, .. } => *follow,
        PathOp::StatFs { .. } | PathOp::SyncFs { .. } => true,
        _ => false,
    }
}

/// Whether all that paths may begin at is this kernel's.
fn begins_here(base: &Base) -> bool {
    let is_here = |file: &Arc<dyn File>| owner_of(file).is_none();
    is_here(&base.root) && is_here(&base.at) && base.to.as_ref().is_none_or(is_here)
}

/// Whether it matters how a walk comes to where it ends (openat2(2)).
fn restricts(op: &PathOp) -> bool {
    matches!(op, PathOp::Open { resolve, .. } if *resolve != 0)
}

/// Whether the directory where the walk begins is its root (openat2(2)).
fn is_bound(op: &PathOp) -> bool {
    matches!(op, PathOp::Open { resolve, .. } if resolve & (resolve::BENEATH | resolve::IN_ROOT) != 0)
}

impl AllPaths {
    /// For the programs of this kernel; `root` owns the root of the machine.
    pub fn new(remote: Arc<Remote>, root: KernelId, clock: Arc<dyn Clock>) -> Self {
        AllPaths { own: remote.paths.clone(), remote, root, clock }
    }

    /// The kernel that has what a walk begins at.
    fn owner(&self, file: &Arc<dyn File>) -> KernelId {
        match owner_of(file) {
            Some(owner) => owner,
            None if self.own.is_some() => self.remote.me(),
            None => self.root,
        }
    }

    fn start(&self, base: &Base, op: &PathOp, second: bool) -> Option<KernelId> {
        let path = op.path(second)?;
        Some(match path.first() {
            Some(b'/') if !(is_bound(op) && base.continues.is_none()) => self.owner(&base.root),
            _ if second => self.owner(base.to.as_ref().unwrap_or(&base.at)),
            _ => self.owner(&base.at),
        })
    }

    fn starts(&self, base: &Base, op: &PathOp) -> Start {
        match (self.start(base, op, false), self.start(base, op, true)) {
            (Some(first), Some(second)) if first != second => Start::Two,
            (Some(first), _) => Start::At(first),
            _ => Start::At(self.root),
        }
    }

    /// The place where a walk begins, as another kernel's answers name it: root and directory.
    fn place(
        &self,
        owner: KernelId,
        base: &Base,
        path: &[u8],
        second: bool,
    ) -> Option<(Option<FileRef>, Option<FileRef>)> {
        let there = |file: &Arc<dyn File>| file.remote().filter(|there| there.owner == owner);
        let at = if second { base.to.as_ref().unwrap_or(&base.at) } else { &base.at };
        match path.first() {
            Some(b'/') => Some((Some(there(&base.root)?), None)),
            _ => Some((there(&base.root), Some(there(at)?))),
        }
    }

    /// What an answer to `op` depends on, and its number. None: the answer can't be kept.
    fn key(&self, owner: KernelId, caller: &Caller, base: &Base, op: &PathOp) -> Option<(Key, u64)> {
        if !Key::can_be(op) || base.continues.is_some_and(|continues| continues.links > 0) {
            return None;
        }
        let (root, mut at) = self.place(owner, base, Key::path(op), false)?;
        // With RESOLVE_IN_ROOT and its like (openat2) even an absolute path depends on the descriptor.
        if restricts(op) {
            at = Some(base.at.remote().filter(|there| there.owner == owner)?);
        }
        let key = Key { owner, root, at, credentials: caller.credentials.clone(), op: op.clone() };
        let number = key.number();
        Some((key, number))
    }

    /// Goes on at once where it is known that the walk will.
    fn cross_known(&self, caller: &Caller, base: &mut Base, op: &mut PathOp, hops: &mut u32) {
        if restricts(op) || matches!(op, PathOp::Mount { .. } | PathOp::Unmount { .. }) {
            return;
        }
        for second in [false, true] {
            while *hops < MOST_HOPS {
                let Some(owner) = self.start(base, op, second).filter(|owner| *owner != self.remote.me()) else {
                    break;
                };
                let Some(path) = op.path(second) else { break };
                let Some(place) = self.place(owner, base, path, second) else { break };
                let (whole, now) = (goes_through(op), self.clock.monotonic());
                let Some((at, path, links)) = self.remote.names.cross(place, &caller.credentials, path, whole, now)
                else {
                    break;
                };
                *hops += 1;
                let links = base.continues.unwrap_or_default().links + links;
                self.begin_at(base, op, Onward { second, at: Some(at), path, links, tail: None });
            }
        }
    }

    /// The rest of the walk begins there.
    fn begin_at(&self, base: &mut Base, op: &mut PathOp, onward: Onward) {
        let Onward { second, at, path, links, .. } = onward;
        let crossed = at.is_some();
        if base.continues.is_none() && is_bound(op) {
            base.root = base.at.clone();
        }
        match at {
            Some(at) if second => base.to = Some(at),
            Some(at) => {
                // The second path begins where the first one began, unless something else was said.
                if base.to.is_none() && op.path(true).is_some() {
                    base.to = Some(base.at.clone());
                }
                base.at = at;
            }
            // What is left is an absolute path.
            None => {}
        }
        op.set_path(second, path);
        let mut continues = base.continues.unwrap_or_default();
        continues.links = links;
        continues.crossed[usize::from(second)] = crossed;
        base.continues = Some(continues);
    }

    async fn travel(&self, caller: &Caller, base: &Base, mut op: PathOp, first: Option<Onward>) -> Result<PathAnswer> {
        let (mut base, mut hops) = (base.clone(), 0);
        if let Some(first) = first {
            hops += 1;
            self.begin_at(&mut base, &mut op, first);
        }
        loop {
            self.cross_known(caller, &mut base, &mut op, &mut hops);
            let onward = match self.starts(&base, &op) {
                Start::At(owner) => match self.run_at(owner, caller, &base, op).await? {
                    PathAnswer::GoesOn(goes_on) => {
                        op = goes_on.op;
                        *goes_on.onward
                    }
                    answer => return Ok(answer),
                },
                Start::Two => self.over_two(caller, &base, &op).await?,
            };
            hops += 1;
            if hops > MOST_HOPS {
                return Err(Errno::ELOOP);
            }
            self.begin_at(&mut base, &mut op, onward);
        }
    }

    /// A rename or link whose paths begin on two kernels: where one of them goes on, or EXDEV.
    async fn over_two(&self, caller: &Caller, base: &Base, op: &PathOp) -> Result<Onward> {
        let mut failed = [None, None];
        // What begins here costs no message, and mostly tells where both end.
        let here = self.start(base, op, true) == Some(self.remote.me());
        for second in [here, !here] {
            let path = op.path(second).ok_or(Errno::EINVAL)?.clone();
            let probe = match op {
                PathOp::Link { follow, empty_ok, .. } if !second => {
                    PathOp::Stat { path, follow: *follow, empty_ok: *empty_ok }
                }
                _ => PathOp::Parent { path },
            };
            match self.probe(caller, base, probe, second).await {
                Ok(Some(onward)) => return Ok(onward),
                Ok(None) => {}
                Err(error) => failed[usize::from(second)] = Some(error),
            }
        }
        if let [Some(error), _] | [None, Some(error)] = failed {
            return Err(error);
        }
        if let PathOp::Link { to, .. } = op {
            let there = PathOp::Stat { path: to.clone(), follow: false, empty_ok: false };
            match self.probe(caller, base, there, true).await {
                Ok(_) => return Err(Errno::EEXIST),
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXDEV)
    }

    /// Where the walk of one of two paths goes on. None: it ends on the kernel where it begins.
    async fn probe(&self, caller: &Caller, base: &Base, op: PathOp, second: bool) -> Result<Option<Onward>> {
        let mut base = base.clone();
        if let Some(to) = base.to.take().filter(|_| second) {
            base.at = to;
        }
        if let Some(continues) = &mut base.continues {
            continues.crossed = [continues.crossed[usize::from(second)], false];
        }
        let owner = self.start(&base, &op, false).ok_or(Errno::EINVAL)?;
        match self.run_at(owner, caller, &base, op).await? {
            PathAnswer::GoesOn(goes_on) => Ok(Some(Onward { second, ..*goes_on.onward })),
            _ => Ok(None),
        }
    }

    /// Has `owner` run it, or gives the answer that is kept.
    async fn run_at(&self, owner: KernelId, caller: &Caller, base: &Base, op: PathOp) -> Result<PathAnswer> {
        if let (Some(own), true) = (&self.own, owner == self.remote.me()) {
            return own.run(caller, base, op).await;
        }
        let now = self.clock.monotonic();
        let key = self.key(owner, caller, base, &op);
        let known = key.as_ref().and_then(|(key, number)| Some((self.remote.names.find(key, *number, now)?, *number)));
        match known {
            Some((answer, number)) => give(&self.remote, answer, number, &op),
            None => self.send(owner, caller, base, op, key).await,
        }
    }

    /// Asks `owner`, and keeps where the walk goes on.
    async fn send(
        &self,
        owner: KernelId,
        caller: &Caller,
        base: &Base,
        op: PathOp,
        key: Option<(Key, u64)>,
    ) -> Result<PathAnswer> {
        let (recalls, now) = (self.remote.names.recalls(), self.clock.monotonic());
        let sent = op.try_clone().ok_or(Errno::ENOMEM)?;
        let answered = self.ask(owner, caller, base, sent, key, now).await?;
        let Answered::GoesOn { onward, tokens, until } = answered else {
            let Answered::Final(answer) = answered else { return Err(Errno::EIO) };
            return Ok(answer);
        };
        match tokens.is_empty() {
            _ if restricts(&op) => {}
            false => self.keep_crossing(owner, caller, base, &op, &onward, (tokens, until, recalls, now)),
            true => self.learn_crossing(owner, caller, base, &op, &onward).await,
        }
        Ok(PathAnswer::GoesOn(Box::new(GoesOn { op, onward: Box::new(onward) })))
    }

    fn keep_crossing(
        &self,
        owner: KernelId,
        caller: &Caller,
        base: &Base,
        op: &PathOp,
        onward: &Onward,
        (tokens, until, recalls, now): (Vec<u64>, u64, u64, u64),
    ) {
        let path = op.path(onward.second).map_or(&[][..], |path| path);
        let (Some(tail), Some(to)) = (onward.tail.filter(|tail| *tail < path.len()), &onward.at) else { return };
        let Some((root, at)) = self.place(owner, base, path, onward.second) else { return };
        let first: &'static [u8] = match onward.path.len().checked_sub(tail) {
            Some(1) => b".",
            Some(2) => b"..",
            _ => return,
        };
        let (prefix, links) =
            (path[..path.len() - tail].to_vec(), onward.links.saturating_sub(base.continues.unwrap_or_default().links));
        let credentials = caller.credentials.clone();
        let crossing =
            Crossing { owner, root, at, credentials, prefix, to: to.clone(), first, links, tokens, until, now };
        self.remote.names.keep_crossing(crossing, recalls);
    }

    /// The answer to this operation can't be kept, but where its walk goes on can: asks for that alone.
    async fn learn_crossing(&self, owner: KernelId, caller: &Caller, base: &Base, op: &PathOp, onward: &Onward) {
        let path = op.path(onward.second).map_or(&[][..], |path| path);
        let Some(tail) = onward.tail.filter(|tail| *tail < path.len()) else { return };
        let changes_mounts = matches!(op, PathOp::Mount { .. } | PathOp::Unmount { .. });
        if Key::can_be(op) || changes_mounts || base.continues.is_some_and(|continues| continues.links > 0) {
            return;
        }
        let mut base = base.clone();
        if let Some(to) = base.to.take().filter(|_| onward.second) {
            base.at = to;
        }
        let path = [&path[..path.len() - tail], b"/."].concat();
        let only = PathOp::Access { path, mode: 0, effective: true, follow: true, empty_ok: false };
        let Some(key) = self.key(owner, caller, &base, &only) else { return };
        let (recalls, now) = (self.remote.names.recalls(), self.clock.monotonic());
        // Whatever it answers: the operation itself goes on.
        let answered = self.ask(owner, caller, &base, only.clone(), Some(key), now).await;
        if let Ok(Answered::GoesOn { onward, tokens, until }) = answered
            && !tokens.is_empty()
        {
            self.keep_crossing(owner, caller, &base, &only, &onward, (tokens, until, recalls, now));
        }
    }

    /// Asks the owner.
    async fn ask(
        &self,
        owner: KernelId,
        caller: &Caller,
        base: &Base,
        op: PathOp,
        key: Option<(Key, u64)>,
        now: u64,
    ) -> Result<Answered> {
        let remote = self.remote.clone();
        let (recalls, keep) = match &key {
            Some((key, number)) => remote.names.asks(key, *number),
            None => (0, false),
        };
        let hand = async |file: &Arc<dyn File>| {
            // A kernel that has been booted in its owner's place does not know it.
            if stand_in(file).is_ok_and(|file| file.is_lost()) {
                return Err(Errno::EIO);
            }
            remote.hand_to(owner, file).await
        };
        let starts_at_root = |second: bool| op.path(second).is_none_or(|path: &Vec<u8>| path.first() == Some(&b'/'));
        let bound = is_bound(&op);
        let root = match self.owner(&base.root) == owner {
            true => Some(hand(&base.root).await?),
            false => None,
        };
        let start = match starts_at_root(false) && !bound {
            true => None,
            false => Some(hand(&base.at).await?),
        };
        let second = match &op {
            PathOp::Watch { .. } => base.to.as_ref(),
            _ if starts_at_root(true) => None,
            _ => Some(base.to.as_ref().unwrap_or(&base.at)),
        };
        let to = match second {
            Some(to) => Some(hand(to).await?),
            None => None,
        };
        let [root_opened, at, to_opened] = [&root, &start, &to].map(|file| file.as_ref().map(Counted::opened));
        let (caller, continues) = (caller.clone(), base.continues);
        let message = RunPath { caller, root: root_opened, at, to: to_opened, op, continues, keep };
        let counted = root.into_iter().chain(start).chain(to).collect();
        let asked = Asked { remote: remote.clone(), clock: self.clock.clone(), key, recalls, at: now };
        // A file in the answer is accepted as the answer arrives, so that its count is not lost if the open was interrupted.
        remote.ask_with(owner, message, counted, move |answered| asked.take(answered)).await?
    }
}

impl Onwards for AllPaths {
    fn go_on<'a>(
        &'a self,
        caller: &'a Caller,
        base: &'a Base,
        goes_on: Box<GoesOn>,
    ) -> BoxFuture<'a, Result<PathAnswer>> {
        Box::pin(self.travel(caller, base, goes_on.op, Some(*goes_on.onward)))
    }
}

impl Paths for AllPaths {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        // What begins here whichever of its directories it begins at is not looked at any closer.
        if let Some(own) = &self.own
            && op.path(false).is_some()
            && begins_here(base)
        {
            return own.run_onwards(caller, base, op, self);
        }
        match self.starts(base, &op) {
            Start::At(owner) if owner == self.remote.me() => match &self.own {
                Some(own) => own.run_onwards(caller, base, op, self),
                None => ready(Err(Errno::ENOENT)),
            },
            Start::At(owner) => {
                let now = self.clock.monotonic();
                let key = self.key(owner, caller, base, &op);
                let find = |(key, number): &(Key, u64)| Some((self.remote.names.find(key, *number, now)?, *number));
                match key.as_ref().and_then(find) {
                    Some((answer, number)) => ready(give(&self.remote, answer, number, &op)),
                    None => Box::pin(self.travel(caller, base, op, None)),
                }
            }
            Start::Two => Box::pin(self.travel(caller, base, op, None)),
        }
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        if let (Some(own), true) = (&self.own, self.root == self.remote.me()) {
            return own.root();
        }
        Box::pin(async move {
            let remote = self.remote.clone();
            let accept = move |reply: Result<_>| remote.accept(reply?);
            self.remote.ask(self.root, RootDirectory {}, accept, drop).await?
        })
    }

    fn drop_unused(&self) -> BoxFuture<'_, ()> {
        match &self.own {
            Some(own) => own.drop_unused(),
            None => ready(()),
        }
    }
}

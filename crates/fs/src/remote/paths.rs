//! Operations on paths, on a kernel that does not own the root file system. They are sent to the owner whole, unless an answer from
//! before is kept (names.rs).

use super::{
    leased::{Anchor, LeasedFile},
    names::{Answer, Kept, Key},
    Counted, Remote,
};
use crate::{file::ready, Base, Caller, Clock, File, PathAnswer, PathOp, Paths};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, KernelId};
use messages::fs::{PathAnswered, PathReply, RootDirectory, RunPath};

/// [`Paths`] by calls to `owner`, the kernel that owns the root.
pub struct RemotePaths {
    remote: Arc<Remote>,
    owner: KernelId,
    clock: Arc<dyn Clock>,
}

/// What the program gets for an answer. `op` is the operation, and `number` its [`Key::number`].
fn give(remote: &Arc<Remote>, answer: Answer, number: u64, op: &PathOp) -> Result<PathAnswer> {
    Ok(match answer {
        Answer::Failed(errno) => return Err(errno),
        Answer::Done => PathAnswer::Done,
        Answer::Attributes(attributes) => PathAnswer::Attributes(attributes),
        Answer::Bytes(bytes) => PathAnswer::Bytes(bytes),
        Answer::Open(anchor) => {
            let flags = match op {
                PathOp::Open { flags, .. } => *flags,
                _ => crate::OpenFlags::empty(),
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

impl Asked {
    /// Called when the answer arrives, even if nobody waits for it any more. Accepts references in it, and keeps it if it may be kept.
    fn take(self, answered: PathAnswered) -> Result<PathAnswer> {
        let PathAnswered { reply, tokens, lasts } = answered;
        let Asked { remote, clock, key, recalls, at } = self;
        let until = at.saturating_add(lasts);
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
            Ok(PathReply::FileSystem(info)) => return Ok(PathAnswer::FileSystem(info)),
            Ok(PathReply::Number(number)) => return Ok(PathAnswer::Number(number)),
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

impl RemotePaths {
    pub fn new(remote: Arc<Remote>, owner: KernelId, clock: Arc<dyn Clock>) -> Self {
        RemotePaths { remote, owner, clock }
    }

    /// What an answer to `op` depends on, and its number. None: the answer can't be kept.
    fn key(&self, caller: &Caller, base: &Base, op: &PathOp) -> Option<(Key, u64)> {
        if !Key::can_be(op) {
            return None;
        }
        let there = |file: &Arc<dyn File>| file.remote().filter(|there| there.owner == self.owner);
        // With RESOLVE_IN_ROOT and its like (openat2) even an absolute path depends on the descriptor.
        let bound = matches!(op, PathOp::Open { resolve, .. } if *resolve != 0);
        let at = match Key::path(op).first() == Some(&b'/') && !bound {
            true => None,
            false => Some(there(&base.at)?),
        };
        let key = Key { root: there(&base.root)?, at, credentials: caller.credentials.clone(), op: op.clone() };
        let number = key.number();
        Some((key, number))
    }

    /// Asks the owner.
    async fn send(
        &self,
        caller: &Caller,
        base: &Base,
        op: PathOp,
        key: Option<(Key, u64)>,
        at: u64,
    ) -> Result<PathAnswer> {
        let remote = self.remote.clone();
        let (recalls, keep) = match &key {
            Some((key, number)) => remote.names.asks(key, *number),
            None => (0, false),
        };
        let root = remote.hand_to(self.owner, &base.root).await?;
        let start = remote.hand_to(self.owner, &base.at).await?;
        let to = match &base.to {
            Some(to) => Some(remote.hand_to(self.owner, to).await?),
            None => None,
        };
        let (caller, to_opened) = (caller.clone(), to.as_ref().map(Counted::opened));
        let message = RunPath { caller, root: root.opened(), at: start.opened(), to: to_opened, op, keep };
        let counted = [root, start].into_iter().chain(to).collect();
        let asked = Asked { remote: remote.clone(), clock: self.clock.clone(), key, recalls, at };
        // A file in the answer is accepted as the answer arrives, so that its count is not lost if the open was interrupted.
        remote.ask_with(self.owner, message, counted, move |answered| asked.take(answered)).await?
    }
}

impl Paths for RemotePaths {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        let now = self.clock.monotonic();
        let key = self.key(caller, base, &op);
        let known = key.as_ref().and_then(|(key, number)| Some((self.remote.names.find(key, *number, now)?, *number)));
        match known {
            Some((answer, number)) => ready(give(&self.remote, answer, number, &op)),
            None => Box::pin(self.send(caller, base, op, key, now)),
        }
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let remote = self.remote.clone();
            let accept = move |reply: Result<_>| remote.accept(reply?);
            self.remote.ask(self.owner, RootDirectory {}, accept, drop).await?
        })
    }
}

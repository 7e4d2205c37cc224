//! Paths on a kernel that does not own the root file system: what is not known from before (names.rs) goes there whole.

use super::{
    leased::{Anchor, LeasedFile},
    names::{Answer, Kept, Key},
    Counted, Remote,
};
use crate::{file::ready, Base, Caller, Clock, File, PathAnswer, PathOp, Paths};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, KernelId};
use messages::fs::{PathAnswered, PathReply, RootDirectory, RunPath};

pub struct RemotePaths {
    remote: Arc<Remote>,
    owner: KernelId,
    clock: Arc<dyn Clock>,
}

/// An answer as the program gets it.
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

/// The question under way.
struct Asked {
    remote: Arc<Remote>,
    clock: Arc<dyn Clock>,
    /// The answer's key and number, and when it was asked for: recalls and ns.
    key: Option<(Key, u64)>,
    recalls: u64,
    at: u64,
}

impl Asked {
    /// Takes in an answer as it arrives, whether or not anybody still waits for it.
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
            // Opened, but nothing is promised.
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

    /// What an answer to `op` depends on, if it can be kept.
    fn key(&self, caller: &Caller, base: &Base, op: &PathOp) -> Option<(Key, u64)> {
        if !Key::can_be(op) {
            return None;
        }
        let there = |file: &Arc<dyn File>| file.remote().filter(|there| there.owner == self.owner);
        // What a path must not leave (openat2) is relative to the descriptor, whatever it begins with.
        let bound = matches!(op, PathOp::Open { resolve, .. } if *resolve != 0);
        let at = match Key::path(op).first() == Some(&b'/') && !bound {
            true => None,
            false => Some(there(&base.at)?),
        };
        let key = Key { root: there(&base.root)?, at, credentials: caller.credentials.clone(), op: op.clone() };
        let number = key.number();
        Some((key, number))
    }

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
        // A file is taken in as the answer arrives, so that its count is not lost with an interrupted open.
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

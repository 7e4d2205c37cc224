//! Paths on a kernel that does not own the root file system: every operation goes there whole.

use super::Remote;
use crate::{Base, Caller, File, PathAnswer, PathOp, Paths};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, KernelId};
use messages::fs::{PathReply, RootDirectory, RunPath};

pub struct RemotePaths {
    remote: Arc<Remote>,
    owner: KernelId,
}

impl RemotePaths {
    pub fn new(remote: Arc<Remote>, owner: KernelId) -> Self {
        RemotePaths { remote, owner }
    }

    async fn send(&self, caller: &Caller, base: &Base, op: PathOp) -> Result<PathAnswer> {
        let root = self.remote.hand_to(self.owner, &base.root).await?;
        let at = self.remote.hand_to(self.owner, &base.at).await?;
        let to = match &base.to {
            Some(to) => Some(self.remote.hand_to(self.owner, to).await?),
            None => None,
        };
        let message = RunPath { caller: caller.clone(), root, at, to, op };
        let remote = self.remote.clone();
        // A file is taken in as the answer arrives, so that its count is not lost with an interrupted open.
        let accept = move |reply: Result<PathReply>| -> Result<PathAnswer> {
            Ok(match reply? {
                PathReply::Done => PathAnswer::Done,
                PathReply::File(file) => PathAnswer::File(remote.accept(file)?),
                PathReply::Attributes(attributes) => PathAnswer::Attributes(attributes),
                PathReply::FileSystem(info) => PathAnswer::FileSystem(info),
                PathReply::Bytes(bytes) => PathAnswer::Bytes(bytes),
                PathReply::Number(number) => PathAnswer::Number(number),
            })
        };
        self.remote.ask(self.owner, message, accept, drop).await?
    }
}

impl Paths for RemotePaths {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        Box::pin(self.send(caller, base, op))
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let remote = self.remote.clone();
            let accept = move |reply: Result<_>| remote.accept(reply?);
            self.remote.ask(self.owner, RootDirectory {}, accept, drop).await?
        })
    }
}

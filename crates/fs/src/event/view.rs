//! [`View`]: a signalfd as one process or thread polls it, for whom the same file has other signals.

use super::{SignalSource, SignalSources};
use crate::{
    file::{ready, SignalView},
    Attributes, Caller, Events, File,
};
use abi::signal::SignalSet;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno, KernelId, Pid,
};
use messages::fs::{SignalTime, SignalsSeen};

/// The mask of a signalfd of another kernel, which is asked for. It does not keep the file open.
pub trait MaskElsewhere: Send + Sync {
    fn get(&self) -> BoxFuture<'_, Result<SignalSet>>;
}

/// Which signals a signalfd is for.
#[derive(Clone)]
pub struct Mask {
    /// If another kernel has it: as last heard.
    wanted: Arc<Lock<SignalSet>>,
    elsewhere: Option<Arc<dyn MaskElsewhere>>,
}

impl Mask {
    pub fn here(wanted: Arc<Lock<SignalSet>>) -> Self {
        Mask { wanted, elsewhere: None }
    }

    pub fn elsewhere(mask: Arc<dyn MaskElsewhere>) -> Self {
        Mask { wanted: Arc::default(), elsewhere: Some(mask) }
    }

    fn get(&self) -> SignalSet {
        *self.wanted.lock()
    }

    async fn refresh(&self) -> Result<()> {
        if let Some(there) = &self.elsewhere {
            let wanted = there.get().await?;
            *self.wanted.lock() = wanted;
        }
        Ok(())
    }
}

/// A signalfd as a process, or one thread of it, polls it.
pub struct View {
    sources: Arc<dyn SignalSources>,
    /// None: the process has nothing on this kernel.
    source: Option<Arc<dyn SignalSource>>,
    thread: Option<Pid>,
    mask: Mask,
    /// Ready only once more than so many have come.
    since: Option<u64>,
}

impl View {
    pub(crate) fn new(sources: Arc<dyn SignalSources>, process: Pid, thread: Option<Pid>, mask: Mask) -> Arc<Self> {
        Arc::new(View { source: sources.of(process), sources, thread, mask, since: None })
    }

    /// For an epoll of another kernel: what `caller` could take now, and what is to be polled until it could take more.
    pub(crate) fn from_now_on(
        sources: Arc<dyn SignalSources>,
        kernel: KernelId,
        caller: &Caller,
    ) -> Option<(SignalsSeen, Self)> {
        let (source, thread) = (sources.of(caller.process)?, Some(caller.thread));
        let count = source.came();
        let seen = SignalsSeen { pending: source.pending(thread), as_of: SignalTime { kernel, count } };
        let mask = Mask::here(Arc::default());
        Some((seen, View { sources, source: Some(source), thread, mask, since: Some(count) }))
    }
}

impl SignalView for View {
    fn wanted(&self) -> SignalSet {
        self.mask.get()
    }

    fn only(&self, wanted: SignalSet) -> Arc<dyn File> {
        let View { sources, source, thread, since, .. } = self;
        let mask = Mask::here(Arc::new(Lock::new(wanted)));
        Arc::new(View { sources: sources.clone(), source: source.clone(), thread: *thread, mask, since: *since })
    }
}

impl File for View {
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Err(Errno::EBADF))
    }

    fn poll(&self) -> Events {
        let Some(source) = &self.source else { return Events::empty() };
        match self.since {
            Some(count) if count == source.came() => Events::empty(),
            _ => readiness(source.pending(self.thread), self.mask.get()),
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        self.source.as_ref().map(|source| source.changes())
    }

    fn watch(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.mask.refresh())
    }

    fn seen_by(&self, process: Pid, thread: Option<Pid>) -> Option<Arc<dyn SignalView>> {
        match self.since {
            None => Some(View::new(self.sources.clone(), process, thread, self.mask.clone())),
            Some(_) => None,
        }
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(Vec::new())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn readiness(pending: SignalSet, wanted: SignalSet) -> Events {
    match pending.0 & wanted.0 {
        0 => Events::empty(),
        _ => Events::IN,
    }
}

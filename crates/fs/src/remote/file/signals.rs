//! A signalfd of another kernel: the signals are the reader's, so they are taken here. The owner is asked for the mask.

use super::{Remote, RemoteFile};
use crate::{
    event::{read_signals, Seen, SignalSource},
    Caller, FileRef, OpenFlags,
};
use abi::signal::SignalSet;
use alloc::sync::Arc;
use machine::{errno::Result, sync::Lock, Errno, Pid};
use messages::fs::{FileSignals, SignalsSeen, Waiting};

/// Which signals a signalfd is for.
#[derive(Clone)]
pub(crate) struct Mask {
    /// If another kernel has it: as last heard.
    wanted: Arc<Lock<SignalSet>>,
    owner: Option<(Arc<Remote>, FileRef)>,
}

impl Mask {
    pub fn here(wanted: Arc<Lock<SignalSet>>) -> Self {
        Mask { wanted, owner: None }
    }

    pub fn get(&self) -> SignalSet {
        *self.wanted.lock()
    }

    pub async fn refresh(&self) -> Result<()> {
        if let Some((remote, name)) = &self.owner {
            let (wanted, _) = remote.endpoint.call(name.owner, FileSignals { id: name.id, wanted: None }).await??;
            *self.wanted.lock() = wanted;
        }
        Ok(())
    }
}

impl RemoteFile {
    /// Mask and flags, after a change of the mask. EINVAL: it is no signalfd.
    pub(crate) async fn signals(&self, wanted: Option<SignalSet>) -> Result<(SignalSet, OpenFlags)> {
        let Waiting::Signals = self.waiting else { return Err(Errno::EINVAL) };
        let (wanted, flags) = self.ask(FileSignals { id: self.name.id, wanted }).await??;
        self.flags.set(flags);
        Ok((wanted, flags))
    }

    /// The signals of who reads, if this is a signalfd.
    pub(super) fn signals_of(&self, reader: &Caller) -> Option<Arc<dyn SignalSource>> {
        match self.waiting {
            Waiting::Signals => self.remote.sources()?.of(reader.process),
            _ => None,
        }
    }

    pub(super) fn signals_seen_by(&self, process: Pid, thread: Option<Pid>) -> Option<Arc<Seen>> {
        let Waiting::Signals = self.waiting else { return None };
        let mask = Mask { wanted: Arc::default(), owner: Some((self.remote.clone(), self.name)) };
        Some(Seen::new(self.remote.sources()?, process, thread, mask))
    }

    /// For who waits for this, an epoll: see [`Seen::from_now_on`].
    pub(crate) fn signals_from_now_on(&self, caller: &Caller) -> Option<(SignalsSeen, Seen)> {
        Seen::from_now_on(self.remote.sources()?, self.remote.me(), caller)
    }

    pub(super) async fn read_signals(
        &self,
        source: Arc<dyn SignalSource>,
        reader: &Caller,
        buf: &mut [u8],
    ) -> Result<usize> {
        let (wanted, flags) = self.signals(None).await?;
        read_signals(&source, Some(reader.thread), || wanted, flags.contains(OpenFlags::NONBLOCK), buf).await
    }
}

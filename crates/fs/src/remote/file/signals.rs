//! Signalfds of another kernel. A read takes signals of the reading process, so it is done on the reader's kernel; the owner is asked
//! for the mask.

use super::{Remote, RemoteFile};
use crate::{
    event::{read_signals, Mask, MaskElsewhere, SignalSource, View},
    file::SignalView,
    Caller, FileRef, OpenFlags,
};
use abi::signal::SignalSet;
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, Errno, Pid};
use messages::fs::{FileSignals, SignalsSeen, WaitPlace};

/// The mask, at the signalfd's owner.
struct OwnersMask {
    remote: Arc<Remote>,
    name: FileRef,
}

impl MaskElsewhere for OwnersMask {
    fn get(&self) -> BoxFuture<'_, Result<SignalSet>> {
        let message = FileSignals { id: self.name.id, wanted: None };
        Box::pin(async move { Ok(self.remote.endpoint.call(self.name.owner, message).await??.0) })
    }
}

impl RemoteFile {
    pub(super) async fn change_signals(&self, wanted: Option<SignalSet>) -> Result<(SignalSet, OpenFlags)> {
        let WaitPlace::Signals = self.waiting else { return Err(Errno::EINVAL) };
        let (wanted, flags) = self.ask(FileSignals { id: self.name.id, wanted }).await??;
        self.flags.learn(flags);
        Ok((wanted, flags))
    }

    /// The signals of the reading process. None: this is no signalfd.
    pub(super) fn signals_of(&self, reader: &Caller) -> Option<Arc<dyn SignalSource>> {
        match self.waiting {
            WaitPlace::Signals => self.remote.sources()?.of(reader.process),
            _ => None,
        }
    }

    pub(super) fn view(&self, process: Pid, thread: Option<Pid>) -> Option<Arc<dyn SignalView>> {
        let WaitPlace::Signals = self.waiting else { return None };
        let mask = Mask::elsewhere(Arc::new(OwnersMask { remote: self.remote.clone(), name: self.name }));
        Some(View::new(self.remote.sources()?, process, thread, mask))
    }

    pub(super) fn view_from_now_on(&self, caller: &Caller) -> Option<(SignalsSeen, Arc<dyn SignalView>)> {
        let (now, view) = View::from_now_on(self.remote.sources()?, self.remote.me(), caller)?;
        Some((now, Arc::new(view)))
    }

    pub(super) async fn read_signals(
        &self,
        source: Arc<dyn SignalSource>,
        reader: &Caller,
        buf: &mut [u8],
    ) -> Result<usize> {
        let (wanted, flags) = self.change_signals(None).await?;
        read_signals(&source, Some(reader.thread), || wanted, flags.contains(OpenFlags::NONBLOCK), buf).await
    }
}

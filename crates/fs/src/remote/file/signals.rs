//! A signalfd of another kernel: the signals are the reader's, so they are taken here. The owner is asked for the mask.

use super::RemoteFile;
use crate::{
    event::{read_signals, SignalSource},
    Caller, Events, OpenFlags,
};
use abi::signal::SignalSet;
use alloc::sync::Arc;
use machine::{errno::Result, sync::Lock, Errno};
use messages::fs::{FileSignals, Waiting};

/// Of the process that made the descriptor, if it was on this kernel when the stand-in was made: what poll looks at. Else the
/// owner's word counts, as for other files.
pub(super) struct Makers {
    pub source: Arc<dyn SignalSource>,
    /// As last heard.
    pub wanted: Lock<SignalSet>,
}

impl RemoteFile {
    /// Mask and flags, after a change of the mask. EINVAL: it is no signalfd.
    pub(crate) async fn signals(&self, wanted: Option<SignalSet>) -> Result<(SignalSet, OpenFlags)> {
        let Waiting::Signals { .. } = self.waiting else { return Err(Errno::EINVAL) };
        let (wanted, flags) = self.ask(FileSignals { id: self.name.id, wanted }).await??;
        if let Some(makers) = &self.makers {
            *makers.wanted.lock() = wanted;
        }
        self.flags.set(flags);
        Ok((wanted, flags))
    }

    /// The signals of who reads, if this is a signalfd.
    pub(super) fn signals_of(&self, reader: &Caller) -> Option<Arc<dyn SignalSource>> {
        match self.waiting {
            Waiting::Signals { .. } => self.remote.signals_of(reader.process),
            _ => None,
        }
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

impl Makers {
    pub fn poll(&self) -> Events {
        match self.source.pending(None).0 & self.wanted.lock().0 {
            0 => Events::empty(),
            _ => Events::IN,
        }
    }
}

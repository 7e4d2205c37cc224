//! signalfd, signalfd4 (man 2 signalfd): the signals of the process that made the descriptor, as crate
//! `process` keeps them.
//!
//! A read takes without waiting for another kernel. So on a kernel that is not the process's home only
//! signals sent to the reading thread itself are seen; those sent to the process wait until a thread at
//! home reads.

use crate::{call::Call, process::signals::check_size};
use abi::signal::{SignalInfo, SignalSet};
use alloc::sync::Arc;
use core::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use fs::{
    event::{signalfd as make, SignalFd, SignalSource},
    Caller, OpenFlags,
};
use machine::{errno::Result, sync::WaitQueue, Errno, UserAddr};
use process::{Process, Thread};

struct ProcessSignals(Arc<Process>);

/// What `thread` can take at once.
fn at_hand(thread: &Thread) -> SignalSet {
    match thread.process.is_home() {
        true => thread.pending(),
        false => thread.state.lock().pending.set(),
    }
}

impl SignalSource for ProcessSignals {
    fn take(&self, reader: Option<&Caller>, wanted: SignalSet) -> Option<SignalInfo> {
        let own = reader.and_then(|reader| self.0.system.thread(reader.thread)).filter(|thread| !thread.is_away());
        let thread = own.or_else(|| self.0.local_threads().into_iter().next())?;
        let takable = SignalSet(wanted.0 & at_hand(&thread).0);
        if takable.is_empty() {
            return None;
        }
        // What is at hand is taken without a message, hence without waiting.
        let taking = pin!(thread.take_signal(takable));
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(info) => info,
            Poll::Pending => None,
        }
    }

    /// Signals sent to any thread here count: who polls is not known. A read by another thread finds none.
    fn pending(&self) -> SignalSet {
        self.0.local_threads().iter().fold(SignalSet::EMPTY, |all, thread| all.union(at_hand(thread)))
    }

    fn changes(&self) -> &WaitQueue {
        self.0.signal_changes()
    }
}

pub(crate) async fn signalfd(call: &mut Call<'_>) -> Result<u64> {
    run(call, call.pointer(1), call.arg(2), OpenFlags::empty()).await
}

pub(crate) async fn signalfd4(call: &mut Call<'_>) -> Result<u64> {
    run(call, call.pointer(1), call.arg(2), OpenFlags::from_bits_retain(call.arg(3) as u32)).await
}

async fn run(call: &Call<'_>, mask: UserAddr, size: u64, flags: OpenFlags) -> Result<u64> {
    check_size(size)?;
    let wanted = SignalSet(call.get(mask).await?);
    if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    if call.int(0) == -1 {
        let source = Arc::new(ProcessSignals(call.process().clone()));
        return call.install(make(source, wanted, flags)?, flags.contains(OpenFlags::CLOEXEC)).await;
    }
    let file = call.file(0).await?;
    file.as_any().downcast_ref::<SignalFd>().ok_or(Errno::EINVAL)?.set_wanted(wanted);
    Ok(u64::from(call.arg(0) as u32))
}

//! signalfd, signalfd4 (man 2 signalfd): the signals of the process that made the descriptor, as crate
//! `process` keeps them.
//!
//! A read takes the signals of the thread that reads and of its process, wherever that is at home.

use crate::{call::Call, process::signals::check_size};
use abi::signal::{SignalInfo, SignalSet, Taken};
use alloc::{sync::Arc, vec::Vec};
use core::{
    future::Future,
    pin::{pin, Pin},
    task::{Context, Poll, Waker},
};
use fs::{
    event::{signalfd as make, Fetched, SignalFd, SignalSource},
    Caller, OpenFlags,
};
use machine::{errno::Result, sync::WaitQueue, Errno, UserAddr};
use process::{Process, Thread};

struct ProcessSignals(Arc<Process>);

/// What `thread` can take without a message.
fn at_hand(thread: &Thread) -> SignalSet {
    match thread.process.is_home() {
        true => thread.pending(),
        false => thread.state.lock().pending.set(),
    }
}

impl ProcessSignals {
    /// The thread that reads, if it is here.
    fn reader(&self, reader: Option<&Caller>) -> Option<Arc<Thread>> {
        let own = reader.and_then(|reader| self.0.system.thread(reader.thread)).filter(|thread| !thread.is_away());
        own.or_else(|| self.0.local_threads().into_iter().next())
    }
}

impl SignalSource for ProcessSignals {
    fn take(&self, reader: Option<&Caller>, wanted: SignalSet) -> Option<SignalInfo> {
        let at_once = |taking: Pin<&mut dyn Future<Output = Option<Taken>>>| match taking
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(taken) => taken.map(|taken| taken.info),
            Poll::Pending => None,
        };
        // What is at hand is taken without a message, hence without waiting.
        match self.reader(reader) {
            Some(thread) => match SignalSet(wanted.0 & at_hand(&thread).0) {
                none if none.is_empty() => None,
                takable => at_once(pin!(thread.take_signal(takable))),
            },
            // All threads are elsewhere.
            None if self.0.is_home() => at_once(pin!(self.0.take_signal(wanted))),
            None => None,
        }
    }

    fn fetch(&self, reader: Option<&Caller>, wanted: SignalSet, most: usize, then: Fetched) -> bool {
        let process = self.reader(reader).map_or(self.0.clone(), |thread| thread.process.clone());
        if process.is_home() || process.pending().0 & wanted.0 == 0 {
            return false;
        }
        process.system.scheduler.clone().spawn(async move {
            let mut signals = Vec::new();
            while signals.len() < most {
                // What is left is known with the answer.
                match process.take_signal(wanted).await {
                    Some(taken) => signals.push(taken.info),
                    None => break,
                }
                if process.pending().0 & wanted.0 == 0 {
                    break;
                }
            }
            then(signals);
        });
        true
    }

    /// Signals sent to any thread here count: who polls is not known. A read by another thread finds none.
    fn pending(&self) -> SignalSet {
        self.0.local_threads().iter().fold(self.0.pending(), |all, thread| all.union(at_hand(thread)))
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

//! signalfd, signalfd4 (man 2 signalfd): the signals of who reads, as crate `process` keeps them.
//!
//! A read takes the signals of the thread that reads and of its process, wherever that is at home.

use crate::{call::Call, process::signals::check_size};
use abi::signal::{SignalInfo, SignalSet, Taken};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    future::Future,
    pin::{pin, Pin},
    task::{Context, Poll, Waker},
};
use fs::{
    event::{signalfd as make, Fetched, SignalSource, SignalSources},
    OpenFlags,
};
use machine::{errno::Result, sync::WaitQueue, Errno, Pid, UserAddr};
use process::{Process, System, Thread};

/// The processes of this kernel.
pub(crate) struct Processes(pub Weak<System>);

impl SignalSources for Processes {
    fn of(&self, process: Pid) -> Option<Arc<dyn SignalSource>> {
        let process = self.0.upgrade()?.process(process)?;
        let changes = process.signal_changes().clone();
        Some(Arc::new(ProcessSignals { process: Arc::downgrade(&process), changes }))
    }
}

/// A process's table holds the descriptor, so this does not hold the process.
struct ProcessSignals {
    process: Weak<Process>,
    changes: Arc<WaitQueue>,
}

/// What `thread` can take without a message.
fn at_hand(thread: &Thread) -> SignalSet {
    match thread.process.is_home() {
        true => thread.pending(),
        false => thread.state.lock().pending.set(),
    }
}

impl ProcessSignals {
    /// The thread of the process that reads. It is here: it reads.
    fn reader(process: &Process, reader: Option<Pid>) -> Option<Arc<Thread>> {
        process.system.thread(reader?).filter(|thread| !thread.is_away())
    }
}

impl SignalSource for ProcessSignals {
    fn take(&self, reader: Option<Pid>, wanted: SignalSet) -> Option<SignalInfo> {
        let process = self.process.upgrade()?;
        let at_once = |taking: Pin<&mut dyn Future<Output = Option<Taken>>>| match taking
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(taken) => taken.map(|taken| taken.info),
            Poll::Pending => None,
        };
        // What is at hand is taken without a message, hence without waiting.
        match Self::reader(&process, reader) {
            Some(thread) => match SignalSet(wanted.0 & at_hand(&thread).0) {
                none if none.is_empty() => None,
                takable => at_once(pin!(thread.take_signal(takable))),
            },
            None if process.is_home() => at_once(pin!(process.take_signal(wanted))),
            None => None,
        }
    }

    fn fetch(&self, wanted: SignalSet, most: usize, then: Fetched) -> bool {
        let Some(process) = self.process.upgrade() else { return false };
        if process.is_home() || process.pending().0 & wanted.0 == 0 {
            return false;
        }
        process.system.scheduler.clone().spawn(async move {
            let mut signals = Vec::new();
            while signals.len() < most {
                // What is left is known with the answer.
                match process.take_signal(wanted).await {
                    Some(taken) => signals.push(taken),
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

    fn put_back(&self, signals: Vec<Taken>) {
        if let Some(process) = self.process.upgrade() {
            process.put_back(signals);
        }
    }

    /// Without a reader, signals sent to any thread here count. A read by another thread finds none.
    fn pending(&self, reader: Option<Pid>) -> SignalSet {
        let Some(process) = self.process.upgrade() else { return SignalSet::default() };
        match Self::reader(&process, reader) {
            Some(thread) => process.pending().union(at_hand(&thread)),
            None if reader.is_some() => process.pending(),
            None => process.local_threads().iter().fold(process.pending(), |all, thread| all.union(at_hand(thread))),
        }
    }

    fn came(&self) -> u64 {
        self.process.upgrade().map_or(0, |process| process.signals_came())
    }

    fn changes(&self) -> &WaitQueue {
        &self.changes
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
        let sources = Arc::new(Processes(Arc::downgrade(call.system())));
        let file = make(sources, wanted, flags)?;
        return call.install(file, flags.contains(OpenFlags::CLOEXEC)).await;
    }
    call.file(0).await?.signals(Some(wanted)).await?;
    call.process().signal_changes().wake_all();
    Ok(u64::from(call.arg(0) as u32))
}

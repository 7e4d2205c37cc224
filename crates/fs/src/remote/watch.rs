//! Telling other kernels when a file may have become ready.
//!
//! The owner has a [`Watch`] of the file for each kernel that asked (`FileWatch`), and tells it when readiness may have changed
//! (`FileReady`). At most one such message is on its way for each watch; a flag remembers changes meanwhile, and the next message tells
//! of them. No change is lost: the flag is cleared *before* the file is polled, so a later change sets it again.

use super::Remote;
use crate::{File, FileRef};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};
use machine::{
    sync::{Subscriber, WaitQueue},
    KernelId,
};
use messages::fs::FileReady;

/// Another kernel's interest in a file of this one. It ends when it is dropped.
pub struct Watch {
    file: Weak<dyn File>,
    state: Arc<State>,
    subscription: u64,
}

#[derive(Default)]
struct State {
    changed: AtomicBool,
    ended: AtomicBool,
    woken: WaitQueue,
}

impl Subscriber for State {
    fn changed(&self) -> bool {
        self.changed.store(true, Ordering::Release);
        self.woken.wake_all();
        true
    }
}

impl Watch {
    /// Begins to tell `holder` of changes.
    pub fn start(remote: &Arc<Remote>, file: &Arc<dyn File>, name: FileRef, holder: KernelId) -> Arc<Self> {
        let state = Arc::new(State::default());
        let subscription = file.changes().map_or(0, |queue| queue.subscribe(state.clone(), false));
        let watch = Watch { file: Arc::downgrade(file), state: state.clone(), subscription };
        remote.spawn(tell(remote.clone(), watch.file.clone(), name, holder, state));
        Arc::new(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(file) = self.file.upgrade()
            && let Some(queue) = file.changes()
        {
            queue.unsubscribe(self.subscription);
        }
        self.state.ended.store(true, Ordering::Release);
        self.state.woken.wake_all();
    }
}

/// The task of a watch.
async fn tell(remote: Arc<Remote>, file: Weak<dyn File>, name: FileRef, holder: KernelId, state: Arc<State>) {
    loop {
        let ended = state
            .woken
            .wait_until(|| {
                let ended = state.ended.load(Ordering::Acquire);
                (ended || state.changed.swap(false, Ordering::AcqRel)).then_some(ended)
            })
            .await;
        let Some(events) = file.upgrade().map(|file| file.poll()) else { return };
        if ended || remote.endpoint.call(holder, FileReady { file: name, events }).await.is_err() {
            return;
        }
    }
}

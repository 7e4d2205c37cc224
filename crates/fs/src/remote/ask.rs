//! Calls whose answer must not get lost if the caller's future is dropped, or its thread wants to leave for a signal.

use super::{Counted, Remote};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::{poll_fn, Future},
    pin::Pin,
};
use fabric::{Call, CallError};
use machine::{sync::Lock, KernelId, Shield};
use messages::Request;

/// What to do with a result that nobody waits for any more.
type Stray<T> = Box<dyn FnOnce(T) + Send>;

/// Where the answer of a call is put.
enum Slot<T> {
    /// It has not come yet.
    Waiting(Stray<T>),
    /// It has come.
    Done(T, Stray<T>),
    /// The caller has gone. A result that still comes is a stray.
    Abandoned(Stray<T>),
    Taken,
}

/// The caller's end of a slot.
struct Asking<T>(Arc<Lock<Slot<T>>>);

/// A call under way, with the references in its message. Dropped before the message has left, it uncounts them.
struct Question<'a> {
    call: Call<'a, ()>,
    counted: Vec<Counted>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if !self.call.withdraw() {
            for counted in self.counted.drain(..) {
                counted.send();
            }
        }
    }
}

fn replace<T>(slot: &Lock<Slot<T>>, change: impl FnOnce(Slot<T>) -> Slot<T>) {
    let mut slot = slot.lock();
    let now = core::mem::replace(&mut *slot, Slot::Taken);
    *slot = change(now);
}

impl<T> Drop for Asking<T> {
    fn drop(&mut self) {
        let mut left = None;
        replace(&self.0, |slot| match slot {
            Slot::Waiting(stray) => Slot::Abandoned(stray),
            // It has come, and the caller goes before it has looked.
            Slot::Done(result, stray) => {
                left = Some((result, stray));
                Slot::Taken
            }
            other => other,
        });
        if let Some((result, stray)) = left {
            stray(result);
        }
    }
}

impl Remote {
    /// Calls `to`. As soon as the reply arrives `accept` turns it into a result, even if the future has been dropped. Then `stray`
    /// gets the result.
    pub(super) async fn ask<M, T>(
        &self,
        to: KernelId,
        message: M,
        accept: impl FnOnce(M::Reply) -> T + Send + 'static,
        stray: impl FnOnce(T) + Send + 'static,
    ) -> Result<T, CallError>
    where
        M: Request,
        T: Send + 'static,
    {
        self.ask_until(to, message, Vec::new(), accept, stray, || false).await
    }

    /// [`Self::ask`] with references in the message.
    pub(super) async fn ask_with<M, T>(
        &self,
        to: KernelId,
        message: M,
        counted: Vec<Counted>,
        accept: impl FnOnce(M::Reply) -> T + Send + 'static,
    ) -> Result<T, CallError>
    where
        M: Request,
        T: Send + 'static,
    {
        self.ask_until(to, message, counted, accept, drop, || false).await
    }

    /// [`Self::ask`] for a thread that does not leave before the answer has come, even for a signal. With `cancels` the call may take
    /// long: when the thread wants to leave, `to` is asked to give up, and if it has done so the result is `Err(Cancelled)`.
    pub(super) async fn ask_and_stay<M, T>(
        &self,
        to: KernelId,
        message: M,
        accept: impl FnOnce(M::Reply) -> T + Send + 'static,
        shield: &Shield,
        cancels: bool,
    ) -> Result<T, CallError>
    where
        M: Request,
        T: Send + 'static,
    {
        let held = shield.hold();
        self.ask_until(to, message, Vec::new(), accept, drop, || cancels && held.is_leaving()).await
    }

    /// [`Self::ask`] that cancels the call when `cancel` says so.
    async fn ask_until<M, T>(
        &self,
        to: KernelId,
        message: M,
        counted: Vec<Counted>,
        accept: impl FnOnce(M::Reply) -> T + Send + 'static,
        stray: impl FnOnce(T) + Send + 'static,
        cancel: impl Fn() -> bool,
    ) -> Result<T, CallError>
    where
        M: Request,
        T: Send + 'static,
    {
        let asking = Asking(Arc::new(Lock::new(Slot::Waiting(Box::new(stray)))));
        let slot = asking.0.clone();
        let remote = self.shared();
        self.note_deed(to);
        let call = self.endpoint.call_then(to, message, move |reply| {
            remote.note_deed(to);
            let result = accept(reply);
            let mut left = None;
            replace(&slot, |now| match now {
                Slot::Waiting(stray) => Slot::Done(result, stray),
                Slot::Abandoned(stray) => {
                    left = Some((result, stray));
                    Slot::Taken
                }
                other => other,
            });
            if let Some((result, stray)) = left {
                stray(result);
            }
        });
        let mut question = Question { call, counted };
        poll_fn(|context| {
            let answer = Pin::new(&mut question.call).poll(context);
            if answer.is_ready() || !cancel() {
                return answer;
            }
            question.call.cancel();
            Pin::new(&mut question.call).poll(context)
        })
        .await?;
        let mut found = None;
        replace(&asking.0, |slot| {
            if let Slot::Done(result, stray) = slot {
                found = Some((result, stray));
            }
            Slot::Taken
        });
        // The closure `stray` is dropped outside the lock.
        found.map(|(result, _)| result).ok_or(CallError::Refused)
    }
}

//! Calls whose answer must not get lost when the one who asked has gone.

use super::Remote;
use alloc::sync::Arc;
use fabric::CallError;
use machine::{sync::Lock, KernelId};
use messages::Request;

enum Slot<T> {
    Waiting,
    Done(T),
    Abandoned,
}

/// Set while the asking future lives.
struct Asking<T>(Arc<Lock<Slot<T>>>);

impl<T> Drop for Asking<T> {
    fn drop(&mut self) {
        let left = core::mem::replace(&mut *self.0.lock(), Slot::Abandoned);
        drop(left);
    }
}

impl Remote {
    /// Calls `to`. `accept` turns the reply into a result as soon as it arrives, whether or not the
    /// future still exists; a result that nobody waits for goes to `stray`.
    pub(super) async fn ask<M, T>(
        &self,
        to: KernelId,
        message: M,
        accept: impl FnOnce(M::Reply) -> T + Send + 'static,
        stray: impl FnOnce(T) + Send + 'static,
    ) -> Result<T, CallError>
    where
        M: Request,
        M::Reply: Clone,
        T: Send + 'static,
    {
        let asking = Asking(Arc::new(Lock::new(Slot::Waiting)));
        let slot = asking.0.clone();
        let call = self.endpoint.call_then(to, message, move |reply: &M::Reply| {
            let result = accept(reply.clone());
            let stray_result = {
                let mut slot = slot.lock();
                match *slot {
                    Slot::Abandoned => Some(result),
                    _ => {
                        *slot = Slot::Done(result);
                        None
                    }
                }
            };
            if let Some(result) = stray_result {
                stray(result);
            }
        });
        call.await?;
        let slot = core::mem::replace(&mut *asking.0.lock(), Slot::Abandoned);
        match slot {
            Slot::Done(result) => Ok(result),
            _ => Err(CallError::Refused),
        }
    }
}

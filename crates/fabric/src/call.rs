//! Remote calls, seen from the caller: correlation slots, the future of a call, multicast.
#![forbid(unsafe_code)]

use crate::endpoint::Endpoint;
use crate::wire::Body;
use alloc::{boxed::Box, vec::Vec};
use core::{
    future::Future,
    marker::PhantomData,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use machine::{Errno, KernelId};
use messages::{MessageKind, Priority, Request};
use serde::de::DeserializeOwned;
use slab::Slab;

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The other kernel died, or was never there. Whether it still acted is unknown.
    Dead,
    /// The call was cancelled and the other kernel stopped before it was done.
    Cancelled,
    /// The other kernel has no handler for this message.
    Refused,
}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Errno {
        match error {
            CallError::Dead => Errno::EIO,
            CallError::Cancelled => Errno::EINTR,
            CallError::Refused => Errno::ENOSYS,
        }
    }
}

/// Runs inside the drain, with the body of the reply; what it makes of that is the answer.
pub(crate) type Then = Box<dyn FnOnce(&[u8]) -> Answer + Send>;

pub(crate) type Answer = Result<Body, CallError>;

enum State {
    Waiting(Option<Waker>),
    /// The reply's closure is running, or the answer was not collected yet.
    Done(Answer),
    /// The future was dropped; the slot stays until the answer comes, so that its closure can run.
    Orphan,
}

struct Slot {
    generation: u32,
    /// Lane the request took; its credit belongs there.
    priority: Priority,
    then: Option<Then>,
    /// A `Cancel` was sent; one is enough, and more would have no bound.
    cancelled: bool,
    state: State,
}

/// The calls to one kernel that have no answer yet.
///
/// An id is the index of the slot and a generation, so an answer that comes after its
/// slot was given to another call finds nothing.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Slab<Slot>,
    generation: u32,
}

impl Calls {
    pub fn insert(&mut self, priority: Priority, then: Option<Then>) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let index =
            self.slots.insert(Slot { generation, priority, then, cancelled: false, state: State::Waiting(None) });
        u64::from(generation) << 32 | index as u64
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    fn get(&mut self, id: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        (slot.generation == (id >> 32) as u32).then_some(slot)
    }

    fn remove(&mut self, id: u64) -> Slot {
        self.slots.remove(id as u32 as usize)
    }

    /// The lane that the request of an unanswered call took.
    pub fn priority(&mut self, id: u64) -> Option<Priority> {
        Some(self.get(id)?.priority)
    }

    /// Takes what is to run on the reply, before the caller learns of it. `None`: no such call.
    pub fn take_then(&mut self, id: u64) -> Option<Option<Then>> {
        Some(self.get(id)?.then.take())
    }

    /// The answer is there. Returns what to wake, and the answer if nobody wants it: it may own anything, so it is dropped outside
    /// the lock, too.
    pub fn complete(&mut self, id: u64, answer: Answer) -> (Option<Waker>, Option<Answer>) {
        let Some(slot) = self.get(id) else { return (None, Some(answer)) };
        match mem::replace(&mut slot.state, State::Orphan) {
            State::Orphan => {
                self.remove(id);
                (None, Some(answer))
            }
            State::Waiting(waker) => {
                slot.state = State::Done(answer);
                (waker, None)
            }
            // Declared dead while the closure of the reply ran: the first answer counts.
            State::Done(first) => {
                slot.state = State::Done(first);
                (None, Some(answer))
            }
        }
    }

    /// No answer will come any more. Returns what to wake and what to drop outside the lock.
    pub fn fail_all(&mut self) -> (Vec<Waker>, Vec<Then>) {
        let (mut wakers, mut thens) = (Vec::new(), Vec::new());
        self.slots.retain(|_, slot| {
            thens.extend(slot.then.take());
            match &mut slot.state {
                State::Orphan => return false,
                State::Done(_) => {}
                State::Waiting(waker) => {
                    wakers.extend(waker.take());
                    slot.state = State::Done(Err(CallError::Dead));
                }
            }
            true
        });
        (wakers, thens)
    }

    /// The answer if it is there; else `waker` is woken when it comes.
    pub fn poll(&mut self, id: u64, waker: &Waker) -> Poll<Answer> {
        let slot = self.get(id).expect("a slot lives until its call has the answer");
        match &mut slot.state {
            State::Waiting(Some(known)) => known.clone_from(waker),
            State::Waiting(unknown) => *unknown = Some(waker.clone()),
            State::Done(_) => {
                let slot = self.slots.remove(id as u32 as usize);
                let State::Done(answer) = slot.state else { unreachable!("just seen") };
                return Poll::Ready(answer);
            }
            State::Orphan => unreachable!("the future is alive"),
        }
        Poll::Pending
    }

    /// The caller wants to stop. True if a `Cancel` is to be sent.
    pub fn cancel(&mut self, id: u64) -> bool {
        let waiting = |slot: &&mut Slot| matches!(slot.state, State::Waiting(_)) && !slot.cancelled;
        let Some(slot) = self.get(id).filter(waiting) else { return false };
        slot.cancelled = true;
        true
    }

    /// Nobody waits any more, and nothing is cancelled. Returns the answer if it is there, to be dropped outside the lock.
    pub fn detach(&mut self, id: u64) -> Option<Unwanted> {
        let slot = self.get(id)?;
        match slot.state {
            State::Waiting(_) => {
                slot.state = State::Orphan;
                None
            }
            _ => Some(Unwanted(self.remove(id))),
        }
    }

    /// The future is gone. True if a `Cancel` is to be sent; and as for [`Self::detach`].
    pub fn abandon(&mut self, id: u64) -> (bool, Option<Unwanted>) {
        let unwanted = self.detach(id);
        let cancels = unwanted.is_none() && self.get(id).is_some_and(|slot| !mem::replace(&mut slot.cancelled, true));
        (cancels, unwanted)
    }
}

/// A call that nobody waits for, with its answer.
pub(crate) struct Unwanted(#[allow(dead_code)] Slot);

/// A call under way whose answer nobody has looked into: what [`Call`] and [`Multicast`] are made of.
pub(crate) struct Pending<'a> {
    pub endpoint: &'a Endpoint,
    pub to: KernelId,
    pub kind: MessageKind,
    pub priority: Priority,
    /// `None` once the answer was collected, or if there was nobody to ask.
    pub id: Option<u64>,
}

impl Pending<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Answer> {
        let Some(id) = self.id else { return Poll::Ready(Err(CallError::Dead)) };
        let answer = self.endpoint.poll_call(self.to, id, context.waker());
        if answer.is_ready() {
            self.id = None;
        }
        answer
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.endpoint.abandon(self, id);
        }
    }
}

fn decode<T: DeserializeOwned>(answer: Answer) -> Result<T, CallError> {
    answer.and_then(|body| body.decode().ok_or(CallError::Refused))
}

fn taken<T: 'static>(answer: Answer) -> Result<T, CallError> {
    answer.and_then(|body| body.taken().ok_or(CallError::Refused))
}

/// A call under way, which gives a T. Dropping it cancels it: the other kernel is told to stop, and the answer is
/// thrown away when it comes (the closure of `call_then` still runs if it is a reply).
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<'a, T> {
    pending: Pending<'a>,
    read: fn(Answer) -> Result<T, CallError>,
}

impl<'a, T> Call<'a, T> {
    /// The reply is a T.
    pub(crate) fn new(pending: Pending<'a>) -> Self
    where
        T: DeserializeOwned,
    {
        Call { pending, read: decode }
    }

    /// The [`Then`] of the call makes a T of the reply.
    pub(crate) fn taking(pending: Pending<'a>) -> Self
    where
        T: 'static,
    {
        Call { pending, read: taken }
    }

    /// Lets it go on with nobody who waits: when the reply comes, what was given to `call_then` runs.
    pub fn detach(mut self) {
        if let Some(id) = self.pending.id.take() {
            self.pending.endpoint.detach(self.pending.to, id);
        }
    }

    /// The kernel that was asked.
    pub fn to(&self) -> KernelId {
        self.pending.to
    }

    /// Cancels the call if its request has not left yet. False if it has: the other kernel gets it, unless it dies.
    pub fn withdraw(&self) -> bool {
        self.pending.id.is_some_and(|id| self.pending.endpoint.withdraw(&self.pending, id))
    }

    /// Asks the other kernel to stop. Await the call afterwards: it gives `Err(Cancelled)` if the
    /// other kernel had not finished, and else the reply.
    pub fn cancel(&self) {
        if let Some(id) = self.pending.id {
            self.pending.endpoint.cancel(&self.pending, id);
        }
    }
}

impl<T> Future for Call<'_, T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.poll(context).map(self.read)
    }
}

/// What each kernel of a multicast said.
pub type Answers<M> = Vec<(KernelId, Result<<M as Request>::Reply, CallError>)>;

/// One message to many kernels, done when all have answered or died.
#[must_use = "a multicast that is dropped is cancelled"]
pub struct Multicast<'a, M: Request> {
    waiting: Vec<Pending<'a>>,
    answers: Vec<(KernelId, Answer)>,
    message: PhantomData<fn() -> M>,
}

impl<'a, M: Request> Multicast<'a, M> {
    pub(crate) fn new(waiting: Vec<Pending<'a>>) -> Self {
        let answers = Vec::with_capacity(waiting.len());
        Multicast { waiting, answers, message: PhantomData }
    }
}

/// Gathers the answers that have come. Ready when all have, in the order of the kernels.
fn gather(
    waiting: &mut Vec<Pending<'_>>,
    answers: &mut Vec<(KernelId, Answer)>,
    context: &mut Context<'_>,
) -> Poll<Vec<(KernelId, Answer)>> {
    waiting.retain_mut(|call| match call.poll(context) {
        Poll::Pending => true,
        Poll::Ready(answer) => {
            answers.push((call.to, answer));
            false
        }
    });
    if !waiting.is_empty() {
        return Poll::Pending;
    }
    answers.sort_unstable_by_key(|(kernel, _)| *kernel);
    Poll::Ready(mem::take(answers))
}

impl<M: Request> Future for Multicast<'_, M> {
    type Output = Answers<M>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Multicast { waiting, answers, .. } = &mut *self;
        let decoded = |answers: Vec<(KernelId, Answer)>| {
            answers.into_iter().map(|(kernel, answer)| (kernel, decode(answer))).collect()
        };
        gather(waiting, answers, context).map(decoded)
    }
}

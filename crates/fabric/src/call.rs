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
use messages::{Kind, Priority, Request};
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

/// Runs inside the drain, with the body of the reply.
pub(crate) type Then = Box<dyn FnOnce(&[u8]) + Send>;

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

    fn remove(&mut self, id: u64) {
        self.slots.remove(id as u32 as usize);
    }

    /// The lane that the request of an unanswered call took.
    pub fn priority(&mut self, id: u64) -> Option<Priority> {
        Some(self.get(id)?.priority)
    }

    /// Takes what is to run on the reply, before the caller learns of it. `None`: no such call.
    pub fn take_then(&mut self, id: u64) -> Option<Option<Then>> {
        Some(self.get(id)?.then.take())
    }

    /// The answer is there. Returns the waker, to be used outside the lock.
    pub fn complete(&mut self, id: u64, answer: Answer) -> Option<Waker> {
        let slot = self.get(id)?;
        match mem::replace(&mut slot.state, State::Orphan) {
            State::Orphan => {
                self.remove(id);
                None
            }
            State::Waiting(waker) => {
                slot.state = State::Done(answer);
                waker
            }
            // Declared dead while the closure of the reply ran: the first answer counts.
            State::Done(first) => {
                slot.state = State::Done(first);
                None
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

    /// Nobody waits any more, and nothing is cancelled.
    pub fn detach(&mut self, id: u64) {
        let Some(slot) = self.get(id) else { return };
        match slot.state {
            State::Waiting(_) => slot.state = State::Orphan,
            _ => self.remove(id),
        }
    }

    /// The future is gone. True if a `Cancel` is to be sent.
    pub fn abandon(&mut self, id: u64) -> bool {
        let Some(slot) = self.get(id) else { return false };
        match slot.state {
            State::Waiting(_) => {
                slot.state = State::Orphan;
                !mem::replace(&mut slot.cancelled, true)
            }
            _ => {
                self.remove(id);
                false
            }
        }
    }
}

/// A call under way whose reply is bytes still: what [`Call`] and [`Multicast`] are made of.
pub(crate) struct Pending<'a> {
    pub endpoint: &'a Endpoint,
    pub to: KernelId,
    pub kind: Kind,
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

fn decode<M: Request>(answer: Answer) -> Result<M::Reply, CallError> {
    answer.and_then(|body| body.decode().ok_or(CallError::Refused))
}

/// A call under way. Dropping it cancels it: the other kernel is told to stop, and the answer is
/// thrown away when it comes (the closure of `call_then` still runs if it is a reply).
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<'a, M: Request> {
    pending: Pending<'a>,
    message: PhantomData<fn() -> M>,
}

impl<'a, M: Request> Call<'a, M> {
    pub(crate) fn new(pending: Pending<'a>) -> Self {
        Call { pending, message: PhantomData }
    }

    /// Lets it go on with nobody who waits: when the reply comes, what was given to `call_then` runs.
    pub fn detach(mut self) {
        if let Some(id) = self.pending.id.take() {
            self.pending.endpoint.detach(self.pending.to, id);
        }
    }

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

impl<M: Request> Future for Call<'_, M> {
    type Output = Result<M::Reply, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.poll(context).map(decode::<M>)
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
            answers.into_iter().map(|(kernel, answer)| (kernel, decode::<M>(answer))).collect()
        };
        gather(waiting, answers, context).map(decoded)
    }
}

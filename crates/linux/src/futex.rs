//! futex(2). The queues are crate `futex`'s; here are the operations and their timeouts.

use crate::{call::Call, table::unsupported, time::Timespec};
use core::{
    future::{poll_fn, Future},
    pin::pin,
    task::Poll,
};
use futex::{ANY, TID_MASK};
use machine::{errno::Result, Errno, UserAddr};
use messages::{futex::WordOp, inspect::RunState};

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const UNLOCK_PI: u32 = 7;
const TRYLOCK_PI: u32 = 8;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const WAIT_REQUEUE_PI: u32 = 11;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;
const PRIVATE: u32 = 128;
const CLOCK_REALTIME: u32 = 256;

pub(crate) async fn futex(call: &mut Call<'_>) -> Result<u64> {
    let [address, operation, value, timeout, second, third] = call.arguments();
    let (operation, value, third) = (operation as u32, value as u32, third as u32);
    let shared = operation & PRIVATE == 0;
    let at = UserAddr(address);
    let second = UserAddr(second);
    let command = operation & !(PRIVATE | CLOCK_REALTIME);
    if operation & CLOCK_REALTIME != 0 && !matches!(command, WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    // Read before anything else is looked at.
    let clock = match command {
        WAIT => Timeout::Relative,
        LOCK_PI => Timeout::Realtime,
        _ if operation & CLOCK_REALTIME != 0 => Timeout::Realtime,
        _ => Timeout::Monotonic,
    };
    let deadline = match command {
        WAIT | WAIT_BITSET | LOCK_PI | LOCK_PI2 | WAIT_REQUEUE_PI => deadline(call, UserAddr(timeout), clock).await?,
        _ => u64::MAX,
    };
    let space = call.space();
    let futexes = &call.system().futexes;
    let me = call.thread.tid;
    if matches!(command, WAIT_BITSET | WAKE_BITSET) && third == 0 {
        return Err(Errno::EINVAL);
    }
    if !matches!(command, WAIT..=WAKE | REQUEUE..=LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    // The owner of a lock is looked at before its place.
    if address % 4 != 0 && command != UNLOCK_PI {
        return Err(Errno::EINVAL);
    }
    match command {
        WAIT => wait(call, at, shared, value, ANY, deadline, true).await,
        WAIT_BITSET => wait(call, at, shared, value, third, deadline, false).await,
        LOCK_PI | LOCK_PI2 | TRYLOCK_PI => {
            lock(call, at, shared, command == TRYLOCK_PI, deadline, Errno::RESTART_ALWAYS).await
        }
        UNLOCK_PI => {
            if call.get::<u32>(at).await? & TID_MASK != me.0 {
                return Err(Errno::EPERM);
            }
            futexes.unlock(key(call, at, shared).await?, me).await?;
            Ok(0)
        }
        WAIT_REQUEUE_PI => {
            if at == second {
                return Err(Errno::EINVAL);
            }
            let target = key(call, second, shared).await?;
            let from = space.futex_key(at, shared).await?;
            if from == target {
                return Err(Errno::EINVAL);
            }
            let waiting =
                futexes.wait(from, value, ANY, Some(target), interruption(call, deadline, Errno::RESTART_ALWAYS));
            waiting.await?;
            // From here on the caller is to take the lock by itself if a signal comes (EWOULDBLOCK).
            lock(call, second, shared, false, deadline, Errno::EWOULDBLOCK).await
        }
        CMP_REQUEUE_PI => {
            if at == second || value != 1 || (timeout as i32) < 0 {
                return Err(Errno::EINVAL);
            }
            let from = space.futex_key(at, shared).await?;
            let target = key(call, second, shared).await?;
            if from == target {
                return Err(Errno::EINVAL);
            }
            let count = (timeout as u32).saturating_add(1);
            Ok(u64::from(futexes.wake_for_lock(from, target, count, third).await?))
        }
        WAKE => Ok(u64::from(futexes.wake(space.futex_key(at, shared).await?, at_least_one(value), ANY).await?)),
        WAKE_BITSET => {
            Ok(u64::from(futexes.wake(space.futex_key(at, shared).await?, at_least_one(value), third).await?))
        }
        kind @ (REQUEUE | CMP_REQUEUE) => {
            // Counts are ints; negative ones are refused.
            if (value as i32) < 0 || (timeout as i32) < 0 {
                return Err(Errno::EINVAL);
            }
            let from = space.futex_key(at, shared).await?;
            let to = space.futex_key(second, shared).await?;
            let expected = (kind == CMP_REQUEUE).then_some(third);
            let (woken, moved) = futexes.requeue(from, to, value, timeout as u32, expected).await?;
            // Both count what they moved too, whatever futex(2) says of the older one.
            Ok(u64::from(woken + moved))
        }
        WAKE_OP => {
            let first = space.futex_key(at, shared).await?;
            let other = space.futex_key(second, shared).await?;
            let sign_extend = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
            let mut argument = sign_extend(third >> 12 & 0xfff);
            let operation = (third >> 28 & 0xf) as u8;
            if operation & 8 != 0 {
                // FUTEX_OP_ARG_SHIFT.
                argument = 1 << (argument & 31);
            }
            let op = WordOp {
                operation: operation & 7,
                argument,
                compare: (third >> 24 & 0xf) as u8,
                compared_with: sign_extend(third & 0xfff),
            };
            let (wake, wake_second) = (at_least_one(value), at_least_one(timeout as u32));
            Ok(u64::from(futexes.wake_op(first, other, wake, wake_second, op).await?))
        }
        _ => Err(unsupported(call, "a futex operation", Errno::ENOSYS)),
    }
}

/// How many a wake is for: Linux looks whether it is enough when it has woken one.
fn at_least_one(count: u32) -> u32 {
    (count as i32).max(1) as u32
}

/// The key of the second word.
async fn key(call: &Call<'_>, at: UserAddr, shared: bool) -> Result<messages::vm::FutexKey> {
    if !at.0.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    call.space().futex_key(at, shared).await
}

/// What a timeout counts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeout {
    Relative,
    Realtime,
    Monotonic,
}

/// The end of the wait on the machine's clock; none: never.
async fn deadline(call: &Call<'_>, at: UserAddr, timeout: Timeout) -> Result<u64> {
    if at.is_null() {
        return Ok(u64::MAX);
    }
    let time: Timespec = call.get(at).await?;
    let (ns, now) = (time.to_ns()?, call.system().now());
    Ok(match timeout {
        Timeout::Relative => now.saturating_add(ns),
        Timeout::Realtime => ns.saturating_sub(call.system().realtime_offset()),
        Timeout::Monotonic => ns,
    })
}

/// Comes when the thread is interrupted (with `error`), or at the deadline (ETIMEDOUT).
async fn interruption(call: &Call<'_>, deadline: u64, error: Errno) -> Errno {
    let mut sleep = pin!(call.system().scheduler.sleep_until(deadline));
    let _waits = call.thread.waits(RunState::Interruptible);
    poll_fn(|context| {
        if call.thread.is_interrupted() {
            return Poll::Ready(error);
        }
        match sleep.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Errno::ETIMEDOUT),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Takes a lock with an owner. Who gives up may have been handed it at the same moment: then the word says so.
async fn lock(
    call: &Call<'_>,
    at: UserAddr,
    shared: bool,
    only_try: bool,
    deadline: u64,
    interrupted: Errno,
) -> Result<u64> {
    let (space, me) = (call.space(), call.thread.tid);
    let key = key(call, at, shared).await?;
    if !only_try && deadline <= call.system().now() {
        // Late already: but whose the lock is, and whether there is anybody, is told all the same.
        let tried = call.system().futexes.lock(key, me, true, core::future::pending()).await;
        return tried.map(|()| 0).map_err(|error| if error == Errno::EAGAIN { Errno::ETIMEDOUT } else { error });
    }
    let result = call.system().futexes.lock(key, me, only_try, interruption(call, deadline, interrupted)).await;
    match result {
        Ok(()) => Ok(0),
        Err(error) if error == interrupted || error == Errno::ETIMEDOUT => {
            match space.load_u32(at).await? & TID_MASK == me.0 {
                true => Ok(0),
                false => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

async fn wait(
    call: &Call<'_>,
    at: UserAddr,
    shared: bool,
    value: u32,
    bitset: u32,
    deadline: u64,
    relative: bool,
) -> Result<u64> {
    // A restart after a signal must not wait longer than was asked at first.
    let deadline = match (relative && deadline != u64::MAX, call.thread.state.lock().sleep_end.take()) {
        (true, Some(first)) => first,
        _ => deadline,
    };
    let key = call.space().futex_key(at, shared).await?;
    let interrupt = interruption(call, deadline, Errno::RESTART);
    match call.system().futexes.wait(key, value, bitset, None, interrupt).await {
        Ok(()) => Ok(0),
        // man 7 signal: a wait with a relative timeout is never restarted after a handler.
        Err(Errno::RESTART) if relative && deadline != u64::MAX => {
            call.thread.state.lock().sleep_end = Some(deadline);
            Err(Errno::RESTART_NO_HANDLER)
        }
        Err(error) => Err(error),
    }
}

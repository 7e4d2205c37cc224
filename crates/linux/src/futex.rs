//! futex(2). The queues are crate `futex`'s; here are the operations and their timeouts.

use crate::{call::Call, table::unsupported, time::Timespec};
use core::{
    future::{poll_fn, Future},
    pin::pin,
    task::Poll,
};
use futex::ANY;
use machine::{errno::Result, Errno, UserAddr};
use messages::futex::WordOp;

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const PRIVATE: u32 = 128;
const CLOCK_REALTIME: u32 = 256;

pub(crate) async fn futex(call: &mut Call<'_>) -> Result<u64> {
    let [address, operation, value, timeout, second, third] = call.arguments;
    let (operation, value, third) = (operation as u32, value as u32, third as u32);
    let shared = operation & PRIVATE == 0;
    let at = UserAddr(address);
    let second = UserAddr(second);
    if address % 4 != 0 {
        return Err(Errno::EINVAL);
    }
    let space = call.space();
    let futexes = &call.system().futexes;
    match operation & !(PRIVATE | CLOCK_REALTIME) {
        WAIT => wait(call, at, shared, value, ANY, UserAddr(timeout), true, operation).await,
        WAIT_BITSET if third == 0 => Err(Errno::EINVAL),
        WAIT_BITSET => wait(call, at, shared, value, third, UserAddr(timeout), false, operation).await,
        WAKE => Ok(u64::from(futexes.wake(space.futex_key(at, shared).await?, value, ANY).await?)),
        WAKE_BITSET if third == 0 => Err(Errno::EINVAL),
        WAKE_BITSET => Ok(u64::from(futexes.wake(space.futex_key(at, shared).await?, value, third).await?)),
        kind @ (REQUEUE | CMP_REQUEUE) => {
            // Counts are ints; negative ones are refused.
            if (value as i32) < 0 || (timeout as i32) < 0 {
                return Err(Errno::EINVAL);
            }
            let from = space.futex_key(at, shared).await?;
            let to = space.futex_key(second, shared).await?;
            let expected = (kind == CMP_REQUEUE).then_some(third);
            let (woken, moved) = futexes.requeue(from, to, value, timeout as u32, expected).await?;
            Ok(u64::from(if kind == CMP_REQUEUE { woken + moved } else { woken }))
        }
        WAKE_OP => {
            let first = space.futex_key(at, shared).await?;
            let other = space.futex_key(second, shared).await?;
            let sign_extend = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
            let mut argument = sign_extend(third >> 12 & 0xfff);
            let operation = (third >> 28 & 0xf) as u8;
            if operation & 8 != 0 {
                // FUTEX_OP_ARG_SHIFT.
                argument = 1u32.checked_shl(argument).ok_or(Errno::EINVAL)?;
            }
            let op = WordOp {
                operation: operation & 7,
                argument,
                compare: (third >> 24 & 0xf) as u8,
                compared_with: sign_extend(third & 0xfff),
            };
            Ok(u64::from(futexes.wake_op(first, other, value, timeout as u32, op).await?))
        }
        // FUTEX_LOCK_PI and its kin, as a Linux without CONFIG_FUTEX_PI.
        _ => Err(unsupported(call, "a futex operation", Errno::ENOSYS)),
    }
}

#[allow(clippy::too_many_arguments)] // As many as the system call has.
async fn wait(
    call: &Call<'_>,
    at: UserAddr,
    shared: bool,
    value: u32,
    bitset: u32,
    timeout: UserAddr,
    relative: bool,
    operation: u32,
) -> Result<u64> {
    let system = call.system();
    let now = system.now();
    let deadline = match timeout.is_null() {
        true => u64::MAX,
        false => {
            let time: Timespec = call.get(timeout).await?;
            let ns = time.to_ns()?;
            if relative {
                now.saturating_add(ns)
            } else if operation & CLOCK_REALTIME != 0 {
                ns.saturating_sub(system.realtime() - now)
            } else {
                ns
            }
        }
    };
    // A restart after a signal must not wait longer than was asked at first.
    let deadline = match (relative && deadline != u64::MAX, call.thread.state.lock().sleep_end.take()) {
        (true, Some(first)) => first,
        _ => deadline,
    };
    let key = call.space().futex_key(at, shared).await?;
    let thread = call.thread;
    let mut sleep = pin!(system.scheduler.sleep_until(deadline));
    let interrupt = poll_fn(|context| {
        if thread.is_interrupted() {
            return Poll::Ready(Errno::RESTART);
        }
        match sleep.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Errno::ETIMEDOUT),
            Poll::Pending => Poll::Pending,
        }
    });
    match system.futexes.wait(key, value, bitset, interrupt).await {
        Ok(()) => Ok(0),
        // man 7 signal: a wait with a relative timeout is never restarted after a handler.
        Err(Errno::RESTART) if relative && deadline != u64::MAX => {
            thread.state.lock().sleep_end = Some(deadline);
            Err(Errno::RESTART_NO_HANDLER)
        }
        Err(error) => Err(error),
    }
}

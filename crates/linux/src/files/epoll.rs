//! epoll_create, epoll_ctl, epoll_wait and their kin (man 7 epoll).

use super::poll::{or_interrupted, with_mask, Deadline};
use crate::arch::EpollEvent as Event;
use crate::call::Call;
use alloc::vec::Vec;
use fs::{
    control::{Control, EpollControl, EpollInterest},
    epoll::{Epoll, EXCLUSIVE},
    OpenFlags,
};
use machine::{errno::Result, Errno};
use zerocopy::IntoBytes;

const ADD: i32 = 1;
const DELETE: i32 = 2;
const MODIFY: i32 = 3;
/// EP_MAX_EVENTS.
const MAX_EVENTS: u32 = i32::MAX as u32 / size_of::<Event>() as u32;
/// EPOLLERR | EPOLLHUP: told whether asked for or not.
const ALWAYS: u32 = 0x18;

pub(crate) async fn epoll_create(call: &mut Call<'_>) -> Result<u64> {
    // The size is only checked (since Linux 2.6.8).
    if call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    create(call, OpenFlags::empty()).await
}

pub(crate) async fn epoll_create1(call: &mut Call<'_>) -> Result<u64> {
    create(call, OpenFlags::from_bits_retain(call.arg(0) as u32)).await
}

async fn create(call: &Call<'_>, flags: OpenFlags) -> Result<u64> {
    call.install(Epoll::new(call.account(), flags)?, flags.contains(OpenFlags::CLOEXEC)).await
}

pub(crate) async fn epoll_ctl(call: &mut Call<'_>) -> Result<u64> {
    let (operation, fd) = (call.int(1), call.int(2));
    let event: Event = match operation {
        DELETE => Event::default(),
        _ => call.get(call.pointer(3)).await?,
    };
    let epoll = call.file(0).await?;
    let file = call.file_at(fd).await?;
    if file.changes().is_none() {
        // Whatever the epoll is: there is nothing to wait for.
        return Err(Errno::EPERM);
    }
    let interest = EpollInterest { events: event.events | ALWAYS, data: event.data };
    let control = match operation {
        ADD => EpollControl::Add { fd, file, interest },
        MODIFY if event.events & EXCLUSIVE != 0 => return Err(Errno::EINVAL),
        MODIFY => EpollControl::Modify { fd, file, interest },
        DELETE => EpollControl::Delete { fd, file },
        _ => return Err(Errno::EINVAL),
    };
    epoll.control(&call.caller(), Control::Epoll(control)).await?;
    Ok(0)
}

pub(crate) async fn epoll_wait(call: &mut Call<'_>) -> Result<u64> {
    let deadline = Deadline::after_ms(call, call.int(3));
    run(call, deadline).await
}

pub(crate) async fn epoll_pwait(call: &mut Call<'_>) -> Result<u64> {
    let deadline = Deadline::after_ms(call, call.int(3));
    with_mask(call, call.pointer(4), call.arg(5), run(call, deadline)).await
}

pub(crate) async fn epoll_pwait2(call: &mut Call<'_>) -> Result<u64> {
    let deadline = Deadline::from_timespec(call, call.pointer(3)).await?;
    with_mask(call, call.pointer(4), call.arg(5), run(call, deadline)).await
}

async fn run(call: &Call<'_>, deadline: Deadline) -> Result<u64> {
    let epoll = call.file(0).await?;
    let max = u32::try_from(call.int(2)).map_err(|_| Errno::EINVAL)?;
    if max == 0 || max > MAX_EVENTS {
        return Err(Errno::EINVAL);
    }
    // access_ok comes before it is known whether the descriptor is an epoll's.
    let size = u64::from(max) * size_of::<Event>() as u64;
    if call.arg(1).checked_add(size).is_none_or(|end| end > machine::USER_END) {
        return Err(Errno::EFAULT);
    }
    let caller = call.caller();
    let wait = fs::epoll::wait(&epoll, &caller, max, deadline.wait(call));
    // man 7 signal: a stop ends it, though no handler runs.
    let found = or_interrupted(call, wait, Errno::RESTART_UNTOUCHED).await?;
    let events: Vec<Event> = found.iter().map(|found| Event { events: found.events, data: found.data }).collect();
    call.space().write(call.pointer(1), events.as_slice().as_bytes()).await?;
    Ok(events.len() as u64)
}

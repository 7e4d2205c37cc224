//! select, pselect6 (man 2 select).

use super::poll::{until_ready, with_mask, Deadline, WAIT_BYTES};
use crate::{
    call::Call,
    time::{Timespec, Timeval},
};
use alloc::{sync::Arc, vec::Vec};
use fs::{Events, File};
use machine::{collections::try_filled, errno::Result, Errno, UserAddr};
use zerocopy::IntoBytes;

const IN_SET: Events = Events::RDNORM.union(Events::RDBAND).union(Events::IN).union(Events::HUP).union(Events::ERR);
const OUT_SET: Events = Events::WRBAND.union(Events::WRNORM).union(Events::OUT).union(Events::ERR);
const EXCEPT_SET: Events = Events::PRI;
/// Numbers past the process's table are not looked at. It has room for as many as this at least.
const LEAST_TABLE: usize = 256;

pub(crate) async fn select(call: &mut Call<'_>) -> Result<u64> {
    let at = call.pointer(4);
    let deadline = match at.is_null() {
        true => Deadline::NEVER,
        false => {
            let time: Timeval = call.get(at).await?;
            // Unlike elsewhere a second's worth of microseconds is carried over.
            let carried = Timeval {
                seconds: time.seconds.saturating_add(time.microseconds / 1_000_000),
                microseconds: time.microseconds % 1_000_000,
            };
            Deadline::after(call, carried.to_ns()?)
        }
    };
    let result = run(call, deadline).await;
    if let Some(left) = deadline.left(call) {
        let _ = call.put(at, &Timeval::from_ns(left)).await;
    }
    result
}

pub(crate) async fn pselect6(call: &mut Call<'_>) -> Result<u64> {
    let at = call.pointer(4);
    let deadline = Deadline::from_timespec(call, at).await?;
    let [mask, size]: [u64; 2] = match call.pointer(5) {
        pair if pair.is_null() => [0, 0],
        pair => call.get(pair).await?,
    };
    let result = with_mask(call, UserAddr(mask), size, run(call, deadline)).await;
    if let Some(left) = deadline.left(call) {
        let _ = call.put(at, &Timespec::from_ns(left)).await;
    }
    result
}

/// One `fd_set`, as words; empty if the pointer is NULL.
async fn get_set(call: &Call<'_>, at: UserAddr, words: usize) -> Result<Vec<u64>> {
    if at.is_null() {
        return Ok(Vec::new());
    }
    let mut set = try_filled(words, 0u64)?;
    call.space().read(at, set.as_mut_slice().as_mut_bytes()).await?;
    Ok(set)
}

fn has(set: &[u64], fd: usize) -> bool {
    set.get(fd / 64).is_some_and(|word| word >> (fd % 64) & 1 == 1)
}

async fn run(call: &Call<'_>, deadline: Deadline) -> Result<u64> {
    let mut count = usize::try_from(call.int(0)).map_err(|_| Errno::EINVAL)?;
    if count > LEAST_TABLE {
        let last = call.process().files().list().await?.into_iter().map(|(fd, _)| fd as usize + 1).max();
        count = count.min(last.unwrap_or(0).next_power_of_two().max(LEAST_TABLE));
    }
    let words = count.div_ceil(64);
    let kinds = [IN_SET, OUT_SET, EXCEPT_SET];
    let mut sets = [Vec::new(), Vec::new(), Vec::new()];
    for (index, set) in sets.iter_mut().enumerate() {
        *set = get_set(call, call.pointer(index + 1), words).await?;
    }
    let watched = (0..count).filter(|&fd| sets.iter().any(|set| has(set, fd))).count();
    let _room = call.room_for(watched * WAIT_BYTES)?;
    let mut files: Vec<(Arc<dyn File>, Events)> = Vec::new();
    let mut numbers = Vec::new();
    for fd in 0..count {
        let wanted = kinds.iter().zip(&sets).filter(|(_, set)| has(set, fd));
        let wanted = wanted.fold(Events::empty(), |all, (kind, _)| all | *kind);
        if !wanted.is_empty() {
            files.push((call.file_at(fd as i32).await?, wanted));
            numbers.push(fd);
        }
    }
    let found = until_ready(call, wait(&files, deadline, call)).await?;
    let mut ready = 0;
    for (index, (set, kind)) in sets.iter().zip(kinds).enumerate() {
        if set.is_empty() {
            continue;
        }
        let mut answer = try_filled(words, 0u64)?;
        for (&fd, events) in numbers.iter().zip(&found) {
            if has(set, fd) && events.intersects(kind) {
                answer[fd / 64] |= 1 << (fd % 64);
                ready += 1;
            }
        }
        call.space().write(call.pointer(index + 1), answer.as_slice().as_bytes()).await?;
    }
    Ok(ready)
}

/// poll reports hang-ups and errors even to those who asked for neither, and would not sleep; select does not.
async fn wait(files: &[(Arc<dyn File>, Events)], deadline: Deadline, call: &Call<'_>) -> Result<Vec<Events>> {
    let caller = call.caller();
    let mut watched: Vec<usize> = (0..files.len()).collect();
    let mut answer = try_filled(files.len(), Events::empty())?;
    loop {
        let list: Vec<_> = watched.iter().map(|&index| files[index].clone()).collect();
        let found = fs::poll::wait(&caller, &list, deadline.future(call)).await?;
        for (&index, &events) in watched.iter().zip(&found) {
            answer[index] = events;
        }
        let told = files.iter().zip(&answer).any(|((_, wanted), found)| found.intersects(*wanted));
        if told || found.iter().all(|found| found.is_empty()) {
            return Ok(answer);
        }
        // Only what nobody asked for has happened: watch the others.
        watched.retain(|&index| answer[index].is_empty());
    }
}

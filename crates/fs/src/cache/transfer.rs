//! Reads and writes: between the pages and wherever the bytes come from or go to.
//!
//! What is in memory is moved at once, under the lock of the pages. What is not, or must be asked back from other kernels first, is waited
//! for; then the transfer goes on behind what has been moved already.

use super::{group::for_caller, PageCache, Slot, State, MAX_SIZE, PAGE, RESERVED, ZEROS};
use crate::{
    file::{Destination, Source, Transfer},
    ReadAhead,
};
use machine::{errno::Result, CountedFrame, Errno, PAGE_SIZE};

/// Pages read under one lock.
const LOCKED_PAGES: usize = 16;

/// A part of one page.
#[derive(Clone, Copy)]
struct Part {
    index: u64,
    within: usize,
    bytes: usize,
}

impl Part {
    /// Of at most `most` bytes from `at` on.
    fn of(at: u64, most: u64) -> Self {
        let within = (at % PAGE) as usize;
        Part { index: at / PAGE, within, bytes: most.min((PAGE_SIZE - within) as u64) as usize }
    }

    /// Where in the file it ends.
    fn end(&self) -> u64 {
        self.index * PAGE + (self.within + self.bytes) as u64
    }
}

/// What became of the writing of a part.
enum Wrote {
    All,
    /// There are copies of the page, or it has just changed: once more, when they are back.
    Again,
    /// The rest of the page must be read first.
    NeedsPage,
    /// A frame is needed.
    NeedsFrame,
    /// The page is lost, and this would not fill it.
    Lost,
}

impl PageCache {
    /// Reads as many bytes as `to` wants from `offset` on; 0 at the end.
    pub fn read<'a>(&'a self, mut to: Destination<'a>, offset: u64, read_ahead: ReadAhead) -> Transfer<'a> {
        let mut done = 0;
        match self.read_resident(&mut to, offset, &mut done) {
            Ok(Some(missing)) => Transfer::later(self.read_loading(to, offset, done, missing, read_ahead)),
            Ok(None) => Transfer::Done(Ok(done)),
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    /// Reads what is in memory. Some: up to a part that is not. None: all that there is.
    fn read_resident(&self, to: &mut Destination<'_>, offset: u64, done: &mut usize) -> Result<Option<Part>> {
        while !to.is_empty() {
            // Released now and then: others want pages too.
            let state = self.state.lock();
            for _ in 0..LOCKED_PAGES {
                let at = offset + *done as u64;
                if to.is_empty() || at >= state.size {
                    return Ok(None);
                }
                let part = Part::of(at, (to.len() as u64).min(state.size - at));
                match state.pages.get(&part.index) {
                    Some(Slot::Ready { frame, .. }) => {
                        to.put_frame(&*self.services.memory, *frame, part.within, part.bytes)?
                    }
                    None if self.store.is_none() => to.put_zeros(part.bytes)?,
                    _ => return Ok(Some(part)),
                }
                *done += part.bytes;
            }
        }
        Ok(None)
    }

    async fn read_loading(
        &self,
        mut to: Destination<'_>,
        offset: u64,
        mut done: usize,
        mut missing: Part,
        read_ahead: ReadAhead,
    ) -> Result<usize> {
        loop {
            let wanted = (missing.within + to.len()).div_ceil(PAGE_SIZE) as u64;
            match self.load(missing.index, wanted, read_ahead).await {
                Ok(held) => to.put_frame(&*self.services.memory, held.frame(), missing.within, missing.bytes)?,
                // Truncated meanwhile.
                Err(Errno::EFAULT) => return Ok(done),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(for_caller(error)),
            }
            done += missing.bytes;
            match self.read_resident(&mut to, offset, &mut done)? {
                Some(next) => missing = next,
                None => return Ok(done),
            }
        }
    }

    /// Writes at `offset`, None: at the end. Says where, and how much. `permit` is asked under the writer's lock for the right to write that
    /// range (seals).
    pub fn write<'a>(
        &'a self,
        from: Source<'a>,
        offset: Option<u64>,
        permit: impl Fn(u64, u64) -> Result<()> + Send + 'a,
    ) -> Transfer<'a, (u64, usize)> {
        match self.writer.try_lock() {
            Some(writer) => self.write_locked(writer, from, offset, permit),
            None => Transfer::later(async move {
                let writer = self.writer.lock().await;
                self.write_locked(writer, from, offset, permit).await
            }),
        }
    }

    pub(super) fn write_locked<'a>(
        &'a self,
        writer: machine::sync::AsyncGuard<'a, ()>,
        mut from: Source<'a>,
        offset: Option<u64>,
        permit: impl Fn(u64, u64) -> Result<()>,
    ) -> Transfer<'a, (u64, usize)> {
        let start = offset.unwrap_or_else(|| self.len());
        if from.is_empty() {
            return Transfer::Done(Ok((start, 0)));
        }
        if start >= MAX_SIZE {
            return Transfer::Done(Err(Errno::EFBIG));
        }
        from.limit(usize::try_from(MAX_SIZE - start).unwrap_or(usize::MAX));
        let end = start + from.len() as u64;
        if let Err(error) = permit(start, end) {
            return Transfer::Done(Err(error));
        }
        let resident = match self.reserve_below(start / PAGE..end.div_ceil(PAGE)) {
            None if self.store.is_none() || !self.services.must_throttle() => self.write_resident(&mut from, start),
            _ => Ok(start),
        };
        match resident {
            Ok(at) if at == end => Transfer::Done(Ok((start, from_to(start, end)))),
            Ok(at) => Transfer::later(async move {
                let _writer = writer;
                let at = self.write_waiting(from, start, at, end).await?;
                Ok((start, from_to(start, at)))
            }),
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    /// Writes as far as nothing has to be waited for, and says how far that was.
    #[inline(always)]
    fn write_resident(&self, from: &mut Source<'_>, mut at: u64) -> Result<u64> {
        while !from.is_empty() {
            let part = Part::of(at, from.len() as u64);
            let wrote = match self.write_part(part, from, None)? {
                Wrote::NeedsFrame => match self.frame_now() {
                    Some(frame) => self.write_part(part, from, Some(frame))?,
                    None => break,
                },
                wrote => wrote,
            };
            let Wrote::All = wrote else { break };
            at = part.end();
        }
        Ok(at)
    }

    /// Writes the rest, from `at` to `end`, of a write that began at `start`; says how far it came.
    async fn write_waiting(&self, mut from: Source<'_>, start: u64, mut at: u64, end: u64) -> Result<u64> {
        if self.store.is_some() && self.services.must_throttle() {
            // Memory is full of what has not been written: this file's pages go first.
            self.services.throttle(self, || !self.services.must_throttle()).await?;
        }
        // All at once; a page of which there are copies again is asked for by itself.
        self.take_copies_back(at / PAGE..end.div_ceil(PAGE)).await;
        let mut reserved = at;
        while at < end {
            if at >= reserved {
                reserved = end.min((at / PAGE + RESERVED) * PAGE);
                if let Some(waiting) = self.reserve_below(at / PAGE..reserved.div_ceil(PAGE))
                    && let Err(error) = waiting.await
                {
                    return if at > start { Ok(at) } else { Err(error) };
                }
            }
            let part = Part::of(at, end - at);
            match self.write_part_waiting(part, &mut from).await {
                Ok(()) => at = part.end(),
                Err(crate::file::NEEDS_BUFFER) => return Err(crate::file::NEEDS_BUFFER),
                Err(_) if at > start => break,
                Err(Errno::ENOMEM) => return Err(Errno::ENOSPC),
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    }

    async fn write_part_waiting(&self, part: Part, from: &mut Source<'_>) -> Result<()> {
        let mut frame = None;
        loop {
            self.take_copies_back(part.index..part.index + 1).await;
            match self.write_part(part, from, frame.take())? {
                Wrote::All => return Ok(()),
                Wrote::Again => {}
                Wrote::NeedsPage => drop(self.load(part.index, 1, ReadAhead::Normal).await.map_err(for_caller)?),
                Wrote::Lost => return Err(Errno::EIO),
                Wrote::NeedsFrame => {
                    let made = match self.frame().await.map_err(for_caller) {
                        // Memory is full of what was written: it goes to the store, then it can be dropped.
                        Err(Errno::ENOMEM) if self.services.flusher.dirty() > 0 => {
                            self.services.throttle(self, || self.services.frame().is_ok()).await?;
                            self.frame().await.map_err(for_caller)?
                        }
                        made => made?,
                    };
                    frame = Some(made);
                }
            }
        }
    }

    /// Writes a part of one page; `spare` is for a page that is not there yet.
    fn write_part(&self, part: Part, from: &mut Source<'_>, spare: Option<CountedFrame<'_>>) -> Result<Wrote> {
        let Part { index, within, bytes } = part;
        let memory = &*self.services.memory;
        let mut state = self.state.lock();
        if state.is_copied(index) {
            return Ok(Wrote::Again);
        }
        let frame = match state.pages.get(&index) {
            Some(Slot::Ready { frame, .. }) => {
                let frame = *frame;
                let taken = from.take_frame(memory, frame, within, bytes);
                match taken {
                    Ok(()) => state.size = state.size.max(part.end()),
                    // What lies past the end stays zero.
                    Err(_) => {
                        let past = (state.size.saturating_sub(index * PAGE) as usize).clamp(within, within + bytes);
                        memory.write(frame, past, &ZEROS[..within + bytes - past]);
                    }
                }
                self.dirty(state, index);
                return taken.map(|()| Wrote::All);
            }
            Some(Slot::Lost) if bytes < PAGE_SIZE => return Ok(Wrote::Lost),
            _ if self.is_needed(&state, part) => return Ok(Wrote::NeedsPage),
            // A slot on its way loses its ticket: these bytes are newer.
            _ => match spare {
                None => return Ok(Wrote::NeedsFrame),
                Some(spare) if memory.is_lost(spare.frame()) => {
                    drop(state);
                    return Ok(Wrote::Again);
                }
                Some(spare) => spare,
            },
        };
        if let Err(error) = from.take_frame(memory, frame.frame(), within, bytes) {
            drop(state);
            return Err(error);
        }
        state.pages.insert(index, frame);
        state.size = state.size.max(part.end());
        self.dirty(state, index);
        self.loaded.wake_all();
        Ok(Wrote::All)
    }

    /// Will something be left of the page, which is not here, when the part is written? Then it must be read first.
    fn is_needed(&self, state: &State, part: Part) -> bool {
        let page = part.index * PAGE;
        let whole = page >= state.size || (part.within == 0 && part.end() >= state.size.min(page + PAGE));
        self.store.is_some() && !whole
    }

    /// A frame for a page more, if there is one to be had at once.
    fn frame_now(&self) -> Option<CountedFrame<'_>> {
        if !self.has_room() {
            return None;
        }
        let page = self.services.charge_now(self.page_kind())?;
        let frame = match self.store {
            Some(_) => self.services.frame().ok()?,
            None => self.services.frame_anywhere()?,
        };
        page.put_on(frame.frame());
        Some(frame)
    }
}

/// Bytes between two places of one write.
fn from_to(start: u64, end: u64) -> usize {
    (end - start) as usize
}

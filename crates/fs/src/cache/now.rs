//! Transfers between pages that are in memory and a program, which wait for nothing.

use super::{PageCache, Slot, MAX_SIZE, PAGE, ZEROS};
use crate::file::UserBuffer;
use machine::PAGE_SIZE;

/// Pages read under one lock.
const LOCKED_PAGES: usize = 16;

impl PageCache {
    /// See [`crate::File::read_now`].
    pub fn read_now(&self, offset: u64, bytes: usize, to: &mut dyn UserBuffer) -> Option<usize> {
        let mut done = 0;
        while done < bytes {
            // Released now and then: others want pages too.
            let state = self.state.lock();
            for _ in 0..LOCKED_PAGES {
                let at = offset + done as u64;
                if done == bytes || at >= state.size {
                    return Some(done);
                }
                let (index, within) = (at / PAGE, (at % PAGE) as usize);
                let part = (bytes - done).min(PAGE_SIZE - within).min((state.size - at) as usize);
                let Some(Slot::Ready { frame, .. }) = state.pages.get(&index) else { return None };
                if to.put_frame(*frame, within, part) < part {
                    return None;
                }
                done += part;
            }
        }
        Some(done)
    }

    /// See [`crate::File::write_now`]. Seals have been asked.
    pub fn write_now(&self, offset: u64, bytes: usize, from: &mut dyn UserBuffer) -> Option<()> {
        let _writer = self.writer.try_lock()?;
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= MAX_SIZE)?;
        let mut at = offset;
        while at < end {
            let within = (at % PAGE) as usize;
            let part = ((end - at) as usize).min(PAGE_SIZE - within);
            self.write_page_now(at / PAGE, within, part, from)?;
            at += part as u64;
        }
        Some(())
    }

    /// The same for a part of one page.
    fn write_page_now(&self, index: u64, within: usize, bytes: usize, from: &mut dyn UserBuffer) -> Option<()> {
        let (memory, end) = (&self.services.memory, index * PAGE + (within + bytes) as u64);
        let mut state = self.state.lock();
        if state.is_copied(index) {
            return None;
        }
        match state.pages.get(&index) {
            Some(Slot::Ready { frame, .. }) => {
                let taken = from.take_frame(*frame, within, bytes);
                if taken < bytes {
                    // What lies past the end stays zero.
                    let past = (state.size.saturating_sub(index * PAGE) as usize).clamp(within, within + bytes);
                    memory.write(*frame, past, &ZEROS[..within + bytes - past]);
                } else {
                    state.size = state.size.max(end);
                }
                self.dirty(state, index);
                return (taken == bytes).then_some(());
            }
            Some(Slot::Loading(_) | Slot::Lost) => return None,
            None if self.is_needed(&state, index, within, end) => return None,
            None if !self.has_room() => return None,
            None => drop(state),
        }
        let frame = match self.store {
            Some(_) => self.services.frame().ok()?,
            None => memory.alloc_anywhere()?,
        };
        let taken = from.take_frame(frame, within, bytes);
        let mut state = self.state.lock();
        if taken < bytes || state.is_copied(index) || state.pages.contains_key(&index) || memory.is_lost(frame) {
            drop(state);
            memory.release(frame);
            return None;
        }
        state.pages.insert(index, Slot::fresh(frame));
        state.size = state.size.max(end);
        self.dirty(state, index);
        Some(())
    }
}

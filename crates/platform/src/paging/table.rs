//! The page table of one replica, and user memory seen through it.

use super::{
    hardware::{Hardware, Window},
    memory::Shared,
    shootdown::{Space, Stay},
};
use alloc::sync::Arc;
use machine::{
    Access, Frame, Mapping, NoMemory, Page, PageRange, PageTable, Step, UserAddr, UserFault, PAGE_SIZE, USER_END,
};

/// Bytes moved in one stay: a flush by another CPU may have to wait as long as this takes.
const CHUNK: usize = 16 * PAGE_SIZE;

pub struct Table<H: Hardware> {
    pub(super) shared: &'static Shared<H>,
    pub(super) space: Arc<Space>,
}

impl<H: Hardware> Drop for Table<H> {
    fn drop(&mut self) {
        self.shared.cpus.abandon(&self.space);
    }
}

impl<H: Hardware> Table<H> {
    /// `access` with this table loaded.
    fn stay<T>(&self, access: impl FnOnce(&H) -> T) -> T {
        let cpus = &self.shared.cpus;
        cpus.enter(&self.space, Stay::Copy);
        let result = access(&cpus.hardware);
        cpus.leave();
        result
    }

    /// Goes through `bytes` bytes at `start` in chunks: `step(address, bytes before it, its bytes)`
    /// until it says that it's done (true). Addresses past user space fault.
    fn chunks(
        &self,
        start: UserAddr,
        bytes: usize,
        access: Access,
        mut step: impl FnMut(&H, UserAddr, usize, usize) -> Result<bool, UserFault>,
    ) -> Result<(), UserFault> {
        let usable = bytes.min(USER_END.saturating_sub(start.0) as usize);
        let mut done = 0;
        while done < usable {
            let len = CHUNK.min(usable - done);
            if self.stay(|hardware| step(hardware, start.add(done), done, len))? {
                return Ok(());
            }
            done += len;
        }
        match usable == bytes {
            true => Ok(()),
            false => Err(UserFault { at: start.add(usable), access }),
        }
    }

    /// A word that lies in user space.
    fn word<T>(
        &self,
        at: UserAddr,
        access: Access,
        step: impl FnOnce(&H) -> Result<T, UserFault>,
    ) -> Result<T, UserFault> {
        debug_assert!(at.0.is_multiple_of(4), "{at:?} is no word");
        match at.0 < USER_END {
            true => self.stay(step),
            false => Err(UserFault { at, access }),
        }
    }
}

impl<H: Hardware> PageTable for Table<H> {
    fn root(&self) -> u64 {
        self.space.tree.root().address()
    }

    fn get(&self, page: Page) -> Option<Mapping> {
        self.space.tree.get(page)
    }

    fn set(&self, page: Page, mapping: Mapping) -> Result<Option<Mapping>, NoMemory> {
        self.space.tree.set(page, mapping)
    }

    fn clear(&self, page: Page) -> Option<Mapping> {
        self.space.tree.clear(page)
    }

    fn fill(
        &self,
        range: PageRange,
        first: Mapping,
        keeps: &mut dyn FnMut(Page, Mapping) -> bool,
    ) -> Result<(), NoMemory> {
        self.space.tree.fill(range, first, keeps)
    }

    fn walk_runs(&self, range: PageRange, longest: u64, visit: &mut dyn FnMut(PageRange, Mapping) -> Step) {
        self.space.tree.walk_runs(range, longest, visit);
    }

    fn owned_entries(&self) -> (u64, u64) {
        self.space.tree.owned_entries()
    }

    fn forget_most_owned(&self) {
        self.space.tree.forget_most_owned();
    }

    fn flush(&self, range: PageRange) {
        self.shared.cpus.flush(&self.space, range);
    }

    fn read(&self, from: UserAddr, to: &mut [u8]) -> Result<(), UserFault> {
        self.chunks(from, to.len(), Access::READ, |hardware, at, done, len| {
            hardware.read_user(at, &mut to[done..done + len]).map(|()| false)
        })
    }

    fn write(&self, to: UserAddr, from: &[u8]) -> Result<(), UserFault> {
        self.chunks(to, from.len(), Access::WRITE, |hardware, at, done, len| {
            hardware.write_user(at, &from[done..done + len]).map(|()| false)
        })
    }

    fn write_frame(&self, to: UserAddr, frame: Frame, offset: usize, bytes: usize) -> Result<(), UserFault> {
        assert!(offset + bytes <= PAGE_SIZE, "{bytes} bytes at {offset} leave the frame");
        self.shared.with(frame, Window::Source, |page| {
            self.chunks(to, bytes, Access::WRITE, |hardware, at, done, len| {
                // SAFETY: the frame is mapped while `with` lasts, and the bytes lie in it.
                unsafe { hardware.write_user_from(at, page.add(offset + done), len) }.map(|()| false)
            })
        })
    }

    fn read_frame(&self, from: UserAddr, frame: Frame, offset: usize, bytes: usize) -> Result<(), UserFault> {
        assert!(offset + bytes <= PAGE_SIZE, "{bytes} bytes at {offset} leave the frame");
        self.shared.with(frame, Window::Target, |page| {
            self.chunks(from, bytes, Access::READ, |hardware, at, done, len| {
                // SAFETY: as above; a frame's bytes are reached by pointers only.
                unsafe { hardware.read_user_to(at, page.add(offset + done), len) }.map(|()| false)
            })
        })
    }

    fn fill_zero(&self, to: UserAddr, bytes: usize) -> Result<(), UserFault> {
        self.chunks(to, bytes, Access::WRITE, |hardware, at, _, len| hardware.zero_user(at, len).map(|()| false))
    }

    fn string_length(&self, from: UserAddr, limit: usize) -> Result<Option<usize>, UserFault> {
        let mut found = None;
        self.chunks(from, limit, Access::READ, |hardware, at, done, len| {
            let length = hardware.user_string_length(at, len)?;
            found = (length < len).then_some(done + length);
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    fn load_u32(&self, at: UserAddr) -> Result<u32, UserFault> {
        self.word(at, Access::READ, |hardware| hardware.load_user_u32(at))
    }

    fn compare_exchange_u32(&self, at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault> {
        self.word(at, Access::WRITE, |hardware| hardware.compare_exchange_user_u32(at, old, new))
    }
}

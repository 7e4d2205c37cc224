//! The kernel's own access to user memory: what the table allows at once, faults resolved in between.

use crate::space::Space;
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::mem::size_of;
use machine::{errno::Result, Access, BoxFuture, Errno, Frame, Page, UserAddr, UserFault, PAGE_SIZE, USER_END};
use messages::vm::Fault;
use zerocopy::{FromBytes, Immutable, IntoBytes};

impl Space {
    /// Boxed, because it is rare and large, and every call that touches user memory copies the value that contains it.
    fn resolve_access(self: &Arc<Self>, fault: UserFault) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.fault(fault.at, fault.access).await.map_err(|fault| match fault {
                Fault::NoMemory => Errno::ENOMEM,
                _ => Errno::EFAULT,
            })
        })
    }

    /// Whether the page table of this kernel allows that access now.
    pub fn allows(&self, page: Page, access: Access) -> bool {
        page.address().0 < USER_END && self.table.get(page).is_some_and(|mapping| mapping.access.contains(access))
    }

    /// Copies user memory from `from` on into `to`. EFAULT; then `to` is partly overwritten.
    pub async fn read(self: &Arc<Self>, from: UserAddr, to: &mut [u8]) -> Result<()> {
        let len = to.len();
        match self.read_some(from, to).await {
            (done, _) if done == len => Ok(()),
            (_, error) => Err(error),
        }
    }

    /// Copies user memory into `to` until a page can't be read. Answers the bytes copied and, if they are fewer than asked for,
    /// the errno of that page.
    pub async fn read_some(self: &Arc<Self>, from: UserAddr, to: &mut [u8]) -> (usize, Errno) {
        let mut done = 0;
        loop {
            let Err(fault) = self.table.read(from.add(done), &mut to[done..]) else {
                return (to.len(), Errno::EFAULT);
            };
            done = fault.at.0.saturating_sub(from.0).clamp(done as u64, to.len() as u64) as usize;
            if let Err(error) = self.resolve_access(fault).await {
                return (done, error);
            }
        }
    }

    /// Copies `from` to user memory. EFAULT; then it is partly written.
    pub async fn write(self: &Arc<Self>, to: UserAddr, from: &[u8]) -> Result<()> {
        match self.write_some(to, from).await {
            (done, _) if done == from.len() => Ok(()),
            (_, error) => Err(error),
        }
    }

    /// Copies `from` to user memory until a page can't be written. Answers the bytes copied and, if they are fewer than asked
    /// for, the errno of that page.
    pub async fn write_some(self: &Arc<Self>, to: UserAddr, from: &[u8]) -> (usize, Errno) {
        let mut done = 0;
        loop {
            let Err(fault) = self.table.write(to.add(done), &from[done..]) else {
                return (from.len(), Errno::EFAULT);
            };
            done = fault.at.0.saturating_sub(to.0).clamp(done as u64, from.len() as u64) as usize;
            if let Err(error) = self.resolve_access(fault).await {
                return (done, error);
            }
        }
    }

    /// Copies `from` to user memory without resolving faults; answers how many bytes the table allowed. It never waits, nor do
    /// the four below.
    pub fn put_bytes(&self, to: UserAddr, from: &[u8]) -> usize {
        until(to, from.len(), self.table.write(to, from))
    }

    /// Copies `bytes` bytes at `offset` of `frame` (within the frame) to user memory; answers how many could be copied.
    pub fn put_frame(&self, to: UserAddr, frame: Frame, offset: usize, bytes: usize) -> usize {
        until(to, bytes, self.table.write_frame(to, frame, offset, bytes))
    }

    /// Zeroes user memory; answers how many bytes could be zeroed.
    pub fn put_zeros(&self, to: UserAddr, bytes: usize) -> usize {
        until(to, bytes, self.table.fill_zero(to, bytes))
    }

    /// Copies user memory into `to`; answers how many bytes could be copied.
    pub fn take_bytes(&self, from: UserAddr, to: &mut [u8]) -> usize {
        until(from, to.len(), self.table.read(from, to))
    }

    /// Copies user memory to `offset` of `frame` (within the frame); answers how many bytes could be copied.
    pub fn take_frame(&self, from: UserAddr, frame: Frame, offset: usize, bytes: usize) -> usize {
        until(from, bytes, self.table.read_frame(from, frame, offset, bytes))
    }

    /// Zeroes user memory.
    pub async fn fill_zero(self: &Arc<Self>, to: UserAddr, bytes: usize) -> Result<()> {
        let mut done = 0;
        while let Err(fault) = self.table.fill_zero(to.add(done), bytes - done) {
            done = fault.at.0.saturating_sub(to.0).clamp(done as u64, bytes as u64) as usize;
            self.resolve_access(fault).await?;
        }
        Ok(())
    }

    /// The string at `from`, without its NUL. ENAMETOOLONG when there is none within `max` bytes.
    pub async fn read_c_string(self: &Arc<Self>, from: UserAddr, max: usize) -> Result<Vec<u8>> {
        let length = loop {
            match self.table.string_length(from, max) {
                Ok(length) => break length.ok_or(Errno::ENAMETOOLONG)?,
                Err(fault) => self.resolve_access(fault).await?,
            }
        };
        let mut string = vec![0; length];
        self.read(from, &mut string).await?;
        // Another thread may have written meanwhile.
        if let Some(end) = string.iter().position(|byte| *byte == 0) {
            string.truncate(end);
        }
        Ok(string)
    }

    /// Reads a plain structure, with faults resolved. EFAULT if not all of it can be read.
    pub async fn read_value<T: FromBytes + IntoBytes>(self: &Arc<Self>, from: UserAddr) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read(from, value.as_mut_bytes()).await?;
        Ok(value)
    }

    /// Writes a plain structure, with faults resolved. EFAULT if not all of it can be written.
    pub async fn write_value<T: IntoBytes + Immutable + Sync + ?Sized>(
        self: &Arc<Self>,
        to: UserAddr,
        value: &T,
    ) -> Result<()> {
        self.write(to, value.as_bytes()).await
    }

    /// Reads `count` consecutive values. EFAULT also if no memory could hold so many.
    pub async fn read_values<T: FromBytes + IntoBytes + Clone>(
        self: &Arc<Self>,
        from: UserAddr,
        count: usize,
    ) -> Result<Vec<T>> {
        // In bounded steps, so that a wild count faults before it eats the kernel's memory.
        let step = (16 * PAGE_SIZE / size_of::<T>().max(1)).max(1);
        let mut values: Vec<T> = Vec::new();
        while values.len() < count {
            let at = from.add(values.len() * size_of::<T>());
            let mut part = vec![T::new_zeroed(); step.min(count - values.len())];
            for (index, value) in part.iter_mut().enumerate() {
                self.read(at.add(index * size_of::<T>()), value.as_mut_bytes()).await?;
            }
            values.append(&mut part);
        }
        Ok(values)
    }

    /// Reads the word at `at`. EINVAL if it is not aligned.
    pub async fn load_u32(self: &Arc<Self>, at: UserAddr) -> Result<u32> {
        check_aligned(at)?;
        loop {
            match self.table.load_u32(at) {
                Ok(value) => return Ok(value),
                Err(fault) => self.resolve_access(fault).await?,
            }
        }
    }

    /// Atomic compare-exchange; `Err` holds what was found instead of `old`.
    pub async fn compare_exchange_u32(
        self: &Arc<Self>,
        at: UserAddr,
        old: u32,
        new: u32,
    ) -> Result<core::result::Result<u32, u32>> {
        check_aligned(at)?;
        loop {
            match self.table.compare_exchange_u32(at, old, new) {
                Ok(result) => return Ok(result),
                Err(fault) => self.resolve_access(fault).await?,
            }
        }
    }
}

/// How many of `bytes` bytes at `start` came before the fault.
fn until(start: UserAddr, bytes: usize, moved: core::result::Result<(), UserFault>) -> usize {
    match moved {
        Ok(()) => bytes,
        Err(fault) => fault.at.0.saturating_sub(start.0).min(bytes as u64) as usize,
    }
}

fn check_aligned(at: UserAddr) -> Result<()> {
    match at.0 % 4 {
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

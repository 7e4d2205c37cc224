//! A file system: all of it together.

use crate::{
    core::Core,
    handle::Handle,
    inode::FileType,
    log::Journal,
    superblock::{self, OnError},
    Device, Error, Failure, Inode, Result, Superblock,
};
use ::core::ops::Range;
use alloc::vec::Vec;
use machine::sync::{AsyncLock, Lock, WaitQueue};

/// The number of the topmost directory.
pub(crate) const ROOT: u32 = 2;
/// An operation that needs more blocks than this one after the other will not come to an end.
const TRIES: usize = 1 << 16;

/// A file system on a device.
pub struct Volume<D> {
    device: D,
    superblock: Superblock,
    pub(crate) core: Lock<Core>,
    /// Blocks that operations waited for have come.
    loaded: WaitQueue,
    /// Held by who writes to the journal, and by who writes home what is in the journal. None: the file system is not written.
    pub(crate) journal: AsyncLock<Option<Journal>>,
}

/// Blocks on their way; what has not arrived is given up.
struct Loading<'a, D> {
    volume: &'a Volume<D>,
    blocks: Range<u64>,
    number: u64,
}

impl<D> Drop for Loading<'_, D> {
    fn drop(&mut self) {
        let mut core = self.volume.core.lock();
        self.blocks.clone().for_each(|block| core.end_load(block, self.number));
        drop(core);
        self.volume.loaded.wake_all();
    }
}

impl<D: Device> Volume<D> {
    /// To be read, as its blocks are, whatever the journal has ([`Volume::mount`] looks there). `superblock`: bytes 1024 to 2047 of the device, which reads blocks of the size that they say.
    pub fn new(device: D, superblock: Superblock) -> Volume<D> {
        let core = Lock::new(Core::new(superblock.clone(), device.memory()));
        Volume { device, superblock, core, loaded: WaitQueue::new(), journal: AsyncLock::new(None) }
    }

    /// Sizes and features. The numbers of free blocks and inodes are those of the mount.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where it is read.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device; nothing of what is in memory remains.
    pub(crate) fn into_device(self) -> D {
        self.device
    }

    /// Does an operation: all of it, or nothing. It waits for blocks to be read, and for room in the journal.
    pub(crate) async fn run<T>(&self, mut operation: impl FnMut(&mut Handle<'_>) -> Result<T>) -> Result<T> {
        self.retry(|volume| volume.try_run(&mut operation)).await
    }

    /// Does `step` until it needs no block that is not in memory, and no commit.
    pub(crate) async fn retry<T>(&self, step: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        self.noted(self.try_often(step).await)
    }

    /// [`Volume::run`] to look for something while others may change what is looked at: that may be all that [`Error::Corrupt`] says. Damage is noted by the caller, once he knows that nothing
    /// has changed meanwhile ([`Volume::noted`]).
    pub(crate) async fn look<T>(&self, mut operation: impl FnMut(&mut Handle<'_>) -> Result<T>) -> Result<T> {
        self.try_often(|volume| volume.try_run(&mut operation)).await
    }

    /// Notes the damage that an answer tells of.
    pub(crate) fn noted<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(Error::Corrupt(what)) = answer {
            self.note_damage(what);
        }
        answer
    }

    /// Damage was found: what becomes of the file system is what [`Volume::on_error`] or the superblock says.
    pub fn note_damage(&self, what: &'static str) {
        {
            let mut core = self.core.lock();
            core.note_error(what);
            if !core.read_only && core.on_error == OnError::ReadOnly {
                core.fail();
            }
        }
        self.device.failed(Failure::Damage(what));
    }

    /// From now on damage does this, whatever the superblock says (mount -o errors=).
    pub fn on_error(&self, does: OnError) {
        self.core.lock().on_error = does;
    }

    async fn try_often<T>(&self, mut step: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            match step(self) {
                Err(Error::Missing(block)) => self.load(block, block, 1).await?,
                Err(Error::MissingOf { block, first, blocks }) => self.load(block, first, blocks).await?,
                Err(Error::Full) => self.commit().await?,
                answer => return answer,
            }
        }
        Err(Error::Corrupt("an operation without an end"))
    }

    /// The same, if all that it needs is in memory; else [`Error::Missing`] or [`Error::Full`].
    pub(crate) fn try_run<T>(&self, mut operation: impl FnMut(&mut Handle<'_>) -> Result<T>) -> Result<T> {
        let mut core = self.core.lock();
        let mut handle = Handle::new(&core);
        let answer = operation(&mut handle)?;
        let changes = handle.finish();
        core.apply(changes)?;
        Ok(answer)
    }

    /// From now on changes are made in memory, without a journal: for tests, which write them to their places ([`Volume::write_home`]).
    #[cfg(test)]
    pub(crate) fn open_without_journal(&self) {
        self.core.lock().open(1, usize::MAX);
    }

    /// Writes all that was changed to its place, and the numbers of free blocks and inodes to the superblock.
    #[cfg(test)]
    pub(crate) async fn write_home(&self) -> Result<()> {
        self.run(|handle| handle.put_counts()).await?;
        let blocks = {
            let mut core = self.core.lock();
            if let Some(transaction) = core.begin_commit() {
                core.end_commit(transaction);
            }
            core.to_checkpoint()
        };
        for (block, bytes) in blocks {
            self.device.write(block, alloc::vec![bytes]).await?;
        }
        self.core.lock().checkpointed();
        Ok(())
    }

    /// Reads a block of metadata into memory, and with it those of the `ahead` that are `first` and behind which adjoin it and are not there either.
    async fn load(&self, block: u64, first: u64, ahead: u32) -> Result<()> {
        if block >= self.superblock.blocks {
            return Err(Error::Corrupt("a block past the end"));
        }
        let window = first..(first + u64::from(ahead)).min(self.superblock.blocks);
        let Some((blocks, number)) = self.core.lock().begin_load(block, window) else {
            // Somebody else does.
            self.loaded.wait_until(|| (!self.core.lock().is_loading(block)).then_some(())).await;
            return Ok(());
        };
        let loading = Loading { volume: self, blocks, number };
        match self.read_all(&loading).await {
            // There may be room for what is needed, or another one may be the bad one.
            Err(Error::NoMemory | Error::Io) if loading.blocks.end - loading.blocks.start > 1 => {
                drop(loading);
                let Some((blocks, number)) = self.core.lock().begin_load(block, block..block + 1) else {
                    return Ok(());
                };
                self.read_all(&Loading { volume: self, blocks, number }).await
            }
            answer => answer,
        }
    }

    async fn read_all(&self, loading: &Loading<'_, D>) -> Result<()> {
        let (first, count) = (loading.blocks.start, (loading.blocks.end - loading.blocks.start) as usize);
        let each = self.superblock.block_bytes as usize;
        let bytes = self.device.read(first, count as u32).await?;
        if bytes.len() != count * each {
            return Err(Error::Io);
        }
        if count == 1 {
            self.core.lock().insert(first, bytes, loading.number);
            return Ok(());
        }
        for (block, part) in (first..).zip(bytes.chunks_exact(each)) {
            let mut copy = Vec::new();
            copy.try_reserve_exact(each).map_err(|_| Error::NoMemory)?;
            copy.extend_from_slice(part);
            self.core.lock().insert(block, copy, loading.number);
        }
        Ok(())
    }

    /// The topmost directory.
    pub async fn root(&self) -> Result<Inode> {
        self.run(|handle| handle.root()).await
    }

    /// An inode. None: it is not in use.
    pub async fn inode(&self, number: u32) -> Result<Option<Inode>> {
        self.run(|handle| handle.inode(number)).await
    }

    /// Where a symbolic link leads.
    pub async fn link_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        let bytes = usize::try_from(inode.size).unwrap_or(usize::MAX);
        self.run(|handle| {
            if inode.file_type()? != FileType::Symlink || bytes > self.superblock.block_bytes as usize {
                return Err(Error::Corrupt("a symbolic link"));
            }
            if bytes < inode.root.len() && !inode.has_extents() {
                return Ok(inode.root[..bytes].to_vec());
            }
            let place = handle.map(inode, 0)?.place.ok_or(Error::Corrupt("a symbolic link"))?;
            Ok(handle.read(place)?[..bytes].to_vec())
        })
        .await
    }
}

/// Where a device has the superblock.
impl Superblock {
    /// Byte of the device, and how many.
    pub const PLACE: (usize, usize) = (superblock::AT, superblock::BYTES);
}

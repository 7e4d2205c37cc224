//! A disk that another kernel drives than the one that owns the root (`cob.devices=blk0@2`).
//!
//! The kernel with the disk has its queues and interrupts, and the file systems that are mounted from it (trees.rs). /dev/vda and its partitions, with their page
//! caches, are where the root is, above [`RemoteDisk`], whose requests are a message and an answer each.
//!
//! The pages of a request are lent for the call. The device never sees them: if their kernel died while the device writes, it would write into memory
//! that is used anew. It gets frames of its own kernel, which copies. They stay counted until the device has answered, whoever asked.

use super::{loan::Loan, Remote};
use crate::block::Disks;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, CountedPart, Piece, Pieces},
    errno::Result,
    sync::{AsyncLock, Lock, WaitQueue},
    BoxFuture, Errno, Frame, KernelId, Memory, PAGE_SIZE,
};
use messages::disk::{DiskCounts, DiskFind, DiskRequest};
use spin::Once;

/// Pieces of one request, which fit into one message.
const MOST_PIECES: usize = 32;
/// Requests under way at the same time.
const DEPTH: usize = 16;

/// Registers what answers each message of the subject.
pub fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on::<DiskFind, _, _>(|remote, _, DiskFind { disk }| async move {
        let known = || remote.disks.known.lock().as_ref().map(|disks| disks.get(&disk).cloned());
        let disk = remote.disks.opened.wait_until(known).await.ok_or(Errno::ENODEV)?;
        Ok(BlockLimits::clone(&disk.limits()))
    });
    serve.on::<DiskCounts, _, _>(|remote, _, DiskCounts { disk }| async move {
        remote.disks.mounted.get().map(|mounted| mounted.counts_of(disk)).unwrap_or_default()
    });
    // What the device has begun it ends, and then the frames are copied.
    serve.on_to_completion::<DiskRequest, _, _>(|remote, from, ask| async move { remote.carry_out(from, ask).await });
}

/// The disks that this kernel drives for the one that owns the root.
#[derive(Default)]
pub(super) struct DrivenDisks {
    /// By number; None: they have not been opened yet.
    known: Lock<Option<BTreeMap<u32, Arc<dyn BlockDevice>>>>,
    opened: WaitQueue,
    /// What is mounted of them here.
    mounted: Once<Arc<Disks>>,
    /// Frames for one request when there is no memory: what frees memory may be the writing back that asks for them.
    reserve: AsyncLock<Vec<Frame>>,
}

impl DrivenDisks {
    /// Returns when this kernel has opened the disks that it drives.
    pub async fn until_opened(&self) {
        self.opened.wait_until(|| self.known.lock().is_some().then_some(())).await
    }
}

impl Remote {
    /// This kernel has opened the disks that it drives. `mounted`: what file systems here have of them.
    pub fn drive_disks(&self, disks: BTreeMap<u32, Arc<dyn BlockDevice>>, mounted: &Arc<Disks>) {
        self.disks.mounted.call_once(|| mounted.clone());
        if !disks.is_empty()
            && let Some(mut reserve) = self.disks.reserve.try_lock()
        {
            while reserve.len() < MOST_PIECES {
                match self.memory.alloc() {
                    Some(frame) => reserve.push(frame),
                    None => break,
                }
            }
        }
        *self.disks.known.lock() = Some(disks);
        self.disks.opened.wake_all();
    }

    async fn carry_out(&self, from: KernelId, ask: DiskRequest) -> Result<()> {
        let DiskRequest { disk, op, sector, pieces } = ask;
        let memory = &self.memory;
        let sound = |piece: &Piece| {
            let ends = piece.offset.checked_add(piece.bytes).is_some_and(|end| end <= PAGE_SIZE);
            ends && memory.home_of(piece.frame).is_some()
        };
        if pieces.len() > MOST_PIECES || !pieces.iter().all(sound) {
            return Err(Errno::EINVAL);
        }
        let disk = self.disks.known.lock().as_ref().and_then(|disks| disks.get(&disk).cloned()).ok_or(Errno::ENODEV)?;
        // Frames that are released when this is over. The request counts them as well.
        let own = Loan::for_message(memory, pieces.len() * PAGE_SIZE);
        let reserve;
        let frames: &[Frame] = match own.frames().len() == pieces.len() {
            true => own.frames(),
            false => {
                reserve = self.disks.reserve.lock().await;
                reserve.get(..pieces.len()).ok_or(Errno::ENOMEM)?
            }
        };
        let mut request = Pieces::none(memory);
        for (piece, &frame) in pieces.iter().zip(frames) {
            if op == BlockOp::Write {
                copy(&**memory, (piece.frame, frame), piece);
            }
            request.push(Piece { frame, ..*piece });
        }
        disk.submit(op, sector, request).await?;
        // A dead kernel's frames may be another's by now.
        if op == BlockOp::Read && self.endpoint.is_alive(from) {
            for (piece, &frame) in pieces.iter().zip(frames) {
                copy(&**memory, (frame, piece.frame), piece);
            }
        }
        Ok(())
    }
}

/// Copies the bytes of `piece` between two frames, at the same place in both.
fn copy(memory: &dyn Memory, (from, to): (Frame, Frame), piece: &Piece) {
    if piece.bytes == PAGE_SIZE {
        return memory.copy(from, to);
    }
    let mut part = [0; 512];
    for start in (piece.offset..piece.offset + piece.bytes).step_by(part.len()) {
        let part = &mut part[..512.min(piece.offset + piece.bytes - start)];
        memory.read(from, start, part);
        memory.write(to, start, part);
    }
}

/// A disk of another kernel, on the kernel that owns the root.
pub struct RemoteDisk {
    remote: Arc<Remote>,
    owner: KernelId,
    disk: u32,
    limits: Arc<BlockLimits>,
}

impl RemoteDisk {
    /// Disk `disk` of `owner`, once that has opened it. EIO: the kernel is dead.
    pub async fn find(remote: &Arc<Remote>, owner: KernelId, disk: u32) -> Result<RemoteDisk> {
        let mut limits = remote.endpoint.call(owner, DiskFind { disk }).await??;
        let most = |limit: usize, most: usize| if limit == 0 { most } else { limit.min(most) };
        // The owner's frames lie anywhere, whatever the program's do.
        limits.most_pieces = most(limits.most_segments, MOST_PIECES);
        limits.most_bytes = most(limits.most_bytes, MOST_PIECES * PAGE_SIZE);
        limits.depth = most(limits.depth, DEPTH);
        // That kernel chooses among the queues of the device.
        limits.queues = 1;
        Ok(RemoteDisk { remote: remote.clone(), owner, disk, limits: Arc::new(limits) })
    }
}

impl BlockDevice for RemoteDisk {
    fn limits(&self) -> Arc<BlockLimits> {
        self.limits.clone()
    }

    fn driven_by(&self) -> Option<(KernelId, u32)> {
        Some((self.owner, self.disk))
    }

    fn counted_there(&self) -> Option<BoxFuture<'_, Vec<CountedPart>>> {
        // Nothing, if the kernel is dead.
        let asked = self.remote.endpoint.call(self.owner, DiskCounts { disk: self.disk });
        Some(Box::pin(async move { asked.await.unwrap_or_default() }))
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        let message = DiskRequest { disk: self.disk, op, sector, pieces: pages.as_slice().to_vec() };
        // The pages stay lent until the owner has answered, even if nobody waits for that any more.
        let accept = move |answer: Result<()>| {
            drop(pages);
            answer
        };
        Box::pin(async move {
            // Fails if the kernel is dead.
            self.remote.ask(self.owner, message, accept, drop).await.map_err(|_| Errno::EIO)?
        })
    }
}

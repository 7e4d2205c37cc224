//! Who uses a volume: descriptions that are open on it, and what is mounted of it. As long as somebody does it does not go, and a loop device keeps its file.

use super::volume::Volume;
use alloc::sync::Arc;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    to_completion, BoxFuture, Errno,
};

/// Uses of one volume.
#[derive(Default)]
pub(super) struct Uses {
    counted: Lock<Counted>,
    /// Woken when it is not closing any more.
    settled: WaitQueue,
}

#[derive(Default)]
struct Counted {
    users: usize,
    /// One of them has it for itself: it is mounted, or open with O_EXCL.
    claimed: bool,
    phase: Phase,
}

/// Whether somebody new may use it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Not yet: a loop device gives up its file.
    Closing,
    /// Never more.
    Gone,
}

impl Uses {
    /// Whether it may be used at all.
    pub fn is_open(&self) -> bool {
        self.counted.lock().phase == Phase::Open
    }

    /// From now on nobody can begin to use it. EBUSY: somebody does.
    pub fn close(&self) -> Result<()> {
        let mut uses = self.counted.lock();
        if uses.users > 0 || uses.phase != Phase::Open {
            return Err(Errno::EBUSY);
        }
        uses.phase = Phase::Closing;
        Ok(())
    }

    /// Takes [`Uses::close`] back.
    pub fn reopen(&self) {
        self.counted.lock().phase = Phase::Open;
        self.settled.wake_all();
    }

    /// What was closed never comes back.
    pub fn end_all(&self) {
        self.counted.lock().phase = Phase::Gone;
        self.settled.wake_all();
    }

    /// Waits until it is not closing.
    pub async fn settled(&self) {
        self.settled.wait_until(|| (self.counted.lock().phase != Phase::Closing).then_some(())).await
    }

    fn begin(&self, claims: bool) -> Result<()> {
        let mut uses = self.counted.lock();
        match (uses.phase, claims && uses.claimed) {
            (Phase::Closing | Phase::Gone, _) => return Err(Errno::ENXIO),
            (_, true) => return Err(Errno::EBUSY),
            _ => {}
        }
        uses.users += 1;
        uses.claimed |= claims;
        Ok(())
    }

    /// Whether that was the last one.
    fn end(&self, claims: bool) -> bool {
        let mut uses = self.counted.lock();
        uses.users -= 1;
        uses.claimed &= !claims;
        uses.users == 0
    }
}

/// One use of a volume, and of the disk that it is a partition of.
pub struct Hold {
    volume: Arc<Volume>,
    claims: bool,
    ended: bool,
}

impl Hold {
    /// With `claims` nobody else can claim it meanwhile. EBUSY: somebody has claimed it. ENXIO: it is about to go.
    pub fn new(volume: &Arc<Volume>, claims: bool) -> Result<Hold> {
        if let Some(disk) = volume.disk() {
            disk.uses().begin(false)?;
        }
        if let Err(error) = volume.uses().begin(claims) {
            if let Some(disk) = volume.disk() {
                disk.uses().end(false);
            }
            return Err(error);
        }
        Ok(Hold { volume: volume.clone(), claims, ended: false })
    }

    /// What is held.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Ends it. Returns when what follows from that is done: a loop device that nobody uses any more has given up its file.
    pub async fn release(mut self) {
        if let Some(work) = self.end() {
            to_completion(&*self.volume.services().spawner, work).await;
        }
    }

    fn end(&mut self) -> Option<BoxFuture<'static, ()>> {
        if core::mem::replace(&mut self.ended, true) {
            return None;
        }
        let was_last = self.volume.uses().end(self.claims);
        let disk = match self.volume.disk() {
            Some(disk) => disk.uses().end(false).then_some(disk)?,
            None => was_last.then_some(&self.volume)?,
        };
        disk.driver()?.clone().unused()
    }
}

impl Drop for Hold {
    /// Who can't wait has it done in the background.
    fn drop(&mut self) {
        if let Some(work) = self.end() {
            self.volume.services().spawner.spawn(work);
        }
    }
}

//! Writing transactions to the log, and their blocks home.
//!
//! A commit writes revoke blocks, descriptors and copies of the transaction, flushes, writes the commit block, and flushes again. Nobody's future is special: whoever needs a
//! commit holds the lock of the journal and writes it himself. If his future is dropped in between, the transaction stays where it is ([`Journal::unfinished`]), and the next one
//! who holds the lock writes all of it again: the same bytes to the same blocks. He flushes first, so that no write of the dropped future comes later than what he goes on to
//! write ([`Device::flush`]).
//!
//! Blocks go home (a checkpoint) when the log has no room for a transaction, when there are many of them, when somebody asks, and at the end. Afterwards the log is empty: the
//! journal's superblock says that it begins where the next transaction will. That is flushed before any block of the log is written again. For if the old superblock were found
//! after a power cut, and not all of the old log, then some of the old transactions would be replayed over newer blocks.

use crate::{
    log::{Journal, Log, Writer},
    Device, Error, Failure, Result, Volume,
};
use ::core::mem;

impl<D: Device> Volume<D> {
    /// Makes all that has been changed lasting. It answers when that is so.
    pub async fn commit(&self) -> Result<()> {
        let id = {
            let core = self.core.lock();
            // Nothing has been changed in the running one, but the one before may be on its way.
            if core.has_changes() {
                core.running()
            } else {
                core.running().wrapping_sub(1)
            }
        };
        self.commit_through(id).await.map(drop)
    }

    /// The number of the transaction that changes are made in now. Whoever asks right after an operation learns which one must be committed for the operation to be lasting: this
    /// or an earlier one.
    pub fn transaction(&self) -> u32 {
        self.core.lock().running()
    }

    /// Whether transaction `id` is committed, so that an fsync of what was changed in it has only to flush the device, for the data.
    pub fn is_committed(&self, id: u32) -> bool {
        let core = self.core.lock();
        core.has_committed(id) || id == core.running() && !core.has_changes() && core.has_committed(id.wrapping_sub(1))
    }

    /// Whether transaction `id` is the running one and something has been changed in it: whoever commits it flushes the device after this call, and what the caller has written before stays.
    pub fn is_to_come(&self, id: u32) -> bool {
        let core = self.core.lock();
        core.running() == id && core.has_changes()
    }

    /// Commits transaction `id` ([`Volume::transaction`]) unless that is done; who asks for the same one meanwhile waits for that. [`Error::Io`]: it could not be written, and
    /// from then on nothing is; [`Error::ReadOnly`]: that was so before. Says whether the device has been flushed since the call: if not, what the caller has written to it before may not be lasting.
    pub async fn commit_through(&self, id: u32) -> Result<bool> {
        if self.is_committed(id) {
            return Ok(false);
        }
        if self.core.lock().has_failed() {
            return Err(Error::ReadOnly);
        }
        let mut journal = self.journal.lock().await;
        // The first may be one that another future has left unfinished.
        let mut flushed = false;
        for _ in 0..2 {
            if self.is_committed(id) {
                break;
            }
            if self.core.lock().has_failed() {
                return Err(Error::Io);
            }
            let Some(journal) = &mut *journal else { return self.commit_in_memory().map(|()| false) };
            let answer = self.write_next(journal).await;
            self.note(answer)?;
            flushed = true;
        }
        Ok(flushed)
    }

    /// Writes all that is in the log home, as far as it is committed, so that the log is empty.
    pub async fn checkpoint(&self) -> Result<()> {
        if self.core.lock().has_failed() {
            return Err(Error::ReadOnly);
        }
        let mut journal = self.journal.lock().await;
        let Some(journal) = &mut *journal else { return Ok(()) };
        let answer = async {
            // The log can't be empty before that one is whole.
            if journal.unfinished.is_some() {
                self.write_next(journal).await?;
            }
            if journal.log.used == 0 {
                return Ok(());
            }
            self.begin_writing(journal).await?;
            let next = self.core.lock().running();
            let start = journal.log.head;
            self.empty_log(&mut journal.log, start, next).await?;
            journal.interrupted = false;
            Ok(())
        };
        let answer = answer.await;
        self.note(answer)
    }

    /// Without a journal there is nothing to write: what has been changed stays in memory.
    fn commit_in_memory(&self) -> Result<()> {
        let mut core = self.core.lock();
        if let Some(transaction) = core.begin_commit() {
            core.end_commit(transaction);
        }
        Ok(())
    }

    /// After an error nothing is written any more. Lack of memory is none: what was begun is written by the next one.
    fn note(&self, answer: Result<()>) -> Result<()> {
        match answer {
            Ok(()) => Ok(()),
            Err(Error::NoMemory) => Err(Error::NoMemory),
            Err(error) => {
                {
                    let mut core = self.core.lock();
                    core.note_error("the journal could not be written");
                    core.fail();
                }
                self.device().failed(Failure::Journal);
                Err(error)
            }
        }
    }

    /// What a dropped future has begun to write comes before all that is written from here on.
    async fn begin_writing(&self, journal: &mut Journal) -> Result<()> {
        match mem::replace(&mut journal.interrupted, true) {
            true => self.device().flush().await,
            false => Ok(()),
        }
    }

    /// Writes the unfinished transaction, or else the running one if something has been changed in it.
    async fn write_next(&self, journal: &mut Journal) -> Result<()> {
        if journal.unfinished.is_none() {
            journal.unfinished = self.core.lock().begin_commit();
        }
        if journal.unfinished.is_none() {
            return Ok(());
        }
        self.begin_writing(journal).await?;
        let Some(transaction) = &journal.unfinished else { return Ok(()) };
        let encoded = journal.log.encode(transaction)?;
        let need = encoded.blocks.len() + 1;
        if need > journal.log.room() || self.core.lock().checkpoint_bytes() > self.device().memory() / 2 {
            let start = journal.log.head;
            self.empty_log(&mut journal.log, start, transaction.id).await?;
        }
        if need > journal.log.room() {
            return Err(Error::Corrupt("a transaction larger than the journal"));
        }
        journal.log.write(self.device(), encoded).await?;
        if let Some(transaction) = journal.unfinished.take() {
            self.core.lock().end_commit(transaction);
        }
        journal.interrupted = false;
        Ok(())
    }

    /// Writes what is in the log home. Then the log begins at `start` (0: it is empty and stays so) with transaction `next`.
    async fn empty_log(&self, log: &mut Log, start: u32, next: u32) -> Result<()> {
        let blocks = self.core.lock().to_checkpoint();
        let mut writer = Writer::new(self.device());
        for (block, bytes) in blocks {
            writer.push(block, bytes).await?;
        }
        writer.finish().await?;
        self.device().flush().await?;
        self.core.lock().checkpointed();
        log.file.write_start(self.device(), start, next).await?;
        log.used = 0;
        Ok(())
    }

    /// Writes all home, and says that there is nothing to replay. Nothing may be changed any more.
    pub(super) async fn empty_journal(&self, journal: &mut Option<Journal>) -> Result<()> {
        let Some(journal) = journal else { return Ok(()) };
        let answer = async {
            if journal.unfinished.is_some() {
                self.write_next(journal).await?;
            }
            self.begin_writing(journal).await?;
            let next = self.core.lock().running();
            self.empty_log(&mut journal.log, 0, next).await
        };
        let answer = answer.await;
        self.note(answer)
    }
}

//! A disk whose requests are answered when the test says so, one by one and in any order.

use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces, SECTOR},
    errno::Result,
    sync::WaitQueue,
    BoxFuture, Errno,
};
use std::sync::{
    atomic::{AtomicBool, Ordering::SeqCst},
    Arc, Mutex,
};

/// What the device has been given.
pub struct Given {
    pub op: BlockOp,
    pub sector: u64,
    pub pages: Pieces,
    serial: usize,
}

impl Given {
    /// The sectors that it reads or writes.
    pub fn sectors(&self) -> std::ops::Range<u64> {
        self.sector..self.sector + self.pages.len() as u64 / SECTOR
    }
}

#[derive(Default)]
struct State {
    given: Vec<Given>,
    answers: Vec<Option<Result<()>>>,
}

pub struct Slow {
    pub limits: BlockLimits,
    pub bytes: Mutex<Vec<u8>>,
    /// Sectors that can be neither read nor written.
    pub bad: Mutex<Vec<u64>>,
    /// The next flush fails.
    pub fails_flush: AtomicBool,
    /// It answers by itself.
    pub at_once: AtomicBool,
    state: Mutex<State>,
    answered: WaitQueue,
}

impl Slow {
    pub fn new(bytes: Vec<u8>, limits: BlockLimits) -> Slow {
        let limits = BlockLimits { sectors: bytes.len() as u64 / SECTOR, block: 512, physical_block: 512, ..limits };
        let (bytes, bad) = (Mutex::new(bytes), Mutex::default());
        Slow {
            limits,
            bytes,
            bad,
            fails_flush: AtomicBool::new(false),
            at_once: AtomicBool::new(false),
            state: Mutex::default(),
            answered: WaitQueue::new(),
        }
    }

    /// Requests that it has not answered: operation, first sector, bytes.
    pub fn under_way(&self) -> Vec<(BlockOp, u64, usize)> {
        let state = self.state.lock().unwrap();
        state.given.iter().map(|given| (given.op, given.sector, given.pages.len())).collect()
    }

    /// Carries out the request that it was given as number `index` of those that are left, and answers it. Gives what it was.
    pub fn answer(&self, index: usize) -> Given {
        let given = self.state.lock().unwrap().given.remove(index);
        let answer = self.carry_out(&given);
        self.state.lock().unwrap().answers[given.serial] = Some(answer);
        self.answered.wake_all();
        given
    }

    fn carry_out(&self, given: &Given) -> Result<()> {
        if given.op == BlockOp::Flush && self.fails_flush.swap(false, SeqCst) {
            return Err(Errno::EIO);
        }
        if self.bad.lock().unwrap().iter().any(|bad| given.sectors().contains(bad)) {
            return Err(Errno::EIO);
        }
        let (mut bytes, place) = (self.bytes.lock().unwrap(), (given.sector * SECTOR) as usize);
        match given.op {
            BlockOp::Read => given.pages.copy_from(&bytes[place..place + given.pages.len()]),
            BlockOp::Write => {
                let mut written = Vec::new();
                given.pages.copy_to(&mut written);
                bytes[place..place + written.len()].copy_from_slice(&written);
            }
            _ => {}
        }
        Ok(())
    }

    /// The same with all, the first first, also those that come meanwhile after `then`.
    pub fn answer_all(&self, mut then: impl FnMut()) {
        while !self.state.lock().unwrap().given.is_empty() {
            self.answer(0);
            then();
        }
    }
}

impl BlockDevice for Slow {
    fn limits(&self) -> Arc<BlockLimits> {
        Arc::new(self.limits.clone())
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        assert!(pages.len() <= self.limits.most_bytes);
        assert!(self.limits.most_pieces == 0 || pages.as_slice().len() <= self.limits.most_pieces);
        assert!(self.limits.most_segments == 0 || pages.segments() <= self.limits.most_segments);
        let state = &mut *self.state.lock().unwrap();
        let serial = state.answers.len();
        let given = Given { op, sector, pages, serial };
        if self.at_once.load(SeqCst) {
            return Box::pin(std::future::ready(self.carry_out(&given)));
        }
        state.answers.push(None);
        state.given.push(given);
        assert!(self.limits.depth == 0 || state.given.len() <= self.limits.depth * self.limits.queues.max(1));
        Box::pin(self.answered.wait_until(move || self.state.lock().unwrap().answers[serial]))
    }
}

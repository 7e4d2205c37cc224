//! Bios and requests.

use super::{settings::RequestLimits, Counted};
use alloc::{sync::Arc, vec, vec::Vec};
use machine::{
    block::{BlockOp, Pieces, SECTOR},
    errno::Result,
    sync::{Lock, WaitQueue},
};

/// A submitter, who may have stopped waiting.
#[derive(Default)]
pub struct Submission {
    answer: Lock<Option<Result<()>>>,
    answered: WaitQueue,
}

impl Submission {
    pub fn answer(&self, answer: Result<()>) {
        *self.answer.lock() = Some(answer);
        self.answered.wake_all();
    }

    pub async fn answered(&self) -> Result<()> {
        self.answered.wait_until(|| *self.answer.lock()).await
    }
}

/// What one submitter wants.
pub struct Bio {
    pub op: BlockOp,
    pub sector: u64,
    pub pages: Pieces,
    pub counted: Counted,
    pub submission: Arc<Submission>,
    /// For traces: the disk, and the thread that wants this.
    pub traced: (u32, u32),
}

/// What an operation is in a trace.
fn traced(op: BlockOp) -> u16 {
    match op {
        BlockOp::Read => trace::operation::READ,
        BlockOp::Write | BlockOp::WriteZeroes { .. } => trace::operation::WRITE,
        BlockOp::Discard { .. } => trace::operation::DISCARD,
        BlockOp::Flush => trace::operation::FLUSH,
    }
}

fn trace_complete((disk, tid): (u32, u32), (op, sector, sectors): (BlockOp, u64, u64), answer: Result<()>) {
    let error = answer.err().map_or(0, |errno| -i64::from(errno.0));
    trace::block_rq_complete(sector, error as u64, disk, sectors as u32, tid, traced(op));
}

/// One of the points of the group `block` that have the fields of [`trace::block_rq_insert`].
type TracePoint = fn(u64, u32, u32, u32, u16);

impl Bio {
    pub fn sectors(&self) -> u64 {
        match self.op {
            BlockOp::Read | BlockOp::Write => self.pages.len() as u64 / SECTOR,
            BlockOp::Discard { sectors } | BlockOp::WriteZeroes { sectors } => sectors.into(),
            BlockOp::Flush => 0,
        }
    }

    pub fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors())
    }

    fn trace(&self, point: TracePoint) {
        let (disk, tid) = self.traced;
        point(self.sector, disk, self.sectors() as u32, tid, traced(self.op));
    }

    /// The device gets it by itself.
    pub fn trace_issue(&self) {
        self.trace(trace::block_rq_issue);
    }

    /// The device has answered it.
    pub fn trace_complete(&self, answer: Result<()>) {
        trace_complete(self.traced, (self.op, self.sector, self.sectors()), answer);
    }

    /// It becomes a request.
    pub fn count_begin(&self, now: u64) {
        self.trace(trace::block_rq_insert);
        self.counted.0.begin(now);
        self.counted.1.iter().for_each(|disk| disk.begin(now));
    }

    fn count_merged(&self) {
        self.counted.0.merged(self.op);
        self.counted.1.iter().for_each(|disk| disk.merged(self.op));
    }
}

/// Where a bio adjoins a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Front,
    Back,
}

/// What the device is asked for.
pub struct Request {
    pub op: BlockOp,
    pub sector: u64,
    sectors: u64,
    pieces: usize,
    segments: usize,
    began: u64,
    /// Never none, in the order of their sectors.
    bios: Vec<Bio>,
}

impl Request {
    pub fn new(bio: Bio, now: u64) -> Request {
        let (op, sector, sectors) = (bio.op, bio.sector, bio.sectors());
        let (pieces, segments) = (bio.pages.as_slice().len(), bio.pages.segments());
        Request { op, sector, sectors, pieces, segments, began: now, bios: vec![bio] }
    }

    pub fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }

    pub fn bios(&self) -> &[Bio] {
        &self.bios
    }

    /// The disk, and the thread that wanted the first bio.
    fn traced(&self) -> (u32, u32) {
        self.bios[0].traced
    }

    fn trace(&self, point: TracePoint) {
        let (disk, tid) = self.traced();
        point(self.sector, disk, self.sectors as u32, tid, traced(self.op));
    }

    /// The device gets it.
    pub fn trace_issue(&self) {
        self.trace(trace::block_rq_issue);
    }

    /// The device has answered it.
    pub fn trace_complete(&self, answer: Result<()>) {
        trace_complete(self.traced(), (self.op, self.sector, self.sectors), answer);
    }

    pub fn is_merged(&self) -> bool {
        self.bios.len() > 1
    }

    /// All pages. The bios keep theirs, too: each may have to be asked for by itself.
    pub fn pages(&self) -> Pieces {
        let (first, others) = self.bios.split_first().expect("never none");
        let mut all = first.pages.clone();
        others.iter().for_each(|bio| all.append(bio.pages.clone()));
        all
    }

    /// Tells each submitter what became of his bio. Nobody has its pages then.
    pub fn answer(self, answers: Vec<Result<()>>) {
        for (Bio { pages, submission, .. }, answer) in self.bios.into_iter().zip(answers) {
            drop(pages);
            submission.answer(answer);
        }
    }

    /// Whether so many sectors and pieces more are within what a request may have, if all are so many segments.
    fn has_room(&self, most: RequestLimits, sectors: u64, pieces: usize, segments: usize) -> bool {
        (self.sectors + sectors) * SECTOR <= most.bytes as u64
            && self.pieces + pieces <= most.pieces
            && segments <= most.segments
    }

    /// Its pages at that side.
    fn outer(&self, side: Side) -> &Pieces {
        let place = if side == Side::Front { 0 } else { self.bios.len() - 1 };
        &self.bios[place].pages
    }

    /// The segments of its pages with `others` at that side.
    fn segments_with(&self, others: &Pieces, side: Side) -> usize {
        let joined = match side {
            Side::Front => others.joins(self.outer(side)),
            Side::Back => self.outer(side).joins(others),
        };
        self.segments + others.segments() - joined
    }

    /// Whether a bio can be merged there. All of a request are counted alike.
    pub fn takes(&self, bio: &Bio, side: Side, most: RequestLimits) -> bool {
        let adjoins = match side {
            Side::Back => self.end() == bio.sector,
            Side::Front => bio.end() == self.sector,
        };
        let is_alike = self.op == bio.op && Arc::ptr_eq(&self.bios[0].counted.0, &bio.counted.0);
        match self.op {
            BlockOp::Read | BlockOp::Write => {
                let (pieces, segments) = (bio.pages.as_slice().len(), self.segments_with(&bio.pages, side));
                adjoins && is_alike && self.has_room(most, bio.sectors(), pieces, segments)
            }
            // One that has not been sent covers all that was answered until now.
            BlockOp::Flush => is_alike,
            BlockOp::Discard { .. } | BlockOp::WriteZeroes { .. } => false,
        }
    }

    pub fn merge(&mut self, bio: Bio, side: Side) {
        bio.count_merged();
        bio.trace(match side {
            Side::Back => trace::block_bio_backmerge,
            Side::Front => trace::block_bio_frontmerge,
        });
        self.sectors += bio.sectors();
        self.pieces += bio.pages.as_slice().len();
        self.segments = self.segments_with(&bio.pages, side);
        match side {
            Side::Back => self.bios.push(bio),
            Side::Front => {
                self.sector = bio.sector;
                self.bios.insert(0, bio);
            }
        }
    }

    /// Whether `next` begins where this one ends, and both can be one.
    pub fn takes_next(&self, next: &Request, most: RequestLimits) -> bool {
        let is_alike = self.op == next.op && Arc::ptr_eq(&self.bios[0].counted.0, &next.bios[0].counted.0);
        self.end() == next.sector
            && is_alike
            && matches!(self.op, BlockOp::Read | BlockOp::Write)
            && self.has_room(most, next.sectors, next.pieces, self.segments_before(next))
    }

    /// The segments of both, `next` behind this one.
    fn segments_before(&self, next: &Request) -> usize {
        self.segments + next.segments - self.outer(Side::Back).joins(next.outer(Side::Front))
    }

    /// Puts the bios of `next` behind those of this one.
    pub fn join(&mut self, next: Request) {
        next.trace(trace::block_rq_merge);
        let (volume, disk) = &next.bios[0].counted;
        volume.joined(next.op);
        disk.iter().for_each(|disk| disk.joined(next.op));
        self.sectors += next.sectors;
        self.pieces += next.pieces;
        self.segments = self.segments_before(&next);
        self.began = self.began.min(next.began);
        self.bios.extend(next.bios);
    }

    pub fn count_end(&self, now: u64) {
        let (volume, disk) = &self.bios[0].counted;
        volume.end(self.op, self.sectors, self.began, now);
        disk.iter().for_each(|disk| disk.end(self.op, self.sectors, self.began, now));
    }
}

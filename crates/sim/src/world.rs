//! Physical memory of the machine: who holds each frame, how often, and how many translations lead to it.
//!
//! It is stricter than hardware: whatever a kernel may not do with a frame panics here, above all freeing one
//! that some table or TLB still leads to (invariant 3 of the design).

use crate::{rng::Rng, shape::Shape, table::SimTable};
use machine::{
    group::{Ledgers, Tag},
    sync::{Lock, LockGuard},
    Frame, KernelId, Memory, NoMemory, PageRange, PageTable, Step, PAGE_SIZE,
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Weak,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Free,
    /// Counted by a kernel.
    Held {
        by: KernelId,
        count: u32,
    },
    /// Given away by its home, not adopted (yet).
    Lent {
        to: KernelId,
    },
    /// Released by a kernel that is not its home, on its way back.
    Returning {
        from: KernelId,
    },
}

type Bytes = Box<[u8; PAGE_SIZE]>;

thread_local! {
    /// Memory of machines that are no more, for the next ones: the host's allocator would give it back to its system.
    static POOL: RefCell<Vec<Bytes>> = const { RefCell::new(Vec::new()) };
}

fn zeroed() -> Bytes {
    match POOL.with_borrow_mut(Vec::pop) {
        Some(mut bytes) => {
            bytes.fill(0);
            bytes
        }
        None => Box::new([0; PAGE_SIZE]),
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let partitions = self.frames.get_mut().partitions.drain(..);
        let bytes = partitions.flat_map(|partition| partition.frames).filter_map(|state| state.bytes);
        POOL.with_borrow_mut(|pool| pool.extend(bytes));
    }
}

struct FrameState {
    holder: Holder,
    /// Table and TLB entries that lead here, over all kernels.
    translations: u32,
    /// Away while a copy is made.
    bytes: Option<Bytes>,
}

/// Frames of one kernel.
#[derive(Default)]
struct Partition {
    /// By place; those above were never used.
    frames: Vec<FrameState>,
    /// The last one freed is the next one used: the hardest case.
    free: Vec<Frame>,
}

#[derive(Default)]
struct Frames {
    partitions: Vec<Partition>,
    per_kernel: u64,
    returning: BTreeMap<(KernelId, KernelId), Vec<Frame>>,
    /// Held with one user, for the next page that needs one.
    stock: BTreeMap<KernelId, Vec<Frame>>,
    /// Users of frames that another kernel holds and has pinned, by who uses them; and that kernel.
    pinned: BTreeMap<(KernelId, Frame), (u32, KernelId)>,
    /// What their holders have counted for those.
    pins: BTreeMap<(KernelId, Frame), u32>,
}

/// Of one kernel: simulated kernels have none, so tests say what it needs.
#[derive(Default)]
struct Heap {
    /// Frames that must be free for it to have room.
    least_free: u64,
    short: bool,
}

/// The physical machine.
pub struct World {
    frames: Lock<Frames>,
    per_kernel: u64,
    /// For audits.
    tables: Lock<Vec<Weak<SimTable>>>,
    /// What the schedule and the network do.
    pub rng: Rng,
    /// CPUs of each kernel.
    pub cpus: usize,
    /// Page-table pages fail to be had now and then.
    pub scarce: bool,
    /// Kernels that have no room for another space, as bits.
    full: AtomicU64,
    heaps: Lock<BTreeMap<KernelId, Heap>>,
    /// Kernels that have died, as bits: what is left of their services changes nothing.
    dead: AtomicU64,
    /// The verdict on this run is out: nothing is checked any more.
    over: AtomicBool,
}

/// As `frames` has it.
const KEPT_FOR_OWN: u64 = 8;

impl World {
    pub fn new(shape: Shape) -> Arc<World> {
        let partitions = (0..shape.kernels).map(|_| Partition::default()).collect();
        let frames = Frames { partitions, per_kernel: shape.frames, ..Frames::default() };
        Arc::new(World {
            frames: Lock::new(frames),
            per_kernel: shape.frames,
            tables: Lock::default(),
            rng: Rng::new(shape.seed),
            cpus: shape.cpus,
            scarce: shape.scarce,
            full: AtomicU64::new(0),
            heaps: Lock::default(),
            dead: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> LockGuard<'_, Frames> {
        self.frames.lock()
    }

    fn home(&self, frame: Frame) -> KernelId {
        KernelId((frame.0 / self.per_kernel) as u16)
    }

    /// From now on `kernel` has no room for a space that it does not have yet.
    pub fn fill(&self, kernel: KernelId) {
        self.full.fetch_or(1 << kernel.index(), Ordering::Relaxed);
    }

    /// From now on the heap of `kernel` has room only while so many frames are free.
    pub fn keep_free(&self, kernel: KernelId, frames: u64) {
        self.heaps.lock().entry(kernel).or_default().least_free = frames;
    }

    /// The heap of `kernel` grows; see [`Memory::is_short`]. False if there was room.
    pub fn grow_heap(&self, kernel: KernelId) -> bool {
        let free = self.lock().free_of(kernel, self.per_kernel);
        let mut heaps = self.heaps.lock();
        let heap = heaps.entry(kernel).or_default();
        heap.short |= free < heap.least_free;
        heap.short
    }

    /// Something was wrong, the machine is thrown away: what it still does on the way is not looked at.
    pub fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A table or TLB entry now leads to `frame`.
    pub fn translate(&self, frame: Frame) {
        self.lock().used(frame, "mapped while free").translations += 1;
    }

    /// ...and one no longer does.
    pub fn untranslate(&self, frame: Frame) {
        if !self.is_over() {
            self.lock().used(frame, "freed while mapped").translations -= 1;
        }
    }

    pub fn with_bytes<T>(&self, frame: Frame, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut frames = self.lock();
        let state = frames.used(frame, "used while free");
        work(&mut state.bytes.as_mut().expect("no copy is under way")[..])
    }

    /// `kernel` is no more: its tables lead nowhere.
    pub fn end_life(&self, kernel: KernelId) {
        let tables: Vec<Arc<SimTable>> = self.tables.lock().iter().filter_map(Weak::upgrade).collect();
        tables.iter().filter(|table| table.kernel == kernel).for_each(|table| table.vanish());
        self.dead.fetch_or(1 << kernel.index(), Ordering::Relaxed);
    }

    /// A table that still leads to a frame of a kernel that has died.
    pub fn haunted(&self, dead: KernelId) -> Option<String> {
        let tables: Vec<Arc<SimTable>> = self.tables.lock().iter().filter_map(Weak::upgrade).collect();
        tables.iter().find_map(|table| {
            let mut found = None;
            table.walk(PageRange::user(), &mut |page, mapping| {
                if self.home(mapping.frame) == dead {
                    found = Some(format!("{page:?} is {mapping:?} on {:?}", table.kernel));
                }
                Step::Keep
            });
            found
        })
    }

    /// Frames in use, for the check that nothing leaked.
    pub fn used(&self) -> Vec<String> {
        let frames = self.lock();
        let all = frames.partitions.iter().enumerate().flat_map(|(kernel, partition)| {
            let base = kernel as u64 * self.per_kernel;
            partition.frames.iter().zip(base..).filter(|(state, _)| state.holder != Holder::Free)
        });
        all.map(|(state, frame)| format!("{:?}", (frame, state.holder, state.translations))).collect()
    }

    /// Frames of `kernel` that are in use, by whomever.
    pub fn used_of(&self, kernel: KernelId) -> usize {
        let frames = self.lock();
        let partition = &frames.partitions[kernel.index()];
        partition.frames.len() - partition.free.len()
    }

    /// A TLB entry that no flush removed in time, of any table.
    pub fn stale(&self) -> Option<String> {
        let mut tables = self.tables.lock();
        tables.retain(|table| table.strong_count() > 0);
        tables.iter().filter_map(Weak::upgrade).find_map(|table| table.stale())
    }

    pub fn used_count(&self) -> usize {
        self.lock().partitions.iter().map(|partition| partition.frames.len() - partition.free.len()).sum()
    }
}

impl Frames {
    fn state(&mut self, frame: Frame) -> Option<&mut FrameState> {
        let (kernel, index) = (frame.0 / self.per_kernel, frame.0 % self.per_kernel);
        self.partitions.get_mut(kernel as usize)?.frames.get_mut(index as usize)
    }

    /// A frame that is in use.
    #[track_caller]
    fn used(&mut self, frame: Frame, otherwise: &str) -> &mut FrameState {
        match self.state(frame).filter(|state| state.holder != Holder::Free) {
            Some(state) => state,
            None => panic!("{frame:?} {otherwise}"),
        }
    }

    fn alloc(&mut self, kernel: KernelId) -> Option<Frame> {
        let (per_kernel, partition) = (self.per_kernel, &mut self.partitions[kernel.index()]);
        let holder = Holder::Held { by: kernel, count: 1 };
        if let Some(frame) = partition.free.pop() {
            let state = &mut partition.frames[(frame.0 % per_kernel) as usize];
            state.holder = holder;
            state.bytes.as_mut().expect("no copy is under way").fill(0);
            return Some(frame);
        }
        let next = partition.frames.len() as u64;
        if next == per_kernel {
            return None;
        }
        partition.frames.push(FrameState { holder, translations: 0, bytes: Some(zeroed()) });
        Some(Frame(kernel.index() as u64 * per_kernel + next))
    }

    fn free_of(&self, kernel: KernelId, per_kernel: u64) -> u64 {
        let partition = &self.partitions[kernel.index()];
        per_kernel - partition.frames.len() as u64 + partition.free.len() as u64
    }

    fn free(&mut self, frame: Frame, home: KernelId) {
        let state = self.used(frame, "freed twice");
        assert_eq!(state.translations, 0, "{frame:?} freed while a table or TLB leads to it");
        state.holder = Holder::Free;
        self.partitions[home.index()].free.push(frame);
    }

    /// What a dead kernel had of the frames of `home`: those it was lent, and those that `home` uses, too.
    fn had(&mut self, dead: KernelId, home: KernelId) -> (Vec<Frame>, Vec<(Frame, u32)>) {
        let base = home.index() as u64 * self.per_kernel;
        let is_there = |state: &FrameState| match state.holder {
            Holder::Held { by, .. } => by == dead,
            Holder::Lent { to } => to == dead,
            Holder::Returning { from } => from == dead,
            Holder::Free => false,
        };
        let all = (base..).map(Frame).zip(&self.partitions[home.index()].frames);
        let lent: Vec<Frame> = all.filter(|(_, state)| is_there(state)).map(|(frame, _)| frame).collect();
        let Frames { pins, partitions, per_kernel, .. } = self;
        let holder =
            |frame: Frame| partitions[(frame.0 / *per_kernel) as usize].frames[(frame.0 % *per_kernel) as usize].holder;
        let pinned = pins.extract_if(.., |(to, frame), _| {
            *to == dead && matches!(holder(*frame), Holder::Held { by, .. } if by == home)
        });
        let pinned = pinned.map(|((_, frame), count)| (frame, count)).collect();
        // What the dead one had pinned for others of these frames is over as well.
        self.pins.retain(|(_, frame), _| !lent.contains(frame));
        (lent, pinned)
    }

    /// The count of `frame`, which `kernel` must hold, or have pinned.
    fn count(&mut self, frame: Frame, kernel: KernelId) -> &mut u32 {
        if self.pinned.contains_key(&(kernel, frame)) {
            return &mut self.pinned.entry((kernel, frame)).or_insert((0, kernel)).0;
        }
        let state = self.used(frame, "counted while free");
        let found = state.holder;
        match &mut state.holder {
            Holder::Held { by, count } if *by == kernel => count,
            _ => panic!("{kernel:?} counts {frame:?}, which is {found:?}"),
        }
    }
}

/// What one kernel sees of it.
pub struct SimMemory {
    world: Arc<World>,
    me: KernelId,
    ledgers: Ledgers,
    /// Frames that this kernel counts and somebody pays for.
    tags: Lock<BTreeMap<Frame, Tag>>,
}

impl SimMemory {
    pub fn new(world: Arc<World>, me: KernelId) -> Arc<Self> {
        Arc::new(SimMemory { world, me, ledgers: Ledgers::default(), tags: Lock::default() })
    }
}

impl SimMemory {
    /// Nothing is looked at any more: the run is over, or this kernel has died.
    fn is_over(&self) -> bool {
        self.world.is_over() || self.world.dead.load(Ordering::Relaxed) & 1 << self.me.index() != 0
    }
}

impl Memory for SimMemory {
    fn kernel(&self) -> KernelId {
        self.me
    }

    fn alloc(&self) -> Option<Frame> {
        self.world.lock().alloc(self.me)
    }

    fn alloc_anywhere(&self) -> Option<Frame> {
        self.alloc_spare().or_else(|| self.world.lock().stock.entry(self.me).or_default().pop())
    }

    fn alloc_spare(&self) -> Option<Frame> {
        let (total, free) = self.totals();
        (free > total / KEPT_FOR_OWN).then(|| self.alloc()).flatten()
    }

    fn stock(&self, frames: &[Frame]) {
        frames.iter().for_each(|frame| self.adopt(*frame));
        self.world.lock().stock.entry(self.me).or_default().extend(frames);
    }

    fn is_lost(&self, frame: Frame) -> bool {
        self.world.dead.load(Ordering::Relaxed) & 1 << self.world.home(frame).index() != 0
    }

    fn pinned_by(&self, frame: Frame) -> Option<KernelId> {
        self.world.lock().pinned.get(&(self.me, frame)).map(|(_, by)| *by)
    }

    fn forget(&self, kernel: KernelId) {
        let is_dead = |frame: &Frame| self.world.home(*frame) == kernel;
        if let Some(stock) = self.world.lock().stock.get_mut(&self.me) {
            stock.retain(|frame| !is_dead(frame));
        }
    }

    fn retain(&self, frame: Frame) {
        *self.world.lock().count(frame, self.me) += 1;
    }

    fn release(&self, frame: Frame) {
        if self.is_over() {
            return;
        }
        let home = self.world.home(frame);
        let mut frames = self.world.lock();
        let count = frames.count(frame, self.me);
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.ledgers.uncharge(self.tags.lock().remove(&frame).unwrap_or_default());
        if let Some((_, by)) = frames.pinned.remove(&(self.me, frame)) {
            return frames.returning.entry((self.me, by)).or_default().push(frame);
        }
        if home == self.me {
            return frames.free(frame, home);
        }
        let state = frames.used(frame, "sent home while free");
        assert_eq!(state.translations, 0, "{frame:?} sent home while a table or TLB leads to it");
        state.holder = Holder::Returning { from: self.me };
        frames.returning.entry((self.me, home)).or_default().push(frame);
    }

    fn count(&self, frame: Frame) -> u32 {
        let mut frames = self.world.lock();
        match frames.used(frame, "counted while free").holder {
            Holder::Held { by, count } if by == self.me => count,
            _ => frames.pinned.get(&(self.me, frame)).map_or(0, |(count, _)| *count),
        }
    }

    fn adopt(&self, frame: Frame) {
        let mut frames = self.world.lock();
        let state = frames.used(frame, "adopted while free");
        assert_eq!(state.holder, Holder::Lent { to: self.me }, "{frame:?} adopted");
        state.holder = Holder::Held { by: self.me, count: 1 };
    }

    fn lend(&self, frame: Frame, to: KernelId) {
        assert_eq!(self.world.home(frame), self.me, "only an own frame can be lent");
        let mut frames = self.world.lock();
        assert_eq!(*frames.count(frame, self.me), 1, "a lent frame has no other user");
        frames.used(frame, "lent while free").holder = Holder::Lent { to };
    }

    fn pin(&self, frame: Frame, to: KernelId) {
        let mut frames = self.world.lock();
        // Panics if another kernel holds it.
        frames.count(frame, self.me);
        *frames.pins.entry((to, frame)).or_default() += 1;
    }

    fn take_home(&self, frame: Frame, from: KernelId) {
        if self.is_over() {
            return;
        }
        let mut frames = self.world.lock();
        if let Some(count) = frames.pins.get_mut(&(from, frame)) {
            *count -= 1;
            if *count == 0 {
                frames.pins.remove(&(from, frame));
            }
            drop(frames);
            return self.release(frame);
        }
        assert_eq!(self.world.home(frame), self.me);
        let holder = frames.used(frame, "is free").holder;
        let came = holder == Holder::Lent { to: from } || holder == Holder::Returning { from };
        assert!(came, "{frame:?} comes home from {from:?} but is {holder:?}");
        frames.free(frame, self.me);
    }

    fn take_all_home(&self, dead: KernelId) {
        if self.is_over() {
            return;
        }
        let (lent, pinned) = self.world.lock().had(dead, self.me);
        for frame in lent {
            self.world.lock().free(frame, self.me);
        }
        for (frame, count) in pinned {
            (0..count).for_each(|_| self.release(frame));
        }
    }

    fn accept_pin(&self, frame: Frame, by: KernelId) {
        assert_ne!(by, self.me, "what is held here needs no pin");
        let mut frames = self.world.lock();
        let holder = frames.used(frame, "is free").holder;
        assert!(matches!(holder, Holder::Held { by: at, .. } if at == by), "{frame:?} pinned by {by:?} but {holder:?}");
        let (count, _) = frames.pinned.entry((self.me, frame)).or_insert((0, by));
        *count += 1;
        if *count > 1 {
            frames.returning.entry((self.me, by)).or_default().push(frame);
        }
    }

    fn ledgers(&self) -> Option<&Ledgers> {
        Some(&self.ledgers)
    }

    fn tag(&self, frame: Frame) -> Tag {
        self.tags.lock().get(&frame).copied().unwrap_or_default()
    }

    fn set_tag(&self, frame: Frame, tag: Tag) {
        self.tags.lock().insert(frame, tag);
    }

    fn frames_to_return(&self, at_least: usize) -> Option<(KernelId, Vec<Frame>)> {
        let (total, free) = self.totals();
        if free > 2 * total / KEPT_FOR_OWN {
            let stock = self.world.lock().stock.remove(&self.me).unwrap_or_default();
            stock.into_iter().for_each(|frame| self.release(frame));
        }
        let mut frames = self.world.lock();
        let ready = frames
            .returning
            .iter()
            .find(|((from, _), list)| *from == self.me && !list.is_empty() && list.len() >= at_least)
            .map(|(key, _)| *key)?;
        frames.returning.remove(&ready).map(|list| (ready.1, list))
    }

    fn home_of(&self, frame: Frame) -> Option<KernelId> {
        Some(self.world.home(frame))
    }

    fn totals(&self) -> (u64, u64) {
        let all = self.world.per_kernel;
        (all, self.world.lock().free_of(self.me, all))
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let least = self.world.heaps.lock().get(&self.me).map_or(0, |heap| heap.least_free);
        self.totals().1 >= least + bytes as u64 / PAGE_SIZE as u64
    }

    fn is_short(&self) -> bool {
        self.world.heaps.lock().get(&self.me).is_some_and(|heap| heap.short)
    }

    fn relieved(&self) {
        if let Some(heap) = self.world.heaps.lock().get_mut(&self.me) {
            heap.short = false;
        }
    }

    fn copy(&self, from: Frame, to: Frame) {
        let mut frames = self.world.lock();
        let mut target = frames.used(to, "copied to while free").bytes.take().expect("no copy is under way");
        let source = frames.used(from, "copied while free").bytes.as_ref().expect("nobody copies a frame to itself");
        target.copy_from_slice(&source[..]);
        frames.used(to, "copied to while free").bytes = Some(target);
    }

    fn zero(&self, frame: Frame) {
        self.world.with_bytes(frame, |bytes| bytes.fill(0));
    }

    fn read(&self, frame: Frame, offset: usize, buf: &mut [u8]) {
        self.world.with_bytes(frame, |bytes| buf.copy_from_slice(&bytes[offset..offset + buf.len()]));
    }

    fn write(&self, frame: Frame, offset: usize, buf: &[u8]) {
        self.world.with_bytes(frame, |bytes| bytes[offset..offset + buf.len()].copy_from_slice(buf));
    }

    fn load_u32(&self, frame: Frame, offset: usize) -> u32 {
        let mut word = [0; 4];
        self.read(frame, offset, &mut word);
        u32::from_le_bytes(word)
    }

    fn compare_exchange_u32(&self, frame: Frame, offset: usize, old: u32, new: u32) -> Result<u32, u32> {
        match self.load_u32(frame, offset) {
            found if found == old => {
                self.write(frame, offset, &new.to_le_bytes());
                Ok(found)
            }
            found => Err(found),
        }
    }

    fn new_table(&self) -> Result<Arc<dyn PageTable>, NoMemory> {
        if self.world.full.load(Ordering::Relaxed) & 1 << self.me.index() != 0 {
            return Err(NoMemory);
        }
        let table = Arc::new(SimTable::new(self.world.clone(), self.me));
        self.world.tables.lock().push(Arc::downgrade(&table));
        Ok(table)
    }
}

//! Physical memory of the machine: who holds each frame, how often, and how many translations lead to it.
//!
//! It is stricter than hardware: whatever a kernel may not do with a frame panics here, above all freeing one
//! that some table or TLB still leads to (invariant 3 of the design).

use crate::{cluster::Shape, rng::Rng, table::SimTable};
use machine::{Frame, KernelId, Memory, NoMemory, PageTable, PAGE_SIZE};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, Weak},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Counted by a kernel.
    Held { by: KernelId, count: u32 },
    /// Given away by its home, not adopted (yet).
    Lent,
    /// Released by a kernel that is not its home, on its way back.
    Returning,
}

struct FrameState {
    holder: Holder,
    bytes: Box<[u8]>,
    /// Table and TLB entries that lead here, over all kernels.
    translations: usize,
}

#[derive(Default)]
struct Frames {
    /// Frames in use.
    used: HashMap<Frame, FrameState>,
    /// Next free ones by kernel: freed frames are reused at once, the hardest case.
    free: Vec<Vec<Frame>>,
    returning: BTreeMap<(KernelId, KernelId), Vec<Frame>>,
    /// Users of frames that another kernel holds and has pinned, by who uses them.
    pinned: BTreeMap<(KernelId, Frame), u32>,
}

/// The physical machine.
pub struct World {
    frames: Mutex<Frames>,
    per_kernel: u64,
    /// For audits.
    tables: Mutex<Vec<Weak<SimTable>>>,
    pub rng: Rng,
    /// CPUs of each kernel.
    pub cpus: usize,
    /// Page-table pages fail to be had now and then.
    pub scarce: bool,
}

impl World {
    pub fn new(shape: Shape) -> Arc<World> {
        let Shape { seed, kernels, cpus, frames: frames_per_kernel, scarce, .. } = shape;
        let range = |kernel: u64| (kernel * frames_per_kernel..(kernel + 1) * frames_per_kernel).rev();
        let free = (0..kernels as u64).map(|kernel| range(kernel).map(Frame).collect()).collect();
        let frames = Mutex::new(Frames { free, ..Frames::default() });
        let rng = Rng::new(seed);
        Arc::new(World { frames, per_kernel: frames_per_kernel, tables: Mutex::default(), rng, cpus, scarce })
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        // A panic is the verdict on a seed; what comes after it may still look.
        self.frames.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn home(&self, frame: Frame) -> KernelId {
        KernelId((frame.0 / self.per_kernel) as u16)
    }

    /// A table or TLB entry now leads to `frame`.
    pub fn translate(&self, frame: Frame) {
        let mut frames = self.lock();
        let state = frames.used.get_mut(&frame).unwrap_or_else(|| panic!("{frame:?} mapped while free"));
        state.translations += 1;
    }

    /// ...and one no longer does.
    pub fn untranslate(&self, frame: Frame) {
        let mut frames = self.lock();
        let state = frames.used.get_mut(&frame).unwrap_or_else(|| panic!("{frame:?} freed while mapped"));
        state.translations -= 1;
    }

    pub fn with_bytes<T>(&self, frame: Frame, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut frames = self.lock();
        let state = frames.used.get_mut(&frame).unwrap_or_else(|| panic!("{frame:?} used while free"));
        work(&mut state.bytes)
    }

    /// Frames in use, for the check that nothing leaked.
    pub fn used(&self) -> Vec<String> {
        let frames = self.lock();
        let mut used: Vec<_> = frames.used.iter().map(|(f, s)| (f.0, s.holder, s.translations)).collect();
        used.sort_by_key(|(frame, ..)| *frame);
        used.iter().map(|entry| format!("{entry:?}")).collect()
    }

    /// A TLB entry that no flush removed in time, of any table.
    pub fn stale(&self) -> Option<String> {
        let mut tables = self.tables.lock().expect("no panic while looking");
        tables.retain(|table| table.strong_count() > 0);
        tables.iter().filter_map(Weak::upgrade).find_map(|table| table.stale())
    }

    pub fn used_count(&self) -> usize {
        self.lock().used.len()
    }
}

impl Frames {
    fn state(&mut self, frame: Frame) -> &mut FrameState {
        self.used.get_mut(&frame).unwrap_or_else(|| panic!("{frame:?} is free"))
    }

    fn free(&mut self, frame: Frame, home: KernelId) {
        let state = self.used.remove(&frame).unwrap_or_else(|| panic!("{frame:?} freed twice"));
        assert_eq!(state.translations, 0, "{frame:?} freed while a table or TLB leads to it");
        self.free[home.index()].push(frame);
    }

    /// The count of `frame`, which `kernel` must hold, or have pinned.
    fn count(&mut self, frame: Frame, kernel: KernelId) -> &mut u32 {
        if let Some(count) = self.pinned.get_mut(&(kernel, frame)) {
            return count;
        }
        let state = self.used.get_mut(&frame).unwrap_or_else(|| panic!("{frame:?} is free"));
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
}

impl SimMemory {
    pub fn new(world: Arc<World>, me: KernelId) -> Arc<Self> {
        Arc::new(SimMemory { world, me })
    }
}

impl Memory for SimMemory {
    fn kernel(&self) -> KernelId {
        self.me
    }

    fn alloc(&self) -> Option<Frame> {
        let mut frames = self.world.lock();
        let frame = frames.free[self.me.index()].pop()?;
        let holder = Holder::Held { by: self.me, count: 1 };
        let bytes = vec![0; PAGE_SIZE].into_boxed_slice();
        frames.used.insert(frame, FrameState { holder, bytes, translations: 0 });
        Some(frame)
    }

    fn retain(&self, frame: Frame) {
        *self.world.lock().count(frame, self.me) += 1;
    }

    fn release(&self, frame: Frame) {
        let home = self.world.home(frame);
        let mut frames = self.world.lock();
        let count = frames.count(frame, self.me);
        *count -= 1;
        if *count > 0 {
            return;
        }
        if home == self.me {
            return frames.free(frame, home);
        }
        if frames.pinned.remove(&(self.me, frame)).is_some() {
            return frames.returning.entry((self.me, home)).or_default().push(frame);
        }
        let state = frames.state(frame);
        assert_eq!(state.translations, 0, "{frame:?} sent home while a table or TLB leads to it");
        state.holder = Holder::Returning;
        frames.returning.entry((self.me, home)).or_default().push(frame);
    }

    fn count(&self, frame: Frame) -> u32 {
        let mut frames = self.world.lock();
        match frames.state(frame).holder {
            Holder::Held { by, count } if by == self.me => count,
            _ => frames.pinned.get(&(self.me, frame)).copied().unwrap_or(0),
        }
    }

    fn adopt(&self, frame: Frame) {
        let mut frames = self.world.lock();
        let state = frames.state(frame);
        assert_eq!(state.holder, Holder::Lent, "{frame:?} adopted");
        state.holder = Holder::Held { by: self.me, count: 1 };
    }

    fn lend(&self, frame: Frame) {
        assert_eq!(self.world.home(frame), self.me, "only an own frame can be lent");
        let mut frames = self.world.lock();
        assert_eq!(*frames.count(frame, self.me), 1, "a lent frame has no other user");
        frames.state(frame).holder = Holder::Lent;
    }

    fn take_home(&self, frame: Frame) {
        assert_eq!(self.world.home(frame), self.me);
        let mut frames = self.world.lock();
        let holder = frames.state(frame).holder;
        if matches!(holder, Holder::Held { by, .. } if by == self.me) {
            // Pinned for another kernel until now.
            drop(frames);
            return self.release(frame);
        }
        assert!(matches!(holder, Holder::Lent | Holder::Returning), "{frame:?} comes home but is {holder:?}");
        frames.free(frame, self.me);
    }

    fn accept_pin(&self, frame: Frame) {
        let home = self.world.home(frame);
        assert_ne!(home, self.me, "an own frame needs no pin");
        let mut frames = self.world.lock();
        let holder = frames.state(frame).holder;
        assert!(matches!(holder, Holder::Held { by, .. } if by == home), "{frame:?} pinned but {holder:?}");
        let count = frames.pinned.entry((self.me, frame)).or_default();
        *count += 1;
        if *count > 1 {
            frames.returning.entry((self.me, home)).or_default().push(frame);
        }
    }

    fn frames_to_return(&self, at_least: usize) -> Option<(KernelId, Vec<Frame>)> {
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
        (self.world.per_kernel, self.world.lock().free[self.me.index()].len() as u64)
    }

    fn copy(&self, from: Frame, to: Frame) {
        let bytes = self.world.with_bytes(from, |bytes| bytes.to_vec());
        self.world.with_bytes(to, |target| target.copy_from_slice(&bytes));
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
        let table = Arc::new(SimTable::new(self.world.clone()));
        self.world.tables.lock().expect("no panic while adding").push(Arc::downgrade(&table));
        Ok(table)
    }
}

//! `machine::Memory` of one kernel: its own frames through the direct map, all others through windows.

use super::{
    hardware::{Hardware, Window},
    shootdown::{Cpus, Stay},
    table::Table,
    tree::Tree,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{any::Any, ops::Range};
use frames::{bytes, Foreign, OwnWords, Partition, Pins, Purpose};
use machine::{
    group::{Ledgers, Tag},
    Frame, KernelId, Memory, NoMemory, PageTable, Words, PAGE_BITS,
};

pub struct Setup<H> {
    pub kernel: KernelId,
    /// How often it was booted, this time included.
    pub boot_generation: u32,
    pub partition: &'static Partition,
    /// The memory of every kernel by the plan, booted or not: physical byte addresses.
    pub homes: Vec<(Range<u64>, KernelId)>,
    pub hardware: H,
}

/// What the memory and its tables share, for as long as the kernel runs.
pub(super) struct Shared<H> {
    kernel: KernelId,
    boot_generation: u32,
    partition: &'static Partition,
    foreign: Foreign,
    pins: Pins,
    ledgers: Ledgers,
    /// Ascending by address.
    homes: Vec<(Range<u64>, KernelId)>,
    pub cpus: Cpus<H>,
}

impl<H: Hardware> Shared<H> {
    /// `access` to the bytes of any frame, by the direct map or through `window`.
    pub(super) fn with<T>(&self, frame: Frame, window: Window, access: impl FnOnce(*mut u8) -> T) -> T {
        if self.partition.contains(frame) {
            return access(self.partition.pointer(frame).as_ptr());
        }
        let hardware = &self.cpus.hardware;
        let result = access(hardware.open_window(window, frame));
        hardware.close_window(window);
        result
    }
}

pub struct PartitionMemory<H: Hardware>(&'static Shared<H>);

impl<H: Hardware> Clone for PartitionMemory<H> {
    fn clone(&self) -> Self {
        PartitionMemory(self.0)
    }
}

impl<H: Hardware> PartitionMemory<H> {
    pub fn start(setup: Setup<H>) -> Self {
        let Setup { kernel, boot_generation, partition, mut homes, hardware } = setup;
        homes.sort_by_key(|(range, _)| range.start);
        let cpus = Cpus::new(hardware);
        // Never freed: a kernel has one memory, and it ends with the kernel.
        PartitionMemory(Box::leak(Box::new(Shared {
            kernel,
            boot_generation,
            partition,
            foreign: Foreign::default(),
            pins: Pins::default(),
            ledgers: Ledgers::default(),
            homes,
            cpus,
        })))
    }

    pub fn partition(&self) -> &'static Partition {
        self.0.partition
    }

    /// Frames of others held here; the task that sends unused ones home drains it.
    pub fn foreign(&self) -> &'static Foreign {
        &self.0.foreign
    }

    /// Just before user mode, with interrupts off: loads `table`, which [`Memory::new_table`] of this
    /// kernel made, with nothing stale in the TLB, and tells flushing CPUs that it is in use.
    pub fn enter_user(&self, table: &dyn PageTable) {
        let table: &dyn Any = table;
        match table.downcast_ref::<Table<H>>() {
            Some(table) => self.0.cpus.enter(&table.space, Stay::User),
            None => panic!("user code can't run on a page table of another machine"),
        }
    }

    /// First thing after user mode: flushing CPUs may be waiting for it.
    pub fn leave_user(&self) {
        self.0.cpus.leave();
    }

    /// Before this CPU halts.
    pub fn idle(&self) {
        self.0.cpus.idle();
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn hardware(&self) -> &'static H {
        &self.0.cpus.hardware
    }

    /// Own frames are counted in the partition, but for those that are lent: such a one may be pinned for us by who has it now.
    /// Which it is does not change while somebody here uses it.
    fn counts_itself(&self, frame: Frame) -> bool {
        self.0.partition.counts(frame)
    }

    fn foreign_home(&self, frame: Frame) -> KernelId {
        match self.home_of(frame) {
            Some(home) => home,
            None => panic!("{frame:?} is no RAM of any kernel"),
        }
    }
}

impl<H: Hardware> Memory for PartitionMemory<H> {
    fn kernel(&self) -> KernelId {
        self.0.kernel
    }

    fn boot_generation(&self) -> u32 {
        self.0.boot_generation
    }

    fn alloc(&self) -> Option<Frame> {
        self.0.partition.alloc_for(Purpose::User)
    }

    fn alloc_anywhere(&self) -> Option<Frame> {
        self.alloc_spare().or_else(|| self.0.foreign.take_stock())
    }

    fn alloc_spare(&self) -> Option<Frame> {
        self.0.partition.alloc_for(Purpose::Anywhere)
    }

    fn stock(&self, frames: &[Frame]) {
        self.0.foreign.stock(frames, |frame| self.foreign_home(frame));
    }

    fn stocked(&self) -> Vec<Frame> {
        self.0.foreign.stocked()
    }

    fn forget(&self, kernel: KernelId) {
        self.foreign().forget(kernel, |frame| self.home_of(frame) == Some(kernel));
    }

    fn is_lost(&self, frame: Frame) -> bool {
        !self.counts_itself(frame) && self.0.foreign.is_lost(frame)
    }

    fn retain(&self, frame: Frame) {
        match self.counts_itself(frame) {
            true => self.0.partition.retain(frame),
            false => self.0.foreign.retain(frame),
        }
    }

    fn release(&self, frame: Frame) {
        let tag = match self.counts_itself(frame) {
            true => self.0.partition.release_charged(frame),
            false => self.0.foreign.release_charged(frame),
        };
        self.0.ledgers.uncharge(tag);
    }

    fn ledgers(&self) -> Option<&Ledgers> {
        Some(&self.0.ledgers)
    }

    fn tag(&self, frame: Frame) -> Tag {
        match self.counts_itself(frame) {
            true => self.0.partition.tag(frame),
            false => self.0.foreign.tag(frame),
        }
    }

    fn set_tag(&self, frame: Frame, tag: Tag) {
        match self.counts_itself(frame) {
            true => self.0.partition.set_tag(frame, tag),
            false => self.0.foreign.set_tag(frame, tag),
        }
    }

    fn count(&self, frame: Frame) -> u32 {
        match self.counts_itself(frame) {
            true => self.0.partition.count(frame),
            false => self.0.foreign.count(frame),
        }
    }

    fn adopt(&self, frame: Frame) {
        match self.0.partition.contains(frame) {
            true => self.0.partition.adopt(frame),
            false => self.0.foreign.adopt(frame, self.foreign_home(frame)),
        }
    }

    fn lend(&self, frame: Frame, to: KernelId) {
        // Who counts it charges it.
        self.0.ledgers.uncharge(self.0.partition.tag(frame));
        self.0.partition.set_tag(frame, Tag::NONE);
        self.0.partition.lend(frame, to);
    }

    fn pin(&self, frame: Frame, to: KernelId) {
        self.0.pins.give(frame, to);
    }

    fn accept_pin(&self, frame: Frame, by: KernelId) {
        self.0.foreign.accept_pin(frame, by);
    }

    fn pinned_by(&self, frame: Frame) -> Option<KernelId> {
        if self.counts_itself(frame) {
            return None;
        }
        self.0.foreign.pinned_by(frame)
    }

    fn take_home(&self, frame: Frame, from: KernelId) {
        if self.0.pins.come_home(frame, from) {
            return self.release(frame);
        }
        if let Err(error) = self.0.partition.take_home(frame, from) {
            log::error!("kernel {from} returned a frame that it can't have: {error:?}");
        }
    }

    fn take_all_home(&self, dead: KernelId) {
        for (frame, count) in self.0.pins.take(dead) {
            (0..count).for_each(|_| self.release(frame));
        }
        self.0.partition.take_all_home(dead);
    }

    fn frames_to_return(&self, at_least: usize) -> Option<(KernelId, Vec<Frame>)> {
        let foreign = self.foreign();
        if foreign.has_stock() && self.0.partition.has_plenty() {
            while let Some(frame) = foreign.take_stock() {
                foreign.release(frame);
            }
        }
        if foreign.waiting() < at_least.max(1) {
            return None;
        }
        let home = foreign.home_to_serve()?;
        let frames = foreign.drain_returns(home);
        // Another CPU may have been faster.
        (!frames.is_empty()).then_some((home, frames))
    }

    fn home_of(&self, frame: Frame) -> Option<KernelId> {
        let at = frame.0.checked_mul(1 << PAGE_BITS)?;
        let after = self.0.homes.partition_point(|(range, _)| range.start <= at);
        let (range, kernel) = self.0.homes.get(after.checked_sub(1)?)?;
        range.contains(&at).then_some(*kernel)
    }

    fn totals(&self) -> (u64, u64) {
        self.0.partition.totals()
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.0.partition.admits(Purpose::Table, bytes >> PAGE_BITS)
    }

    fn is_short(&self) -> bool {
        self.0.partition.is_short()
    }

    fn relieved(&self) {
        self.0.partition.relieved();
    }

    fn copy(&self, from: Frame, to: Frame) {
        self.0.with(from, Window::Source, |from| {
            // SAFETY: `with` maps a page each.
            self.0.with(to, Window::Target, |to| unsafe { bytes::copy(from, to) })
        });
    }

    fn zero(&self, frame: Frame) {
        // SAFETY: `with` maps a page, here and below.
        self.0.with(frame, Window::Target, |page| unsafe { bytes::zero(page) });
    }

    fn read(&self, frame: Frame, offset: usize, buf: &mut [u8]) {
        // SAFETY: as above.
        self.0.with(frame, Window::Source, |page| unsafe { bytes::read(page, offset, buf) });
    }

    fn write(&self, frame: Frame, offset: usize, buf: &[u8]) {
        // SAFETY: as above.
        self.0.with(frame, Window::Target, |page| unsafe { bytes::write(page, offset, buf) });
    }

    fn load_u32(&self, frame: Frame, offset: usize) -> u32 {
        // SAFETY: as above.
        self.0.with(frame, Window::Source, |page| unsafe { bytes::load_u32(page, offset) })
    }

    fn compare_exchange_u32(&self, frame: Frame, offset: usize, old: u32, new: u32) -> Result<u32, u32> {
        // SAFETY: as above.
        self.0.with(frame, Window::Target, |page| unsafe { bytes::compare_exchange_u32(page, offset, old, new) })
    }

    fn words(&self, frame: Frame) -> Option<Box<dyn Words>> {
        self.counts_itself(frame).then(|| Box::new(OwnWords::new(self.0.partition, frame)) as Box<dyn Words>)
    }

    fn new_table(&self) -> Result<Arc<dyn PageTable>, NoMemory> {
        let tree = Tree::new(self.0.partition, self.0.cpus.hardware.kernel_root())?;
        Ok(Arc::new(Table { shared: self.0, space: self.0.cpus.new_space(tree) }))
    }
}

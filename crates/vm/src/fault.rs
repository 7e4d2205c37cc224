//! Page faults at the owner of the page.
//!
//! [`Space::resolve`] is one step under the state lock: it ends the fault, or says what has to be waited
//! for. After the wait everything is looked at afresh, so nothing that happened meanwhile can be missed, and
//! of several faults on one page the first makes the frame and the others find it.
//!
//! The same step serves faults of other kernels (`export`), with two differences. Before another kernel gets a
//! copy-on-write page of a region that may be written, the owner makes the copy: who reads such a page mostly writes it soon. And a page that
//! does not exist yet is made of a frame that the other kernel offers. A page of a file that nobody wrote stays the file's, and memory that was only
//! read is the page of zeros everywhere.

use crate::{
    region::Region,
    relief::Missing,
    space::{Ranges, Space, State},
    withdraw::Withdrawal,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use fs::{Object, ReadAhead};
use machine::{
    group::{ChargedPage, PageKind},
    Access, CountedFrame, Errno, Frame, KernelId, Mapping, Page, PageRange, Soft, Step, UserAddr,
};
use messages::vm::Fault;

/// The marks of an anonymous page that a thread has touched. A page that was made ahead lacks them until then, and mincore tells the two
/// apart by them.
pub(crate) const TOUCHED: Soft = Soft::ACCESSED.union(Soft::DIRTY);

/// File pages mapped along with the one that was touched, if they are in memory: an aligned block.
const AROUND: u64 = 16;

/// A fault under way at the owner. It borrows the memory that the frame it waited for is of.
pub(crate) struct Demand<'m> {
    pub page: Page,
    pub access: Access,
    /// Whether another kernel asks.
    pub export: bool,
    /// The access comes through /proc/PID/mem: what the region allows the program does not matter (force.rs).
    pub forced: bool,
    /// Zeroed frames that the asking kernel offers, last first; and how many were taken.
    pub offers: Vec<Frame>,
    pub adopted: u16,
    /// The kernel that offers them, and its boot generation: frames of a dead kernel are not taken (death.rs).
    giver: Option<(KernelId, Option<u32>)>,
    /// The fault starts nothing that would have to be waited for, and makes no page that has not been touched: it ends as Busy instead.
    at_once: bool,
    /// No other kernel has memory to spare, so the fault may take from what this kernel keeps free.
    to_the_last: bool,
    /// A page of an object that was waited for.
    fetched: Option<Fetched<'m>>,
    /// True while one is waited for.
    fetches: Option<&'m AtomicBool>,
}

struct Fetched<'m> {
    object: Arc<dyn Object>,
    index: u64,
    frame: CountedFrame<'m>,
    /// [`Object::losses`] before it was asked for: if there have been more, this frame may be dead.
    losses: u64,
}

impl Fetched<'_> {
    fn is(&self, object: &Arc<dyn Object>, index: u64) -> bool {
        self.object.id() == object.id() && self.index == index && object.losses() == self.losses
    }
}

impl Demand<'_> {
    pub fn local(page: Page, access: Access) -> Self {
        Demand {
            page,
            access,
            export: false,
            forced: false,
            offers: Vec::new(),
            adopted: 0,
            giver: None,
            at_once: false,
            to_the_last: false,
            fetched: None,
            fetches: None,
        }
    }

    pub fn forced(page: Page, access: Access) -> Self {
        Demand { forced: true, ..Self::local(page, access) }
    }

    /// `boot_generation`: that of `from`, when its question came.
    pub fn remote(
        page: Page,
        access: Access,
        mut offers: Vec<Frame>,
        from: KernelId,
        boot_generation: Option<u32>,
    ) -> Self {
        offers.reverse();
        Demand { export: true, offers, giver: Some((from, boot_generation)), ..Self::local(page, access) }
    }

    fn note_fetch(&self, begins: bool) {
        if let Some(fetches) = self.fetches {
            fetches.store(begins, Relaxed);
        }
    }

    /// A demand of another kernel for pages that exist already.
    pub fn at_once(page: Page, access: Access) -> Self {
        Demand { export: true, at_once: true, ..Self::local(page, access) }
    }
}

/// The state of a fault after a step: resolved, failed, or what it must wait for.
pub(crate) enum Resolution {
    Mapped,
    Failed(Fault),
    /// There is no free frame.
    NoRoom(Missing),
    /// A change has the page: wait for `changed`.
    Busy,
    /// Another kernel owns it.
    Foreign(KernelId),
    /// The page is of an object and not in memory.
    Fetch(Arc<dyn Object>, u64, ReadAhead),
    /// The page is of an object, other kernels have copies of it, and it is to be written.
    TakeBack(Arc<dyn Object>, u64),
    /// A copy must be made of a page other kernels can read: they give it back first.
    Withdraw(Withdrawal),
    /// Pages of zeros in this range are about to be replaced: kernels that can read them give them back first.
    WithdrawZeros(Withdrawal, PageRange),
}

use Resolution::{Failed, Mapped, NoRoom};

impl Space {
    /// Resolves a fault of a thread of this kernel.
    pub async fn fault(self: &Arc<Self>, at: UserAddr, access: Access) -> Result<(), Fault> {
        self.fault_noting(at, access, None).await
    }

    /// The same. `fetches` is true while a page of an object is waited for.
    pub async fn fault_noting(
        self: &Arc<Self>,
        at: UserAddr,
        access: Access,
        fetches: Option<&AtomicBool>,
    ) -> Result<(), Fault> {
        if at.0 >= machine::USER_END {
            return Err(Fault::NotMapped);
        }
        let mut demand = Demand { fetches, ..Demand::local(at.page(), access) };
        match self.resolve_fully(&mut demand).await {
            Mapped => Ok(()),
            Failed(fault) => Err(fault),
            _ => Box::pin(self.fault_remote(at.page(), access)).await,
        }
    }

    /// Resolves until mapped, failed or foreign.
    pub(crate) async fn resolve_fully<'m>(self: &'m Arc<Self>, demand: &mut Demand<'m>) -> Resolution {
        let mut attempts = 0;
        loop {
            let step = {
                let mut state = self.state.lock();
                self.resolve(&mut state, demand)
            };
            // If the step did not use it, it was not the page that is wanted now.
            demand.fetched = None;
            match step {
                Resolution::Busy => {
                    let page = demand.page;
                    self.changed.wait_until(|| (!self.state.lock().is_busy(PageRange::one(page))).then_some(())).await;
                }
                Resolution::Fetch(object, index, read_ahead) => {
                    let losses = object.losses();
                    demand.note_fetch(true);
                    let fetched = object.page_advised(index, read_ahead).await.map(|frame| frame.by(&*self.vm.memory));
                    demand.note_fetch(false);
                    match fetched {
                        Ok(frame) => demand.fetched = Some(Fetched { object, index, frame, losses }),
                        Err(Errno::ENOMEM) if self.try_again(Missing::Own, &mut attempts).await => {}
                        // Its group may have no more (EDQUOT).
                        Err(Errno::ENOMEM | Errno::EDQUOT) => return Failed(Fault::NoMemory),
                        Err(_) => return Failed(Fault::PastEnd),
                    }
                }
                Resolution::TakeBack(object, index) => {
                    if object.take_back(index).await.is_err() {
                        return Failed(Fault::PastEnd);
                    }
                }
                Resolution::Withdraw(withdrawal) => {
                    let page = demand.page;
                    self.settle_then(None, withdrawal, move |space| space.not_exported(page)).await;
                }
                Resolution::WithdrawZeros(withdrawal, range) => {
                    self.settle_then(None, withdrawal, move |space| space.zeros_given_back(range)).await;
                }
                NoRoom(Missing::Anywhere) if !demand.to_the_last => {
                    demand.to_the_last = !Box::pin(self.vm.borrow(false)).await;
                }
                NoRoom(missing) => match self.try_again(missing, &mut attempts).await {
                    true => {}
                    false => return Failed(Fault::NoMemory),
                },
                end => return end,
            }
        }
    }

    /// Frees memory after a step has found no free frame. False: there is nothing left to free.
    pub(crate) async fn try_again(&self, missing: Missing, attempts: &mut usize) -> bool {
        *attempts += 1;
        *attempts <= crate::relief::ATTEMPTS && Box::pin(self.vm.make_room(self.id, missing)).await
    }

    /// All kernels that could read a page, which was kept busy meanwhile, have given it back.
    fn not_exported(&self, page: Page) {
        let mut state = self.state.lock();
        state.exports.remove(PageRange::one(page));
        self.clear_exported(page);
        drop(state);
        self.not_busy(PageRange::one(page));
    }

    /// All kernels that could read pages of zeros in a range, which was kept busy meanwhile, have given them back. A change may have unmapped some.
    fn zeros_given_back(&self, range: PageRange) {
        let mut state = self.state.lock();
        let mut given_back = Ranges::default();
        self.table.walk(range, &mut |page, mapping| {
            if !self.is_own_zero(&mapping) || !mapping.soft.contains(Soft::EXPORTED) {
                return Step::Keep;
            }
            given_back.add(PageRange::one(page));
            Step::Remove
        });
        self.table.flush(range);
        for range in given_back.iter() {
            state.exports.remove(range);
            // Their entries' counts.
            range.pages().for_each(|_| self.vm.memory.release(self.vm.zero));
        }
        drop(state);
        self.not_busy(range);
    }

    /// Maps this kernel's page of zeros at a page that it owns.
    fn is_own_zero(&self, mapping: &Mapping) -> bool {
        mapping.frame == self.vm.zero && !mapping.soft.contains(Soft::BORROWED)
    }

    pub(crate) fn clear_exported(&self, page: Page) {
        if let Some(mapping) = self.table.get(page).filter(|mapping| mapping.soft.contains(Soft::EXPORTED)) {
            // In place, so it can't fail.
            let _ = self.table.set(page, Mapping { soft: mapping.soft - Soft::EXPORTED, ..mapping });
        }
    }

    pub(crate) fn not_busy(&self, range: PageRange) {
        let mut state = self.state.lock();
        if let Some(position) = state.busy.iter().position(|busy| *busy == range) {
            state.busy.swap_remove(position);
        }
        drop(state);
        self.changed.wake_all();
    }

    /// Takes one step of a fault; see the head of this file.
    pub(crate) fn resolve(&self, state: &mut State, demand: &mut Demand<'_>) -> Resolution {
        if state.gone {
            return Failed(Fault::NotMapped);
        }
        let page = demand.page;
        let owner = self.owner(state, page);
        if owner != self.me() {
            return match self.table.get(page) {
                Some(mapping) if mapping.access.contains(demand.access) => Mapped,
                _ => Resolution::Foreign(owner),
            };
        }
        if state.is_busy(PageRange::one(page)) {
            return Resolution::Busy;
        }
        if !demand.export {
            state.faults.local += 1;
        }
        // A stack grows for its program only.
        let region = match demand.forced {
            true => state.regions.find(page).cloned(),
            false => state.region_for_fault(page, self.me(), self.id.home),
        };
        let Some(region) = region else { return Failed(Fault::NotMapped) };
        let allowed = match demand.forced {
            true => region.can_be_forced(demand.access),
            false => region.access().contains(demand.access),
        };
        if !allowed {
            return Failed(Fault::Denied);
        }
        match self.table.get(page) {
            Some(mapping) => self.resolve_present(state, demand, &region, mapping),
            None => match &region.backing {
                None => self.resolve_new(state, demand, &region),
                Some(_) => self.resolve_object(demand, &region),
            },
        }
    }

    fn resolve_present(
        &self,
        state: &mut State,
        demand: &mut Demand<'_>,
        region: &Region,
        mapping: Mapping,
    ) -> Resolution {
        let page = demand.page;
        let full = region.access();
        if mapping.soft.contains(Soft::COW) {
            if demand.access.contains(Access::WRITE) || demand.export && self.copied_first(region, mapping, 1) {
                return self.copy_on_write(state, demand, full, mapping);
            }
            return self.put(page, Mapping { access: full - Access::WRITE, ..mapping });
        }
        if mapping.soft.contains(Soft::CACHE) && !mapping.access.contains(Access::WRITE) {
            // The first write through a shared mapping makes the object's page dirty.
            if !demand.access.contains(Access::WRITE) {
                return self.put(page, Mapping { access: full - Access::WRITE, ..mapping });
            }
            if let Some((backing, index)) = region.object_page(page) {
                if !backing.object.write(index) {
                    return Resolution::TakeBack(backing.object.clone(), index);
                }
            }
        }
        let touched = if region.backing.is_none() { TOUCHED } else { Soft::empty() };
        self.put(page, Mapping { access: full, soft: mapping.soft | touched, ..mapping })
    }

    /// Whether a copy of a copy-on-write page must be made before another kernel can have it.
    pub(crate) fn copied_first(&self, region: &Region, mapping: Mapping, pages: u64) -> bool {
        if pages == 1 && mapping.frame == self.vm.zero {
            return false;
        }
        let anonymous = !mapping.soft.contains(Soft::CACHE);
        mapping.frame.row(pages).any(|frame| frame == self.vm.zero)
            || anonymous && region.access().contains(Access::WRITE)
    }

    fn put(&self, page: Page, mapping: Mapping) -> Resolution {
        match self.table.set(page, mapping) {
            Ok(_) => Mapped,
            Err(_) => NoRoom(Missing::Own),
        }
    }

    /// Makes a page of anonymous memory that does not exist yet.
    fn resolve_new(&self, state: &mut State, demand: &mut Demand<'_>, region: &Region) -> Resolution {
        if demand.at_once {
            return Resolution::Busy;
        }
        let full = region.access();
        if !demand.access.contains(Access::WRITE) {
            return self.put_zero(demand.page, region);
        }
        let frame = match self.new_frame(demand) {
            Ok(frame) => frame,
            Err(missing) => return NoRoom(missing),
        };
        let result = self.put_counted(demand.page, frame, full, TOUCHED);
        if !demand.export && matches!(result, Mapped) {
            self.make_ahead(state, demand.page, region);
        }
        result
    }

    pub(crate) fn put_zero(&self, page: Page, region: &Region) -> Resolution {
        let zero = CountedFrame::retain(&*self.vm.memory, self.vm.zero);
        self.put_counted(page, zero, region.access() - Access::WRITE, Soft::COW)
    }

    /// Makes pages behind one that was touched for the first time, if it is one of a row (ahead.rs), as far as there is memory to spare.
    fn make_ahead(&self, state: &mut State, page: Page, region: &Region) {
        let pages = state.ahead.after(page);
        let wanted = PageRange::new(page.add(1), page.add(1 + pages)).intersect(region.range);
        if wanted.is_empty() || state.is_busy(wanted) {
            return;
        }
        if state.slices.sole_owner(wanted, self.id.home) != Some(self.me()) {
            return;
        }
        let mut free = wanted;
        self.table.walk_runs(wanted, 1, &mut |mapped, _| {
            free.end = mapped.start;
            Step::Stop
        });
        let payer = self.vm.spawner.payer();
        for near in free.pages() {
            let Ok(page) = ChargedPage::new(&*self.vm.memory, payer, PageKind::Anonymous) else { return };
            let Some(frame) = self.vm.memory.alloc_spare() else { return };
            page.put_on(frame);
            let frame = self.counted(frame);
            if !matches!(self.put_counted(near, frame, region.access(), Soft::empty()), Mapped) {
                return;
            }
            state.ahead.made(1);
        }
    }

    /// A zeroed frame: one that was offered, or our own. It is charged to the control group of whoever wants it.
    pub(crate) fn new_frame(&self, demand: &mut Demand<'_>) -> Result<CountedFrame<'_>, Missing> {
        let page = self.vm.charge(PageKind::Anonymous)?;
        // Under the lock of `state`, as who looks for frames of the dead: it finds what was taken before (death.rs).
        let is_dead = |(kernel, generation): (KernelId, Option<u32>)| {
            generation.is_none() || self.vm.endpoint.boot_generation(kernel) != generation
        };
        if !demand.offers.is_empty() && demand.giver.is_some_and(is_dead) {
            demand.offers.clear();
        }
        let memory = &*self.vm.memory;
        let frame = match demand.offers.pop() {
            Some(frame) => {
                demand.adopted += 1;
                memory.adopt(frame);
                Some(frame)
            }
            None if demand.to_the_last => memory.alloc_anywhere().or_else(|| memory.alloc()),
            None => memory.alloc_anywhere(),
        };
        let frame = frame.ok_or(Missing::Anywhere)?;
        page.put_on(frame);
        Ok(self.counted(frame))
    }

    fn counted(&self, frame: Frame) -> CountedFrame<'_> {
        CountedFrame::from_raw(&*self.vm.memory, frame)
    }

    /// Maps `page` to `frame`, whose count becomes the entry's: whoever takes the entry out releases it (withdraw.rs).
    pub(crate) fn put_counted(&self, page: Page, frame: CountedFrame<'_>, access: Access, soft: Soft) -> Resolution {
        let result = self.put(page, Mapping { frame: frame.frame(), access, soft });
        if matches!(result, Mapped) {
            frame.into_raw();
        }
        result
    }

    /// Maps a page of a file or other object that is not mapped here yet.
    fn resolve_object(&self, demand: &mut Demand<'_>, region: &Region) -> Resolution {
        let Some((backing, index)) = region.object_page(demand.page) else { return Failed(Fault::NotMapped) };
        let object = &backing.object;
        if index >= object.size().div_ceil(machine::PAGE_SIZE as u64) {
            return Failed(Fault::PastEnd);
        }
        let fetched = match demand.fetched.take() {
            Some(fetched) if fetched.is(object, index) => Some(fetched.frame),
            other => {
                demand.fetched = other;
                object.resident(index)
            }
        };
        let Some(frame) = fetched else { return Resolution::Fetch(object.clone(), index, region.read_ahead()) };
        let (full, writing) = (region.access(), demand.access.contains(Access::WRITE));
        if region.is_shared() {
            if writing && !object.write(index) {
                return Resolution::TakeBack(object.clone(), index);
            }
            let access = if writing { full } else { full - Access::WRITE };
            let result = self.put_counted(demand.page, frame, access, Soft::CACHE);
            // Who writes needs each page's own leave.
            if !demand.export && !writing {
                self.map_around(demand.page, region);
            }
            return result;
        }
        if writing {
            let copy = match self.new_frame(demand) {
                Ok(copy) => copy,
                Err(missing) => return NoRoom(missing),
            };
            self.vm.memory.copy(frame.frame(), copy.frame());
            return self.put_counted(demand.page, copy, full, Soft::empty());
        }
        let result = self.put_counted(demand.page, frame, full - Access::WRITE, Soft::CACHE | Soft::COW);
        self.map_around(demand.page, region);
        result
    }

    /// Maps neighbours of `page` that are in memory and not mapped yet, for reading.
    fn map_around(&self, page: Page, region: &Region) {
        let start = Page(page.0 & !(AROUND - 1));
        let block = region.range.intersect(PageRange::new(start, start.add(AROUND)));
        let shared = region.is_shared();
        let soft = if shared { Soft::CACHE } else { Soft::CACHE | Soft::COW };
        for near in block.pages().filter(|near| *near != page && self.table.get(*near).is_none()) {
            let Some((backing, index)) = region.object_page(near) else { return };
            if index >= backing.object.size().div_ceil(machine::PAGE_SIZE as u64) {
                return;
            }
            let Some(frame) = backing.object.resident(index) else { continue };
            if !matches!(self.put_counted(near, frame, region.access() - Access::WRITE, soft), Mapped) {
                return;
            }
        }
    }

    /// Makes the page this space's own. If other kernels can read the shared frame, they give it back
    /// first: else they would go on reading what is no longer this page. Until they have, the page stays exported:
    /// a change that takes it away meanwhile must ask them too, or it would release the frame under them.
    fn copy_on_write(&self, state: &mut State, demand: &mut Demand<'_>, full: Access, mapping: Mapping) -> Resolution {
        let page = demand.page;
        let exported = mapping.soft.contains(Soft::EXPORTED);
        if demand.at_once && (exported || mapping.frame == self.vm.zero) {
            return Resolution::Busy;
        }
        if mapping.frame == self.vm.zero && (exported || demand.export) {
            return self.take_zeros(state, demand);
        }
        if exported {
            let mut withdrawal = Withdrawal::new();
            withdrawal.narrow(state, PageRange::one(page));
            state.busy.push(PageRange::one(page));
            return Resolution::Withdraw(withdrawal);
        }
        let memory = &self.vm.memory;
        if !mapping.soft.contains(Soft::CACHE) && memory.count(mapping.frame) == 1 {
            return self.put(page, Mapping { frame: mapping.frame, access: full, soft: TOUCHED });
        }
        let copy = match self.new_frame(demand) {
            Ok(copy) => copy,
            Err(missing) => return NoRoom(missing),
        };
        if mapping.frame != self.vm.zero {
            memory.copy(mapping.frame, copy.frame());
        }
        // An entry is replaced in place: no table page is needed, so this can't fail.
        let result = self.put_counted(page, copy, full, TOUCHED);
        self.table.flush(PageRange::one(page));
        // The old entry's count.
        memory.release(mapping.frame);
        result
    }

    /// Takes pages of zeros out of the table that are about to be written: this one, and as many behind it as a row may fill.
    /// Those that other kernels can read stay until they are given back, for the same reason.
    fn take_zeros(&self, state: &mut State, demand: &Demand<'_>) -> Resolution {
        let more = if demand.export { demand.offers.len() as u64 } else { AROUND };
        let mut range = PageRange::new(demand.page, demand.page.add(more.max(1)));
        if state.is_busy(range) {
            range = PageRange::one(demand.page);
        }
        let mut withdrawal = Withdrawal::new();
        let (mut own, mut shared) = (0, Ranges::default());
        self.table.walk(range, &mut |page, mapping| {
            if !self.is_own_zero(&mapping) {
                return Step::Keep;
            }
            if mapping.soft.contains(Soft::EXPORTED) {
                shared.add(PageRange::one(page));
                return Step::Keep;
            }
            own += 1;
            Step::Remove
        });
        self.table.flush(range);
        // Their entries' counts.
        (0..own).for_each(|_| self.vm.memory.release(self.vm.zero));
        shared.iter().for_each(|range| withdrawal.narrow(state, range));
        state.busy.push(range);
        Resolution::WithdrawZeros(withdrawal, range)
    }
}

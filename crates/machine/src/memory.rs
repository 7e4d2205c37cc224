//! Physical memory of a partition, and the page table of one replica of an address space.

use crate::{
    group::{Ledgers, Tag},
    Access, Frame, KernelId, Page, PageRange, UserAddr,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use serde::{Deserialize, Serialize};

/// Words of a frame that was found once for all, by [`Memory::words`]. They keep the frame.
pub trait Words: Send + Sync {
    /// The aligned word at byte `offset`.
    fn load(&self, offset: usize) -> u32;
    /// Adds to it in one step, modulo 2^32; the sum.
    fn add(&self, offset: usize, value: u32) -> u32;
}

/// No frame is left in this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

bitflags::bitflags! {
    /// What the owner of an address keeps in a page-table entry beside the hardware's bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Soft: u16 {
        /// Shared copy-on-write with another space: a write must copy first.
        const COW = 1 << 0;
        /// Mapped by at least one other kernel too (the exact set is in the owner's export table).
        const EXPORTED = 1 << 1;
        /// The frame belongs to a file's page cache (or shared memory object), not to this space.
        const CACHE = 1 << 2;
        /// Used through this table since the bit was last cleared (hardware sets it).
        const ACCESSED = 1 << 3;
        /// Written through this table since the bit was last cleared (hardware sets it).
        const DIRTY = 1 << 4;
        /// Kept in memory by `mlock`.
        const LOCKED = 1 << 5;
        /// Installed here as a borrower: another kernel owns the page.
        const BORROWED = 1 << 6;
    }
}

/// One present page of a replica. `access` empty is a page that is kept but may not be touched
/// (`PROT_NONE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The frame that the page is mapped to.
    pub frame: Frame,
    /// What the table allows.
    pub access: Access,
    /// What the owner of the address keeps with it.
    pub soft: Soft,
}

/// What a visitor of [`PageTable::walk`] wants done with the entry it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It stays as it is.
    Keep,
    /// It becomes this.
    Replace(Mapping),
    /// The page is mapped no more.
    Remove,
    /// Keep it, and look no further.
    Stop,
}

/// An access to user memory met a page that the table does not allow. Resolve the fault for `at`,
/// then try again from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFault {
    /// Where the access met the page.
    pub at: UserAddr,
    /// What was tried.
    pub access: Access,
}

/// The physical memory of this kernel's partition, and frames of others reached through windows.
///
/// Frames handed out have a reference count of one. Counts are kept by the kernel that *holds* the
/// frame (has it in a page it owns, or in a cache), which may differ from the one whose partition it
/// lies in: counts of foreign frames live in a side table of the holder, and the last release sends
/// the frame home.
pub trait Memory: Send + Sync {
    /// This kernel.
    fn kernel(&self) -> KernelId;
    /// How often this kernel has been booted. Names that it gave before it died must not name other things
    /// after it is booted again ([`Serials`](crate::Serials)). Most kernels on the host are booted once.
    fn boot_generation(&self) -> u32 {
        1
    }
    /// A zeroed frame of this partition with a count of one.
    fn alloc(&self) -> Option<Frame>;
    /// The same for a page that may as well lie in another kernel's memory: of this partition while it has plenty, else
    /// of the stock.
    fn alloc_anywhere(&self) -> Option<Frame> {
        self.alloc()
    }
    /// A zeroed frame of this partition to give to another kernel, while there is plenty here.
    fn alloc_spare(&self) -> Option<Frame> {
        self.alloc()
    }
    /// Zeroed frames that another kernel gave away for us to use, until somebody needs one. They go home when there is
    /// plenty here again.
    fn stock(&self, frames: &[Frame]) {
        frames.iter().for_each(|frame| {
            self.adopt(*frame);
            self.release(*frame);
        });
    }
    /// Those that nobody has needed so far.
    fn stocked(&self) -> Vec<Frame> {
        Vec::new()
    }
    /// `kernel` is no more: what is in stock of its frames is not used, and what is in use here of its frames, or because it pinned
    /// them, goes nowhere in the end.
    fn forget(&self, _kernel: KernelId) {}
    /// Whether `frame`, which is in use here, lies in the memory of a kernel that was [forgotten](Memory::forget) since it came.
    fn is_lost(&self, _frame: Frame) -> bool {
        false
    }
    /// One more user of `frame`.
    fn retain(&self, frame: Frame);
    /// One user less; the last one frees an own frame, or sends a foreign one home.
    fn release(&self, frame: Frame);
    /// Users of `frame` as this kernel counts them (0: not held here).
    fn count(&self, frame: Frame) -> u32;
    /// Start counting a frame that another kernel gave us for good (an offered frame adopted), with a
    /// count of one.
    fn adopt(&self, frame: Frame);
    /// Give away an own frame of count one: `to` counts it from now on. It stays reserved here until it comes home through
    /// [`Memory::take_home`].
    fn lend(&self, frame: Frame, to: KernelId);
    /// A frame stays in use here, and one of its users is `to` from now on, until that comes back in the same way. It may lie
    /// in any kernel's memory, also that of `to`.
    fn pin(&self, frame: Frame, to: KernelId);
    /// A frame that was lent to `from` comes back: free it. Or one that was pinned for it, wherever it lies: one user less.
    fn take_home(&self, frame: Frame, from: KernelId);
    /// `dead` is no more, and no page table leads to a frame any more because of it: all that it was lent or had pinned comes back.
    fn take_all_home(&self, dead: KernelId);
    /// `frame` is in use at `by`; that kernel counts one user on our behalf, and here is one user more. What it counts for us
    /// goes back to it like a released frame: when the last user here is gone, or at once if there was one already.
    fn accept_pin(&self, frame: Frame, by: KernelId);
    /// The kernel that counts a user of `frame` for this one; None if it is not pinned for us.
    fn pinned_by(&self, _frame: Frame) -> Option<KernelId> {
        None
    }
    /// Foreign frames released here and not yet sent home: a batch for one kernel, if at least
    /// `at_least` have gathered for it. The caller sends them; each arrives through [`Memory::take_home`].
    fn frames_to_return(&self, _at_least: usize) -> Option<(KernelId, Vec<Frame>)> {
        None
    }
    /// What control groups are charged with here; None: nothing is charged.
    fn ledgers(&self) -> Option<&Ledgers> {
        None
    }
    /// To whom `frame`, which is in use here, is charged. Whoever releases its last count ends the charge.
    fn tag(&self, _frame: Frame) -> Tag {
        Tag::NONE
    }
    /// It is charged so from now on ([`ChargedPage::put_on`](crate::group::ChargedPage::put_on)).
    fn set_tag(&self, _frame: Frame, _tag: Tag) {}
    /// The kernel in whose partition `frame` lies; None for no RAM at all.
    fn home_of(&self, frame: Frame) -> Option<KernelId>;
    /// Frames of this partition in all, and free ones.
    fn totals(&self) -> (u64, u64);
    /// Whether what grows with what programs map may grow, as page tables do.
    fn has_room(&self) -> bool {
        self.has_room_for(0)
    }
    /// The same for so much at once. The heap itself is never refused a frame, so whoever lets programs ask for much asks first.
    fn has_room_for(&self, _bytes: usize) -> bool {
        true
    }
    /// Whether the heap has grown although there was no room, since [`Memory::relieved`].
    fn is_short(&self) -> bool {
        false
    }
    /// What could be done about that has been done.
    fn relieved(&self) {}

    /// Copy of a whole frame; either may be foreign.
    fn copy(&self, from: Frame, to: Frame);
    /// Fills a frame with zeroes; it may be foreign.
    fn zero(&self, frame: Frame);
    /// Bytes at `offset` of `frame`; `offset + buf.len()` must stay in the frame.
    fn read(&self, frame: Frame, offset: usize, buf: &mut [u8]);
    /// Writes bytes at `offset` of `frame`; `offset + buf.len()` must stay in the frame.
    fn write(&self, frame: Frame, offset: usize, buf: &[u8]);
    /// The aligned word at `offset`, read atomically (futex compare at the owner).
    fn load_u32(&self, frame: Frame, offset: usize) -> u32;
    /// Atomic compare-exchange on the aligned word; Err gives the value found.
    fn compare_exchange_u32(&self, frame: Frame, offset: usize, old: u32, new: u32) -> Result<u32, u32>;
    /// The words of `frame`, which is in use here, for who counts in them often. None: only [`Memory::load_u32`] and [`Memory::add_u32`] reach them.
    fn words(&self, _frame: Frame) -> Option<Box<dyn Words>> {
        None
    }
    /// Adds to the aligned word at `offset` in one step, modulo 2^32; the sum.
    fn add_u32(&self, frame: Frame, offset: usize, value: u32) -> u32 {
        let mut old = self.load_u32(frame, offset);
        loop {
            let sum = old.wrapping_add(value);
            match self.compare_exchange_u32(frame, offset, old, sum) {
                Ok(_) => return sum,
                Err(found) => old = found,
            }
        }
    }

    /// An empty page table for a new replica.
    fn new_table(&self) -> Result<Arc<dyn PageTable>, NoMemory>;
}

/// The page table of one replica: what the CPUs of this kernel may reach of one address space.
///
/// Entries are changed under the replica's lock; only the hardware's ACCESSED and DIRTY bits change
/// behind the caller's back. A change that *narrows* (removes, write-protects, another frame) counts
/// only after [`PageTable::flush`] of its range has returned.
///
/// [`Any`], so that the machine can recognize its own tables when [`Cpu::run_user`] is given one.
///
/// [`Cpu::run_user`]: crate::Cpu::run_user
pub trait PageTable: Any + Send + Sync {
    /// What the machine needs to run user code on this table (the register that leads to it).
    fn root(&self) -> u64;
    /// The entry of a page; None: not present.
    fn get(&self, page: Page) -> Option<Mapping>;
    /// Installs an entry; gives back what was there. NoMemory if a table page can't be had.
    fn set(&self, page: Page, mapping: Mapping) -> Result<Option<Mapping>, NoMemory>;
    /// Takes an entry out; gives back what was there. CPUs may use it until a `flush`.
    fn clear(&self, page: Page) -> Option<Mapping>;
    /// Maps the pages of `range` as `first` says, to frames in a row from its frame on. Where something is mapped, `keeps` is
    /// told what, and says whether it stays. NoMemory: a last-level table can't be had; nothing below it is mapped, all before it is.
    fn fill(
        &self,
        range: PageRange,
        first: Mapping,
        keeps: &mut dyn FnMut(Page, Mapping) -> bool,
    ) -> Result<(), NoMemory>;
    /// Visits the present entries of `range` in order. DIRTY may be set after the visitor looked: a
    /// replacement by the same frame keeps it, but who removes a writable entry must take the page for
    /// dirty (or write-protect and flush first).
    fn walk(&self, range: PageRange, visit: &mut dyn FnMut(Page, Mapping) -> Step) {
        self.walk_runs(range, 1, &mut |pages, mapping| visit(pages.start, mapping));
    }
    /// The same for runs of at most `longest` pages at a time: neighbours that the same last-level table maps alike, to frames in a
    /// row. The visitor gets the first one's mapping, and its step is for all of them: a replacement's frames are in a row too.
    fn walk_runs(&self, range: PageRange, longest: u64, visit: &mut dyn FnMut(PageRange, Mapping) -> Step);
    /// How many entries there are, without those that are [`Soft::BORROWED`], and how many there have been at most. (Most tables
    /// on the host do not remember.)
    fn owned_entries(&self) -> (u64, u64) {
        let mut now = 0;
        self.walk_runs(PageRange::user(), u64::MAX, &mut |pages, mapping| {
            now += if mapping.soft.contains(Soft::BORROWED) { 0 } else { pages.len() };
            Step::Keep
        });
        (now, now)
    }
    /// The most entries there have been are those there are. Under the lock that changes of entries are made under.
    fn forget_most_owned(&self) {}
    /// Returns once no CPU of this kernel can use an older translation of `range`.
    fn flush(&self, range: PageRange);

    /// Copies user memory into `to`, as far as the table allows reading. On a fault, bytes before
    /// `at` have been copied.
    fn read(&self, from: UserAddr, to: &mut [u8]) -> Result<(), UserFault>;
    /// The other way: copies `from` to user memory.
    fn write(&self, to: UserAddr, from: &[u8]) -> Result<(), UserFault>;
    /// Copies `bytes` bytes at `offset` of `frame`, which must stay in the frame, to user memory.
    fn write_frame(&self, to: UserAddr, frame: Frame, offset: usize, bytes: usize) -> Result<(), UserFault>;
    /// The other way: copies user memory to `bytes` bytes at `offset` of `frame`.
    fn read_frame(&self, from: UserAddr, frame: Frame, offset: usize, bytes: usize) -> Result<(), UserFault>;
    /// Zeroes `bytes` bytes of user memory.
    fn fill_zero(&self, to: UserAddr, bytes: usize) -> Result<(), UserFault>;
    /// Length of the string at `from` up to `limit`, without its NUL; None when no NUL within.
    fn string_length(&self, from: UserAddr, limit: usize) -> Result<Option<usize>, UserFault>;
    /// Atomic word operations; `at` must be aligned to four bytes.
    fn load_u32(&self, at: UserAddr) -> Result<u32, UserFault>;
    /// The inner Err gives the value found, which was not `old`.
    fn compare_exchange_u32(&self, at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault>;
}

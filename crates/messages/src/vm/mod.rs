//! Address spaces: faults, slices, revocation, fork. The protocol is explained in crate `vm`.

mod change;
mod fault;
mod owners;
mod report;
mod run;

pub use change::*;
pub use fault::*;
pub use owners::*;
pub use report::*;
pub use run::*;

use crate::fs::MappingUse;
use abi::ObjectId;
use alloc::vec::Vec;
use machine::{errno, Access, Frame, KernelId, KernelSet, Page, PageRange, SpaceId, UserAddr};
use serde::{Deserialize, Serialize};

/// Limits of a process that its mappings obey, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// RLIMIT_STACK.
    pub stack: u64,
    /// RLIMIT_DATA.
    pub data: u64,
    /// RLIMIT_AS.
    pub address_space: u64,
    /// RLIMIT_MEMLOCK.
    pub locked: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { stack: 8 << 20, data: u64::MAX, address_space: u64::MAX, locked: u64::MAX }
    }
}

/// Which queue a futex word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FutexPlace {
    /// A word in private memory (FUTEX_PRIVATE_FLAG, or not in a shared mapping).
    Private {
        /// The address space.
        space: SpaceId,
        /// The word's address there.
        at: UserAddr,
    },
    /// Byte `offset` of an object.
    Shared {
        /// The file or shared memory that is mapped there.
        object: ObjectId,
        /// Byte offset of the word.
        offset: u64,
    },
}

/// A futex word and the kernel that queues its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FutexKey {
    /// The kernel that queues those who wait.
    pub kernel: KernelId,
    /// What they wait for.
    pub place: FutexPlace,
}

/// What an owner answers to [`LocateFutex`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LocateFutexReply {
    /// The queue; None: no thread can wait there, since nothing is mapped or the word can never change (EFAULT).
    Key(Option<FutexKey>),
    /// Ask the owner of the page.
    Moved(Owners),
}

/// What an owner answers to [`AskResidency`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResidencyReply {
    /// One entry a page; None when the range has a hole.
    Pages(Option<Vec<bool>>),
    /// Ask the owners of the pages.
    Moved(Owners),
}

/// A read or write through /proc/PID/mem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transfer {
    /// Reads so many bytes.
    Read(u32),
    /// Writes these bytes, whatever the region's protection says.
    Write(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// How much of a [`Transfer`] was done: nothing where there is no page, or where it is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transferred {
    /// What was read.
    Read(#[serde(with = "serde_bytes")] Vec<u8>),
    /// How many bytes were written.
    Written(u32),
    /// Ask the owner of the page.
    Moved(Owners),
}

/// What a fork coordinated at the parent's home gives the child's home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The child's slice table.
    pub slices: Vec<SliceRun>,
    /// Kernels that own something of the child.
    pub owners: Vec<KernelId>,
    /// The heap: its start and the current break.
    pub heap: (UserAddr, UserAddr),
}

/// One entry of a replica's page table, and if the replica owns the page, what it knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusEntry {
    /// The page, by its address.
    pub page: Page,
    /// None: the page of zeros.
    pub frame: Option<Frame>,
    /// What the table allows.
    pub access: Access,
    /// The entry is another owner's page.
    pub borrowed: bool,
    /// Other kernels have, or had, the page.
    pub exported: bool,
    /// The page is copy-on-write.
    pub copy_on_write: bool,
    /// Whether this kernel believes that it owns the page.
    pub owned: bool,
    /// What the region there allows; None: this kernel has no region there.
    pub allowed: Option<Access>,
    /// The kernels that have the page, according to the export table.
    pub sharers: KernelSet,
}

messages! {
    "vm" 0x300;

    /// A thread has touched a page that another kernel owns and that the sender has no mapping for. The owner answers with
    /// mappings of the page and those around it.
    page_fault: FaultRequest {
        /// The address space of the thread.
        space: SpaceId,
        /// The page that it touched.
        page: Page,
        /// What it tried.
        access: Access,
        /// How many pages from `page` on the asking kernel gives back, because it has them for less access than it wants. It has none of
        /// these any more, neither in its page table nor in an answer that is under way.
        given_back: u16,
        /// Pages the answer may hold, the missing one among them.
        around: PageRange,
        /// Zeroed frames of the asking kernel that the owner may keep.
        offers: Vec<Frame>,
    } -> FaultReply, Low;

    /// Read-ahead: a kernel that touches pages in order will want these soon. The owner answers with those that need no waiting.
    fault_ahead: FaultAhead {
        /// The address space that this is about.
        space: SpaceId,
        /// Pages that follow those asked for before.
        range: PageRange,
    } -> Runs, Low;

    /// A thread has come to a kernel that has no page of its process yet, which asks for those that it will touch at once, all
    /// together. The owner answers with the mappings that need no waiting; the thread faults on the others when it touches them.
    first_pages: FirstPages {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages, and what may come with each; the answer is in their order.
        touches: Vec<Touch>,
    } -> Vec<Runs>, Low;

    /// A kernel asks the owner of a range to make a change in it.
    change_space: Change {
        /// The address space that this is about.
        space: SpaceId,
        /// What is to be changed.
        operation: Operation,
        /// Sent by home, which has frozen the owner: the change does not wait for the thaw.
        frozen: bool,
    } -> ChangeReply, Low;

    /// A kernel asks home for a change in a range that several kernels own.
    change_all: ChangeAll {
        /// The address space that this is about.
        space: SpaceId,
        /// What is to be changed.
        operation: Operation,
    } -> errno::Result<u64>, Low;

    /// A kernel asks home for consecutive slices to make mappings in: for its first mapping, and again when these are full.
    take_slices: TakeSlices {
        /// The address space that this is about.
        space: SpaceId,
        /// How many.
        count: u32,
    } -> errno::Result<SliceRun>, Low;

    /// A kernel asks home for the slice table.
    list_slices: ListSlices {
        /// The address space that this is about.
        space: SpaceId,
    } -> errno::Result<Vec<SliceRun>>, Low;

    /// The owner takes pages back (or narrows them to `keep`) from exactly the kernels that have them;
    /// the answer says that no CPU there can use more than `keep`.
    revoke_pages: Revoke {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages.
        ranges: Vec<PageRange>,
        /// What may still be done with them; nothing: they are unmapped.
        keep: Access,
    } -> (), High;

    /// A kernel confirms to the former owner that it has taken over a range: it has the range in its tables, and answers for it
    /// from now on.
    taken_over: TakenOver {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages that it has.
        range: PageRange,
    } -> (), High;

    /// Fault injection (`cob.shake`): a kernel asks an owner for untouched pages that it does not need, and confirms as it does after
    /// a fault. The owner picks the pages by `chance`.
    steal_for_test: StealForTest {
        /// The address space that this is about.
        space: SpaceId,
        /// A random number.
        chance: u64,
    } -> Option<Stretch>, Low;

    /// A kernel asks for a range that mremap moves its pages to. The owner of the slice unmaps what is there (if `replace`; else
    /// EEXIST) and hands the range over.
    take_range: TakeRange {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages.
        range: PageRange,
        /// Whether what is mapped there is unmapped; else EEXIST.
        replace: bool,
    } -> ChangeReply, Low;

    /// Returns a range that was handed over to the owner of its slice, because nothing is mapped in it any more.
    give_back: GiveBack {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages.
        range: PageRange,
    } -> (), High;

    /// The kernel of the forking thread asks the parent's home to clone the space.
    fork_space: Fork {
        /// The address space that is cloned.
        parent: SpaceId,
        /// The id of the new one, whose home is the sender.
        child: SpaceId,
    } -> errno::Result<Forked>, Low;

    /// Home stops changes and faults at an owner before `range` is changed or cloned. The owner answers with the kernels
    /// that it has handed parts of its slices there over to.
    freeze_space: Freeze {
        /// The address space that this is about.
        space: SpaceId,
        /// Pages that are to be changed or cloned.
        range: PageRange,
    } -> Vec<KernelId>, Low;

    /// Home has a frozen owner clone its slices copy-on-write.
    clone_slices: CloneSlices {
        /// The address space that is cloned.
        parent: SpaceId,
        /// The new one.
        child: SpaceId,
        /// The whole slice table of the parent, which the child starts with.
        slices: Vec<SliceRun>,
    } -> errno::Result<()>, Low;

    /// Home lets a frozen owner go on.
    thaw_space: Thaw {
        /// The address space that this is about.
        space: SpaceId,
    } -> (), High;

    /// An address space ends: home has every replica drop the pages that it has borrowed.
    detach_space: Detach {
        /// The address space that this is about.
        space: SpaceId,
    } -> (), High;

    /// When all replicas have answered [`Detach`], home has them drop the rest.
    destroy_space: Destroy {
        /// The address space that this is about.
        space: SpaceId,
    } -> (), High;

    /// After a kernel's death: asks which of these spaces, of which the sender has replicas, the receiver does not know though they are at
    /// home there. The sender drops these: a fork that failed half-way left them, and no `Destroy` will come.
    unknown_spaces: UnknownSpaces {
        /// The address spaces.
        spaces: Vec<SpaceId>,
    } -> Vec<SpaceId>, Low;

    /// The sender's memory runs out. The receiver lends so many zeroed frames or fewer, as far as it has plenty
    /// (`urgent`: as far as it can do without them).
    borrow_frames: BorrowFrames {
        /// Most frames to be given.
        frames: u16,
        /// Whether the receiver gives what it can do without, not only what it has plenty of.
        urgent: bool,
    } -> Vec<Frame>, Low;

    /// Returns frames of the receiver that the sender no longer holds, in a batch.
    frames_home: FramesHome {
        /// Frames of the receiver's partition.
        frames: Vec<Frame>,
    } -> (), High;

    /// Asks an owner for the regions that it has in a range, `most` of them at most; `counted`: with how many pages each has.
    inspect_space: Inspect {
        /// The address space that this is about.
        space: SpaceId,
        /// Pages that are of interest.
        range: PageRange,
        /// Whether the pages of each region are counted by kind, which takes longer.
        counted: bool,
        /// Most regions to be listed.
        most: u32,
    } -> Listed, Low;

    /// /proc/PID/cob: asks a kernel what it has of a space. None: it has no replica (any more).
    describe_replica: DescribeReplica {
        /// The address space that this is about.
        space: SpaceId,
    } -> Option<ReplicaReport>, Low;

    /// Asks for the peaks of pages in memory and pages mapped, of those that a kernel owns of a space. `everywhere`: home adds up
    /// what all replicas say. `clear`: the peak of pages in memory begins anew with those there are now.
    ask_peak: AskPeak {
        /// The address space that this is about.
        space: SpaceId,
        /// Ask all replicas, which only home does.
        everywhere: bool,
        /// clear_refs 5.
        clear: bool,
    } -> Peak, Low;

    /// smaps and clear_refs: asks for a bit for each page of a range that says whether the kernel's threads have touched it. `clear`: all
    /// bits begin anew. `everywhere`: home asks all replicas.
    touched_pages: Touched {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages; 8192 at most.
        range: PageRange,
        /// Whether they count as untouched from now on.
        clear: bool,
        /// Ask all replicas, which only home does.
        everywhere: bool,
    } -> Vec<u8>, Low;

    /// Tells a kernel that the limits of an address space have changed. `everywhere`: home tells all replicas.
    limit_space: LimitSpace {
        /// The address space that this is about.
        space: SpaceId,
        /// The limits from now on.
        limits: Limits,
        /// Tell all replicas, which only home does.
        everywhere: bool,
    } -> (), Low;

    /// mincore: asks the owner of pages which of them are in memory.
    ask_residency: AskResidency {
        /// The address space that this is about.
        space: SpaceId,
        /// The pages.
        range: PageRange,
    } -> ResidencyReply, Low;

    /// Asks the owner of an address in which queue the waiters of the futex word there are.
    locate_futex: LocateFutex {
        /// The address space that this is about.
        space: SpaceId,
        /// Address of the word.
        at: UserAddr,
        /// No FUTEX_PRIVATE_FLAG: the word may be in a shared mapping.
        shared: bool,
    } -> LocateFutexReply, Low;

    /// The owner of a file is about to seal it, or to let a program open it for writing. It asks each kernel how many mappings, in
    /// ranges that the kernel owns, speak against that.
    count_uses: CountUses {
        /// The file, which the sender owns.
        object: ObjectId,
        /// Which mappings count.
        usage: MappingUse,
    } -> u64, Low;

    /// Audit (`--audit`): home asks a replica of a space that is about to end for the entries of its page table, from a page on.
    census: Census {
        /// The address space that this is about.
        space: SpaceId,
        /// The first page that is of interest.
        from: Page,
    } -> Vec<CensusEntry>, Low;

    /// /proc/PID/mem: asks the owner of the page at `at` to read or write, as far as it owns the pages that follow.
    force_access: ForceAccess {
        /// The address space that this is about.
        space: SpaceId,
        /// The first address.
        at: UserAddr,
        /// Whether to read or write, and what.
        transfer: Transfer,
    } -> Transferred, Low;
}

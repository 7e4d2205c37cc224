//! Identifiers that mean the same on every kernel.

use crate::{bits::Bits, Memory};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};
use serde::{Deserialize, Serialize};

/// One running kernel. Small and dense: the index of its partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelId(pub u16);

impl KernelId {
    /// The kernel the machine booted into.
    pub const PRIMARY: KernelId = KernelId(0);

    /// For arrays with an entry for each kernel.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}", self.0)
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A CPU of the whole machine: the number SMP Linux would give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CpuId(pub u32);

/// A process or thread id. Every kernel hands out ids of its own range, so an id names its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// For whom a CPU works: a thread, and the kernel that it is on. One word, so that it travels with every request and costs a load where
/// somebody is woken. Thread id 0: nobody.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Actor(pub u32);

impl Actor {
    /// Work of the kernel itself.
    pub const NOBODY: Actor = Actor(0);
    /// Thread ids are below 2^22 (Linux's largest pid_max), and the board has room for fewer kernels than 2^10.
    const THREAD_BITS: u32 = 22;

    /// `thread`, which is on `kernel`.
    pub fn new(thread: Pid, kernel: KernelId) -> Actor {
        Actor(u32::from(kernel.0) << Self::THREAD_BITS | thread.0 & ((1 << Self::THREAD_BITS) - 1))
    }

    /// The id of the thread.
    pub fn thread(self) -> Pid {
        Pid(self.0 & ((1 << Self::THREAD_BITS) - 1))
    }

    /// The kernel that the thread is on.
    pub fn kernel(self) -> KernelId {
        KernelId((self.0 >> Self::THREAD_BITS) as u16)
    }

    /// Whether both are threads, and not the same one.
    pub fn is_another_thread_than(self, other: Actor) -> bool {
        self.thread() != other.thread() && self.thread().0 != 0 && other.thread().0 != 0
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:?}", self.thread(), self.kernel())
    }
}

/// A control group (cgroups(7)): the number by which kernels and frames know it. 0 is the root of the tree, to which all belongs that belongs to
/// no other. A number is given again when nothing is charged to its last group any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupId(pub u16);

impl GroupId {
    /// The root of the tree.
    pub const ROOT: GroupId = GroupId(0);
    /// The largest number: 13 bits, so that it has room beside other things in the header of a message, and in what is kept for a frame.
    pub const MAX: GroupId = GroupId((1 << 13) - 1);

    /// Whether this is the root of the tree.
    pub fn is_root(self) -> bool {
        self == Self::ROOT
    }
}

/// An address space, on all kernels: the kernel that made it (its home) and a number of that kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpaceId {
    /// The kernel that made it, and keeps its slice table.
    pub home: KernelId,
    /// Which of that kernel's spaces ([`Serials`]).
    pub serial: u64,
}

/// Numbers by which other kernels know what this one made. None is used in two boot generations of a kernel: who
/// survived its death may still hold what it named in the last one.
pub struct Serials(AtomicU64);

impl Serials {
    /// 2^40 numbers for each boot generation, and 2^22 generations, so that bit 62 and 63 are free for the user.
    const SERIAL_BITS: u32 = 40;

    /// Numbers for the present boot generation of the kernel that `memory` is of.
    pub fn new(memory: &dyn Memory) -> Self {
        let generation = u64::from(memory.boot_generation().wrapping_sub(1) & 0x3f_ffff);
        Serials(AtomicU64::new(generation << Self::SERIAL_BITS | 1))
    }

    /// A number that was never given before.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A set of kernels of any size.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelSet(Bits);

impl KernelSet {
    /// The empty set.
    pub const fn new() -> Self {
        KernelSet(Bits::new())
    }

    /// From bits: bit N is kernel N.
    pub const fn of_bits(bits: Bits) -> Self {
        KernelSet(bits)
    }

    /// Bit N is kernel N.
    pub const fn bits(&self) -> &Bits {
        &self.0
    }

    /// The set of one kernel.
    pub fn only(kernel: KernelId) -> Self {
        let mut set = Self::new();
        set.insert(kernel);
        set
    }

    /// Adds `kernel`; true if it was not there.
    pub fn insert(&mut self, kernel: KernelId) -> bool {
        self.0.insert(kernel.index())
    }

    /// Takes `kernel` out; true if it was there.
    pub fn remove(&mut self, kernel: KernelId) -> bool {
        self.0.remove(kernel.index())
    }

    /// Whether `kernel` is in it.
    pub fn contains(&self, kernel: KernelId) -> bool {
        self.0.contains(kernel.index())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many kernels are in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = KernelId> + '_ {
        self.0.iter().map(|number| KernelId(number as u16))
    }
}

impl FromIterator<KernelId> for KernelSet {
    fn from_iter<I: IntoIterator<Item = KernelId>>(kernels: I) -> Self {
        let mut set = Self::new();
        for kernel in kernels {
            set.insert(kernel);
        }
        set
    }
}

impl fmt::Debug for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

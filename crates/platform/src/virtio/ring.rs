//! A split virtqueue that owns its buffers (virtio 1.2, 2.7).
//!
//! Problem. While a chain of buffers is in a queue, the device reads and writes them whenever it likes. A
//! future that holds such a buffer can be dropped at any await (a signal interrupts the call); then its memory
//! would be reused while the device still writes into it.
//!
//! Idea. Buffers are moved in and come back out only when the device has put the chain into the used ring. What
//! the caller keeps is a key, and forgetting a key harms nobody. A buffer is bytes on the kernel's heap, or frames, of which the chain has a count each.
//!
//! A chain takes a descriptor for each segment that is in one piece for the device. A chain of frames brings a page of its own ([`RequestPage`]) along, and if the device
//! can read descriptors there (VIRTIO_F_INDIRECT_DESC) it takes only one in the ring. What is moved in is bounded
//! ([`MOST_BYTES`], [`Ring::most_segments`]), so that a chain fits into an empty ring however scattered it is.
//!
//! Descriptors are read by the device alone: which are free, and what a chain consists of, is kept beside them, so a device that writes there confuses only itself.
//!
//! A ring is never taken apart: the interrupt table holds it for ever (see `device.rs`), because freeing its
//! memory while the device is alive would be the same mistake again.

use alloc::{boxed::Box, vec::Vec};
use core::{
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{fence, AtomicU16, Ordering},
};

use machine::{block::Pieces, PAGE_SIZE};
use virtio_drivers::{transport::Transport, BufferDirection, Error, Hal, PhysAddr};

/// Descriptors in a queue. QEMU's console and 9P devices have exactly that many.
pub const SIZE: usize = 128;

/// What both buffers of a chain may have together: a descriptor for each page, and each may begin and end within one.
pub const MOST_BYTES: usize = (SIZE - 4) * PAGE_SIZE;

/// How buffers look to the device.
pub trait DeviceMemory: Hal {
    /// How much of the beginning of `buffer`, which is not empty, is in one piece.
    fn contiguous(buffer: &[u8]) -> usize;
}

/// Tells the device that a queue has something new.
pub trait Doorbell: Send + Sync {
    fn ring(&self);
}

/// A zeroed page that a device reaches, given back when it is dropped.
struct DevicePage<H: DeviceMemory> {
    address: PhysAddr,
    page: NonNull<u8>,
    hal: PhantomData<fn() -> H>,
}

// SAFETY: the page belongs to nobody else; `Hal` gives it for any CPU.
unsafe impl<H: DeviceMemory> Send for DevicePage<H> {}

impl<H: DeviceMemory> DevicePage<H> {
    fn new() -> Option<Self> {
        let (address, page) = H::dma_alloc(1, BufferDirection::Both);
        (address != 0).then_some(DevicePage { address, page, hal: PhantomData })
    }

    /// Byte `offset` of the page, which is to be aligned for a `T` that fits.
    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= PAGE_SIZE && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: within the page.
        unsafe { self.page.as_ptr().add(offset).cast() }
    }

    fn store<T>(&self, offset: usize, value: T) {
        // SAFETY: `at` has checked the place; the device may read it at any time, hence volatile.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }

    fn load<T>(&self, offset: usize) -> T
    where
        T: zerocopy::FromBytes,
    {
        // SAFETY: as above; any bytes are a `T`.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    fn atomic(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: as above; the page lives as long as `self`, and only atomics are used at this place.
        unsafe { AtomicU16::from_ptr(self.at(offset)) }
    }
}

impl<H: DeviceMemory> Drop for DevicePage<H> {
    fn drop(&mut self) {
        // SAFETY: it came from `dma_alloc`; nobody drops one that the device has.
        unsafe { H::dma_dealloc(self.address, self.page, 1) };
    }
}

/// What a request for frames has beside them: its header and the byte of its status, and its descriptors.
pub struct RequestPage<H: DeviceMemory>(DevicePage<H>);

const STATUS_AT: usize = 48;
const TABLE_AT: usize = 64;

impl<H: DeviceMemory> RequestPage<H> {
    /// Bytes that a header may have.
    pub const HEADER: usize = STATUS_AT;
    /// Runs of adjoining memory for which there are descriptors beside those of header and status.
    const MOST_SEGMENTS: usize = (PAGE_SIZE - TABLE_AT) / DESCRIPTOR - 2;

    /// None: there is no memory.
    pub fn new() -> Option<Self> {
        DevicePage::new().map(RequestPage)
    }

    /// The first `bytes` bytes of the header.
    pub fn header(&self, bytes: usize) -> Vec<u8> {
        (0..bytes.min(Self::HEADER)).map(|at| self.0.load(at)).collect()
    }

    /// The byte that the device has answered.
    pub fn status(&self) -> u8 {
        self.0.load(STATUS_AT)
    }
}

/// The buffers of a chain.
pub enum Buffers<H: DeviceMemory> {
    /// Bytes: `out` for the device to read, then `into` for it to write; not both empty.
    Bytes { out: Vec<u8>, into: Vec<u8> },
    /// A header of so many bytes in `page`, the pieces, and a status that the device writes into `page`.
    Pieces { page: RequestPage<H>, header: usize, pieces: Pieces, device_writes: bool },
}

impl<H: DeviceMemory> Buffers<H> {
    /// A request for `pieces` with a header of at most [`RequestPage::HEADER`] bytes. A status that the device does not write is 0xff.
    pub fn pieces(page: RequestPage<H>, header: &[u8], pieces: Pieces, device_writes: bool) -> Self {
        assert!(header.len() <= RequestPage::<H>::HEADER);
        header.iter().enumerate().for_each(|(at, byte)| page.0.store(at, *byte));
        page.0.store(STATUS_AT, 0xffu8);
        Buffers::Pieces { page, header: header.len(), pieces, device_writes }
    }

    /// Says each segment in the order in which the device sees them: its address, its bytes, and whether the device writes it.
    fn each(&self, mut say: impl FnMut(PhysAddr, usize, bool)) {
        match self {
            Buffers::Bytes { out, into } => {
                for (buffer, writes) in [(out, false), (into, true)] {
                    let mut rest = &buffer[..];
                    while !rest.is_empty() {
                        let (piece, behind) = rest.split_at(H::contiguous(rest));
                        // SAFETY: the bytes are on the heap and belong to the chain, which keeps them, without touching them, until the device is done.
                        let address = unsafe { H::share(NonNull::from(piece), BufferDirection::Both) };
                        say(address, piece.len(), writes);
                        rest = behind;
                    }
                }
            }
            Buffers::Pieces { page, header, pieces, device_writes } => {
                say(page.0.address, *header, false);
                pieces.each_segment().for_each(|(address, bytes)| say(address, bytes, *device_writes));
                say(page.0.address + STATUS_AT as u64, 1, true);
            }
        }
    }

    fn segments(&self) -> usize {
        let mut count = 0;
        self.each(|_, _, _| count += 1);
        count
    }
}

struct Chain<H: DeviceMemory> {
    key: usize,
    buffers: Buffers<H>,
    /// How many descriptors of the ring it has.
    descriptors: usize,
    /// Bytes that the device may write.
    room: usize,
}

/// A chain that the device is done with.
pub struct Used<H: DeviceMemory> {
    pub key: usize,
    /// The buffers, whole.
    pub buffers: Buffers<H>,
    /// How many bytes the device says it has written, at most what there is room for.
    pub written: usize,
}

/// The device used a chain that was not given to it. It can't be trusted with memory any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// `struct virtq_desc`: address, length, flags, next.
const DESCRIPTOR: usize = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// `struct virtq_avail`: flags, index, ring.
const AVAILABLE_AT: usize = SIZE * DESCRIPTOR;
/// `struct virtq_used`: flags, index, ring of id and length.
const USED_AT: usize = (AVAILABLE_AT + 4 + 2 * SIZE + 2).next_multiple_of(4);
const _: () = assert!(USED_AT + 4 + 8 * SIZE + 2 <= PAGE_SIZE);
/// In the flags of the used ring: the device looks anyway.
const NO_NOTIFY: u16 = 1;

fn write_descriptor<H: DeviceMemory>(to: &DevicePage<H>, at: usize, address: PhysAddr, bytes: u32, tag: (u16, u16)) {
    to.store(at, address);
    to.store(at + 8, bytes);
    to.store(at + 12, tag.0);
    to.store(at + 14, tag.1);
}

pub struct Ring<H: DeviceMemory> {
    shared: DevicePage<H>,
    /// By the chain's first descriptor.
    chains: Vec<Option<Chain<H>>>,
    /// Free descriptors, the next one to be used last; and for each that is used, which follows in its chain.
    free: Vec<u16>,
    next: [u16; SIZE],
    /// Chains that were made available, and that were taken back, since the start.
    available: u16,
    used: u16,
    indirect: bool,
    doorbell: Box<dyn Doorbell>,
}

impl<H: DeviceMemory> Ring<H> {
    /// Sets up queue `index` of a device between FEATURES_OK and DRIVER_OK; `indirect`: VIRTIO_F_INDIRECT_DESC is agreed on.
    pub fn new<T: Transport>(
        transport: &mut T,
        index: u16,
        indirect: bool,
        doorbell: Box<dyn Doorbell>,
    ) -> virtio_drivers::Result<Self> {
        if transport.queue_used(index) {
            return Err(Error::AlreadyUsed);
        }
        if transport.max_queue_size(index) < SIZE as u32 {
            return Err(Error::InvalidParam);
        }
        let shared = DevicePage::new().ok_or(Error::DmaError)?;
        let at = |offset: usize| shared.address + offset as u64;
        transport.queue_set(index, SIZE as u32, at(0), at(AVAILABLE_AT), at(USED_AT));
        let chains = (0..SIZE).map(|_| None).collect();
        let free = (0..SIZE as u16).rev().collect();
        Ok(Ring { shared, chains, free, next: [0; SIZE], available: 0, used: 0, indirect, doorbell })
    }

    /// Runs of adjoining memory that a request for frames may have.
    pub fn most_segments(&self) -> usize {
        // Without indirect descriptors some requests are to fit beside each other.
        if self.indirect {
            RequestPage::<H>::MOST_SEGMENTS
        } else {
            SIZE / 2 - 2
        }
    }

    /// Gives the device a chain. The buffers come back in `Err` when there is no room now.
    pub fn add(&mut self, key: usize, buffers: Buffers<H>) -> Result<(), Buffers<H>> {
        let segments = buffers.segments();
        let in_page = match &buffers {
            Buffers::Pieces { page, .. } if self.indirect => Some(page.0.address + TABLE_AT as u64),
            _ => None,
        };
        let needed = if in_page.is_some() { 1 } else { segments };
        if needed > self.free.len() {
            return Err(buffers);
        }
        let head = match in_page {
            Some(table) => {
                self.write_table(&buffers, segments);
                let head = self.free.pop().expect("counted");
                let bytes = (segments * DESCRIPTOR) as u32;
                write_descriptor(&self.shared, usize::from(head) * DESCRIPTOR, table, bytes, (INDIRECT, 0));
                head
            }
            None => self.write_chain(&buffers, segments),
        };
        let mut room = 0;
        buffers.each(|_, bytes, writes| room += if writes { bytes } else { 0 });
        self.chains[usize::from(head)] = Some(Chain { key, buffers, descriptors: needed, room });
        let slot = usize::from(self.available) % SIZE;
        self.shared.store(AVAILABLE_AT + 4 + 2 * slot, head);
        self.available = self.available.wrapping_add(1);
        // Pairs with the device's read of the index, after which it reads descriptors (2.7.13.3).
        self.shared.atomic(AVAILABLE_AT + 2).store(self.available, Ordering::Release);
        Ok(())
    }

    /// Descriptors of a request in its own page.
    fn write_table(&self, buffers: &Buffers<H>, segments: usize) {
        let Buffers::Pieces { page, .. } = buffers else { return };
        let mut index = 0;
        buffers.each(|address, bytes, writes| {
            let flags = if writes { WRITE } else { 0 } | if index + 1 < segments { NEXT } else { 0 };
            write_descriptor(&page.0, TABLE_AT + index * DESCRIPTOR, address, bytes as u32, (flags, index as u16 + 1));
            index += 1;
        });
    }

    /// The same in the ring, which has so many free. Gives the first.
    fn write_chain(&mut self, buffers: &Buffers<H>, segments: usize) -> u16 {
        let head = *self.free.last().expect("counted");
        let mut left = segments;
        buffers.each(|address, bytes, writes| {
            let at = self.free.pop().expect("counted");
            left -= 1;
            let next = if left > 0 { *self.free.last().expect("counted") } else { 0 };
            self.next[usize::from(at)] = next;
            let flags = if writes { WRITE } else { 0 } | if left > 0 { NEXT } else { 0 };
            write_descriptor(&self.shared, usize::from(at) * DESCRIPTOR, address, bytes as u32, (flags, next));
        });
        head
    }

    /// Lets the device know what was added, unless it has said that it looks anyway.
    pub fn notify(&self) {
        // The device writes the flag, then looks at the index once more; we the other way about (2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.shared.load::<u16>(USED_AT) & NO_NOTIFY == 0 {
            self.doorbell.ring();
        }
    }

    /// The next chain that the device is done with.
    pub fn take_used(&mut self) -> Result<Option<Used<H>>, Broken> {
        // Pairs with the device's store of the index, before which it has written the entry and the buffers.
        if self.shared.atomic(USED_AT + 2).load(Ordering::Acquire) == self.used {
            return Ok(None);
        }
        let entry = USED_AT + 4 + usize::from(self.used) % SIZE * 8;
        let (head, written) = (self.shared.load::<u32>(entry), self.shared.load::<u32>(entry + 4));
        self.used = self.used.wrapping_add(1);
        let chain = self.chains.get_mut(head as usize).and_then(Option::take);
        let Some(Chain { key, buffers, descriptors, room }) = chain else {
            return Err(Broken);
        };
        let mut at = head as u16;
        for _ in 0..descriptors {
            self.free.push(at);
            at = self.next[usize::from(at)];
        }
        Ok(Some(Used { key, buffers, written: room.min(written as usize) }))
    }
}

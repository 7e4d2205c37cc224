//! A device for tests: reads the rings through the addresses it was given, as hardware does, and finishes chains in
//! any order it is told.

use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec, vec::Vec};
use core::{alloc::Layout, ptr::NonNull, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use machine::{sync::Lock, Frame, KernelId, Memory, NoMemory, PageTable, PAGE_BITS};
use virtio_drivers::{
    transport::{DeviceStatus, DeviceType, InterruptStatus, Transport},
    BufferDirection, Hal, PhysAddr,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::ring::{DeviceMemory, Doorbell, Ring, SIZE};

/// Physical addresses are the host's virtual ones. No page lies beside the next.
pub struct HostMemory;

impl DeviceMemory for HostMemory {
    fn contiguous(buffer: &[u8]) -> usize {
        buffer.len().min(4096 - buffer.as_ptr() as usize % 4096)
    }
}

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * 4096, 4096).expect("small")
}

// SAFETY: the global allocator gives unique, aligned, zeroed memory, valid until it is given back.
unsafe impl Hal for HostMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: the layout is not of size zero.
        let memory = unsafe { alloc::alloc::alloc_zeroed(layout(pages)) };
        (memory as PhysAddr, NonNull::new(memory).expect("memory"))
    }
    unsafe fn dma_dealloc(_: PhysAddr, memory: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: allocated above with the same layout.
        unsafe { alloc::alloc::dealloc(memory.as_ptr(), layout(pages)) };
        0
    }
    unsafe fn mmio_phys_to_virt(_: PhysAddr, _: usize) -> NonNull<u8> {
        unreachable!("the fake has no registers")
    }
    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.as_ptr().cast::<u8>() as PhysAddr
    }
    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

#[derive(Clone, Copy, Default)]
struct Addresses {
    descriptors: u64,
    available: u64,
    used: u64,
}

#[derive(Default)]
struct State {
    addresses: Addresses,
    seen: u16,
    finished: u16,
}

/// The device's side of one queue.
#[derive(Clone, Default)]
pub struct FakeDevice {
    state: Arc<Lock<State>>,
    pub rung: Arc<AtomicUsize>,
}

/// A chain as the device sees it.
pub struct Taken {
    pub head: u16,
    pub out: Vec<u8>,
    into: Vec<(u64, u32)>,
}

struct Bell(Arc<AtomicUsize>);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl FakeDevice {
    pub fn ring(&self) -> Ring<HostMemory> {
        Ring::new(&mut self.clone(), 0, false, Box::new(Bell(self.rung.clone()))).expect("a ring")
    }

    /// One whose chains may have their descriptors elsewhere.
    pub fn indirect_ring(&self) -> Ring<HostMemory> {
        Ring::new(&mut self.clone(), 0, true, Box::new(Bell(self.rung.clone()))).expect("a ring")
    }

    /// Chains that were made available since the last time.
    pub fn take(&self) -> Vec<Taken> {
        let state = &mut *self.state.lock();
        let at = state.addresses;
        let mut chains = vec![];
        // SAFETY: the addresses are those of the ring under test, which outlives the test's last use of the device;
        // driver and device run in one thread.
        unsafe {
            let index = ((at.available + 2) as *const u16).read_volatile();
            while state.seen != index {
                let slot = u64::from(state.seen) % SIZE as u64;
                let head = ((at.available + 4 + 2 * slot) as *const u16).read_volatile();
                state.seen = state.seen.wrapping_add(1);
                let (mut chain, mut next) = (Taken { head, out: vec![], into: vec![] }, Some(head));
                let mut table = at.descriptors;
                while let Some(descriptor) = next {
                    let entry = table + 16 * u64::from(descriptor);
                    let address = (entry as *const u64).read_volatile();
                    let length = ((entry + 8) as *const u32).read_volatile();
                    let flags = ((entry + 12) as *const u16).read_volatile();
                    if flags & 4 != 0 {
                        assert!(table == at.descriptors && flags == 4 && length % 16 == 0, "one table for a chain");
                        (table, next) = (address, Some(0));
                        continue;
                    }
                    next = (flags & 1 != 0).then(|| ((entry + 14) as *const u16).read_volatile());
                    if flags & 2 != 0 {
                        chain.into.push((address, length));
                    } else {
                        chain.out.extend_from_slice(core::slice::from_raw_parts(address as *const u8, length as usize));
                    }
                }
                chains.push(chain);
            }
        }
        chains
    }

    /// Writes `bytes` into the chain and gives it back.
    pub fn finish(&self, chain: &Taken, bytes: &[u8]) {
        let mut rest = bytes;
        for &(address, length) in &chain.into {
            let (piece, behind) = rest.split_at(rest.len().min(length as usize));
            // SAFETY: the ring keeps the buffer until it sees the chain used.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), address as *mut u8, piece.len()) };
            rest = behind;
        }
        self.finish_raw(chain.head.into(), bytes.len() as u32);
    }

    /// Puts any entry into the used ring, also one that no honest device would.
    pub fn finish_raw(&self, id: u32, length: u32) {
        let state = &mut *self.state.lock();
        let used = state.addresses.used;
        let slot = u64::from(state.finished) % SIZE as u64;
        state.finished = state.finished.wrapping_add(1);
        // SAFETY: as in `take`.
        unsafe {
            ((used + 4 + 8 * slot) as *mut u32).write_volatile(id);
            ((used + 8 + 8 * slot) as *mut u32).write_volatile(length);
            ((used + 2) as *mut u16).write_volatile(state.finished);
        }
    }
}

impl Transport for FakeDevice {
    fn device_type(&self) -> DeviceType {
        DeviceType::Console
    }
    fn read_device_features(&mut self) -> u64 {
        0
    }
    fn write_driver_features(&mut self, _: u64) {}
    fn max_queue_size(&mut self, _: u16) -> u32 {
        SIZE as u32
    }
    fn notify(&mut self, _: u16) {}
    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::empty()
    }
    fn set_status(&mut self, _: DeviceStatus) {}
    fn set_guest_page_size(&mut self, _: u32) {}
    fn requires_legacy_layout(&self) -> bool {
        false
    }
    fn queue_set(&mut self, _: u16, _: u32, descriptors: PhysAddr, available: PhysAddr, used: PhysAddr) {
        self.state.lock().addresses = Addresses { descriptors, available, used };
    }
    fn queue_unset(&mut self, _: u16) {}
    fn queue_used(&mut self, _: u16) -> bool {
        false
    }
    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }
    fn read_config_generation(&self) -> u32 {
        0
    }
    fn read_config_space<T: FromBytes + IntoBytes>(&self, _: usize) -> virtio_drivers::Result<T> {
        Err(virtio_drivers::Error::ConfigSpaceMissing)
    }
    fn write_config_space<T: IntoBytes + Immutable>(&mut self, _: usize, _: T) -> virtio_drivers::Result<()> {
        Err(virtio_drivers::Error::ConfigSpaceMissing)
    }
}

/// Frames on the host's heap, counted.
#[derive(Default)]
pub struct Frames(Lock<BTreeMap<Frame, u32>>);

impl Frames {
    pub fn used(&self) -> usize {
        self.0.lock().len()
    }

    fn at(&self, frame: Frame, offset: usize) -> *mut u8 {
        assert!(self.0.lock().contains_key(&frame));
        (frame.address() as usize + offset) as *mut u8
    }
}

impl Memory for Frames {
    fn kernel(&self) -> KernelId {
        KernelId(0)
    }
    fn alloc(&self) -> Option<Frame> {
        let (address, _) = HostMemory::dma_alloc(1, BufferDirection::Both);
        self.0.lock().insert(Frame(address >> PAGE_BITS), 1);
        Some(Frame(address >> PAGE_BITS))
    }
    fn retain(&self, frame: Frame) {
        *self.0.lock().get_mut(&frame).expect("in use") += 1;
    }
    fn release(&self, frame: Frame) {
        let mut frames = self.0.lock();
        let count = frames.get_mut(&frame).expect("in use");
        *count -= 1;
        if *count == 0 {
            frames.remove(&frame);
            let page = NonNull::new(frame.address() as *mut u8).expect("memory");
            // SAFETY: `alloc` made it.
            unsafe { HostMemory::dma_dealloc(frame.address(), page, 1) };
        }
    }
    fn count(&self, frame: Frame) -> u32 {
        self.0.lock().get(&frame).copied().unwrap_or(0)
    }
    fn read(&self, frame: Frame, offset: usize, buf: &mut [u8]) {
        // SAFETY: a page of ours.
        unsafe { core::ptr::copy_nonoverlapping(self.at(frame, offset), buf.as_mut_ptr(), buf.len()) }
    }
    fn write(&self, frame: Frame, offset: usize, buf: &[u8]) {
        // SAFETY: a page of ours.
        unsafe { core::ptr::copy_nonoverlapping(buf.as_ptr(), self.at(frame, offset), buf.len()) }
    }
    fn totals(&self) -> (u64, u64) {
        (1 << 20, 1 << 20)
    }
    fn adopt(&self, _: Frame) {
        unimplemented!("one kernel")
    }
    fn lend(&self, _: Frame, _: KernelId) {
        unimplemented!("one kernel")
    }
    fn pin(&self, _: Frame, _: KernelId) {
        unimplemented!("one kernel")
    }
    fn take_home(&self, _: Frame, _: KernelId) {
        unimplemented!("one kernel")
    }
    fn take_all_home(&self, _: KernelId) {
        unimplemented!("one kernel")
    }
    fn accept_pin(&self, _: Frame, _: KernelId) {
        unimplemented!("one kernel")
    }
    fn home_of(&self, _: Frame) -> Option<KernelId> {
        Some(KernelId(0))
    }
    fn copy(&self, _: Frame, _: Frame) {
        unimplemented!("not for devices")
    }
    fn zero(&self, _: Frame) {
        unimplemented!("not for devices")
    }
    fn load_u32(&self, _: Frame, _: usize) -> u32 {
        unimplemented!("not for devices")
    }
    fn compare_exchange_u32(&self, _: Frame, _: usize, _: u32, _: u32) -> Result<u32, u32> {
        unimplemented!("not for devices")
    }
    fn new_table(&self) -> Result<Arc<dyn PageTable>, NoMemory> {
        unimplemented!("no spaces")
    }
}

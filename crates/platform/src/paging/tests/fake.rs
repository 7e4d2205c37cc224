//! A machine of threads: each thread is a CPU with a TLB, which forgets only when it is told to.

use crate::arch::entry;
use crate::paging::{Hardware, PartitionMemory, Setup, Window};
use alloc::{boxed::Box, vec::Vec};
use core::{
    cell::Cell,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicU8, AtomicUsize, Ordering::SeqCst},
};
use frames::{Config, Partition};
use machine::{Access, Frame, KernelId, Memory, Page, UserAddr, UserFault, PAGE_SIZE};
use std::{
    alloc::{alloc_zeroed, Layout},
    collections::HashMap,
    sync::Mutex,
    thread_local,
};

const PAGE: u64 = PAGE_SIZE as u64;
/// The kernel under test has the first part of the machine's memory, another one the rest.
pub const OWN: Range<u64> = 0x100 * PAGE..0x1100 * PAGE;
pub const OTHERS: Range<u64> = 0x1100 * PAGE..0x1140 * PAGE;

thread_local!(pub static CPU: Cell<usize> = const { Cell::new(0) });

#[derive(Default)]
struct Cpu {
    root: AtomicU64,
    tlb: Mutex<HashMap<u64, u64>>,
    interrupted: AtomicBool,
    full_flushes: AtomicUsize,
    page_flushes: AtomicUsize,
    windows: [AtomicU64; 2],
}

pub struct Fake {
    cpus: Box<[Cpu]>,
    /// Of the whole machine, from `OWN.start`.
    memory: usize,
    kernel_root: Frame,
    pub interrupts: AtomicUsize,
}

impl Fake {
    fn this(&self) -> &Cpu {
        &self.cpus[CPU.get()]
    }

    fn byte(&self, at: u64) -> &'static AtomicU8 {
        assert!((OWN.start..OTHERS.end).contains(&at));
        // SAFETY: inside the machine's memory, which is never freed.
        unsafe { AtomicU8::from_ptr((self.memory + (at - OWN.start) as usize) as *mut u8) }
    }

    fn entry(&self, table: u64, index: u64) -> &'static AtomicU64 {
        assert!((OWN.start..OWN.end).contains(&table));
        // SAFETY: as above, and aligned.
        unsafe { AtomicU64::from_ptr((self.memory + (table + index * 8 - OWN.start) as usize) as *mut u64) }
    }

    /// Where user code of this CPU finds `at`: by the TLB, else by a walk that fills it.
    pub fn translate(&self, at: UserAddr, access: Access) -> Result<u64, UserFault> {
        let fault = UserFault { at, access };
        let needs = |entry: u64| entry & entry::PRESENT != 0 && (access != Access::WRITE || entry & entry::WRITE != 0);
        let mut tlb = self.this().tlb.lock().unwrap();
        let page = at.page().0;
        let cached = tlb.get(&page).copied().filter(|entry| needs(*entry));
        let leaf = match cached {
            Some(leaf) => leaf,
            None => {
                // A fault makes the CPU forget the page, too (SDM 3A 5.10.4.1).
                tlb.remove(&page);
                let mut table = self.this().root.load(SeqCst);
                for level in [3, 2, 1] {
                    let entry = self.entry(table, page >> (9 * level) & 511).load(SeqCst);
                    if entry & entry::PRESENT == 0 {
                        return Err(fault);
                    }
                    table = entry & entry::ADDRESS;
                }
                let mark = if access == Access::WRITE { entry::DIRTY } else { 0 } | entry::ACCESSED;
                let slot = self.entry(table, page & 511);
                let marked = slot.fetch_update(SeqCst, SeqCst, |entry| needs(entry).then_some(entry | mark));
                let leaf = marked.map_err(|_| fault)?;
                tlb.insert(page, leaf);
                leaf
            }
        };
        Ok((leaf & entry::ADDRESS) + at.offset() as u64)
    }

    pub fn load(&self, at: UserAddr) -> Result<u8, UserFault> {
        Ok(self.byte(self.translate(at, Access::READ)?).load(SeqCst))
    }

    pub fn store(&self, at: UserAddr, value: u8) -> Result<(), UserFault> {
        self.byte(self.translate(at, Access::WRITE)?).store(value, SeqCst);
        Ok(())
    }

    /// Whether this CPU got an interrupt since the last call.
    pub fn take_interrupt(&self) -> bool {
        self.this().interrupted.swap(false, SeqCst)
    }

    /// Full and single-page flushes of this CPU so far.
    pub fn flushes(&self) -> (usize, usize) {
        (self.this().full_flushes.load(SeqCst), self.this().page_flushes.load(SeqCst))
    }

    pub fn windows_are_closed(&self) -> bool {
        self.cpus.iter().flat_map(|cpu| &cpu.windows).all(|window| window.load(SeqCst) == 0)
    }
}

impl Hardware for Fake {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn cpu(&self) -> usize {
        CPU.get()
    }

    fn kernel_root(&self) -> Frame {
        self.kernel_root
    }

    fn load_root(&self, root: Frame) {
        self.this().root.store(root.address(), SeqCst);
        self.invalidate_all();
    }

    fn invalidate_page(&self, page: Page) {
        self.this().page_flushes.fetch_add(1, SeqCst);
        self.this().tlb.lock().unwrap().remove(&page.0);
    }

    fn invalidate_all(&self) {
        self.this().full_flushes.fetch_add(1, SeqCst);
        self.this().tlb.lock().unwrap().clear();
    }

    fn interrupt(&self, cpu: usize) {
        self.interrupts.fetch_add(1, SeqCst);
        self.cpus[cpu].interrupted.store(true, SeqCst);
    }

    fn relax(&self) {
        std::thread::yield_now();
    }

    fn open_window(&self, window: Window, frame: Frame) -> *mut u8 {
        assert_eq!(self.this().windows[window as usize].swap(frame.0, SeqCst), 0, "open already");
        assert!(OTHERS.contains(&frame.address()), "no window needed for {frame:?}");
        (self.memory + (frame.address() - OWN.start) as usize) as *mut u8
    }

    fn close_window(&self, window: Window) {
        assert_ne!(self.this().windows[window as usize].swap(0, SeqCst), 0, "not open");
    }

    fn read_user(&self, from: UserAddr, to: &mut [u8]) -> Result<(), UserFault> {
        to.iter_mut().enumerate().try_for_each(|(n, byte)| {
            *byte = self.load(from.add(n))?;
            Ok(())
        })
    }

    unsafe fn read_user_to(&self, from: UserAddr, to: *mut u8, bytes: usize) -> Result<(), UserFault> {
        // SAFETY: may be written, says the caller.
        (0..bytes).try_for_each(|n| self.load(from.add(n)).map(|byte| unsafe { to.add(n).write_volatile(byte) }))
    }

    fn write_user(&self, to: UserAddr, from: &[u8]) -> Result<(), UserFault> {
        from.iter().enumerate().try_for_each(|(n, byte)| self.store(to.add(n), *byte))
    }

    unsafe fn write_user_from(&self, to: UserAddr, from: *const u8, bytes: usize) -> Result<(), UserFault> {
        // SAFETY: readable, says the caller.
        (0..bytes).try_for_each(|n| self.store(to.add(n), unsafe { from.add(n).read_volatile() }))
    }

    fn zero_user(&self, to: UserAddr, bytes: usize) -> Result<(), UserFault> {
        (0..bytes).try_for_each(|n| self.store(to.add(n), 0))
    }

    fn user_string_length(&self, string: UserAddr, limit: usize) -> Result<usize, UserFault> {
        for n in 0..limit {
            if self.load(string.add(n))? == 0 {
                return Ok(n);
            }
        }
        Ok(limit)
    }

    fn load_user_u32(&self, at: UserAddr) -> Result<u32, UserFault> {
        let mut bytes = [0; 4];
        self.read_user(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn compare_exchange_user_u32(&self, at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault> {
        let found = self.load_user_u32(at)?;
        if found != old {
            return Ok(Err(found));
        }
        self.write_user(at, &new.to_le_bytes())?;
        Ok(Ok(found))
    }
}

pub struct Machine {
    pub memory: PartitionMemory<Fake>,
    pub hardware: &'static Fake,
}

/// A kernel of `cpus` CPUs; the caller becomes its first. Its page tables' kernel half has entry 300.
pub fn machine(cpus: usize) -> Machine {
    CPU.set(0);
    let bytes = (OTHERS.end - OWN.start) as usize;
    // SAFETY: not empty, never freed, and used by this machine only.
    let (memory, partition) = unsafe {
        let memory = alloc_zeroed(Layout::from_size_align(bytes, PAGE_SIZE).unwrap()) as usize;
        let config = Config {
            direct_base: memory.wrapping_sub(OWN.start as usize),
            ranges: &[OWN],
            reserved: &[],
            cpus,
            cpu: || CPU.get(),
        };
        (memory, Box::leak(Box::new(Partition::new(&config).unwrap())))
    };
    let kernel_root = partition.alloc().unwrap();
    let fake = Fake {
        cpus: (0..cpus).map(|_| Cpu::default()).collect::<Vec<_>>().into(),
        memory,
        kernel_root,
        interrupts: AtomicUsize::new(0),
    };
    fake.entry(kernel_root.address(), 300).store(0xabc_d003, SeqCst);
    for cpu in &fake.cpus {
        cpu.root.store(kernel_root.address(), SeqCst);
    }
    let homes = alloc::vec![(OTHERS, KernelId(1)), (OWN, KernelId(0))];
    let memory =
        PartitionMemory::start(Setup { kernel: KernelId(0), boot_generation: 1, partition, homes, hardware: fake });
    let hardware = memory.hardware();
    Machine { memory, hardware }
}

impl Machine {
    pub fn free(&self) -> u64 {
        self.memory.totals().1
    }

    /// What hardware on this CPU would find in a table's kernel half.
    pub fn kernel_entry(&self, root: u64) -> u64 {
        self.hardware.entry(root, 300).load(SeqCst)
    }
}

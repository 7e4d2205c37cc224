//! The memory of trace rings, and who writes them: each CPU its own, with the clock of the machine.
//!
//! The host reads them where they lie (`cob trace` gives the machine memory that both can see). It finds them from the board: a word for each kernel says where
//! the kernel's directory is, and that says where header and records of each ring are.

use crate::{board, clock, instance, layout::DIRECT_BASE, pages, patching, percpu, sampling};
use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::*};
use machine::{NoMemory, PAGE_SIZE};
use trace::{Directory, Layout, Point, Ring, Sink, UserPosition};

/// By index of CPU.
struct Rings(Vec<Ring>);

impl Sink for Rings {
    fn record(&self, point: Point, fields: &[u64]) {
        // Nothing records in the middle of this: interrupts are off, and what interrupts all the same writes to the ring of samples only.
        if let Some(ring) = self.0.get(percpu::current_index()) {
            ring.push(point, clock::now(), fields);
        }
    }

    fn points_changed(&self) {
        patching::follow(trace::enabled);
    }

    fn position(&self) -> Option<&UserPosition> {
        sampling::position()
    }
}

/// `1 << order` zeroed pages that this kernel keeps for ever: their physical address, and their words.
fn words(order: usize) -> Result<(u64, &'static [AtomicU64]), NoMemory> {
    let phys = pages::alloc_run(order).ok_or(NoMemory)?;
    // SAFETY: a fresh run of the own partition, in the direct map, which nobody else has and nobody gives back; every word of it is a valid atomic. The
    // host writes to it as another CPU would.
    Ok((phys, unsafe {
        core::slice::from_raw_parts((DIRECT_BASE + phys) as *const AtomicU64, (PAGE_SIZE << order) / 8)
    }))
}

/// Makes a ring of so many bytes (rounded up to a power of two of pages) for each CPU of this kernel, and shows them to the host. Once, before anything is recorded.
/// `sampled_stack`: makes another one for each CPU's samples, which have so many bytes of a program's stack at most.
pub fn create_rings(bytes: u64, overwrite: bool, sampled_stack: Option<u64>) -> Result<(), NoMemory> {
    let kernel = instance::kernel();
    let boot_generation = board::entry(kernel).lifecycle().boot_generation.load(Relaxed);
    let order = bytes.div_ceil(PAGE_SIZE as u64).max(4).next_power_of_two().ilog2() as usize;
    let (directory_at, directory) = words(0)?;
    let (mut rings, mut samples, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for area in percpu::all().iter().take(Directory::MOST_RINGS / 2) {
        let mut make = |cpu: u16| -> Result<Option<Ring>, NoMemory> {
            let ((header_at, header), (records_at, records)) = (words(0)?, words(order)?);
            let capacity = records.len() as u64;
            places.push([header_at, records_at]);
            Ok(Ring::new(header, records, Layout { kernel: kernel.0, boot_generation, cpu, capacity, overwrite }))
        };
        let cpu = area.cpu.0 as u16;
        rings.extend(make(cpu)?);
        if sampled_stack.is_some() {
            samples.extend(make(cpu | trace::SAMPLES)?);
        }
    }
    if let Some(bytes) = sampled_stack {
        sampling::start(samples, bytes);
    }
    Directory::write(directory, places.into_iter());
    // Release: who sees the address sees what is there.
    board::traces(kernel).store(Directory::word(directory_at, boot_generation), Release);
    trace::set_sink(Box::leak(Box::new(Rings(rings))));
    Ok(())
}

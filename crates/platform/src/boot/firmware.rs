//! The machine as ACPI describes it: CPUs (MADT), which node CPUs and memory belong to (SRAT), how far
//! apart nodes are (SLIT), where PCI configuration space is (MCFG).

use crate::arch;
use crate::plan::{CpuInfo, Ecam, MemoryRange, Topology};
use acpi::madt::Madt;
use acpi::mcfg::Mcfg;
use acpi::sdt::{SdtHeader, Signature};
use acpi::{AcpiHandler, AcpiTable, AcpiTables, PhysicalMapping};
use alloc::vec::Vec;
use core::ptr::NonNull;

/// The first 4 GiB are mapped one to one while this runs.
#[derive(Clone)]
struct Identity;

impl AcpiHandler for Identity {
    unsafe fn map_physical_region<T>(&self, physical_address: usize, size: usize) -> PhysicalMapping<Self, T> {
        assert!(physical_address + size <= 1 << 32, "ACPI tables above 4 GiB");
        let pointer = NonNull::new(physical_address as *mut T).expect("no table at 0");
        // SAFETY: mapped one to one, says the type.
        unsafe { PhysicalMapping::new(physical_address, pointer, size, size, Identity) }
    }

    fn unmap_physical_region<T>(_: &PhysicalMapping<Self, T>) {}
}

macro_rules! raw_table {
    ($name:ident, $signature:ident) => {
        /// Only a header: `body` gives what follows.
        #[repr(transparent)]
        struct $name(SdtHeader);

        // SAFETY: a header is what every table begins with.
        unsafe impl AcpiTable for $name {
            const SIGNATURE: Signature = Signature::$signature;
            fn header(&self) -> &SdtHeader {
                &self.0
            }
        }
    };
}

raw_table!(Srat, SRAT);
raw_table!(Slit, SLIT);

fn body<T: AcpiTable>(table: &PhysicalMapping<Identity, T>) -> &[u8] {
    let length = table.get().get_ref().header().length as usize;
    let start = table.virtual_start().as_ptr() as *const u8;
    // SAFETY: the crate has checked the table's sum over that length, and it is mapped.
    let all = unsafe { core::slice::from_raw_parts(start, length) };
    &all[core::mem::size_of::<SdtHeader>().min(length)..]
}

const ENABLED: u32 = 1;

/// Reads the tables. `memory` is the loader's map of RAM; `boot_cpu` the CPU we run on.
///
/// # Safety
/// `rsdp` is what the loader says, and the first 4 GiB are mapped one to one.
pub unsafe fn read(rsdp: u64, memory: Vec<MemoryRange>, boot_cpu: u32) -> Topology {
    // SAFETY: says the caller.
    let tables = match unsafe { AcpiTables::from_rsdp(Identity, rsdp as usize) } {
        Ok(tables) => tables,
        Err(error) => {
            crate::serial::early(format_args!("no ACPI tables ({error:?}): one CPU, one node"));
            return Topology {
                cpus: [CpuInfo { hardware_id: boot_cpu, node: 0 }].into(),
                memory,
                ..Topology::default()
            };
        }
    };
    let mut ids: Vec<u32> = Vec::new();
    if let Ok(madt) = tables.find_table::<Madt>() {
        ids.extend(madt.get().entries().filter_map(|entry| arch::cpu_id(&entry)));
    }
    // Linux: the boot CPU is 0, the others follow in the order of the table.
    ids.retain(|&id| id != boot_cpu);
    ids.insert(0, boot_cpu);

    let srat = tables.find_table::<Srat>().map(|table| affinities(body(&table))).unwrap_or_default();
    let node_of = |cpu| srat.cpus.iter().find(|(id, _)| *id == cpu).map_or(0, |(_, node)| *node);
    let cpus = ids.iter().map(|&id| CpuInfo { hardware_id: id, node: node_of(id) }).collect();
    let memory = memory.into_iter().flat_map(|range| by_node(range, &srat.memory)).collect();
    let ecam = tables.find_table::<Mcfg>().ok().and_then(|mcfg| {
        mcfg.entries().iter().find(|entry| entry.pci_segment_group == 0).map(|entry| Ecam {
            base: entry.base_address,
            first_bus: entry.bus_number_start,
            last_bus: entry.bus_number_end,
        })
    });
    // The count of nodes, then the matrix.
    let distances = tables.find_table::<Slit>().map(|slit| body(&slit).get(8..).unwrap_or(&[]).to_vec());
    Topology { cpus, memory, ecam, distances: distances.unwrap_or_default() }
}

#[derive(Default)]
struct Affinities {
    cpus: Vec<(u32, u32)>,
    memory: Vec<MemoryRange>,
}

/// ACPI 6.5, 5.2.16.
fn affinities(table: &[u8]) -> Affinities {
    let mut found = Affinities::default();
    let word =
        |entry: &[u8], at: usize| entry.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let long = |entry: &[u8], at: usize| u64::from(word(entry, at)) | u64::from(word(entry, at + 4)) << 32;
    let mut rest = table.get(12..).unwrap_or(&[]);
    while rest.len() >= 2 && usize::from(rest[1]) >= 2 && usize::from(rest[1]) <= rest.len() {
        let (entry, next) = rest.split_at(rest[1].into());
        rest = next;
        match entry[0] {
            1 if word(entry, 28) & ENABLED != 0 => {
                let start = long(entry, 8);
                found.memory.push(MemoryRange { start, end: start + long(entry, 16), node: word(entry, 2) });
            }
            _ => found.cpus.extend(arch::cpu_node(entry)),
        }
    }
    found.memory.sort_by_key(|m| m.start);
    found
}

/// Cuts a range of RAM at the borders of the nodes.
fn by_node(range: MemoryRange, nodes: &[MemoryRange]) -> Vec<MemoryRange> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let here = nodes.iter().find(|n| n.start <= at && at < n.end);
        let next = nodes.iter().map(|n| n.start).filter(|&start| start > at).min().unwrap_or(range.end);
        let end = here.map_or(next, |n| n.end).min(range.end);
        pieces.push(MemoryRange { start: at, end, node: here.map_or(0, |n| n.node) });
        at = end;
    }
    pieces
}

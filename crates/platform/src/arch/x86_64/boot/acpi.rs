//! CPUs in ACPI's tables: an entry with a local APIC is one.

use acpi::madt::MadtEntry;

const ENABLED: u32 = 1;

/// The hardware id of a CPU that an entry of the MADT describes and that may be used.
pub fn cpu_id(entry: &MadtEntry) -> Option<u32> {
    match entry {
        MadtEntry::LocalApic(cpu) if cpu.flags & ENABLED != 0 => Some(cpu.apic_id.into()),
        MadtEntry::LocalX2Apic(cpu) if cpu.flags & ENABLED != 0 => Some(cpu.x2apic_id),
        _ => None,
    }
}

/// The hardware id and the node of a CPU that an entry of the SRAT is about (ACPI 6.5, 5.2.16.1 and 5.2.16.3).
pub fn cpu_node(entry: &[u8]) -> Option<(u32, u32)> {
    let word = |at: usize| entry.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    match entry.first()? {
        0 if entry.len() >= 16 && word(4) & ENABLED != 0 => {
            Some((entry[3].into(), u32::from(entry[2]) | (word(8) & 0xffff_ff00)))
        }
        2 if word(12) & ENABLED != 0 => Some((word(8), word(4))),
        _ => None,
    }
}

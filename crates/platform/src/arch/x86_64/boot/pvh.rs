//! What a PVH loader hands over (Xen `public/arch-x86/hvm/start_info.h`).

use crate::boot::Handover;
use crate::plan::MemoryRange;
use alloc::string::String;

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_at: u64,
    command_line_at: u64,
    rsdp_at: u64,
    memory_map_at: u64,
    memory_map_entries: u32,
    reserved: u32,
}

#[repr(C)]
struct MapEntry {
    start: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

#[repr(C)]
struct Module {
    start: u64,
    bytes: u64,
    command_line_at: u64,
    reserved: u64,
}

/// Reads it all before anything can overwrite it.
///
/// # Safety
/// `start_info` is what the loader left in ebx, and the first 4 GiB are mapped one to one.
pub unsafe fn read(start_info: u64, boot_cpu: u32, started: u64) -> Handover {
    // SAFETY: says the caller; the loader's structures lie below 4 GiB.
    unsafe {
        let info = &*(start_info as *const StartInfo);
        assert!(info.magic == MAGIC && info.version >= 1, "the loader must speak PVH with a memory map");
        let map = core::slice::from_raw_parts(info.memory_map_at as *const MapEntry, info.memory_map_entries as usize);
        let ram = map.iter().filter(|entry| entry.kind == RAM);
        let memory = ram
            .map(|entry| MemoryRange { start: entry.start, end: entry.start.saturating_add(entry.bytes), node: 0 })
            .collect();
        let command_line = match info.command_line_at {
            0 => String::new(),
            at => core::ffi::CStr::from_ptr(at as *const core::ffi::c_char).to_string_lossy().into_owned(),
        };
        // The first module.
        let initramfs = (info.modules > 0).then(|| {
            let module = &*(info.modules_at as *const Module);
            module.start..module.start + module.bytes
        });
        Handover { command_line, rsdp: info.rsdp_at, memory, initramfs, boot_cpu, started }
    }
}

//! Caches as CPUID describes them: leaf 4 of Intel, leaf 0x8000001d of AMD in the same form.

use alloc::vec::Vec;
use machine::Cpu;
use procfs::sys::Cache;

/// What [`Cache`]s every CPU has.
pub(crate) fn caches(cpu: &dyn Cpu) -> Vec<Cache> {
    of(&|leaf, sub| cpu.identify(leaf, sub))
}

fn of(identify: &dyn Fn(u32, u32) -> [u32; 4]) -> Vec<Cache> {
    let amd = identify(0x8000_0000, 0)[0] >= 0x8000_001d && identify(0x8000_0001, 0)[2] >> 22 & 1 == 1;
    let leaf = match (amd, identify(0, 0)[0] >= 4) {
        (true, _) => 0x8000_001d,
        (false, true) => 4,
        (false, false) => return Vec::new(),
    };
    // There is no machine with more; an emulator that never says "no more" is not believed.
    (0..8).map_while(|index| decode(identify(leaf, index))).collect()
}

/// None: no more caches.
fn decode([eax, ebx, ecx, _]: [u32; 4]) -> Option<Cache> {
    let kind = match eax & 31 {
        1 => "Data",
        2 => "Instruction",
        3 => "Unified",
        _ => return None,
    };
    Some(Cache {
        level: eax >> 5 & 7,
        kind,
        line: (ebx & 0xfff) + 1,
        partitions: (ebx >> 12 & 0x3ff) + 1,
        ways: (ebx >> 22) + 1,
        sets: ecx.wrapping_add(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_of_32_kib_is_decoded() {
        // Eight ways, 64 sets, lines of 64 bytes (SDM 2, CPUID leaf 4).
        let cache = decode([0x121, 7 << 22 | 63, 63, 0]).expect("a data cache");
        assert_eq!((cache.level, cache.kind, cache.bytes()), (1, "Data", 32768));
        assert_eq!(decode([0, 0, 0, 0]), None);
    }

    #[test]
    fn an_endless_answer_ends() {
        let endless = |leaf: u32, _| if leaf == 0 { [4, 0, 0, 0] } else { [0x121, 7 << 22 | 63, 63, 0] };
        assert_eq!(of(&endless).len(), 8);
    }
}

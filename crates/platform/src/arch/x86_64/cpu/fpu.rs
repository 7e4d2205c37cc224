//! Extended state (x87, SSE, AVX, AVX-512). The kernel never touches it, so what is live in a CPU's
//! registers is always some user thread's.

use super::super::usercopy;
use core::arch::{asm, x86_64::__cpuid, x86_64::__cpuid_count};
use machine::FpuState;
use spin::Once;
use x86_64::registers::control::{Cr4, Cr4Flags};

/// What the machine's CPUs can save, and how.
pub struct Fpu {
    /// Components of XCR0; 0: only FXSAVE.
    mask: u64,
    optimized: bool,
    bytes: usize,
    initial: FpuState,
}

static FPU: Once<Fpu> = Once::new();

/// x87, SSE, AVX, AVX-512 (opmask, upper halves, upper registers). Not MPX, PKRU or AMX.
const WANTED: u64 = 0b1110_0111;

/// On the current CPU.
pub fn enable() {
    if !Cr4::read().contains(Cr4Flags::OSXSAVE) {
        FPU.call_once(|| Fpu { mask: 0, optimized: false, bytes: 512, initial: FpuState::initial(512) });
        return;
    }
    let supported = __cpuid_count(13, 0);
    let mut mask = (u64::from(supported.edx) << 32 | u64::from(supported.eax)) & WANTED;
    if mask & 0b1110_0000 != 0b1110_0000 {
        mask &= 0b111; // the AVX-512 components come together or not at all
    }
    // SAFETY: OSXSAVE is on and the mask is a subset of what CPUID offers, with x87 and SSE in it.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") mask as u32, in("edx") (mask >> 32) as u32, options(nomem, nostack))
    }
    FPU.call_once(|| {
        let bytes = __cpuid_count(13, 0).ebx as usize;
        let optimized = __cpuid(0).eax >= 13 && __cpuid_count(13, 1).eax & 1 == 1;
        Fpu { mask, optimized, bytes, initial: FpuState::initial(bytes) }
    });
}

impl Fpu {
    pub fn get() -> &'static Fpu {
        FPU.get().expect("the boot CPU has looked")
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes `state` live. A malformed one (a signal frame may hold anything) counts as initial.
    pub fn load(&self, state: &FpuState) {
        let (area, size) = (state.as_ptr(), state.size());
        if size < self.bytes || !self.try_load(area) {
            let loaded = self.try_load(self.initial.as_ptr());
            debug_assert!(loaded, "the initial state is well-formed");
        }
    }

    fn try_load(&self, area: *const u8) -> bool {
        // SAFETY: the area has the size and alignment asked for.
        unsafe { usercopy::restore_extended(area, self.mask, self.mask != 0) }
    }

    /// Saves what is live.
    pub fn save(&self, state: &mut FpuState) {
        assert!(state.size() >= self.bytes);
        let (low, high) = (self.mask as u32, (self.mask >> 32) as u32);
        let area = state.as_mut_ptr();
        // SAFETY: the area is large enough, 64-byte aligned, exclusively ours.
        unsafe {
            if self.mask == 0 {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack));
            } else if self.optimized {
                asm!("xsaveopt64 [{}]", in(reg) area, in("eax") low, in("edx") high, options(nostack));
            } else {
                asm!("xsave64 [{}]", in(reg) area, in("eax") low, in("edx") high, options(nostack));
            }
        }
    }
}

//! Random bytes: ChaCha20 (RFC 8439) keyed from the CPU's random instructions where there are any, and
//! always from the time-stamp counter's jitter.

use crate::clock;
use core::arch::{asm, x86_64::__cpuid};
use machine::sync::Lock;

struct Generator {
    key: [u32; 8],
    counter: u64,
    seeded: bool,
}

static GENERATOR: Lock<Generator> = Lock::new(Generator { key: [0; 8], counter: 0, seeded: false });

/// Fills `bytes`.
pub fn fill(bytes: &mut [u8]) {
    let mut generator = GENERATOR.lock();
    if !generator.seeded {
        generator.seed();
    }
    for chunk in bytes.chunks_mut(64) {
        generator.counter += 1;
        let block = chacha_block(&generator.key, generator.counter);
        for (to, word) in chunk.chunks_mut(4).zip(block) {
            to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        }
    }
    // Forget the key that made them: a later leak must not tell what was handed out.
    generator.counter += 1;
    let next = chacha_block(&generator.key, generator.counter);
    generator.key.copy_from_slice(&next[..8]);
}

impl Generator {
    fn seed(&mut self) {
        let has_random = __cpuid(1).ecx >> 30 & 1 == 1;
        for round in 0..8 {
            // The same boot on the same machine still differs by kernel and by jitter.
            let mut word = clock::ticks() ^ u64::from(crate::kernel().0) << 48;
            if has_random {
                word ^= hardware().unwrap_or(0);
            }
            self.key[round] ^= (word ^ word >> 32) as u32;
            let mixed = chacha_block(&self.key, round as u64);
            self.key.copy_from_slice(&mixed[..8]);
        }
        self.seeded = true;
    }
}

fn hardware() -> Option<u64> {
    for _ in 0..10 {
        let (value, ok): (u64, u8);
        // SAFETY: RDRAND exists, says CPUID; it touches no memory.
        unsafe { asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack)) }
        if ok == 1 {
            return Some(value);
        }
    }
    None
}

fn chacha_block(key: &[u32; 8], counter: u64) -> [u32; 16] {
    let mut state = [0u32; 16];
    state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    state[4..12].copy_from_slice(key);
    state[12] = counter as u32;
    state[13] = (counter >> 32) as u32;
    let start = state;
    let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
        for (x, y, z, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
            state[x] = state[x].wrapping_add(state[y]);
            state[z] = (state[z] ^ state[x]).rotate_left(by);
        }
    };
    for _ in 0..10 {
        quarter(0, 4, 8, 12);
        quarter(1, 5, 9, 13);
        quarter(2, 6, 10, 14);
        quarter(3, 7, 11, 15);
        quarter(0, 5, 10, 15);
        quarter(1, 6, 11, 12);
        quarter(2, 7, 8, 13);
        quarter(3, 4, 9, 14);
    }
    let mut out = state;
    for (word, first) in out.iter_mut().zip(start) {
        *word = word.wrapping_add(first);
    }
    out
}

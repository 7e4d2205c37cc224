//! Random bytes: ChaCha20 (RFC 8439) keyed from the CPU's random instructions where there are any, and
//! always from the cycle counter's jitter.

use crate::arch;
use machine::sync::Lock;

struct Generator {
    key: [u32; 8],
    seeded: bool,
}

static GENERATOR: Lock<Generator> = Lock::new(Generator { key: [0; 8], seeded: false });

/// Fills `bytes`. The first half of the first block becomes the next key (Bernstein 2017, fast key erasure): a later leak must not
/// tell what was handed out.
pub fn fill(bytes: &mut [u8]) {
    let mut generator = GENERATOR.lock();
    if !generator.seeded {
        generator.seed();
    }
    let key = generator.key;
    let block = chacha_block(&key, 0);
    let (next, first) = block.split_at(key.len());
    generator.key.copy_from_slice(next);
    drop(generator);
    let (head, rest) = bytes.split_at_mut(bytes.len().min(size_of_val(first)));
    put(head, first);
    for (part, number) in rest.chunks_mut(size_of_val(&block)).zip(1..) {
        put(part, &chacha_block(&key, number));
    }
}

fn put(bytes: &mut [u8], words: &[u32]) {
    for (to, word) in bytes.chunks_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
    }
}

impl Generator {
    fn seed(&mut self) {
        for round in 0..8 {
            // The same boot on the same machine still differs by kernel and by jitter.
            let word = arch::ticks() ^ u64::from(crate::kernel().0) << 48 ^ arch::random::word().unwrap_or(0);
            self.key[round] ^= (word ^ word >> 32) as u32;
            let mixed = chacha_block(&self.key, round as u64);
            self.key.copy_from_slice(&mixed[..8]);
        }
        self.seeded = true;
    }
}

/// Inlined, so that the indices are known where it is used.
#[inline(always)]
fn quarter(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    let mut step = |x: usize, y: usize, z: usize, by: u32| {
        state[x] = state[x].wrapping_add(state[y]);
        state[z] = (state[z] ^ state[x]).rotate_left(by);
    };
    step(a, b, d, 16);
    step(c, d, b, 12);
    step(a, b, d, 8);
    step(c, d, b, 7);
}

fn chacha_block(key: &[u32; 8], counter: u64) -> [u32; 16] {
    let mut state = [0u32; 16];
    state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    state[4..12].copy_from_slice(key);
    state[12] = counter as u32;
    state[13] = (counter >> 32) as u32;
    let start = state;
    for _ in 0..10 {
        quarter(&mut state, [0, 4, 8, 12]);
        quarter(&mut state, [1, 5, 9, 13]);
        quarter(&mut state, [2, 6, 10, 14]);
        quarter(&mut state, [3, 7, 11, 15]);
        quarter(&mut state, [0, 5, 10, 15]);
        quarter(&mut state, [1, 6, 11, 12]);
        quarter(&mut state, [2, 7, 8, 13]);
        quarter(&mut state, [3, 4, 9, 14]);
    }
    for (word, first) in state.iter_mut().zip(start) {
        *word = word.wrapping_add(first);
    }
    state
}

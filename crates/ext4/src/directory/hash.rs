//! The hash of a name, by which the index of a directory is ordered. Linux and e2fsprogs compute the same.

use crate::{bytes::sum, superblock};

/// The versions that the root of an index, and the superblock, may name. Others (SipHash, for encrypted names that ignore case) are not supported.
const LEGACY: u8 = 0;
const HALF_MD4: u8 = 1;
const TEA: u8 = 2;

/// What MD4 begins with: used where the superblock has no seed.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The largest hash of all; it means the end of a directory in Linux, so that no name may have it.
const END: u32 = 0xffff_fffe;

/// A hash function with its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hasher {
    seed: [u32; 4],
    version: u8,
    unsigned: bool,
}

impl Hasher {
    /// None: the version is not known.
    pub fn new(hash: &superblock::Hash, version: u8) -> Option<Hasher> {
        let seed = if hash.seed == [0; 4] { DEFAULT_SEED } else { hash.seed };
        (version <= TEA).then_some(Hasher { seed, version, unsigned: hash.unsigned })
    }

    /// The version, as an index names it.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The hash of a name, and a second one. The index is ordered by the first, whose lowest bit is 0. Only positions in a listing use the second: the legacy function has none, and
    /// the name's sum takes its place.
    pub fn hash(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.seed;
        let (major, minor) = match self.version {
            LEGACY => (self.legacy(name), sum(u32::MAX, &[name])),
            HALF_MD4 => {
                for at in (0..name.len()).step_by(32) {
                    half_md4(&mut state, &self.words(&name[at..]));
                }
                (state[1], state[2])
            }
            _ => {
                for at in (0..name.len()).step_by(16) {
                    tea(&mut state, &self.words(&name[at..]));
                }
                (state[0], state[1])
            }
        };
        let major = major & !1;
        (if major == END { END - 2 } else { major }, minor)
    }

    /// A byte as C's `char` is on the machine that made the file system.
    fn widen(&self, byte: u8) -> u32 {
        match self.unsigned {
            true => byte.into(),
            false => byte as i8 as u32,
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for byte in name {
            let mixed = before.wrapping_add(last ^ self.widen(*byte).wrapping_mul(7_152_373));
            let next = if mixed >> 31 != 0 { mixed.wrapping_sub(0x7fff_ffff) } else { mixed };
            (before, last) = (last, next);
        }
        last << 1
    }

    /// The first bytes of what is left of a name as words; the length pads them.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let length = rest.len() as u32;
        let pad = length.wrapping_mul(0x0101_0101);
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(pad, |word, byte| self.widen(*byte).wrapping_add(word << 8));
        }
        words
    }
}

/// MD4's compression with eight words rather than sixteen.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in rounds {
        for (step, index) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[index]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

/// Sixteen rounds of the tiny encryption algorithm; the words are the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut low, mut high, mut sum) = (state[0], state[1], 0u32);
    let mix = |word: u32, sum: u32, first: u32, second: u32| {
        (word << 4).wrapping_add(first) ^ word.wrapping_add(sum) ^ (word >> 5).wrapping_add(second)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        low = low.wrapping_add(mix(high, sum, key[0], key[1]));
        high = high.wrapping_add(mix(low, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(low);
    state[1] = state[1].wrapping_add(high);
}

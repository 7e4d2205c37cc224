//! Numbers in blocks, and sums over them.

/// CRC-32C as ext4 has it: neither inverted at the beginning nor at the end.
static SUM: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::Algorithm {
    width: 32,
    poly: 0x1edc_6f41,
    init: u32::MAX,
    refin: true,
    refout: true,
    xorout: 0,
    check: 0x1cf9_6d7c,
    residue: 0,
});

/// The sum of pieces, one after the other.
pub fn sum(seed: u32, pieces: &[&[u8]]) -> u32 {
    // The register is kept with its bits the other way round.
    let mut digest = SUM.digest_with_initial(seed.reverse_bits());
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

/// 16 bits at `at`; 0 past the end.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_le_bytes(*word))
}

/// 32 bits at `at`; 0 past the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// A number of which half is elsewhere.
pub fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Puts 16 bits at `at`, which must be there.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Puts 32 bits at `at`, which must be there.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The low 32 bits of a number, and the others.
pub fn split(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

//! The superblock: sizes and features.

use crate::{
    bytes::{joined, sum, u16_at, u32_at},
    Error, Result,
};

/// Where it is, and how large, in bytes.
pub const AT: usize = 1024;
pub const BYTES: usize = 1024;

const MAGIC: u16 = 0xef53;
/// Sums are CRC-32C.
const CRC32C: u8 = 1;

mod incompatible {
    pub const FILE_TYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const EXTENTS: u32 = 0x40;
    pub const SIXTY_FOUR_BIT: u32 = 0x80;
    pub const FLEX_BG: u32 = 0x200;
    pub const SUM_SEED: u32 = 0x2000;
    pub const KNOWN: u32 = FILE_TYPE | RECOVER | EXTENTS | SIXTY_FOUR_BIT | FLEX_BG | SUM_SEED;
}
const METADATA_SUMS: u32 = 0x400;

/// What it says.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Bytes of a block: 1024 to 65536.
    pub block_bytes: u32,
    /// Blocks of the file system.
    pub blocks: u64,
    /// Of these, free ones, and those that only root may use.
    pub free_blocks: u64,
    /// See [`Superblock::free_blocks`].
    pub reserved_blocks: u64,
    /// Blocks that hold what is no file's, as mkfs has counted them; 0: it has not.
    pub overhead: u32,
    /// Inodes, and free ones.
    pub inodes: u32,
    /// See [`Superblock::inodes`].
    pub free_inodes: u32,
    /// The name of the file system, as 16 bytes.
    pub uuid: [u8; 16],
    /// It was not unmounted: its journal has what its blocks have not.
    pub needs_recovery: bool,
    pub(crate) first_block: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) inode_bytes: usize,
    pub(crate) descriptor_bytes: usize,
    /// What sums begin with; None: there are none.
    pub(crate) seed: Option<u32>,
}

impl Superblock {
    /// Of the 1024 bytes at byte 1024 of the device.
    pub fn parse(bytes: &[u8; BYTES]) -> Result<Superblock> {
        if u16_at(bytes, 0x38) != MAGIC {
            return Err(Error::Unsupported("no ext4"));
        }
        let (incompatible, read_only) = (u32_at(bytes, 0x60), u32_at(bytes, 0x64));
        let sums = read_only & METADATA_SUMS != 0;
        if sums && bytes[0x175] != CRC32C {
            return Err(Error::Unsupported("sums of an unknown kind"));
        }
        if sums && sum(u32::MAX, &[&bytes[..0x3fc]]) != u32_at(bytes, 0x3fc) {
            return Err(Error::Corrupt("the superblock's sum"));
        }
        if u32_at(bytes, 0x4c) == 0 || incompatible & !incompatible::KNOWN != 0 {
            return Err(Error::Unsupported("a feature that is not known"));
        }
        let wide = incompatible & incompatible::SIXTY_FOUR_BIT != 0;
        let high = |at: usize| if wide { u32_at(bytes, at) } else { 0 };
        let log = u32_at(bytes, 0x18);
        if log > 6 {
            return Err(Error::Corrupt("the size of a block"));
        }
        let block_bytes = 1024 << log;
        let uuid = *bytes[0x68..].first_chunk().ok_or(Error::Corrupt("the superblock"))?;
        let seeded = incompatible & incompatible::SUM_SEED != 0;
        let seed = if seeded { u32_at(bytes, 0x270) } else { sum(u32::MAX, &[&uuid]) };
        let superblock = Superblock {
            block_bytes,
            blocks: joined(u32_at(bytes, 0x4), high(0x150)),
            free_blocks: joined(u32_at(bytes, 0xc), high(0x158)),
            reserved_blocks: joined(u32_at(bytes, 0x8), high(0x154)),
            overhead: u32_at(bytes, 0x248),
            inodes: u32_at(bytes, 0x0),
            free_inodes: u32_at(bytes, 0x10),
            uuid,
            needs_recovery: incompatible & incompatible::RECOVER != 0,
            first_block: u32_at(bytes, 0x14),
            blocks_per_group: u32_at(bytes, 0x20),
            inodes_per_group: u32_at(bytes, 0x28),
            inode_bytes: u16_at(bytes, 0x58).into(),
            descriptor_bytes: if wide { u16_at(bytes, 0xfe).into() } else { 32 },
            seed: sums.then_some(seed),
        };
        superblock.check()?;
        Ok(superblock)
    }

    fn check(&self) -> Result<()> {
        let bits = self.block_bytes * 8;
        let power = |bytes: usize, least: usize| {
            bytes.is_power_of_two() && (least..=self.block_bytes as usize).contains(&bytes)
        };
        let holds = [
            (self.blocks > u64::from(self.first_block) && self.blocks < 1 << 48, "the number of blocks"),
            (self.first_block == u32::from(self.block_bytes == 1024), "the first block"),
            ((8..=bits).contains(&self.blocks_per_group), "the blocks of a group"),
            ((1..=bits).contains(&self.inodes_per_group), "the inodes of a group"),
            (power(self.inode_bytes, 128), "the size of an inode"),
            (power(self.descriptor_bytes, 32), "the size of a group's descriptor"),
            (u64::from(self.inodes) <= self.groups() * u64::from(self.inodes_per_group), "the number of inodes"),
        ];
        holds.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(Error::Corrupt(what)))
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> u64 {
        (self.blocks - u64::from(self.first_block)).div_ceil(self.blocks_per_group.into())
    }
}

//! The superblock: sizes and features.

use crate::{
    bytes::{joined, put_u16, put_u32, sum, u16_at, u32_at},
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

/// Features that one who writes must know, and one who reads need not.
mod read_only {
    pub const SPARSE_SUPER: u32 = 0x1;
    pub const LARGE_FILE: u32 = 0x2;
    pub const HUGE_FILE: u32 = 0x8;
    pub const DIR_NLINK: u32 = 0x20;
    pub const EXTRA_ISIZE: u32 = 0x40;
    pub const METADATA_SUMS: u32 = 0x400;
    pub const ORPHAN_PRESENT: u32 = 0x1_0000;
    pub const KNOWN: u32 =
        SPARSE_SUPER | LARGE_FILE | HUGE_FILE | DIR_NLINK | EXTRA_ISIZE | METADATA_SUMS | ORPHAN_PRESENT;
}

/// Features that nobody need know.
mod compatible {
    pub const JOURNAL: u32 = 0x4;
    pub const DIRECTORY_INDEX: u32 = 0x20;
    pub const SPARSE_SUPER2: u32 = 0x200;
    pub const ORPHAN_FILE: u32 = 0x1000;
}

/// Where fields are that change.
pub(crate) mod field {
    pub const FREE_BLOCKS: (usize, usize) = (0xc, 0x158);
    pub const FREE_INODES: usize = 0x10;
    pub const MOUNTED: usize = 0x2c;
    pub const WRITTEN: usize = 0x30;
    pub const MOUNTS: usize = 0x34;
    pub const STATE: usize = 0x3a;
    pub const ON_ERROR: usize = 0x3c;
    pub const INCOMPATIBLE: usize = 0x60;
    pub const READ_ONLY: usize = 0x64;
    pub const LAST_ORPHAN: usize = 0xe8;
    pub const ERRORS: usize = 0x194;
    pub const FIRST_ERROR: usize = 0x198;
    pub const LAST_ERROR: usize = 0x1cc;
    pub const SUM: usize = 0x3fc;
}

/// In the state: errors were found, and nobody has repaired it since.
const ERROR_FS: u16 = 2;
/// Of an error: where the name is of what found it, behind its time, and of how many bytes.
const NAME: [(usize, usize); 2] = [(0x1a8, 32), (0x1e0, 32)];
/// The bytes that say which errors were found.
const ERROR_RECORD: ::core::ops::Range<usize> = field::ERRORS..0x200;

/// What becomes of a file system in which damage is found (tune2fs -e, mount -o errors=).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is noted, and who met it hears of it.
    Continue,
    /// Nothing is written any more.
    ReadOnly,
}

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
    /// Damage was found in it, and it has not been checked since.
    pub has_errors: bool,
    /// What is done when damage is found. `errors=panic` counts as read only.
    pub on_error: OnError,
    error_record: [u8; 0x200 - field::ERRORS],
    /// A feature is not known that one who writes must know: it can only be read.
    pub unknown_to_writers: bool,
    pub(crate) first_block: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) inode_bytes: usize,
    pub(crate) descriptor_bytes: usize,
    /// What sums begin with; None: there are none.
    pub(crate) seed: Option<u32>,
    /// Numbers of blocks have 64 bits.
    pub(crate) wide: bool,
    compatible: u32,
    incompatible: u32,
    read_only: u32,
    /// Whether backups of the superblock are in some groups only.
    backups: Option<[u32; 2]>,
    /// Blocks behind the descriptors that are kept for more of them.
    pub(crate) spare_descriptors: u32,
    /// The first inode that is nobody's.
    pub(crate) first_inode: u32,
    /// Bytes that a new inode uses behind the first 128.
    pub(crate) extra: u16,
    /// The inode of the journal, and of the file of orphans.
    pub(crate) journal: u32,
    pub(crate) orphan_file: u32,
    /// The newest orphan of the list.
    pub(crate) last_orphan: u32,
    /// How names are hashed: seed, version of the function, and whether it takes bytes as unsigned.
    pub(crate) hash: Hash,
}

/// Says in the bytes of a superblock whether the journal may have what the blocks have not.
pub(crate) fn put_needs_recovery(bytes: &mut [u8], needs: bool) {
    let others = u32_at(bytes, field::INCOMPATIBLE) & !incompatible::RECOVER;
    put_u32(bytes, field::INCOMPATIBLE, others | if needs { incompatible::RECOVER } else { 0 });
}

/// Says in the bytes of a superblock that it has been mounted, to be written, at second `now`.
pub(crate) fn note_mount(bytes: &mut [u8], now: u32) {
    put_u32(bytes, field::MOUNTED, now);
    put_u32(bytes, field::WRITTEN, now);
    let mounts = u16_at(bytes, field::MOUNTS).saturating_add(1);
    put_u16(bytes, field::MOUNTS, mounts);
    put_needs_recovery(bytes, true);
}

/// Says in the bytes of a superblock that `count` errors more were found, the last of them at second `now`.
pub(crate) fn note_errors(bytes: &mut [u8], count: u32, what: &str, now: u32) {
    let before = u32_at(bytes, field::ERRORS);
    put_u32(bytes, field::ERRORS, before.saturating_add(count));
    for (at, (name, length)) in [field::FIRST_ERROR, field::LAST_ERROR].into_iter().zip(NAME) {
        if at == field::LAST_ERROR || before == 0 {
            put_u32(bytes, at, now);
            let name = &mut bytes[name..name + length];
            name.fill(0);
            let kept = what.len().min(length);
            name[..kept].copy_from_slice(&what.as_bytes()[..kept]);
        }
    }
    let state = u16_at(bytes, field::STATE) | ERROR_FS;
    put_u16(bytes, field::STATE, state);
}

/// Says in the bytes of a superblock what `older` said of errors: the journal has brought back one from before.
pub(crate) fn keep_errors(bytes: &mut [u8], older: &Superblock) {
    bytes[ERROR_RECORD].copy_from_slice(&older.error_record);
    let state = u16_at(bytes, field::STATE) | ERROR_FS;
    put_u16(bytes, field::STATE, state);
}

/// Says in the bytes of a superblock that the file of orphans has none.
pub(crate) fn clear_orphans_in_file(bytes: &mut [u8]) {
    let others = u32_at(bytes, field::READ_ONLY) & !read_only::ORPHAN_PRESENT;
    put_u32(bytes, field::READ_ONLY, others);
}

/// See [`Superblock::hash`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash {
    pub seed: [u32; 4],
    pub version: u8,
    pub unsigned: bool,
}

impl Superblock {
    /// Of the 1024 bytes at byte 1024 of the device.
    pub fn parse(bytes: &[u8; BYTES]) -> Result<Superblock> {
        if u16_at(bytes, 0x38) != MAGIC {
            return Err(Error::Unsupported("no ext4"));
        }
        let (compatible, incompatible, read_only) = (u32_at(bytes, 0x5c), u32_at(bytes, 0x60), u32_at(bytes, 0x64));
        let sums = read_only & read_only::METADATA_SUMS != 0;
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
            has_errors: u16_at(bytes, field::STATE) & ERROR_FS != 0,
            on_error: if u16_at(bytes, field::ON_ERROR) > 1 { OnError::ReadOnly } else { OnError::Continue },
            error_record: *bytes[ERROR_RECORD].first_chunk().ok_or(Error::Corrupt("the superblock"))?,
            first_block: u32_at(bytes, 0x14),
            blocks_per_group: u32_at(bytes, 0x20),
            inodes_per_group: u32_at(bytes, 0x28),
            inode_bytes: u16_at(bytes, 0x58).into(),
            descriptor_bytes: if wide { u16_at(bytes, 0xfe).into() } else { 32 },
            seed: sums.then_some(seed),
            unknown_to_writers: read_only & !read_only::KNOWN != 0 || block_bytes > 4096,
            wide,
            compatible,
            incompatible,
            read_only,
            backups: (compatible & compatible::SPARSE_SUPER2 != 0)
                .then(|| [u32_at(bytes, 0x24c), u32_at(bytes, 0x250)]),
            spare_descriptors: u16_at(bytes, 0xce).into(),
            first_inode: u32_at(bytes, 0x54),
            extra: u16_at(bytes, 0x15e).max(u16_at(bytes, 0x15c)).max(32),
            journal: if compatible & compatible::JOURNAL != 0 { u32_at(bytes, 0xe0) } else { 0 },
            orphan_file: if compatible & compatible::ORPHAN_FILE != 0 { u32_at(bytes, 0x280) } else { 0 },
            last_orphan: u32_at(bytes, field::LAST_ORPHAN),
            hash: Hash {
                seed: ::core::array::from_fn(|index| u32_at(bytes, 0xec + 4 * index)),
                version: bytes[0xfc],
                unsigned: u32_at(bytes, 0x160) & 2 != 0,
            },
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

    /// The block that the superblock is in, and where there.
    pub(crate) fn place(&self) -> (u64, usize) {
        match self.block_bytes {
            1024 => (1, 0),
            _ => (0, AT),
        }
    }

    /// The block of a group's descriptor, and where there.
    pub(crate) fn descriptor_place(&self, group: u32) -> (u64, usize) {
        let at = u64::from(group) * self.descriptor_bytes as u64;
        let block = u64::from(self.block_bytes);
        (u64::from(self.first_block) + 1 + at / block, (at % block) as usize)
    }

    /// Blocks of all descriptors.
    pub(crate) fn descriptor_blocks(&self) -> u64 {
        (self.groups() * self.descriptor_bytes as u64).div_ceil(self.block_bytes.into())
    }

    /// Whether a group begins with a copy of the superblock and of the descriptors.
    pub(crate) fn has_backup(&self, group: u32) -> bool {
        let is_power = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        match self.backups {
            _ if group == 0 => true,
            Some(groups) => groups.contains(&group),
            None if self.read_only & read_only::SPARSE_SUPER == 0 => true,
            None => group == 1 || [3, 5, 7].into_iter().any(is_power),
        }
    }

    /// The first block of a group, and how many it has.
    pub(crate) fn group_blocks(&self, group: u32) -> ::core::ops::Range<u64> {
        let start = u64::from(self.first_block) + u64::from(group) * u64::from(self.blocks_per_group);
        start..(start + u64::from(self.blocks_per_group)).min(self.blocks)
    }

    /// The group of a block.
    pub(crate) fn group_of(&self, block: u64) -> u32 {
        (block.saturating_sub(self.first_block.into()) / u64::from(self.blocks_per_group)) as u32
    }

    /// Whether new directories get an index.
    pub(crate) fn indexes_directories(&self) -> bool {
        self.compatible & compatible::DIRECTORY_INDEX != 0
    }

    /// Whether entries of directories say what they lead to.
    pub(crate) fn has_file_types(&self) -> bool {
        self.incompatible & incompatible::FILE_TYPE != 0
    }

    /// Whether a directory may have more subdirectories than can be counted.
    pub(crate) fn has_many_links(&self) -> bool {
        self.read_only & read_only::DIR_NLINK != 0
    }

    /// Whether there is a journal, but on another device.
    pub(crate) fn has_external_journal(&self) -> bool {
        self.compatible & compatible::JOURNAL != 0 && self.journal == 0
    }

    /// Whether the file of orphans has some.
    pub(crate) fn has_orphans_in_file(&self) -> bool {
        self.read_only & read_only::ORPHAN_PRESENT != 0
    }

    /// Computes the sum in the bytes of the superblock anew.
    pub(crate) fn seal(&self, bytes: &mut [u8]) {
        if self.seed.is_some() {
            let computed = sum(u32::MAX, &[&bytes[..field::SUM]]);
            put_u32(bytes, field::SUM, computed);
        }
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> u64 {
        (self.blocks - u64::from(self.first_block)).div_ceil(self.blocks_per_group.into())
    }
}

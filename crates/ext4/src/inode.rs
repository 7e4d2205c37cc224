//! One inode.

use crate::{
    bytes::{joined, put_u16, put_u32, split, sum, u16_at, u32_at},
    Error, Result, Superblock,
};

/// Kinds of files; the numbers of an inode's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum FileType {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

/// A moment: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// May be negative.
    pub seconds: i64,
    /// Below 10^9.
    pub nanoseconds: u32,
}

/// An inode as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub number: u32,
    /// Type and permissions, as stat(2) has them.
    pub mode: u16,
    /// Whose it is.
    pub uid: u32,
    /// Whose group's it is.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Names.
    pub links: u16,
    /// What it takes, in units of 512 bytes.
    pub sectors: u64,
    /// When it was read, changed in its contents, and changed at all.
    pub accessed: Time,
    /// See [`Inode::accessed`].
    pub modified: Time,
    /// See [`Inode::accessed`].
    pub changed: Time,
    /// When it was made; None: the inode has no room for that.
    pub created: Option<Time>,
    pub(crate) flags: u32,
    pub(crate) generation: u32,
    /// When it was deleted, or the next inode in the list of orphans.
    pub(crate) deleted: u32,
    /// The block of extended attributes; 0: none.
    pub(crate) attributes: u64,
    /// The root of the tree of extents, or a short symbolic link.
    pub(crate) root: [u8; 60],
}

pub(crate) const INDEX: u32 = 0x1000;
pub(crate) const EXTENTS: u32 = 0x8_0000;
const HUGE: u32 = 0x4_0000;
const INLINE: u32 = 0x1000_0000;

impl Inode {
    /// Of its bytes in an inode table. None: it is not in use; those that have no name any more are with `orphans`.
    pub(crate) fn parse(superblock: &Superblock, number: u32, bytes: &[u8], orphans: bool) -> Result<Option<Inode>> {
        let generation = u32_at(bytes, 0x64);
        let extra = usize::from(u16_at(bytes, 0x80)) * usize::from(bytes.len() > 128);
        let has = |end: usize| 128 + extra >= end && bytes.len() >= end;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if let Some(seed) = superblock.seed {
            let wide = has(0x84);
            let mut copy = bytes.to_vec();
            copy[0x7c..0x7e].fill(0);
            if wide {
                copy[0x82..0x84].fill(0);
            }
            let found = u32::from(u16_at(bytes, 0x7c)) | if wide { u32::from(u16_at(bytes, 0x82)) << 16 } else { 0 };
            let computed = sum(seed, &[&number.to_le_bytes(), &generation.to_le_bytes(), &copy]);
            if found != computed & if wide { u32::MAX } else { 0xffff } {
                return Err(Error::Corrupt("an inode's sum"));
            }
        }
        let time = |at: usize, extra_at: usize| {
            let seconds = i64::from(u32_at(bytes, at) as i32);
            let extra = if has(extra_at + 4) { u32_at(bytes, extra_at) } else { 0 };
            Time { seconds: seconds + (i64::from(extra & 3) << 32), nanoseconds: (extra >> 2).min(999_999_999) }
        };
        let flags = u32_at(bytes, 0x20);
        let blocks = joined(u32_at(bytes, 0x1c), u16_at(bytes, 0x74).into());
        let inode = Inode {
            number,
            mode: u16_at(bytes, 0),
            uid: u32::from(u16_at(bytes, 0x2)) | u32::from(u16_at(bytes, 0x78)) << 16,
            gid: u32::from(u16_at(bytes, 0x18)) | u32::from(u16_at(bytes, 0x7a)) << 16,
            size: joined(u32_at(bytes, 0x4), u32_at(bytes, 0x6c)),
            links: u16_at(bytes, 0x1a),
            sectors: if flags & HUGE != 0 { blocks * u64::from(superblock.block_bytes / 512) } else { blocks },
            accessed: time(0x8, 0x8c),
            modified: time(0x10, 0x88),
            changed: time(0xc, 0x84),
            created: has(0x94).then(|| time(0x90, 0x94)),
            flags,
            generation,
            deleted: u32_at(bytes, 0x14),
            attributes: joined(u32_at(bytes, 0x68), u16_at(bytes, 0x76).into()),
            root: *bytes[0x28..].first_chunk().ok_or(Error::Corrupt("an inode"))?,
        };
        // The last number of a block is none.
        let longest = u64::from(u32::MAX) * u64::from(superblock.block_bytes);
        if inode.size > longest || flags & INLINE != 0 {
            return Err(Error::Corrupt("an inode's size"));
        }
        Ok((inode.mode != 0 && (inode.links > 0 || orphans)).then_some(inode))
    }

    /// Puts it into its place in a table of inodes; what it does not say stays.
    pub(crate) fn store(&self, superblock: &Superblock, bytes: &mut [u8]) {
        let wide = bytes.len() > 128;
        let extra = if wide { usize::from(u16_at(bytes, 0x80)) } else { 0 };
        put_u16(bytes, 0, self.mode);
        put_u16(bytes, 0x2, self.uid as u16);
        put_u16(bytes, 0x78, (self.uid >> 16) as u16);
        put_u16(bytes, 0x18, self.gid as u16);
        put_u16(bytes, 0x7a, (self.gid >> 16) as u16);
        let (low, high) = split(self.size);
        put_u32(bytes, 0x4, low);
        put_u32(bytes, 0x6c, high);
        put_u16(bytes, 0x1a, self.links);
        let units = if self.flags & HUGE != 0 { u64::from(superblock.block_bytes / 512) } else { 1 };
        let (low, high) = split(self.sectors / units);
        put_u32(bytes, 0x1c, low);
        put_u16(bytes, 0x74, high as u16);
        let times = [(0x8, 0x8c, self.accessed), (0x10, 0x88, self.modified), (0xc, 0x84, self.changed)];
        let created = self.created.map(|time| (0x90, 0x94, time));
        for (at, extra_at, time) in times.into_iter().chain(created) {
            // As Linux: seconds beyond what 34 bits can say are cut off by who sets them.
            let has_extra = 128 + extra >= extra_at + 4;
            if at < 0x80 || 128 + extra >= at + 4 {
                put_u32(bytes, at, time.seconds as u32);
            }
            if has_extra {
                let epoch = ((time.seconds - i64::from(time.seconds as i32)) >> 32) as u32 & 3;
                put_u32(bytes, extra_at, time.nanoseconds << 2 | epoch);
            }
        }
        put_u32(bytes, 0x20, self.flags);
        put_u32(bytes, 0x64, self.generation);
        put_u32(bytes, 0x14, self.deleted);
        let (low, high) = split(self.attributes);
        put_u32(bytes, 0x68, low);
        put_u16(bytes, 0x76, high as u16);
        bytes[0x28..0x28 + 60].copy_from_slice(&self.root);
        self.seal(superblock, bytes);
    }

    /// Blocks more, or with a negative number less, that it takes.
    pub(crate) fn count_blocks(&mut self, superblock: &Superblock, blocks: i64) {
        self.sectors = self.sectors.saturating_add_signed(blocks * i64::from(superblock.block_bytes / 512));
    }

    /// Computes the sum of its bytes anew.
    pub(crate) fn seal(&self, superblock: &Superblock, bytes: &mut [u8]) {
        let Some(seed) = superblock.seed else { return };
        let wide = bytes.len() > 128 && 128 + usize::from(u16_at(bytes, 0x80)) >= 0x84;
        put_u16(bytes, 0x7c, 0);
        if wide {
            put_u16(bytes, 0x82, 0);
        }
        let computed = sum(self.seed(seed), &[bytes]);
        put_u16(bytes, 0x7c, computed as u16);
        if wide {
            put_u16(bytes, 0x82, (computed >> 16) as u16);
        }
    }

    /// What it is.
    pub fn file_type(&self) -> Result<FileType> {
        Ok(match self.mode >> 12 {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return Err(Error::Corrupt("the type of an inode")),
        })
    }

    /// Major and minor number of a device.
    pub fn device(&self) -> (u32, u32) {
        let (old, new) = (u32_at(&self.root, 0), u32_at(&self.root, 4));
        match old {
            0 => (new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00),
            old => (old >> 8 & 0xff, old & 0xff),
        }
    }

    pub(crate) fn set_device(&mut self, (major, minor): (u32, u32)) {
        let (old, new) = match major < 256 && minor < 256 {
            true => (major << 8 | minor, 0),
            false => (0, minor & 0xff | major << 8 | (minor & !0xff) << 12),
        };
        put_u32(&mut self.root, 0, old);
        put_u32(&mut self.root, 4, new);
    }

    /// Whether its blocks are in a tree of extents.
    pub(crate) fn has_extents(&self) -> bool {
        self.flags & EXTENTS != 0
    }

    /// What the sums of its blocks begin with.
    pub(crate) fn seed(&self, seed: u32) -> u32 {
        sum(seed, &[&self.number.to_le_bytes(), &self.generation.to_le_bytes()])
    }
}

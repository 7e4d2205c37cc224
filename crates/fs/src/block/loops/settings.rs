//! What a program sets of a loop device, as it says and asks it (man 4 loop: `struct loop_info64`, `struct loop_config`).

use alloc::vec::Vec;
use machine::{errno::Result, Errno, PAGE_SIZE};

/// ioctls of a loop device and of /dev/loop-control (linux/loop.h).
pub mod request {
    pub const SET_FD: u32 = 0x4c00;
    pub const CLR_FD: u32 = 0x4c01;
    pub const SET_STATUS64: u32 = 0x4c04;
    pub const GET_STATUS64: u32 = 0x4c05;
    pub const SET_CAPACITY: u32 = 0x4c07;
    pub const SET_DIRECT_IO: u32 = 0x4c08;
    pub const SET_BLOCK_SIZE: u32 = 0x4c09;
    pub const CONFIGURE: u32 = 0x4c0a;
    pub const CTL_ADD: u32 = 0x4c80;
    pub const CTL_REMOVE: u32 = 0x4c81;
    pub const CTL_GET_FREE: u32 = 0x4c82;
}

/// Bytes of `struct loop_info64`.
pub const INFO_BYTES: usize = 232;
/// Bytes of `struct loop_config`.
pub const CONFIGURATION_BYTES: usize = 304;

/// LO_FLAGS_*.
pub mod flag {
    pub const READ_ONLY: u32 = 1;
    pub const AUTOCLEAR: u32 = 4;
    pub const PARTSCAN: u32 = 8;
    pub const DIRECT_IO: u32 = 16;
    /// What LOOP_CONFIGURE takes.
    pub const CONFIGURABLE: u32 = READ_ONLY | AUTOCLEAR | PARTSCAN | DIRECT_IO;
    /// What LOOP_SET_STATUS64 sets; of these it takes only AUTOCLEAR away.
    pub const SETTABLE: u32 = AUTOCLEAR | PARTSCAN;
}

const NAME: core::ops::Range<usize> = 56..120;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where in the file the disk begins.
    pub offset: u64,
    /// Bytes of the file that it has at most; 0: all.
    pub most: u64,
    pub flags: u32,
    /// Bytes of a block.
    pub block: u32,
    /// `lo_file_name`: whatever the program says.
    pub name: [u8; 64],
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { offset: 0, most: 0, flags: 0, block: 512, name: [0; 64] }
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes.get(at..at + N).and_then(|word| word.first_chunk().copied()).ok_or(Errno::EFAULT)
}

/// EINVAL: no device has blocks of so many bytes.
pub fn check_block(bytes: u32) -> Result<u32> {
    match bytes.is_power_of_two() && (512..=PAGE_SIZE as u32).contains(&bytes) {
        true => Ok(bytes),
        false => Err(Errno::EINVAL),
    }
}

impl Settings {
    /// Those of a `struct loop_config`, or of LOOP_SET_FD, which says nothing (empty).
    pub fn configured(bytes: &[u8]) -> Result<Settings> {
        if bytes.is_empty() {
            return Ok(Settings::default());
        }
        let block = match u32::from_ne_bytes(word(bytes, 4)?) {
            0 => 512,
            block => check_block(block)?,
        };
        let info = bytes.get(8..8 + INFO_BYTES).ok_or(Errno::EFAULT)?;
        let flags = flags_of(info)?;
        if flags & !flag::CONFIGURABLE != 0 {
            return Err(Errno::EINVAL);
        }
        Settings { block, flags, ..Settings::default() }.with_places(info)
    }

    /// These after LOOP_SET_STATUS64 with `info`.
    pub fn changed(&self, info: &[u8]) -> Result<Settings> {
        let wanted = flags_of(info)?;
        let flags = self.flags & !flag::AUTOCLEAR | wanted & flag::SETTABLE;
        Settings { flags, ..self.clone() }.with_places(info)
    }

    /// EOVERFLOW: no file is so long.
    fn with_places(self, info: &[u8]) -> Result<Settings> {
        let (offset, most) = (u64::from_ne_bytes(word(info, 24)?), u64::from_ne_bytes(word(info, 32)?));
        if offset.max(most) > i64::MAX as u64 {
            return Err(Errno::EOVERFLOW);
        }
        Ok(Settings { offset, most, name: word(info, NAME.start)?, ..self })
    }

    /// LOOP_GET_STATUS64 of device `index`, over a file with these numbers.
    pub fn info(&self, index: u32, device: (u32, u32), inode: u64, rdev: (u32, u32)) -> Vec<u8> {
        let mut info = [0; INFO_BYTES];
        let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &encoded(device).to_ne_bytes());
        put(8, &inode.to_ne_bytes());
        put(16, &encoded(rdev).to_ne_bytes());
        put(24, &self.offset.to_ne_bytes());
        put(32, &self.most.to_ne_bytes());
        put(40, &index.to_ne_bytes());
        put(52, &self.flags.to_ne_bytes());
        put(NAME.start, &self.name);
        info.to_vec()
    }

    /// Sectors of the disk over a file of so many bytes.
    pub fn sectors(&self, bytes: u64) -> u64 {
        let left = bytes.saturating_sub(self.offset);
        let taken = if self.most == 0 { left } else { left.min(self.most) };
        taken / machine::block::SECTOR
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

fn flags_of(info: &[u8]) -> Result<u32> {
    Ok(u32::from_ne_bytes(word(info, 52)?))
}

/// Linux's huge_encode_dev.
fn encoded((major, minor): (u32, u32)) -> u64 {
    u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(offset: u64, most: u64, flags: u32) -> Vec<u8> {
        Settings { offset, most, flags, ..Settings::default() }.info(3, (0, 0), 0, (0, 0))
    }

    fn configured(block: u32, info: &[u8]) -> Result<Settings> {
        Settings::configured(&[&7u32.to_ne_bytes(), &block.to_ne_bytes(), info, &[0; 64]].concat())
    }

    #[test]
    fn what_linux_takes_is_taken() {
        // Answers of Linux 6.18.
        for block in [100, 256, 1000] {
            assert_eq!(configured(block, &info(0, 0, 0)), Err(Errno::EINVAL));
        }
        for flags in [2, 64] {
            assert_eq!(configured(0, &info(0, 0, flags)), Err(Errno::EINVAL));
        }
        assert_eq!(configured(0, &info(1 << 63, 0, 0)), Err(Errno::EOVERFLOW));
        assert_eq!(configured(0, &info(0, 1 << 63, 0)), Err(Errno::EOVERFLOW));
        let settings = configured(4096, &info(512, 4096, 12)).unwrap();
        assert_eq!(settings, Settings { offset: 512, most: 4096, flags: 12, block: 4096, name: [0; 64] });
        assert_eq!(settings.sectors(1 << 20), 8);
        assert_eq!(settings.sectors(1200), 1);
        assert_eq!(settings.sectors(100), 0);
        let mut now = Settings::default();
        for (wanted, flags) in [(1, 0), (4, 4), (8, 8), (16, 8), (0, 8), (64, 8)] {
            now = now.changed(&info(0, 0, wanted)).unwrap();
            assert_eq!(now.flags, flags);
        }
    }

    #[test]
    fn numbers_of_devices_are_encoded_as_linux_does() {
        assert_eq!(encoded((254, 0)), 65024);
        assert_eq!(encoded((8, 0x101)), 0x10_0801);
    }
}

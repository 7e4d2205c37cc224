//! The archive: cpio in its "newc" form, as Linux takes it (Documentation/driver-api/early-userspace/
//! buffer-format.rst). Several archives may follow each other, with zeros between them.

use core::fmt;

const HEADER: usize = 110;
const FIELDS: usize = 13;
const TRAILER: &[u8] = b"TRAILER!!!";
/// PATH_MAX, with the terminating NUL.
const LONGEST_NAME: usize = 4096;

/// One name of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub modified: u32,
    /// Major, minor and number of the file that was packed: the same for all names of one file.
    pub identity: (u32, u32, u32),
    pub rdev: (u32, u32),
    pub name: &'a [u8],
    /// Of a symbolic link: where it leads.
    pub data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    Entry(Entry<'a>),
    /// Of one archive; hard links do not reach beyond it.
    End,
}

/// Why the bytes are no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Compressed(&'static str),
    /// No header of newc at this offset.
    Format(usize),
    /// The entry that starts at this offset goes on behind the end.
    Truncated(usize),
    /// The checksum of the entry at this offset ("070702") is wrong.
    Checksum(usize),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Broken::Compressed(how) => write!(f, "compressed ({how}); only plain cpio archives are taken"),
            Broken::Format(at) => write!(f, "no cpio header (newc) at byte {at}"),
            Broken::Truncated(at) => write!(f, "cut off in the entry at byte {at}"),
            Broken::Checksum(at) => write!(f, "wrong checksum of the entry at byte {at}"),
        }
    }
}

/// How the compressed forms that Linux knows begin (lib/decompress.c).
const COMPRESSED: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x1f\x9e", "gzip"),
    (b"BZh", "bzip2"),
    (b"\x5d\x00\x00", "lzma"),
    (b"\xfd7zXZ", "xz"),
    (b"\x89LZO", "lzo"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
];

/// Reads items one after the other.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// None: all has been read.
    pub fn item(&mut self) -> Result<Option<Item<'a>>, Broken> {
        while self.bytes.get(self.at) == Some(&0) {
            self.at += 1;
        }
        let start = self.at;
        let rest = &self.bytes[start..];
        if rest.is_empty() {
            return Ok(None);
        }
        if let Some((_, how)) = COMPRESSED.iter().find(|(magic, _)| rest.starts_with(magic)) {
            return Err(Broken::Compressed(how));
        }
        let summed = match rest.get(..6) {
            Some(b"070701") => false,
            Some(b"070702") => true,
            _ => return Err(Broken::Format(start)),
        };
        let header = rest.get(..HEADER).ok_or(Broken::Truncated(start))?;
        let mut fields = [0; FIELDS];
        for (field, text) in fields.iter_mut().zip(header[6..].chunks(8)) {
            *field = hexadecimal(text).ok_or(Broken::Format(start))?;
        }
        let [number, mode, uid, gid, links, modified, size, major, minor, rmajor, rminor, name_size, sum] = fields;
        let (size, name_size) = (size as usize, name_size as usize);
        if name_size == 0 || name_size > LONGEST_NAME {
            return Err(Broken::Format(start));
        }
        let name = rest.get(HEADER..HEADER + name_size).ok_or(Broken::Truncated(start))?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
        let data_at = (HEADER + name_size).next_multiple_of(4);
        let data = rest.get(data_at..data_at + size).ok_or(Broken::Truncated(start))?;
        if summed && data.iter().fold(0u32, |sum, byte| sum.wrapping_add(u32::from(*byte))) != sum {
            return Err(Broken::Checksum(start));
        }
        // The last one need not be padded.
        self.at = (start + (data_at + size).next_multiple_of(4)).min(self.bytes.len());
        if name == TRAILER {
            return Ok(Some(Item::End));
        }
        let (identity, rdev) = ((major, minor, number), (rmajor, rminor));
        Ok(Some(Item::Entry(Entry { mode, uid, gid, links, modified, identity, rdev, name, data })))
    }
}

fn hexadecimal(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0, |value: u32, digit| Some(value << 4 | (*digit as char).to_digit(16)?))
}

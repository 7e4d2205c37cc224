//! The bytes of 9P2000.L (the protocol's definition: linux/Documentation, diod's protocol.md).

use crate::file::Frames;
use alloc::vec::Vec;
use machine::{collections::try_with_capacity, errno::Result, Errno};

macro_rules! requests {
    ($($name:ident = $number:literal)*) => { $(pub const $name: u8 = $number;)* };
}

// A reply has the request's number plus one.
requests! {
    STATFS = 8 LOPEN = 12 LCREATE = 14 SYMLINK = 16 MKNOD = 18 READLINK = 22 GETATTR = 24 SETATTR = 26
    READDIR = 40 FSYNC = 50 LINK = 70 MKDIR = 72 RENAMEAT = 74 UNLINKAT = 76 VERSION = 100 ATTACH = 104
    WALK = 110 READ = 116 WRITE = 118 CLUNK = 120
}

pub const RLERROR: u8 = 7;
/// size[4] type[1] tag[2]
pub const HEADER: usize = 7;

pub struct Writer(Vec<u8>);

/// What a message has beside data and strings, at most.
const FEW: usize = 64;

impl Writer {
    #[expect(clippy::disallowed_methods, reason = "few bytes")]
    pub fn new(kind: u8, tag: u16) -> Self {
        Self::begin(Vec::with_capacity(FEW), kind, tag)
    }

    /// With room for `bytes` bytes of data.
    pub fn with_room(kind: u8, tag: u16, bytes: usize) -> Result<Self> {
        Ok(Self::begin(try_with_capacity(FEW + bytes)?, kind, tag))
    }

    fn begin(bytes: Vec<u8>, kind: u8, tag: u16) -> Self {
        let mut writer = Writer(bytes);
        writer.u32(0).u8(kind).u16(tag);
        writer
    }

    pub fn kind(&self) -> u8 {
        self.0[4]
    }

    pub fn tag(&self) -> u16 {
        u16::from_le_bytes([self.0[5], self.0[6]])
    }

    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// All bytes in the frames.
    pub fn frames(&mut self, from: &mut Frames<'_>) -> &mut Self {
        let mut piece = [0; 512];
        while !from.is_empty() {
            let piece = &mut piece[..from.len().min(512)];
            from.take(piece);
            self.bytes(piece);
        }
        self
    }

    /// Callers keep strings under PATH_MAX.
    pub fn string(&mut self, text: &[u8]) -> &mut Self {
        self.u16(text.len() as u16).bytes(text)
    }

    pub fn finish(mut self) -> Vec<u8> {
        let size = (self.0.len() as u32).to_le_bytes();
        self.0[..4].copy_from_slice(&size);
        self.0
    }
}

/// What is left of a message. What does not parse is EIO: the server's fault.
pub struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    pub fn new(bytes: Vec<u8>) -> Self {
        Reader { bytes, at: 0 }
    }

    pub fn take(&mut self, len: usize) -> Result<&[u8]> {
        let end = self.at.checked_add(len).ok_or(Errno::EIO)?;
        let taken = self.bytes.get(self.at..end).ok_or(Errno::EIO)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Errno::EIO)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn string(&mut self) -> Result<Vec<u8>> {
        let len = self.u16()?;
        Ok(self.take(len as usize)?.to_vec())
    }

    pub fn qid(&mut self) -> Result<Qid> {
        Ok(Qid { kind: self.u8()?, version: self.u32()?, path: self.u64()? })
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// A file of the server, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qid {
    /// Directory 0x80, symbolic link 0x02.
    pub kind: u8,
    pub version: u32,
    pub path: u64,
}

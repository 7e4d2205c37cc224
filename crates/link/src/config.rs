//! What the guest must know to run the program as the caller would have at home.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::message::ToGuest;
use crate::wire::MAX_PAYLOAD;
use crate::LinkError;

/// Changes with the layout of [`Config`]; the guest refuses another one.
pub const VERSION: u32 = 1;

/// Linux takes 2 MiB of arguments and environment at the default stack limit; this leaves room for the rest.
pub const MAX_CONFIG: usize = 4 * 1024 * 1024;

/// File names, arguments and the environment are bytes on Linux, so they are bytes here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub version: u32,
    /// Absolute path of the file to execute.
    pub program: Vec<u8>,
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`, in the order of the host's environment.
    pub env: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub umask: u32,
    pub hostname: Vec<u8>,
    /// Which of descriptors 0, 1 and 2 are the terminal. Those get the guest's tty, the others a pipe-like file.
    pub tty: [bool; 3],
    /// Present if any descriptor is a terminal.
    pub winsize: Option<WinSize>,
    /// The kernel's `struct termios` (36 bytes: four flag words, line, 19 control characters),
    /// as it was before the host went raw.
    pub termios: Option<Vec<u8>>,
    pub root: Root,
    /// 9P devices to mount over the root, writable, at their path on the host.
    pub shares: Vec<Share>,
    /// Whether [`crate::ToHost::Stats`] is wanted before the exit.
    pub stats: bool,
    pub rlimits: Vec<Rlimit>,
    /// The host's clock when it sent this: nanoseconds since 1970.
    pub unix_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// The 9P device with this mount tag, read-only, under a layer in memory.
    NineP { tag: Vec<u8> },
    /// The initramfs (cpio, newc) that the machine was started with.
    Initramfs,
    /// The file system on the first disk, or on its first partition that has one. It is written.
    Disk,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub tag: Vec<u8>,
    pub path: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WinSize {
    pub rows: u16,
    pub cols: u16,
}

/// As `prlimit64` has it: `u64::MAX` is infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    pub resource: u8,
    pub soft: u64,
    pub hard: u64,
}

impl Config {
    /// The Config frames to send, in order. `None` if it is longer than [`MAX_CONFIG`].
    pub fn to_messages(&self) -> Option<Vec<ToGuest>> {
        let bytes = postcard::to_allocvec(self).ok()?;
        if bytes.len() > MAX_CONFIG {
            return None;
        }
        let parts = bytes.chunks(MAX_PAYLOAD - 1);
        let count = parts.len();
        Some(
            parts
                .enumerate()
                .map(|(at, part)| ToGuest::Config { last: at + 1 == count, part: part.to_vec() })
                .collect(),
        )
    }
}

/// The guest's side: puts the parts together again.
#[derive(Debug, Default)]
pub struct ConfigAssembler {
    bytes: Vec<u8>,
}

impl ConfigAssembler {
    pub fn new() -> Self {
        Self::default()
    }

    /// The Config when the last part has come.
    pub fn push(&mut self, last: bool, part: &[u8]) -> Result<Option<Config>, LinkError> {
        if self.bytes.len() + part.len() > MAX_CONFIG {
            return Err(LinkError::TooLong((self.bytes.len() + part.len()) as u32));
        }
        self.bytes.extend_from_slice(part);
        if !last {
            return Ok(None);
        }
        let bytes = core::mem::take(&mut self.bytes);
        // The version comes first, so that a layout of another day is refused by its number and not by chance.
        match postcard::from_bytes::<Config>(&bytes) {
            Ok(config) if config.version == VERSION => Ok(Some(config)),
            _ => Err(LinkError::Malformed(0x01)),
        }
    }
}

//! The machine's memory as this process sees it: files in memory that QEMU maps and that are read and written here with pread and pwrite. It outlives QEMU.

use std::{fs::File, os::fd::AsRawFd, os::unix::fs::FileExt, sync::Arc};

use anyhow::{Context, Result};
use nix::sys::memfd::{memfd_create, MFdFlags};
use trace::RingMemory;

/// Where QEMU's q35 puts memory (hw/i386/pc_q35.c): below 4 GiB as much as this, if there is more than `HOLE_FROM`; what is left from 4 GiB on.
const LOW: u64 = 0x8000_0000;
const HOLE_FROM: u64 = 0xb000_0000;
const HIGH_FROM: u64 = 1 << 32;

/// The memory of a machine: one file for each node, in the order of addresses.
#[derive(Clone)]
pub struct GuestMemory {
    nodes: Arc<[(File, u64)]>,
}

impl GuestMemory {
    /// Makes files of so many bytes.
    pub fn new(nodes: &[u64]) -> Result<GuestMemory> {
        let make = |bytes: &u64| -> Result<(File, u64)> {
            // Not closed at exec: QEMU opens it by its descriptor's name.
            let file = File::from(memfd_create(c"cob-guest-memory", MFdFlags::empty())?);
            file.set_len(*bytes)?;
            Ok((file, *bytes))
        };
        let files: Result<Vec<_>> = nodes.iter().map(make).collect();
        Ok(GuestMemory { nodes: files.context("no memory that the machine and this program share")?.into() })
    }

    /// The name under which a child finds the file of a node.
    pub fn path(&self, node: usize) -> String {
        format!("/proc/self/fd/{}", self.nodes[node].0.as_raw_fd())
    }

    /// File and offset of a physical address; None: there is no memory.
    fn place(&self, phys: u64) -> Option<(&File, u64)> {
        let all: u64 = self.nodes.iter().map(|(_, bytes)| bytes).sum();
        let low = if all >= HOLE_FROM { LOW } else { all };
        let mut offset = match phys {
            _ if phys < low => phys,
            _ if phys >= HIGH_FROM => low + (phys - HIGH_FROM),
            _ => return None,
        };
        for (file, bytes) in self.nodes.iter() {
            if offset < *bytes {
                return Some((file, offset));
            }
            offset -= bytes;
        }
        None
    }

    /// Reads words from a physical address on; they must lie in one page.
    pub fn read(&self, phys: u64, words: &mut [u64]) -> Option<()> {
        let (file, offset) = self.place(phys)?;
        let mut bytes = vec![0; words.len() * 8];
        file.read_exact_at(&mut bytes, offset).ok()?;
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Some(())
    }

    /// Writes a word.
    pub fn write(&self, phys: u64, word: u64) -> Option<()> {
        let (file, offset) = self.place(phys)?;
        file.write_all_at(&word.to_le_bytes(), offset).ok()
    }
}

/// One ring in it: physical addresses of header and records.
pub struct GuestRing {
    pub memory: GuestMemory,
    pub header: u64,
    pub records: u64,
}

impl GuestRing {
    fn address(&self, at: usize) -> u64 {
        match at.checked_sub(trace::RING_HEADER_WORDS) {
            None => self.header + at as u64 * 8,
            Some(at) => self.records + at as u64 * 8,
        }
    }
}

impl RingMemory for GuestRing {
    fn read(&self, from: usize, words: &mut [u64]) -> Option<()> {
        self.memory.read(self.address(from), words)
    }

    fn write(&self, at: usize, word: u64) -> Option<()> {
        self.memory.write(self.address(at), word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_where_qemu_puts_them() {
        let memory = GuestMemory::new(&[1 << 30, 3 << 30]).unwrap();
        let offset = |phys| memory.place(phys).map(|(file, offset)| (file.as_raw_fd(), offset));
        let node = |node: usize| memory.nodes[node].0.as_raw_fd();
        assert_eq!(offset(0x10_0000), Some((node(0), 0x10_0000)));
        assert_eq!(offset(1 << 30), Some((node(1), 0)));
        assert_eq!(offset(LOW), None);
        assert_eq!(offset(HIGH_FROM), Some((node(1), 1 << 30)));
        assert_eq!(offset(HIGH_FROM + (2 << 30)), None);
        assert!(memory.write(HIGH_FROM, 7).is_some());
        let mut words = [0];
        memory.read(HIGH_FROM, &mut words).unwrap();
        assert_eq!(words, [7]);
    }

    #[test]
    fn little_memory_is_in_one_piece() {
        let memory = GuestMemory::new(&[0xa000_0000]).unwrap();
        assert!(memory.place(0x9fff_f000).is_some());
        assert!(memory.place(0xa000_0000).is_none());
        assert!(memory.place(HIGH_FROM).is_none());
    }
}

//! Names in a directory. Its blocks are read in their order: those of an index look as if they held one unused entry.

use crate::{
    bytes::{sum, u16_at, u32_at},
    handle::Handle,
    Device, Error, Inode, Result, Volume,
};
use alloc::vec::Vec;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode that it leads to.
    pub inode: u32,
    /// The type of that, as getdents64 has it (`DT_REG` and so on); 0: unknown.
    pub kind: u8,
    /// Where in the directory the next entry begins, in bytes.
    pub next: u64,
    /// The name.
    pub name: Vec<u8>,
}

const HEADER: usize = 8;
const TAIL: usize = 12;
const TAIL_KIND: u8 = 0xde;
/// The `d_type` of getdents64 for each number that ext4 has for a type of file.
const KINDS: [u8; 8] = [0, 8, 4, 2, 6, 1, 12, 10];

/// What is in a block from byte `from` on: inode, length of the entry, name and kind.
fn entries(block: &[u8], from: usize, mut each: impl FnMut(usize, u32, usize, &[u8], u8) -> bool) -> Result<()> {
    let mut at = 0;
    while at + HEADER <= block.len() {
        let (inode, length, name) = (u32_at(block, at), usize::from(u16_at(block, at + 4)), usize::from(block[at + 6]));
        // 65536 does not fit.
        let length = if length == 0xffff { block.len() } else { length };
        if length < HEADER + name || !length.is_multiple_of(4) || at + length > block.len() {
            return Err(Error::Corrupt("an entry of a directory"));
        }
        let text = &block[at + HEADER..at + HEADER + name];
        if at >= from && !each(at, inode, length, text, block[at + 7]) {
            return Ok(());
        }
        at += length;
    }
    Ok(())
}

impl<D: Device> Volume<D> {
    /// Looks for a name. Names are compared byte for byte.
    pub async fn lookup(&self, directory: &Inode, wanted: &[u8]) -> Result<Option<Entry>> {
        let bytes = u64::from(self.superblock().block_bytes);
        for number in 0..directory.size.div_ceil(bytes) {
            let Some(block) = self.directory_block(directory, number).await? else { continue };
            let mut found = None;
            entries(&block, 0, |at, inode, length, name, kind| {
                if inode != 0 && name == wanted {
                    found = Some(entry(number * bytes, at, inode, length, name, kind));
                }
                found.is_none()
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The names of a directory from byte `from` on, also `.` and `..`: those of one block. None: there are no more.
    pub async fn list(&self, directory: &Inode, from: u64) -> Result<Option<Vec<Entry>>> {
        let bytes = u64::from(self.superblock().block_bytes);
        let mut from = from;
        while from < directory.size {
            let mut found = Vec::new();
            let number = from / bytes;
            if let Some(block) = self.directory_block(directory, number).await? {
                entries(&block, (from % bytes) as usize, |at, inode, length, name, kind| {
                    if inode != 0 && !name.is_empty() {
                        found.push(entry(number * bytes, at, inode, length, name, kind));
                    }
                    true
                })?;
            }
            if !found.is_empty() {
                return Ok(Some(found));
            }
            from = (number + 1) * bytes;
        }
        Ok(None)
    }

    /// None: a hole.
    async fn directory_block(&self, directory: &Inode, number: u64) -> Result<Option<Vec<u8>>> {
        let number = u32::try_from(number).map_err(|_| Error::Corrupt("the size of a directory"))?;
        self.run(|handle| Ok(handle.directory_block(directory, number)?.map(<[u8]>::to_vec))).await
    }
}

impl Handle<'_> {
    /// A block of a directory. None: a hole.
    pub(crate) fn directory_block(&self, directory: &Inode, number: u32) -> Result<Option<&[u8]>> {
        let Some(place) = self.map(directory, number)?.place else { return Ok(None) };
        let seed = self.superblock().seed.map(|seed| directory.seed(seed));
        let block = self.checked(place, "the sum of a directory", |block| {
            let tail = block.len() - TAIL;
            let is_leaf =
                u32_at(block, tail) == 0 && u16_at(block, tail + 4) == TAIL as u16 && block[tail + 7] == TAIL_KIND;
            // Blocks of an index have their sum elsewhere, and say nothing that is used here.
            let Some(seed) = seed.filter(|_| is_leaf) else { return true };
            sum(seed, &[&block[..tail]]) == u32_at(block, tail + 8)
        })?;
        Ok(Some(block))
    }
}

fn entry(base: u64, at: usize, inode: u32, length: usize, name: &[u8], kind: u8) -> Entry {
    let kind = KINDS.get(usize::from(kind)).copied().unwrap_or(0);
    Entry { inode, kind, next: base + (at + length) as u64, name: name.to_vec() }
}

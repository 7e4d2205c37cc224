//! Where the blocks of a file are: a tree of extents, whose root is in the inode.

use crate::{
    bytes::{joined, sum, u16_at, u32_at},
    Device, Error, Inode, Result, Volume,
};

/// Blocks of a file that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first of them, in the file.
    pub block: u32,
    /// How many.
    pub blocks: u32,
    /// Where the first is on the disk; None: they are zero, and take no place or were never written.
    pub place: Option<u64>,
}

const MAGIC: u16 = 0xf30a;
const ENTRY: usize = 12;
/// As deep as Linux lets a tree become.
const DEEPEST: u16 = 5;
/// A longer extent has so much less blocks, which were never written.
const LONGEST: u16 = 1 << 15;

/// What a node of the tree says of a block.
enum Found {
    Run(Run),
    /// This node knows more; what it says ends before that block of the file.
    Below(u64, u32),
}

/// Looks for `wanted` in a node that speaks of blocks before `end`.
fn look(node: &[u8], wanted: u32, end: u32, depth: Option<u16>) -> Result<(Found, u16)> {
    let (entries, most, found_depth) = (u16_at(node, 2), u16_at(node, 4), u16_at(node, 6));
    let fits = usize::from(most) * ENTRY + ENTRY <= node.len() && entries <= most;
    let deep = depth.map_or(found_depth <= DEEPEST, |depth| found_depth == depth);
    if u16_at(node, 0) != MAGIC || !fits || !deep {
        return Err(Error::Corrupt("a node of extents"));
    }
    let at = |index: u16| &node[ENTRY * (1 + usize::from(index))..][..ENTRY];
    let first = |index: u16| u32_at(at(index), 0);
    // The last entry that begins at or before it.
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = (low + high) / 2;
        if first(middle) <= wanted {
            low = middle + 1
        } else {
            high = middle
        }
    }
    let next = if low < entries { first(low).min(end) } else { end };
    if low == 0 || next <= wanted {
        return match next > wanted {
            true => Ok((Found::Run(Run { block: wanted, blocks: next - wanted, place: None }), found_depth)),
            false => Err(Error::Corrupt("the order of extents")),
        };
    }
    let entry = at(low - 1);
    if found_depth > 0 {
        return Ok((Found::Below(joined(u32_at(entry, 4), u16_at(entry, 8).into()), next), found_depth));
    }
    let (start, length) = (u32_at(entry, 0), u16_at(entry, 4));
    let (blocks, written) = if length > LONGEST { (length - LONGEST, false) } else { (length, true) };
    let inside = wanted - start;
    if inside >= u32::from(blocks) {
        return Ok((Found::Run(Run { block: wanted, blocks: next - wanted, place: None }), 0));
    }
    let place = joined(u32_at(entry, 8), u16_at(entry, 6).into());
    let blocks = (u32::from(blocks) - inside).min(next - wanted);
    Ok((Found::Run(Run { block: wanted, blocks, place: written.then_some(place + u64::from(inside)) }), 0))
}

impl<D: Device> Volume<D> {
    /// Where block `block` of a file is, and those that follow it in a row there.
    pub async fn map(&self, inode: &Inode, block: u32) -> Result<Run> {
        if !inode.has_extents() {
            return Err(Error::Unsupported("a file without extents"));
        }
        let (mut found, mut depth) = look(&inode.root, block, u32::MAX, None)?;
        loop {
            match found {
                Found::Run(run) => {
                    let end = run.place.map_or(0, |place| place + u64::from(run.blocks));
                    if run.place == Some(0) || end > self.superblock().blocks {
                        return Err(Error::Corrupt("an extent past the end"));
                    }
                    return Ok(run);
                }
                Found::Below(at, end) => {
                    let node = self.block(at).await?;
                    depth -= 1;
                    self.check_node(inode, &node)?;
                    (found, _) = look(&node, block, end, Some(depth))?;
                }
            }
        }
    }

    fn check_node(&self, inode: &Inode, node: &[u8]) -> Result<()> {
        let Some(seed) = self.superblock().seed else { return Ok(()) };
        let tail = ENTRY * (1 + usize::from(u16_at(node, 4)));
        let summed = node.get(..tail).filter(|_| tail + 4 <= node.len());
        match summed.is_some_and(|summed| sum(inode.seed(seed), &[summed]) == u32_at(node, tail)) {
            true => Ok(()),
            false => Err(Error::Corrupt("the sum of a node of extents")),
        }
    }
}

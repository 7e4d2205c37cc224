//! Disks that another kernel drives than the one that owns the root.

use alloc::{string::String, vec::Vec};
use machine::block::{BlockLimits, BlockOp, CountedPart, Piece};
use machine::errno::Result;
use serde::{Deserialize, Serialize};

/// A disk or a partition that the receiver drives, to be mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedDisk {
    /// The disk's number on the bus, counted from 0.
    pub disk: u32,
    /// As below /dev.
    pub name: String,
    /// Major and minor.
    pub number: (u32, u32),
    /// The first sector, and how many.
    pub sectors: (u64, u64),
}

messages! {
    "disks" 0x780;

    /// The kernel that owns the root asks the kernel that drives a disk (`cob.devices`) what that is. Answered when the disk has been opened.
    /// ENODEV: there is none of that number, or it does not work.
    disk_find: DiskFind {
        /// Its number on the bus, counted from 0.
        disk: u32,
    } -> Result<BlockLimits>, Low;

    /// A request to a disk that the receiver drives. It is answered when the disk has carried it out.
    disk_request: DiskRequest {
        /// Its number on the bus, counted from 0.
        disk: u32,
        /// What is wanted.
        op: BlockOp,
        /// The first sector.
        sector: u64,
        /// Pieces of frames of the sender, lent for the call. The receiver copies out of them or into them: the disk never gets them.
        pieces: Vec<Piece>,
    } -> Result<()>, Low;

    /// /proc/diskstats is read: asks what file systems that are mounted on the receiver have asked of a disk that it drives.
    disk_counts: DiskCounts {
        /// Its number on the bus, counted from 0.
        disk: u32,
    } -> Vec<CountedPart>, Low;
}

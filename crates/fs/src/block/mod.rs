//! Disks and their partitions: nodes of /dev, their page caches, and what is asked of the device below.
//!
//! The kernel that has the devices adds each disk ([`Disks::add`]), and [`register`]s them. A program on any kernel opens /dev/vda there, as it opens any file of that kernel's.
//!
//! | file | subject |
//! |---|---|
//! | partitions.rs | tables of partitions |
//! | stats.rs | the counters of /proc/diskstats |
//! | volume.rs | a disk or a partition: its page cache, and requests to the device |
//! | file.rs | an open one |

mod file;
mod partitions;
mod stats;
mod volume;

pub use file::BlockFile;
pub use stats::Stats;
pub use volume::{Disks, Volume};

use crate::{
    devfs::{Devices, Opener, Opening},
    file::ready,
    File, Kind,
};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture};

/// Makes nodes below /dev for disks and their partitions, before devtmpfs is mounted.
pub fn register(disks: &Arc<Disks>, devices: &Devices) {
    let all = disks.clone();
    devices.set_syncer(Arc::new(move || {
        let all = all.clone();
        Box::pin(async move { all.sync().await })
    }));
    for volume in disks.list() {
        devices.register(volume.name(), Kind::BlockDevice, volume.number(), 0o660, opener(volume.clone()));
    }
}

fn opener(volume: Arc<Volume>) -> Opener {
    Arc::new(move |opening: Opening<'_>| -> BoxFuture<'_, Result<Arc<dyn File>>> {
        ready(BlockFile::open(&volume, opening.flags, Some(opening.at.clone())).map(|file| file as Arc<dyn File>))
    })
}

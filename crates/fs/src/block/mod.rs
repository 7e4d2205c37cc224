//! Disks and their partitions: nodes of /dev, their page caches, and what is asked of the device below.
//!
//! The kernel that has the devices adds each disk ([`Disks::add`]), and [`register`]s them. A program on any kernel opens /dev/vda there, as it opens any file of that kernel's.
//!
//! | file | subject |
//! |---|---|
//! | partitions.rs | tables of partitions |
//! | stats.rs | the counters of /proc/diskstats |
//! | volume.rs | a disk or a partition: its page cache, and what is asked of the disk |
//! | queue/ | requests on their way to the device: merged, ordered, bounded |
//! | disks.rs | all of them, their names and numbers |
//! | hold.rs | who uses one |
//! | file.rs | an open one |
//! | loops/ | loop devices |
//! | ram.rs | a disk in memory |
//! | links.rs | /dev/disk/by-uuid and its kin |

mod disks;
mod file;
mod hold;
mod links;
pub mod loops;
mod partitions;
mod queue;
mod ram;
mod stats;
mod volume;

pub use disks::{Disks, EXTENDED_MAJOR};
pub use file::BlockFile;
pub use hold::Hold;
pub use queue::{Queue, Scheduler, Settings};
pub use stats::Stats;
pub use volume::{Driver, Identity, Volume};

use crate::{
    devfs::{Devices, Opener, Opening},
    File, Kind, Services,
};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture};

/// Makes nodes below /dev for disks and their partitions, with the links that lead to them, and for loop devices, before devtmpfs is mounted.
pub fn register(services: &Arc<Services>, disks: &Arc<Disks>, devices: &Arc<Devices>) {
    let all = disks.clone();
    devices.set_syncer(Arc::new(move || {
        let all = all.clone();
        Box::pin(async move { all.sync().await })
    }));
    for volume in disks.list() {
        devices.register(volume.name(), Kind::BlockDevice, volume.number(), 0o660, opener(&volume));
    }
    disks.registered(devices);
    for (name, target) in disks.links() {
        devices.link(&name, &target);
    }
    loops::register(services, disks, devices);
}

fn opener(volume: &Arc<Volume>) -> Opener {
    let volume = volume.clone();
    Arc::new(move |opening: Opening<'_>| -> BoxFuture<'_, Result<Arc<dyn File>>> {
        let volume = volume.clone();
        Box::pin(async move {
            // Whoever has heard that a loop device is free may bind it at once, though it still gives up its last file.
            volume.disk().unwrap_or(&volume).uses().settled().await;
            let file = BlockFile::open(&volume, opening.flags, Some(opening.at.clone()))?;
            Ok(file as Arc<dyn File>)
        })
    })
}

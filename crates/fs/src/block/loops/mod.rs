//! Loop devices (man 4 loop): disks whose bytes are those of a file.
//!
//! They exist on the kernel that has /dev, where a program of any kernel opens them; the file may be one of another kernel, which is then asked for every byte.
//!
//! | file | subject |
//! |---|---|
//! | settings.rs | what a program says and asks in its structures |
//! | device.rs | the bytes: reads and writes of the file |
//! | driver.rs | one device: its ioctls, and when it gives up its file |
//! | control.rs | /dev/loop-control |

mod control;
mod device;
mod driver;
mod settings;

pub use settings::{request, CONFIGURATION_BYTES, INFO_BYTES};

use super::{
    opener,
    queue::{Queue, Scheduler},
    volume::{Driver, Place, Volume},
    Disks,
};
use crate::{
    devfs::{Devices, Opener, Opening},
    file::ready,
    File, Kind, Services,
};
use alloc::{
    collections::BTreeMap,
    format,
    sync::{Arc, Weak},
};
use control::LoopControl;
use driver::Loop;
use machine::{
    block::BlockDevice,
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno,
};

/// LOOP_MAJOR.
const MAJOR: u32 = 7;
/// Devices that are there from the beginning.
const FIRST: u32 = 8;
/// How many there may be: nobody is charged for one.
const MOST: usize = 256;
/// Largest minor number (MINORMASK).
const LAST_MINOR: u32 = (1 << 20) - 1;

/// All of them.
pub struct Loops {
    services: Arc<Services>,
    disks: Arc<Disks>,
    devices: Weak<Devices>,
    loops: Lock<BTreeMap<u32, Arc<Loop>>>,
    /// Held by who makes or removes one, or their partitions.
    changing: AsyncLock<()>,
}

/// Makes the nodes of the first ones and /dev/loop-control, before devtmpfs is mounted.
pub fn register(services: &Arc<Services>, disks: &Arc<Disks>, devices: &Arc<Devices>) {
    let loops = Arc::new(Loops {
        services: services.clone(),
        disks: disks.clone(),
        devices: Arc::downgrade(devices),
        loops: Lock::default(),
        changing: AsyncLock::new(()),
    });
    for index in 0..FIRST {
        let volume = loops.make(index);
        devices.register(volume.name(), Kind::BlockDevice, volume.number(), 0o660, opener(&volume));
    }
    let open: Opener = Arc::new(move |opening: Opening<'_>| -> BoxFuture<'_, Result<Arc<dyn File>>> {
        ready(Ok(LoopControl::open(&loops, opening.flags, opening.at) as Arc<dyn File>))
    });
    devices.register("loop-control", Kind::CharDevice, control::NUMBER, 0o660, open);
}

impl Loops {
    fn make(self: &Arc<Self>, index: u32) -> Arc<Volume> {
        let one = Arc::new(Loop::new(index, self, &self.services));
        let device = one.device().clone() as Arc<dyn BlockDevice>;
        let place = Place { name: format!("loop{index}"), number: (MAJOR, index), sectors: (0, 0) };
        let queue = Queue::new(&self.services, &device, place.number, Scheduler::None);
        let volume = Volume::new(&self.services, &queue, place, None, Some(one.clone() as Arc<dyn Driver>));
        one.set_volume(&volume);
        self.disks.insert(&volume);
        self.loops.lock().insert(index, one);
        volume
    }

    fn devices(&self) -> Result<Arc<Devices>> {
        self.devices.upgrade().ok_or(Errno::ENXIO)
    }

    /// LOOP_CTL_ADD: the device of this number (EEXIST: it is there), or any.
    async fn add(self: &Arc<Self>, index: Option<u32>) -> Result<u32> {
        let _changing = self.changing.lock().await;
        self.add_one(index).await
    }

    async fn add_one(self: &Arc<Self>, index: Option<u32>) -> Result<u32> {
        let index = {
            let loops = self.loops.lock();
            let index = index.or_else(|| (0..).find(|index| !loops.contains_key(index))).ok_or(Errno::ENOSPC)?;
            if loops.contains_key(&index) {
                return Err(Errno::EEXIST);
            }
            if loops.len() >= MOST || index > LAST_MINOR {
                return Err(Errno::ENOSPC);
            }
            index
        };
        let volume = self.make(index);
        let (name, number) = (volume.name(), volume.number());
        self.devices()?.add(name, Kind::BlockDevice, number, 0o660, opener(&volume)).await;
        Ok(index)
    }

    /// LOOP_CTL_REMOVE. ENODEV: there is none. EBUSY: it has a file, or somebody has it open.
    async fn remove(&self, index: u32) -> Result<()> {
        let _changing = self.changing.lock().await;
        let one = self.loops.lock().get(&index).cloned().ok_or(Errno::ENODEV)?;
        let volume = one.volume()?;
        volume.uses().close()?;
        if one.backing().is_some() {
            volume.uses().reopen();
            return Err(Errno::EBUSY);
        }
        self.loops.lock().remove(&index);
        self.disks.remove(&volume);
        volume.uses().end_all();
        self.devices()?.remove(volume.name(), Kind::BlockDevice, volume.number()).await;
        Ok(())
    }

    /// LOOP_CTL_GET_FREE: the first device without a file; a new one if need be.
    async fn free(self: &Arc<Self>) -> Result<u32> {
        let _changing = self.changing.lock().await;
        let loops = self.loops.lock().clone();
        for (index, one) in loops {
            // One that is giving up its file is free.
            one.volume()?.uses().settled().await;
            if one.backing().is_none() {
                return Ok(index);
            }
        }
        self.add_one(None).await
    }
}

//! All disks of the machine, what they and their partitions are called, and their numbers.

use super::{
    links, opener, partitions,
    queue::{Queue, Scheduler},
    ram::RamDisk,
    volume::{Part, Place, Volume},
};
use crate::{cache::MAX_SIZE, devfs::Devices, Kind, Services};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{
    block::{BlockDevice, BlockOp, CountedPart, Piece, Pieces, SECTOR},
    collections::try_filled,
    errno::Result,
    sync::{AsyncLock, Lock},
    Errno, PAGE_SIZE,
};
use messages::disk::PlacedDisk;
use spin::Once;

/// Reads a disk before there are volumes.
struct Raw<'a> {
    services: &'a Arc<Services>,
    device: &'a dyn BlockDevice,
}

impl partitions::Sectors for Raw<'_> {
    async fn read(&mut self, sector: u64, bytes: usize) -> Option<Vec<u8>> {
        let (memory, limits) = (&self.services.memory, self.device.limits());
        let block = u64::from(limits.block);
        // Whole blocks around it.
        let start = sector * SECTOR / block * block;
        let end = (sector * SECTOR + bytes as u64).next_multiple_of(block);
        if end > limits.sectors * SECTOR {
            return None;
        }
        let mut read: Vec<u8> = try_filled((end - start) as usize, 0).ok()?;
        for at in (start..end).step_by(PAGE_SIZE) {
            let part = (end - at).min(PAGE_SIZE as u64) as usize;
            let frame = self.services.frame().ok()?;
            let mut pieces = Pieces::none(memory);
            pieces.push(Piece { frame: frame.frame(), offset: 0, bytes: part });
            self.device.submit(BlockOp::Read, at / SECTOR, pieces).await.ok()?;
            let from = (at - start) as usize;
            memory.read(frame.frame(), 0, &mut read[from..from + part]);
        }
        let from = (sector * SECTOR - start) as usize;
        Some(read[from..from + bytes].to_vec())
    }
}

/// All disks of the machine with their partitions, on the kernel that owns the root. On another kernel: what it has mounted of the disks that it drives.
#[derive(Default)]
pub struct Disks {
    volumes: Lock<Vec<Arc<Volume>>>,
    /// Disks that this kernel drives, by their number on the bus, for file systems that the owner of the root has it mount.
    driven: Lock<BTreeMap<u32, Arc<Queue>>>,
    /// Names below /dev of those that the machine has when it starts, and what each leads to.
    links: Lock<Vec<(String, String)>>,
    /// Where their nodes are.
    devices: Once<Weak<Devices>>,
    /// Held by who reads a table of partitions again.
    scanning: AsyncLock<()>,
}

/// What Debian's kernel gives virtio disks, whose major number is assigned as they come.
const MAJOR: u32 = 254;
const RAM_MAJOR: u32 = 1;
/// Minor numbers of a disk.
const MINORS: u32 = 16;
/// BLOCK_EXT_MAJOR: partitions whose disk has no minor numbers for them have the next ones that are free here.
pub const EXTENDED_MAJOR: u32 = 259;

impl Disks {
    /// Reads the partitions of one more disk, and gives the volumes that it adds: the disk first.
    pub async fn add(&self, services: &Arc<Services>, device: Arc<dyn BlockDevice>) -> Vec<Arc<Volume>> {
        let is_virtio = |volume: &&Arc<Volume>| volume.number().0 == MAJOR && volume.disk().is_none();
        let index = self.volumes.lock().iter().filter(is_virtio).count() as u32;
        let sectors = (0, device.limits().sectors);
        let place = Place { name: format!("vd{}", letters(index)), number: (MAJOR, index * MINORS), sectors };
        let queue = Queue::new(services, &device, place.number, Scheduler::of(&device.limits()));
        let disk = Volume::new(services, &queue, place, None, None);
        self.insert(&disk);
        let mut added = alloc::vec![disk.clone()];
        added.extend(self.scan(&disk).await);
        for volume in &added {
            let names = links::of(volume).await.into_iter();
            self.links.lock().extend(names.map(|name| (name, format!("../../{}", volume.name()))));
        }
        follow_size(disk);
        added
    }

    /// On a kernel that does not own the root: it drives this disk.
    pub fn drive(&self, services: &Arc<Services>, number: u32, device: &Arc<dyn BlockDevice>) {
        let queue = Queue::new(services, device, (MAJOR, number * MINORS), Scheduler::of(&device.limits()));
        self.driven.lock().insert(number, queue);
    }

    /// There: the volume of what the owner of the root wants mounted. What was read of it before is forgotten, for that kernel has written it since. ENODEV: the disk
    /// is not driven here.
    pub async fn placed(&self, services: &Arc<Services>, placed: &PlacedDisk) -> Result<Arc<Volume>> {
        let PlacedDisk { disk, name, number, sectors } = placed;
        let queue = self.driven.lock().get(disk).cloned().ok_or(Errno::ENODEV)?;
        let (start, length) = *sectors;
        let is_it = |volume: &&Arc<Volume>| volume.is_at(name, *sectors);
        let known = self.volumes.lock().iter().find(is_it).cloned();
        if let Some(volume) = known {
            volume.replaced(length).await?;
            return Ok(volume);
        }
        if start.checked_add(length).is_none_or(|end| end > queue.limits().sectors) {
            return Err(Errno::EINVAL);
        }
        let place = Place { name: name.clone(), number: *number, sectors: *sectors };
        let volume = Volume::new(services, &queue, place, None, None);
        let mut volumes = self.volumes.lock();
        let old: Vec<_> = volumes.extract_if(.., |volume| volume.name() == name).collect();
        volumes.push(volume.clone());
        drop(volumes);
        drop(old);
        Ok(volume)
    }

    /// /dev/ram0, of so many bytes, but at most half of the memory.
    pub fn add_ram(&self, services: &Arc<Services>, bytes: u64) -> Arc<Volume> {
        let most = services.memory.totals().0 * PAGE_SIZE as u64 / 2;
        let device = Arc::new(RamDisk::new(services, bytes.min(most))) as Arc<dyn BlockDevice>;
        let place = Place { name: "ram0".into(), number: (RAM_MAJOR, 0), sectors: (0, device.limits().sectors) };
        let queue = Queue::new(services, &device, place.number, Scheduler::None);
        let disk = Volume::new(services, &queue, place, None, None);
        self.insert(&disk);
        disk
    }

    /// A disk more. It has no partitions before somebody [scans](Disks::scan) it.
    pub(super) fn insert(&self, disk: &Arc<Volume>) {
        self.volumes.lock().push(disk.clone());
    }

    /// A disk goes, and its partitions.
    pub(super) fn remove(&self, disk: &Arc<Volume>) {
        let gone =
            |volume: &Arc<Volume>| Arc::ptr_eq(volume, disk) || volume.disk().is_some_and(|of| Arc::ptr_eq(of, disk));
        let removed: Vec<_> = self.volumes.lock().extract_if(.., |volume| gone(volume)).collect();
        drop(removed);
    }

    /// Reads the table of partitions of a disk again (BLKRRPART). EBUSY: somebody uses one of them; then all stay.
    pub(super) async fn rescan(&self, disk: &Arc<Volume>) -> Result<()> {
        let _scanning = self.scanning.lock().await;
        // A program has perhaps only just written it.
        disk.write_back(0, MAX_SIZE).await?;
        self.remove_partitions(disk).await?;
        let devices = self.devices()?;
        for volume in self.scan(disk).await {
            devices.add(volume.name(), Kind::BlockDevice, volume.number(), 0o660, opener(&volume)).await;
        }
        Ok(())
    }

    /// The partitions of a disk go, with their nodes. EBUSY: as above.
    pub(super) async fn remove_partitions(&self, disk: &Arc<Volume>) -> Result<()> {
        let is_part = |volume: &Arc<Volume>| volume.disk().is_some_and(|of| Arc::ptr_eq(of, disk));
        let devices = self.devices()?;
        let partitions: Vec<_> = self.volumes.lock().iter().filter(|volume| is_part(volume)).cloned().collect();
        for (index, partition) in partitions.iter().enumerate() {
            if let Err(error) = partition.uses().close() {
                partitions[..index].iter().for_each(|partition| partition.uses().reopen());
                return Err(error);
            }
        }
        let removed: Vec<_> = self.volumes.lock().extract_if(.., |volume| is_part(volume)).collect();
        for partition in removed {
            partition.uses().end_all();
            devices.remove(partition.name(), Kind::BlockDevice, partition.number()).await;
            // Nobody has it, so nobody hears of an error but the log.
            if let Err(error) = partition.sync().await {
                log::error!("{}: {error:?}", partition.name());
            }
        }
        Ok(())
    }

    fn devices(&self) -> Result<Arc<Devices>> {
        self.devices.get().and_then(Weak::upgrade).ok_or(Errno::ENXIO)
    }

    /// Their nodes are below /dev from now on.
    pub(super) fn registered(self: &Arc<Self>, devices: &Arc<Devices>) {
        self.devices.call_once(|| Arc::downgrade(devices));
        self.list().iter().for_each(|volume| volume.listed_in(self));
    }

    /// Reads the table of partitions of a disk that has none yet, and gives them.
    pub(super) async fn scan(&self, disk: &Arc<Volume>) -> Vec<Arc<Volume>> {
        let (services, device) = (disk.services(), disk.device());
        let mut raw = Raw { services, device };
        let found = partitions::read(&mut raw, disk.sectors(), device.limits().block).await;
        let mut volumes = self.volumes.lock();
        let at = volumes.iter().position(|volume| Arc::ptr_eq(volume, disk)).map_or(volumes.len(), |at| at + 1);
        let mut added: Vec<Arc<Volume>> = Vec::new();
        for partitions::Partition { number, start, sectors, identity } in found {
            let (major, minor) = disk.number();
            let node = match major {
                MAJOR if number >= MINORS => {
                    log::warn!("{}: partition {number} has no minor number", disk.name());
                    continue;
                }
                MAJOR => (major, minor + number),
                _ => (EXTENDED_MAJOR, free_minor(volumes.iter().chain(&added))),
            };
            let joint = if disk.name().ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
            let name = format!("{}{joint}{number}", disk.name());
            let place = Place { name, number: node, sectors: (start, sectors) };
            let part = Part { number, disk: disk.clone(), identity };
            added.push(Volume::new(services, disk.queue(), place, Some(part), None));
        }
        volumes.splice(at..at, added.iter().cloned());
        added
    }

    pub(super) fn links(&self) -> Vec<(String, String)> {
        self.links.lock().clone()
    }

    /// Each disk before its partitions.
    pub fn list(&self) -> Vec<Arc<Volume>> {
        self.volumes.lock().clone()
    }

    /// The same, with the counters of each ([`Volume::counts`]). A disk that another kernel drives is asked for once.
    pub async fn counts(&self) -> Vec<(Arc<Volume>, [u64; 17])> {
        let mut counts = Vec::new();
        let mut asked: Option<(Arc<Volume>, Vec<CountedPart>)> = None;
        for volume in self.list() {
            let disk = volume.disk().unwrap_or(&volume).clone();
            let there = match asked.take().filter(|(known, _)| Arc::ptr_eq(known, &disk)) {
                Some((_, there)) => there,
                None => disk.counted_there().await,
            };
            let numbers = volume.counts_with(&there);
            counts.push((volume, numbers));
            asked = Some((disk, there));
        }
        counts
    }

    /// On a kernel that does not own the root: what has been asked of a disk for what is mounted here.
    pub fn counts_of(&self, disk: u32) -> Vec<CountedPart> {
        let Some(queue) = self.driven.lock().get(&disk).cloned() else { return Vec::new() };
        let volumes = self.list().into_iter().filter(|volume| Arc::ptr_eq(volume.queue(), &queue));
        volumes.map(|volume| CountedPart { sectors: volume.extent(), numbers: volume.stats().numbers() }).collect()
    }

    /// The volume of a name below /dev. ENOTBLK: there is none.
    pub fn find(&self, name: &[u8]) -> Result<Arc<Volume>> {
        let found = self.volumes.lock().iter().find(|volume| volume.name().as_bytes() == name).cloned();
        found.ok_or(Errno::ENOTBLK)
    }

    /// Writes all dirty pages back, and has all disks keep them. The first error, if there is one; the others are asked all the same. A disk that has no bytes
    /// now (a loop device without a file) is not asked.
    pub async fn sync(&self) -> Result<()> {
        let mut result = Ok(());
        for volume in self.list() {
            if volume.sectors() > 0 {
                result = result.and(volume.sync().await);
            }
        }
        result
    }
}

/// A disk gets the size that its device gets (QMP block_resize), for as long as the machine is there.
fn follow_size(disk: Arc<Volume>) {
    if disk.device().resized(disk.sectors()).is_none() {
        return;
    }
    let services = disk.services().clone();
    services.spawner.spawn(Box::pin(async move {
        while let Some(resized) = disk.device().resized(disk.sectors()) {
            let (old, sectors) = (disk.sectors(), resized.await);
            log::info!("{}: detected capacity change from {old} to {sectors}", disk.name());
            if let Err(error) = disk.resized(sectors).await {
                log::error!("{}: its pages can't follow its size: {error:?}", disk.name());
            }
        }
    }));
}

/// The first minor number of [`EXTENDED_MAJOR`] that no volume has.
fn free_minor<'a>(volumes: impl Iterator<Item = &'a Arc<Volume>>) -> u32 {
    let mut taken: Vec<u32> = volumes
        .map(|volume| volume.number())
        .filter(|(major, _)| *major == EXTENDED_MAJOR)
        .map(|(_, minor)| minor)
        .collect();
    taken.sort_unstable();
    (0..).zip(&taken).find(|(index, minor)| index != *minor).map_or(taken.len() as u32, |(index, _)| index)
}

/// a to z, then aa, ab, ...
fn letters(index: u32) -> String {
    let last = char::from(b'a' + (index % 26) as u8);
    match index / 26 {
        0 => last.to_string(),
        more => letters(more - 1) + &last.to_string(),
    }
}

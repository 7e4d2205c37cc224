//! /sys/block and its kin: disks and their partitions (Documentation/ABI of Linux, sysfs-block and sysfs-class-block).

use super::Rebuilt;
use crate::proc::made::Directory as Names;
use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
use fs::{
    block::{Queue, Scheduler, Settings, Volume},
    synthetic::{hash_ino, Content, Node, Text},
    Caller,
};
use machine::{block::SECTOR, errno::Result, BoxFuture, Errno};

/// Where disks are, seen from /sys/devices.
const PLACE: &str = "devices/virtual/block";

/// LOOP_MAJOR.
const LOOP: u32 = 7;

fn disks_of(volumes: &[Arc<Volume>]) -> impl Iterator<Item = &Arc<Volume>> {
    volumes.iter().filter(|volume| volume.partition().is_none())
}

/// The partitions of a disk.
fn partitions_of<'a>(volumes: &'a [Arc<Volume>], disk: &'a Volume) -> impl Iterator<Item = &'a Arc<Volume>> {
    volumes.iter().filter(|volume| volume.disk().is_some_and(|of| of.number() == disk.number()))
}

/// A volume's directory below /sys.
fn place(volume: &Volume) -> String {
    match volume.disk() {
        Some(disk) => format!("{PLACE}/{}/{}", disk.name(), volume.name()),
        None => format!("{PLACE}/{}", volume.name()),
    }
}

/// /sys/block.
pub(super) fn disks(names: Names, volumes: &[Arc<Volume>]) -> Names {
    disks_of(volumes).fold(names, |names, disk| names.link(disk.name(), format!("../{}", place(disk))))
}

/// /sys/class/block.
pub(super) fn class(names: Names, volumes: &[Arc<Volume>]) -> Names {
    volumes.iter().fold(names, |names, volume| names.link(volume.name(), format!("../../{}", place(volume))))
}

/// /sys/dev/block.
pub(super) fn numbers(names: Names, volumes: &[Arc<Volume>]) -> Names {
    let name = |volume: &Volume| format!("{}:{}", volume.number().0, volume.number().1);
    volumes.iter().fold(names, |names, volume| names.link(&name(volume), format!("../../{}", place(volume))))
}

/// /sys/devices/virtual/block.
pub(super) fn devices(names: Names, volumes: &[Arc<Volume>]) -> Names {
    disks_of(volumes).fold(names, |names, disk| {
        let path = format!("/sys/{PLACE}/{}", disk.name());
        let ino = hash_ino(path.as_bytes());
        let (of, partitions) = (disk.clone(), partitions_of(volumes, disk).cloned().collect::<Vec<_>>());
        let one = move || device(Names::new(&path), &path, &of, &partitions).done();
        names.with(disk.name(), Node::directory(ino, Rebuilt(Box::new(one))))
    })
}

/// /sys/devices/virtual/block/vda.
fn device(names: Names, path: &str, disk: &Arc<Volume>, partitions: &[Arc<Volume>]) -> Names {
    let limits = disk.device().limits();
    let is_loop = disk.number().0 == LOOP;
    let names = common(names, path, disk, "disk")
        .constant("removable", "0\n")
        .constant("ext_range", "256\n")
        .constant("range", if is_loop { "1\n" } else { "16\n" })
        .constant("capability", "0\n")
        .constant("hidden", "0\n")
        .directory("queue", |names| queue(names, &format!("{path}/queue"), disk))
        .directory("mq", |names| lanes(names, disk));
    let names = match is_loop {
        true => names,
        false => names
            .constant("serial", String::from_utf8_lossy(&limits.serial).into_owned())
            .constant("cache_type", if limits.caches_writes { "write back\n" } else { "write through\n" }),
    };
    let names = match disk.driver().and_then(|driver| driver.shown()) {
        Some(files) => names.directory("loop", |names| {
            files.into_iter().fold(names, |names, (name, text)| names.file(name, Text(move |_: &Caller| text.clone())))
        }),
        None => names,
    };
    partitions.iter().fold(names, |names, part| {
        let path = format!("{path}/{}", part.name());
        let (number, start) = part.partition().unwrap_or_default();
        names.directory(part.name(), |names| {
            common(names, &path, part, "partition")
                .constant("partition", format!("{number}\n"))
                .constant("start", format!("{start}\n"))
        })
    })
}

/// What disks and partitions both have.
fn common(names: Names, path: &str, volume: &Arc<Volume>, kind: &str) -> Names {
    let (major, minor) = volume.number();
    names
        .constant("dev", format!("{major}:{minor}\n"))
        .constant("size", format!("{}\n", volume.sectors()))
        .constant("ro", format!("{}\n", u8::from(volume.device().limits().read_only)))
        .constant("alignment_offset", "0\n")
        .constant("discard_alignment", "0\n")
        .constant("uevent", format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={}\nDEVTYPE={kind}\n", volume.name()))
        .with("stat", Node::file(hash_ino(format!("{path}/stat").as_bytes()), Counted(volume.clone())))
        .directory("holders", |names| names)
        .directory("slaves", |names| names)
}

/// `stat`.
struct Counted(Arc<Volume>);

impl Content for Counted {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let numbers = self.0.counts().await;
            let mut line = numbers.iter().fold(String::new(), |line, number| line + &format!("{number:>8} "));
            line.pop();
            Ok((line + "\n").into_bytes())
        })
    }
}

/// /sys/block/vda/queue (Documentation/ABI/stable/sysfs-block).
fn queue(names: Names, path: &str, disk: &Arc<Volume>) -> Names {
    let limits = disk.device().limits();
    let bytes = |sectors: u32| format!("{}\n", u64::from(sectors) * SECTOR);
    let segments = if limits.most_segments == 0 { 128 } else { limits.most_segments };
    let setting = |names: Names, name: &'static str| {
        let node = Node::file(hash_ino(format!("{path}/{name}").as_bytes()), Setting(disk.queue().clone(), name));
        names.with(name.rsplit('/').next().unwrap_or(name), node.mode(0o644))
    };
    let names = Settings::NAMES.into_iter().fold(names, setting);
    let scheduler = Node::file(hash_ino(format!("{path}/scheduler").as_bytes()), Chosen(disk.queue().clone()));
    let cache = if limits.caches_writes { "write back\n" } else { "write through\n" };
    names
        .constant("logical_block_size", format!("{}\n", limits.block))
        .constant("hw_sector_size", format!("{}\n", limits.block))
        .constant("physical_block_size", format!("{}\n", limits.physical_block))
        .constant("minimum_io_size", format!("{}\n", limits.physical_block))
        .constant("optimal_io_size", "0\n")
        .constant("max_hw_sectors_kb", format!("{}\n", limits.most_bytes / 1024))
        .constant("max_segments", format!("{segments}\n"))
        .constant("max_segment_size", "4096\n")
        .with("scheduler", scheduler.mode(0o644))
        .constant("write_cache", cache)
        .constant("fua", "0\n")
        .constant("iostats", "1\n")
        .constant("discard_granularity", format!("{}\n", if limits.most_discarded > 0 { limits.block } else { 0 }))
        .constant("discard_max_bytes", bytes(limits.most_discarded))
        .constant("discard_max_hw_bytes", bytes(limits.most_discarded))
        .constant("discard_zeroes_data", "0\n")
        .constant("write_zeroes_max_bytes", bytes(limits.most_zeroed))
        .constant("write_same_max_bytes", "0\n")
        .constant("zoned", "none\n")
        .constant("nr_zones", "0\n")
        .constant("chunk_sectors", "0\n")
        .constant("dma_alignment", "511\n")
        .directory("iosched", |names| match disk.queue().settings.scheduler() {
            Scheduler::Deadline => Settings::DEADLINE_NAMES.into_iter().fold(names, setting),
            Scheduler::None => names,
        })
}

/// /sys/block/vda/mq: the device's queues.
fn lanes(names: Names, disk: &Volume) -> Names {
    let depth = disk.device().limits().depth;
    (0..disk.queue().lanes()).fold(names, |names, lane| {
        names.directory(&format!("{lane}"), |names| {
            names
                .constant("cpu_list", format!("{lane}\n"))
                .constant("nr_tags", format!("{depth}\n"))
                .constant("nr_reserved_tags", "0\n")
        })
    })
}

/// The text of a write by somebody who may change how disks work.
fn word<'a>(caller: &Caller, data: &'a [u8]) -> Result<&'a str> {
    if !caller.credentials.is_privileged() {
        return Err(Errno::EACCES);
    }
    core::str::from_utf8(data.trim_ascii()).map_err(|_| Errno::EINVAL)
}

/// A number of [`Settings`].
struct Setting(Arc<Queue>, &'static str);

impl Content for Setting {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        let number = self.0.settings.get(self.1, &self.0.limits());
        Box::pin(core::future::ready(Ok(format!("{number}\n").into_bytes())))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let number = word(caller, data)?.parse().map_err(|_| Errno::EINVAL)?;
            self.0.settings.set(self.1, number, &self.0.limits())?;
            Ok(data.len())
        })
    }
}

/// `scheduler`: all there are, the chosen one in brackets.
struct Chosen(Arc<Queue>);

impl Content for Chosen {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        let text = Scheduler::NAMES.iter().fold(String::new(), |text, name| match *name {
            chosen if chosen == self.0.settings.scheduler().name() => text + &format!("[{chosen}] "),
            other => text + other + " ",
        });
        Box::pin(core::future::ready(Ok((text + "\n").into_bytes())))
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, caller: &'a Caller, data: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.0.select(Scheduler::named(word(caller, data)?)?);
            Ok(data.len())
        })
    }
}

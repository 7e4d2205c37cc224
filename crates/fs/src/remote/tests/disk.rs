//! A disk that another kernel drives.

use super::*;
use crate::{
    block::{Disks, Volume},
    file::Destination,
    ReadAhead, Services,
};
use machine::block::{BlockDevice, BlockLimits, BlockOp, Piece, Pieces, SECTOR};
use messages::disk::PlacedDisk;

/// A disk in memory. A request waits for a turn, as a real one does.
struct Plate(Mutex<Vec<u8>>);

impl BlockDevice for Plate {
    fn limits(&self) -> Arc<BlockLimits> {
        Arc::new(BlockLimits {
            sectors: 64,
            block: 512,
            most_bytes: 1 << 20,
            queues: 4,
            depth: 64,
            ..BlockLimits::default()
        })
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            machine::yield_now().await;
            let (mut plate, at) = (self.0.lock().unwrap(), (sector * SECTOR) as usize);
            let end = at + pages.len();
            if end > plate.len() {
                return Err(Errno::EINVAL);
            }
            match op {
                BlockOp::Read => pages.copy_from(&plate[at..end]),
                BlockOp::Write => {
                    let mut bytes = Vec::new();
                    pages.copy_to(&mut bytes);
                    plate[at..end].copy_from_slice(&bytes);
                }
                _ => {}
            }
            Ok(())
        })
    }
}

/// Pages with these bytes, in pieces of a thousand or so.
fn pieces(machine: &Machine, bytes: &[u8]) -> (Pieces, Vec<Frame>) {
    let memory: Arc<dyn Memory> = Arc::new(TestMemory(KernelId(0), machine.ram.clone()));
    let (mut pieces, mut frames) = (Pieces::none(&memory), Vec::new());
    for part in bytes.chunks(1536) {
        let frame = memory.alloc().unwrap();
        memory.write(frame, 512, part);
        pieces.push(Piece { frame, offset: 512, bytes: part.len() });
        frames.push(frame);
    }
    (pieces, frames)
}

#[test]
fn a_disk_of_another_kernel_works_and_is_gone_with_it() {
    let machine = Machine::new(2);
    let plate = Arc::new(Plate(Mutex::new(vec![0; 64 << 9])));
    let mut finding: BoxFuture<'_, _> = Box::pin(RemoteDisk::find(&machine.kernels[0], KernelId(1), 3));
    assert!(machine.poll(&mut finding).is_none(), "it has not been opened");
    machine.kernels[1].drive_disks([(3, plate.clone() as Arc<dyn BlockDevice>)].into(), &Arc::default());
    let disk = machine.poll(&mut finding).unwrap().unwrap();
    drop(finding);
    let none = machine.run(RemoteDisk::find(&machine.kernels[0], KernelId(1), 0));
    assert_eq!(none.err(), Some(Errno::ENODEV));
    assert_eq!((disk.limits().sectors, disk.limits().queues, disk.limits().most_pieces), (64, 1, 32));
    let before = machine.frames();
    let data: Vec<u8> = (0..20 << 9).map(|index| (index % 253) as u8).collect();
    let (from, frames) = pieces(&machine, &data);
    machine.run(disk.submit(BlockOp::Write, 7, from)).unwrap();
    assert_eq!(plate.0.lock().unwrap()[7 << 9..27 << 9], data);
    let (to, read) = pieces(&machine, &vec![0; data.len()]);
    machine.run(disk.submit(BlockOp::Read, 7, to.clone())).unwrap();
    let mut found = Vec::new();
    to.copy_to(&mut found);
    assert_eq!(found, data);
    machine.run(disk.submit(BlockOp::Flush, 0, Pieces::none(&machine.kernels[0].memory))).unwrap();
    assert_eq!(machine.run(disk.submit(BlockOp::Read, 60, to.clone())), Err(Errno::EINVAL), "past the end");
    // Nobody waits for this one; its pages stay until it is over.
    let mut dropped = disk.submit(BlockOp::Read, 0, to.clone());
    assert!(once(dropped.as_mut()).is_none());
    drop(dropped);
    machine.settle();
    drop(to);
    let memory = machine.kernels[0].memory.clone();
    frames.into_iter().chain(read).for_each(|frame| memory.release(frame));
    assert_eq!(machine.frames(), before);
    // It is asked, and the kernel dies.
    let (to, frames) = pieces(&machine, &data);
    let mut last = disk.submit(BlockOp::Read, 0, to);
    assert!(once(last.as_mut()).is_none());
    machine.dies(1, &[0]);
    assert_eq!(machine.poll(&mut last), Some(Err(Errno::EIO)));
    drop(last);
    frames.into_iter().for_each(|frame| memory.release(frame));
    assert_eq!(machine.run(disk.submit(BlockOp::Flush, 0, Pieces::none(&memory))), Err(Errno::EIO));
}

#[test]
fn what_a_kernel_asks_of_the_disk_that_it_drives_is_counted() {
    let machine = Machine::new(2);
    let services = |kernel: u16| {
        let memory = Arc::new(TestMemory(KernelId(kernel), machine.ram.clone()));
        Services::new(memory, Arc::new(NoClock), machine.tasks.clone())
    };
    let plate = Arc::new(Plate(Mutex::new(vec![0; 64 << 9]))) as Arc<dyn BlockDevice>;
    let (there, driven, disks) = (services(1), Arc::new(Disks::default()), Disks::default());
    driven.drive(&there, 3, &plate);
    machine.kernels[1].drive_disks([(3, plate)].into(), &driven);
    let disk = machine.run(RemoteDisk::find(&machine.kernels[0], KernelId(1), 3)).unwrap();
    machine.run(disks.add(&services(0), Arc::new(disk)));
    let read = |volume: &Volume| {
        let mut bytes = [1; 512];
        let read = volume.cache().read(Destination::Kernel(&mut bytes), 0, ReadAhead::Random);
        assert_eq!(machine.run(read), Ok(512));
    };
    let (done, sectors) = (0, 2);
    let counted = || machine.run(disks.counts())[0].1;
    read(&disks.list()[0]);
    let own = counted();
    assert!(own[done] > 0);
    let place = PlacedDisk { disk: 3, name: "vda1".into(), number: (254, 1), sectors: (8, 16) };
    read(&machine.run(driven.placed(&there, &place)).unwrap());
    assert_eq!((counted()[done], counted()[sectors]), (own[done] + 1, own[sectors] + 8));
    assert_eq!(machine.run(disks.list()[0].counts()), counted());
    machine.dies(1, &[0]);
    assert_eq!(counted(), own);
}

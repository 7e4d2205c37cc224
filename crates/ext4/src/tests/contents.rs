//! Blocks of files: written, set aside, given back at random, and compared with a model and with e2fsck.

use super::*;

const TIME: Time = Time { seconds: 1_700_000_000, nanoseconds: 5 };

fn file(volume: &Volume<Disk>) -> u32 {
    // Below lost+found, so that e2fsck finds nothing but files without names, which the test releases at its end.
    let new = NewInode { mode: 0o100644, uid: 0, gid: 0, time: TIME, generation: 7, device: (0, 0) };
    now(volume.run(|handle| {
        let mut inode = handle.make_inode(2, &new)?;
        inode.links = 0;
        handle.add_orphan(&mut inode)?;
        handle.put_inode(&inode)?;
        Ok(inode.number)
    }))
    .unwrap()
}

fn reads(volume: &Volume<Disk>) -> Vec<(u64, u32)> {
    std::mem::take(&mut *volume.device().reads.lock().unwrap())
}

#[test]
fn new_inodes_read_no_block_of_the_table_that_has_no_others_and_old_ones_many_at_once() {
    let volume = open(empty(16 << 10, &["-b", "4096", "-N", "2048", "-E", "lazy_itable_init=0"])).unwrap();
    volume.open_without_journal();
    file(&volume);
    reads(&volume);
    // 16 inodes a block.
    let numbers: Vec<u32> = (0..640).map(|_| file(&volume)).collect();
    assert_eq!(reads(&volume), []);
    now(volume.write_home()).unwrap();
    let again = open(volume.device().bytes.lock().unwrap().clone()).unwrap();
    now(again.any_inode(numbers[0])).unwrap();
    reads(&again);
    for number in &numbers {
        assert_eq!(now(again.any_inode(*number)).unwrap().mode, 0o100644);
    }
    let read = reads(&again);
    let blocks: u32 = read.iter().map(|(_, blocks)| blocks).sum();
    assert!(read.len() <= 3 && (8..=40).contains(&blocks), "{read:?}");
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }
}

/// What a block of the model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Hole,
    Unwritten,
    Written,
}

fn compare(volume: &Volume<Disk>, number: u32, model: &[Is]) {
    let mut at = 0;
    let mut places = std::collections::BTreeSet::new();
    while at < model.len() as u32 {
        let run = now(volume.map_now(number, at)).unwrap();
        assert!(run.blocks > 0);
        for block in at..(at + run.blocks).min(model.len() as u32) {
            let is = match run {
                Run { place: Some(_), .. } => Is::Written,
                Run { unwritten: Some(_), .. } => Is::Unwritten,
                _ => Is::Hole,
            };
            assert_eq!(is, model[block as usize], "block {block}");
            if let Some(place) = run.place.or(run.unwritten) {
                assert!(places.insert(place + u64::from(block - at)), "a block twice");
            }
        }
        at += run.blocks;
    }
}

fn write(volume: &Volume<Disk>, number: u32, mut from: u32, to: u32, drops: bool) {
    while from < to {
        let target = now(volume.place(number, from, to - from)).unwrap();
        from += target.blocks;
        if !drops {
            let size = u64::from(from) * u64::from(volume.superblock().block_bytes);
            now(volume.settle(number, target, size, None)).unwrap();
        }
    }
}

#[test]
fn blocks_of_files_are_where_the_model_has_them() {
    for (seed, options) in
        [(1, &["-b", "1024"][..]), (2, &["-b", "4096"]), (3, &["-b", "1024", "-O", "^metadata_csum,^64bit,^flex_bg"])]
    {
        let image = empty(64 << 10, &[options, &["-N", "64"]].concat());
        let volume = open(image).unwrap();
        volume.open_without_journal();
        let free = volume.free();
        let mut random = Random(seed);
        const BLOCKS: usize = 3500;
        let mut files: Vec<_> = (0..3).map(|_| (file(&volume), vec![Is::Hole; BLOCKS])).collect();
        for step in 0..1500 {
            let which = random.below(3) as usize;
            let (number, model) = &mut files[which];
            let from = random.below(BLOCKS as u64) as usize;
            // Most are short, so that there are many extents.
            let most = [1, 3, 30, 600][random.below(4) as usize];
            let to = (from + 1 + random.below(most) as usize).min(BLOCKS);
            match random.below(8) {
                0..4 => {
                    write(&volume, *number, from as u32, to as u32, false);
                    model[from..to].fill(Is::Written);
                }
                4 => write(&volume, *number, from as u32, to as u32, true),
                5 => {
                    let mut at = from as u32;
                    while at < to as u32 {
                        let size = to as u64 * u64::from(volume.superblock().block_bytes);
                        at = now(volume.allocate(*number, at, to as u32, size, TIME)).unwrap();
                    }
                    for is in &mut model[from..to] {
                        *is = if *is == Is::Hole { Is::Unwritten } else { *is };
                    }
                }
                6 => {
                    now(volume.punch(*number, from as u32, to as u64, TIME)).unwrap();
                    model[from..to].fill(Is::Hole);
                }
                _ if step % 20 == 0 => {
                    // As if it had a name: it is kept.
                    now(volume.change(*number, |inode| inode.links = 1)).unwrap();
                    let size = from as u64 * u64::from(volume.superblock().block_bytes);
                    now(volume.truncate(*number, size, TIME)).unwrap();
                    model[from..].fill(Is::Hole);
                    now(volume.run(|handle| {
                        let mut inode = handle.any_inode(*number)?;
                        inode.links = 0;
                        handle.add_orphan(&mut inode)?;
                        handle.put_inode(&inode)
                    }))
                    .unwrap();
                }
                _ => {}
            }
            if step % 50 == 0 {
                files.iter().for_each(|(number, model)| compare(&volume, *number, model));
            }
            if step % 20 == 0 {
                // What was freed may be used again.
                now(volume.write_home()).unwrap();
            }
        }
        files.iter().for_each(|(number, model)| compare(&volume, *number, model));
        files.iter().for_each(|(number, _)| now(volume.release(*number, TIME)).unwrap());
        now(volume.write_home()).unwrap();
        assert_eq!(volume.free(), free, "all is free again");
        check(&volume.device().bytes.lock().unwrap());
    }
}

#[test]
fn a_full_disk_is_full_and_what_is_freed_can_be_used() {
    let volume = open(empty(8 << 10, &["-b", "1024"])).unwrap();
    volume.open_without_journal();
    let number = file(&volume);
    let mut at = 0;
    let error = loop {
        match now(volume.place(number, at, 100)) {
            Ok(target) => {
                at += target.blocks;
                now(volume.settle(number, target, 0, None)).unwrap();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoSpace);
    assert_eq!(volume.free().0, 0);
    now(volume.release(number, TIME)).unwrap();
    now(volume.write_home()).unwrap();
    check(&volume.device().bytes.lock().unwrap());
    let again = file(&volume);
    write(&volume, again, 0, at, false);
}

#[test]
fn a_file_without_a_name_that_is_open_can_be_made_shorter() {
    let volume = open(empty(8 << 10, &["-b", "1024"])).unwrap();
    volume.open_without_journal();
    let free = volume.free();
    let number = file(&volume);
    write(&volume, number, 0, 8, false);
    now(volume.truncate(number, 4096, TIME)).unwrap();
    assert_eq!(now(volume.any_inode(number)).unwrap().size, 4096);
    assert!(now(volume.map_now(number, 3)).unwrap().place.is_some());
    assert!(now(volume.map_now(number, 4)).unwrap().place.is_none());
    now(volume.release(number, TIME)).unwrap();
    assert_eq!(volume.free(), free);
    now(volume.write_home()).unwrap();
    check(&volume.device().bytes.lock().unwrap());
}

#[test]
fn what_is_set_aside_for_pages_is_not_allocated_to_others() {
    let volume = open(empty(8 << 10, &["-b", "1024"])).unwrap();
    volume.open_without_journal();
    let number = file(&volume);
    volume.reserve(1000).unwrap();
    let mut at = 0;
    let error = loop {
        match now(volume.allocate(number, at, 1 << 20, 0, TIME)) {
            Ok(next) => at = next,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NoSpace);
    write(&volume, number, 1 << 20, (1 << 20) + 1000, false);
}

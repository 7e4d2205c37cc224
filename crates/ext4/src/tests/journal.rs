//! Journals that debugfs has written, replayed; transactions of ours, cut off anywhere; damaged journals.

use super::*;
use crate::{extents::Extent, inode::Time};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that look random (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

pub(super) fn parsed(bytes: &[u8]) -> Result<Superblock> {
    let (at, length) = Superblock::PLACE;
    Superblock::parse(bytes[at..at + length].try_into().unwrap())
}

pub(super) fn disk(bytes: Vec<u8>, superblock: &Superblock) -> Disk {
    let block = superblock.block_bytes as usize;
    Disk { bytes: Mutex::new(bytes), asked: Mutex::default(), reads: Mutex::default(), block }
}

pub(super) fn mount(bytes: Vec<u8>, access: Access) -> Result<Volume<Disk>> {
    let superblock = parsed(&bytes)?;
    now(Volume::mount(disk(bytes, &superblock), superblock, access, 1_700_000_000))
}

fn bytes_of(volume: Volume<Disk>) -> Vec<u8> {
    volume.into_device().bytes.into_inner().unwrap()
}

/// What e2fsck makes of an image, and its exit code.
fn fsck(bytes: &[u8], options: &[&str]) -> (Vec<u8>, i32, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let output = Command::new("/usr/sbin/e2fsck").args(options).arg(file.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (fs::read(file.path()).unwrap(), output.status.code().unwrap(), said)
}

/// Both images have the same in all blocks but the file system's superblock, in which e2fsck notes when it was there.
fn assert_same(ours: &[u8], theirs: &[u8], block: usize, what: &str) {
    assert_eq!(ours.len(), theirs.len());
    for (number, (ours, theirs)) in ours.chunks(block).zip(theirs.chunks(block)).enumerate() {
        let is_superblock = number == usize::from(block == 1024);
        assert!(is_superblock || ours == theirs, "block {number} after {what}");
    }
}

#[test]
fn replay_does_what_e2fsck_does() {
    let mut random = Random(7);
    for block in [1024usize, 4096] {
        for features in ["64bit,metadata_csum", "64bit,^metadata_csum", "^64bit,metadata_csum", "^64bit,^metadata_csum"]
        {
            for version in ["", "-c -v 2", "-c -v 3"] {
                let mut image = empty(8192 * block as u32 / 1024, &["-b", &block.to_string(), "-O", features]);
                let free = {
                    let volume = open(image.clone()).unwrap();
                    now(volume.run(|handle| handle.find_free(4000, 300))).unwrap()
                };
                assert_eq!(free.end - free.start, 300);
                let directory = tempfile::tempdir().unwrap();
                let mut commands = format!("journal_open {version}\n");
                // More blocks at once than one descriptor has room for; and the last one is not whole.
                for (index, many) in [3, 290, 1, 20, 20, 20, 20, 7].into_iter().enumerate() {
                    let chosen: BTreeSet<u64> = match index {
                        1 => (free.start..free.start + many).collect(),
                        _ => (0..many).map(|_| free.start + random.below(40) as u64).collect(),
                    };
                    let mut data: Vec<u8> = (0..chosen.len() * block).map(|_| random.below(256) as u8).collect();
                    for copy in data.chunks_mut(block) {
                        if random.below(4) == 0 {
                            copy[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
                        }
                    }
                    let path = directory.path().join(index.to_string());
                    fs::write(&path, data).unwrap();
                    let list = |blocks: &BTreeSet<u64>| blocks.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
                    let last = if index == 7 { "-c" } else { "" };
                    commands += &format!("journal_write -b {} {last} {}\n", list(&chosen), path.display());
                    let revoked = (0..5).map(|_| free.start + random.below(60) as u64).collect();
                    // debugfs writes wrong sums of the first version, which e2fsck checks, for these.
                    let is_first_version = features.contains("^metadata_csum") && !version.is_empty();
                    if index < 6 && !is_first_version {
                        commands += &format!("journal_write -r {}\n", list(&revoked));
                    }
                }
                debugfs(&mut image, true, &(commands + "journal_close\n"));
                assert!(parsed(&image).unwrap().needs_recovery);
                let what = format!("{block} {features} {version}");
                let (theirs, code, said) = fsck(&image, &["-y", "-E", "journal_only"]);
                assert!(code <= 1, "{what}: {said}");
                assert_ne!(
                    theirs[free.start as usize * block..][..300 * block],
                    image[free.start as usize * block..][..300 * block]
                );

                let volume = mount(image.clone(), Access::ReadOnlyWithoutReplay).unwrap();
                assert!(volume.device().asked.lock().unwrap().is_empty());
                assert_eq!(mount(image.clone(), Access::ReadOnlyDevice).err(), Some(Error::ReadOnly));
                let ours = bytes_of(mount(image.clone(), Access::ReadOnly).unwrap());
                assert_same(&ours, &theirs, block, &what);
                assert!(!parsed(&ours).unwrap().needs_recovery);
                check(&ours);
                // Also with a mount that writes, which changes the form of the journal.
                let volume = mount(image, Access::ReadWrite).unwrap();
                now(volume.close(1_700_000_001)).unwrap();
                check(&bytes_of(volume));
            }
        }
    }
}

/// What the tests know of a file system after a number of operations.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Model {
    /// When each file was modified.
    times: BTreeMap<u32, i64>,
    /// Blocks of each file that have a place.
    blocks: BTreeMap<u32, BTreeSet<u32>>,
}

/// What the test writes into a block of a file.
fn pattern(inode: u32, block: u32, bytes: usize) -> Vec<u8> {
    let word = (inode * 100_003 + block).to_le_bytes();
    // Some look like blocks of a journal.
    let mut pattern: Vec<u8> = word.into_iter().cycle().take(bytes).collect();
    if block.is_multiple_of(5) {
        pattern[..12].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2, 0, 0, 0, block as u8]);
    }
    pattern
}

pub(super) const FILES: std::ops::Range<u32> = 12..20;
/// It is modified by each operation.
pub(super) const MARK: u32 = 20;

pub(super) fn set_time(handle: &mut crate::handle::Handle<'_>, inode: u32, seconds: i64) -> Result<()> {
    let mut inode = handle.any_inode(inode)?;
    inode.modified = Time { seconds, nanoseconds: 0 };
    handle.put_inode(&inode)
}

/// One operation, the one of number `number`: a file gets blocks or loses them, or only times change.
fn step(volume: &Volume<Disk>, random: &mut Random, number: i64, model: &mut Model) {
    let file = FILES.start + random.below(FILES.len()) as u32;
    let bytes = volume.superblock().block_bytes as usize;
    match random.below(10) {
        0..5 => {
            let block = random.below(3000) as u32;
            let wide = 1 + random.below(3) as u32;
            if model.blocks[&file].range(block..block + wide).next().is_some() {
                return step(volume, random, number, model);
            }
            // Where nodes of extents have been, or elsewhere.
            let goal = if random.below(2) == 0 { 0 } else { 4000 + random.below(500) as u64 };
            let free = now(volume.run(|handle| handle.find_free(goal, wide))).unwrap();
            let wide = (free.end - free.start) as u32;
            for index in 0..wide {
                let data = Bytes::new(pattern(file, block + index, bytes));
                now(volume.device().write(free.start + u64::from(index), vec![data])).unwrap();
            }
            let operation = volume.run(|handle| {
                handle.take_blocks(free.clone())?;
                let mut inode = handle.any_inode(file)?;
                inode.count_blocks(volume.superblock(), wide.into());
                let extent = Extent { block, blocks: wide as u16, place: free.start, written: true };
                handle.add_extent(&mut inode, extent)?;
                inode.modified = Time { seconds: number, nanoseconds: 0 };
                handle.put_inode(&inode)?;
                set_time(handle, MARK, number)
            });
            now(operation).unwrap();
            model.blocks.get_mut(&file).unwrap().extend(block..block + wide);
        }
        5..8 => {
            let from = if random.below(4) == 0 { 0 } else { random.below(3000) as u32 };
            let operation = volume.run(|handle| {
                let mut inode = handle.any_inode(file)?;
                let mut to = u64::from(u32::MAX);
                loop {
                    let (removed, next) = handle.remove_extents(&mut inode, from, to)?;
                    for extent in removed {
                        inode.count_blocks(volume.superblock(), -i64::from(extent.blocks));
                        handle.free_blocks(extent.place..extent.place + u64::from(extent.blocks))?;
                    }
                    match next {
                        Some(next) => to = next,
                        None => break,
                    }
                }
                inode.modified = Time { seconds: number, nanoseconds: 0 };
                handle.put_inode(&inode)?;
                set_time(handle, MARK, number)
            });
            now(operation).unwrap();
            model.blocks.get_mut(&file).unwrap().retain(|block| *block < from);
        }
        _ => {
            let operation = volume.run(|handle| {
                set_time(handle, file, number)?;
                set_time(handle, MARK, number)
            });
            now(operation).unwrap();
        }
    }
    model.times.insert(file, number);
}

/// The number of the last operation, and what is there.
pub(super) fn found(volume: &Volume<Disk>) -> (i64, Model) {
    let mut model = Model::default();
    let bytes = volume.superblock().block_bytes as usize;
    for number in FILES {
        let inode = now(volume.inode(number)).unwrap().unwrap();
        model.times.insert(number, inode.modified.seconds);
        let mut blocks = BTreeSet::new();
        let mut at = 0;
        while at < 4000 {
            let run = now(volume.map(&inode, at)).unwrap();
            for index in 0..run.blocks.min(4000) {
                if let Some(place) = run.place {
                    let data = now(volume.device().read(place + u64::from(index), 1)).unwrap();
                    assert!(data == pattern(number, at + index, bytes), "block {} of file {number}", at + index);
                    blocks.insert(at + index);
                }
            }
            at = at.saturating_add(run.blocks);
        }
        model.blocks.insert(number, blocks);
    }
    (now(volume.inode(MARK)).unwrap().unwrap().modified.seconds, model)
}

/// An image with files that operations change; their size is such that e2fsck does not wonder about blocks.
pub(super) fn with_files(kib: u32, options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..9 {
        let file = fs::File::create(directory.path().join(number.to_string())).unwrap();
        file.set_len(4000 * 4096).unwrap();
    }
    let mut options = options.to_vec();
    options.extend(["-E", "lazy_itable_init=0,hash_seed=00000000-0000-0000-0000-000000000001"]);
    options.extend(["-U", "00000000-0000-0000-0000-000000000002"]);
    made(directory.path(), kib, &options)
}

/// The disk after a power cut when it had been asked all of `asked`: what was written after the last flush may be there or not, block by block.
fn cut(bytes: &mut [u8], asked: &[Asked], block: usize, random: &mut Random) {
    let flushed = asked.iter().rposition(|asked| matches!(asked, Asked::Flush)).unwrap_or(0);
    let mut later = Vec::new();
    for (index, asked) in asked.iter().enumerate() {
        let Asked::Write(at, new) = asked else { continue };
        if index < flushed {
            bytes[*at..*at + new.len()].copy_from_slice(new);
        } else {
            later.extend(new.chunks(block).zip((*at..).step_by(block)));
        }
    }
    let part = [0, 1, 5, 9, 10][random.below(5)];
    while !later.is_empty() {
        let (new, at) = later.swap_remove(random.below(later.len()));
        if random.below(10) < part {
            bytes[at..at + new.len()].copy_from_slice(new);
        }
    }
}

fn changes_survive(seed: u64, block: usize, features: &str, operations: i64, cuts: usize) {
    let mut random = Random(seed);
    let image = with_files(
        16384 * block as u32 / 1024,
        &["-b", &block.to_string(), "-O", features, "-J", &format!("size={}", block / 1024)],
    );
    let volume = mount(image.clone(), Access::ReadWrite).unwrap();
    let (_, mut model) = found(&volume);
    now(volume.run(|handle| set_time(handle, MARK, 0))).unwrap();
    now(volume.commit()).unwrap();
    // By number of the operation; and what the disk had been asked when a commit answered, with the last operation before.
    let mut models = vec![model.clone()];
    let mut answered = vec![(volume.device().asked.lock().unwrap().len(), 0)];
    for number in 1..=operations {
        step(&volume, &mut random, number, &mut model);
        models.push(model.clone());
        match random.below(400) {
            0..120 => now(volume.commit()).unwrap(),
            120 => {
                now(volume.checkpoint()).unwrap();
                continue;
            }
            _ => continue,
        }
        answered.push((volume.device().asked.lock().unwrap().len(), number));
    }
    now(volume.close(1_700_000_002)).unwrap();
    let journal = now(volume.inode(8)).unwrap().unwrap();
    let start = now(volume.map(&journal, 0)).unwrap().place.unwrap() as usize * block;
    let disk = volume.into_device();
    let asked = disk.asked.into_inner().unwrap();
    answered.push((asked.len(), operations));
    let whole = disk.bytes.into_inner().unwrap();
    check(&whole);
    let superblock = parsed(&whole).unwrap();
    assert!(!superblock.needs_recovery);
    // The log has gone round.
    let written: usize =
        asked.iter().map(|asked| if let Asked::Write(_, new) = asked { new.len() / block } else { 0 }).sum();
    assert!(written > 4 * 1024, "{written}");

    // Half of the cuts are where a checkpoint has moved the beginning of the log.
    let moves: Vec<_> =
        (0..asked.len()).filter(|index| matches!(&asked[*index], Asked::Write(at, _) if *at == start)).collect();
    assert!(moves.len() > 4, "{}", moves.len());
    // What is home is there before the log begins later, and that before the log is written again.
    let is_flush = |index: usize| matches!(asked.get(index), Some(Asked::Flush));
    assert!(moves.iter().all(|index| is_flush(index - 1) && is_flush(index + 1)));
    for index in 0..=cuts {
        let end = match index {
            _ if index == cuts => asked.len(),
            _ if index % 2 == 0 => (moves[random.below(moves.len())] + random.below(6)).min(asked.len()),
            _ => random.below(asked.len() + 1),
        };
        let mut bytes = image.clone();
        cut(&mut bytes, &asked[..end], block, &mut random);
        let lasting = answered.iter().take_while(|(asked, _)| *asked <= end).last().map(|(_, number)| *number);
        let what = format!("a cut at {end} of {} of {seed} {block} {features}", asked.len());

        let ours = mount(bytes.clone(), Access::ReadOnly).unwrap_or_else(|error| panic!("{error:?}: {what}"));
        let (number, model) = found(&ours);
        if let Some(lasting) = lasting {
            assert!(number >= lasting, "{number} {lasting}: {what}");
            assert!(model == models[number as usize], "{what}");
        }
        let ours = bytes_of(ours);
        if index % 5 == 0 {
            let (theirs, code, said) = fsck(&bytes, &["-y", "-E", "journal_only"]);
            assert!(code <= 1, "{what}: {said}");
            // Of an empty log e2fsck changes the number of the next transaction, too.
            if bytes[start + 0x1c..start + 0x20] != [0; 4] {
                assert_same(&ours, &theirs, block, &what);
            }
            let (theirs, code, said) = fsck(&bytes, &["-fp"]);
            assert!(code <= 1, "{what}: {said}");
            check(&theirs);
        }
        // After this one another mount writes, and its power fails too.
        let volume = mount(bytes.clone(), Access::ReadWrite).unwrap_or_else(|error| panic!("{error:?}: {what}"));
        let first = volume.core.lock().superblock.free_blocks;
        let mut model = found(&volume).1;
        for number in 1..5 {
            step(&volume, &mut random, operations + number, &mut model);
            now(volume.commit()).unwrap();
        }
        let asked = volume.device().asked.lock().unwrap().clone();
        assert!(first > 0 && volume.core.lock().superblock.free_blocks > 0);
        cut(&mut bytes, &asked, block, &mut random);
        let volume = mount(bytes.clone(), Access::ReadWrite).unwrap();
        assert_eq!(found(&volume), (operations + 4, model), "{what}");
        now(volume.close(1_700_000_003)).unwrap();
        let bytes = bytes_of(volume);
        if index % 5 == 1 {
            check(&bytes);
        }
    }
}

#[test]
fn changes_survive_a_power_cut_as_a_whole_or_not_at_all() {
    changes_survive(1, 1024, "64bit,metadata_csum", 1500, 30);
    changes_survive(2, 1024, "^64bit,^metadata_csum", 1500, 20);
    changes_survive(3, 4096, "64bit,metadata_csum", 1500, 6);
}

#[test]
fn damaged_journals_do_no_harm() {
    let image = with_files(8192, &["-b", "1024"]);
    let volume = mount(image, Access::ReadWrite).unwrap();
    let (_, mut model) = found(&volume);
    let mut random = Random(11);
    for number in 0..60 {
        step(&volume, &mut random, number, &mut model);
        now(volume.commit()).unwrap();
    }
    let journal = now(volume.inode(8)).unwrap().unwrap();
    let first = now(volume.map(&journal, 0)).unwrap().place.unwrap() as usize * 1024;
    let log = now(volume.map(&journal, 17)).unwrap().place.unwrap() as usize * 1024;
    let image = bytes_of(volume);
    for round in 0..400 {
        let mut bytes = image.clone();
        for _ in 0..1 + random.below(3) {
            let at = match random.below(4) {
                0 => first + random.below(256),
                1 => first + 1024 + random.below(4096),
                _ => log + random.below(150 * 1024),
            };
            bytes[at] = match random.below(3) {
                0 => random.below(256) as u8,
                1 => bytes[at] ^ 1 << random.below(8),
                _ => 0,
            };
        }
        if round % 2 == 0 {
            // So that other damage is found than wrong sums.
            let sum = crate::bytes::sum(
                u32::MAX,
                &[&bytes[first..first + 0xfc], &[0; 4], &bytes[first + 0x100..first + 1024]],
            );
            bytes[first + 0xfc..first + 0x100].copy_from_slice(&sum.to_be_bytes());
        }
        if round % 8 == 0 {
            // Without sums at all: flag CSUM_V3 of the journal.
            bytes[first + 0x2b] &= !0x10;
        }
        match mount(bytes, Access::ReadWrite) {
            Ok(volume) => drop(now(volume.close(0))),
            Err(error) => assert!(!matches!(error, Error::Missing(_) | Error::Full), "{error:?}"),
        }
    }
}

#[test]
fn orphans_are_found_on_the_list_and_in_the_file() {
    for features in ["metadata_csum,orphan_file", "^metadata_csum,orphan_file"] {
        let mut image = with_files(8192, &["-b", "1024", "-O", features]);
        debugfs(
            &mut image,
            true,
            "set_super_value last_orphan 14\nset_inode_field <14> dtime 16\nset_inode_field <16> dtime 12\nset_inode_field <12> dtime 0\n",
        );
        // Two in the file, in blocks far from each other.
        let volume = open(image.clone()).unwrap();
        let number = volume.superblock().orphan_file;
        let file = now(volume.run(|handle| handle.any_inode(number))).unwrap();
        let seed = volume.superblock().seed.map(|seed| file.seed(seed));
        for (block, slot, orphan) in [(0, 3, 18u32), (20, 253, 19)] {
            let place = now(volume.map(&file, block)).unwrap().place.unwrap();
            let bytes = &mut image[place as usize * 1024..][..1024];
            assert_eq!(&bytes[1016..1020], &0x0b10_ca04u32.to_le_bytes());
            bytes[4 * slot..4 * slot + 4].copy_from_slice(&orphan.to_le_bytes());
            if let Some(seed) = seed {
                let sum = crate::bytes::sum(seed, &[&place.to_le_bytes(), &bytes[..1016]]);
                bytes[1020..].copy_from_slice(&sum.to_le_bytes());
            }
        }
        image[1024 + 0x66] |= 1;
        let superblock = volume.superblock();
        superblock.seal(&mut image[1024..2048]);
        let (_, code, said) = fsck(&image, &["-fp"]);
        assert!(code <= 1, "{said}");

        let volume = mount(image.clone(), Access::ReadWrite).unwrap();
        // Whatever has become of them since: they were there.
        let orphans = volume.core.lock().orphans().to_vec();
        assert!(orphans.is_empty() || orphans == [12, 16, 14, 18, 19], "{orphans:?}");
        now(volume.close(5)).unwrap();
        let bytes = bytes_of(volume);
        assert!(!parsed(&bytes).unwrap().has_orphans_in_file());
        assert!([0, 19].contains(&parsed(&bytes).unwrap().last_orphan));
        let (bytes, code, said) = fsck(&bytes, &["-fp"]);
        assert!(code <= 1, "{said}");
        check(&bytes);

        let mut cycle = image.clone();
        debugfs(&mut cycle, true, "set_inode_field <12> dtime 16\n");
        assert!(matches!(mount(cycle, Access::ReadWrite), Err(Error::Corrupt(_))));
        let mut own = image;
        debugfs(&mut own, true, "set_inode_field <12> dtime 8\n");
        assert!(matches!(mount(own, Access::ReadWrite), Err(Error::Corrupt(_))));
    }
}

#[test]
fn what_can_not_be_written_is_refused() {
    let without = empty(8192, &["-O", "^has_journal"]);
    assert!(mount(without.clone(), Access::ReadOnly).is_ok());
    assert!(matches!(mount(without, Access::ReadWrite), Err(Error::Unsupported(_))));
    let unknown = empty(8192, &["-O", "quota"]);
    assert!(mount(unknown.clone(), Access::ReadOnly).is_ok());
    assert_eq!(mount(unknown, Access::ReadWrite).err(), Some(Error::ReadOnly));
}

#[test]
fn transactions_end_when_they_are_large() {
    for features in ["64bit,metadata_csum", "^64bit,^metadata_csum"] {
        let image = with_files(8192, &["-b", "1024", "-O", features]);
        let volume = mount(image, Access::ReadWrite).unwrap();
        // Blocks of a file that are written by transactions, so that there are many.
        let blocks = now(volume.run(|handle| handle.find_free(4000, 600))).unwrap();
        assert_eq!(blocks.end - blocks.start, 600);
        let operation = volume.run(|handle| {
            handle.take_blocks(blocks.clone())?;
            let mut inode = handle.any_inode(FILES.start)?;
            inode.count_blocks(volume.superblock(), 600);
            let extent = Extent { block: 0, blocks: 600, place: blocks.start, written: true };
            handle.add_extent(&mut inode, extent)?;
            handle.put_inode(&inode)
        });
        now(operation).unwrap();
        let before = volume.transaction();
        for block in blocks.clone() {
            // Some look like blocks of a journal.
            let bytes = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2, 0, 0, 0, block as u8];
            let operation = volume.run(|handle| {
                let fresh = handle.fresh(block)?;
                fresh[..12].copy_from_slice(&bytes);
                fresh[12..].fill(block as u8);
                Ok(())
            });
            now(operation).unwrap();
        }
        // An operation alone may not be larger than a transaction.
        let all = volume.run(|handle| blocks.clone().try_for_each(|block| handle.fresh(block).map(drop)));
        assert_eq!(now(all), Err(Error::NoSpace));
        now(volume.commit()).unwrap();
        assert_eq!(volume.transaction() - before, 3);
        let ours = bytes_of(mount(bytes_of(volume), Access::ReadOnly).unwrap());
        for block in blocks {
            let bytes = &ours[block as usize * 1024..][..1024];
            assert!(bytes[..4] == [0xc0, 0x3b, 0x39, 0x98] && bytes[11..].iter().all(|byte| *byte == block as u8));
        }
        let (checked, code, said) = fsck(&ours, &["-fp"]);
        assert!(code <= 1, "{said}");
        check(&checked);
    }
}

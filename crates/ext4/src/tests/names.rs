//! Names that are added, removed and changed, against a model, and with e2fsck as the second opinion.

use super::*;
use crate::{
    directory::{hash::Hasher, search::in_order},
    handle::Handle,
};
use alloc::collections::{BTreeMap, BTreeSet};

/// The same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }

    pub fn name(&mut self) -> Vec<u8> {
        let length = [1, 2, 3, 1 + self.below(20), 1 + self.below(60), 1 + self.below(255)][self.below(6)];
        let name: Vec<u8> =
            (0..length).map(|_| [b'a' + self.below(26) as u8, 128 + self.below(128) as u8][self.below(2)]).collect();
        name
    }
}

pub const ROOT: u32 = 2;
pub const FILE: u16 = 0o100644;
pub const DIRECTORY: u16 = 0o040755;
pub const SYMLINK: u16 = 0o120777;

pub fn time(seconds: i64) -> Time {
    Time { seconds: 1_700_000_000 + seconds, nanoseconds: 5 }
}

pub fn new(mode: u16) -> NewInode {
    NewInode { mode, uid: 1000, gid: 100, time: time(0), generation: 7, device: (0, 0) }
}

pub fn writable(bytes: Vec<u8>) -> Volume<Disk> {
    let volume = open(bytes).unwrap();
    volume.open_without_journal();
    volume
}

pub fn bytes_of(volume: &Volume<Disk>) -> Vec<u8> {
    now(volume.write_home()).unwrap();
    volume.device().bytes.lock().unwrap().clone()
}

/// What the file system does when nobody has an inode without names open any more.
pub fn release(volume: &Volume<Disk>, number: u32) -> Result<()> {
    now(volume.release(number, time(1)))
}

pub fn inode(volume: &Volume<Disk>, number: u32) -> Inode {
    now(volume.inode(number)).unwrap().expect("it is in use")
}

/// All names of a directory. Each is listed once.
pub fn names(volume: &Volume<Disk>, directory: u32) -> Result<BTreeMap<Vec<u8>, u32>> {
    let directory = inode(volume, directory);
    let (mut found, mut from) = (BTreeMap::new(), 0);
    while let Some(entries) = now(volume.list(&directory, from))? {
        for entry in entries {
            assert!(entry.next > from && entry.next < i64::MAX as u64 - 16);
            from = entry.next;
            assert_eq!(found.insert(entry.name, entry.inode), None, "a name is listed once");
        }
    }
    Ok(found)
}

#[test]
fn hashes_are_those_of_e2fsprogs() {
    let names =
        ["a", "abc", "abcd", "Grüße", "ein Name mit mehr als zweiunddreißig Zeichen, einige davon über 127", "日本語"];
    let seed = "01234567-89ab-cdef-0123-456789abcdef";
    let words: [u32; 4] = [0x67452301, 0xefcdab89, 0x67452301, 0xefcdab89].map(|word: u32| word);
    let mut image = empty(1 << 10, &["-b", "1024", "-O", "^has_journal"]);
    for (version, alg) in [(0, "legacy"), (1, "half_md4"), (2, "tea")] {
        for unsigned in [false, true] {
            // It has no names for those that take bytes as unsigned.
            let alg = if unsigned { (version + 3).to_string() } else { alg.to_string() };
            for (seed, words) in [(seed, words), ("00000000-0000-0000-0000-000000000000", [0; 4])] {
                let script: String =
                    names.iter().map(|name| format!("dx_hash -h {alg} -s {seed} \"{name}\"\n")).collect();
                let answer = debugfs(&mut image, false, &script);
                let hasher = Hasher::new(&crate::superblock::Hash { seed: words, version, unsigned }, version).unwrap();
                for name in names {
                    let (major, minor) = hasher.hash(name.as_bytes());
                    let minor = if version == 0 { 0 } else { minor };
                    let expected = format!("Hash of {name} is 0x{major:0x} (minor 0x{minor:0x})");
                    assert!(answer.contains(&expected), "{alg} {expected}\n{answer}");
                }
            }
        }
    }
    let seed = [0; 4];
    assert_eq!(Hasher::new(&crate::superblock::Hash { seed, version: 6, unsigned: false }, 6), None);
}

fn make(volume: &Volume<Disk>, directory: u32, name: &[u8], mode: u16) -> u32 {
    let made = now(volume.create(directory, name, &new(mode), None)).unwrap().inode;
    assert_eq!(inode(volume, made.number), made);
    made.number
}

#[test]
fn many_names_in_one_directory() {
    let mut image = empty(24 << 10, &["-b", "1024", "-N", "64"]);
    debugfs(&mut image, true, "ssv def_hash_version tea");
    let volume = writable(image);
    let directory = make(&volume, ROOT, b"many", DIRECTORY);
    // Grows at the same time, so that both lie in pieces.
    let other = make(&volume, ROOT, b"other", DIRECTORY);
    let file = make(&volume, ROOT, b"file", FILE);
    let name = |number: u32| format!("{number:0>width$}", width = 60 + number as usize % 80).into_bytes();
    for number in 0..20_000 {
        now(volume.add_link(directory, &name(number), file, time(0))).unwrap();
        if number % 4 == 0 {
            now(volume.add_link(other, &name(number), file, time(0))).unwrap();
        }
    }
    let mut bytes = bytes_of(&volume);
    check(&bytes);
    let dump = debugfs(&mut bytes, false, "htree_dump /many");
    assert!(dump.contains("Indirect levels: 1"), "{}", &dump[..400]);
    let many = inode(&volume, directory);
    for number in 0..20_000 {
        assert_eq!(now(volume.lookup(&many, &name(number))).unwrap().map(|entry| entry.inode), Some(file));
    }
    assert_eq!(now(volume.lookup(&many, b"none")).unwrap(), None);
    assert_eq!(names(&volume, directory).unwrap().len(), 20_000);
    for number in (0..20_000).rev() {
        now(volume.unlink(directory, &name(number), file, time(1))).unwrap();
    }
    assert_eq!(inode(&volume, file).links, 5001);
    assert_eq!(names(&volume, other).unwrap().len(), 5000);
    now(volume.remove_directory(ROOT, b"many", directory, time(2))).unwrap();
    release(&volume, directory).unwrap();
    check(&bytes_of(&volume));
}

#[test]
fn an_index_that_is_full_takes_no_more() {
    let volume = writable(empty(8 << 10, &["-b", "1024", "-N", "64", "-O", "^metadata_csum"]));
    let directory = make(&volume, ROOT, b"full", DIRECTORY);
    let file = make(&volume, ROOT, b"file", FILE);
    let name = |number: u32| format!("{number:0>200}").into_bytes();
    let mut count = 0;
    while inode(&volume, directory).size < 200 << 10 {
        now(volume.add_link(directory, &name(count), file, time(0))).unwrap();
        count += 1;
    }
    let mut image = bytes_of(&volume);
    let root = now(volume.map(&inode(&volume, directory), 0)).unwrap().place.unwrap() as usize * 1024;
    assert_eq!(image[root + 30], 1);
    // As if the root led to as many nodes as it can; the last ones have no names.
    let here = image[root + 34] as usize;
    let last: [u8; 4] = *image[root + 32 + 8 * (here - 1) + 4..].first_chunk().unwrap();
    for index in here..124 {
        image[root + 32 + 8 * index..][..4].copy_from_slice(&0xffff_fff1u32.to_le_bytes());
        image[root + 32 + 8 * index + 4..][..4].copy_from_slice(&last);
    }
    image[root + 34] = 124;
    let volume = writable(image);
    let full = loop {
        match now(volume.add_link(directory, &name(count), file, time(0))) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::NoSpace);
    let directory = inode(&volume, directory);
    assert!((0..count).all(|number| now(volume.lookup(&directory, &name(number))).unwrap().is_some()));
    assert!(now(volume.lookup(&directory, &name(count))).unwrap().is_none());
}

/// They were looked for by trying: with [`prefix`](same_hash) before them all have the same legacy hash.
const SAME_HASH: &str =
    "THTsThH JKhW6e7 iSekIf8 WhJCk15 sQ6Zg5H YdTQeeg 9lCnPIS Reqke1Y yzK7clH pbeMZld raX66A1 DZoQjFb \
    OHehbaN E8XDSWO bjvoOBi kfcPgQG j6CqVjN HCtWAxD jXc6UAc rI4Dugn OFwuBtJ aMOfhLO XPXfzNA CXilh5Q NywIM0X FGhP8N1 \
    r9TVvE5 8NmvaPY tJIvaSj rjoDI1r X12Eo79 EVHAqAy rCMChFT v4I5VhH ukBGxBJ PcQTols o2k4rTZ iEjSnMW U89pusf x15DfjE \
    WulQHlz rbetqLB tpcXyXJ qPbq5hC ULqc299 Kw7TFbQ TueB099 9SMH3rV";

fn same_hash() -> Vec<Vec<u8>> {
    let name = |end| format!("a rather long name whose legacy hash is that of others {end}").into_bytes();
    SAME_HASH.split_whitespace().map(name).collect()
}

#[test]
fn names_with_the_same_hash_fill_more_than_a_block() {
    let mut image = empty(4 << 10, &["-b", "1024", "-N", "64"]);
    debugfs(&mut image, true, "ssv def_hash_version legacy");
    let volume = writable(image);
    let directory = make(&volume, ROOT, b"same", DIRECTORY);
    let file = make(&volume, ROOT, b"file", FILE);
    let same = same_hash();
    let mut random = Random(1);
    let mut expected = BTreeSet::new();
    for name in same.iter().cloned().chain((0..100).map(|_| random.name())) {
        if expected.insert(name.clone()) {
            now(volume.add_link(directory, &name, file, time(0))).unwrap();
        }
    }
    let mut absent = same[0].clone();
    for round in 0..2 {
        assert!(names(&volume, directory).unwrap().into_keys().eq(expected.iter().cloned()));
        let listed = in_pieces(&volume, directory, &mut Random(round), |_| ());
        assert!(listed.len() == expected.len() && listed.into_iter().collect::<BTreeSet<_>>() == expected);
        let it = inode(&volume, directory);
        for name in &expected {
            assert!(now(volume.lookup(&it, name)).unwrap().is_some());
        }
        assert_eq!(now(volume.lookup(&it, &absent)).unwrap().is_none(), round > 0);
        check(&bytes_of(&volume));
        for name in same.iter().step_by(3).filter(|_| round == 0) {
            now(volume.unlink(directory, name, file, time(0))).unwrap();
            expected.remove(name);
            absent = name.clone();
        }
    }
}

#[test]
fn names_with_the_same_position_are_told_apart() {
    let entry = Entry { inode: 1, kind: 8, next: 0, name: Vec::new(), block: 0 };
    let positions = [0u64, 0x5000, 0x5000, 0x5000, 0x6000, 0x6000];
    let all = || {
        let named = positions.iter().zip(b'a'..).map(|(position, name)| ((*position, vec![name]), entry.clone()));
        named.collect::<BTreeMap<_, _>>()
    };
    let (mut found, mut from) = (Vec::new(), 0);
    // One at a time; what the file system holds begins with the first name of the hash.
    loop {
        let held = all().into_iter().filter(|((position, _), _)| *position >= from & !0xfff).collect();
        let Some(entry) = in_order(held, from).into_iter().next() else { break };
        assert!(entry.next > from);
        from = entry.next;
        found.extend(entry.name);
    }
    assert_eq!(found, b"abcdef");
    // More than the position can tell apart are at least listed together.
    let many = (0..5000u32).map(|name| ((0x5000, name.to_be_bytes().to_vec()), entry.clone())).collect();
    assert_eq!(in_order(many, 0x5000).len(), 5000);
}

/// A listing by one whose buffer takes few names at a time; others do something in between.
fn in_pieces(
    volume: &Volume<Disk>,
    directory: u32,
    random: &mut Random,
    mut between: impl FnMut(&mut Random),
) -> Vec<Vec<u8>> {
    let (mut found, mut from) = (Vec::new(), 0);
    // As a file system does that looks at the inode anew for each.
    while let Some(entries) = now(volume.list(&inode(volume, directory), from)).unwrap() {
        for entry in entries.into_iter().take(1 + random.below(12)) {
            assert!(entry.next > from);
            from = entry.next;
            found.push(entry.name);
        }
        between(random);
    }
    found
}

#[test]
fn a_listing_has_once_what_is_there_all_the_time() {
    for (round, options) in [&[][..], &[], &[], &[], &["-O", "^dir_index"]].into_iter().enumerate() {
        let volume = writable(empty(4 << 10, &[&["-b", "1024", "-N", "64"], options].concat()));
        let directory = make(&volume, ROOT, b"busy", DIRECTORY);
        let file = make(&volume, ROOT, b"file", FILE);
        let mut random = Random(round as u64);
        let mut stay = BTreeSet::new();
        // The first time the index is made while the listing goes on.
        while stay.len() < [12, 40, 200, 400, 200][round] {
            let name = format!("stays {}", random.below(1 << 30)).into_bytes();
            if stay.insert(name.clone()) {
                now(volume.add_link(directory, &name, file, time(0))).unwrap();
            }
        }
        let mut others = Vec::new();
        let found = in_pieces(&volume, directory, &mut random, |random| {
            for _ in 0..random.below(12) {
                let name = format!("comes and goes {}", random.below(1 << 30)).into_bytes();
                now(volume.add_link(directory, &name, file, time(0))).unwrap();
                others.push(name);
            }
            for _ in 0..random.below(10).min(others.len()) {
                let name = others.swap_remove(random.below(others.len()));
                now(volume.unlink(directory, &name, file, time(0))).unwrap();
            }
        });
        let found: Vec<_> = found.into_iter().filter(|name| name.starts_with(b"stays")).collect();
        assert_eq!(found.len(), stay.len(), "{round}");
        assert!(found.into_iter().collect::<BTreeSet<_>>() == stay);
        check(&bytes_of(&volume));
    }
}

/// An image with a directory of that many names, for which e2fsck has made an index.
fn indexed_by_e2fsck(count: usize, options: &[&str], setting: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("many")).unwrap();
    fs::write(directory.path().join("many/0"), "").unwrap();
    for number in 1..count {
        let name = format!("many/{number} {}", "ü".repeat(number % 50));
        fs::hard_link(directory.path().join("many/0"), directory.path().join(name)).unwrap();
    }
    for number in 0..60 {
        fs::create_dir(directory.path().join(format!("{number} is a directory"))).unwrap();
    }
    let mut image = made(directory.path(), 4 << 10, &[&["-b", "1024"], options].concat());
    debugfs(&mut image, true, setting);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &image).unwrap();
    let output = Command::new("/usr/sbin/e2fsck").arg("-fyD").arg(file.path()).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 4), "{}", String::from_utf8_lossy(&output.stdout));
    fs::read(file.path()).unwrap()
}

#[test]
fn indexes_of_e2fsck_are_read_and_changed() {
    for (options, setting) in [
        (&[][..], ""),
        (&["-O", "^metadata_csum"], "ssv def_hash_version tea"),
        (&[], "ssv def_hash_version legacy"),
        (&[], "ssv def_hash_version tea\nssv flags 2"),
    ] {
        let count = 3000;
        let mut image = indexed_by_e2fsck(count, options, setting);
        assert!(debugfs(&mut image, false, "htree_dump /many").contains("Root node dump"));
        let volume = writable(image);
        let many = now(volume.lookup(&inode(&volume, ROOT), b"many")).unwrap().unwrap().inode;
        let found = names(&volume, many).unwrap();
        assert_eq!(found.len(), count);
        let directory = inode(&volume, many);
        for (name, number) in &found {
            assert_eq!(now(volume.lookup(&directory, name)).unwrap().map(|entry| entry.inode), Some(*number));
        }
        let file = found[&b"0"[..]];
        for number in 0..300 {
            let name = format!("new {number}").into_bytes();
            now(volume.add_link(many, &name, file, time(0))).unwrap();
        }
        for name in found.keys().step_by(7) {
            now(volume.unlink(many, name, file, time(0))).unwrap();
        }
        assert_eq!(names(&volume, many).unwrap().len(), count + 300 - count.div_ceil(7));
        check(&bytes_of(&volume));
    }
}

#[test]
fn counts_of_links_have_an_end() {
    for (options, answer) in [(&[][..], Ok(1)), (&["-O", "^dir_nlink"], Err(Error::TooManyLinks))] {
        let volume = writable(empty(2 << 10, &[&["-b", "1024"], options].concat()));
        let file = make(&volume, ROOT, b"file", FILE);
        let set = |number, links| {
            let change = |handle: &mut Handle<'_>| {
                let mut inode = handle.any_inode(number)?;
                inode.links = links;
                handle.put_inode(&inode)
            };
            now(volume.run(change)).unwrap();
        };
        // One without an index can't have so many.
        for number in 0..100 {
            now(volume.add_link(ROOT, format!("number {number}").as_bytes(), file, time(0))).unwrap();
        }
        set(file, 65000);
        assert_eq!(now(volume.add_link(ROOT, b"more", file, time(0))).err(), Some(Error::TooManyLinks));
        set(ROOT, 65000);
        let made = now(volume.create(ROOT, b"directory", &new(DIRECTORY), None));
        assert_eq!(made.map(|changed| changed.directory.links), answer);
        if answer.is_ok() {
            now(volume.create(ROOT, b"another", &new(DIRECTORY), None)).unwrap();
            let number = now(volume.lookup(&inode(&volume, ROOT), b"another")).unwrap().unwrap().inode;
            let changed = now(volume.remove_directory(ROOT, b"another", number, time(0))).unwrap();
            assert_eq!(changed.directory.links, 1);
        }
    }
}

#[test]
fn a_directory_and_a_file_replace_each_other() {
    let volume = writable(empty(2 << 10, &["-b", "1024"]));
    let above = make(&volume, ROOT, b"above", DIRECTORY);
    let [one, two] = [(ROOT, &b"one"[..]), (above, b"two")].map(|(to, name)| make(&volume, to, name, DIRECTORY));
    let [first, second] = [(above, &b"first"[..]), (ROOT, b"second")].map(|(to, name)| make(&volume, to, name, FILE));
    // Who may do this is the caller's business; the numbers of links are right in any case.
    let changed = now(volume.rename((ROOT, b"one"), one, (above, b"first"), Some(first), time(1))).unwrap();
    assert_eq!(changed.other.map(|inode| (inode.links, inode.changed)), Some((0, time(1))));
    assert_eq!((changed.directory.modified, changed.other_directory.unwrap().modified), (time(1), time(1)));
    assert_eq!((changed.inode.changed, changed.inode.modified), (time(1), time(0)));
    now(volume.rename((ROOT, b"second"), second, (above, b"two"), Some(two), time(2))).unwrap();
    let not_empty = now(volume.rename((above, b"two"), second, (ROOT, b"above"), Some(above), time(3)));
    assert_eq!(not_empty.err(), Some(Error::NotEmpty));
    [first, two].into_iter().for_each(|number| release(&volume, number).unwrap());
    check(&bytes_of(&volume));
}

#[test]
fn inodes_without_a_name_get_one() {
    let volume = writable(empty(2 << 10, &["-b", "1024"]));
    let unnamed: Vec<_> = (0..3).map(|_| now(volume.create_unnamed(ROOT, &new(FILE))).unwrap()).collect();
    assert!(unnamed.iter().all(|inode| inode.links == 0));
    assert_eq!(now(volume.inode(unnamed[1].number)).unwrap().map(|inode| inode.number), None);
    let changed = now(volume.add_link(ROOT, b"named", unnamed[1].number, time(9))).unwrap();
    assert_eq!((changed.inode.links, changed.inode.deleted, changed.inode.changed), (1, 0, time(9)));
    release(&volume, unnamed[2].number).unwrap();
    release(&volume, unnamed[0].number).unwrap();
    check(&bytes_of(&volume));
    let too_long = vec![b'x'; 1024];
    let answer = now(volume.create(ROOT, b"link", &new(SYMLINK), Some(&too_long)));
    assert_eq!(answer.err(), Some(Error::TooLarge));
    let changed = now(volume.create(ROOT, b"link", &new(SYMLINK), Some(&too_long[1..]))).unwrap();
    assert_eq!(now(volume.link_target(&changed.inode)).unwrap().len(), 1023);
    check(&bytes_of(&volume));
}

#[test]
fn a_hole_in_a_directory_is_filled() {
    let volume = writable(empty(2 << 10, &["-b", "1024", "-O", "^dir_index"]));
    let directory = make(&volume, ROOT, b"directory", DIRECTORY);
    let file = make(&volume, ROOT, b"file", FILE);
    let change = |handle: &mut Handle<'_>| {
        let mut inode = handle.any_inode(directory)?;
        inode.size = 3 << 10;
        handle.put_inode(&inode)
    };
    now(volume.run(change)).unwrap();
    for number in 0..90 {
        let name = format!("a name of some length, number {number}");
        now(volume.add_link(directory, name.as_bytes(), file, time(0))).unwrap();
    }
    assert_eq!(names(&volume, directory).unwrap().len(), 90);
    assert!(inode(&volume, directory).size > 3 << 10);
    check(&bytes_of(&volume));
}

/// Without sums, so that damage gets further. Nothing may panic, and everything ends.
#[test]
fn damaged_directories_do_no_harm() {
    let image = indexed_by_e2fsck(700, &["-O", "^metadata_csum,^has_journal", "-N", "128"], "");
    let volume = open(image.clone()).unwrap();
    let many = now(volume.lookup(&inode(&volume, ROOT), b"many")).unwrap().unwrap().inode;
    // The blocks of the two directories with an index: bytes of the image.
    let mut blocks = Vec::new();
    for number in [ROOT, many] {
        let directory = inode(&volume, number);
        let mut block = 0;
        while u64::from(block) < directory.size / 1024 {
            let run = now(volume.map(&directory, block)).unwrap();
            blocks.extend((0..u64::from(run.blocks)).map(|number| (run.place.unwrap() + number) as usize * 1024));
            block += run.blocks;
        }
    }
    let mut random = Random(3);
    let (mut failed, mut passed) = (0, 0);
    for _ in 0..250 {
        let mut bytes = image.clone();
        for _ in 0..1 + random.below(6) {
            // Roots and the beginnings of blocks have what is interesting.
            let block = if random.below(3) == 0 { blocks[0] } else { blocks[random.below(blocks.len())] };
            let at = block + [random.below(1024), random.below(64), 24 + random.below(40)][random.below(3)];
            bytes[at] = [0, 0xff, 1, 0x80, random.below(256) as u8][random.below(5)];
        }
        let volume = writable(bytes);
        for step in 0..6 {
            let name = random.name();
            let directory = if step % 2 == 0 { many } else { ROOT };
            let answers = [
                tolerant_list(&volume, directory).map(|_| ()),
                now(volume.create(directory, &name, &new([FILE, DIRECTORY][random.below(2)]), None)).map(|_| ()),
                tolerant_lookup(&volume, directory, &name).and_then(|number| {
                    now(volume.rename((directory, &name), number, (ROOT, b"renamed"), None, time(0)))?;
                    now(volume.remove_directory(ROOT, b"renamed", number, time(0))).map(|_| ())
                }),
                tolerant_lookup(&volume, many, b"0")
                    .and_then(|number| now(volume.unlink(many, b"0", number, time(0))).map(|_| ())),
            ];
            failed += answers.iter().filter(|answer| answer.is_err()).count();
            passed += answers.iter().filter(|answer| answer.is_ok()).count();
        }
    }
    assert!(failed > 0 && passed > 0);
}

fn tolerant_list(volume: &Volume<Disk>, directory: u32) -> Result<usize> {
    let directory = now(volume.inode(directory))?.ok_or(Error::Corrupt(""))?;
    let (mut found, mut from) = (0, 0);
    while let Some(entries) = now(volume.list(&directory, from))? {
        assert!(!entries.is_empty() && found < 1 << 20);
        for entry in entries {
            assert!(entry.next > from);
            (found, from) = (found + 1, entry.next);
        }
    }
    Ok(found)
}

fn tolerant_lookup(volume: &Volume<Disk>, directory: u32, name: &[u8]) -> Result<u32> {
    let directory = now(volume.inode(directory))?.ok_or(Error::Corrupt(""))?;
    now(volume.lookup(&directory, name))?.map(|entry| entry.inode).ok_or(Error::Corrupt("it is not there"))
}

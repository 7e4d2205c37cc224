//! Extended attributes, written here and read by debugfs, and the other way round.

use super::*;
use std::fmt::Write;

const NOW: Time = Time { seconds: 1_700_000_000, nanoseconds: 5 };
/// What distinguishes the places of attributes: whether an inode has room for any, and how much a block has; and sums.
const KINDS: [&[&str]; 5] = [
    &["-b", "1024", "-I", "256"],
    &["-b", "4096", "-I", "256"],
    &["-b", "1024", "-I", "128"],
    &["-b", "4096", "-I", "128"],
    &["-b", "1024", "-I", "256", "-O", "^metadata_csum,^64bit"],
];

fn with_files(names: &[&str], options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    names.iter().for_each(|name| fs::write(directory.path().join(name), name).unwrap());
    made(directory.path(), 8 << 10, options)
}

fn writable(bytes: Vec<u8>) -> Volume<Disk> {
    let volume = open(bytes).unwrap();
    volume.open_without_journal();
    volume
}

fn bytes(volume: Volume<Disk>) -> Vec<u8> {
    now(volume.write_home()).unwrap();
    volume.device().bytes.lock().unwrap().clone()
}

fn file(volume: &Volume<Disk>, name: &str) -> Inode {
    let root = now(volume.root()).unwrap();
    let entry = now(volume.lookup(&root, name.as_bytes())).unwrap().unwrap();
    now(volume.inode(entry.inode)).unwrap().unwrap()
}

fn set(volume: &Volume<Disk>, name: &str, attribute: &str, value: Option<&[u8]>) -> Result<bool> {
    let number = file(volume, name).number;
    now(volume.set_attribute(number, attribute.as_bytes(), value, SetWhen::Always, NOW, |_| {}))
}

fn get(volume: &Volume<Disk>, name: &str, attribute: &str) -> Option<Vec<u8>> {
    now(volume.attribute(file(volume, name).number, attribute.as_bytes())).unwrap()
}

fn names(volume: &Volume<Disk>, name: &str) -> Vec<String> {
    let names = now(volume.attributes(file(volume, name).number)).unwrap();
    let mut names: Vec<String> = names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    names.sort();
    names
}

/// The value that debugfs finds.
fn their_value(image: &mut Vec<u8>, name: &str, attribute: &str) -> Vec<u8> {
    let value = tempfile::NamedTempFile::new().unwrap();
    debugfs(image, false, &format!("ea_get -r -f {} {name} {attribute}\n", value.path().display()));
    fs::read(value.path()).unwrap()
}

#[test]
fn what_debugfs_sets_is_read() {
    for options in KINDS {
        let mut image = with_files(&["f"], options);
        let long = tempfile::NamedTempFile::new().unwrap();
        fs::write(long.path(), [b'x'; 600]).unwrap();
        let mut commands = String::new();
        for (name, value) in [("user.a", "1"), ("trusted.some-name", "four"), ("security.selinux", "of whom")] {
            writeln!(commands, "ea_set f {name} \"{value}\"").unwrap();
        }
        writeln!(commands, "ea_set -f {} f user.long", long.path().display()).unwrap();
        debugfs(&mut image, true, &commands);
        let volume = open(image).unwrap();
        assert_eq!(
            names(&volume, "f"),
            ["security.selinux", "trusted.some-name", "user.a", "user.long"],
            "{options:?}"
        );
        assert_eq!(get(&volume, "f", "user.a").unwrap(), b"1");
        assert_eq!(get(&volume, "f", "security.selinux").unwrap(), b"of whom");
        assert_eq!(get(&volume, "f", "user.long").unwrap(), [b'x'; 600]);
        assert_eq!(get(&volume, "f", "user.b"), None);
        let inode = file(&volume, "f");
        for unknown in ["user.", "other.x", "system.posix_acl_access2", "x", ""] {
            let refused = now(volume.attribute(inode.number, unknown.as_bytes()));
            assert_eq!(refused, Err(Error::Unsupported("an attribute's name")), "{unknown}");
        }
    }
}

#[test]
fn what_is_set_is_read_by_debugfs() {
    for options in KINDS {
        let mut image = with_files(&["f", "g"], options);
        debugfs(
            &mut image,
            true,
            "ea_set f user.theirs \"left alone\"\nea_set f user.replaced old\nea_set f user.removed old\n",
        );
        let volume = writable(image);
        let free = now(volume.run(|handle| Ok(handle.core().available()))).unwrap();
        assert!(set(&volume, "f", "user.replaced", Some(&[7; 300])).unwrap());
        assert!(set(&volume, "f", "user.removed", None).unwrap());
        assert!(!set(&volume, "f", "user.removed", None).unwrap(), "it is gone");
        assert!(set(&volume, "f", "trusted.short", Some(b"value")).unwrap());
        assert!(set(&volume, "f", "user.empty", Some(b"")).unwrap());
        assert!(set(&volume, "f", "security.z", Some(b"12345")).unwrap());
        assert!(set(&volume, "g", "user.only", Some(b"x")).unwrap());
        let inode = file(&volume, "f");
        assert_eq!(inode.changed.seconds, NOW.seconds);
        let mut image = bytes(volume);
        check(&image);
        let listed = debugfs(&mut image, false, "ea_list f\n");
        for name in ["user.theirs", "user.replaced", "trusted.short", "user.empty", "security.z"] {
            assert!(listed.contains(name), "{name} is not in {listed}, {options:?}");
        }
        assert!(!listed.contains("removed"));
        assert_eq!(their_value(&mut image, "f", "user.theirs"), b"left alone");
        assert_eq!(their_value(&mut image, "f", "user.replaced"), [7; 300]);
        assert_eq!(their_value(&mut image, "f", "trusted.short"), b"value");
        assert_eq!(their_value(&mut image, "f", "security.z"), b"12345");
        assert_eq!(their_value(&mut image, "g", "user.only"), b"x");

        // All of them gone: so is the block.
        let volume = writable(image);
        for name in names(&volume, "f") {
            assert!(set(&volume, "f", &name, None).unwrap());
        }
        assert!(set(&volume, "g", "user.only", None).unwrap());
        assert_eq!((names(&volume, "f").len(), file(&volume, "f").attributes), (0, 0));
        let left = now(volume.run(|handle| Ok(handle.core().available()))).unwrap();
        // debugfs may have needed a block for its own.
        assert!((free..=free + 1).contains(&left), "{free} {left}");
        check(&bytes(volume));
    }
}

#[test]
fn a_value_moves_between_inode_and_block() {
    let volume = writable(with_files(&["f"], &["-b", "1024", "-I", "256"]));
    set(&volume, "f", "user.a", Some(b"short")).unwrap();
    assert_eq!(file(&volume, "f").attributes, 0, "it fits into the inode");
    set(&volume, "f", "user.a", Some(&[1; 500])).unwrap();
    assert_ne!(file(&volume, "f").attributes, 0);
    set(&volume, "f", "user.b", Some(b"near")).unwrap();
    assert_eq!((get(&volume, "f", "user.a").unwrap().len(), get(&volume, "f", "user.b").unwrap().len()), (500, 4));
    check(&volume.device().bytes.lock().unwrap().clone());
    set(&volume, "f", "user.a", Some(b"again")).unwrap();
    let inode = file(&volume, "f");
    assert_eq!((inode.attributes, inode.sectors), (0, 2), "the block is free again");
    assert_eq!(get(&volume, "f", "user.a").unwrap(), b"again");
    check(&bytes(volume));
}

#[test]
fn there_is_room_for_so_much() {
    for options in KINDS {
        let volume = writable(with_files(&["f"], options));
        let block = volume.superblock().block_bytes as usize;
        assert_eq!(set(&volume, "f", "user.huge", Some(&vec![1; block])), Err(Error::NoSpace), "{options:?}");
        let mut count = 0;
        let full = loop {
            match set(&volume, "f", &format!("user.{count}"), Some(&[count as u8; 50])) {
                Ok(true) => count += 1,
                other => break other,
            }
        };
        assert_eq!(full, Err(Error::NoSpace));
        assert!(count >= (block - 32) / 80, "{count} {options:?}");
        assert_eq!(names(&volume, "f").len(), count);
        assert_eq!(get(&volume, "f", "user.1").unwrap(), [1; 50]);
        // The longest name.
        let (removed, long) = ("user.0", format!("user.{}", "n".repeat(250)));
        (0..5).for_each(|index| assert_eq!(set(&volume, "f", &format!("user.{index}"), None), Ok(true)));
        assert_eq!(get(&volume, "f", removed), None);
        assert!(set(&volume, "f", &long, Some(b"v")).unwrap());
        let mut image = bytes(volume);
        check(&image);
        assert_eq!(their_value(&mut image, "f", &long), b"v");
    }
}

#[test]
fn it_is_set_only_if_it_is_there_or_only_if_it_is_not() {
    let volume = writable(with_files(&["f"], &[]));
    let number = file(&volume, "f").number;
    let set =
        |value: &[u8], when| now(volume.set_attribute(number, b"user.a", Some(value), when, NOW, |_| {})).unwrap();
    assert!(!set(b"1", SetWhen::Present));
    assert!(set(b"2", SetWhen::Missing));
    assert!(!set(b"3", SetWhen::Missing));
    assert!(set(b"4", SetWhen::Present));
    assert_eq!(get(&volume, "f", "user.a").unwrap(), b"4");
}

/// As Linux shares blocks whose attributes are the same.
#[test]
fn a_shared_block_is_copied_before_a_change() {
    let volume = writable(with_files(&["a", "b", "c"], &["-b", "1024", "-I", "128"]));
    set(&volume, "a", "user.a", Some(b"of all")).unwrap();
    let shared = file(&volume, "a").attributes;
    for name in ["b", "c"] {
        let mut inode = file(&volume, name);
        inode.attributes = shared;
        inode.count_blocks(volume.superblock(), 1);
        now(volume.run(|handle| {
            let seed = handle.superblock().seed;
            let block = handle.edit(shared)?;
            block[4] += 1;
            crate::attributes::seal(block, seed, shared);
            handle.put_inode(&inode)
        }))
        .unwrap();
    }
    let image = bytes(volume);
    check(&image);
    let volume = writable(image);
    set(&volume, "b", "user.b", Some(b"of one")).unwrap();
    assert_ne!(file(&volume, "b").attributes, shared);
    assert_eq!((names(&volume, "a"), names(&volume, "b").len()), (vec!["user.a".into()], 2));
    // One whose file is deleted, one that loses its last attribute.
    let mut inode = file(&volume, "c");
    now(volume.run(|handle| {
        let mut changed = inode.clone();
        handle.free_attributes(&mut changed)?;
        handle.put_inode(&changed)
    }))
    .unwrap();
    inode = file(&volume, "c");
    assert_eq!((inode.attributes, names(&volume, "c").len()), (0, 0));
    assert_eq!(get(&volume, "a", "user.a").unwrap(), b"of all");
    let image = bytes(volume);
    check(&image);
    let volume = writable(image);
    set(&volume, "a", "user.a", None).unwrap();
    check(&bytes(volume));
}

/// Entries of an ACL as system calls have them: tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

#[test]
fn acls_have_another_form_on_the_disk() {
    const NONE: u32 = u32::MAX;
    let entries = [(1, 6, NONE), (2, 4, 1000), (2, 0, 1001), (4, 4, NONE), (8, 6, 50), (16, 6, NONE), (32, 0, NONE)];
    let (all, few) = (acl(&entries), acl(&[(1, 7, NONE), (4, 5, NONE), (32, 5, NONE)]));
    for options in KINDS {
        let volume = writable(with_files(&["f"], options));
        set(&volume, "f", "system.posix_acl_access", Some(&all)).unwrap();
        set(&volume, "f", "system.posix_acl_default", Some(&few)).unwrap();
        let mut image = bytes(volume);
        check(&image);
        let theirs = their_value(&mut image, "f", "system.posix_acl_access");
        // A version, four entries without an id and three with one.
        assert_eq!((theirs.len(), &theirs[..8]), (4 + 4 * 4 + 3 * 8, &[1, 0, 0, 0, 1, 0, 6, 0][..]));
        let volume = open(image).unwrap();
        assert_eq!(get(&volume, "f", "system.posix_acl_access").unwrap(), all);
        assert_eq!(get(&volume, "f", "system.posix_acl_default").unwrap(), few);
    }
}

/// Without sums, so that damage gets further.
#[test]
fn damaged_attributes_are_found_or_do_no_harm() {
    for options in [["-b", "1024", "-I", "256"], ["-b", "4096", "-I", "128"]] {
        let options = [&options[..], &["-O", "^metadata_csum,^has_journal"]].concat();
        let volume = writable(with_files(&["f"], &options));
        for index in 0..9 {
            set(&volume, "f", &format!("user.{index}"), Some(&[index; 40])).unwrap();
        }
        let (inode, block) = (file(&volume, "f"), volume.superblock().block_bytes as usize);
        let group = now(volume.run(|handle| handle.group(0))).unwrap();
        let in_table = (inode.number as usize - 1) * volume.superblock().inode_bytes;
        let places = [group.inode_table as usize * block + in_table + 128, inode.attributes as usize * block];
        let image = bytes(volume);
        let mut state = 99u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let mut refused = 0;
        for _ in 0..3000 {
            let mut damaged = image.clone();
            for _ in 0..1 + random(4) {
                damaged[places[random(2)] + random(128)] = [0, 0xff, 0x80, random(256) as u8][random(4)];
            }
            let volume = writable(damaged);
            let Ok(Some(inode)) = now(volume.inode(inode.number)) else { continue };
            refused += u32::from(now(volume.attributes(inode.number)).is_err());
            let _ = now(volume.set_attribute(inode.number, b"user.3", Some(&[1; 60]), SetWhen::Always, NOW, |_| {}));
            let _ = now(volume.set_attribute(inode.number, b"user.4", None, SetWhen::Always, NOW, |_| {}));
        }
        assert!(refused > 100);
    }
}

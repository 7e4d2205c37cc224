//! File systems that Debian's mkfs.ext4 has made of a directory, read and compared with that; and damaged ones.

use super::*;
use alloc::collections::BTreeMap;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

fn read(volume: &Volume<Disk>, inode: &Inode) -> Result<Vec<u8>> {
    let block = u64::from(volume.superblock().block_bytes);
    let mut bytes = vec![0; inode.size as usize];
    let mut at = 0;
    while at < inode.size.div_ceil(block) {
        let run = now(volume.map(inode, at as u32))?;
        assert_eq!((u64::from(run.block), run.blocks > 0), (at, true));
        for number in 0..u64::from(run.blocks).min(inode.size.div_ceil(block) - at) {
            if let Some(place) = run.place {
                let data = now(volume.device().read(place + number, 1))?;
                let from = ((at + number) * block) as usize;
                let end = (from + data.len()).min(bytes.len());
                bytes[from..end].copy_from_slice(&data[..end - from]);
            }
        }
        at += u64::from(run.blocks);
    }
    Ok(bytes)
}

/// All that is in a directory and below, by path; gives up after so many names.
fn walk(volume: &Volume<Disk>, most: usize) -> Result<BTreeMap<String, Inode>> {
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), now(volume.root())?)];
    while let Some((path, directory)) = left.pop() {
        let mut from = 0;
        while let Some(entries) = now(volume.list(&directory, from))? {
            for entry in entries {
                assert!(entry.next > from, "positions go on");
                from = entry.next;
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let Some(inode) = now(volume.inode(entry.inode))? else {
                    return Err(Error::Corrupt("an entry without an inode"));
                };
                if name == "." || name == ".." || found.len() >= most {
                    continue;
                }
                let path = format!("{path}/{name}");
                if inode.file_type()? == FileType::Directory {
                    left.push((path.clone(), inode.clone()));
                }
                found.insert(path, inode);
            }
        }
    }
    Ok(found)
}

fn sample() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("empty"), "").unwrap();
    fs::write(path("short"), "hello\n").unwrap();
    fs::write(path("long"), (0..300_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    // Many extents: a hole after every piece.
    let sparse = fs::File::create(path("sparse")).unwrap();
    for piece in 0..400u64 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[piece as u8; 4096], piece * 16384).unwrap();
    }
    fs::create_dir_all(path("a/b/c")).unwrap();
    fs::create_dir(path("many")).unwrap();
    for number in 0..600 {
        fs::write(path(&format!("many/a file with a rather long name, number {number}")), format!("{number}")).unwrap();
    }
    std::os::unix::fs::symlink("short", path("link")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(100), path("a/long link")).unwrap();
    fs::set_permissions(path("short"), fs::Permissions::from_mode(0o4751)).unwrap();
    directory
}

#[test]
fn what_mkfs_has_made_is_read_as_it_was() {
    let directory = sample();
    for (kib, options) in [
        (16 << 10, &["-b", "1024"][..]),
        (32 << 10, &["-b", "4096"]),
        (32 << 10, &["-b", "2048", "-I", "128", "-O", "^metadata_csum,^64bit"]),
    ] {
        let volume = open(made(directory.path(), kib, options)).unwrap();
        let found = walk(&volume, usize::MAX).unwrap();
        assert_eq!(found.len(), 600 + 11, "{options:?}");
        for (path, inode) in &found {
            if path == "/lost+found" {
                continue;
            }
            let there = directory.path().join(&path[1..]);
            let about = fs::symlink_metadata(&there).unwrap();
            let same = (u32::from(inode.mode), inode.uid, inode.gid, inode.modified.seconds);
            assert_eq!(same, (about.mode(), about.uid(), about.gid(), about.mtime()), "{path}");
            match inode.file_type().unwrap() {
                FileType::Regular => assert_eq!(read(&volume, inode).unwrap(), fs::read(&there).unwrap(), "{path}"),
                FileType::Symlink => {
                    let target = fs::read_link(&there).unwrap();
                    assert_eq!(now(volume.link_target(inode)).unwrap(), target.as_os_str().as_encoded_bytes());
                }
                _ => {}
            }
        }
        let many = &found["/many"];
        let entry = now(volume.lookup(many, b"a file with a rather long name, number 599")).unwrap().unwrap();
        assert_eq!((entry.inode, entry.kind), (found["/many/a file with a rather long name, number 599"].number, 8));
        assert_eq!(now(volume.lookup(many, b"a file")).unwrap(), None);
    }
}

#[test]
fn other_file_systems_and_features_are_refused() {
    assert_eq!(open(vec![0; 1 << 16]).err(), Some(Error::Unsupported("no ext4")));
    let directory = tempfile::tempdir().unwrap();
    let inline = made(directory.path(), 16 << 10, &["-O", "inline_data"]);
    assert_eq!(open(inline).err(), Some(Error::Unsupported("a feature that is not known")));
    let mut damaged = made(directory.path(), 16 << 10, &[]);
    damaged[1024 + 0x50] ^= 1;
    assert_eq!(open(damaged).err(), Some(Error::Corrupt("the superblock's sum")));
}

/// Without sums, so that damage gets further. Nothing may panic, and everything ends.
#[test]
fn damage_is_found_or_does_no_harm() {
    let directory = sample();
    fs::remove_file(directory.path().join("long")).unwrap();
    let image = made(directory.path(), 8 << 10, &["-b", "1024", "-O", "^metadata_csum,^has_journal"]);
    let metadata: Vec<usize> = (0..image.len()).filter(|at| image[*at] != 0).collect();
    let mut state = 12345u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    for _ in 0..400 {
        let mut bytes = image.clone();
        for _ in 0..1 + random(20) {
            // The first groups have what is interesting.
            let at = metadata[random(metadata.len().min(200_000))];
            bytes[at] = [0, 0xff, 0x80, random(256) as u8][random(4)];
        }
        let Ok(volume) = open(bytes) else {
            refused += 1;
            continue;
        };
        match walk(&volume, 2000) {
            Err(_) => refused += 1,
            Ok(found) => {
                for inode in found.values().filter(|inode| inode.size < 1 << 22) {
                    let _ = now(volume.link_target(inode));
                    let _ = read_bounded(&volume, inode);
                }
            }
        }
    }
    assert!(refused > 0);
}

fn read_bounded(volume: &Volume<Disk>, inode: &Inode) -> Result<()> {
    let mut at = 0u64;
    while at < inode.size.div_ceil(u64::from(volume.superblock().block_bytes)) {
        let run = now(volume.map(inode, at as u32))?;
        assert!(run.blocks > 0);
        at += u64::from(run.blocks);
    }
    Ok(())
}

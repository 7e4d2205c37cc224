//! Random operations on a tree of files, compared with a model of it.

use super::{names::*, *};
use alloc::collections::BTreeMap;

/// The superblock asks for SipHash.
const UNKNOWN_HASH: &str = "#";

/// What a tree of files should be.
#[derive(Default)]
struct Model {
    /// The names of each directory, and its parent.
    directories: BTreeMap<u32, (BTreeMap<Vec<u8>, u32>, u32)>,
    links: BTreeMap<u32, u16>,
}

impl Model {
    fn is_below(&self, directory: u32, above: u32) -> bool {
        let mut at = directory;
        while at != above && at != ROOT {
            at = self.directories[&at].1;
        }
        at == above
    }

    fn any_directory(&self, random: &mut Random) -> u32 {
        // The first more often, so that it becomes large.
        let number = if random.below(2) == 0 { 0 } else { random.below(self.directories.len()) };
        *self.directories.keys().nth(number).unwrap()
    }

    /// A name of a directory, if it has one.
    fn any_name(&self, random: &mut Random) -> Option<(u32, Vec<u8>, u32)> {
        let directory = self.any_directory(random);
        let (names, _) = &self.directories[&directory];
        let (name, inode) = names.iter().nth(random.below(names.len().max(1)))?;
        Some((directory, name.clone(), *inode))
    }

    fn names(&mut self, directory: u32) -> &mut BTreeMap<Vec<u8>, u32> {
        &mut self.directories.get_mut(&directory).unwrap().0
    }

    /// An inode has lost a name: true if it is to go.
    fn lose(&mut self, inode: u32) -> bool {
        if self.directories.remove(&inode).is_some() {
            return true;
        }
        let links = self.links.get_mut(&inode).unwrap();
        *links -= 1;
        *links == 0
    }

    fn compare(&self, volume: &Volume<Disk>) {
        for (number, (expected, parent)) in &self.directories {
            assert_eq!(&names(volume, *number).unwrap(), expected);
            let directory = inode(volume, *number);
            for (name, inode) in expected {
                assert_eq!(now(volume.lookup(&directory, name)).unwrap().unwrap().inode, *inode);
            }
            assert_eq!(now(volume.lookup(&directory, b"..")).unwrap().unwrap().inode, *parent);
            assert_eq!(now(volume.lookup(&directory, b".")).unwrap().unwrap().inode, *number);
            let below = expected.values().filter(|inode| self.directories.contains_key(inode)).count();
            assert_eq!(usize::from(directory.links), below + 2);
            assert_eq!(now(volume.is_empty_directory(&directory)).unwrap(), expected.is_empty());
        }
        for (number, links) in &self.links {
            if *links > 0 {
                assert_eq!(inode(volume, *number).links, *links);
            }
        }
    }

    /// One random operation.
    fn step(&mut self, volume: &Volume<Disk>, random: &mut Random, time: Time) {
        let kind = random.below(20);
        let (to, name) = (self.any_directory(random), random.name());
        let replaced = self.directories[&to].0.get(&name).copied();
        match kind {
            0..7 if replaced.is_none() => {
                let mode = [FILE, FILE, DIRECTORY, SYMLINK, 0o010600, 0o060600][random.below(6)];
                let target = (mode == SYMLINK).then(|| vec![b'x'; 1 + random.below(200)]);
                let changed = now(volume.create(to, &name, &new(mode), target.as_deref())).unwrap();
                let number = changed.inode.number;
                if let Some(target) = target {
                    assert_eq!(now(volume.link_target(&changed.inode)).unwrap(), target);
                }
                match mode == DIRECTORY {
                    true => drop(self.directories.insert(number, (BTreeMap::new(), to))),
                    false => drop(self.links.insert(number, 1)),
                }
                self.names(to).insert(name, number);
            }
            7..11 if replaced.is_none() => {
                let Some((.., number)) = self.any_name(random) else { return };
                if !self.directories.contains_key(&number) {
                    let changed = now(volume.add_link(to, &name, number, time)).unwrap();
                    assert_eq!((changed.inode.changed, changed.directory.modified), (time, time));
                    *self.links.get_mut(&number).unwrap() += 1;
                    self.names(to).insert(name, number);
                }
            }
            11..14 => {
                let Some((from, name, number)) = self.any_name(random) else { return };
                let gone = match self.directories.get(&number) {
                    Some((below, _)) if !below.is_empty() => {
                        let error = now(volume.remove_directory(from, &name, number, time)).unwrap_err();
                        assert_eq!(error, Error::NotEmpty);
                        return;
                    }
                    Some(_) => now(volume.remove_directory(from, &name, number, time)),
                    None => now(volume.unlink(from, &name, number, time)),
                };
                gone.unwrap();
                self.names(from).remove(&name);
                if self.lose(number) {
                    release(volume, number).unwrap();
                }
            }
            14..18 => {
                let Some((from, old, number)) = self.any_name(random) else { return };
                // Half of the time over a name that is there.
                let other = self.any_name(random).filter(|_| kind < 16);
                let (to, name, replaced) = other.map_or((to, name, replaced), |(to, name, it)| (to, name, Some(it)));
                let is_directory = self.directories.contains_key(&number);
                let is_empty = replaced.is_none_or(|it| match self.directories.get(&it) {
                    Some((below, _)) => is_directory && below.is_empty(),
                    None => !is_directory,
                });
                if !is_empty || replaced == Some(number) || is_directory && self.is_below(to, number) {
                    return;
                }
                now(volume.rename((from, &old), number, (to, &name), replaced, time)).unwrap();
                self.names(from).remove(&old);
                self.names(to).insert(name, number);
                if let Some((_, parent)) = self.directories.get_mut(&number) {
                    *parent = to;
                }
                if let Some(replaced) = replaced.filter(|replaced| self.lose(*replaced)) {
                    release(volume, replaced).unwrap();
                }
            }
            _ => {
                let (Some(one), Some(two)) = (self.any_name(random), self.any_name(random)) else { return };
                let loops = |what: u32, to| self.directories.contains_key(&what) && self.is_below(to, what);
                if one.2 == two.2 || loops(one.2, two.0) || loops(two.2, one.0) {
                    return;
                }
                now(volume.exchange((one.0, &one.1), one.2, (two.0, &two.1), two.2, time)).unwrap();
                for (directory, name, inode) in [(one.0, one.1, two.2), (two.0, two.1, one.2)] {
                    self.names(directory).insert(name, inode);
                    if let Some((_, parent)) = self.directories.get_mut(&inode) {
                        *parent = directory;
                    }
                }
            }
        }
    }
}

#[test]
fn random_operations_are_those_of_a_model() {
    for (index, (options, setting)) in [
        (&["-b", "1024"][..], ""),
        (&["-b", "4096"], "ssv def_hash_version tea"),
        (&["-b", "1024", "-O", "^metadata_csum"], "ssv def_hash_version legacy"),
        (&["-b", "1024", "-O", "^dir_index"], ""),
        (&["-b", "1024", "-O", "^dir_index,^metadata_csum,^filetype", "-I", "128"], ""),
        (&["-b", "1024"], "ssv def_hash_version tea\nssv flags 2"),
        (&["-b", "1024"], "ssv def_hash_version legacy\nssv flags 2"),
        (&["-b", "1024"], "ssv flags 2\nssv hash_seed null"),
        (&["-b", "1024", "-O", "^64bit,^metadata_csum"], UNKNOWN_HASH),
    ]
    .into_iter()
    .enumerate()
    {
        let mut image = empty(8 << 10, &[options, &["-N", "2000"]].concat());
        debugfs(&mut image, true, setting);
        if setting == UNKNOWN_HASH {
            image[1024 + 0xfc] = 6;
        }
        let volume = writable(image);
        let lost = names(&volume, ROOT).unwrap()[&b"lost+found"[..]];
        let mut model = Model::default();
        model.directories.insert(ROOT, (BTreeMap::from([(b"lost+found".to_vec(), lost)]), ROOT));
        model.directories.insert(lost, (BTreeMap::new(), ROOT));
        let mut random = Random(index as u64);
        for step in 0..1500 {
            model.step(&volume, &mut random, time(step));
        }
        model.compare(&volume);
        let has_index = inode(&volume, ROOT).flags & crate::inode::INDEX != 0;
        assert_eq!(has_index, !options.iter().any(|option| option.contains("^dir_index")) && setting != UNKNOWN_HASH);
        println!("{options:?} {setting}");
        check(&bytes_of(&volume));
    }
}

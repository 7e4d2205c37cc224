//! Directories are listed by positions: what stays in one comes exactly once, whatever else comes and goes between two calls.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, server::Server, Kernel, Process, Random, Scratch};
use fs::{
    file::File,
    ninep::{Options, Share},
    synthetic::{Fixed, Node, Synthetic, Text, PROC_MAGIC},
    tmpfs::Tmpfs,
    union::Union,
    Caller, DirEntry, FileSystem, OpenFlags, Whence,
};
use machine::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Room for a few entries.
const SMALL: usize = 100;

struct Place {
    process: Process,
    /// What is below the union, or of the host.
    scratch: Option<Scratch>,
    _kernel: Kernel,
}

impl Place {
    fn tmpfs() -> Place {
        let kernel = Kernel::new(4000);
        let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
        process.mkdir("d").unwrap();
        Place { process, scratch: None, _kernel: kernel }
    }

    /// A directory `d` of the host's with so many names, alone or below a union.
    fn host(names: usize, union: bool) -> Place {
        let (kernel, scratch) = (Kernel::new(4000), Scratch::new());
        kernel.tasks.1.store(true, std::sync::atomic::Ordering::SeqCst);
        std::fs::create_dir(scratch.at("d")).unwrap();
        for name in 0..names {
            std::fs::write(scratch.at(&format!("d/lower{name}")), b"").unwrap();
        }
        let share = block_on(Share::attach(Arc::new(Server::new(&scratch.0)), &kernel.services, Options::default()));
        let mut root: Arc<dyn FileSystem> = share.unwrap();
        if union {
            root = Union::new(&kernel.services, root, Tmpfs::new(&kernel.services, 0o755)).unwrap();
        }
        let process = Process::new(&kernel, root);
        Place { process, scratch: Some(scratch), _kernel: kernel }
    }

    fn all() -> [Place; 3] {
        [Place::tmpfs(), Place::host(0, false), Place::host(0, true)]
    }
}

fn open(process: &Process, path: &str) -> Arc<dyn File> {
    process.open(path, OpenFlags::DIRECTORY).unwrap()
}

fn piece(directory: &Arc<dyn File>, budget: usize) -> Vec<DirEntry> {
    block_on(directory.read_dir(budget)).unwrap()
}

fn rest(directory: &Arc<dyn File>) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let entries = piece(directory, SMALL);
        if entries.is_empty() {
            return names;
        }
        names.extend(entries.iter().map(name));
    }
}

fn name(entry: &DirEntry) -> String {
    String::from_utf8(entry.name.clone()).unwrap()
}

fn seek(directory: &Arc<dyn File>, to: u64) -> u64 {
    block_on(directory.seek(to as i64, Whence::Set)).unwrap()
}

#[test]
fn dots_come_first_and_room_for_none_is_an_error() {
    for Place { process, .. } in &Place::all() {
        let directory = open(process, "d");
        assert_eq!(block_on(directory.read_dir(23)).err(), Some(Errno::EINVAL));
        assert_eq!(piece(&directory, 24).iter().map(name).collect::<Vec<_>>(), ["."]);
        assert_eq!(piece(&directory, 47).iter().map(name).collect::<Vec<_>>(), [".."]);
        assert!(piece(&directory, 23).is_empty(), "no room is needed at the end");
        process.write("d/a", b"").unwrap();
        assert_eq!(seek(&directory, 2), 2);
        assert_eq!(block_on(directory.read_dir(23)).err(), Some(Errno::EINVAL));
        assert_eq!(piece(&directory, 24).iter().map(name).collect::<Vec<_>>(), ["a"]);
        assert_eq!(block_on(directory.seek(-1, Whence::Set)).err(), Some(Errno::EINVAL));
    }
}

#[test]
fn each_name_is_removed_as_it_comes() {
    for place in [Place::tmpfs(), Place::host(300, false), Place::host(300, true)] {
        let process = &place.process;
        for number in 0..300 {
            process.write(&format!("d/upper{number}"), b"").unwrap();
        }
        let all = process.list("d").unwrap().len();
        let directory = open(process, "d");
        let mut removed = 0;
        loop {
            let entries = piece(&directory, SMALL);
            for entry in entries.iter().filter(|entry| !entry.name.starts_with(b".")) {
                process.unlink(&format!("d/{}", name(entry))).unwrap();
                removed += 1;
            }
            if entries.is_empty() {
                break;
            }
        }
        assert_eq!(removed, all);
        process.rmdir("d").unwrap();
    }
}

#[test]
fn a_scan_of_memory_ends_though_its_reader_makes_names_all_the_time() {
    for place in [Place::tmpfs(), Place::host(20, true)] {
        let process = &place.process;
        for number in 0..20 {
            process.write(&format!("d/{number}"), b"").unwrap();
        }
        let directory = open(process, "d");
        let mut entries = piece(&directory, 24);
        let mut given = 0;
        while !entries.is_empty() {
            given += entries.len();
            assert!(given < 100, "it goes on and on");
            for name in entries.iter().map(name).filter(|name| !name.starts_with('.')) {
                process.write(&format!("d/{name}-new"), b"").unwrap();
                process.rename(&format!("d/{name}"), &format!("d/{name}-moved")).unwrap();
            }
            entries = piece(&directory, 40);
        }
        let before = rest(&directory).len();
        assert_eq!((before, seek(&directory, 0)), (0, 0));
        assert_eq!(rest(&directory).len(), 2 + 2 * (given - 2), "after a rewind what is new is there");
    }
}

#[test]
fn any_position_leads_back_to_where_it_was_told() {
    for place in [Place::tmpfs(), Place::host(40, false), Place::host(40, true)] {
        let process = &place.process;
        for number in 0..40 {
            process.write(&format!("d/upper{number}"), b"").unwrap();
        }
        if place.scratch.is_some() {
            process.write("d/lower3", b"copied up").unwrap();
        }
        let directory = open(process, "d");
        let mut told = vec![(0, None)];
        loop {
            let entries = piece(&directory, SMALL);
            let Some(last) = entries.last() else { break };
            assert_eq!(block_on(directory.seek(0, Whence::Current)), Ok(last.next), "as the last entry says");
            told.extend(entries.iter().map(|entry| (entry.next, Some(name(entry)))));
        }
        let order: Vec<String> = told.iter().filter_map(|(_, name)| name.clone()).collect();
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len());
        for (at, (position, _)) in told.iter().enumerate() {
            seek(&directory, *position);
            assert_eq!(rest(&directory), order[at..], "from {position:#x} on");
        }
        // What was removed meanwhile is not missed by its position.
        for index in (5..order.len()).step_by(2) {
            process.unlink(&format!("d/{}", order[index])).unwrap();
        }
        for (at, (position, _)) in told.iter().enumerate().skip(5) {
            seek(&directory, *position);
            let left = (at..order.len()).filter(|index| index % 2 == 0).map(|index| order[index].clone());
            assert_eq!(rest(&directory), left.collect::<Vec<_>>(), "from {position:#x} on");
        }
    }
}

/// At random: names are made, removed, renamed over others, exchanged, copied up, and removed and made again, while a scan is under way.
/// A name that was there all the time comes once; one that was never there does not.
#[test]
fn what_stays_comes_once() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let place = match seed % 3 {
            0 => Place::tmpfs(),
            1 => Place::host(30, false),
            _ => Place::host(30, true),
        };
        let process = &place.process;
        let mut there: BTreeSet<String> = process.list("d").unwrap().into_iter().collect();
        for number in 0..30 {
            process.write(&format!("d/upper{number}"), b"").unwrap();
            there.insert(format!("upper{number}"));
        }
        let at = |name: &str| format!("d/{name}");
        for _scan in 0..3 {
            let (mut stayed, mut ever) = (there.clone(), there.clone());
            let mut given: BTreeMap<String, usize> = BTreeMap::new();
            let directory = open(process, "d");
            loop {
                let entries = piece(&directory, 60 + random.below(100) as usize);
                entries.iter().for_each(|entry| *given.entry(name(entry)).or_default() += 1);
                if entries.is_empty() {
                    break;
                }
                for _ in 0..random.below(6) {
                    let names: Vec<&String> = there.iter().collect();
                    if names.len() < 2 {
                        break;
                    }
                    let a = names[random.below(names.len() as u64) as usize].clone();
                    let b = names[random.below(names.len() as u64) as usize].clone();
                    let new = format!("new{}", random.below(1000));
                    match random.below(6) {
                        0 => {
                            process.unlink(&at(&a)).unwrap();
                            there.remove(&a);
                            if random.below(2) == 0 {
                                process.write(&at(&a), b"again").unwrap();
                                there.insert(a.clone());
                            }
                            stayed.remove(&a);
                        }
                        1 => {
                            process.write(&at(&new), b"").unwrap();
                            there.insert(new.clone());
                            ever.insert(new);
                        }
                        2 if a != b => {
                            process.rename(&at(&a), &at(&b)).unwrap();
                            there.remove(&a);
                            stayed.remove(&a);
                        }
                        3 if !there.contains(&new) => {
                            process.rename(&at(&a), &at(&new)).unwrap();
                            there.remove(&a);
                            stayed.remove(&a);
                            there.insert(new.clone());
                            ever.insert(new);
                        }
                        4 if a != b && seed % 3 != 1 => process.rename_how(&at(&a), &at(&b), 2).unwrap(),
                        // On the union: copied up.
                        _ => process.chmod(&at(&a), 0o600).unwrap(),
                    }
                }
            }
            for name in &stayed {
                assert_eq!(given.get(name), Some(&1), "seed {seed}: {name} was there all the time");
            }
            for name in given.keys().filter(|name| !name.starts_with('.')) {
                assert!(ever.contains(name), "seed {seed}: {name} never was there");
            }
            assert_eq!(process.list("d").unwrap(), there.iter().cloned().collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn a_directory_whose_lower_names_are_all_hidden_is_empty() {
    let Place { process, .. } = &Place::host(500, true);
    for name in process.list("d").unwrap() {
        process.unlink(&format!("d/{name}")).unwrap();
    }
    let directory = open(process, "d");
    assert_eq!(rest(&directory), [".", ".."]);
    process.write("d/one", b"").unwrap();
    assert_eq!(process.rmdir("d"), Err(Errno::ENOTEMPTY));
    process.unlink("d/one").unwrap();
    process.rmdir("d").unwrap();
    process.mkdir("d").unwrap();
    assert!(process.list("d").unwrap().is_empty());
}

#[test]
fn generated_names_have_places_that_are_small_numbers() {
    let kernel = Kernel::new(100);
    let mut names = Fixed::default();
    for number in 0..50 {
        names = names.with(&format!("n{number}"), Node::file(number + 1, Text(|_: &Caller| Vec::new())));
    }
    let tree = Synthetic::new(&kernel.services, "proc", PROC_MAGIC, Node::directory(100, names));
    let process = Process::new(&kernel, tree);
    let directory = open(&process, "/");
    let mut places = Vec::new();
    loop {
        let entries = piece(&directory, SMALL);
        if entries.is_empty() {
            break;
        }
        places.extend(entries.into_iter().map(|entry| entry.next));
    }
    assert_eq!(places, (1..=52).collect::<Vec<_>>());
    seek(&directory, 51);
    assert_eq!(rest(&directory).len(), 1);
    assert_eq!(block_on(directory.seek(1 << 31, Whence::Set)).err(), Some(Errno::EINVAL));
}

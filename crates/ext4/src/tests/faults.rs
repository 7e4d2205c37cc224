//! Commits whose futures are dropped, and disks that fail.

use super::{
    journal::{disk, found, mount, parsed, set_time, with_files, FILES, MARK},
    *,
};
use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// A disk whose operation of some number never answers or fails.
struct Faulty {
    disk: Disk,
    left: AtomicUsize,
    fails: bool,
}

impl Faulty {
    async fn next(&self) -> Result<()> {
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_sub(1), Relaxed);
        match left {
            0 if self.fails => Err(Error::Io),
            0 => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

impl Device for Faulty {
    async fn read(&self, block: u64, blocks: u32) -> Result<Vec<u8>> {
        self.disk.read(block, blocks).await
    }

    async fn write(&self, block: u64, blocks: Vec<Bytes>) -> Result<()> {
        self.next().await?;
        self.disk.write(block, blocks).await
    }

    async fn flush(&self) -> Result<()> {
        self.next().await?;
        self.disk.flush().await
    }
}

fn faulty(fails: bool) -> Volume<Faulty> {
    let image = with_files(8192, &["-b", "1024"]);
    let superblock = parsed(&image).unwrap();
    let device = Faulty { disk: disk(image, &superblock), left: AtomicUsize::new(usize::MAX), fails };
    now(Volume::mount(device, superblock, Access::ReadWrite, 1)).unwrap()
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T> + ?Sized>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn change(volume: &Volume<Faulty>, number: i64) -> Result<()> {
    now(volume.run(|handle| FILES.chain([MARK]).try_for_each(|inode| set_time(handle, inode, number))))
}

#[test]
fn a_commit_whose_future_is_dropped_is_finished_by_the_next_one() {
    for left in 0..8 {
        for close in [false, true] {
            let volume = faulty(false);
            change(&volume, 1).unwrap();
            now(volume.commit()).unwrap();
            change(&volume, 2).unwrap();
            volume.device().left.store(left, Relaxed);
            {
                let mut commit: Pin<Box<dyn Future<Output = Result<()>> + Send>> = match close {
                    false => Box::pin(volume.commit()),
                    true => Box::pin(volume.close(1)),
                };
                let done = poll(&mut commit).is_ready();
                let mut waits = Box::pin(volume.commit_through(volume.transaction()));
                assert!(done || close || poll(&mut waits).is_pending() || volume.is_committed(volume.transaction()));
            }
            volume.device().left.store(usize::MAX, Relaxed);
            if !close {
                change(&volume, 3).unwrap();
                let id = volume.transaction();
                assert!(!volume.is_committed(id));
                now(volume.commit_through(id)).unwrap();
                assert!(volume.is_committed(id));
                let bytes = volume.device().disk.bytes.lock().unwrap().clone();
                let other = mount(bytes, Access::ReadOnly).unwrap();
                assert_eq!(found(&other).0, 3);
            }
            now(volume.close(2)).unwrap();
            let bytes = volume.into_device().disk.bytes.into_inner().unwrap();
            check(&bytes);
            assert_eq!(found(&open(bytes).unwrap()).0, if close { 2 } else { 3 });
        }
    }
}

#[test]
fn after_an_error_nothing_is_written() {
    for left in 0..4 {
        let volume = faulty(true);
        change(&volume, 1).unwrap();
        now(volume.commit()).unwrap();
        change(&volume, 2).unwrap();
        volume.device().left.store(left, Relaxed);
        let id = volume.transaction();
        assert_eq!(now(volume.commit()), Err(Error::Io));
        volume.device().left.store(usize::MAX, Relaxed);
        let asked = volume.device().disk.asked.lock().unwrap().len();
        assert_eq!(now(volume.commit_through(id)), Err(Error::ReadOnly));
        assert_eq!(change(&volume, 3), Err(Error::ReadOnly));
        assert_eq!(now(volume.checkpoint()), Err(Error::ReadOnly));
        assert_eq!(now(volume.close(1)), Err(Error::ReadOnly));
        assert_eq!(volume.device().disk.asked.lock().unwrap().len(), asked);
        let bytes = volume.into_device().disk.bytes.into_inner().unwrap();
        assert!([1, 2].contains(&found(&mount(bytes, Access::ReadWrite).unwrap()).0));
    }
}

#[test]
fn after_an_error_the_superblock_tells_of_it_until_a_check() {
    let volume = faulty(true);
    change(&volume, 1).unwrap();
    now(volume.commit()).unwrap();
    change(&volume, 2).unwrap();
    volume.device().left.store(0, Relaxed);
    assert_eq!(now(volume.commit()), Err(Error::Io));
    assert!(volume.has_failed());
    // Nor can the superblock be written: it is tried again.
    volume.device().left.store(0, Relaxed);
    assert_eq!(now(volume.save_errors(77)), Err(Error::Io));
    volume.device().left.store(usize::MAX, Relaxed);
    now(volume.save_errors(78)).unwrap();
    let mut bytes = volume.into_device().disk.bytes.into_inner().unwrap();
    for _ in 0..2 {
        assert!(parsed(&bytes).unwrap().has_errors);
        let said = debugfs(&mut bytes, false, "show_super_stats -h");
        assert!(said.contains("FS Error count:           1\n") && said.contains("journal could not be"), "{said}");
        // The journal, which is older, does not take that away.
        let again = mount(bytes, Access::ReadWrite).unwrap();
        now(again.close(3)).unwrap();
        bytes = again.into_device().bytes.into_inner().unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes).unwrap();
    let checked = Command::new("/usr/sbin/e2fsck").arg("-p").arg(file.path()).output().unwrap();
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
    let bytes = fs::read(file.path()).unwrap();
    check(&bytes);
    assert!(!parsed(&bytes).unwrap().has_errors);
}

#[test]
fn damage_is_noted_and_the_file_system_goes_on_or_is_only_read() {
    let mut image = with_files(8192, &["-b", "1024"]);
    let place = debugfs(&mut image, false, &format!("imap <{MARK}>"));
    let word = |before: &str| {
        let rest = &place[place.find(before).unwrap() + before.len()..];
        rest.split([',', '\n']).next().unwrap().trim().to_string()
    };
    let block: usize = word("located at block").parse().unwrap();
    let within = usize::from_str_radix(word("offset 0x").trim_start_matches("0x"), 16).unwrap();
    image[block * 1024 + within + 0x10] ^= 1;
    for does in [OnError::Continue, OnError::ReadOnly] {
        let volume = mount(image.clone(), Access::ReadWrite).unwrap();
        volume.on_error(does);
        assert!(matches!(now(volume.inode(MARK)), Err(Error::Corrupt(_))));
        assert_eq!(
            (volume.is_read_only(), volume.has_failed()),
            (does == OnError::ReadOnly, does == OnError::ReadOnly)
        );
        let changed = now(volume.run(|handle| set_time(handle, FILES.start, 7)));
        assert_eq!(changed, if does == OnError::ReadOnly { Err(Error::ReadOnly) } else { Ok(()) });
        assert!(now(volume.inode(FILES.start)).unwrap().is_some(), "reads go on");
        now(volume.save_errors(5)).unwrap();
        let closed = now(volume.close(6));
        assert_eq!(closed, if does == OnError::ReadOnly { Err(Error::ReadOnly) } else { Ok(()) });
        let bytes = volume.into_device().bytes.into_inner().unwrap();
        assert!(parsed(&bytes).unwrap().has_errors);
    }
}

/// What a search finds while others change the directory may make no sense, and is no damage.
#[test]
fn a_search_by_an_old_inode_of_a_directory_notes_no_damage() {
    let volume = mount(empty(8192, &["-b", "1024"]), Access::ReadWrite).unwrap();
    volume.on_error(OnError::ReadOnly);
    let now_at = Time { seconds: 1_700_000_000, nanoseconds: 0 };
    let new = |mode| NewInode { mode, uid: 0, gid: 0, time: now_at, generation: 7, device: (0, 0) };
    let many = now(volume.create(2, b"many", &new(0o040755), None)).unwrap().inode.number;
    let name = |number: u32| format!("a name of some length, number {number}").into_bytes();
    let create = |number| now(volume.create(many, &name(number), &new(0o100644), None)).map(drop);
    (0..60).for_each(|number| create(number).unwrap());
    let before = now(volume.inode(many)).unwrap().unwrap();
    (60..200).for_each(|number| create(number).unwrap());
    let list = || {
        let mut from = 0;
        while let Some(entries) = now(volume.list(&before, from))? {
            from = entries.last().unwrap().next;
        }
        Ok(())
    };
    assert!(matches!(list(), Err(Error::Corrupt(_))));
    let lost = (0..200).filter(|number| matches!(now(volume.find(&before, &name(*number))), Err(Error::Corrupt(_))));
    assert!(lost.count() > 0);
    // One that knows a directory, or a name, that is gone.
    now(volume.create(many, b"d", &new(0o040755), None)).unwrap();
    let gone = now(volume.find(&now(volume.inode(many)).unwrap().unwrap(), b"d")).unwrap().unwrap().number;
    now(volume.remove_directory(many, b"d", gone, now_at)).unwrap();
    assert_eq!(now(volume.create(gone, b"x", &new(0o100644), None)).err(), Some(Error::Gone));
    assert_eq!(now(volume.unlink(many, b"d", gone, now_at)).err(), Some(Error::Gone));
    now(volume.release(gone, now_at)).unwrap();
    assert_eq!(now(volume.attributes(gone)).err(), Some(Error::Gone));
    create(200).unwrap();
    now(volume.close(1)).unwrap();
    let bytes = volume.into_device().bytes.into_inner().unwrap();
    assert!(!parsed(&bytes).unwrap().has_errors);
    check(&bytes);
}

/// Tasks of the kernel move from CPU to CPU.
#[test]
fn futures_can_be_sent() {
    fn sent<T: Send>(future: T) -> T {
        future
    }
    let image = empty(8192, &["-b", "1024"]);
    let superblock = parsed(&image).unwrap();
    let volume = now(sent(Volume::mount(disk(image, &superblock), superblock, Access::ReadWrite, 1))).unwrap();
    now(sent(volume.checkpoint())).unwrap();
    now(sent(volume.close(1))).unwrap();
}

//! ext4 as programs see it: files in pages, and mounts. What is where on the disk is crate `ext4`'s, and its tests'.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, disk::Bytes, user, Kernel};
use fs::{block::Disks, ext4::Ext4Mounter, inode::Mounter, FileSystem, Inode};
use machine::{errno::Result, Errno, Memory};
use std::{fs as host, process::Command, sync::Arc};

/// What mkfs.ext4 makes of a directory with these files.
fn image(files: &[(&str, &[u8])]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| host::write(directory.path().join(name), bytes).unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F", "-b", "1024", "-d"]).arg(directory.path()).arg(file.path()).arg("8192k");
    assert!(command.status().unwrap().success());
    host::read(file.path()).unwrap()
}

fn mounted(kernel: &Kernel, image: Vec<u8>, options: &[u8]) -> Result<Arc<dyn FileSystem>> {
    let disks = Arc::new(Disks::default());
    block_on(disks.add(&kernel.services, Arc::new(Bytes::new(image))));
    let mounter = Ext4Mounter::new(&kernel.services, &disks);
    assert_eq!(block_on(mounter.mount(b"/dev/zero", b"", true)).map(drop), Err(Errno::ENOTBLK));
    block_on(mounter.mount(b"/dev/vda", options, true))
}

fn found(tree: &Arc<dyn FileSystem>, name: &str) -> Arc<dyn Inode> {
    block_on(tree.root().lookup(&user(0), name.as_bytes())).unwrap()
}

#[test]
fn what_lies_on_the_disk_behind_the_end_of_a_file_is_in_no_page_of_it() {
    let kernel = Kernel::new(4000);
    let mut bytes = image(&[("file", &[b'x'; 5000])]);
    // The blocks of the file, which is the only one with these bytes, and what follows them.
    let at = bytes.windows(5000).position(|window| window == [b'x'; 5000]).unwrap();
    bytes[at + 5000..at + 5 * 1024].fill(b'y');
    let tree = mounted(&kernel, bytes, b"").unwrap();
    let file = found(&tree, "file");
    let object = block_on(file.object(false)).unwrap();
    let page = block_on(object.page(1)).unwrap();
    let mut read = vec![1; 4096];
    kernel.memory.read(page.frame(), 0, &mut read);
    assert!(read[..904].iter().all(|byte| *byte == b'x') && read[904..].iter().all(|byte| *byte == 0));
    drop(page);
    assert_eq!(block_on(file.object(true)).map(drop), Err(Errno::EROFS));
    assert_eq!(file.write_refused(), Some(Errno::EROFS));
    assert_eq!(block_on(file.attributes()).unwrap().size, 5000);
}

#[test]
fn what_does_not_fit_the_disk_is_not_mounted_and_a_journal_is_replayed() {
    let kernel = Kernel::new(4000);
    kernel.tasks.1.store(true, std::sync::atomic::Ordering::SeqCst);
    let whole = image(&[]);
    assert_eq!(mounted(&kernel, whole[..4 << 20].to_vec(), b"").map(drop), Err(Errno::EINVAL));
    assert_eq!(mounted(&kernel, vec![0; 1 << 20], b"").map(drop), Err(Errno::EINVAL));
    assert_eq!(mounted(&kernel, vec![0; 1024], b"").map(drop), Err(Errno::EINVAL));
    let file = tempfile::NamedTempFile::new().unwrap();
    host::write(file.path(), &whole).unwrap();
    let command =
        Command::new("/usr/sbin/debugfs").args(["-w", "-R", "feature needs_recovery"]).arg(file.path()).output();
    assert!(command.unwrap().status.success());
    let dirty = host::read(file.path()).unwrap();
    assert_eq!(mounted(&kernel, dirty.clone(), b"errors=continue").map(drop), Ok(()));
    let tree = mounted(&kernel, dirty, b"errors=continue,noload").unwrap();
    assert_eq!((tree.kind(), found(&tree, "lost+found").ino()), ("ext4", 11));
    assert_eq!(block_on(tree.root().lookup(&user(0), b"nothing")).map(drop), Err(Errno::ENOENT));
    // Nothing of what was mounted stays.
    drop(tree);
    kernel.services.reclaim(10_000);
}

//! Trees as deep as a program likes, and limits of a tmpfs. Each test runs on a stack as small as a kernel's.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, Kernel, Process};
use fs::{
    tmpfs::{TmpMounter, Tmpfs},
    OpenFlags, PathOp, Paths,
};
use machine::Errno;
use std::sync::Arc;

const DEPTH: usize = 20_000;

fn on_a_kernels_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(96 << 10).spawn(test).unwrap().join().unwrap();
}

fn process(frames: usize) -> (Kernel, Process) {
    let kernel = Kernel::new(frames);
    let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    (kernel, process)
}

/// In the deepest of `depth` directories, each in the one before.
fn descend(process: &mut Process, depth: usize) {
    for _ in 0..depth {
        process.mkdir("d").unwrap();
        process.base.at = process.open("d", OpenFlags::DIRECTORY).unwrap();
    }
}

#[test]
fn a_deep_tree_outlives_the_cache_of_names() {
    on_a_kernels_stack(|| {
        let (_kernel, mut process) = process(4 * DEPTH);
        let top = process.clone();
        descend(&mut process, DEPTH);
        for name in 0..20_000 {
            assert_eq!(process.stat(&name.to_string(), true).err(), Some(Errno::ENOENT));
            assert_eq!(top.stat(&format!("/{name}"), true).err(), Some(Errno::ENOENT));
        }
        assert!(process.stat("..", true).is_ok());
        block_on(process.paths.drop_unused());
        assert!(process.stat("../../..", true).is_ok());
    });
}

#[test]
fn directories_that_were_removed_above_the_working_directory_end_with_it() {
    on_a_kernels_stack(|| {
        let (_kernel, mut process) = process(4 * DEPTH);
        descend(&mut process, DEPTH);
        let deepest = process.base.at.clone();
        for _ in 0..DEPTH {
            process.base.at = process.open("..", OpenFlags::DIRECTORY).unwrap();
            process.rmdir("d").unwrap();
        }
        assert!(process.list("/").unwrap().is_empty());
        drop(deepest);
    });
}

#[test]
fn an_unmounted_tree_goes_whole_whatever_its_shape() {
    on_a_kernels_stack(|| {
        let (kernel, mut process) = process(4 * DEPTH);
        let top = process.clone();
        process.mkdir("/mnt").unwrap();
        process.paths.register_kind("tmpfs", Arc::new(TmpMounter { services: kernel.services.clone() }));
        process.mount("/mnt", "nr_inodes=0").unwrap();
        process.base.at = process.open("/mnt", OpenFlags::DIRECTORY).unwrap();
        descend(&mut process, DEPTH);
        process.write("file", &[7; 5000]).unwrap();
        assert!(kernel.memory.used() > 0);
        process.base.at = top.base.at.clone();
        process.run(PathOp::Unmount { path: b"/mnt".to_vec(), flags: 0 }).unwrap();
        assert_eq!(kernel.memory.used(), 0);
    });
}

#[test]
fn what_a_tmpfs_may_hold_is_what_its_options_say() {
    let (kernel, process) = process(1000);
    process.mkdir("/mnt").unwrap();
    process.paths.register_kind("tmpfs", Arc::new(TmpMounter { services: kernel.services.clone() }));
    process.mount("/mnt", "size=16k,nr_inodes=4").unwrap();
    process.write("/mnt/a", &[1; 4096 * 3]).unwrap();
    process.write("/mnt/b", &[1; 4096]).unwrap();
    let full = process.open("/mnt/c", OpenFlags::WRONLY | OpenFlags::CREAT).unwrap();
    assert_eq!(block_on(full.write(b"x")), Err(Errno::ENOSPC));
    // Three files and a name more are all that there may be.
    process.link("/mnt/a", "/mnt/d").unwrap();
    assert_eq!(process.link("/mnt/a", "/mnt/e"), Err(Errno::ENOSPC));
    assert_eq!(process.mkdir("/mnt/e"), Err(Errno::ENOSPC));
    process.unlink("/mnt/a").unwrap();
    process.truncate("/mnt/d", 4096).unwrap();
    assert_eq!(block_on(full.write(&[2; 8192])), Ok(8192));
    drop(full);
    process.unlink("/mnt/d").unwrap();
    process.unlink("/mnt/c").unwrap();
    block_on(process.paths.drop_unused());
    process.write("/mnt/a", &[1; 4096 * 3]).unwrap();
    assert_eq!(process.mkdir("/mnt/e").and(process.mkdir("/mnt/f")), Ok(()));
    for wrong in ["size=1x", "size=-1", "nr_inodes=", "size=99999999999g", "what=1"] {
        assert_eq!(process.mount("/mnt", wrong), Err(Errno::EINVAL), "{wrong}");
    }
}

#[test]
fn a_path_too_long_is_told_as_such() {
    let (_kernel, mut process) = process(10_000);
    descend(&mut process, 2100);
    assert!(block_on(process.base.at.path()).len() > 4096);
}

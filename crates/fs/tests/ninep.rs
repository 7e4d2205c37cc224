//! The 9p client against a server over a directory of the host: what is asked, how often, and what is
//! given back.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, server::Server, Kernel, Process, Scratch};
use fs::{ninep, ninep::Share, tmpfs::Tmpfs, union::Union, OpenFlags, PathOp, SetAttributes};
use machine::{errno::Result, BoxFuture, Errno, Exchange};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        Arc,
    },
    task::{Context, Poll, Waker},
};

struct Setup {
    kernel: Kernel,
    server: Arc<Server>,
    process: Process,
    scratch: Scratch,
}

fn setup(prepare: impl FnOnce(&Scratch)) -> Setup {
    let (kernel, scratch) = (Kernel::new(2000), Scratch::new());
    prepare(&scratch);
    let server = Arc::new(Server::new(&scratch.0));
    let share = block_on(Share::attach(server.clone(), &kernel.services, ninep::Options::default())).unwrap();
    let process = Process::new(&kernel, share);
    Setup { kernel, server, process, scratch }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

#[test]
fn what_was_asked_within_a_second_is_not_asked_again() {
    let Setup { kernel, server, process, scratch: _scratch, .. } = setup(|scratch| {
        std::fs::create_dir(scratch.at("d")).unwrap();
        std::fs::write(scratch.at("d/f"), bytes(300_000)).unwrap();
    });
    assert_eq!(process.read("d/f").unwrap(), bytes(300_000));
    assert_eq!(process.read("d/missing").err(), Some(Errno::ENOENT));
    let before = server.requests();
    assert_eq!(process.read("d/f").unwrap(), bytes(300_000));
    assert_eq!(process.read("d/missing").err(), Some(Errno::ENOENT));
    assert_eq!(server.requests(), before, "nothing new to ask");
    kernel.clock.advance(1_500_000_000);
    process.stat("d/f", true).unwrap();
    assert!(server.requests() - before <= 5, "asked again once");
}

#[test]
fn a_sequential_reader_is_read_ahead_of() {
    let Setup { server, process, scratch: _scratch, .. } =
        setup(|scratch| std::fs::write(scratch.at("f"), bytes(1 << 20)).unwrap());
    let before = server.requests();
    assert_eq!(process.read("f").unwrap(), bytes(1 << 20));
    // A walk and its attributes, an open (two), and 256 pages in windows of 16 to 64.
    assert!(server.requests() - before <= 4 + 10, "{} requests", server.requests() - before);
}

#[test]
fn what_will_be_needed_is_there_when_it_is() {
    let Setup { server, process, scratch: _scratch, .. } =
        setup(|scratch| std::fs::write(scratch.at("f"), bytes(100_000)).unwrap());
    let file = process.open("f", OpenFlags::empty()).unwrap();
    let object = block_on(file.object()).unwrap();
    block_on(object.read_ahead(3, u64::MAX));
    let before = server.requests();
    let mut part = vec![0; 40_000];
    assert_eq!(block_on(file.read_at(&mut part, 60_000)), Ok(40_000));
    assert_eq!(part, bytes(100_000)[60_000..]);
    assert_eq!(server.requests(), before, "nothing new to ask");
}

#[test]
fn a_file_that_changed_on_the_host_is_read_anew() {
    let Setup { kernel, process, scratch, .. } = setup(|scratch| std::fs::write(scratch.at("f"), b"old").unwrap());
    assert_eq!(process.read("f").unwrap(), b"old");
    std::fs::write(scratch.at("f"), b"newer").unwrap();
    kernel.clock.advance(2_000_000_000);
    assert_eq!(process.read("f").unwrap(), b"newer");
}

/// A server whose answers get through only while the gate is open.
struct Gate {
    server: Server,
    open: AtomicBool,
}

impl Exchange for Gate {
    fn exchange(&self, request: Vec<u8>, room: usize) -> BoxFuture<'_, Result<Vec<u8>>> {
        Box::pin(async move {
            // The answer is made first: what is held up is out of date by the time it arrives.
            let reply = self.server.exchange(request, room).await;
            std::future::poll_fn(|_| if self.open.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await;
            reply
        })
    }
}

/// A kernel that has no memory for long answers.
struct Short(Server);

impl Exchange for Short {
    fn exchange(&self, request: Vec<u8>, room: usize) -> BoxFuture<'_, Result<Vec<u8>>> {
        match room > 2 * 4096 {
            true => Box::pin(async { Err(Errno::ENOMEM) }),
            false => self.0.exchange(request, room),
        }
    }
}

#[test]
fn where_memory_is_short_a_file_comes_page_by_page() {
    let (kernel, scratch) = (Kernel::new(2000), Scratch::new());
    std::fs::write(scratch.at("f"), bytes(300_000)).unwrap();
    let short = Arc::new(Short(Server::new(&scratch.0)));
    let share = block_on(Share::attach(short, &kernel.services, ninep::Options::default())).unwrap();
    assert_eq!(Process::new(&kernel, share).read("f").unwrap(), bytes(300_000));
}

#[test]
fn an_interrupted_read_leaves_its_pages_to_whoever_waits_for_them() {
    let (kernel, scratch) = (Kernel::new(2000), Scratch::new());
    std::fs::write(scratch.at("f"), bytes(100_000)).unwrap();
    let gate = Arc::new(Gate { server: Server::new(&scratch.0), open: AtomicBool::new(true) });
    let share = block_on(Share::attach(gate.clone(), &kernel.services, ninep::Options::default())).unwrap();
    let process = Process::new(&kernel, share);
    let file = process.open("f", OpenFlags::empty()).unwrap();
    gate.open.store(false, SeqCst);
    let (mut one, mut two) = ([0; 10], [0; 10]);
    let mut context = Context::from_waker(Waker::noop());
    let mut first = file.read_at(&mut one, 0);
    let mut second = file.read_at(&mut two, 5000);
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending(), "waits for the read-ahead of the first");
    drop(first);
    gate.open.store(true, SeqCst);
    assert_eq!(block_on(second), Ok(10));
    assert_eq!(two, bytes(6000)[5000..5010]);
    assert_eq!(process.read("f").unwrap(), bytes(100_000));
    drop((file, process));
    assert_eq!(kernel.memory.used(), 0);
}

#[test]
fn what_a_truncation_cut_off_does_not_come_back_from_the_host() {
    let (kernel, scratch) = (Kernel::new(2000), Scratch::new());
    std::fs::write(scratch.at("f"), bytes(100_000)).unwrap();
    let gate = Arc::new(Gate { server: Server::new(&scratch.0), open: AtomicBool::new(true) });
    let share = block_on(Share::attach(gate.clone(), &kernel.services, ninep::Options::default())).unwrap();
    let process = Process::new(&kernel, share);
    let file = process.open("f", OpenFlags::RDWR).unwrap();
    gate.open.store(false, SeqCst);
    let mut buf = vec![0; 100];
    let mut read = file.read_at(&mut buf, 50_000);
    let mut context = Context::from_waker(Waker::noop());
    assert!(read.as_mut().poll(&mut context).is_pending());
    gate.open.store(true, SeqCst);
    process.truncate("f", 0).unwrap();
    process.truncate("f", 60_000).unwrap();
    let _ = block_on(read);
    let now = process.read("f").unwrap();
    assert!(now.len() == 60_000 && now.iter().all(|byte| *byte == 0));
}

#[test]
fn written_bytes_reach_the_host_and_every_fid_is_given_back() {
    let Setup { kernel, server, process, scratch } = setup(|_| {});
    process.mkdir("d").unwrap();
    process.write("d/f", &bytes(50_000)).unwrap();
    assert_eq!(process.read("d/f").unwrap(), bytes(50_000));
    kernel.tasks.run();
    assert_eq!(std::fs::read(scratch.at("d/f")).unwrap(), bytes(50_000));
    let modified = fs::Timestamp { seconds: 1_000_000, nanoseconds: 5 };
    let set = SetAttributes { modified: Some(modified), ..Default::default() };
    process.run(PathOp::SetAttributes { path: "d/f".into(), follow: true, empty_ok: false, set }).unwrap();
    assert_eq!(process.stat("d/f", true).unwrap().modified, modified);
    process.unlink("d/f").unwrap();
    process.rmdir("d").unwrap();
    drop(process);
    kernel.tasks.run();
    assert_eq!(server.fids(), 0);
    assert_eq!(kernel.memory.used(), 0);
}

#[test]
fn memory_pressure_takes_clean_pages_and_leaves_mapped_ones() {
    let Setup { kernel, process, scratch: _scratch, .. } =
        setup(|scratch| std::fs::write(scratch.at("f"), bytes(40 * 4096)).unwrap());
    let file = process.open("f", OpenFlags::empty()).unwrap();
    assert_eq!(common::read_all(&file).unwrap().len(), 40 * 4096);
    let object = block_on(file.object()).unwrap();
    let mapped = block_on(object.page(3)).unwrap();
    assert_eq!(kernel.services.reclaim(1000), 39);
    assert_eq!(kernel.memory.used(), 1);
    assert_eq!(process.read("f").unwrap(), bytes(40 * 4096));
    drop(mapped);
}

#[test]
fn the_union_hides_keeps_numbers_and_copies_only_what_is_written() {
    let (kernel, scratch) = (Kernel::new(2000), Scratch::new());
    std::fs::create_dir_all(scratch.at("etc/sub")).unwrap();
    std::fs::write(scratch.at("etc/a"), b"lower a").unwrap();
    std::fs::hard_link(scratch.at("etc/a"), scratch.at("etc/twin")).unwrap();
    std::fs::write(scratch.at("etc/b"), b"lower b").unwrap();
    let server = Arc::new(Server::new(&scratch.0));
    let share = block_on(Share::attach(server, &kernel.services, ninep::Options::default())).unwrap();
    let upper = Tmpfs::new(&kernel.services, 0o755);
    let process = Process::new(&kernel, Union::new(&kernel.services, share, upper).unwrap());

    let before = process.stat("etc/a", true).unwrap();
    let file = process.open("etc/a", OpenFlags::RDWR).unwrap();
    block_on(file.write_at(b"UPPER", 0)).unwrap();
    let after = process.stat("etc/a", true).unwrap();
    assert_eq!((before.ino, before.dev, before.nlink), (after.ino, after.dev, after.nlink));
    assert_eq!(process.read("etc/twin").unwrap(), b"UPPER a");
    process.unlink("etc/a").unwrap();
    assert_eq!(block_on(file.attributes()).unwrap().nlink, 1);
    assert_eq!(process.list("etc").unwrap(), ["b", "sub", "twin"]);
    process.unlink("etc/twin").unwrap();
    assert_eq!(block_on(file.attributes()).unwrap().nlink, 0);

    // Open and unlinked, a lower file can still be changed, and does not come back.
    let orphan = process.open("etc/b", OpenFlags::empty()).unwrap();
    process.unlink("etc/b").unwrap();
    assert_eq!(block_on(orphan.attributes()).unwrap().nlink, 0);
    let set = SetAttributes { mode: Some(0o600), ..Default::default() };
    block_on(orphan.set_attributes(&process.caller, set)).unwrap();
    assert_eq!(block_on(orphan.attributes()).unwrap().mode & 0o777, 0o600);
    assert_eq!(common::read_all(&orphan).unwrap(), b"lower b");
    assert_eq!(process.list("etc").unwrap(), ["sub"]);

    assert_eq!(process.rename("etc", "moved"), Err(Errno::EXDEV));
    process.rmdir("etc/sub").unwrap();
    process.rmdir("etc").unwrap();
    process.mkdir("etc").unwrap();
    assert!(process.list("etc").unwrap().is_empty(), "nothing shows through a new directory");
    assert_eq!(std::fs::read(scratch.at("etc/a")).unwrap(), b"lower a");
}

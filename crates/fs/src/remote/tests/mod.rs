//! Kernels stepped by hand, connected by real lanes.

mod balance;
mod circles;
mod connection_deaths;
mod connections;
mod disk;
mod internet;
mod interrupted;
mod locks;
mod mounts;
mod moves;
mod names;
mod objects;
mod pipes;
mod races;
mod signals;
mod sockets;
mod trees;

use super::*;
use crate::{
    epoll, event::EventFd, pipe::pipe, poll, testing::once, testing::*, Control, ControlAnswer, Events, OpenFlags,
    PathAnswer, PathOp,
};
use alloc::vec::Vec;
use machine::{Frame, PageTable, PAGE_SIZE};
use std::sync::Mutex;

struct NoClock;

impl crate::Clock for NoClock {
    fn realtime(&self) -> crate::Timestamp {
        crate::Timestamp::default()
    }
    fn monotonic(&self) -> u64 {
        0
    }
}

/// All memory of the machine.
#[derive(Default)]
pub(crate) struct Ram {
    pages: BTreeMap<u64, (Vec<u8>, u32)>,
    next: u64,
}

pub(crate) struct TestMemory(pub KernelId, pub Arc<Mutex<Ram>>);

impl TestMemory {
    fn with<T>(&self, frame: Frame, act: impl FnOnce(&mut (Vec<u8>, u32)) -> T) -> T {
        act(self.1.lock().unwrap().pages.get_mut(&frame.0).expect("a frame that exists"))
    }
}

impl Memory for TestMemory {
    fn kernel(&self) -> KernelId {
        self.0
    }
    fn alloc(&self) -> Option<Frame> {
        let mut ram = self.1.lock().unwrap();
        ram.next += 1;
        let number = ram.next;
        ram.pages.insert(number, (vec![0; PAGE_SIZE], 1));
        Some(Frame(number))
    }
    fn retain(&self, frame: Frame) {
        self.with(frame, |page| page.1 += 1);
    }
    fn release(&self, frame: Frame) {
        let left = self.with(frame, |page| {
            page.1 -= 1;
            page.1
        });
        if left == 0 {
            self.1.lock().unwrap().pages.remove(&frame.0);
        }
    }
    fn count(&self, frame: Frame) -> u32 {
        self.with(frame, |page| page.1)
    }
    fn adopt(&self, _: Frame) {
        unimplemented!("not for files")
    }
    fn lend(&self, _: Frame, _: KernelId) {
        unimplemented!("not for files")
    }
    fn pin(&self, _: Frame, _: KernelId) {}
    fn take_home(&self, _: Frame, _: KernelId) {
        unimplemented!("not for files")
    }
    fn take_all_home(&self, _: KernelId) {}
    /// There is one count for all kernels here, and the owner has gone up with it.
    fn accept_pin(&self, _: Frame, _: KernelId) {}
    fn home_of(&self, frame: Frame) -> Option<KernelId> {
        self.1.lock().unwrap().pages.contains_key(&frame.0).then_some(self.0)
    }
    fn totals(&self) -> (u64, u64) {
        (0, 0)
    }
    fn copy(&self, from: Frame, to: Frame) {
        let data = self.with(from, |page| page.0.clone());
        self.with(to, |page| page.0 = data);
    }
    fn zero(&self, frame: Frame) {
        self.with(frame, |page| page.0.fill(0));
    }
    fn read(&self, frame: Frame, offset: usize, buf: &mut [u8]) {
        self.with(frame, |page| buf.copy_from_slice(&page.0[offset..offset + buf.len()]));
    }
    fn write(&self, frame: Frame, offset: usize, buf: &[u8]) {
        self.with(frame, |page| page.0[offset..offset + buf.len()].copy_from_slice(buf));
    }
    fn load_u32(&self, frame: Frame, offset: usize) -> u32 {
        self.with(frame, |page| u32::from_ne_bytes(page.0[offset..offset + 4].try_into().unwrap()))
    }
    fn compare_exchange_u32(&self, frame: Frame, offset: usize, old: u32, new: u32) -> core::result::Result<u32, u32> {
        self.with(frame, |page| {
            let word = &mut page.0[offset..offset + 4];
            match u32::from_ne_bytes((&*word).try_into().unwrap()) {
                found if found == old => {
                    word.copy_from_slice(&new.to_ne_bytes());
                    Ok(found)
                }
                found => Err(found),
            }
        })
    }
    fn new_table(&self) -> core::result::Result<Arc<dyn PageTable>, machine::NoMemory> {
        unimplemented!("not for files")
    }
}

/// Those of a kernel with memory of its own, whose tasks are threads.
pub(crate) fn services() -> Arc<crate::Services> {
    let memory = TestMemory(KernelId(0), Arc::default());
    crate::Services::new(Arc::new(memory), Arc::new(NoClock), Arc::new(crate::testing::Threads))
}

#[derive(Default)]
struct Tasks(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Spawner for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(task);
    }
}

struct Machine {
    kernels: Vec<Arc<Remote>>,
    tasks: Arc<Tasks>,
    ram: Arc<Mutex<Ram>>,
}

/// Runs in front of the owner's paths: opens the one file there is.
struct OneFile(Arc<dyn File>);

impl Paths for OneFile {
    fn run<'a>(&'a self, _: &'a crate::Caller, base: &'a crate::Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        let answer = match op {
            PathOp::Open { path, .. } if path == b"file" => Ok(PathAnswer::File(self.0.clone())),
            PathOp::Open { path, .. } if path == b"." => Ok(PathAnswer::File(base.at.clone())),
            PathOp::ReadLink { path, .. } => Ok(PathAnswer::Bytes(path)),
            _ => Err(Errno::ENOENT),
        };
        crate::file::ready(answer)
    }
    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        crate::file::ready(Ok(self.0.clone()))
    }
}

impl Machine {
    fn new(count: usize) -> Self {
        Self::with(count, |_, _| Arc::new(OneFile(EventFd::new(7, 0).unwrap())))
    }

    /// With paths on kernel 0 that lie in this memory.
    fn with(count: usize, paths: impl FnOnce(&Arc<Mutex<Ram>>, &Arc<Tasks>) -> Arc<dyn Paths>) -> Self {
        let tasks = Arc::new(Tasks::default());
        let ram = Arc::new(Mutex::new(Ram::default()));
        // The first one's.
        let mut root = Some(paths(&ram, &tasks));
        Self::each(count, ram, tasks, |_| root.take())
    }

    /// Kernels with the file systems of each.
    fn each(
        count: usize,
        ram: Arc<Mutex<Ram>>,
        tasks: Arc<Tasks>,
        mut paths: impl FnMut(KernelId) -> Option<Arc<dyn Paths>>,
    ) -> Self {
        let ports = fabric::local::ports(count, 16, |_| {});
        let kernels: Vec<Arc<Remote>> = ports
            .into_iter()
            .enumerate()
            .map(|(index, port)| {
                let me = KernelId(index as u16);
                let endpoint = Endpoint::new(me, count, Box::new(port), tasks.clone());
                let memory = Arc::new(TestMemory(me, ram.clone()));
                let refaults = Arc::new(Refaults::new(&*memory));
                Remote::new(endpoint, memory, tasks.clone(), refaults, paths(me))
            })
            .collect();
        for kernel in &kernels {
            for other in kernels.iter().filter(|other| other.me() != kernel.me()) {
                kernel.endpoint.add_peer(other.me());
            }
        }
        Machine { kernels, tasks, ram }
    }

    /// Lets everything happen that can.
    fn settle(&self) {
        for _ in 0..100 {
            for kernel in &self.kernels {
                kernel.endpoint.drain(1000);
            }
            self.run_tasks();
        }
    }

    fn run_tasks(&self) {
        let tasks = core::mem::take(&mut *self.tasks.0.lock().unwrap());
        let mut left: Vec<_> =
            tasks.into_iter().filter_map(|mut task| once(task.as_mut()).is_none().then_some(task)).collect();
        self.tasks.0.lock().unwrap().append(&mut left);
    }

    /// None: it waits for something.
    fn poll<F: core::future::Future + Unpin>(&self, future: &mut F) -> Option<F::Output> {
        for _ in 0..100 {
            if let Some(value) = once(core::pin::Pin::new(&mut *future)) {
                return Some(value);
            }
            self.settle();
        }
        None
    }

    fn run<T: Send>(&self, future: impl core::future::Future<Output = T> + Send) -> T {
        let mut future: BoxFuture<'_, T> = Box::pin(future);
        self.poll(&mut future).expect("it should not wait")
    }

    /// Hands a file of kernel `from` to kernel `to`.
    fn pass(&self, from: usize, to: usize, file: &Arc<dyn File>) -> Arc<dyn File> {
        let given = self.run(self.kernels[from].hand_over(KernelId(to as u16), file)).unwrap().send();
        self.kernels[to].accept(given).unwrap()
    }

    fn frames(&self) -> usize {
        self.ram.lock().unwrap().pages.len()
    }
}

fn ends() -> (Arc<dyn File>, Arc<dyn File>) {
    let (read, write) = pipe(&caller(1), &free(), OpenFlags::empty()).unwrap();
    (read, write)
}

#[test]
fn a_pipe_works_across_kernels_and_ends_when_the_stand_in_goes() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &write);
    assert_eq!(far.remote().unwrap().owner, KernelId(0));
    assert!(Arc::ptr_eq(&far, &machine.pass(0, 1, &write)), "one stand-in per file");
    drop(write);
    let mut buf = [0; 10];
    let mut reading = read.read(&mut buf);
    assert!(machine.poll(&mut reading).is_none());
    assert_eq!(machine.run(far.write(b"hello")), Ok(5));
    assert_eq!(machine.poll(&mut reading), Some(Ok(5)));
    drop(reading);
    drop(far);
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 0);
    assert_eq!(machine.run(read.read(&mut buf)), Ok(0), "the last writer has gone");
}

#[test]
fn large_data_goes_by_frames_and_all_of_them_come_back() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let (read, write) = (machine.pass(0, 1, &read), machine.pass(0, 1, &write));
    let data: Vec<u8> = (0..50_000u32).map(|index| (index % 251) as u8).collect();
    assert_eq!(machine.run(write.write(&data)), Ok(data.len()));
    let mut back = vec![0; 65536];
    assert_eq!(machine.run(read.read(&mut back)), Ok(data.len()));
    assert_eq!(back[..data.len()], data);
    assert_eq!(machine.frames(), 0);
}

#[test]
fn a_blocked_reader_waits_at_home_and_an_interrupted_one_takes_nothing() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &read);
    let mut buf = [0; 8];
    {
        let mut reading = far.read(&mut buf);
        assert!(machine.poll(&mut reading).is_none());
    }
    machine.settle();
    machine.run(write.write(b"kept")).unwrap();
    machine.settle();
    assert_eq!(machine.run(far.read(&mut buf)), Ok(4));
    let mut reading = far.read(&mut buf);
    assert!(machine.poll(&mut reading).is_none());
    machine.run(write.write(b"wakes")).unwrap();
    assert_eq!(machine.poll(&mut reading), Some(Ok(5)));
}

#[test]
fn nonblocking_is_obeyed_and_flags_are_the_owners() {
    let machine = Machine::new(2);
    let (read, _write) = ends();
    let far = machine.pass(0, 1, &read);
    machine.run(far.set_flags(OpenFlags::NONBLOCK)).unwrap();
    assert!(read.flags().contains(OpenFlags::NONBLOCK));
    assert_eq!(machine.run(far.read(&mut [0; 1])), Err(Errno::EAGAIN));
    assert_eq!(machine.run(far.seek(0, crate::Whence::Set)), Err(Errno::ESPIPE));
    assert_eq!(machine.run(far.path()), machine.run(read.path()));
    let size = machine.run(far.control(&caller(1), Control::PipeSize));
    assert!(matches!(size, Ok(ControlAnswer::Number(65536))));
}

#[test]
fn poll_and_epoll_hear_of_changes_elsewhere() {
    let machine = Machine::new(3);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &read);
    let (files, who) = ([(far.clone(), Events::IN)], caller(1));
    let mut waiting: BoxFuture<'_, _> = Box::pin(poll::wait(&who, &files, None));
    assert!(machine.poll(&mut waiting).is_none());
    machine.run(write.write(b"x")).unwrap();
    assert_eq!(machine.poll(&mut waiting), Some(Ok(vec![Events::IN])));
    // An epoll of kernel 2 watches, at the wish of kernel 1, the file of kernel 0.
    let epoll: Arc<dyn File> = epoll::Epoll::new(free(), OpenFlags::empty()).unwrap();
    let epoll_far = machine.pass(2, 1, &epoll);
    let interest = crate::control::EpollInterest { events: Events::IN.bits(), data: 5 };
    let add = crate::control::EpollControl::Add { fd: 3, file: far.clone(), interest };
    machine.run(epoll_far.control(&caller(1), Control::Epoll(add))).unwrap();
    let events = machine.run(epoll::wait(&epoll_far, &who, 8, epoll::Wait::ForEver)).unwrap();
    assert_eq!(events, [interest]);
    machine.run(far.read(&mut [0; 9])).unwrap();
    let mut waiting: BoxFuture<'_, _> = Box::pin(epoll::wait(&epoll_far, &who, 8, epoll::Wait::ForEver));
    machine.poll(&mut waiting);
    drop(waiting);
    let mut waiting: BoxFuture<'_, _> = Box::pin(epoll::wait(&epoll_far, &who, 8, epoll::Wait::ForEver));
    machine.run(write.write(b"y")).unwrap();
    assert_eq!(machine.poll(&mut waiting).unwrap().unwrap(), [interest]);
}

fn add(machine: &Machine, epoll: &Arc<dyn File>, fd: i32, file: &Arc<dyn File>, events: u32) -> Result<()> {
    let interest = crate::control::EpollInterest { events, data: fd as u64 };
    let add = crate::control::EpollControl::Add { fd, file: file.clone(), interest };
    machine.run(epoll.control(&caller(1), Control::Epoll(add))).map(drop)
}

fn take(machine: &Machine, epoll: &Arc<dyn File>) -> Vec<(u64, u32)> {
    match machine.run(epoll.control(&caller(1), Control::EpollTake { most: 8, signals: None, sure: true })).unwrap() {
        ControlAnswer::Events { ready, .. } => ready.iter().map(|event| (event.data, event.events)).collect(),
        _ => panic!("no events"),
    }
}

fn an_epoll() -> Arc<dyn File> {
    epoll::Epoll::new(free(), OpenFlags::empty()).unwrap()
}

/// Who waits is told of other kernels' files. They are asked only about what they say is ready, once something was done there from here, and
/// before a wait ends with nothing.
#[test]
fn an_epoll_asks_only_about_what_it_was_not_told() {
    let machine = Machine::new(3);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &read);
    let here: Arc<dyn File> = EventFd::new(0, 0).unwrap();
    let epoll = an_epoll();
    add(&machine, &epoll, 3, &far, 1).unwrap();
    add(&machine, &epoll, 4, &here, 1).unwrap();
    let who = caller(1);
    let data = |events: Vec<crate::control::EpollInterest>| events.iter().map(|event| event.data).collect::<Vec<_>>();
    let wait = |wait| data(machine.run(epoll::wait(&epoll, &who, 8, wait)).unwrap());
    assert_eq!(wait(epoll::Wait::No), []);
    let before = sockets::messages(&machine);
    for _ in 0..100 {
        machine.run(here.write(&1u64.to_ne_bytes())).unwrap();
        assert_eq!(wait(epoll::Wait::ForEver), [4]);
        machine.run(here.read(&mut [0; 8])).unwrap();
    }
    assert_eq!(sockets::messages(&machine), before);
    // Its owner's programs, and a third kernel's.
    machine.run(write.write(b"x")).unwrap();
    assert_eq!(wait(epoll::Wait::ForEver), [3]);
    machine.run(far.read(&mut [0; 9])).unwrap();
    let written = machine.pass(0, 2, &write);
    machine.run(written.write(b"y")).unwrap();
    assert_eq!(wait(epoll::Wait::Until(crate::file::ready(()))), [3]);
    machine.run(read.read(&mut [0; 9])).unwrap();
    assert_eq!(wait(epoll::Wait::No), []);
    // This kernel's, with something else that is ready.
    let own = machine.pass(0, 1, &write);
    machine.run(own.write(b"z")).unwrap();
    machine.run(here.write(&1u64.to_ne_bytes())).unwrap();
    let mut both = wait(epoll::Wait::ForEver);
    both.sort();
    assert_eq!(both, [3, 4]);
}

#[test]
fn an_epoll_does_not_keep_another_kernels_file_open() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let epoll = an_epoll();
    let (in_, out) = (Events::IN.bits(), Events::OUT.bits());
    let (far_read, far_write) = (machine.pass(0, 1, &read), machine.pass(0, 1, &write));
    add(&machine, &epoll, 3, &far_read, in_).unwrap();
    add(&machine, &epoll, 4, &far_write, out).unwrap();
    assert_eq!(take(&machine, &epoll), [(4, out)]);
    drop((far_read, far_write));
    machine.settle();
    // Its number is still the file's: another stand-in finds the entry.
    let far_read = machine.pass(0, 1, &read);
    assert_eq!(add(&machine, &epoll, 3, &far_read, in_), Err(Errno::EEXIST));
    drop(far_read);
    machine.run(write.write(b"x")).unwrap();
    assert_eq!(take(&machine, &epoll).len(), 2);
    drop(write);
    assert_eq!(take(&machine, &epoll), [(3, in_ | Events::HUP.bits())]);
    drop(read);
    assert_eq!(take(&machine, &epoll), []);
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 0, "nothing is left of it");
}

#[test]
fn what_was_written_or_read_before_a_wait_is_known_in_it_and_an_edge_is_told_once() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let epoll = an_epoll();
    let in_ = Events::IN.bits();
    let far = machine.pass(0, 1, &read);
    add(&machine, &epoll, 3, &far, in_ | epoll::EDGE).unwrap();
    add(&machine, &epoll, 4, &far, in_).unwrap();
    block_on(write.write(b"x")).unwrap();
    // Nothing has been told yet.
    assert_eq!(take(&machine, &epoll), [(3, in_), (4, in_)]);
    machine.settle();
    assert_eq!(take(&machine, &epoll), [(4, in_)]);
    block_on(read.read(&mut [0; 4])).unwrap();
    assert_eq!(take(&machine, &epoll), []);
}

#[test]
fn a_circle_of_epolls_over_kernels_is_refused() {
    let machine = Machine::new(3);
    let epolls = [an_epoll(), an_epoll(), an_epoll()];
    let seen = |from, to| machine.pass(from, to, &epolls[from]);
    let in_ = Events::IN.bits();
    // 0 watches 1, 1 watches 2: 2 may not watch 0 or 1.
    add(&machine, &epolls[0], 3, &seen(1, 0), in_).unwrap();
    add(&machine, &epolls[1], 3, &seen(2, 1), in_).unwrap();
    machine.settle();
    assert_eq!(add(&machine, &epolls[2], 3, &seen(0, 2), in_), Err(Errno::ELOOP));
    assert_eq!(add(&machine, &epolls[2], 3, &seen(1, 2), in_), Err(Errno::ELOOP));
    let (read, write) = ends();
    add(&machine, &epolls[2], 3, &machine.pass(0, 2, &(read as Arc<dyn File>)), in_).unwrap();
    block_on(write.write(b"x")).unwrap();
    machine.settle();
}

#[test]
fn ways_and_chains_of_epolls_are_limited_over_kernels() {
    let machine = Machine::new(3);
    let in_ = Events::IN.bits();
    let (read, _write) = ends();
    // The file is in an epoll on kernel 1, that in one of kernel 2, and that in many of kernel 0.
    let (bottom, middle) = (an_epoll(), an_epoll());
    add(&machine, &bottom, 3, &machine.pass(0, 1, &read), in_).unwrap();
    add(&machine, &middle, 3, &machine.pass(1, 2, &bottom), in_).unwrap();
    let middle_far = machine.pass(2, 0, &middle);
    let tops: Vec<_> = (0..101).map(|_| an_epoll()).collect();
    let results: Vec<_> = tops.iter().map(|top| add(&machine, top, 3, &middle_far, in_)).collect();
    assert!(results[..100].iter().all(|result| result.is_ok()));
    assert_eq!(results[100], Err(Errno::EINVAL));
    // Downwards, each on the next kernel.
    let chain: Vec<_> = (0..7).map(|_| an_epoll()).collect();
    let add_next = |(kernel, pair): (usize, &[Arc<dyn File>])| {
        add(&machine, &pair[0], 3, &machine.pass((kernel + 1) % 3, kernel % 3, &pair[1]), in_)
    };
    let results: Vec<_> = chain.windows(2).enumerate().map(add_next).collect();
    assert!(results[..4].iter().all(|result| result.is_ok()), "{results:?}");
    assert_eq!(results[4], Err(Errno::ELOOP));
}

#[test]
fn a_file_goes_to_a_third_kernel_and_home_again() {
    let machine = Machine::new(3);
    let (read, write) = ends();
    let first = machine.pass(0, 1, &read);
    let second = machine.pass(1, 2, &first);
    assert_eq!(second.remote().unwrap().owner, KernelId(0));
    drop(first);
    drop(read);
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 1, "kernel 2 has it");
    machine.run(write.write(b"z")).unwrap();
    let home = machine.pass(2, 0, &second);
    assert!(home.remote().is_none());
    drop(second);
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 0);
    assert_eq!(machine.run(home.read(&mut [0; 4])), Ok(1));
}

#[test]
fn a_release_that_crosses_a_reference_does_not_close_the_file() {
    let machine = Machine::new(2);
    let (read, _write) = ends();
    let far = machine.pass(0, 1, &read);
    let opened = machine.run(machine.kernels[0].hand_to(KernelId(1), &read)).unwrap().send();
    drop(far);
    machine.settle();
    let again = machine.kernels[1].accept(opened).unwrap();
    assert!(machine.run(again.attributes()).is_ok());
    drop(again);
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 0);
}

#[test]
fn the_death_of_a_kernel_releases_and_wakes() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &write);
    let own: Arc<dyn File> = EventFd::new(0, 0).unwrap();
    let theirs = machine.pass(1, 0, &own);
    let mut buf = [0; 8];
    let mut blocked = theirs.read(&mut buf);
    assert!(machine.poll(&mut blocked).is_none());
    drop(write);
    let other = &machine.kernels[0];
    other.endpoint.declare_dead(KernelId(1));
    other.kernel_died(KernelId(1));
    assert_eq!(machine.poll(&mut blocked), Some(Err(Errno::EIO)));
    other.release_of(KernelId(1));
    assert_eq!(other.exported(), 0);
    assert_eq!(machine.run(read.read(&mut [0; 4])), Ok(0));
    drop(far);
}

#[test]
fn paths_run_at_the_root_and_files_come_back() {
    let machine = Machine::new(2);
    let paths = AllPaths::new(machine.kernels[1].clone(), KernelId(0), Arc::new(NoClock));
    let who = caller(1);
    let root = machine.run(paths.root()).unwrap();
    let own: Arc<dyn File> = EventFd::new(1, 0).unwrap();
    let base = crate::Base::new(root.clone(), own.clone());
    let open = |path: &[u8]| PathOp::Open { path: path.to_vec(), flags: OpenFlags::empty(), mode: 0, resolve: 0 };
    let answer = machine.run(paths.run(&who, &base, open(b"file")));
    let Ok(PathAnswer::File(file)) = answer else { panic!("no file") };
    assert!(Arc::ptr_eq(&file, &root));
    let Ok(PathAnswer::File(file)) = machine.run(paths.run(&who, &base, open(b"."))) else { panic!("no file") };
    assert!(Arc::ptr_eq(&file, &own), "a file of ours that went there and came back");
    assert_eq!(machine.run(paths.run(&who, &base, open(b"none"))).err(), Some(Errno::ENOENT));
    let link = PathOp::ReadLink { path: b"text".to_vec(), empty_ok: false };
    assert!(matches!(machine.run(paths.run(&who, &base, link)), Ok(PathAnswer::Bytes(text)) if text == b"text"));
    drop((file, base, own));
    machine.settle();
    assert_eq!(machine.kernels[1].exported(), 0);
}

//! The rules of Linux that random programs do not reach, on the space's home and from another kernel.

use abi::ObjectId;
use machine::{errno::Result, Access, Errno, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape, OBJECT_PAGES},
    port::Weather,
};
use std::{future::Future, sync::Arc};
use vm::{Limits, MapAddress, MapRequest, Source, Space};

const RW: Access = Access::READ.union(Access::WRITE);
const PAGE: u64 = PAGE_SIZE as u64;
const BASE: u64 = 0x4000_0000;

struct Setup {
    cluster: Cluster,
    home: Arc<Space>,
    away: Arc<Space>,
}

fn setup() -> Setup {
    let weather = Weather { room: 4, longest: 4096, delay: 5, scramble: false };
    let cluster = Cluster::new(Shape { seed: 7, kernels: 3, cpus: 2, frames: 4096, scarce: false, weather });
    let home = cluster.kernels[0].vm.create().unwrap();
    let away = cluster.kernels[1].vm.attach(home.id()).unwrap();
    Setup { cluster, home, away }
}

impl Setup {
    /// From the home kernel, and from the other.
    fn both(&self) -> [Arc<Space>; 2] {
        [self.home.clone(), self.away.clone()]
    }

    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.cluster.run(work)
    }

    fn map(&self, space: &Arc<Space>, request: MapRequest) -> Result<UserAddr> {
        let space = space.clone();
        self.run(async move { space.map(request).await })
    }

    fn fixed(&self, space: &Arc<Space>, at: u64, pages: u64, prot: Access) -> UserAddr {
        let request = MapRequest::anonymous(pages * PAGE, prot).at(MapAddress::Fixed(UserAddr(at)));
        self.map(space, request).unwrap()
    }

    fn write(&self, space: &Arc<Space>, at: u64, byte: u8) -> Result<()> {
        let space = space.clone();
        self.run(async move { space.write(UserAddr(at), &[byte]).await })
    }

    fn read(&self, space: &Arc<Space>, at: u64) -> Result<u8> {
        let space = space.clone();
        self.run(async move { space.read_value::<u8>(UserAddr(at)).await })
    }

    fn protect(&self, space: &Arc<Space>, at: u64, pages: u64, prot: Access) -> Result<()> {
        let space = space.clone();
        self.run(async move { space.protect(UserAddr(at), pages * PAGE, prot).await })
    }

    fn remap(&self, space: &Arc<Space>, at: u64, old: u64, new: u64, flags: u32, to: u64) -> Result<UserAddr> {
        let space = space.clone();
        self.run(async move { space.remap(UserAddr(at), old, new, flags, UserAddr(to), false).await })
    }

    fn advise(&self, space: &Arc<Space>, at: u64, pages: u64, advice: u32) -> Result<()> {
        let space = space.clone();
        self.run(async move { space.advise(UserAddr(at), pages * PAGE, advice).await })
    }

    fn file(&self, space: &Arc<Space>, shared: bool, limit: Access, prot: Access) -> Result<UserAddr> {
        let kernel = &self.cluster.kernels[0];
        let object = kernel.objects.get(ObjectId { owner: kernel.id, serial: 9 });
        let source = Source::Object { object, offset: 0, label: (*b"/f").into(), limit };
        let length = (OBJECT_PAGES + 2) * PAGE;
        self.map(space, MapRequest { shared, source, ..MapRequest::anonymous(length, prot) })
    }
}

#[test]
fn mmap_refuses_what_linux_refuses() {
    let setup = setup();
    for space in setup.both() {
        let at = |place| MapRequest::anonymous(PAGE, RW).at(place);
        let map = |request| setup.map(&space, request);
        assert_eq!(map(MapRequest::anonymous(0, RW)), Err(Errno::EINVAL));
        assert_eq!(map(MapRequest::anonymous(1 << 47, RW)), Err(Errno::ENOMEM));
        assert_eq!(map(MapRequest::anonymous(u64::MAX - 5, RW)), Err(Errno::ENOMEM));
        assert_eq!(map(at(MapAddress::Fixed(UserAddr(BASE + 1)))), Err(Errno::EINVAL));
        assert_eq!(map(at(MapAddress::Fixed(UserAddr(0)))), Err(Errno::EPERM));
        assert_eq!(map(at(MapAddress::Fixed(UserAddr(machine::USER_END)))), Err(Errno::ENOMEM));
        assert_eq!(map(at(MapAddress::Fixed(UserAddr(!0xfff)))), Err(Errno::ENOMEM));
        // A hint is only a hint, but a good one is taken.
        let near = BASE + 0x10_0000 + space.id().serial * 64 * PAGE;
        assert_eq!(map(at(MapAddress::Hint(UserAddr(near + 5)))), Ok(UserAddr(near)));
        assert_ne!(map(at(MapAddress::Hint(UserAddr(near)))), Ok(UserAddr(near)));
        assert_eq!(map(at(MapAddress::FixedNoReplace(UserAddr(near)))), Err(Errno::EEXIST));
        setup.run({
            let space = space.clone();
            async move { space.unmap(UserAddr(near), PAGE).await.unwrap() }
        });
    }
}

#[test]
fn protection_is_obeyed_and_a_hole_stops_mprotect() {
    let setup = setup();
    let [home, away] = setup.both();
    setup.fixed(&home, BASE, 4, RW);
    for space in [&home, &away] {
        setup.write(space, BASE, 1).unwrap();
        assert_eq!(setup.protect(space, BASE + 1, 1, RW), Err(Errno::EINVAL));
        assert_eq!(setup.protect(space, BASE, 0, RW), Ok(()));
        // Pages before the hole are changed all the same.
        assert_eq!(setup.protect(space, BASE + 3 * PAGE, 2, Access::READ), Err(Errno::ENOMEM));
        assert_eq!(setup.write(space, BASE + 3 * PAGE, 1), Err(Errno::EFAULT));
        assert_eq!(setup.read(space, BASE + 3 * PAGE), Ok(0));
        setup.protect(space, BASE, 1, Access::empty()).unwrap();
        assert_eq!(setup.read(&home, BASE), Err(Errno::EFAULT));
        assert_eq!(setup.read(&away, BASE), Err(Errno::EFAULT));
        // Write-only memory can be read on this machine; what was in it is still there.
        setup.protect(space, BASE, 1, Access::WRITE).unwrap();
        assert_eq!(setup.read(&away, BASE), Ok(1));
        assert_eq!(setup.read(&home, BASE), Ok(1));
        setup.protect(space, BASE + 3 * PAGE, 1, RW).unwrap();
    }
}

#[test]
fn the_stack_grows_to_its_limit_and_not_into_its_neighbour() {
    let setup = setup();
    let [home, away] = setup.both();
    home.set_limits(Limits { stack: 600 * PAGE, ..Limits::default() });
    let top = 0x7000_0000_0000u64;
    let request = MapRequest { stack: true, ..MapRequest::anonymous(4 * PAGE, RW) };
    setup.map(&home, request.at(MapAddress::Fixed(UserAddr(top - 4 * PAGE)))).unwrap();
    setup.write(&home, top - 10 * PAGE, 1).unwrap();
    setup.write(&away, top - 300 * PAGE, 2).unwrap();
    assert_eq!(setup.read(&home, top - 299 * PAGE), Ok(0));
    assert_eq!(setup.write(&away, top - 601 * PAGE, 1), Err(Errno::EFAULT));
    setup.fixed(&home, top - 800 * PAGE, 1, RW);
    // 256 pages below must stay free.
    assert_eq!(setup.write(&home, top - 544 * PAGE, 1), Err(Errno::EFAULT));
    assert_eq!(setup.write(&home, top - 543 * PAGE, 1), Ok(()));
}

#[test]
fn a_stack_without_a_limit_does_not_grow_over_what_another_kernel_mapped() {
    let setup = setup();
    let [home, away] = setup.both();
    home.set_limits(Limits { stack: u64::MAX, ..Limits::default() });
    let top = 0x7000_0000_0000u64;
    let request = MapRequest { stack: true, ..MapRequest::anonymous(4 * PAGE, RW) };
    setup.map(&home, request.at(MapAddress::Fixed(UserAddr(top - 4 * PAGE)))).unwrap();
    // In a slice of its own, which `home` looks into only by asking.
    let other = setup.map(&away, MapRequest::anonymous(64 * PAGE, RW)).unwrap().0;
    assert_eq!(setup.write(&home, BASE, 1), Err(Errno::EFAULT));
    assert_eq!(setup.write(&home, other + 32 * PAGE, 1), Ok(()));
    assert_eq!(setup.read(&away, other + 32 * PAGE), Ok(1));
    assert_eq!(setup.write(&home, top - 10_000 * PAGE, 1), Ok(()));
}

#[test]
fn files_end_where_they_end() {
    let setup = setup();
    for space in setup.both() {
        let all = Access::all();
        for (shared, prot) in [(false, Access::READ), (false, RW), (true, RW)] {
            let at = setup.file(&space, shared, all, prot).unwrap().0;
            assert!(setup.read(&space, at + (OBJECT_PAGES - 1) * PAGE).is_ok());
            assert_eq!(setup.read(&space, at + OBJECT_PAGES * PAGE), Err(Errno::EFAULT));
            let fault = space.clone();
            let beyond = UserAddr(at + OBJECT_PAGES * PAGE);
            let result = setup.run(async move { fault.fault(beyond, Access::READ).await });
            assert_eq!(result, Err(vm::Fault::PastEnd));
        }
        // A file opened for reading can't be mapped for writing to it, nor made so later.
        assert_eq!(setup.file(&space, true, Access::READ, RW), Err(Errno::EACCES));
        let at = setup.file(&space, true, Access::READ, Access::READ).unwrap();
        assert_eq!(setup.protect(&space, at.0, 1, RW), Err(Errno::EACCES));
    }
}

#[test]
fn shared_file_pages_are_one_page_for_all_kernels_and_spaces() {
    let setup = setup();
    let other = setup.cluster.kernels[2].vm.create().unwrap();
    let one = setup.file(&setup.away, true, Access::all(), RW).unwrap().0;
    let two = setup.file(&other, true, Access::all(), RW).unwrap().0;
    let private = setup.file(&setup.home, false, Access::all(), RW).unwrap().0;
    setup.write(&setup.away, one + 77, 5).unwrap();
    assert_eq!(setup.read(&other, two + 77), Ok(5));
    setup.write(&other, two + 77, 6).unwrap();
    assert_eq!(setup.read(&setup.home, one + 77), Ok(6));
    assert_eq!(setup.read(&setup.home, private + 77), Ok(6));
    setup.write(&setup.home, private + 77, 7).unwrap();
    assert_eq!(setup.read(&other, two + 77), Ok(6));
    // Truncation takes the pages from everybody.
    let kernel = setup.cluster.kernels[0].vm.clone();
    let object = ObjectId { owner: setup.cluster.kernels[0].id, serial: 9 };
    let lost = fs::Lost { object, first: 0, end: u64::MAX, private: true };
    setup.run(async move { fs::Mappers::lost(&*kernel, lost).await });
    assert!(other.table().get(UserAddr(two).page()).is_none());
    assert!(setup.away.table().get(UserAddr(one).page()).is_none());
}

#[test]
fn mremap_answers_as_linux() {
    let setup = setup();
    for space in setup.both() {
        setup.fixed(&space, BASE, 4, RW);
        setup.write(&setup.home, BASE + 2 * PAGE, 9).unwrap();
        let remap = |old, new, flags, to| setup.remap(&space, BASE, old * PAGE, new * PAGE, flags, to);
        assert_eq!(remap(4, 8, 2, 0), Err(Errno::EINVAL), "FIXED without MAYMOVE");
        assert_eq!(remap(4, 8, 8, 0), Err(Errno::EINVAL), "unknown flag");
        assert_eq!(remap(4, 0, 1, 0), Err(Errno::EINVAL), "nothing left");
        assert_eq!(remap(4, 8, 5, 0), Err(Errno::EINVAL), "DONTUNMAP can't grow");
        assert_eq!(remap(4, 4, 3, BASE + PAGE), Err(Errno::EINVAL), "overlap");
        assert_eq!(remap(4, 4, 5, BASE + PAGE), Err(Errno::EINVAL), "the hint of DONTUNMAP overlaps");
        assert_eq!(remap(4, 4, 5, BASE + 99), Err(Errno::EINVAL), "no page's address");
        assert_eq!(remap(0, 4, 1, 0), Err(Errno::EINVAL), "only shared memory can be doubled");
        assert_eq!(remap(5, 6, 1, 0), Err(Errno::EFAULT), "past the region");
        assert_eq!(setup.remap(&space, BASE - PAGE, PAGE, PAGE, 1, 0), Err(Errno::EFAULT), "a hole");
        setup.fixed(&space, BASE + 4 * PAGE, 1, Access::READ);
        assert_eq!(remap(4, 6, 0, 0), Err(Errno::ENOMEM), "no room and may not move");
        let moved = remap(4, 6, 1, 0).unwrap().0;
        assert_eq!(setup.read(&setup.away, moved + 2 * PAGE), Ok(9));
        assert_eq!(setup.read(&space, BASE + 2 * PAGE), Err(Errno::EFAULT));
        let back = setup.remap(&space, moved, 6 * PAGE, 6 * PAGE, 5, 0).unwrap().0;
        assert_eq!(setup.read(&space, back + 2 * PAGE), Ok(9), "DONTUNMAP moves the pages");
        assert_eq!(setup.read(&space, moved + 2 * PAGE), Ok(0), "and leaves the region");
        let near = BASE + 64 * PAGE;
        let hinted = setup.remap(&space, back, 6 * PAGE, 6 * PAGE, 5, near).unwrap().0;
        assert_eq!((hinted, setup.read(&setup.away, near + 2 * PAGE)), (near, Ok(9)), "a hint is taken");
        let other = setup.remap(&space, hinted, 6 * PAGE, 6 * PAGE, 5, moved).unwrap().0;
        assert_ne!(other, moved, "unless something is there");
        assert_eq!(setup.read(&space, other + 2 * PAGE), Ok(9));
        let space = space.clone();
        setup.run(async move { space.unmap(UserAddr(near), 6 * PAGE).await.unwrap() });
    }
}

#[test]
fn madvise_answers_as_linux() {
    let setup = setup();
    for space in setup.both() {
        setup.fixed(&space, BASE, 2, RW);
        setup.write(&setup.home, BASE, 3).unwrap();
        assert_eq!(setup.advise(&space, BASE + 1, 1, 4), Err(Errno::EINVAL));
        assert_eq!(setup.advise(&space, BASE, 1, 77), Err(Errno::EINVAL));
        assert_eq!(setup.advise(&space, BASE, 3, 4), Err(Errno::ENOMEM), "applied, but there is a hole");
        assert_eq!(setup.read(&setup.away, BASE), Ok(0));
        assert_eq!(setup.advise(&space, BASE, 2, 23), Ok(()));
        assert_eq!(setup.protect(&space, BASE, 2, Access::READ), Ok(()));
        assert_eq!(setup.advise(&space, BASE, 2, 23), Err(Errno::EINVAL));
        let resident = space.clone();
        let pages = setup.run(async move { resident.resident(UserAddr(BASE), 2 * PAGE).await });
        assert_eq!(pages, Ok(vec![true, true]));
        let resident = space.clone();
        let pages = setup.run(async move { resident.resident(UserAddr(BASE), 3 * PAGE).await });
        assert_eq!(pages, Err(Errno::ENOMEM));
    }
}

#[test]
fn a_child_has_what_the_advice_left_it() {
    let setup = setup();
    for parent in setup.both() {
        setup.fixed(&parent, BASE, 3, RW);
        (0..3).for_each(|page| setup.write(&setup.home, BASE + page * PAGE, 4).unwrap());
        setup.advise(&parent, BASE, 1, 10).unwrap();
        setup.advise(&parent, BASE + PAGE, 1, 18).unwrap();
        let forking = parent.clone();
        let child = setup.run(async move { forking.fork().await }).unwrap();
        assert_eq!(setup.read(&child, BASE), Err(Errno::EFAULT), "DONTFORK");
        assert_eq!(setup.read(&child, BASE + PAGE), Ok(0), "WIPEONFORK");
        assert_eq!(setup.read(&child, BASE + 2 * PAGE), Ok(4));
        setup.write(&child, BASE + 2 * PAGE, 5).unwrap();
        assert_eq!(setup.read(&setup.away, BASE + 2 * PAGE), Ok(4));
    }
}

#[test]
fn a_futex_word_has_one_key_on_all_kernels() {
    let setup = setup();
    let at = setup.fixed(&setup.home, BASE, 1, RW);
    let own = setup.map(&setup.away, MapRequest::anonymous(PAGE, RW)).unwrap();
    for (at, owner) in [(at, 0), (own, 1)] {
        for shared in [false, true] {
            let keys = setup.both().map(|space| setup.run(async move { space.futex_key(at, shared).await.unwrap() }));
            assert_eq!(keys[0], keys[1]);
            assert_eq!(keys[0].kernel.index(), owner);
        }
    }
    let file = setup.file(&setup.away, true, Access::all(), RW).unwrap();
    let keys = setup.both().map(|space| setup.run(async move { space.futex_key(file.add(8), true).await.unwrap() }));
    assert_eq!(keys[0], keys[1]);
    assert!(matches!(keys[0].place, vm::FutexPlace::Shared { offset: 8, .. }));
    let space = setup.away.clone();
    let nowhere = setup.run(async move { space.futex_key(UserAddr(0x5000), true).await });
    assert_eq!(nowhere, Err(Errno::EFAULT));
}

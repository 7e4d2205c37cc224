use super::*;
use crate::{event::EventFd, pipe::pipe, pipe::PipeEnd, testing::*};

const IN: u32 = Events::IN.bits();
const OUT: u32 = Events::OUT.bits();
const HUP: u32 = Events::HUP.bits();

fn add(epoll: &Epoll, fd: i32, file: &Arc<dyn File>, events: u32) -> Result<()> {
    let interest = EpollInterest { events, data: fd as u64 };
    block_on(epoll.change(&caller(1), EpollControl::Add { fd, file: file.clone(), interest }))
}

fn modify(epoll: &Epoll, fd: i32, file: &Arc<dyn File>, events: u32) -> Result<()> {
    let interest = EpollInterest { events, data: fd as u64 };
    block_on(epoll.change(&caller(1), EpollControl::Modify { fd, file: file.clone(), interest }))
}

fn delete(epoll: &Epoll, fd: i32, file: &Arc<dyn File>) -> Result<()> {
    block_on(epoll.change(&caller(1), EpollControl::Delete { fd, file: file.clone() }))
}

fn taken(epoll: &Epoll) -> Vec<(u64, u32)> {
    epoll.take(&caller(1), None, 64).into_iter().map(|event| (event.data, event.events)).collect()
}

fn ends() -> (Arc<dyn File>, Arc<PipeEnd>) {
    let (read, write) = pipe(&caller(1), &free(), OpenFlags::NONBLOCK).unwrap();
    (read, write)
}

fn epoll() -> Arc<Epoll> {
    Epoll::new(free(), OpenFlags::empty()).unwrap()
}

#[test]
fn level_stays_edge_tells_once_per_change_and_oneshot_once() {
    for (mode, second) in [(0, true), (EDGE, false), (ONESHOT, false)] {
        let epoll = epoll();
        let (read, write) = ends();
        add(&epoll, 3, &read, IN | mode).unwrap();
        assert_eq!(taken(&epoll), []);
        block_on(write.write(b"a")).unwrap();
        assert_eq!(taken(&epoll), [(3, IN)]);
        assert_eq!(!taken(&epoll).is_empty(), second);
        block_on(write.write(b"b")).unwrap();
        assert_eq!(!taken(&epoll).is_empty(), mode != ONESHOT, "another edge");
        drop(write);
        assert_eq!(taken(&epoll).is_empty(), mode == ONESHOT, "hang-up, too, only until rearmed");
        modify(&epoll, 3, &read, IN | mode).unwrap();
        assert_eq!(taken(&epoll), [(3, IN | HUP)]);
    }
}

#[test]
fn reading_is_no_edge_for_the_reader() {
    let epoll = epoll();
    let (read, write) = ends();
    add(&epoll, 3, &read, IN | EDGE).unwrap();
    block_on(write.write(b"abc")).unwrap();
    assert_eq!(taken(&epoll), [(3, IN)]);
    block_on(read.read(&mut [0; 1])).unwrap();
    assert_eq!(taken(&epoll), []);
}

#[test]
fn errors_of_epoll_ctl() {
    let epoll = epoll();
    let (read, _write) = ends();
    assert_eq!(delete(&epoll, 3, &read), Err(Errno::ENOENT));
    assert_eq!(modify(&epoll, 3, &read, IN), Err(Errno::ENOENT));
    add(&epoll, 3, &read, IN).unwrap();
    assert_eq!(add(&epoll, 3, &read, IN), Err(Errno::EEXIST));
    add(&epoll, 4, &read, IN).unwrap();
    assert_eq!(add(&epoll, 5, &read, IN | EXCLUSIVE | ONESHOT), Err(Errno::EINVAL));
    add(&epoll, 5, &read, IN | EXCLUSIVE).unwrap();
    assert_eq!(modify(&epoll, 5, &read, IN), Err(Errno::EINVAL));
    assert_eq!(modify(&epoll, 4, &read, IN | EXCLUSIVE), Err(Errno::EINVAL));
    let itself: Arc<dyn File> = epoll.clone();
    assert_eq!(add(&epoll, 6, &itself, IN), Err(Errno::EINVAL));
    delete(&epoll, 3, &read).unwrap();
    assert_eq!(delete(&epoll, 3, &read), Err(Errno::ENOENT));
    assert_eq!(Epoll::new(free(), OpenFlags::NONBLOCK).err(), Some(Errno::EINVAL));
}

#[test]
fn a_closed_file_vanishes_and_its_number_is_free_again() {
    let epoll = epoll();
    let (read, write) = ends();
    add(&epoll, 3, &read, IN).unwrap();
    block_on(write.write(b"a")).unwrap();
    drop(read);
    assert_eq!(taken(&epoll), []);
    assert!(epoll.shared.entries.lock().all.is_empty());
    let (read, write) = ends();
    add(&epoll, 3, &read, IN).unwrap();
    block_on(write.write(b"a")).unwrap();
    assert_eq!(taken(&epoll), [(3, IN)]);
    drop(epoll);
    assert!(!read.changes().unwrap().has_waiters());
}

#[test]
fn more_ready_than_asked_for_takes_turns() {
    let epoll = epoll();
    let files: Vec<Arc<dyn File>> = (0..5).map(|_| EventFd::new(1, 0).unwrap() as Arc<dyn File>).collect();
    for (fd, file) in files.iter().enumerate() {
        add(&epoll, fd as i32, file, IN).unwrap();
    }
    let mut seen: Vec<u64> = (0..5).flat_map(|_| epoll.take(&caller(1), None, 2)).map(|event| event.data).collect();
    seen.sort();
    assert_eq!(seen, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn an_epoll_in_an_epoll_is_readable_when_it_has_events() {
    let (outer, inner) = (epoll(), epoll());
    let (read, write) = ends();
    let inner_file: Arc<dyn File> = inner.clone();
    add(&outer, 9, &inner_file, IN).unwrap();
    add(&inner, 3, &read, IN).unwrap();
    assert_eq!(taken(&outer), []);
    block_on(write.write(b"a")).unwrap();
    assert_eq!(taken(&outer), [(9, IN)]);
    assert_eq!(taken(&inner), [(3, IN)]);
    block_on(read.read(&mut [0; 1])).unwrap();
    assert_eq!(taken(&outer), []);
    let outer_file: Arc<dyn File> = outer.clone();
    assert_eq!(add(&inner, 8, &outer_file, IN), Err(Errno::ELOOP));
}

/// Adds ten epolls to each other, and answers how many of them could be.
fn chain(up: bool) -> usize {
    let epolls: Vec<_> = (0..10).map(|_| epoll()).collect();
    let add = |pair: &[Arc<Epoll>]| {
        let (above, below) = if up { (&pair[1], &pair[0]) } else { (&pair[0], &pair[1]) };
        let below: Arc<dyn File> = below.clone();
        add(above, 1, &below, IN)
    };
    let results: Vec<_> = epolls.windows(2).map(add).collect();
    let added = results.iter().take_while(|result| result.is_ok()).count();
    assert_eq!(results[added], Err(Errno::ELOOP));
    added
}

#[test]
fn a_chain_of_epolls_is_limited_whichever_end_grows() {
    assert_eq!((chain(true), chain(false)), (4, 4));
}

/// Adds a file to an epoll, that to as many as `levels` names, one after the other, and the last to as many as can be. Answers how
/// many these are.
fn fan(levels: usize, with_file: bool) -> usize {
    let (read, _write) = ends();
    let mut top = epoll();
    let mut kept = Vec::new();
    if with_file {
        add(&top, 1, &read, IN).unwrap();
    }
    for _ in 0..levels {
        let above = epoll();
        let below: Arc<dyn File> = top.clone();
        add(&above, 1, &below, IN).unwrap();
        kept.push(core::mem::replace(&mut top, above));
    }
    let below: Arc<dyn File> = top.clone();
    let added = |_: &usize| {
        let above = epoll();
        let result = add(&above, 1, &below, IN);
        assert!(result.is_ok() || result == Err(Errno::EINVAL));
        kept.push(above);
        result.is_ok()
    };
    let added = (0..1200).take_while(added).count();
    if !with_file && added == 1200 {
        assert_eq!(add(&top, 1, &read, IN), Err(Errno::EINVAL), "a file in it is in all of them");
    }
    added
}

#[test]
fn ways_up_from_one_file_are_limited() {
    assert_eq!((fan(0, true), fan(1, true), fan(2, true), fan(3, true)), (500, 100, 50, 10));
    assert_eq!(fan(0, false), 1200, "the first is not counted");
}

#[test]
fn of_exclusive_entries_one_with_a_waiter_is_told() {
    let (read, write) = ends();
    let who = caller(1);
    let epolls: Vec<_> = (0..4).map(|_| epoll()).collect();
    for epoll in &epolls {
        add(epoll, 3, &read, IN | EXCLUSIVE).unwrap();
    }
    let files: Vec<Arc<dyn File>> = epolls.iter().map(|epoll| epoll.clone() as Arc<dyn File>).collect();
    // The first has no waiter: it is told too, for its next wait.
    let mut waiting: Vec<_> =
        files[1..].iter().map(|file| alloc::boxed::Box::pin(wait(file, &who, 8, Wait::ForEver))).collect();
    assert!(waiting.iter_mut().all(|waiting| once(waiting.as_mut()).is_none()));
    let write_and_look = || {
        block_on(write.write(b"a")).unwrap();
        epolls.iter().map(|epoll| epoll.shared.ready.lock().len()).collect::<Vec<_>>()
    };
    assert_eq!(write_and_look(), [1, 1, 0, 0]);
    assert_eq!(write_and_look(), [1, 1, 1, 0]);
    let woken: Vec<_> = waiting.iter_mut().map(|waiting| once(waiting.as_mut()).is_some()).collect();
    assert_eq!(woken, [true, true, false]);
}

#[test]
fn a_waiter_wakes_up_for_an_event_and_gives_up_after_the_timeout() {
    let epoll = epoll();
    let (read, write) = ends();
    add(&epoll, 3, &read, IN | OUT).unwrap();
    let file: Arc<dyn File> = epoll.clone();
    let who = caller(1);
    let none = block_on(wait(&file, &who, 8, Wait::No));
    assert_eq!(none.unwrap(), []);
    let mut waiting = alloc::boxed::Box::pin(wait(&file, &who, 8, Wait::ForEver));
    assert!(once(waiting.as_mut()).is_none());
    block_on(write.write(b"a")).unwrap();
    let events = once(waiting.as_mut()).unwrap().unwrap();
    assert_eq!(events, [EpollInterest { events: IN, data: 3 }]);
    assert_eq!(block_on(wait(&file, &who, 0, Wait::ForEver)), Err(Errno::EINVAL));
}

#[test]
fn an_epoll_that_is_being_added_closes_a_circle_already() {
    let (one, other) = (epoll(), epoll());
    let (first, second): (Arc<dyn File>, Arc<dyn File>) = (one.clone(), other.clone());
    let interest = EpollInterest { events: IN, data: 0 };
    // As long as another kernel is asked what lies below.
    let entered = one
        .enter((3, Description::of(&second)), &Watched::Here(second.clone()), None, interest, Entering::New)
        .unwrap();
    assert_eq!(add(&other, 3, &first, IN), Err(Errno::ELOOP));
    assert_eq!(add(&one, 3, &second, IN), Err(Errno::EEXIST));
    drop(entered);
    add(&other, 3, &first, IN).unwrap();
    assert_eq!(add(&one, 3, &second, IN), Err(Errno::ELOOP));
    assert!(one.shared.entries.lock().all.is_empty());
}

#[test]
fn who_made_it_pays_for_what_it_watches() {
    let account = Account::new(None, &[(Resource::Watches, 2)]);
    let epoll = Epoll::new(account.clone(), OpenFlags::empty()).unwrap();
    let files: Vec<Arc<dyn File>> = (0..3).map(|_| EventFd::new(0, 0).unwrap() as Arc<dyn File>).collect();
    let watch = |at: usize| add(&epoll, at as i32, &files[at], IN);
    assert_eq!([watch(0), watch(1), watch(2), watch(1)], [Ok(()), Ok(()), Err(Errno::ENOSPC), Err(Errno::EEXIST)]);
    assert_eq!(delete(&epoll, 0, &files[0]), Ok(()));
    assert_eq!([watch(2), watch(0)], [Ok(()), Err(Errno::ENOSPC)]);
    drop(epoll);
    assert_eq!(account.used(Resource::Watches), 0);
}

#[test]
fn what_is_no_longer_watched_does_not_stay_on_the_ready_list() {
    let account = free();
    let epoll = Epoll::new(account.clone(), OpenFlags::empty()).unwrap();
    let ready: Arc<dyn File> = EventFd::new(1, 0).unwrap();
    add(&epoll, 7, &ready, IN).unwrap();
    for _ in 0..1000 {
        add(&epoll, 3, &ready, IN).unwrap();
        delete(&epoll, 3, &ready).unwrap();
        assert_eq!(account.used(Resource::Watches), 1);
    }
    assert!(epoll.shared.ready.lock().len() < 100);
    assert_eq!(taken(&epoll), [(7, IN)]);
}

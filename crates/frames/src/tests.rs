//! The allocator against a set of frames, and under threads.

use crate::{cache, Config, Foreign, NotLent, OwnFrame, OwnWords, Partition, Pins, Purpose, TooSmall, MAX_ORDER};
use core::{cell::Cell, ops::Range, slice};
use machine::{Frame, KernelId, Words, PAGE_SIZE};
use proptest::prelude::*;
use std::{
    alloc::{alloc, Layout},
    collections::BTreeMap,
    panic::{catch_unwind, AssertUnwindSafe},
    thread, thread_local,
    vec::Vec,
};

const PAGE: u64 = PAGE_SIZE as u64;
/// Who is lent to.
const THERE: KernelId = KernelId(3);

thread_local!(static CPU: Cell<usize> = const { Cell::new(0) });

/// A partition over host memory that lasts as long as the test process, full of rubbish.
fn partition(ranges: &[Range<u64>], reserved: &[Range<u64>], cpus: usize) -> Result<Partition, TooSmall> {
    let (start, end) = (ranges[0].start, ranges[ranges.len() - 1].end);
    let bytes = (end - start) as usize;
    // SAFETY: not empty; the partition gets memory of its own that is never freed.
    unsafe {
        let memory = alloc(Layout::from_size_align(bytes, PAGE_SIZE).unwrap());
        memory.write_bytes(0xa5, bytes);
        let direct_base = (memory as usize).wrapping_sub(start as usize);
        Partition::new(&Config { direct_base, ranges, reserved, cpus, cpu: || CPU.get() })
    }
}

fn pages(range: Range<u64>) -> Range<u64> {
    range.start * PAGE..range.end * PAGE
}

fn is_zero(partition: &Partition, frame: Frame) -> bool {
    // SAFETY: a mapped page that only this test uses.
    let bytes = unsafe { slice::from_raw_parts(partition.pointer(frame).as_ptr(), PAGE_SIZE) };
    bytes.iter().all(|byte| *byte == 0)
}

fn dirty(partition: &Partition, frame: Frame) {
    // SAFETY: as above.
    unsafe { partition.pointer(frame).as_ptr().write_bytes(0x5a, PAGE_SIZE) };
}

fn panics(action: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(action)).is_err()
}

#[derive(Clone, Debug)]
enum Action {
    Alloc,
    Run(usize),
    Retain(usize),
    Release(usize),
    Lend(usize),
    Home(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Alloc),
        2 => (0..=MAX_ORDER + 1).prop_map(Action::Run),
        1 => any::<usize>().prop_map(Action::Retain),
        4 => any::<usize>().prop_map(Action::Release),
        1 => any::<usize>().prop_map(Action::Lend),
        1 => any::<usize>().prop_map(Action::Home),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Counted(u32),
    Run(usize),
    Lent,
}

fn nth(held: &BTreeMap<Frame, Use>, n: usize, wanted: impl Fn(Use) -> bool) -> Option<(Frame, Use)> {
    let fitting: Vec<_> = held.iter().filter(|(_, state)| wanted(**state)).collect();
    let (frame, state) = *fitting.get(n % fitting.len().max(1))?;
    Some((*frame, *state))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    /// Whatever is done, what is handed out is ours, disjoint, zeroed, aligned, and accounted for;
    /// and in the end everything merges back.
    #[test]
    fn agrees_with_a_set_of_frames(actions in prop::collection::vec(action(), 1..300)) {
        let ranges = [pages(0x1003..0x1900), pages(0x1a00..0x1a01), pages(0x2000..0x2c00)];
        let reserved = [pages(0x2100..0x2200), PAGE * 0x1004 + 5..PAGE * 0x1006 + 7];
        let partition = partition(&ranges, &reserved, 2).unwrap();
        let inside = |frame: Frame| {
            let at = frame.address();
            ranges.iter().any(|range| range.contains(&at))
                && !reserved.iter().any(|range| range.start / PAGE * PAGE <= at && at < range.end)
        };
        let free_at_first = partition.totals().1;
        let mut held = BTreeMap::<Frame, Use>::new();
        let used = |held: &BTreeMap<Frame, Use>| -> u64 {
            held.values().map(|state| match state { Use::Run(order) => 1 << order, _ => 1 }).sum()
        };
        for (step, action) in actions.into_iter().enumerate() {
            CPU.set(step / 7 % 2);
            match action {
                Action::Alloc => if let Some(frame) = partition.alloc() {
                    prop_assert!(inside(frame) && is_zero(&partition, frame));
                    dirty(&partition, frame);
                    prop_assert_eq!(held.insert(frame, Use::Counted(1)), None);
                } else {
                    prop_assert_eq!(used(&held), free_at_first);
                },
                Action::Run(order) => if let Some(first) = partition.alloc_run(order) {
                    prop_assert_eq!(first.0 % (1 << order), 0);
                    for frame in (first.0..first.0 + (1 << order)).map(Frame) {
                        prop_assert!(inside(frame));
                        prop_assert_eq!(partition.count(frame), 0);
                        dirty(&partition, frame);
                    }
                    let before = held.range(..Frame(first.0 + (1 << order))).next_back();
                    if let Some((frame, state)) = before {
                        let len = match state { Use::Run(order) => 1 << order, _ => 1 };
                        prop_assert!(frame.0 + len <= first.0);
                    }
                    held.insert(first, Use::Run(order));
                },
                Action::Retain(n) => if let Some((frame, Use::Counted(count))) = nth(&held, n, |state| matches!(state, Use::Counted(_))) {
                    partition.retain(frame);
                    held.insert(frame, Use::Counted(count + 1));
                },
                Action::Release(n) => match nth(&held, n, |state| state != Use::Lent) {
                    Some((frame, Use::Counted(count))) => {
                        partition.release(frame);
                        held.remove(&frame);
                        if count > 1 {
                            held.insert(frame, Use::Counted(count - 1));
                        }
                    }
                    Some((frame, Use::Run(order))) => {
                        partition.free_run(frame, order);
                        held.remove(&frame);
                    }
                    _ => (),
                },
                Action::Lend(n) => if let Some((frame, _)) = nth(&held, n, |state| state == Use::Counted(1)) {
                    partition.lend(frame, THERE);
                    held.insert(frame, Use::Lent);
                },
                Action::Home(n) => if let Some((frame, _)) = nth(&held, n, |state| state == Use::Lent) {
                    prop_assert_eq!(partition.take_home(frame, THERE), Ok(()));
                    held.remove(&frame);
                },
            }
            for (frame, state) in &held {
                let count = match state { Use::Counted(count) => *count, _ => 0 };
                prop_assert_eq!(partition.count(*frame), count);
                prop_assert_eq!(partition.is_lent(*frame), *state == Use::Lent);
            }
            prop_assert_eq!(partition.totals().1, free_at_first - used(&held));
        }
    }
}

#[test]
fn every_frame_can_be_had_once_and_then_there_is_none() {
    let partition = partition(&[pages(0x100..0x500)], &[], 3).unwrap();
    let (total, free) = partition.totals();
    assert_eq!(total, 0x400);
    // The tables are the only cost.
    assert!(free >= total - 8, "{free} of {total}");
    // Some sit in the caches of the other CPUs, and are found there.
    for cpu in [1, 2] {
        CPU.set(cpu);
        let frame = partition.alloc().unwrap();
        partition.release(frame);
    }
    CPU.set(0);
    let mut all: Vec<_> = core::iter::from_fn(|| partition.alloc()).collect();
    assert_eq!(all.len() as u64, free);
    assert_eq!(partition.alloc_run(0), None);
    assert_eq!(partition.totals().1, 0);
    all.sort();
    all.dedup();
    assert_eq!(all.len() as u64, free);
    all.into_iter().for_each(|frame| partition.release(frame));
    assert_eq!(partition.totals().1, free);
    // Merged again, although the caches keep a few until a run is asked for.
    let run = partition.alloc_run(9).unwrap();
    partition.free_run(run, 9);
}

#[test]
fn the_tables_cost_less_than_seven_bytes_a_frame() {
    let partition = partition(&[pages(0x1000..0x9000)], &[], 4).unwrap();
    let (total, free) = partition.totals();
    assert!((total - free) * PAGE <= total * 7 + PAGE, "{} pages", total - free);
}

#[test]
fn no_room_is_an_error() {
    assert_eq!(partition(&[pages(0x10..0x20)], &[pages(0x10..0x1f)], 64).err(), Some(TooSmall));
    assert_eq!(partition(&[pages(0x10..0x20)], &[pages(0..0x100)], 1).err(), Some(TooSmall));
}

#[test]
fn words_keep_their_frame_and_are_added_to_in_place() {
    let partition = partition(&[pages(0x100..0x120)], &[], 1).unwrap();
    let frame = partition.alloc().unwrap();
    let words = OwnWords::new(&partition, frame);
    partition.release(frame);
    assert_eq!(partition.count(frame), 1);
    assert_eq!([words.add(8, 3), words.add(8, u32::MAX), words.load(8), words.load(12)], [3, 2, 2, 0]);
    assert!(panics(|| _ = words.load(2)) && panics(|| _ = words.add(PAGE_SIZE, 1)));
    drop(words);
    assert_eq!(partition.count(frame), 0);
}

#[test]
fn a_wrong_transition_panics_but_not_for_the_word_of_another_kernel() {
    let partition = partition(&[pages(0x100..0x200)], &[pages(0x180..0x190)], 1).unwrap();
    let shared = partition.alloc().unwrap();
    partition.retain(shared);
    assert!(panics(|| partition.lend(shared, THERE)));

    let lent = OwnFrame::alloc(&partition).unwrap().lend(THERE);
    assert_eq!(partition.take_home(lent, THERE), Ok(()));
    for wrong in [lent, Frame(0x183), Frame(0x99), Frame(0x200)] {
        assert_eq!(partition.take_home(wrong, THERE), Err(NotLent(wrong)));
    }
    let lent = OwnFrame::alloc(&partition).unwrap().lend(THERE);
    partition.adopt(lent);
    assert_eq!(partition.count(lent), 1);
    assert!(panics(|| partition.adopt(lent)));
    // The rest leaves a state behind that a kernel would not live to see.
    let lent = OwnFrame::alloc(&partition).unwrap().lend(THERE);
    assert!(panics(|| partition.release(lent)));
    assert!(panics(|| partition.release(Frame(0x183))));
    assert!(panics(|| partition.retain(Frame(0x99))));
    let run = partition.alloc_run(2).unwrap();
    assert!(panics(|| partition.release(run)));
    let frame = partition.alloc().unwrap();
    partition.release(frame);
    assert!(panics(|| partition.release(frame)));
}

#[test]
fn threads_share_frames_and_lose_none() {
    const THREADS: usize = 4;
    let partition = partition(&[pages(0x1000..0x1200), pages(0x1300..0x1400)], &[], THREADS).unwrap();
    let free = partition.totals().1;
    let common = partition.alloc().unwrap();
    thread::scope(|scope| {
        for cpu in 0..THREADS {
            let partition = &partition;
            scope.spawn(move || {
                CPU.set(cpu);
                let mut held = Vec::new();
                for step in 0..20_000usize {
                    partition.retain(common);
                    match (step * 7 + cpu) % 5 {
                        0..=2 => held.extend(partition.alloc().inspect(|frame| {
                            assert!(is_zero(partition, *frame), "two threads have {frame:?}");
                            dirty(partition, *frame);
                        })),
                        // Everything from time to time, so that caches overflow and frames change CPUs.
                        3 if step % 1000 > 900 => held.drain(..).for_each(|frame| partition.release(frame)),
                        _ => {
                            if let Some(run) = partition.alloc_run(step % 4) {
                                partition.free_run(run, step % 4);
                            }
                        }
                    }
                    partition.release(common);
                }
                held.drain(..).for_each(|frame| partition.release(frame));
            });
        }
    });
    assert_eq!(partition.count(common), 1);
    partition.release(common);
    assert_eq!(partition.totals().1, free);
    let kept = THREADS * cache::CAPACITY;
    assert!(partition.alloc_run(7).is_some(), "more than {kept} frames are kept from merging");
}

#[test]
fn the_last_release_of_a_foreign_frame_sends_it_home() {
    let foreign = Foreign::default();
    let (a, b) = (Frame(0x40_0000), Frame(0x40_0010));
    foreign.adopt(a, KernelId(2));
    foreign.adopt(b, KernelId(3));
    foreign.retain(a);
    foreign.release(a);
    assert_eq!((foreign.count(a), foreign.count(b), foreign.count(Frame(1))), (1, 1, 0));
    assert_eq!(foreign.drain_returns(KernelId(2)), []);
    foreign.release(a);
    foreign.release(b);
    assert_eq!(foreign.drain_returns(KernelId(3)), [b]);
    assert_eq!((foreign.held(), foreign.waiting()), (0, 1));
    assert_eq!(foreign.home_to_serve(), Some(KernelId(2)));
    assert_eq!(foreign.drain_returns(KernelId(3)), []);
    assert_eq!(foreign.drain_returns(KernelId(2)), [a]);
    assert_eq!((foreign.held(), foreign.waiting()), (0, 0));
    assert!(panics(|| foreign.release(a)));
}

/// Programs stop first, then tables; the kernel gets all there is, and what was refused is had again once
/// enough is free.
#[test]
fn the_last_frames_are_the_kernels() {
    let partition = partition(&[pages(0x1000..0x3000)], &[], 1).unwrap();
    let drain = |purpose| core::iter::from_fn(|| partition.alloc_for(purpose)).collect::<Vec<_>>();
    let free = || partition.totals().1;
    let users = drain(Purpose::User);
    let after_users = free();
    assert!((1..=0x2000 / 128).contains(&after_users) && after_users > 0x2000 / 256);
    let tables = drain(Purpose::Table);
    assert!(!tables.is_empty() && free() > 0 && free() <= 0x2000 / 256);
    assert_eq!(partition.alloc_for(Purpose::User), None);
    let kernel = drain(Purpose::Kernel);
    assert!(!kernel.is_empty() && free() == 0);
    users.into_iter().for_each(|frame| partition.release(frame));
    assert!(partition.alloc_for(Purpose::User).is_some());
}

/// What may lie elsewhere stops before all others.
#[test]
fn a_part_is_kept_for_what_must_lie_here() {
    let partition = partition(&[pages(0x1000..0x3000)], &[], 1).unwrap();
    assert!(partition.has_plenty());
    let anywhere: Vec<_> = core::iter::from_fn(|| partition.alloc_for(Purpose::Anywhere)).collect();
    let left = partition.totals().1;
    assert!((0x2000 / 8 - cache::CAPACITY as u64..=0x2000 / 8).contains(&left), "{left} frames");
    assert!(!partition.has_plenty());
    assert!(partition.alloc_for(Purpose::User).is_some());
    anywhere.into_iter().for_each(|frame| partition.release(frame));
    assert!(partition.has_plenty() && partition.alloc_for(Purpose::Anywhere).is_some());
}

#[test]
fn frames_in_stock_have_a_user_and_are_taken_once() {
    let foreign = Foreign::default();
    assert_eq!((foreign.has_stock(), foreign.take_stock()), (false, None));
    foreign.stock(&[Frame(0x40_0000), Frame(0x40_0001)], |_| KernelId(2));
    assert!(foreign.has_stock() && foreign.held() == 2);
    let taken = [foreign.take_stock().unwrap(), foreign.take_stock().unwrap()];
    assert!(taken[0] != taken[1] && taken.iter().all(|frame| foreign.count(*frame) == 1));
    assert_eq!(foreign.take_stock(), None);
    taken.iter().for_each(|frame| foreign.release(*frame));
    assert_eq!(foreign.drain_returns(KernelId(2)).len(), 2);
}

/// Who has borrowed a frame may pin it for others: it returns to him, not to its home.
#[test]
fn a_pinned_frame_returns_to_who_pinned_it() {
    let foreign = Foreign::default();
    let frame = Frame(0x40_0000);
    foreign.accept_pin(frame, KernelId(3));
    assert_eq!((foreign.count(frame), foreign.pinned_by(frame)), (1, Some(KernelId(3))));
    foreign.accept_pin(frame, KernelId(3));
    assert_eq!(foreign.drain_returns(KernelId(3)), [frame]);
    foreign.release(frame);
    foreign.release(frame);
    assert_eq!((foreign.drain_returns(KernelId(3)), foreign.held()), ([frame].into(), 0));
    foreign.adopt(frame, KernelId(2));
    assert_eq!(foreign.pinned_by(frame), None);
}

#[test]
fn what_a_dead_kernel_gave_returns_nowhere() {
    let foreign = Foreign::default();
    let (used, stocked, pinned, other) = (Frame(1), Frame(2), Frame(3), Frame(4));
    foreign.adopt(used, KernelId(2));
    foreign.adopt(other, KernelId(3));
    foreign.accept_pin(pinned, KernelId(2));
    foreign.stock(&[stocked], |_| KernelId(2));
    assert!(!foreign.is_lost(used));
    foreign.forget(KernelId(2), |frame| frame == used || frame == stocked);
    assert_eq!(foreign.take_stock(), None);
    assert_eq!([used, pinned, other].map(|frame| foreign.is_lost(frame)), [true, true, false]);
    // Who maps it is found by that.
    assert_eq!(foreign.pinned_by(pinned), Some(KernelId(2)));
    [used, pinned, other].into_iter().for_each(|frame| foreign.release(frame));
    assert_eq!((foreign.drain_returns(KernelId(2)), foreign.waiting()), ([].into(), 1));
    // Its next boot generation may lend the same frame.
    foreign.adopt(used, KernelId(2));
    assert!(!foreign.is_lost(used));
}

#[test]
fn reserved_memory_can_be_given_once() {
    let reserved = [pages(0x1010..0x1020)];
    let partition = partition(&[pages(0x1000..0x1100)], &reserved, 1).unwrap();
    let (_, before) = partition.totals();
    // SAFETY: reserved above, page-aligned, and nobody's.
    unsafe { partition.give(pages(0x1010..0x1018)) };
    assert_eq!(partition.totals().1, before + 8);
    let all: Vec<_> = core::iter::from_fn(|| partition.alloc()).collect();
    assert_eq!(all.len() as u64, before + 8);
    assert!(all.iter().all(|frame| is_zero(&partition, *frame) && !(0x1018..0x1020).contains(&frame.0)));
    // SAFETY: this one is wrong, and is found out before anything is given.
    assert!(panics(|| unsafe { partition.give(pages(0x1010..0x1011)) }));
}

#[test]
fn what_a_dead_kernel_had_comes_back_and_nothing_else() {
    let partition = partition(&[pages(0x100..0x200)], &[], 1).unwrap();
    let free = partition.totals().1;
    let lent = [THERE, THERE, KernelId(4)].map(|to| OwnFrame::alloc(&partition).unwrap().lend(to));
    assert_eq!(partition.take_home(lent[0], KernelId(4)), Err(NotLent(lent[0])));
    partition.take_all_home(THERE);
    assert_eq!((partition.totals().1, partition.is_lent(lent[2])), (free - 1, true));
    assert_eq!(partition.take_home(lent[0], THERE), Err(NotLent(lent[0])));

    let pins = Pins::default();
    let (a, b) = (Frame(1), Frame(2));
    for (frame, kernel) in [(a, THERE), (a, THERE), (b, THERE), (a, KernelId(4))] {
        pins.give(frame, kernel);
    }
    assert!(pins.come_home(b, THERE) && !pins.come_home(b, THERE));
    assert_eq!(pins.take(THERE), [(a, 2)]);
    assert!(!pins.come_home(a, THERE) && pins.come_home(a, KernelId(4)));
}

#[test]
fn pages_get_rows_of_frames_though_tables_are_made_between_them() {
    let partition = partition(&[pages(0x1000..0x4000)], &[], 1).unwrap();
    let row_ends = |frames: &[Frame]| frames.windows(2).filter(|pair| pair[0].add(1) != pair[1]).count();
    let mut tables = Vec::new();
    for round in 0..4 {
        let mut frames = Vec::new();
        for page in 0..4096 {
            if page % 512 == 0 {
                tables.push(partition.alloc_for(Purpose::Table).unwrap());
            }
            frames.push(partition.alloc_for(Purpose::User).unwrap());
        }
        let ends = row_ends(&frames);
        // Two for each table at most, but for the pieces that the partition's own tables leave at its beginning.
        assert!(ends <= 12, "round {round}: {ends} rows end");
        frames.into_iter().rev().for_each(|frame| partition.release(frame));
    }
}

use super::tree::{Controllers, Ownership, Tree};
use abi::{CapabilitySet, Credentials};
use machine::{
    account::Charge,
    group::{GivenBack, TRANCHE},
    Errno, GroupId, KernelId, Pid,
};
use messages::cgroup::{IntoCgroup, Life, ThreadCount};

const OWNER: Ownership = Ownership { mode: 0o755, uid: 0, gid: 0 };

fn make(tree: &mut Tree, above: GroupId, name: &str) -> GroupId {
    tree.make(above, name.as_bytes(), OWNER, Charge::FREE).unwrap()
}

fn count(threads: u32, version: u64) -> ThreadCount {
    ThreadCount { threads, version }
}

fn populated(tree: &Tree, group: GroupId) -> bool {
    tree.get(group).unwrap().is_populated()
}

fn pids(tree: &Tree, group: GroupId) -> u32 {
    tree.get(group).unwrap().pids.current
}

#[test]
fn what_is_below_counts_above() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    assert_eq!(tree.path(b), b"/a/b");
    tree.enter(Pid(7), b, count(3, 1)).unwrap();
    assert_eq!((pids(&tree, a), pids(&tree, b), populated(&tree, a)), (3, 3, true));
    assert_eq!(tree.take_changed().len(), 2, "both have somebody now");
    assert_eq!(tree.remove(b), Err(Errno::EBUSY));
    tree.enter(Pid(7), a, count(3, 2)).unwrap();
    assert_eq!((pids(&tree, a), pids(&tree, b)), (3, 0));
    assert!(!populated(&tree, b) && populated(&tree, a));
    tree.enter(Pid(7), GroupId::ROOT, count(3, 3)).unwrap();
    assert_eq!((pids(&tree, a), tree.group_of(Pid(7))), (0, GroupId::ROOT));
    assert_eq!(tree.remove(a), Err(Errno::EBUSY), "it has a child");
    assert_eq!((tree.remove(b), tree.remove(a), tree.remove(a)), (Ok(()), Ok(()), Err(Errno::ENODEV)));
    assert_eq!(tree.get(GroupId::ROOT).unwrap().descendants(), (0, 0));
}

#[test]
fn a_child_is_where_its_parent_is_and_pays() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    assert_eq!(tree.enable(a, Controllers::PIDS, Controllers::empty()), Err(Errno::ENOENT), "its parent has not");
    tree.enable(GroupId::ROOT, Controllers::PIDS, Controllers::empty()).unwrap();
    let b = make(&mut tree, a, "b");
    tree.enter(Pid(7), b, count(1, 1)).unwrap();
    tree.change(a).unwrap().pids.max = Some(2);
    assert_eq!(tree.fork(Pid(7), Pid(8), None), Ok(b));
    assert_eq!(tree.fork(Pid(8), Pid(9), None), Err(Errno::EAGAIN));
    assert_eq!(tree.set_threads(Pid(8), count(2, 1), true), Err(Errno::EAGAIN));
    let refused = |tree: &Tree, group| {
        let pids = &tree.get(group).unwrap().pids;
        (pids.refused, pids.refused_here)
    };
    assert_eq!((refused(&tree, a), refused(&tree, b)), ((2, 2), (0, 0)));
    // It counts until it is waited for.
    assert!(!tree.live(Pid(8), Life::Ended));
    assert_eq!(tree.fork(Pid(7), Pid(9), None), Err(Errno::EAGAIN));
    tree.live(Pid(8), Life::Gone);
    assert_eq!(tree.fork(Pid(7), Pid(9), None), Ok(b));
    assert_eq!((pids(&tree, a), tree.get(a).unwrap().pids.peak), (2, 2));
    assert_eq!(tree.fork(Pid(1), Pid(10), None), Ok(GroupId::ROOT));
    // Moving is never refused.
    tree.enter(Pid(20), a, count(5, 1)).unwrap();
    assert_eq!(pids(&tree, a), 7);
}

#[test]
fn counts_that_come_late_are_dropped() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    tree.enter(Pid(7), a, count(1, 1)).unwrap();
    tree.set_threads(Pid(7), count(3, 4), false).unwrap();
    tree.set_threads(Pid(7), count(2, 3), false).unwrap();
    assert_eq!(pids(&tree, a), 3);
    tree.live(Pid(7), Life::Ended);
    tree.set_threads(Pid(7), count(9, 5), false).unwrap();
    assert_eq!(pids(&tree, a), 1);
    tree.forget(|process| process == Pid(7));
    assert_eq!((pids(&tree, a), populated(&tree, a)), (0, false));
}

#[test]
fn nobody_escapes_a_kill() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    tree.enter(Pid(7), b, count(1, 1)).unwrap();
    tree.fork(Pid(7), Pid(8), None).unwrap();
    assert_eq!(tree.kill(a), [Pid(7)], "the child can't be found yet");
    assert_eq!(tree.fork(Pid(7), Pid(9), None), Err(Errno::EAGAIN));
    assert_eq!(tree.set_threads(Pid(7), count(2, 2), true), Err(Errno::EAGAIN));
    assert!(tree.live(Pid(8), Life::Born));
    // One that came later is not meant.
    tree.enter(Pid(10), b, count(1, 1)).unwrap();
    assert_eq!(tree.fork(Pid(10), Pid(11), None), Ok(b));
    assert!(!tree.live(Pid(11), Life::Born));
}

#[test]
fn a_removed_group_is_kept_for_who_has_ended_in_it() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    tree.enter(Pid(7), b, count(1, 1)).unwrap();
    tree.live(Pid(7), Life::Ended);
    let ino = tree.get(b).unwrap().ino;
    assert_eq!((tree.remove(b), tree.path(b), tree.by_ino(ino)), (Ok(()), b"/a/b (deleted)".to_vec(), None));
    assert_eq!(tree.remove(a), Ok(()));
    assert_eq!(tree.get(GroupId::ROOT).unwrap().descendants(), (0, 2));
    assert_eq!(tree.enter(Pid(9), b, count(1, 1)), Err(Errno::ENODEV));
    // A new one of the same name is another.
    let new = make(&mut tree, GroupId::ROOT, "a");
    assert!(new != a && tree.get(new).unwrap().ino != ino);
    tree.live(Pid(7), Life::Gone);
    assert_eq!(tree.get(GroupId::ROOT).unwrap().descendants(), (1, 0));
}

#[test]
fn limits_of_depth_and_number() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    tree.change(a).unwrap().max_depth = Some(1);
    let b = make(&mut tree, a, "b");
    assert_eq!(tree.make(b, b"c", OWNER, Charge::FREE), Err(Errno::EAGAIN));
    tree.change(a).unwrap().max_depth = None;
    tree.change(a).unwrap().max_descendants = Some(2);
    let c = make(&mut tree, b, "c");
    assert_eq!(tree.make(a, b"d", OWNER, Charge::FREE), Err(Errno::EAGAIN));
    tree.remove(c).unwrap();
    assert!(tree.make(a, b"d", OWNER, Charge::FREE).is_ok());
    assert_eq!(tree.make(a, b"d", OWNER, Charge::FREE), Err(Errno::EEXIST));
    assert_eq!(tree.make(c, b"d", OWNER, Charge::FREE), Err(Errno::ENOENT));
}

#[test]
fn all_numbers_are_used_and_a_deep_tree_ends() {
    let mut tree = Tree::default();
    let mut at = GroupId::ROOT;
    for number in 0..GroupId::MAX.0 {
        let above = if number < 200 { at } else { GroupId::ROOT };
        at = make(&mut tree, above, &alloc::format!("{number}"));
    }
    assert_eq!(tree.make(GroupId::ROOT, b"x", OWNER, Charge::FREE), Err(Errno::ENOSPC));
    tree.enter(Pid(7), GroupId(200), count(1, 1)).unwrap();
    assert_eq!(pids(&tree, GroupId(1)), 1);
    assert_eq!(tree.subtree(GroupId::ROOT).len(), 8192);
    tree.enter(Pid(7), GroupId::ROOT, count(1, 1)).unwrap();
    let all = tree.subtree(GroupId::ROOT);
    all[1..].iter().rev().for_each(|id| tree.remove(*id).unwrap());
    assert_eq!(tree.get(GroupId::ROOT).unwrap().descendants(), (0, 0));
    assert_eq!(make(&mut tree, GroupId::ROOT, "x"), GroupId(1));
}

#[test]
fn who_moves_a_process_owns_what_is_above_both_groups() {
    let mut tree = Tree::default();
    let owner = Ownership { mode: 0o755, uid: 5, gid: 5 };
    let a = tree.make(GroupId::ROOT, b"a", owner, Charge::FREE).unwrap();
    let (b, c) = (make(&mut tree, a, "b"), make(&mut tree, a, "c"));
    let who = Credentials { fsuid: 5, effective: CapabilitySet(0), ..Credentials::default() };
    assert_eq!((tree.may_move(&who, b, c), tree.may_move(&who, GroupId::ROOT, b)), (Ok(()), Err(Errno::EACCES)));
    let ino = tree.get(b).unwrap().ino;
    let into = IntoCgroup { ino, who };
    assert_eq!(tree.fork(Pid(7), Pid(8), Some(&into)), Err(Errno::EACCES));
    let into = IntoCgroup { ino: 3, ..into };
    assert_eq!(tree.fork(Pid(7), Pid(8), Some(&into)), Err(Errno::ENOENT));
}

#[test]
fn processes_are_where_controllers_let_them() {
    let mut tree = Tree::default();
    tree.enable(GroupId::ROOT, Controllers::PIDS, Controllers::empty()).unwrap();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    // Threads are limited anywhere: a threaded controller.
    tree.enter(Pid(7), a, count(1, 1)).unwrap();
    tree.enable(a, Controllers::PIDS, Controllers::empty()).unwrap();
    assert_eq!(tree.available(b), Controllers::PIDS);
    tree.change(b).unwrap().pids.max = Some(1);
    assert_eq!(tree.enable(GroupId::ROOT, Controllers::empty(), Controllers::PIDS), Err(Errno::EBUSY));
    tree.enable(a, Controllers::empty(), Controllers::PIDS).unwrap();
    assert_eq!(tree.get(b).unwrap().pids.max, None);
    tree.enter(Pid(8), b, count(1, 1)).unwrap();
    assert_eq!(tree.enable(a, Controllers::PIDS, Controllers::empty()), Err(Errno::EBUSY), "a and b have processes");
}

fn back(group: GroupId, pages: u64, peak: u64, granted: u64) -> GivenBack {
    GivenBack { group, pages, peak, granted }
}

#[test]
fn all_kernels_together_get_no_more_than_the_limit() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    tree.change(a).unwrap().memory.max = Some(100);
    let (one, two) = (KernelId(1), KernelId(2));
    assert_eq!(tree.draw(b, one, 1).pages, TRANCHE as u32);
    let mut granted = TRANCHE as u64;
    while let drawn @ 1.. = tree.draw(b, two, 2).pages {
        granted += u64::from(drawn);
    }
    assert_eq!((granted, tree.draw(b, one, 2).full, tree.has_room(a, false)), (100, Some(a), false));
    assert!(tree.has_room(a, true));
    // What one does not need another may have; a kernel says what it had used.
    tree.give_back(one, &[back(b, 24, 50, 64)]);
    assert_eq!((tree.draw(b, two, 2).pages, tree.change(a).unwrap().memory.peak(0)), (12, 100));
    tree.forget_grants(two);
    tree.give_back(one, &[back(b, 1000, 0, 0)]);
    assert!(!tree.get(a).unwrap().memory.is_granted() && tree.has_room(a, false));
    assert_eq!(tree.draw(GroupId(77), one, 2).full, None, "a group that is no more");
}

#[test]
fn a_removed_group_is_kept_until_its_pages_are_given_back() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    tree.draw(b, KernelId(1), 1);
    tree.remove(b).unwrap();
    assert_eq!((tree.all_below(a), tree.is_kept(b)), ([a, b].into(), true));
    tree.change(a).unwrap().memory.max = Some(64);
    assert_eq!(tree.draw(a, KernelId(1), 1).full, Some(a), "they count above");
    tree.give_back(KernelId(1), &[back(b, 64, 0, 64)]);
    assert_eq!((tree.all_below(a), tree.draw(a, KernelId(1), 1).pages), ([a].into(), 64));
}

#[test]
fn one_process_at_a_time_ends_for_its_group() {
    let mut tree = Tree::default();
    let a = make(&mut tree, GroupId::ROOT, "a");
    let b = make(&mut tree, a, "b");
    tree.enter(Pid(7), b, count(1, 1)).unwrap();
    tree.enter(Pid(8), b, count(1, 1)).unwrap();
    assert!(!tree.waits_for_victim(a));
    assert_eq!(tree.choose_victim(a, Pid(7)), None);
    assert!(tree.is_killed(Pid(7)) && !tree.is_killed(Pid(8)) && tree.waits_for_victim(a));
    assert_eq!(tree.fork(Pid(7), Pid(9), None), Err(Errno::EAGAIN));
    tree.live(Pid(7), Life::Ended);
    let looks = (0..1000).take_while(|_| tree.waits_for_victim(a)).count();
    assert!((1..200).contains(&looks), "its pages are waited for, but not for ever: {looks}");
    tree.change(b).unwrap().memory.all_end = true;
    assert_eq!(tree.choose_victim(a, Pid(8)), Some(b));
    let events = |id| (tree.get(id).unwrap().memory.events.oom_kill, tree.get(id).unwrap().memory.events_here.oom_kill);
    assert_eq!((events(a), events(b)), ((2, 0), (2, 2)));
}

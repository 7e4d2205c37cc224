//! What processes had on other kernels than their own when they ended, or when their kernel died.

use crate::{born, go_to, results, shape};
use machine::{KernelId, Pid};
use sim::{
    life::model::Id,
    nodes::{
        machine::{Nodes, PROGRAM},
        user::{call, clone_thread, Arg, Command, Event},
    },
};

const FLOCK: u64 = 73;
const SEMGET: u64 = 64;
const SEMOP: u64 = 65;
const SEMCTL: u64 = 66;
const F_SETLKW: u64 = 7;
const F_OFD_SETLKW: u64 = 38;

/// Makes a call that returns.
pub fn made(nodes: &Nodes, thread: Id, command: Command) -> i64 {
    let number = nodes.user.tell(thread, command);
    nodes.settle();
    returned(nodes, number).expect("it returns")
}

pub fn returned(nodes: &Nodes, wanted: u64) -> Option<i64> {
    nodes.user.events().into_iter().find_map(|event| match event {
        Event::Returned { number, result, .. } if number == wanted => Some(result),
        _ => None,
    })
}

pub fn open(nodes: &Nodes, thread: Id) -> u64 {
    // O_RDWR | O_CREAT, from the working directory.
    let arguments = [Arg::Value(-100i64 as u64), Arg::Input, Arg::Value(0o102), Arg::Value(0o644)];
    made(nodes, thread, Command::new(call::OPENAT, &arguments).input(b"/file\0")) as u64
}

pub fn dies(nodes: &Nodes, dead: KernelId) {
    nodes.kill(dead);
    let mourning: Vec<_> = nodes.alive().into_iter().map(|survivor| nodes.mourn(survivor, dead)).collect();
    nodes.settle();
    assert!(mourning.iter().all(|done| done.take().is_some()));
}

/// A process at home on `home` whose descriptor table is on kernel 1, but no thread.
fn with_table_on_1(home: usize) -> Option<(Nodes, Id)> {
    (1..40).find_map(|seed| {
        let nodes = Nodes::new(shape(seed, 3));
        let process = nodes.boot(home);
        made(&nodes, process, go_to(nodes.nodes[1].cpu.cpus[0].0 as usize));
        let program = [PROGRAM, b"\0"].concat();
        nodes.user.tell(process, Command::new(call::EXECVE, &[Arg::Input]).input(program));
        nodes.settle();
        made(&nodes, process, go_to(nodes.nodes[2].cpu.cpus[0].0 as usize));
        let table = nodes.nodes[home].node.system.process(Pid(process)).expect("it lives").files().id();
        (table.home == KernelId(1)).then_some((nodes, process))
    })
}

/// A lock of the whole file: fcntl of a process or an open file description, or flock. Waits for it.
#[derive(Clone, Copy, Debug)]
enum Lock {
    Record,
    Description,
    Flock,
}

fn lock(fd: u64, kind: Lock) -> Command {
    let whole = [1u64, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let record = |how| Command::new(call::FCNTL, &[Arg::Value(fd), Arg::Value(how), Arg::Input]).input(whole);
    match kind {
        Lock::Record => record(F_SETLKW),
        Lock::Description => record(F_OFD_SETLKW),
        Lock::Flock => Command::plain(FLOCK, &[fd, 2]),
    }
}

const LOCKS: [Lock; 3] = [Lock::Record, Lock::Description, Lock::Flock];

/// `holder` locks; another process waits for it, until the holder `ends`.
fn handed_on(nodes: &Nodes, holder: Id, kind: Lock, ends: impl Fn(&Nodes)) {
    let waiter = nodes.boot(0);
    let fd = open(nodes, holder);
    assert_eq!(made(nodes, holder, lock(fd, kind)), 0);
    let fd = open(nodes, waiter);
    let waits = nodes.user.tell(waiter, lock(fd, kind));
    nodes.settle();
    assert_eq!(returned(nodes, waits), None, "{kind:?}: two have it");
    ends(nodes);
    assert_eq!(returned(nodes, waits), Some(0), "{kind:?}: nobody has it, and one waits");
    nodes.end_all();
}

#[test]
fn locks_of_a_process_that_was_at_home_on_a_dead_kernel_are_free() {
    for kind in LOCKS {
        let nodes = Nodes::new(shape(1, 3));
        let holder = nodes.boot(1);
        handed_on(&nodes, holder, kind, |nodes| dies(nodes, KernelId(1)));
    }
}

#[test]
fn locks_of_a_process_whose_descriptors_were_on_a_dead_kernel_are_free() {
    for kind in LOCKS {
        let (nodes, holder) = with_table_on_1(2).expect("programs begin anywhere");
        handed_on(&nodes, holder, kind, |nodes| dies(nodes, KernelId(1)));
    }
}

#[test]
fn locks_of_a_process_whose_descriptors_are_not_where_it_is_at_home_end_with_it() {
    for kind in LOCKS {
        let (nodes, holder) = with_table_on_1(2).expect("programs begin anywhere");
        handed_on(&nodes, holder, kind, |nodes| {
            nodes.user.tell(holder, Command::plain(call::EXIT_GROUP, &[0]));
            nodes.settle();
        });
    }
}

#[test]
fn semaphores_that_were_to_be_given_back_are_when_their_kernel_dies() {
    let nodes = Nodes::new(shape(2, 3));
    let (holder, waiter) = (nodes.boot(1), nodes.boot(0));
    let set = made(&nodes, waiter, Command::plain(SEMGET, &[0, 1, 0o666])) as u64;
    // SETVAL.
    assert_eq!(made(&nodes, waiter, Command::plain(SEMCTL, &[set, 0, 16, 1])), 0);
    // Semaphore 0, -1, SEM_UNDO.
    let take = || {
        let operation = [0u16, u16::MAX, 0x1000].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        Command::new(SEMOP, &[Arg::Value(set), Arg::Input, Arg::Value(1)]).input(operation)
    };
    assert_eq!(made(&nodes, holder, take()), 0);
    let waits = nodes.user.tell(waiter, take());
    nodes.settle();
    assert_eq!(returned(&nodes, waits), None);
    dies(&nodes, KernelId(1));
    assert_eq!(returned(&nodes, waits), Some(0));
    nodes.end_all();
}

/// Maps the first page of the file, shared: it is kernel 0's.
fn map_file(nodes: &Nodes, thread: Id) -> u64 {
    let fd = open(nodes, thread);
    made(nodes, thread, Command::plain(call::LSEEK, &[fd, 0, 0]));
    made(nodes, thread, Command::new(call::WRITE, &[Arg::Value(fd), Arg::Input, Arg::Value(8)]).input([0; 8]));
    // PROT_READ | PROT_WRITE, MAP_SHARED.
    made(nodes, thread, Command::plain(call::MMAP, &[0, 4096, 3, 1, fd, 0])) as u64
}

/// A lock with an owner (FUTEX_LOCK_PI) in a page of a file that two processes map.
#[test]
fn a_lock_whose_owner_died_with_its_kernel_goes_to_who_waits() {
    const LOCK_PI: u64 = 6;
    let nodes = Nodes::new(shape(3, 3));
    let (holder, waiter) = (nodes.boot(1), nodes.boot(0));
    let at = [holder, waiter].map(|thread| map_file(&nodes, thread));
    assert_eq!(made(&nodes, holder, Command::plain(call::FUTEX, &[at[0], LOCK_PI, 0, 0])), 0);
    let waits = nodes.user.tell(waiter, Command::plain(call::FUTEX, &[at[1], LOCK_PI, 0, 0]));
    nodes.settle();
    assert_eq!(returned(&nodes, waits), None);
    dies(&nodes, KernelId(1));
    assert_eq!(returned(&nodes, waits), Some(0));
    nodes.end_all();
}

/// FUTEX_REQUEUE from a word of the kernel that dies: it holds the other word's queue (crates/futex/src/across.rs).
#[test]
fn a_queue_that_a_dead_kernel_held_is_free() {
    const WAIT: u64 = 0;
    const WAKE: u64 = 1;
    const REQUEUE: u64 = 3;
    for seed in 1..200 {
        println!("seed {seed}");
        let nodes = Nodes::new(shape(seed, 3));
        let (mover, waker) = (nodes.boot(1), nodes.boot(0));
        nodes.user.events();
        let to = [mover, waker].map(|thread| map_file(&nodes, thread));
        // PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS.
        let from = made(&nodes, mover, Command::plain(call::MMAP, &[0, 4096, 3, 0x22, u64::MAX, 0])) as u64;
        for slot in 1..4 {
            let sleeper = born(&nodes, mover, clone_thread(slot));
            nodes.user.tell(sleeper, Command::plain(call::FUTEX, &[from, WAIT, 0, 0]));
        }
        // Its threads are not on the kernel that dies.
        made(&nodes, waker, go_to(nodes.nodes[0].cpu.cpus[0].0 as usize));
        let waiter = born(&nodes, waker, clone_thread(1));
        nodes.user.tell(mover, Command::plain(call::FUTEX, &[from, REQUEUE, 0, 2, to[0]]));
        nodes.steps(nodes.world.rng.below(150));
        dies(&nodes, KernelId(1));
        nodes.user.tell(waiter, Command::plain(call::FUTEX, &[to[1], WAIT, 0, 0]));
        nodes.settle();
        assert!(!nodes.idle().contains(&waiter));
        // Nobody else is there.
        assert_eq!(results(&nodes, waker, vec![Command::plain(call::FUTEX, &[to[1], WAKE, 9])]), [1]);
        assert!(nodes.idle().contains(&waiter));
        nodes.end_all();
    }
}

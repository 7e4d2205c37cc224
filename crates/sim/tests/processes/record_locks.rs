//! Record locks that a kernel keeps for another one's file (crates/fs/src/remote/locks.rs), by processes that move, execute programs and get
//! signals.

use crate::{
    go_to,
    left::{dies, made, open, returned},
    shape,
};
use machine::KernelId;
use sim::{
    life::model::{Id, USR1},
    nodes::{
        machine::{Nodes, PROGRAM},
        user::{action, call, Arg, Command},
    },
};

const F_SETLK: u64 = 6;
const EAGAIN: i64 = -11;

/// An exclusive lock of `len` bytes from `start` on, or nothing.
fn set_lock(fd: u64, start: u64, len: u64) -> Command {
    let lock: Vec<u8> = [1, start, len, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    Command::new(call::FCNTL, &[Arg::Value(fd), Arg::Value(F_SETLK), Arg::Input]).input(lock)
}

fn go(nodes: &Nodes, thread: Id, kernel: usize) {
    assert_eq!(made(nodes, thread, go_to(nodes.nodes[kernel].cpu.cpus[0].0 as usize)), 0);
}

/// A process of kernel 2 whose lock of a file of kernel 0 kernel 1 keeps; the process has gone home again.
fn kept_on_1(nodes: &Nodes) -> Id {
    let holder = nodes.boot(2);
    let fd = open(nodes, holder);
    go(nodes, holder, 1);
    for _ in 0..3 {
        assert_eq!(made(nodes, holder, set_lock(fd, 0, 8)), 0);
    }
    go(nodes, holder, 2);
    holder
}

fn execute() -> Command {
    Command::new(call::EXECVE, &[Arg::Input]).input([PROGRAM, b"\0"].concat())
}

#[test]
fn locks_stay_over_execve_and_the_death_of_the_kernel_that_kept_them() {
    for seed in 1..20 {
        let nodes = Nodes::new(shape(seed, 3));
        let (holder, other) = (kept_on_1(&nodes), nodes.boot(0));
        let fd = open(&nodes, other);
        nodes.user.tell(holder, execute());
        nodes.settle();
        dies(&nodes, KernelId(1));
        assert!(!nodes.is_gone(holder), "seed {seed}: it has nothing there any more");
        assert_eq!(made(&nodes, other, set_lock(fd, 0, 8)), EAGAIN, "seed {seed}");
        nodes.end_all();
    }
}

#[test]
fn who_lives_on_after_a_death_during_its_execve_has_its_locks() {
    let (mut alive, mut gone) = (0, 0);
    for seed in 1..200 {
        let nodes = Nodes::new(shape(seed, 3));
        let (holder, other) = (kept_on_1(&nodes), nodes.boot(0));
        let fd = open(&nodes, other);
        nodes.user.tell(holder, execute());
        nodes.steps(nodes.world.rng.below(150));
        dies(&nodes, KernelId(1));
        let lives = !nodes.is_gone(holder);
        match lives {
            true => alive += 1,
            false => gone += 1,
        }
        assert_eq!(made(&nodes, other, set_lock(fd, 0, 8)), if lives { EAGAIN } else { 0 }, "seed {seed}");
        nodes.end_all();
    }
    assert!(alive > 10 && gone > 10, "{alive} live, {gone} do not");
}

/// F_SETLK waits for nobody, so it is not interrupted, also while the locks are fetched.
#[test]
fn a_lock_that_is_not_waited_for_is_not_interrupted() {
    for seed in 1..100 {
        let nodes = Nodes::new(shape(seed, 3));
        let (_holder, other, sender) = (kept_on_1(&nodes), nodes.boot(2), nodes.boot(0));
        let fd = open(&nodes, other);
        let handler = [Arg::Value(USR1.into()), Arg::Input, Arg::Value(0), Arg::Value(8)];
        assert_eq!(made(&nodes, other, Command::new(call::SIGACTION, &handler).input(action(2))), 0);
        let locks = nodes.user.tell(other, set_lock(fd, 8, 8));
        nodes.steps(nodes.world.rng.below(30));
        nodes.user.tell(sender, Command::plain(call::KILL, &[other.into(), USR1.into()]));
        nodes.settle();
        assert_eq!(returned(&nodes, locks), Some(0), "seed {seed}");
        nodes.end_all();
    }
}

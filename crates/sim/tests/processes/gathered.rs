//! Threads that another kernel has come: crates/process/src/pairs.rs.

use crate::{born, go_to, results, shape};
use machine::{Actor, KernelId, Pid};
use messages::process::{AskTalker, Gather};
use sim::{
    life::model::Id,
    nodes::{
        machine::{Nodes, SimNode},
        user::{call, clone_thread, Arg, Command},
    },
    shape::Shape,
};

/// So many wakes in a tenth of a second earn the cost of a move in two looks, or three.
const WAKES: usize = 8_000;

/// Where the thread is.
fn kernel(nodes: &Nodes, thread: Id) -> usize {
    let runs = |node: &SimNode| node.node.system.thread(Pid(thread)).is_some_and(|thread| !thread.is_away());
    nodes.nodes.iter().position(runs).expect("it lives")
}

/// Kernel `to` asks whether the thread may come, has it come, and learns whether it will.
fn gather(nodes: &Nodes, thread: Id, to: usize) -> bool {
    ask_to_come(nodes, thread, to, false)
}

fn ask_to_come(nodes: &Nodes, thread: Id, to: usize, with_others: bool) -> bool {
    let (endpoint, at) = (nodes.nodes[to].node.endpoint.clone(), KernelId(kernel(nodes, thread) as u16));
    let thread = Pid(thread);
    let (may_come, comes) = nodes.run(nodes.nodes[to].id, async move {
        let talker = endpoint.call(at, AskTalker { thread }).await.unwrap().expect("it is there");
        let may_come = if with_others { talker.may_come_with_others } else { talker.may_come };
        (may_come, endpoint.call(at, Gather { thread, with_others }).await.unwrap())
    });
    assert_eq!(may_come, comes);
    comes
}

/// The thread may run anywhere.
fn set_free(nodes: &Nodes, thread: Id) {
    let everywhere =
        Command::new(call::SETAFFINITY, &[Arg::Value(0), Arg::Value(16), Arg::Input]).input(vec![0xff; 16]);
    assert_eq!(results(nodes, thread, vec![everywhere]), [0]);
}

#[test]
fn a_thread_that_is_wanted_comes_once() {
    for seed in 1..40 {
        let nodes = Nodes::new(shape(seed, 3));
        let thread = nodes.boot(0);
        nodes.user.events();
        assert!(gather(&nodes, thread, 1), "seed {seed}");
        // It goes at its user boundary.
        results(&nodes, thread, vec![Command::plain(call::GETPID, &[])]);
        assert_eq!(kernel(&nodes, thread), 1, "seed {seed}");
        // For the next ten seconds it stays.
        assert!(!gather(&nodes, thread, 2) && !gather(&nodes, thread, 0), "seed {seed}");
        nodes.end_all();
    }
}

#[test]
fn two_kernels_that_want_a_thread_do_not_both_get_it() {
    for seed in 1..40 {
        let nodes = Nodes::new(shape(seed, 3));
        let thread = nodes.boot(0);
        nodes.user.events();
        let asks = [1, 2].map(|to: u16| {
            let endpoint = nodes.nodes[to as usize].node.endpoint.clone();
            let gather = Gather { thread: Pid(thread), with_others: false };
            nodes.start_on(KernelId(to), async move { endpoint.call(KernelId(0), gather).await })
        });
        nodes.settle();
        let comes = asks.map(|ask| ask.take().expect("it was answered").expect("kernel 0 lives"));
        assert_eq!(comes.iter().filter(|comes| **comes).count(), 1, "seed {seed}");
        results(&nodes, thread, vec![Command::plain(call::GETPID, &[])]);
        assert_eq!(kernel(&nodes, thread), if comes[0] { 1 } else { 2 }, "seed {seed}");
        nodes.end_all();
    }
}

#[test]
fn threads_of_a_process_come_together_once() {
    for seed in 1..40 {
        let nodes = Nodes::new(shape(seed, 3));
        let main = nodes.boot(0);
        nodes.user.events();
        let threads: Vec<Id> = (1..4).map(|stack| born(&nodes, main, clone_thread(stack))).collect();
        let elsewhere = nodes.nodes[2].cpu.cpus[0].0 as usize;
        for &thread in &threads {
            assert_eq!(results(&nodes, thread, vec![go_to(elsewhere)]), [0]);
            assert!(!ask_to_come(&nodes, thread, 0, true), "seed {seed}: an affinity wins");
            set_free(&nodes, thread);
            assert_eq!(kernel(&nodes, thread), 2, "seed {seed}");
        }
        for &thread in &threads {
            assert!(ask_to_come(&nodes, thread, 0, true), "seed {seed}");
            results(&nodes, thread, vec![Command::plain(call::GETPID, &[])]);
            assert_eq!(kernel(&nodes, thread), 0, "seed {seed}");
            assert!(!ask_to_come(&nodes, thread, 1, true), "seed {seed}: for the next ten seconds it stays");
        }
        nodes.end_all();
    }
}

/// The two talk, through something of each of the kernels, and all kernels look at that at once: so often, ten times a second. How often one has moved.
fn talk(nodes: &Nodes, two: [Id; 2], looks: usize) -> usize {
    let at = || two.map(|thread| kernel(nodes, thread));
    let (mut moves, mut before) = (0, at());
    for _ in 0..looks {
        let actors = [0, 1].map(|one| Actor::new(Pid(two[one]), KernelId(before[one] as u16)));
        for kernel in [0, 1] {
            // Two who are together are not counted.
            (0..WAKES).for_each(|_| nodes.nodes[kernel].scheduler.talk().note(actors[0], actors[1]));
        }
        nodes.pass(100_000_000);
        nodes.look_for_pairs();
        nodes.settle();
        for thread in two {
            results(nodes, thread, vec![Command::plain(call::GETPID, &[])]);
        }
        let now = at();
        moves += (0..2).filter(|&one| now[one] != before[one]).count();
        before = now;
    }
    moves
}

/// Two kernels of two CPUs, and on each of them one of two threads, which may go anywhere.
fn apart(seed: u64, command: Command) -> (Nodes, [Id; 2]) {
    let nodes = Nodes::new(Shape { cpus: 2, ..shape(seed, 2) });
    let main = nodes.boot(0);
    nodes.user.events();
    let two = [main, born(&nodes, main, command)];
    for (kernel, thread) in two.into_iter().enumerate() {
        let cpu = nodes.nodes[kernel].cpu.cpus[0].0 as usize;
        assert_eq!(results(&nodes, thread, vec![go_to(cpu)]), [0]);
        set_free(&nodes, thread);
    }
    (nodes, two)
}

/// Each of the kernels keeps its own thread and wants the other one.
#[test]
fn of_two_kernels_that_decide_at_once_one_gets_the_other_thread() {
    for (seed, threads) in (1..60).map(|seed| (seed, seed % 2 == 0)) {
        let (nodes, two) = apart(seed, if threads { clone_thread(1) } else { Command::plain(call::FORK, &[]) });
        assert_eq!(talk(&nodes, two, 1), 0, "seed {seed}");
        // At most two collisions.
        assert_eq!(talk(&nodes, two, 5), 1, "seed {seed}, threads: {threads}");
        assert_eq!(kernel(&nodes, two[0]), kernel(&nodes, two[1]), "seed {seed}");
        assert_eq!(talk(&nodes, two, 20), 0, "seed {seed}");
        nodes.end_all();
    }
}

#[test]
fn an_affinity_wins() {
    let nodes = Nodes::new(shape(1, 2));
    let thread = nodes.boot(0);
    nodes.user.events();
    let first = nodes.nodes[0].cpu.cpus[0].0 as usize;
    assert_eq!(results(&nodes, thread, vec![go_to(first)]), [0]);
    assert!(!gather(&nodes, thread, 1));
    set_free(&nodes, thread);
    // Also one that is set after the answer.
    assert!(gather(&nodes, thread, 1));
    results(&nodes, thread, vec![go_to(first), Command::plain(call::GETPID, &[])]);
    assert_eq!(kernel(&nodes, thread), 0);
    nodes.end_all();
}

#[test]
fn who_would_leave_a_listener_behind_stays() {
    let nodes = Nodes::new(shape(1, 2));
    let thread = nodes.boot(0);
    nodes.user.events();
    let child = born(&nodes, thread, Command::plain(call::FORK, &[]));
    let other = 1 - kernel(&nodes, child);
    let listens = vec![Command::plain(call::SOCKET, &[2, 1, 0]), Command::plain(call::LISTEN, &[0, 1])];
    assert_eq!(results(&nodes, child, listens), [0, 0]);
    assert!(!gather(&nodes, child, other));
    assert_eq!(results(&nodes, child, vec![Command::plain(call::CLOSE, &[0])]), [0]);
    // What it has of pipes keeps it only if it waits there: who asks sees that.
    let pipe = Command::new(call::PIPE2, &[Arg::Output, Arg::Value(0)]).output(8);
    assert_eq!(results(&nodes, child, vec![pipe]), [0]);
    assert!(gather(&nodes, child, other));
    nodes.end_all();
}

//! What a move costs, in messages: those *on the way*, without which the thread does not run where it goes, and those that follow.
//!
//! Which is which is tried, not read off a trace: the same move once more for each of its messages, with that one held back. If the
//! thread runs at its destination all the same, nothing on its way waited for that message.
//!
//! Kernel 0 has the root file system, and so the directories of every process: no move touches them.

use crate::{born, go_to};
use fabric::describe;
use machine::KernelId;
use messages::{MessageInfo, Priority, CATALOGUE};
use sim::{
    life::model::Id,
    nodes::{
        machine::{Nodes, PROGRAM},
        user::{call, clone_thread, Arg, Command, Event},
    },
    shape::Shape,
};
use std::sync::{
    atomic::{AtomicUsize, Ordering::SeqCst},
    Arc, Mutex,
};

/// What the memory of a thread that moves costs; messages.rs counts that.
const OF_MEMORY: [&str; 4] = ["first_pages", "page_fault", "object_pages", "taken_over"];
/// The questions among them.
const QUESTIONS: [&str; 2] = ["first_pages Request", "page_fault Request"];

/// A move on a machine of four kernels with a CPU each.
struct Move {
    home: usize,
    /// Threads of the process, the first of which has been ...
    threads: usize,
    /// ... at these kernels since it began at home, where
    route: &'static [usize],
    /// it executed a program at last, if it did.
    executed: bool,
    /// This one of them goes
    who: usize,
    /// to this kernel.
    to: usize,
}

/// Messages as "FROM>TO NAME ROLE".
#[derive(Debug, PartialEq)]
struct Cost {
    /// In their order.
    on_the_way: Vec<String>,
    /// Without those of memory. In the order of the alphabet, for they are under way at the same time.
    later: Vec<String>,
    /// For pages.
    questions: usize,
}

fn words(from: KernelId, to: KernelId, packet: &[u8]) -> String {
    let description = describe(packet);
    let (name, rest) = description.split_once(' ').unwrap_or((&description, ""));
    let role = rest.split([' ', ',']).next().unwrap_or_default();
    format!("{from}>{to} {name} {role}")
}

/// Answers take the lane of `High`, whatever the question was.
fn lane_of(words: &str) -> Priority {
    let named = |message: &&MessageInfo| words.split(' ').nth(1) == Some(message.name);
    match CATALOGUE.iter().find(named) {
        Some(message) if words.ends_with(" Request") || words.ends_with(" Notice") => message.priority,
        _ => Priority::High,
    }
}

impl Move {
    /// The machine before it, and the thread.
    fn prepare(&self, seed: u64) -> (Nodes, Id) {
        let nodes = Nodes::new(Shape::of(seed, 4).calm());
        let mut threads = vec![nodes.boot(self.home)];
        nodes.user.events();
        // Otherwise the others would be born anywhere.
        assert!(go(&nodes, threads[0], self.home));
        for slot in 1..self.threads {
            threads.push(born(&nodes, threads[0], clone_thread(slot as u64)));
        }
        for kernel in self.route {
            assert!(go(&nodes, threads[0], *kernel));
        }
        if self.executed {
            let program = Command::new(call::EXECVE, &[Arg::Input]).input([PROGRAM, b"\0"].concat());
            nodes.user.tell(threads[0], program);
            nodes.settle();
            assert!(nodes.user.events().iter().any(|event| matches!(event, Event::Executed { .. })));
        }
        // It has written to its stack where it is: the call that moves it will not fault.
        let last = self.route.last().filter(|_| self.who == 0);
        assert!(go(&nodes, threads[self.who], *last.unwrap_or(&self.home)));
        (nodes, threads[self.who])
    }

    fn messages(&self, seed: u64) -> Vec<String> {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = seen.clone();
        let (nodes, thread) = self.prepare(seed);
        nodes.network.watch(Box::new(move |from, to, packet| log.lock().unwrap().push(words(from, to, packet))));
        assert!(go(&nodes, thread, self.to));
        let messages = std::mem::take(&mut *seen.lock().unwrap());
        nodes.end_all();
        messages
    }

    /// Does the thread run there while message `nth` of the move does not arrive?
    fn arrives_without(&self, seed: u64, messages: &[String], nth: usize) -> bool {
        let (nodes, thread) = self.prepare(seed);
        let (held, earlier) = (messages[nth].clone(), messages[..nth].iter().filter(|other| **other == messages[nth]));
        let (skip, met) = (earlier.count(), AtomicUsize::new(0));
        // What is behind it in its lane does not arrive either.
        let behind = Mutex::new(None);
        let holds = move |from: KernelId, to: KernelId, packet: &[u8]| {
            let words = words(from, to, packet);
            let mut behind = behind.lock().unwrap();
            if words == held && met.fetch_add(1, SeqCst) == skip {
                *behind = Some((from, to, lane_of(&words)));
            }
            *behind == Some((from, to, lane_of(&words)))
        };
        nodes.network.hold(Box::new(holds));
        let arrived = go(&nodes, thread, self.to);
        nodes.network.release();
        nodes.settle();
        nodes.end_all();
        arrived
    }

    fn cost(&self, seed: u64) -> Cost {
        let messages = self.messages(seed);
        let mut cost = Cost { on_the_way: vec![], later: vec![], questions: 0 };
        for (nth, message) in messages.iter().enumerate() {
            if !self.arrives_without(seed, &messages, nth) {
                cost.on_the_way.push(message.clone());
            } else if QUESTIONS.iter().any(|question| message.contains(question)) {
                cost.questions += 1;
            } else if !OF_MEMORY.iter().any(|name| message.contains(name)) {
                cost.later.push(message.clone());
            }
        }
        cost.later.sort();
        cost
    }

    fn costs(&self, on_the_way: &[&str], later: &[&str], questions: usize) {
        let strings = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let expected = Cost { on_the_way: strings(on_the_way), later: strings(later), questions };
        for seed in 1..4 {
            assert_eq!(self.cost(seed), expected, "seed {seed}");
        }
    }
}

/// Has `thread` go to the CPU of a kernel; has it come back from the call?
fn go(nodes: &Nodes, thread: Id, kernel: usize) -> bool {
    nodes.user.tell(thread, go_to(kernel));
    nodes.settle();
    let returned = |event: &Event| matches!(event, Event::Returned { thread: who, result: 0, .. } if *who == thread);
    nodes.user.events().iter().any(returned)
}

/// The thread is all in the one message. The answer only tells the source that it may forget what it kept in case of failure.
#[test]
fn a_return_is_one_message_on_the_way() {
    let there = Move { home: 0, threads: 1, route: &[1, 0], executed: false, who: 0, to: 1 };
    there.costs(&["0>1 migrate Request"], &["1>0 migrate Reply"], 0);
    let home = Move { home: 0, threads: 1, route: &[1], executed: false, who: 0, to: 0 };
    home.costs(&["1>0 migrate Request"], &["0>1 migrate Reply"], 0);
}

/// Past the home, which hears of it afterwards.
#[test]
fn a_return_between_two_others_tells_the_home_later() {
    let past = Move { home: 0, threads: 1, route: &[1, 2], executed: false, who: 0, to: 1 };
    past.costs(&["2>1 migrate Request"], &["1>0 moved Notice", "1>2 migrate Reply"], 0);
}

/// From the home go what the threads of the process share, and with the thread the two pages that it is on, text and stack (there is no
/// thread-local data here).
#[test]
fn a_first_visit_from_home_is_two() {
    let from_home = Move { home: 0, threads: 1, route: &[], executed: false, who: 0, to: 1 };
    from_home.costs(&["0>1 push_replica Notice", "0>1 migrate Request"], &["1>0 migrate Reply"], 0);
    let elsewhere = Move { home: 1, threads: 1, route: &[], executed: false, who: 0, to: 2 };
    elsewhere.costs(&["1>2 push_replica Notice", "1>2 migrate Request"], &["2>1 migrate Reply"], 0);
}

/// From elsewhere the newcomer asks the home. Beside it come the pages: one question asks for both, and the thread waits for them when it
/// touches them.
#[test]
fn a_first_visit_from_elsewhere_is_three() {
    let on = Move { home: 0, threads: 1, route: &[1], executed: false, who: 0, to: 2 };
    let later = ["2>0 moved Notice", "2>1 migrate Reply"];
    on.costs(&["1>2 migrate Request", "2>0 join Request", "0>2 join Reply"], &later, 1);
    let on = Move { home: 1, threads: 1, route: &[2], executed: false, who: 0, to: 3 };
    let later = ["3>1 moved Notice", "3>2 migrate Reply"];
    on.costs(&["2>3 migrate Request", "3>1 join Request", "1>3 join Reply"], &later, 1);
    let to_files = Move { home: 1, threads: 1, route: &[2], executed: false, who: 0, to: 0 };
    let later = ["0>1 moved Notice", "0>2 migrate Reply"];
    to_files.costs(&["2>0 migrate Request", "0>1 join Request", "1>0 join Reply"], &later, 1);
}

/// The new program's memory is at home where it was executed, which hears later who else is there.
#[test]
fn a_first_visit_of_a_program_executed_elsewhere_is_three_too() {
    let from_space = Move { home: 0, threads: 1, route: &[1], executed: true, who: 0, to: 2 };
    let later = ["1>2 list_slices Reply", "2>0 moved Notice", "2>1 list_slices Request", "2>1 migrate Reply"];
    from_space.costs(&["1>2 migrate Request", "2>0 join Request", "0>2 join Reply"], &later, 1);
    let all_apart = Move { home: 1, threads: 1, route: &[2], executed: true, who: 0, to: 3 };
    let later = ["2>3 list_slices Reply", "3>1 moved Notice", "3>2 list_slices Request", "3>2 migrate Reply"];
    all_apart.costs(&["2>3 migrate Request", "3>1 join Request", "1>3 join Reply"], &later, 1);
}

/// Threads change nothing: none of them hears of it, and the kernel is visited for all of them when the first has come. (A thread that
/// was not there before still needs its stack.)
#[test]
fn a_thread_among_several_pays_no_more() {
    let first = Move { home: 0, threads: 3, route: &[], executed: false, who: 0, to: 1 };
    first.costs(&["0>1 push_replica Notice", "0>1 migrate Request"], &["1>0 migrate Reply"], 0);
    let second = Move { home: 0, threads: 3, route: &[1], executed: false, who: 1, to: 1 };
    second.costs(&["0>1 migrate Request"], &["1>0 migrate Reply"], 1);
    let again = Move { home: 0, threads: 3, route: &[1, 0], executed: false, who: 0, to: 1 };
    again.costs(&["0>1 migrate Request"], &["1>0 migrate Reply"], 0);
}

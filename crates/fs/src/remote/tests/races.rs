//! Messages that meet, and kernels that die while files are on their way: docs/interleavings.md draws each.

use super::*;
use crate::control::{EpollControl, SocketMessage};

impl Machine {
    pub(super) fn dies(&self, dead: usize, known_by: &[usize]) {
        let dead = KernelId(dead as u16);
        for by in known_by {
            self.kernels[*by].endpoint.declare_dead(dead);
            self.kernels[*by].kernel_died(dead);
        }
        self.settle();
    }

    /// All of `survivors`, who know of it, are through with it.
    pub(super) fn is_mourned(&self, dead: usize, survivors: &[usize]) {
        let dead = KernelId(dead as u16);
        for by in survivors {
            self.run(self.kernels[*by].mourn(dead));
        }
        for by in survivors {
            self.kernels[*by].release_of(dead);
        }
        self.settle();
    }

    /// Kernel `by` hears what it was told.
    fn hears(&self, by: usize) {
        self.kernels[by].endpoint.drain(1000);
    }
}

#[test]
fn a_word_of_an_observation_that_has_ended_does_not_deafen_the_next() {
    for before in 0..5 {
        let machine = Machine::new(2);
        let (read, write) = ends();
        let epoll = an_epoll();
        let in_ = Events::IN.bits();
        let far = machine.pass(0, 1, &read);
        add(&machine, &epoll, 3, &far, in_).unwrap();
        for _ in 0..before {
            block_on(write.write(b"x")).unwrap();
            machine.settle();
        }
        // The word of this change leaves the owner, and is on its way while the file is deleted and added again.
        block_on(write.write(b"x")).unwrap();
        machine.run_tasks();
        let who = caller(1);
        let delete = EpollControl::Delete { fd: 3, file: far.clone() };
        let mut deleting: BoxFuture<'_, _> = epoll.control(&who, Control::Epoll(delete));
        assert!(once(deleting.as_mut()).is_some_and(|done| done.is_ok()), "nobody is asked");
        add(&machine, &epoll, 3, &far, in_).unwrap();
        machine.settle();
        assert_eq!(take(&machine, &epoll), [(3, in_)], "{before} changes before");
        block_on(read.read(&mut [0; 64])).unwrap();
        machine.settle();
        assert_eq!(take(&machine, &epoll), [], "{before} changes before");
        block_on(write.write(b"y")).unwrap();
        machine.settle();
        assert_eq!(take(&machine, &epoll), [(3, in_)], "{before} changes before");
    }
}

#[test]
fn a_word_that_overtakes_the_answer_to_who_begins_to_watch_is_not_forgotten() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &read);
    let mut watching = far.watch();
    assert!(once(watching.as_mut()).is_none(), "the owner is asked");
    machine.settle();
    // The answer, "nothing to read", is there, but who asked has not had the CPU yet.
    block_on(write.write(b"x")).unwrap();
    machine.settle();
    assert_eq!(once(watching.as_mut()), Some(Ok(())));
    assert!(far.poll().contains(Events::IN));
}

fn message(files: Vec<Arc<dyn File>>) -> SocketMessage {
    SocketMessage { bytes: b"text".to_vec(), files, ..SocketMessage::default() }
}

#[test]
fn of_several_files_that_of_a_dead_kernel_answers_eio_and_the_others_are_there() {
    let machine = Machine::new(4);
    let files: Vec<Arc<dyn File>> = vec![EventFd::new(0, 0).unwrap(), EventFd::new(1, 0).unwrap()];
    let there = vec![machine.pass(2, 0, &files[0]), machine.pass(3, 0, &files[1])];
    machine.dies(3, &[0, 1, 2]);
    let sent = machine.run(machine.kernels[0].send_message(KernelId(1), message(there))).unwrap().0;
    let received = machine.kernels[1].receive_message(sent).unwrap();
    assert!(machine.run(received.files[0].attributes()).is_ok());
    assert_eq!(machine.run(received.files[1].attributes()).err(), Some(Errno::EIO));
    assert_eq!(machine.run(received.files[1].read(&mut [0; 8])).err(), Some(Errno::EIO));
    drop(received);
    machine.settle();
    assert_eq!(machine.kernels[2].exported(), 0);
}

#[test]
fn nothing_is_counted_for_a_kernel_that_has_died() {
    let machine = Machine::new(3);
    let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
    let there = machine.pass(2, 0, &file);
    // The owner knows; who hands the file on does not yet.
    machine.dies(1, &[2]);
    machine.run(machine.kernels[0].send_message(KernelId(1), message(vec![there]))).unwrap();
    machine.dies(1, &[0]);
    machine.is_mourned(1, &[0, 2]);
    assert_eq!(machine.kernels[2].exported(), 0);
    assert_eq!(machine.run(machine.kernels[2].hand_to(KernelId(1), &file)).err(), Some(Errno::EIO));
    assert_eq!(machine.kernels[2].exported(), 0);
}

#[test]
fn what_a_kernel_had_told_of_for_another_and_not_sent_is_released_with_it() {
    // Whether the message arrives, and the word to the owner; who notices the death first.
    let cases = [false, true].into_iter().flat_map(|arrives| [(arrives, false), (arrives, true)]);
    for (arrives, told, owner_first) in cases.flat_map(|(a, told)| [(a, told, false), (a, told, true)]) {
        let machine = Machine::new(3);
        let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
        let there = machine.pass(2, 1, &file);
        let sent = machine.run(machine.kernels[1].send_message(KernelId(0), message(vec![there.clone()]))).unwrap().0;
        if told {
            machine.hears(2);
        }
        let received = arrives.then(|| machine.kernels[0].receive_message(sent).unwrap());
        let order = if owner_first { [2, 0] } else { [0, 2] };
        machine.dies(1, &order[..1]);
        machine.run(machine.kernels[order[0]].mourn(KernelId(1)));
        machine.dies(1, &order[1..]);
        machine.is_mourned(1, &[0, 2]);
        assert_eq!(machine.kernels[2].exported(), usize::from(arrives), "{arrives}, {told}, {owner_first}");
        if let Some(received) = received {
            assert!(machine.run(received.files[0].attributes()).is_ok());
            drop(received);
            machine.settle();
            assert_eq!(machine.kernels[2].exported(), 0, "{told}, {owner_first}");
        }
    }
}

#[test]
fn a_file_is_counted_once_whoever_the_owner_hears_of_it_from_first() {
    // Kernel 1 hands a file of kernel 0 to kernel 2 and drops its own. Its words have no credit until the owner has heard the others.
    for giver_first in [true, false] {
        // How often, and whether each time one more is counted and not sent.
        for (times, unsent) in [(1, false), (1, true), (3, false), (3, true)] {
            let machine = Machine::new(3);
            let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
            let there = machine.pass(0, 1, &file);
            machine.settle();
            if !giver_first {
                let nothing = FileArrived { id: u64::MAX, giver: KernelId(1) };
                (0..fabric::CREDITS)
                    .for_each(|_| machine.kernels[1].endpoint.send(KernelId(0), nothing.clone()).unwrap());
            }
            let mut received = Vec::new();
            for _ in 0..times {
                let given = block_on(machine.kernels[1].hand_over(KernelId(2), &there)).unwrap();
                if unsent {
                    drop(block_on(machine.kernels[1].hand_over(KernelId(2), &there)).unwrap());
                }
                if giver_first {
                    machine.hears(0);
                }
                received.push(machine.kernels[2].accept(given.send()).unwrap());
                if times > 1 {
                    // And dropped before the giver is heard of.
                    drop(received.pop());
                    machine.hears(0);
                }
            }
            let last = block_on(machine.kernels[1].hand_over(KernelId(2), &there)).unwrap().send();
            drop(there);
            machine.hears(0);
            let last = machine.kernels[2].accept(last).unwrap();
            drop(received);
            machine.settle();
            assert_eq!(machine.kernels[0].exported(), 1, "{giver_first} {times} {unsent}");
            assert!(machine.run(last.attributes()).is_ok());
            drop(last);
            machine.settle();
            assert_eq!(machine.kernels[0].exported(), 0, "{giver_first} {times} {unsent}");
        }
    }
}

#[test]
fn a_file_in_an_answer_to_its_own_kernel_outlives_the_stand_in() {
    for arrives in [true, false] {
        let machine = Machine::new(2);
        let (read, write) = ends();
        let far = machine.pass(0, 1, &read);
        let given = machine.run(machine.kernels[1].hand_over(KernelId(0), &far)).unwrap().send();
        drop((far, read));
        machine.settle();
        assert_eq!(machine.kernels[0].exported(), 1);
        if arrives {
            let home = machine.kernels[0].accept(given).unwrap();
            machine.run(write.write(b"x")).unwrap();
            assert_eq!(machine.run(home.read(&mut [0; 4])), Ok(1));
        } else {
            machine.dies(1, &[0]);
            machine.is_mourned(1, &[0]);
        }
        machine.settle();
        assert_eq!(machine.kernels[0].exported(), 0);
    }
}

#[test]
fn what_a_kernel_hands_to_itself_is_not_counted() {
    let machine = Machine::new(2);
    let own: Arc<dyn File> = EventFd::new(0, 0).unwrap();
    let far = machine.pass(0, 1, &own);
    for (kernel, file) in [(0, own), (1, far)] {
        let me = KernelId(kernel as u16);
        let first = machine.run(machine.kernels[kernel].hand_over(me, &file)).unwrap().send();
        let second = machine.run(machine.kernels[kernel].hand_to(me, &file)).unwrap().send();
        assert_eq!(machine.kernels[0].exported(), 1);
        let taken = [second, first].map(|given| machine.kernels[kernel].accept(given).unwrap());
        assert!(taken.iter().all(|taken| Arc::ptr_eq(taken, &file)));
        drop((taken, file));
        machine.settle();
    }
    assert_eq!(machine.kernels[0].exported(), 0);
}

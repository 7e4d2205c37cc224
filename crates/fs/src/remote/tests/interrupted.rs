//! Threads that a signal interrupts while another kernel works for them.

use super::{sockets::joined, *};
use crate::{
    control::SocketControl,
    file::{ready, Access, Destination, Source},
    inode::held::Owner,
    locks::{LockTable, WHOLE},
    socket::{Socket, SocketKind},
    Caller,
};
use abi::{LockConflict, LockMode, LockOp};
use machine::{BoxFuture, Pid};

/// What [`process::Thread::interruptible`] does when a signal has come. `None`: the thread stays; `Some(Err)`: it leaves.
fn interrupt<T>(who: &Caller, wait: &mut BoxFuture<'_, Result<T>>) -> Option<Result<T>> {
    if let Some(value) = once(wait.as_mut()) {
        return Some(value);
    }
    if who.shield.must_stay()
        && let Some(value) = once(wait.as_mut())
    {
        return Some(value);
    }
    (!who.shield.must_stay()).then_some(Err(Errno::RESTART))
}

/// A signal comes `early` rounds after the call was begun, and again with every poll.
pub(super) fn interrupted_after<T>(
    machine: &Machine,
    who: &Caller,
    mut wait: BoxFuture<'_, Result<T>>,
    early: usize,
) -> Result<T> {
    for round in 0..100 {
        let answer = if round < early { once(wait.as_mut()) } else { interrupt(who, &mut wait) };
        if let Some(answer) = answer {
            return answer;
        }
        let half = round % 2;
        machine.kernels[half].endpoint.drain(1000);
        machine.run_tasks();
    }
    panic!("it neither ends nor leaves")
}

#[test]
fn what_is_written_is_written_once_however_often_it_is_interrupted() {
    for early in 0..6 {
        let machine = Machine::new(2);
        let (read, write) = ends();
        let (far, who) = (machine.pass(0, 1, &write), caller(1));
        for record in 0..5u8 {
            // As SA_RESTART does it.
            while interrupted_after(
                &machine,
                &who,
                Box::pin(far.write_from(Source::Kernel(&[record]), Access::by(&who))),
                early,
            ) == Err(Errno::RESTART)
            {}
            machine.settle();
        }
        let mut found = [9; 16];
        assert_eq!(machine.run(read.read(&mut found)), Ok(5));
        assert_eq!(found[..5], [0, 1, 2, 3, 4]);
    }
}

#[test]
fn what_an_interrupted_read_takes_it_brings_and_one_that_waits_takes_nothing() {
    for early in 0..6 {
        let machine = Machine::new(2);
        let (read, write) = ends();
        let (far, who) = (machine.pass(0, 1, &read), caller(1));
        let mut byte = [0; 1];
        assert_eq!(
            interrupted_after(
                &machine,
                &who,
                Box::pin(far.read_into(Destination::Kernel(&mut byte), Access::by(&who))),
                early
            ),
            Err(Errno::RESTART)
        );
        machine.settle();
        for record in 0..5u8 {
            machine.run(write.write(&[record])).unwrap();
            // The restarted one may be another kernel's.
            assert_eq!(
                interrupted_after(
                    &machine,
                    &who,
                    Box::pin(far.read_into(Destination::Kernel(&mut byte), Access::by(&who))),
                    early
                ),
                Ok(1)
            );
            assert_eq!(byte, [record]);
        }
    }
}

#[test]
fn an_interrupted_accept_does_not_close_the_connection_it_got() {
    for early in 0..6 {
        let (machine, names) = joined(2);
        let new = |kernel: usize| -> Arc<dyn File> {
            Socket::new(&names[kernel], &caller(1), SocketKind::Stream, OpenFlags::empty())
        };
        let server = new(0);
        let who = caller(1);
        machine.bind(&server, b"s").unwrap();
        machine.socket(&server, SocketControl::Listen { backlog: 1 }).unwrap();
        let far = machine.pass(0, 1, &server);
        let accept = || Control::Socket(SocketControl::Accept { flags: OpenFlags::empty(), end: None });
        let none = interrupted_after(&machine, &who, far.control(&who, accept()), early);
        assert_eq!(none.err(), Some(Errno::RESTART));
        let client = new(0);
        machine.connect(&client, b"s").unwrap();
        let accepted = interrupted_after(&machine, &who, far.control(&who, accept()), early);
        let Ok(ControlAnswer::File(accepted)) = accepted else { panic!("nobody there") };
        machine.settle();
        assert_eq!(machine.run(client.write(b"hello")), Ok(5));
        assert_eq!(machine.run(accepted.read(&mut [0; 8])), Ok(5));
    }
}

#[test]
fn an_interrupted_connect_connects_once() {
    for early in 0..6 {
        let (machine, names) = joined(2);
        let new = |kernel: usize| -> Arc<dyn File> {
            Socket::new(&names[kernel], &caller(1), SocketKind::Stream, OpenFlags::empty())
        };
        let (server, client, who) = (new(0), new(1), caller(1));
        machine.bind(&server, b"s").unwrap();
        machine.socket(&server, SocketControl::Listen { backlog: 5 }).unwrap();
        machine.run(server.set_flags(OpenFlags::NONBLOCK)).unwrap();
        let place = || Some(crate::control::SocketAddress::Unix(crate::control::UnixPlace::Abstract(b"s".to_vec())));
        let connect = Control::Socket(SocketControl::Connect { place: place() });
        assert!(interrupted_after(&machine, &who, client.control(&who, connect), early).is_ok());
        machine.settle();
        let accept = || machine.socket(&server, SocketControl::Accept { flags: OpenFlags::empty(), end: None });
        assert!(accept().is_ok());
        assert_eq!(accept().err(), Some(Errno::EAGAIN));
    }
}

/// A file that can be locked.
#[derive(Default)]
struct Lockable(LockTable);

impl File for Lockable {
    fn flags(&self) -> OpenFlags {
        OpenFlags::empty()
    }
    fn set_flags(&self, _: OpenFlags) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }
    fn attributes(&self) -> BoxFuture<'_, Result<crate::Attributes>> {
        ready(Err(Errno::EIO))
    }
    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(Vec::new())
    }
    fn lock<'a>(&'a self, who: &'a Caller, op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        let LockOp::Set { range, mode, wait, .. } = op else { return ready(Err(Errno::EINVAL)) };
        Box::pin(async move { self.0.set(Owner::Process(who.process), range, mode, wait).await.map(|()| None) })
    }
    fn as_any(&self) -> &dyn core::any::Any {
        self
    }
}

#[test]
fn a_lock_is_held_exactly_if_the_interrupted_call_says_so() {
    let set = || LockOp::Set { range: WHOLE, mode: LockMode::Exclusive, wait: true, description: false };
    let (mut got, mut left) = (0, 0);
    // It is given up some rounds before or after the signal.
    for (given_up, signal) in (0..8).flat_map(|given_up| (0..8).map(move |signal| (given_up, signal))) {
        let machine = Machine::new(2);
        let table = Arc::new(Lockable::default());
        let file: Arc<dyn File> = table.clone();
        let (far, who) = (machine.pass(0, 1, &file), caller(1));
        let holder = Owner::Process(Pid(2));
        machine.run(table.0.set(holder, WHOLE, LockMode::Exclusive, false)).unwrap();
        let mut locking = far.lock(&who, set());
        let mut answer = None;
        for round in 0..100 {
            if round == given_up {
                table.0.release(holder);
            }
            answer = if round < signal { once(locking.as_mut()) } else { interrupt(&who, &mut locking) };
            if answer.is_some() {
                break;
            }
            machine.kernels[round % 2].endpoint.drain(1000);
            machine.run_tasks();
        }
        drop(locking);
        machine.settle();
        table.0.release(holder);
        machine.settle();
        let test = table.0.test(Owner::Process(Pid(3)), WHOLE, LockMode::Exclusive);
        let held = block_on(test).is_some();
        match answer.expect("it neither ends nor leaves") {
            Ok(_) => (got, _) = (got + 1, assert!(held, "{given_up} {signal}")),
            Err(error) => {
                assert_eq!(error, Errno::RESTART);
                (left, _) = (left + 1, assert!(!held, "{given_up} {signal}"));
            }
        }
    }
    assert!(got > 0 && left > 0, "{got} {left}");
}

#[test]
fn a_path_that_is_dropped_anywhere_leaves_no_reference_counted() {
    // Whether the question gets a credit, and after how many steps it is dropped.
    for (credit, steps) in [true, false].into_iter().flat_map(|credit| (0..20).map(move |steps| (credit, steps))) {
        let machine = Machine::new(3);
        let own: [Arc<dyn File>; 2] = [EventFd::new(0, 0).unwrap(), EventFd::new(1, 0).unwrap()];
        let [root, at] = own.each_ref().map(|file| machine.pass(2, 1, file));
        let paths = AllPaths::new(machine.kernels[1].clone(), KernelId(0), Arc::new(NoClock));
        let base = crate::Base::new(root, at);
        let op = PathOp::Open { path: b".".to_vec(), flags: OpenFlags::empty(), mode: 0, resolve: 0 };
        let awake = if credit { &machine.kernels[..] } else { &machine.kernels[1..] };
        if !credit {
            let nothing = FileArrived { id: u64::MAX, giver: KernelId(1) };
            (0..fabric::CREDITS).for_each(|_| machine.kernels[1].endpoint.send(KernelId(0), nothing.clone()).unwrap());
        }
        let who = caller(1);
        let mut opening = paths.run(&who, &base, op);
        for _ in 0..steps {
            if once(opening.as_mut()).is_some() {
                break;
            }
            for kernel in awake {
                kernel.endpoint.drain(1);
            }
            machine.run_tasks();
        }
        drop(opening);
        drop(base);
        machine.settle();
        let left: Vec<usize> = machine.kernels.iter().map(|kernel| kernel.exported()).collect();
        assert_eq!(left, [0, 0, 0], "credit {credit}, {steps} steps");
    }
}

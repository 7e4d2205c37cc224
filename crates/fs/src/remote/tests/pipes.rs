//! Pipes of another kernel that are spliced from: what is held there, how it travels, and what becomes of it.

use super::{interrupted::interrupted_after, *};
use crate::{
    file::{Access, Source, UserBuffer, NEEDS_BUFFER},
    pipe::{self, PIPE_BUF},
};
use machine::{account::Charge, Frame};

const MUCH: usize = 50_000;

fn much() -> Vec<u8> {
    (0..MUCH as u32).map(|index| (index % 251) as u8).collect()
}

impl Machine {
    /// Of all messages so far.
    fn message_bytes(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.endpoint.stats().bytes_sent).sum()
    }

    fn hold(&self, file: &Arc<dyn File>, most: usize) -> pipe::HeldPipe {
        self.run(pipe::hold(file, &caller(1), most, Charge::FREE, false)).unwrap().expect("something is there")
    }
}

#[test]
fn what_is_spliced_goes_by_frames_and_not_in_messages() {
    let machine = Machine::new(3);
    let [(from_read, from_write), (to_read, to_write)] = [ends(), ends()];
    // A pipe of kernel 0, spliced by kernel 1 into one of kernel 2.
    let (source, out) = (machine.pass(0, 1, &from_read), machine.pass(2, 1, &to_write));
    assert_eq!(block_on(from_write.write(&much())), Ok(MUCH));
    machine.settle();
    let before = machine.message_bytes();
    let held = machine.hold(&source, 65536);
    assert_eq!(held.bytes, much());
    let written = machine.run(pipe::offer(&out, &caller(1), &held.bytes));
    assert_eq!(written, Ok(MUCH));
    machine.run(held.take(MUCH));
    assert!(machine.message_bytes() - before < 1000, "{} bytes", machine.message_bytes() - before);
    assert_eq!(machine.frames(), 0);
    let mut back = vec![0; 65536];
    assert_eq!(block_on(to_read.read(&mut back)), Ok(MUCH));
    assert_eq!(back[..MUCH], much());
    assert!(now_or_never(from_read.read(&mut back)).is_none(), "nothing is left");
}

#[test]
fn readers_of_all_kernels_wait_for_who_holds_and_get_what_is_left() {
    let machine = Machine::new(3);
    let (read, write) = ends();
    let (here, there) = (machine.pass(0, 1, &read), machine.pass(0, 2, &read));
    block_on(write.write(b"abcdef")).unwrap();
    let held = machine.hold(&here, 4);
    assert_eq!(held.bytes, b"abcd");
    let (mut own, mut far) = ([0; 1], [0; 2]);
    let (mut reading, mut reading_far) = (read.read(&mut own), there.read(&mut far));
    assert!(machine.poll(&mut reading).is_none() && machine.poll(&mut reading_far).is_none());
    machine.run(held.take(3));
    assert_eq!(machine.poll(&mut reading), Some(Ok(1)));
    assert_eq!(machine.poll(&mut reading_far), Some(Ok(2)));
    drop((reading, reading_far));
    // Whichever comes first.
    assert!([(b"d", b"ef"), (b"f", b"de")].contains(&(&own, &far)), "{own:?} {far:?}");
}

#[test]
fn who_leaves_at_whatever_moment_has_let_go_and_taken_nothing() {
    for early in 0..8 {
        let machine = Machine::new(2);
        let (read, write) = ends();
        let (far, who) = (machine.pass(0, 1, &read), caller(1));
        let hold = || -> BoxFuture<'_, _> { Box::pin(pipe::hold(&far, &who, 9, Charge::FREE, true)) };
        // Nothing is there: it waits at the pipe's kernel.
        let waited = interrupted_after(&machine, &who, hold(), early);
        assert_eq!(waited.err(), Some(Errno::RESTART), "{early}");
        machine.settle();
        block_on(write.write(b"abc")).unwrap();
        // Something is: it may come with the answer, or be let go of by nobody but the answer itself.
        {
            let mut killed = hold();
            for _ in 0..early {
                let _ = once(killed.as_mut());
                machine.kernels[early % 2].endpoint.drain(1000);
            }
        }
        machine.settle();
        let mut buf = [0; 9];
        let mut reading = read.read(&mut buf);
        assert_eq!(machine.poll(&mut reading), Some(Ok(3)), "{early}");
        assert_eq!(machine.frames(), 0);
    }
}

#[test]
fn a_kernel_that_dies_holds_nothing() {
    let machine = Machine::new(3);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &read);
    block_on(write.write(b"abc")).unwrap();
    let held = machine.hold(&far, 9);
    let mut buf = [0; 9];
    let mut reading = read.read(&mut buf);
    assert!(machine.poll(&mut reading).is_none());
    machine.kernels[0].endpoint.declare_dead(KernelId(1));
    machine.kernels[0].kernel_died(KernelId(1));
    assert_eq!(machine.poll(&mut reading), Some(Ok(3)));
    core::mem::forget(held);
}

#[test]
fn an_offer_takes_what_fits_and_never_waits() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let (far, who) = (machine.pass(0, 1, &write), caller(1));
    assert_eq!(machine.run(pipe::offer(&far, &who, &much())), Ok(MUCH));
    assert_eq!(machine.run(pipe::offer(&far, &who, &much())), Ok(65536 - MUCH));
    for end in [&far, &write] {
        assert_eq!(machine.run(pipe::offer(end, &who, b"x")), Err(Errno::EAGAIN));
        assert_eq!(machine.run(pipe::offer(end, &who, b"")), Ok(0));
    }
    drop(read);
    for end in [&far, &write] {
        assert_eq!(machine.run(pipe::offer(end, &who, b"")), Err(Errno::EPIPE));
    }
    let event: Arc<dyn File> = EventFd::new(1, 0).unwrap();
    assert_eq!(
        machine.run(pipe::hold(&machine.pass(0, 1, &event), &who, 1, Charge::FREE, false)).err(),
        Some(Errno::EINVAL)
    );
}

/// A program's memory: what is taken from it, and how many bytes of it are there.
struct Program {
    memory: Arc<dyn machine::Memory>,
    bytes: Vec<u8>,
    taken: usize,
    there: usize,
}

impl UserBuffer for Program {
    fn put(&mut self, _: &[u8]) -> usize {
        unreachable!("it is only written")
    }
    fn put_frame(&mut self, _: Frame, _: usize, _: usize) -> usize {
        unreachable!("it is only written")
    }
    fn put_zeros(&mut self, _: usize) -> usize {
        unreachable!("it is only written")
    }
    fn take(&mut self, to: &mut [u8]) -> usize {
        let moved = to.len().min(self.there - self.taken);
        to[..moved].copy_from_slice(&self.bytes[self.taken..self.taken + moved]);
        self.taken += moved;
        moved
    }
    fn take_frame(&mut self, to: Frame, offset: usize, bytes: usize) -> usize {
        let mut part = vec![0; bytes];
        let moved = self.take(&mut part);
        self.memory.write(to, offset, &part[..moved]);
        moved
    }
}

#[test]
fn a_program_writes_to_a_pipe_elsewhere_from_its_own_memory_once_however_often_it_is_offered() {
    let machine = Machine::new(2);
    let (read, write) = ends();
    let far = machine.pass(0, 1, &write);
    let who = caller(1);
    let memory = machine.kernels[1].memory.clone();
    let mut program = Program { memory, bytes: much(), taken: 0, there: MUCH - 1 };
    let mut writing = far.write_from(Source::User(&mut program, MUCH), Access::by(&who));
    assert_eq!(machine.poll(&mut writing), Some(Err(NEEDS_BUFFER)), "its last byte is not there");
    drop(writing);
    assert_eq!(machine.frames(), 0);
    // The pipe is full, then has room twice: once for nothing that must go whole.
    let capacity = 65536;
    block_on(write.write(&vec![0; capacity])).unwrap();
    (program.taken, program.there) = (0, PIPE_BUF);
    let mut writing = far.write_from(Source::User(&mut program, PIPE_BUF), Access::by(&who));
    assert!(machine.poll(&mut writing).is_none());
    let mut back = vec![0; capacity + PIPE_BUF];
    assert_eq!(block_on(read.read(&mut back[..100])), Ok(100));
    assert!(machine.poll(&mut writing).is_none());
    assert_eq!(block_on(read.read(&mut back)), Ok(capacity - 100));
    assert_eq!(machine.poll(&mut writing), Some(Ok(PIPE_BUF)));
    drop(writing);
    assert_eq!(program.taken, PIPE_BUF);
    assert_eq!(block_on(read.read(&mut back)), Ok(PIPE_BUF));
    assert_eq!(back[..PIPE_BUF], much()[..PIPE_BUF]);
    assert_eq!(machine.frames(), 0);
}

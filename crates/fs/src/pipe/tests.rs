use super::*;
use crate::{
    file::{sigio, Signaller},
    testing::*,
};
use abi::{
    signal::{Signal, SignalFields, SignalInfo},
    OwnerChange,
};

fn pair() -> (Arc<PipeEnd>, Arc<PipeEnd>) {
    pipe(&caller(1), &free(), OpenFlags::empty()).unwrap()
}

fn read(end: &PipeEnd, bytes: usize) -> Option<Result<Vec<u8>>> {
    let mut buf = vec![0; bytes];
    let count = now_or_never(end.read(&mut buf))?;
    Some(count.map(|count| buf[..count].to_vec()))
}

fn write(end: &PipeEnd, bytes: &[u8]) -> Option<Result<usize>> {
    now_or_never(end.write(bytes))
}

#[test]
fn bytes_come_out_in_order_then_the_end() {
    let (reader, writer) = pair();
    assert_eq!(read(&reader, 4), None);
    write(&writer, b"hello").unwrap().unwrap();
    assert_eq!(read(&reader, 4), Some(Ok(b"hell".to_vec())));
    assert_eq!(read(&reader, 4), Some(Ok(b"o".to_vec())));
    drop(writer);
    assert_eq!(read(&reader, 4), Some(Ok(vec![])));
    assert_eq!(reader.poll(), Events::HUP);
}

#[test]
fn small_writes_are_whole_or_wait_and_large_ones_fill_up() {
    let (reader, writer) = pair();
    assert_eq!(write(&writer, &vec![1; DEFAULT_CAPACITY - 10]), Some(Ok(DEFAULT_CAPACITY - 10)));
    assert_eq!(writer.poll(), Events::empty());
    assert_eq!(write(&writer, &[2; 11]), None);
    assert_eq!(write(&writer, &[2; PIPE_BUF + 1]), Some(Ok(10)));
    block_on(writer.set_flags(OpenFlags::NONBLOCK)).unwrap();
    assert_eq!(write(&writer, &[2; PIPE_BUF + 1]), Some(Err(Errno::EAGAIN)));
    read(&reader, PIPE_BUF).unwrap().unwrap();
    assert_eq!(writer.poll(), Events::OUT | Events::WRNORM);
}

#[test]
fn a_blocked_writer_is_woken_by_a_read_and_by_the_end_of_readers() {
    let (reader, writer) = pair();
    write(&writer, &vec![0; DEFAULT_CAPACITY]).unwrap().unwrap();
    let mut blocked = writer.write(b"x");
    assert!(once(blocked.as_mut()).is_none());
    read(&reader, 1).unwrap().unwrap();
    assert_eq!(once(blocked.as_mut()), Some(Ok(1)));
    let mut blocked = writer.write(b"x");
    assert!(once(blocked.as_mut()).is_none());
    drop(reader);
    assert_eq!(once(blocked.as_mut()), Some(Err(Errno::EPIPE)));
    assert!(writer.poll().contains(Events::ERR));
}

#[test]
fn each_end_goes_one_way() {
    let (reader, writer) = pair();
    assert_eq!(write(&reader, b"x"), Some(Err(Errno::EBADF)));
    assert_eq!(read(&writer, 1), Some(Err(Errno::EBADF)));
    assert_eq!(block_on(reader.seek(0, crate::Whence::Set)), Err(Errno::ESPIPE));
    assert_eq!(block_on(reader.read_at(&mut [0], 0)), Err(Errno::ESPIPE));
    assert!(pipe(&caller(1), &free(), OpenFlags::DIRECT).is_err());
}

#[test]
fn the_size_is_a_power_of_two_and_holds_what_is_there() {
    let (reader, writer) = pair();
    let root = caller(1);
    let user = user(1, 1000);
    let set = |caller, size| match block_on(writer.control(caller, Control::SetPipeSize(size))) {
        Ok(ControlAnswer::Number(size)) => Ok(size),
        Ok(_) => unreachable!(),
        Err(errno) => Err(errno),
    };
    assert_eq!(set(&user, 1), Ok(4096));
    assert_eq!(set(&user, 70_000), Ok(131_072));
    assert_eq!(set(&user, MAX_CAPACITY as u64 + 1), Err(Errno::EPERM));
    assert_eq!(set(&root, MAX_CAPACITY as u64 + 1), Ok(2 * MAX_CAPACITY as i64));
    assert_eq!(set(&root, 1 << 40), Err(Errno::EINVAL));
    write(&writer, &[0; 5000]).unwrap().unwrap();
    assert_eq!(set(&user, 4096), Err(Errno::EBUSY));
    let mut data = Vec::new();
    block_on(reader.ioctl(&user, FIONREAD, &mut data)).unwrap();
    assert_eq!(data, 5000i32.to_ne_bytes());
}

fn held(end: &PipeEnd, most: usize) -> Box<dyn HeldBytes> {
    block_on(end.hold(&Shield::NONE, most, false)).unwrap().expect("something is there")
}

#[test]
fn what_is_held_nobody_else_reads_and_as_much_goes_as_was_taken() {
    let (reader, writer) = pair();
    write(&writer, b"abcdef").unwrap().unwrap();
    let mut hold = held(&reader, 4);
    assert_eq!(hold.bytes().unwrap(), b"abcd");
    let mut buf = [0; 9];
    let mut other = reader.read(&mut buf);
    assert!(once(other.as_mut()).is_none());
    assert_eq!(at_once(reader.read_into(Destination::User(&mut Program(vec![], 9), 9), Access::KERNEL)), None);
    // Nobody holds a writer up, and poll tells what is there.
    write(&writer, b"gh").unwrap().unwrap();
    assert_eq!(reader.poll(), Events::IN | Events::RDNORM);
    assert!(once(other.as_mut()).is_none());
    assert_eq!(hold.bytes().unwrap(), b"abcd");
    hold.take(3);
    assert_eq!(once(other.as_mut()), Some(Ok(5)));
    drop(other);
    assert_eq!(&buf[..5], b"defgh");

    write(&writer, b"xyz").unwrap().unwrap();
    drop(held(&reader, 2));
    assert_eq!(read(&reader, 9), Some(Ok(b"xyz".to_vec())));
}

#[test]
fn who_does_not_block_waits_for_who_holds_but_not_for_bytes() {
    let (reader, writer) = pipe(&caller(1), &free(), OpenFlags::NONBLOCK).unwrap();
    assert_eq!(block_on(reader.hold(&Shield::NONE, 9, true)).err(), Some(Errno::EAGAIN));
    write(&writer, b"ab").unwrap().unwrap();
    let hold = held(&reader, 9);
    let mut buf = [0; 9];
    let mut other = reader.read(&mut buf);
    assert!(once(other.as_mut()).is_none());
    let mut next = core::pin::pin!(reader.hold(&Shield::NONE, 9, false));
    assert!(once(next.as_mut()).is_none());
    hold.take(2);
    assert_eq!(once(other.as_mut()), Some(Err(Errno::EAGAIN)));
    assert_eq!(once(next.as_mut()).map(|held| held.err()), Some(Some(Errno::EAGAIN)));
}

#[test]
fn a_hold_waits_for_bytes_and_ends_with_the_writers() {
    let (reader, writer) = pair();
    {
        let mut first = core::pin::pin!(reader.hold(&Shield::NONE, 9, true));
        assert!(once(first.as_mut()).is_none());
        // Dropped, it holds nothing.
    }
    let mut waiting = core::pin::pin!(reader.hold(&Shield::NONE, 9, true));
    assert!(once(waiting.as_mut()).is_none());
    write(&writer, b"abc").unwrap().unwrap();
    let hold = once(waiting.as_mut()).unwrap().unwrap().unwrap();
    assert!(block_on(writer.hold(&Shield::NONE, 9, false)).err() == Some(Errno::EBADF));
    drop(writer);
    hold.take(3);
    assert!(block_on(reader.hold(&Shield::NONE, 9, true)).unwrap().is_none());
}

#[test]
fn a_hold_outlives_the_ends() {
    let (reader, writer) = pair();
    write(&writer, b"abc").unwrap().unwrap();
    let mut hold = held(&reader, 9);
    drop((reader, writer));
    assert_eq!(hold.bytes().unwrap(), b"");
    hold.take(3);
}

/// A wake without a change would be an edge for an epoll.
#[test]
fn letting_go_wakes_readers_only_if_one_waits_for_it() {
    let (reader, writer) = pair();
    write(&writer, b"abc").unwrap().unwrap();
    let (waker, woken) = counter();
    let key = reader.changes().unwrap().subscribe(Arc::new(waker), false);
    drop(held(&reader, 9));
    assert_eq!(woken(), 0);
    let hold = held(&reader, 9);
    let mut buf = [0; 1];
    let mut other = reader.read(&mut buf);
    assert!(once(other.as_mut()).is_none());
    drop(hold);
    assert_eq!(woken(), 1);
    assert_eq!(once(other.as_mut()), Some(Ok(1)));
    reader.changes().unwrap().unsubscribe(key);
}

/// What open(2) does.
fn open(fifo: &Arc<Pipe>, flags: OpenFlags) -> BoxFuture<'static, Result<Arc<PipeEnd>>> {
    let fifo = fifo.clone();
    alloc::boxed::Box::pin(async move {
        let end = open_fifo(&fifo, flags, None)?;
        end.meet_partner().await;
        Ok(end)
    })
}

#[test]
fn opening_a_fifo_waits_for_the_other_side() {
    let fifo = Arc::new(Pipe::new(&caller(1), &free()));
    let mut reader = open(&fifo, OpenFlags::empty());
    assert!(once(reader.as_mut()).is_none());
    let mut writer = open(&fifo, OpenFlags::WRONLY);
    let writer = once(writer.as_mut()).unwrap().unwrap();
    drop(writer);
    let reader = once(reader.as_mut()).expect("the writer came, though it has left").unwrap();
    assert_eq!(reader.poll(), Events::HUP);
}

#[test]
fn opening_a_fifo_without_waiting() {
    let fifo = Arc::new(Pipe::new(&caller(1), &free()));
    let nonblock = OpenFlags::NONBLOCK;
    let writer = now_or_never(open(&fifo, nonblock | OpenFlags::WRONLY)).unwrap();
    assert_eq!(writer.err(), Some(Errno::ENXIO));
    let reader = now_or_never(open(&fifo, nonblock)).unwrap().unwrap();
    assert_eq!(reader.poll(), Events::empty(), "no hang-up before the first writer");
    assert_eq!(block_on(reader.read(&mut [0])), Ok(0));
    let writer = now_or_never(open(&fifo, nonblock | OpenFlags::WRONLY)).unwrap().unwrap();
    assert_eq!(block_on(reader.read(&mut [0])), Err(Errno::EAGAIN));
    drop(writer);
    assert_eq!(reader.poll(), Events::HUP);
    let both = now_or_never(open(&fifo, OpenFlags::RDWR)).unwrap().unwrap();
    assert_eq!(both.poll(), Events::OUT | Events::WRNORM);
}

#[test]
fn an_interrupted_open_leaves_nothing_open() {
    let fifo = Arc::new(Pipe::new(&caller(1), &free()));
    assert!(now_or_never(open(&fifo, OpenFlags::empty())).is_none());
    let writer = now_or_never(open(&fifo, OpenFlags::WRONLY | OpenFlags::NONBLOCK)).unwrap();
    assert_eq!(writer.err(), Some(Errno::ENXIO));
}

#[test]
fn who_gives_up_waiting_is_nobodys_partner_and_who_has_met_one_does_not_give_up() {
    let fifo = Arc::new(Pipe::new(&caller(1), &free()));
    let writer = open_fifo(&fifo, OpenFlags::WRONLY, None).unwrap();
    assert_eq!(writer.give_up_partner(), Err(Errno::EAGAIN));
    // Its descriptor is not closed yet.
    let mut reader = open(&fifo, OpenFlags::empty());
    assert!(once(reader.as_mut()).is_none());
    drop(writer);
    let writer = open_fifo(&fifo, OpenFlags::WRONLY, None).unwrap();
    let reader = once(reader.as_mut()).expect("a writer has come").unwrap();
    assert_eq!(writer.give_up_partner(), Ok(()));
    assert_eq!((reader.poll(), fifo.state.lock().writers), (Events::empty(), 1));
}

/// `cat /dev/stdin` in a pipeline, also after the writer has gone.
#[test]
fn an_end_reopened_through_proc_shares_the_bytes_and_sees_the_end() {
    let (reader, writer) = pair();
    write(&writer, b"left").unwrap().unwrap();
    drop(writer);
    let again = block_on(reader.reopen(&caller(1), OpenFlags::empty())).unwrap();
    assert!(again.poll().contains(Events::HUP));
    drop(reader);
    let mut buf = vec![0; 8];
    assert_eq!(now_or_never(again.read(&mut buf)), Some(Ok(4)));
    assert_eq!(now_or_never(again.read(&mut buf)), Some(Ok(0)));
    assert_eq!(again.flags(), OpenFlags::empty());
}

/// The writer may be through with everything before the reader looks: it had met the reader all the same.
#[test]
fn a_writer_that_waited_may_be_gone_when_the_reader_looks() {
    let fifo = Arc::new(Pipe::new(&caller(1), &free()));
    let mut writer = open(&fifo, OpenFlags::WRONLY);
    assert!(once(writer.as_mut()).is_none());
    // What opening does first, and then the writer is faster.
    let inode = Arc::new(Identity::untyped());
    let reader = PipeEnd::new(&fifo, OpenFlags::empty(), inode, None);
    let end = once(writer.as_mut()).expect("a reader is there").unwrap();
    drop(end);
    assert!(fifo.state.lock().writer_opens > reader.writers_before, "the reader's open must not wait");
}

#[test]
fn at_once_goes_what_is_there_to_who_takes_it_all() {
    let (reader, writer) = pair();
    let mut blocked = vec![0; 9];
    let mut blocked = reader.read(&mut blocked);
    assert!(once(blocked.as_mut()).is_none());
    assert_eq!(at_once(writer.write_from(Source::User(&mut Program(b"hello".to_vec(), 4), 5), Access::KERNEL)), None);
    assert!(once(blocked.as_mut()).is_none());
    assert_eq!(
        at_once(writer.write_from(Source::User(&mut Program(b"hello".to_vec(), 5), 5), Access::KERNEL)),
        Some(5)
    );
    assert_eq!(once(blocked.as_mut()), Some(Ok(5)));
    drop(blocked);

    assert_eq!(at_once(reader.read_into(Destination::User(&mut Program(vec![], 4), 4), Access::KERNEL)), None);
    assert_eq!(
        at_once(writer.write_from(Source::User(&mut Program(b"hello".to_vec(), 5), 5), Access::KERNEL)),
        Some(5)
    );
    assert_eq!(at_once(reader.read_into(Destination::User(&mut Program(vec![], 4), 9), Access::KERNEL)), None);
    let mut program = Program(vec![], 9);
    assert_eq!(at_once(reader.read_into(Destination::User(&mut program, 9), Access::KERNEL)), Some(5));
    assert_eq!(program.0, b"hello");

    // Small ones whole or not at all, long ones as far as there is room.
    write(&writer, &vec![0; DEFAULT_CAPACITY - 10]).unwrap().unwrap();
    assert_eq!(at_once(writer.write_from(Source::User(&mut Program(vec![1; 11], 11), 11), Access::KERNEL)), None);
    assert_eq!(
        at_once(writer.write_from(Source::User(&mut Program(vec![1; 8192], 8192), PIPE_BUF + 1), Access::KERNEL)),
        Some(10)
    );
    assert_eq!(at_once(reader.read_into(Destination::User(&mut Program(vec![], 1), 1), Access::at(0))), None);
    drop(writer);
    assert_eq!(read(&reader, DEFAULT_CAPACITY + 1).unwrap().unwrap().len(), DEFAULT_CAPACITY);
    assert_eq!(at_once(reader.read_into(Destination::User(&mut Program(vec![], 1), 1), Access::KERNEL)), Some(0));
}

fn capacity(end: &PipeEnd, who: &Caller, wanted: Option<u64>) -> Result<i64> {
    let control = wanted.map_or(Control::PipeSize, Control::SetPipeSize);
    match block_on(end.control(who, control))? {
        ControlAnswer::Number(size) => Ok(size),
        _ => panic!("a size"),
    }
}

#[test]
fn a_user_with_many_pipes_gets_small_ones_and_pays_until_they_are_closed() {
    let (who, account) = (user(1, 1000), free());
    let make = || pipe(&who, &account, OpenFlags::empty()).unwrap();
    let usual: Vec<_> = (0..SOFT_PAGES / 16).map(|_| make()).collect();
    let (small, writer) = make();
    assert_eq!((capacity(&usual[0].0, &who, None), capacity(&small, &who, None)), (Ok(65536), Ok(8192)));
    assert_eq!(write(&writer, &[1; 10_000]), Some(Ok(8192)));
    assert_eq!(capacity(&small, &who, Some(16384)), Err(Errno::EPERM));
    assert_eq!(capacity(&small, &caller(1), Some(16384)), Ok(16384), "whoever may, may");
    drop(usual);
    assert_eq!(account.used(Resource::PipePages), 4);
    assert_eq!(account.used(Resource::PipeBytes), 8192);
    assert_eq!(capacity(&small, &who, Some(MAX_CAPACITY as u64)), Ok(MAX_CAPACITY as i64));
    drop((small, writer));
    assert_eq!((account.used(Resource::PipePages), account.used(Resource::PipeBytes)), (0, 0));
}

/// A pipe whose reader signals with O_ASYNC.
fn signalling() -> (Arc<dyn File>, Arc<PipeEnd>, Arc<Owner>) {
    let ((reader, writer), owner) = (pair(), Arc::new(Owner::default()));
    let (file, signaller): (Arc<dyn File>, Arc<dyn Signaller>) = (reader, owner.clone());
    for change in [OwnerChange::Signal(Signal::new(40)), OwnerChange::Begin(7)] {
        block_on(sigio::change(&file, &caller(1), change, &signaller)).unwrap();
    }
    (file, writer, owner)
}

#[test]
fn each_write_signals_the_readers_owner_until_o_async_is_taken_away() {
    let (reader, writer, owner) = signalling();
    assert!(reader.flags().contains(OpenFlags::ASYNC));
    let input = (None, 1, SignalFields::Poll { band: 0x41, fd: 7 });
    write(&writer, b"ab").unwrap().unwrap();
    write(&writer, b"c").unwrap().unwrap();
    assert_eq!(owner.told(), (vec![input, input], 1));
    let signaller: Arc<dyn Signaller> = owner.clone();
    block_on(sigio::change(&reader, &caller(1), OwnerChange::End, &signaller)).unwrap();
    assert!(!reader.flags().contains(OpenFlags::ASYNC) && !writer.pipe.readable.has_waiters());
    write(&writer, b"d").unwrap().unwrap();
    block_on(sigio::change(&reader, &caller(1), OwnerChange::Begin(8), &signaller)).unwrap();
    assert!(writer.pipe.readable.has_waiters());
    drop(reader);
    assert!(!writer.pipe.readable.has_waiters());
    assert_eq!(owner.told(), (vec![input, input], 0));
}

#[test]
fn signals_that_have_to_wait_are_few_and_one_task_sends_them() {
    let (_reader, writer, owner) = signalling();
    for _ in 0..100 {
        write(&writer, b"x").unwrap().unwrap();
    }
    let (told, tasks) = owner.told();
    let plain = told.iter().filter(|(_, code, _)| *code == SignalInfo::SI_KERNEL);
    assert_eq!((told.len(), plain.count(), tasks), (33, 1, 1));
    write(&writer, b"x").unwrap().unwrap();
    assert_eq!(owner.told().0.len(), 34);
}

#[test]
fn a_change_is_told_to_who_was_the_owner_when_it_came() {
    let (reader, writer, owner) = signalling();
    let signaller: Arc<dyn Signaller> = owner.clone();
    for id in [Some(machine::Pid(4)), None, Some(machine::Pid(5))] {
        let new = OwnerChange::Owner { kind: abi::OwnerKind::Process, id, uid: 0, euid: 0 };
        block_on(sigio::change(&reader, &caller(1), new, &signaller)).unwrap();
        write(&writer, b"x").unwrap().unwrap();
    }
    let owners: Vec<_> = owner.told().0.iter().map(|told| told.0).collect();
    assert_eq!(owners, [Some(machine::Pid(4)), None, Some(machine::Pid(5))]);
}

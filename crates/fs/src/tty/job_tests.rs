//! Sessions, job control, hang-up, MIN and TIME: what a single process on a host can't show.

use super::*;
use crate::file::{Access, Destination, Source};
use linux_raw_sys::{general as raw, ioctl::*};

fn member(session: u32, group: u32, process: u32) -> Caller {
    Caller { session: Pid(session), group: Pid(group), process: Pid(process), ..caller(process) }
}

fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

fn by_value(value: u64) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

fn change(file: &Arc<dyn File>, change: impl FnOnce(&mut Termios)) {
    let who = caller(1);
    let mut termios = Termios::decode(&ioctl(file, &who, TCGETS, Vec::new()).unwrap()).unwrap();
    change(&mut termios);
    ioctl(file, &who, TCSETS, termios.encode(false)).unwrap();
}

fn set_raw(file: &Arc<dyn File>, min: u8, time: u8) {
    change(file, |termios| {
        termios.local &= !(raw::ICANON | raw::ECHO);
        termios.chars[raw::VMIN as usize] = min;
        termios.chars[raw::VTIME as usize] = time;
    });
}

#[test]
fn the_leader_gets_a_terminal_and_keys_signal_the_foreground() {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    let leader = member(10, 10, 10);
    assert_eq!(rig.terminals.open_current(&leader, OpenFlags::RDWR, None).err(), Some(Errno::ENXIO));
    assert_eq!(ioctl(&slave, &leader, TIOCGPGRP, Vec::new()), Err(Errno::ENOTTY));
    assert_eq!(ioctl(&slave, &member(10, 10, 11), TIOCSCTTY, int(0)), Err(Errno::EPERM));
    ioctl(&slave, &leader, TIOCSCTTY, int(0)).unwrap();
    assert_eq!(ioctl(&slave, &member(20, 20, 20), TIOCSCTTY, int(0)), Err(Errno::EPERM));
    assert_eq!(ioctl(&slave, &leader, TIOCGSID, Vec::new()), Ok(int(10)));
    assert!(rig.terminals.open_current(&leader, OpenFlags::RDWR, None).is_ok());
    assert_eq!(ioctl(&slave, &leader, TIOCSPGRP, int(5)), Err(Errno::ESRCH));
    assert_eq!(ioctl(&slave, &leader, TIOCSPGRP, int(25)), Err(Errno::EPERM));
    assert_eq!(ioctl(&slave, &leader, TIOCSPGRP, int(-1)), Err(Errno::EINVAL));
    ioctl(&slave, &leader, TIOCSPGRP, int(12)).unwrap();
    assert_eq!(ioctl(&master, &leader, TIOCGPGRP, Vec::new()), Ok(int(12)));
    block_on(master.write(b"\x03\x1a\x1c")).unwrap();
    assert_eq!(rig.jobs.take(), [('g', 12, Signal::INT), ('g', 12, Signal::TSTP), ('g', 12, Signal::QUIT)]);
    let window = [24u16, 80, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    for _ in 0..2 {
        ioctl(&master, &leader, TIOCSWINSZ, window.clone()).unwrap();
    }
    assert_eq!(rig.jobs.take(), [('g', 12, Signal::WINCH)]);
    assert_eq!(ioctl(&slave, &leader, TIOCGWINSZ, Vec::new()), Ok(window));
}

#[test]
fn the_background_is_stopped() {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    let leader = member(10, 10, 10);
    ioctl(&slave, &leader, TIOCSCTTY, int(0)).unwrap();
    let behind = member(10, 13, 13);
    block_on(master.write(b"x\n")).unwrap();
    let mut buf = [0; 9];
    assert_eq!(block_on(slave.read_into(Destination::Kernel(&mut buf), Access::by(&behind))), Err(Errno::RESTART));
    assert_eq!(rig.jobs.take(), [('g', 13, Signal::TTIN)]);
    assert_eq!(block_on(slave.write_from(Source::Kernel(b"a"), Access::by(&behind))), Ok(1));
    change(&slave, |termios| termios.local |= raw::TOSTOP);
    assert_eq!(block_on(slave.write_from(Source::Kernel(b"a"), Access::by(&behind))), Err(Errno::RESTART));
    assert_eq!(ioctl(&slave, &behind, TCFLSH, by_value(0)), Err(Errno::RESTART));
    assert_eq!(rig.jobs.take(), [('g', 13, Signal::TTOU), ('g', 13, Signal::TTOU)]);
    *rig.jobs.ignores.lock().unwrap() = true;
    assert_eq!(block_on(slave.write_from(Source::Kernel(b"a"), Access::by(&behind))), Ok(1));
    assert_eq!(block_on(slave.read_into(Destination::Kernel(&mut buf), Access::by(&behind))), Err(Errno::EIO));
    *rig.jobs.ignores.lock().unwrap() = false;
    *rig.jobs.orphaned.lock().unwrap() = true;
    assert_eq!(block_on(slave.write_from(Source::Kernel(b"a"), Access::by(&behind))), Err(Errno::EIO));
    assert_eq!(ioctl(&slave, &behind, TIOCSPGRP, int(13)), Err(Errno::ENOTTY));
    assert_eq!(block_on(slave.read_into(Destination::Kernel(&mut buf), Access::by(&leader))), Ok(2));
    assert_eq!(
        block_on(slave.read_into(Destination::Kernel(&mut buf), Access::by(&member(20, 21, 21)))),
        Err(Errno::EAGAIN),
        "not its terminal"
    );
}

#[test]
fn the_end_of_the_leader_hangs_up() {
    let rig = Rig::new();
    let (_master, slave) = rig.pty();
    let leader = member(10, 10, 10);
    ioctl(&slave, &leader, TIOCSCTTY, int(0)).unwrap();
    ioctl(&slave, &leader, TIOCSPGRP, int(12)).unwrap();
    rig.terminals.leader_ended(Pid(10));
    assert_eq!(rig.jobs.take(), [('g', 12, Signal::HUP), ('g', 12, Signal::CONT)]);
    assert_eq!(read(&slave), Ok(vec![]));
    assert_eq!(block_on(slave.write(b"x")), Err(Errno::EIO));
    assert!(rig.terminals.of_session(Pid(10)).is_none());
}

#[test]
fn closing_the_master_signals_the_leader() {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    ioctl(&slave, &member(10, 10, 10), TIOCSCTTY, int(0)).unwrap();
    drop(master);
    assert_eq!(rig.jobs.take(), [('p', 10, Signal::HUP), ('p', 10, Signal::CONT)]);
    assert!(rig.terminals.numbers().is_empty());
    assert!(slave.poll().contains(crate::Events::HUP));
}

#[test]
fn min_and_time() {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    block_on(slave.set_flags(OpenFlags::RDWR)).unwrap();
    let write = |bytes: &[u8]| block_on(master.write(bytes)).unwrap();
    let mut buf = [0; 16];

    set_raw(&slave, 0, 0);
    assert_eq!(now_or_never(slave.read(&mut buf)), Some(Ok(0)));

    set_raw(&slave, 3, 0);
    write(b"ab");
    assert_eq!(slave.poll() & crate::Events::IN, crate::Events::empty());
    assert_eq!(now_or_never(slave.read(&mut buf)), None);
    assert_eq!(now_or_never(slave.read(&mut buf[..2])), Some(Ok(2)), "no more is asked for");
    write(b"abcd");
    assert_eq!(now_or_never(slave.read(&mut buf)), Some(Ok(4)));

    set_raw(&slave, 0, 2);
    let mut waiting = slave.read(&mut buf);
    assert_eq!(once(waiting.as_mut()), None);
    rig.timers.advance(200_000_000);
    assert_eq!(once(waiting.as_mut()), Some(Ok(0)));
    drop(waiting);

    set_raw(&slave, 5, 2);
    let mut waiting = slave.read(&mut buf);
    rig.timers.advance(1_000_000_000);
    assert_eq!(once(waiting.as_mut()), None, "the clock starts with the first byte");
    write(b"a");
    assert_eq!(once(waiting.as_mut()), None);
    rig.timers.advance(150_000_000);
    write(b"b");
    assert_eq!(once(waiting.as_mut()), None);
    rig.timers.advance(150_000_000);
    assert_eq!(once(waiting.as_mut()), None, "every byte starts it anew");
    rig.timers.advance(50_000_000);
    assert_eq!(once(waiting.as_mut()), Some(Ok(2)));
}

#[test]
fn a_locked_or_exclusive_terminal_does_not_open() {
    let rig = Rig::new();
    let root = caller(1);
    let user = user(2, 1000);
    let master = rig.terminals.open_ptmx(&root, OpenFlags::RDWR).unwrap();
    assert_eq!(rig.terminals.open_pts(0, &root, OpenFlags::RDWR, None).err(), Some(Errno::EIO));
    ioctl(&master, &root, TIOCSPTLCK, int(0)).unwrap();
    let control = crate::Control::PtyPeer(OpenFlags::RDWR);
    let Ok(crate::ControlAnswer::File(slave)) = block_on(master.control(&root, control)) else { panic!("no peer") };
    ioctl(&slave, &root, TIOCEXCL, Vec::new()).unwrap();
    assert_eq!(rig.terminals.open_pts(0, &user, OpenFlags::RDWR, None).err(), Some(Errno::EBUSY));
    assert_eq!(rig.terminals.open_pts(7, &root, OpenFlags::RDWR, None).err(), Some(Errno::ENOENT));
    assert_eq!(block_on(slave.path()), b"/dev/pts/0");
}

#[test]
fn packet_mode_tells_about_flow_and_flushes() {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    ioctl(&master, &caller(1), TIOCPKT, int(1)).unwrap();
    block_on(slave.write(b"hi")).unwrap();
    assert_eq!(read(&master), Ok(b"\0hi".to_vec()));
    block_on(master.write(b"\x13")).unwrap();
    assert_eq!(read(&master), Ok(vec![raw::TIOCPKT_STOP as u8]));
    block_on(master.write(b"\x11")).unwrap();
    assert_eq!(read(&master), Ok(vec![raw::TIOCPKT_START as u8]));
    ioctl(&slave, &caller(1), TCFLSH, by_value(0)).unwrap();
    assert_eq!(read(&master), Ok(vec![raw::TIOCPKT_FLUSHREAD as u8]));
    assert_eq!(read(&master), Err(Errno::EAGAIN));
}

/// A driver that takes a few bytes at a time.
#[derive(Default)]
struct Slow {
    shown: Mutex<Vec<u8>>,
    room: Mutex<usize>,
}

impl TtyDriver for Slow {
    fn write(&self, bytes: &[u8]) -> usize {
        let mut room = self.room.lock().unwrap();
        let count = bytes.len().min(*room);
        *room -= count;
        self.shown.lock().unwrap().extend(&bytes[..count]);
        count
    }
}

#[test]
fn the_console_waits_for_its_driver() {
    let rig = Rig::new();
    let leader = member(10, 10, 10);
    assert_eq!(rig.terminals.open_console(&leader, OpenFlags::RDWR, None).err(), Some(Errno::ENODEV));
    let driver = Arc::new(Slow::default());
    let tty = rig.terminals.make_console(driver.clone());
    let file = rig.terminals.open_console(&leader, OpenFlags::RDWR, None).unwrap();
    assert!(rig.terminals.of_session(Pid(10)).is_some(), "the leader's first terminal is its own");
    *driver.room.lock().unwrap() = 3;
    assert_eq!(block_on(file.write(b"hello\n")), Ok(6));
    assert_eq!(*driver.shown.lock().unwrap(), b"hel");
    let termios = ioctl(&file, &leader, TCGETS, Vec::new()).unwrap();
    let mut data = termios.clone();
    let mut waiting = file.ioctl(&leader, TCSETSW, &mut data);
    assert!(once(waiting.as_mut()).is_none(), "tcdrain waits");
    *driver.room.lock().unwrap() = 99;
    tty.drain();
    assert_eq!(once(waiting.as_mut()), Some(Ok(0)));
    assert_eq!(*driver.shown.lock().unwrap(), b"hello\r\n");
    tty.input(b"ls\r");
    assert_eq!(read(&file), Ok(b"ls\n".to_vec()));
    assert_eq!(*driver.shown.lock().unwrap(), b"hello\r\nls\r\n");
}

#[test]
fn a_writer_waits_while_output_is_stopped_or_nobody_reads() {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    block_on(slave.set_flags(OpenFlags::RDWR)).unwrap();
    block_on(master.write(b"\x13")).unwrap();
    let mut waiting = slave.write(b"x");
    assert_eq!(once(waiting.as_mut()), None);
    block_on(master.write(b"\x11")).unwrap();
    assert_eq!(once(waiting.as_mut()), Some(Ok(1)));
    let lots = vec![b'y'; 1 << 16];
    let written = now_or_never(slave.write(&lots)).unwrap().unwrap();
    assert!(written < lots.len());
    let mut waiting = slave.write(b"z");
    assert_eq!(once(waiting.as_mut()), None);
    read(&master).unwrap();
    assert_eq!(once(waiting.as_mut()), Some(Ok(1)));
}

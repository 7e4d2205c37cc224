//! The same keys and settings given to a pseudoterminal of the host and to ours must show and read the
//! same. Nothing is timed: after every step the host is asked until it agrees, and a host that never
//! does fails the test by its limit of tries.

use super::*;
use linux_raw_sys::{general as raw, ioctl::*};
use rustix::{
    fs::OFlags,
    pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags},
    termios::{tcgetattr, tcsetattr, InputModes, LocalModes, OptionalActions, OutputModes},
};
use std::os::fd::OwnedFd;

#[derive(Clone, Debug)]
enum Step {
    Type(Vec<u8>),
    /// The program reads up to so many bytes.
    Read(usize),
    Print(Vec<u8>),
    /// Input, output and local flags that change.
    Toggle([u32; 3]),
}

struct Host {
    master: OwnedFd,
    slave: OwnedFd,
}

impl Host {
    fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        for file in [&master, &slave] {
            rustix::fs::fcntl_setfl(file, OFlags::NONBLOCK).unwrap();
        }
        Host { master, slave }
    }

    fn read(file: &OwnedFd, bytes: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; bytes];
        match rustix::io::read(file, &mut buf[..]) {
            Ok(count) => Ok(buf[..count].to_vec()),
            Err(errno) => Err(Errno(errno.raw_os_error() as u16)),
        }
    }

    fn toggle(&self, flags: [u32; 3]) {
        let mut termios = tcgetattr(&self.slave).unwrap();
        termios.input_modes ^= InputModes::from_bits_retain(flags[0]);
        termios.output_modes ^= OutputModes::from_bits_retain(flags[1]);
        termios.local_modes ^= LocalModes::from_bits_retain(flags[2]);
        tcsetattr(&self.slave, OptionalActions::Now, &termios).unwrap();
    }
}

/// Asks until `host` gives `ours`; the last answer if it never does.
fn settle<T: PartialEq>(ours: &T, mut host: impl FnMut() -> T) -> T {
    let mut answer = host();
    for _ in 0..1_000_000 {
        if answer == *ours {
            break;
        }
        std::thread::yield_now();
        answer = host();
    }
    answer
}

fn compare(steps: &[Step]) {
    let rig = Rig::new();
    let (master, slave) = rig.pty();
    let who = caller(1);
    let host = Host::new();
    let (mut shown, mut host_shown) = (Vec::new(), Vec::new());
    for (index, step) in steps.iter().enumerate() {
        let done = &steps[..=index];
        match step {
            Step::Type(keys) => {
                block_on(master.write(keys)).unwrap();
                assert_eq!(rustix::io::write(&host.master, keys), Ok(keys.len()));
            }
            Step::Print(text) => {
                let ours = block_on(slave.write(text));
                let theirs = rustix::io::write(&host.slave, text).map_err(|errno| Errno(errno.raw_os_error() as u16));
                assert_eq!(ours, theirs, "printing after {done:?}");
            }
            Step::Toggle(flags) => {
                let mut termios = Termios::decode(&ioctl(&slave, &who, TCGETS, Vec::new()).unwrap()).unwrap();
                termios.input ^= flags[0];
                termios.output ^= flags[1];
                termios.local ^= flags[2];
                ioctl(&slave, &who, TCSETS, termios.encode(false)).unwrap();
                host.toggle(*flags);
            }
            Step::Read(bytes) => {
                let mut buf = vec![0; *bytes];
                let ours = block_on(slave.read(&mut buf)).map(|count| buf[..count].to_vec());
                assert_eq!(Host::read(&host.slave, *bytes), ours, "reading after {done:?}");
            }
        }
        shown.extend(read(&master).unwrap_or_default());
        settle(&shown.len(), || {
            host_shown.extend(Host::read(&host.master, 4096).unwrap_or_default());
            host_shown.len()
        });
        assert_eq!(
            std::string::String::from_utf8_lossy(&host_shown),
            std::string::String::from_utf8_lossy(&shown),
            "shown after {done:?}"
        );
        let waiting = ioctl(&slave, &who, FIONREAD, Vec::new()).unwrap();
        let waiting = u64::from(u32::from_ne_bytes(waiting[..4].try_into().unwrap()));
        let theirs = settle(&waiting, || rustix::io::ioctl_fionread(&host.slave).unwrap());
        assert_eq!(theirs, waiting, "waiting to be read after {done:?}");
    }
}

fn keys(text: &str) -> Step {
    Step::Type(text.as_bytes().to_vec())
}

#[test]
fn the_settings_of_a_new_terminal() {
    let rig = Rig::new();
    let (_master, slave) = rig.pty();
    let ours = Termios::decode(&ioctl(&slave, &caller(1), TCGETS2, Vec::new()).unwrap()).unwrap();
    let theirs = tcgetattr(&Host::new().slave).unwrap();
    assert_eq!(ours.input, theirs.input_modes.bits());
    assert_eq!(ours.output, theirs.output_modes.bits());
    assert_eq!(ours.control, theirs.control_modes.bits());
    assert_eq!(ours.local, theirs.local_modes.bits());
    assert_eq!(ours.output_speed, theirs.output_speed());
}

#[test]
fn lines_and_their_editing() {
    compare(&[
        keys("hello\r"),
        Step::Read(3),
        Step::Read(100),
        keys("abc\x7f\x7fd\x15next word\x17w\x16\x03\x01\t\x7f\x7f\x7f\n"),
        Step::Read(100),
        keys("ab\x12c\n"),
        Step::Read(100),
        keys("\x04"),
        Step::Read(10),
        keys("abc\x04"),
        Step::Read(3),
        Step::Read(3),
        keys("xyz\x04more\n"),
        Step::Read(2),
        Step::Read(9),
        Step::Read(9),
        keys("lost\x03kept\n"),
        Step::Read(100),
    ]);
}

#[test]
fn tabs_are_erased_to_where_they_began() {
    compare(&[
        Step::Print(b"prompt> ".to_vec()),
        keys("a\tb\t\t\x7f\x7f\x7f\x7f\x7f"),
        keys("\x01\t\x7f\x7f\n"),
        Step::Toggle([0, raw::XTABS, 0]),
        Step::Print(b"x\ty\n\tz".to_vec()),
    ]);
}

#[test]
fn stopping_and_starting() {
    compare(&[
        // What is waiting to be read tells that the host has come past the STOP.
        keys("a\x13bc\n"),
        Step::Print(b"waits".to_vec()),
        keys("\x11d\n"),
        Step::Print(b"goes\n".to_vec()),
        Step::Toggle([raw::IXANY, 0, 0]),
        keys("\n\x13x\n"),
        keys("y\n"),
        Step::Read(99),
    ]);
}

#[test]
fn changing_between_lines_and_single_keys() {
    compare(&[
        keys("part"),
        Step::Read(10),
        Step::Toggle([0, 0, raw::ICANON]),
        Step::Read(2),
        keys("\x7f\x04\r"),
        Step::Toggle([0, 0, raw::ICANON]),
        Step::Read(10),
        keys("end\n"),
        Step::Read(10),
    ]);
}

#[test]
fn a_line_longer_than_the_queue_can_still_be_ended() {
    let mut steps = Vec::new();
    for _ in 0..5 {
        steps.push(Step::Type(vec![b'x'; 1000]));
    }
    steps.extend([keys("yz\n"), Step::Read(8000), keys("again\n"), Step::Read(8000)]);
    compare(&steps);
}

#[test]
fn random_scripts() {
    // No STOP and no signals: there is no way to see that the host has received one, and what it throws
    // away then depends on when it does.
    const KEYS: &[u8] = b"ab \t\t_.\x7f\x7f\x17\x15\x16\x12\x04\n\r\x01\xc3\xa9\x80\xffZ";
    const FLAGS: [(usize, u32); 23] = [
        (0, raw::ICRNL),
        (0, raw::INLCR),
        (0, raw::IGNCR),
        (0, raw::ISTRIP),
        (0, raw::IXON),
        (0, raw::IXANY),
        (0, raw::IUTF8),
        (0, raw::PARMRK),
        (0, raw::IUCLC),
        (1, raw::OPOST),
        (1, raw::ONLCR),
        (1, raw::OCRNL),
        (1, raw::ONOCR),
        (1, raw::ONLRET),
        (1, raw::OLCUC),
        (2, raw::ICANON),
        (2, raw::ECHOE),
        (2, raw::ECHOK),
        (2, raw::ECHOKE),
        (2, raw::ECHOCTL),
        (2, raw::ECHOPRT),
        (2, raw::ECHONL),
        (2, raw::IEXTEN),
    ];
    for seed in 0..300u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as usize % below
        };
        let steps: Vec<Step> = (0..40)
            .map(|_| match next(8) {
                // The last key is always shown, so that its echo tells that the host has received them all.
                0..=3 => Step::Type((0..next(6)).map(|_| KEYS[next(KEYS.len())]).chain(*b"Z").collect()),
                4 => Step::Read(1 + next(8)),
                5 => Step::Print((0..=next(4)).map(|_| b"x\t\r\n\x08y"[next(6)]).collect()),
                _ => {
                    let mut flags = [0; 3];
                    let (word, bit) = FLAGS[next(FLAGS.len())];
                    flags[word] = bit;
                    Step::Toggle(flags)
                }
            })
            .collect();
        compare(&steps);
    }
}

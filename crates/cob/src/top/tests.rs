//! The viewer against a machine that is a thread of this test.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

const OLD: &str = "kernel 0 running 1000000 4096 1024 3 1 0 0 10 0 100 50 7\nthread 5 5 0 0 R 0 sh\n";
const NEW: &str = "kernel 0 running 2000000 4096 1024 3 1 0 0 10 0 100 50 7\nthread 5 5 0 0 R 500000 sh\n";

fn no_signals() -> SignalFd {
    SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_NONBLOCK).unwrap()
}

/// A viewer without a screen, and the other end.
fn looking(once: bool) -> (Looking<'static>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let machine = Machine { pid: 1, command: String::new(), stream: ours };
    let options = TopOptions { interval: 0.1, once, machine: None };
    (Looking::new(machine, &options, None, Box::new(io::sink())), theirs)
}

fn answer(mut stream: &UnixStream, text: &str) {
    let mut question = [0; link::HEADER];
    stream.read_exact(&mut question).unwrap();
    assert_eq!(Decoder::new().next(&mut &question[..]), Ok(Some(ToGuest::Activity)));
    let mut bytes = Vec::new();
    ToHost::Activity(text.to_string()).encode(&mut bytes);
    // In pieces, as a stream may come.
    for piece in bytes.chunks(10) {
        stream.write_all(piece).unwrap();
    }
}

#[test]
fn two_answers_make_a_view() {
    let (mut looking, theirs) = looking(true);
    let machine = std::thread::spawn(move || {
        answer(&theirs, OLD);
        answer(&theirs, NEW);
        theirs
    });
    assert_eq!(looking.run(&no_signals()).unwrap(), End::Enough(0));
    let view = looking.view.unwrap();
    assert_eq!((view.up_seconds, view.threads[0].part), (2, 0.5));
    machine.join().unwrap();
}

#[test]
fn the_machine_may_end_at_any_time() {
    let (mut before, theirs) = looking(false);
    drop(theirs);
    assert_eq!(before.run(&no_signals()).unwrap(), End::OfMachine);

    let (mut meanwhile, theirs) = looking(false);
    let machine = std::thread::spawn(move || {
        answer(&theirs, OLD);
        // In the middle of an answer.
        (&theirs).write_all(&[0x8c, 100, 0, 0, 0, b'k']).unwrap();
    });
    assert_eq!(meanwhile.run(&no_signals()).unwrap(), End::OfMachine);
    machine.join().unwrap();
}

#[test]
fn nonsense_is_an_error() {
    for nonsense in [&b"HTTP/1.0 400 Bad Request\r\n"[..], &[0x80, 0, 0, 0, 0]] {
        let (mut looking, theirs) = looking(false);
        (&theirs).write_all(nonsense).unwrap();
        assert!(looking.run(&no_signals()).is_err());
    }
}

/// Only what is in a private directory of one's own is connected with.
#[test]
fn machines_of_others_are_not_looked_at() {
    let directory = vm::private_directory().unwrap();
    assert!(connect(directory.path()).is_none(), "nobody listens");
    let listener = UnixListener::bind(directory.path().join(viewers::SOCKET)).unwrap();
    let found = connect(directory.path()).unwrap();
    assert_eq!(found.pid, std::process::id() as i32);
    assert!(!found.command.is_empty());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(connect(directory.path()).is_none(), "others may write such a directory's like");
    let link = tempfile::tempdir().unwrap().path().join("link");
    assert!(connect(&link).is_none());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    drop(listener);
    assert!(connect(directory.path()).is_none(), "a run that was killed leaves its socket");
}

#[test]
fn who_has_several_machines_chooses() {
    let machine = |pid| Machine { pid, command: format!("cob run {pid}"), stream: UnixStream::pair().unwrap().0 };
    let complaint = |all, wanted| format!("{:#}", choose(all, wanted).err().unwrap());
    assert!(complaint(Vec::new(), None).starts_with("no machine of yours runs"));
    assert_eq!(choose(vec![machine(3)], None).unwrap().pid, 3);
    let several = || vec![machine(3), machine(5)];
    assert!(complaint(several(), None).contains("3  cob run 3\n        5  cob run 5"));
    assert_eq!(choose(several(), Some(5)).unwrap().pid, 5);
    assert_eq!(complaint(several(), Some(4)), "process 4 runs no machine of yours");
}

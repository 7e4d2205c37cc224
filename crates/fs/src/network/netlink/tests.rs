//! A socket as programs use it; `tests/guest/netlink.c` compares its answers with Linux's.

use super::{super::list::*, *};
use crate::{control::*, testing::block_on, File};
use alloc::boxed::Box;
use machine::BoxFuture;
use std::vec;

struct Pages;

impl SocketList for Pages {
    fn internet(&self, _protocol: Protocol, from: u64) -> BoxFuture<'_, Result<Page<InternetSocket>>> {
        let info = SocketInfo { state: state::LISTEN, receive_queue: 0, send_queue: 5, uid: 0, inode: from, shut: 0 };
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let remote = std::net::SocketAddr::from(([0; 4], 0));
        let socket = InternetSocket { info, local, remote, only_v6: false, timer: (0, 0) };
        Box::pin(async move { Ok(Page { sockets: vec![socket; 100], next: (from < 2).then_some(from + 1) }) })
    }

    fn unix(&self, _from: u64) -> BoxFuture<'_, Result<Page<UnixSocket>>> {
        Box::pin(async { Err(Errno::EIO) })
    }
}

fn socket(protocol: u32) -> Arc<NetlinkSocket> {
    let lists = Arc::new(SocketLists::default());
    lists.set(Arc::new(Pages));
    let (account, of) = (Account::new(None, &[]), NetlinkType::new(3, protocol as i32).unwrap());
    NetlinkSocket::new(&Arc::default(), &lists, account, &user(), of, OpenFlags::NONBLOCK)
}

fn user() -> Caller {
    crate::testing::user(5, 1000)
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (wire::HEADER + body.len()) as u32;
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[7, 0, 0, 0, 0, 0, 0, 0], body].concat()
}

fn ask(socket: &NetlinkSocket, bytes: &[u8]) -> Result<usize> {
    block_on(socket.send(&user(), None, bytes))
}

/// Types of the messages in the next datagram.
fn next(socket: &NetlinkSocket) -> Result<Vec<u16>> {
    let receive = SocketControl::Receive { bytes: 65536, flags: 0 };
    match block_on(socket.control(&user(), Control::Socket(receive)))? {
        ControlAnswer::Message(message) => Ok(Requests(&message.bytes).map(|message| message.kind).collect()),
        _ => Err(Errno::EIO),
    }
}

const LIST: u16 = 0x301;

#[test]
fn a_list_has_an_end_and_a_change_is_refused() {
    let socket = socket(NETLINK_ROUTE);
    ask(&socket, &request(18, LIST, &[0; 16])).unwrap();
    ask(&socket, &request(22, LIST, &[0; 8])).unwrap();
    assert_eq!([next(&socket), next(&socket)], [Ok(vec![16]), Ok(vec![3])]);
    assert_eq!([next(&socket), next(&socket)], [Ok(vec![20, 20]), Ok(vec![3])]);
    ask(&socket, &request(16, 1, &[0; 16])).unwrap();
    assert_eq!([next(&socket), next(&socket)], [Ok(vec![2]), Err(Errno::EAGAIN)]);
}

#[test]
fn the_interface_takes_as_many_bytes_as_on_linux() {
    for (family, length) in [(0, 1468), (10, 740)] {
        let socket = socket(NETLINK_ROUTE);
        let mut body = [0; 16];
        body[0] = family;
        ask(&socket, &request(18, LIST, &body)).unwrap();
        assert_eq!(socket.state.lock().inbox.front().unwrap().bytes.len(), length);
    }
}

#[test]
fn only_what_is_so_already_can_be_set() {
    let socket = socket(NETLINK_ROUTE);
    let root = crate::testing::caller(5);
    let up = |flags: u8| [0, 0, 0, 0, 1, 0, 0, 0, flags, 0, 0, 0, 1, 0, 0, 0];
    for (flags, error) in [(1, 0), (0, -95)] {
        block_on(socket.send(&root, None, &request(16, 5, &up(flags)))).unwrap();
        let answer = socket.state.lock().inbox.pop_front().unwrap();
        assert_eq!(wire::word(&answer.bytes, wire::HEADER) as i32, error);
    }
}

#[test]
fn ports_are_the_process_or_negative() {
    let (one, ports) = (socket(NETLINK_ROUTE), NetlinkPorts::default());
    one.give_port(&user());
    let own = user().process.0;
    assert_eq!(one.state.lock().port, Some(own));
    ports.take(0, 5).unwrap();
    assert_eq!(ports.take(0, 5), Err(Errno::EADDRINUSE));
    assert!(ports.take(4, 5).is_ok());
    assert_eq!(ports.choose(0, Pid(5)) as i32, -4097);
    assert_eq!(one.bind(&user(), &address(own + 1, 0)), Err(Errno::EINVAL));
}

#[test]
fn a_list_of_sockets_takes_a_page_at_a_time() {
    let socket = socket(NETLINK_SOCK_DIAG);
    let mut body = vec![0; 56];
    body[..2].copy_from_slice(&[2, 6]);
    body[4..8].fill(0xff);
    ask(&socket, &request(20, LIST, &body)).unwrap();
    // Another one has to wait for the end of this one.
    ask(&socket, &request(20, LIST, &body)).unwrap();
    assert_eq!(next(&socket), Ok(vec![2]));
    let (mut count, mut most) = (0, 0);
    loop {
        let datagram = next(&socket).unwrap();
        most = most.max(socket.state.lock().bytes);
        if datagram == [3] {
            break;
        }
        count += datagram.len();
    }
    assert_eq!(count, 300);
    assert!(most < 100 * 128, "{most}");
    assert_eq!(next(&socket), Err(Errno::EAGAIN));
}

#[test]
fn what_is_lost_for_want_of_room_is_told_once() {
    let socket = socket(NETLINK_ROUTE);
    let many = request(18, LIST, &[0; 16]).repeat(1000);
    assert_eq!(ask(&socket, &many), Ok(many.len()));
    assert!(socket.state.lock().bytes <= 212_992);
    assert_eq!(next(&socket), Err(Errno::ENOBUFS));
    assert_eq!(next(&socket), Ok(vec![16]));
}

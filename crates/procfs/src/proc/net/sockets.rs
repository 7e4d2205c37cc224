//! Lists of sockets, a line each: tcp, udp, icmp, raw and their kin for IPv6, unix; and their numbers, sockstat. The sockets are those of all
//! kernels ([`fs::network::list`]), asked for page by page as the text is read.

use super::{
    super::{
        made::{put, Directory as Names, Made as MadeText, Text},
        Proc,
    },
    wide,
};
use ::machine::{errno::Result, BoxFuture};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::net::{IpAddr, SocketAddr};
use fs::{
    network::list::{state, InternetSocket, Protocol, SocketLists, UnixSocket},
    synthetic::{Content, Made},
    Caller,
};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const RAW: u8 = 255;
/// Width of the lines of /proc/net/tcp, and of udp and its kin.
const TCP_WIDTH: usize = 149;
const UDP_WIDTH: usize = 127;

pub(super) fn fill(proc: &Arc<Proc>, names: Names) -> Names {
    let internet = |names: Names, name, number, six| {
        names.file(name, InternetList { proc: proc.clone(), protocol: Protocol { number, six } })
    };
    let names = internet(names, "tcp", TCP, false);
    let names = internet(names, "tcp6", TCP, true);
    let names = internet(names, "udp", UDP, false);
    let names = internet(names, "udp6", UDP, true);
    let names = internet(names, "icmp", ICMP, false);
    let names = internet(names, "icmp6", ICMP6, true);
    let names = internet(names, "raw", RAW, false);
    let names = internet(names, "raw6", RAW, true);
    names
        .file("unix", UnixList(proc.clone()))
        .file("sockstat", MadeText { source: proc.clone(), make: numbers })
        .file("sockstat6", MadeText { source: proc.clone(), make: numbers6 })
}

fn lists(proc: &Arc<Proc>) -> Arc<SocketLists> {
    proc.system.extension::<SocketLists>()
}

/// Ends a record of the text.
fn end_record(made: &mut Made, line: &[u8]) {
    made.text.extend_from_slice(line);
    made.ends.push(made.text.len());
}

struct InternetList {
    proc: Arc<Proc>,
    protocol: Protocol,
}

impl Content for InternetList {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        whole(self, caller)
    }

    fn extend<'a>(&'a self, _caller: &'a Caller, made: &'a mut Made, mark: u64) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            if mark == 0 {
                end_record(made, &header(self.protocol));
            }
            let page = lists(&self.proc).internet(self.protocol, mark).await?;
            for socket in &page.sockets {
                let line = internet_line(made.ends.len() - 1, self.protocol, socket);
                end_record(made, &line);
            }
            Ok(page.next)
        })
    }
}

/// All of a text that is made piece by piece.
fn whole<'a>(content: &'a impl Content, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
    Box::pin(async move {
        let mut made = Made::default();
        let mut mark = Some(0);
        while let Some(at) = mark {
            mark = content.extend(caller, &mut made, at).await?;
        }
        Ok(made.text)
    })
}

fn header(protocol: Protocol) -> Vec<u8> {
    let mut text = Text::default();
    let tail = if protocol.number == TCP { "" } else { " ref pointer drops" };
    let first = if protocol == (Protocol { number: UDP, six: false }) { "   sl" } else { "  sl" };
    let addresses = match protocol.six {
        false => "  local_address rem_address   ",
        true => "  local_address                         remote_address                        ",
    };
    put!(text, "{first}{addresses}st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode{tail}");
    wide(&text.0, width(protocol))
}

/// Only lines of IPv4 are filled up.
fn width(protocol: Protocol) -> usize {
    match (protocol.six, protocol.number) {
        (true, _) | (_, RAW) => 0,
        (_, TCP) => TCP_WIDTH,
        _ => UDP_WIDTH,
    }
}

/// In words of 32 bits as they lie in memory, and the port.
fn put_address(text: &mut Text, address: SocketAddr) {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    for word in octets.chunks_exact(4) {
        let word = word.iter().rev().fold(0, |word, &octet| word << 8 | u32::from(octet));
        put!(text, "{word:08X}");
    }
    put!(text, ":{:04X}", address.port());
}

fn internet_line(number: usize, protocol: Protocol, socket: &InternetSocket) -> Vec<u8> {
    let info = &socket.info;
    let (timer, when) = socket.timer;
    let mut text = Text::default();
    match protocol.number {
        TCP => put!(text, "{number:4}: "),
        _ => put!(text, "{number:5}: "),
    }
    put_address(&mut text, socket.local);
    put!(text, " ");
    put_address(&mut text, socket.remote);
    // The queue of a listener that is sent is none.
    let sent = if info.state == state::LISTEN { 0 } else { info.send_queue };
    // Timers in ticks of 10 ms; pointers are nobody's business.
    put!(
        text,
        " {:02X} {sent:08X}:{:08X} {timer:02X}:{:08X} {:08X} {:5} {:8} {}",
        info.state,
        info.receive_queue,
        when / 10,
        0,
        info.uid,
        0,
        info.inode
    );
    match protocol.number {
        TCP if info.state == state::TIME_WAIT => put!(text, " 3 {:016x}", 0),
        TCP => {
            // Timeout and its kin as they are before anything was lost: RTO 1 s, no delayed acknowledgement, a window of 10 segments.
            let threshold = if info.state == state::LISTEN { 0 } else { -1 };
            put!(text, " 1 {:016x} 100 0 0 10 {threshold}", 0);
        }
        _ => put!(text, " 2 {:016x} 0", 0),
    }
    wide(&text.0, width(protocol))
}

struct UnixList(Arc<Proc>);

impl Content for UnixList {
    fn read<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        whole(self, caller)
    }

    fn extend<'a>(&'a self, _caller: &'a Caller, made: &'a mut Made, mark: u64) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            if mark == 0 {
                end_record(made, b"Num       RefCount Protocol Flags    Type St Inode Path\n");
            }
            let page = lists(&self.0).unix(mark).await?;
            for socket in &page.sockets {
                end_record(made, &unix_line(socket));
            }
            Ok(page.next)
        })
    }
}

fn unix_line(socket: &UnixSocket) -> Vec<u8> {
    const ACCEPTS: u32 = 0x1_0000;
    const UNCONNECTED: u8 = 1;
    const CONNECTED: u8 = 3;
    let flags = if socket.info.state == state::LISTEN { ACCEPTS } else { 0 };
    let connected = if socket.info.state == state::ESTABLISHED { CONNECTED } else { UNCONNECTED };
    let mut text = Text::default();
    let (kind, inode) = (socket.kind, socket.info.inode);
    put!(text, "{:016x}: {:08X} {:08X} {flags:08X} {kind:04X} {connected:02X} {inode:5}", 0, 2, 0);
    if !socket.name.is_empty() {
        put!(text, " ");
        // Each zero byte of an abstract name, its first too.
        let shown: Vec<u8> = socket.name.iter().map(|&byte| if byte == 0 { b'@' } else { byte }).collect();
        text.bytes(&shown);
    }
    put!(text, "\n");
    text.0
}

/// How many sockets of a protocol are open, and how many of them are in TIME_WAIT.
async fn count(proc: &Arc<Proc>, number: u8, six: bool) -> Result<(usize, usize)> {
    let (lists, protocol) = (lists(proc), Protocol { number, six });
    let (mut all, mut waiting, mut mark) = (0, 0, Some(0));
    while let Some(at) = mark {
        let page = lists.internet(protocol, at).await?;
        let old = page.sockets.iter().filter(|socket| socket.info.state == state::TIME_WAIT).count();
        (all, waiting, mark) = (all + page.sockets.len() - old, waiting + old, page.next);
    }
    Ok((all, waiting))
}

async fn numbers(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let (tcp, waiting) = count(&proc, TCP, false).await?;
    let (udp, _) = count(&proc, UDP, false).await?;
    let (raw, _) = count(&proc, RAW, false).await?;
    let mut text = Text::default();
    put!(text, "sockets: used {}\n", tcp + udp + raw);
    put!(text, "TCP: inuse {tcp} orphan 0 tw {waiting} alloc {tcp} mem 0\n");
    put!(text, "UDP: inuse {udp} mem 0\nUDPLITE: inuse 0\nRAW: inuse {raw}\nFRAG: inuse 0 memory 0\n");
    Ok(text.0)
}

async fn numbers6(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let (tcp, _) = count(&proc, TCP, true).await?;
    let (udp, _) = count(&proc, UDP, true).await?;
    let (raw, _) = count(&proc, RAW, true).await?;
    let mut text = Text::default();
    put!(text, "TCP6: inuse {tcp}\nUDP6: inuse {udp}\nUDPLITE6: inuse 0\nRAW6: inuse {raw}\nFRAG6: inuse 0 memory 0\n");
    Ok(text.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use fs::network::list::SocketInfo;

    fn socket(local: &str, state: u8) -> InternetSocket {
        InternetSocket {
            info: SocketInfo { state, receive_queue: 0, send_queue: 128, uid: 1000, inode: 77, shut: 0 },
            local: local.parse().expect("an address"),
            remote: if local.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" }.parse().expect("an address"),
            only_v6: false,
            timer: (0, 0),
        }
    }

    fn line(number: u8, local: &str, state: u8) -> String {
        let protocol = Protocol { number, six: local.starts_with('[') };
        String::from_utf8(internet_line(0, protocol, &socket(local, state))).expect("ASCII")
    }

    #[test]
    fn lines_are_those_of_linux() {
        let listener = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 77 1 0000000000000000 100 0 0 10 0";
        let shown = line(TCP, "127.0.0.1:8080", state::LISTEN);
        assert_eq!((shown.trim_end(), shown.len()), (listener, TCP_WIDTH + 1));
        let datagrams = "    0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000080:00000000 00:00000000 00000000  1000        0 77 2 0000000000000000 0\n";
        assert_eq!(line(UDP, "[::1]:53", state::CLOSE), datagrams);
        assert_eq!(header(Protocol { number: TCP, six: false }).len(), TCP_WIDTH + 1);
    }

    #[test]
    fn an_abstract_name_has_at_signs() {
        let info = SocketInfo { state: state::LISTEN, receive_queue: 0, send_queue: 0, uid: 0, inode: 9, shut: 0 };
        let socket = UnixSocket { info, kind: 1, name: b"\0x".to_vec(), place: None, peer: None };
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01     9 @x\n";
        assert_eq!(unix_line(&socket), line.as_bytes());
    }
}

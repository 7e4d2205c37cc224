//! /proc/net, which is /proc/self/net: the same for every process.
//!
//! There is one interface, `lo`, with its addresses, groups and routes ([`fs::network`]); `counters.rs` has what counts packets, `sockets.rs`
//! the lists of sockets.

mod counters;
mod sockets;

use super::{
    made::{put, Directory as Names, Text},
    Proc,
};
use alloc::{sync::Arc, vec::Vec};
use fs::{
    network::lo,
    synthetic::{Fixed, Text as Made},
    Caller,
};

/// A text that never changes: its name, and what makes it.
type Constant = (&'static str, fn() -> Vec<u8>);

const CONSTANT: &[Constant] = &[
    ("anycast6", Vec::new),
    ("arp", || line(b"IP address       HW type     Flags       HW address            Mask     Device")),
    ("dev", devices),
    ("dev_mcast", Vec::new),
    ("fib_trie", tries),
    ("fib_triestat", trie_sizes),
    ("if_inet6", addresses6),
    ("igmp", groups),
    ("igmp6", groups6),
    ("ipv6_route", routes6),
    ("mcfilter", || line(b"Idx Device        MCA        SRC    INC    EXC")),
    ("mcfilter6", || {
        line(b"Idx Device                Multicast Address                   Source Address    INC    EXC")
    }),
    ("netstat", counters::netstat),
    ("packet", || line(b"sk               RefCnt Type Proto  Iface R Rmem   User   Inode")),
    ("ptype", || line(b"Type Device      Function")),
    ("route", || wide(b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT", 127)),
    ("snmp", counters::snmp),
    ("snmp6", counters::snmp6),
];

/// The directory of a process, at `path`.
pub(super) fn directory(path: &str, proc: &Arc<Proc>) -> Fixed {
    let names =
        CONSTANT.iter().fold(Names::new(path), |names, &(name, make)| names.file(name, Made(move |_: &Caller| make())));
    sockets::fill(proc, names).done()
}

fn line(text: &[u8]) -> Vec<u8> {
    [text, b"\n"].concat()
}

/// A line that is filled up with spaces.
fn wide(text: &[u8], width: usize) -> Vec<u8> {
    let mut line = text.to_vec();
    line.resize(width.max(text.len()), b' ');
    line.push(b'\n');
    line
}

fn devices() -> Vec<u8> {
    let mut text = Text::default();
    put!(text, "Inter-|   Receive                                                |  Transmit\n");
    put!(
        text,
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
    );
    put!(
        text,
        "{:>6}: {z:7} {z:7} {z:4} {z:4} {z:4} {z:5} {z:10} {z:9} {z:8} {z:7} {z:4} {z:4} {z:4} {z:5} {z:7} {z:10}\n",
        lo::NAME,
        z = 0
    );
    text.0
}

/// 127.0.0.1/8 as a trie, for both tables: the main one shows the local one as long as no rule divides them.
fn tries() -> Vec<u8> {
    const TRIE: &str = "  +-- 127.0.0.0/8 2 0 2\n     +-- 127.0.0.0/31 1 0 0\n        |-- 127.0.0.0\n           /8 host LOCAL\n        \
                        |-- 127.0.0.1\n           /32 host LOCAL\n     |-- 127.255.255.255\n        /32 link BROADCAST\n";
    let mut text = Text::default();
    put!(text, "Main:\n{TRIE}Local:\n{TRIE}");
    text.0
}

fn trie_sizes() -> Vec<u8> {
    const TRIE: &str = "\tAver depth:     1.66\n\tMax depth:      2\n\tLeaves:         3\n\tPrefixes:       3\n\tInternal nodes: 2\n\t  \
                        1: 1  2: 1\n\tPointers: 6\nNull ptrs: 2\nTotal size: 1  kB\n";
    let mut text = Text::default();
    put!(text, "Basic info: size of leaf: 48 bytes, size of tnode: 40 bytes.\nMain:\n{TRIE}Local:\n{TRIE}");
    text.0
}

/// Address, index, prefix length, scope (host), flags (IFA_F_PERMANENT).
fn addresses6() -> Vec<u8> {
    let mut text = Text::default();
    put!(text, "{:032x} {:02x} {:02x} 10 80 {:>8}\n", lo::ADDRESS6.to_bits(), lo::INDEX, lo::PREFIX6, lo::NAME);
    text.0
}

/// All hosts: 224.0.0.1.
fn groups() -> Vec<u8> {
    let mut text = Text::default();
    put!(text, "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n");
    put!(text, "{}\t{:<10}: {:5}      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n", lo::INDEX, lo::NAME, 1);
    text.0
}

/// All nodes of the link and of the interface: ff02::1, ff01::1.
fn groups6() -> Vec<u8> {
    let mut text = Text::default();
    for (group, flags) in [("ff02", 0xc), ("ff01", 8)] {
        put!(text, "{:<4} {:<15} {group}{:028x} {:5} {flags:08X} 0\n", lo::INDEX, lo::NAME, 1, 1);
    }
    text.0
}

/// Destination and source with their prefix lengths, next hop, metric, users, uses, flags, interface.
fn routes6() -> Vec<u8> {
    let mut text = Text::default();
    let mut route = |to: u128, prefix: u8, metric: u32, users: u32, flags: u32| {
        let none = "00000000000000000000000000000000";
        put!(
            text,
            "{to:032x} {prefix:02x} {none} 00 {none} {metric:08x} {users:08x} {:08x} {flags:08x} {:>8}\n",
            0,
            lo::NAME
        );
    };
    // What has no route is refused: the null entry, which is not counted among the routes, at the end of each table.
    route(0, 0, u32::MAX, 1, 0x20_0200);
    route(lo::ADDRESS6.to_bits(), lo::PREFIX6, 0, 2, 0x8020_0001);
    route(0, 0, u32::MAX, 1, 0x20_0200);
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn shown(text: Vec<u8>) -> String {
        String::from_utf8(text).expect("ASCII")
    }

    #[test]
    fn lines_are_those_of_linux() {
        assert_eq!(shown(addresses6()), "00000000000000000000000000000001 01 80 10 80       lo\n");
        let lo = "    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0";
        assert_eq!(shown(devices()).lines().last(), Some(lo));
        assert_eq!(
            shown(groups6()).lines().next(),
            Some("1    lo              ff020000000000000000000000000001     1 0000000C 0")
        );
        assert_eq!(shown(groups()).lines().nth(1), Some("1\tlo        :     1      V3"));
        let route = "00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo";
        assert_eq!(shown(routes6()).lines().nth(1), Some(route));
    }

    #[test]
    fn each_counter_has_a_value() {
        for text in [counters::snmp(), counters::netstat()] {
            let text = shown(text);
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.chunks(2) {
                assert_eq!(pair[0].split(' ').count(), pair[1].split(' ').count(), "{}", pair[0]);
            }
        }
    }
}

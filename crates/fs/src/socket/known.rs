//! Options that are numbers, which a socket keeps and tells, with Linux's default values and limits.

use super::options::{Name, IP, IPV6, SOL_SOCKET, TCP, UDP};
use bitflags::bitflags;
use machine::Errno;

bitflags! {
    /// What a receiver has asked for.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub(super) struct Wishes: u32 {
        /// SO_OOBINLINE.
        const INLINE = 1;
        /// SO_SELECT_ERR_QUEUE.
        const ERRORS_PRI = 1 << 1;
        /// SO_PASSPIDFD.
        const PIDFD = 1 << 2;
        /// TCP_INQ.
        const INQ = 1 << 3;
        /// IP_PKTINFO and its kin.
        const PKTINFO = 1 << 4;
        const TTL = 1 << 5;
        const TOS = 1 << 6;
        const ORIGIN = 1 << 7;
        const ERRORS = 1 << 8;
        const PKTINFO_6 = 1 << 9;
        const TTL_6 = 1 << 10;
        const TOS_6 = 1 << 11;
        const ORIGIN_6 = 1 << 12;
        const ERRORS_6 = 1 << 13;
    }
}

/// What an option takes.
#[derive(Clone, Copy)]
pub(super) enum Takes {
    /// This of a stream, that of datagrams.
    ByKind(&'static Takes, &'static Takes),
    /// Zero or not, kept where receiving finds it.
    Wish(Wishes),
    /// Zero or not.
    Flag,
    /// What is out of the range is EINVAL.
    Range(i32, i32),
    /// The same; -1 sets the default.
    RangeOrDefault(i32, i32),
    Any,
    /// What is out of the range is EINVAL, and what is not does nothing, on Linux either.
    Ignored(i32, i32),
    /// What Linux makes of it.
    Made(fn(i32) -> i32),
    /// Nothing but its default: there is nothing behind it.
    Default,
    /// Only CAP_NET_ADMIN may set it (EPERM); zero or not. Others may set it to zero.
    Admin,
    /// Nobody may set it.
    Fails(Errno),
    /// It can't be set (ENOPROTOOPT).
    ReadOnly,
}

use Takes::*;

pub(super) struct Known {
    pub name: Name,
    pub default: i32,
    pub takes: Takes,
}

const fn known(level: u32, name: u32, default: i32, takes: Takes) -> Known {
    Known { name: (level, name), default, takes }
}

pub(super) const KNOWN: &[Known] = &[
    known(SOL_SOCKET, 1, 0, Admin),                                           // DEBUG
    known(SOL_SOCKET, 2, 0, Flag),                                            // REUSEADDR
    known(SOL_SOCKET, 5, 0, Flag),                                            // DONTROUTE
    known(SOL_SOCKET, 6, 0, Flag),                                            // BROADCAST
    known(SOL_SOCKET, 9, 0, Flag),                                            // KEEPALIVE
    known(SOL_SOCKET, 10, 0, Wish(Wishes::INLINE)),                           // OOBINLINE
    known(SOL_SOCKET, 11, 0, Flag),                                           // NO_CHECK
    known(SOL_SOCKET, 12, 0, Any),                                            // PRIORITY
    known(SOL_SOCKET, 14, 0, Ignored(i32::MIN, i32::MAX)),                    // BSDCOMPAT
    known(SOL_SOCKET, 15, 0, Flag),                                           // REUSEPORT
    known(SOL_SOCKET, 19, 1, ReadOnly),                                       // SNDLOWAT
    known(SOL_SOCKET, 34, 0, Flag),                                           // PASSSEC: there are no labels.
    known(SOL_SOCKET, 36, 0, Any),                                            // MARK
    known(SOL_SOCKET, 40, 0, Flag),                                           // RXQ_OVFL
    known(SOL_SOCKET, 43, 0, Flag),                                           // NOFCS
    known(SOL_SOCKET, 45, 0, Wish(Wishes::ERRORS_PRI)),                       // SELECT_ERR_QUEUE
    known(SOL_SOCKET, 46, 0, Range(0, i32::MAX)),                             // BUSY_POLL
    known(SOL_SOCKET, 48, 64, ReadOnly),                                      // BPF_EXTENSIONS
    known(SOL_SOCKET, 49, -1, Any),                                           // INCOMING_CPU
    known(SOL_SOCKET, 60, 0, Default),                                        // ZEROCOPY
    known(TCP, 1, 0, Flag),                                                   // NODELAY
    known(TCP, 3, 0, Flag),                                                   // CORK
    known(TCP, 4, 7200, Range(1, 32767)),                                     // KEEPIDLE
    known(TCP, 5, 75, Range(1, 32767)),                                       // KEEPINTVL
    known(TCP, 6, 9, Range(1, 127)),                                          // KEEPCNT
    known(TCP, 7, 6, Range(1, 127)),                                          // SYNCNT
    known(TCP, 8, 60, Made(linger)),                                          // LINGER2
    known(TCP, 9, 0, Made(defer)),                                            // DEFER_ACCEPT
    known(TCP, 10, 0, Made(clamp)),                                           // WINDOW_CLAMP
    known(TCP, 12, 1, Flag),                                                  // QUICKACK
    known(TCP, 16, 0, Range(0, 1)),                                           // THIN_LINEAR_TIMEOUTS
    known(TCP, 17, 0, Ignored(0, 1)),                                         // THIN_DUPACK
    known(TCP, 18, 0, Range(0, i32::MAX)),                                    // USER_TIMEOUT
    known(TCP, 23, 0, Default),                                               // FASTOPEN
    known(TCP, 25, 0, Any),                                                   // NOTSENT_LOWAT
    known(TCP, 27, 0, Range(0, 2)),                                           // SAVE_SYN
    known(TCP, 30, 0, Default),                                               // FASTOPEN_CONNECT
    known(TCP, 36, 0, Wish(Wishes::INQ)),                                     // INQ
    known(TCP, 37, 0, Range(0, (1 << 28) - 1)),                               // TX_DELAY
    known(TCP, 43, 0, ReadOnly),                                              // IS_MPTCP
    known(UDP, 1, 0, Default),                                                // CORK
    known(UDP, 10, 0, ReadOnly),                                              // UDPLITE_SEND_CSCOV
    known(UDP, 11, 0, ReadOnly),                                              // UDPLITE_RECV_CSCOV
    known(UDP, 101, 0, Flag),                                                 // NO_CHECK6_TX
    known(UDP, 102, 0, Flag),                                                 // NO_CHECK6_RX
    known(UDP, 103, 0, Default),                                              // SEGMENT
    known(UDP, 104, 0, Flag),                                                 // GRO: two datagrams are never one.
    known(IP, 1, 0, ByKind(&Made(class), &Made(byte))),                       // TOS
    known(IP, 2, 64, RangeOrDefault(1, 255)),                                 // TTL
    known(IP, 3, 0, ReadOnly),                                                // HDRINCL
    known(IP, 5, 0, Fails(Errno::EINVAL)),                                    // ROUTER_ALERT
    known(IP, 6, 0, Flag),                                                    // RECVOPTS
    known(IP, 7, 0, Flag),                                                    // RETOPTS
    known(IP, 8, 0, Wish(Wishes::PKTINFO)),                                   // PKTINFO
    known(IP, 10, 1, Range(0, 5)),                                            // MTU_DISCOVER
    known(IP, 11, 0, Wish(Wishes::ERRORS)),                                   // RECVERR
    known(IP, 12, 0, Wish(Wishes::TTL)),                                      // RECVTTL
    known(IP, 13, 0, Wish(Wishes::TOS)),                                      // RECVTOS
    known(IP, 15, 0, Flag),                                                   // FREEBIND
    known(IP, 18, 0, Flag),                                                   // PASSSEC
    known(IP, 19, 0, Admin),                                                  // TRANSPARENT
    known(IP, 20, 0, Wish(Wishes::ORIGIN)),                                   // RECVORIGDSTADDR
    known(IP, 21, 0, Range(0, 255)),                                          // MINTTL
    known(IP, 22, 0, ReadOnly),                                               // NODEFRAG
    known(IP, 23, 0, Flag),                                                   // CHECKSUM
    known(IP, 24, 0, Flag),                                                   // BIND_ADDRESS_NO_PORT
    known(IP, 25, 0, ByKind(&Fails(Errno::EINVAL), &Flag)),                   // RECVFRAGSIZE
    known(IP, 26, 0, Range(0, 1)),                                            // RECVERR_RFC4884
    known(IP, 33, 1, ByKind(&Fails(Errno::EINVAL), &RangeOrDefault(0, 255))), // MULTICAST_TTL
    known(IP, 34, 1, Flag),                                                   // MULTICAST_LOOP
    known(IP, 49, 1, Range(0, 1)),                                            // MULTICAST_ALL
    known(IPV6, 11, 0, Flag),                                                 // FLOWINFO
    known(IPV6, 16, 64, RangeOrDefault(0, 255)),                              // UNICAST_HOPS
    known(IPV6, 18, 1, ByKind(&ReadOnly, &RangeOrDefault(0, 255))),           // MULTICAST_HOPS
    known(IPV6, 19, 1, Range(0, 1)),                                          // MULTICAST_LOOP
    known(IPV6, 22, 0, ReadOnly),                                             // ROUTER_ALERT
    known(IPV6, 23, 1, Range(0, 5)),                                          // MTU_DISCOVER
    known(IPV6, 25, 0, Wish(Wishes::ERRORS_6)),                               // RECVERR
    known(IPV6, 26, 0, Flag),                                                 // V6ONLY
    known(IPV6, 29, 1, Flag),                                                 // MULTICAST_ALL
    known(IPV6, 30, 0, Flag),                                                 // ROUTER_ALERT_ISOLATE
    known(IPV6, 31, 0, Range(0, 1)),                                          // RECVERR_RFC4884
    known(IPV6, 33, 0, Flag),                                                 // FLOWINFO_SEND
    known(IPV6, 49, 0, Wish(Wishes::PKTINFO_6)),                              // RECVPKTINFO
    known(IPV6, 51, 0, Wish(Wishes::TTL_6)),                                  // RECVHOPLIMIT
    known(IPV6, 53, 0, Flag),                                                 // RECVHOPOPTS
    known(IPV6, 56, 0, Flag),                                                 // RECVRTHDR
    known(IPV6, 58, 0, Flag),                                                 // RECVDSTOPTS
    known(IPV6, 60, 0, Flag),                                                 // RECVPATHMTU
    known(IPV6, 62, 0, Flag),                                                 // DONTFRAG
    known(IPV6, 66, 0, Wish(Wishes::TOS_6)),                                  // RECVTCLASS
    known(IPV6, 67, 0, RangeOrDefault(0, 255)),                               // TCLASS
    known(IPV6, 70, 1, Flag),                                                 // AUTOFLOWLABEL
    known(IPV6, 73, 0, Range(0, 255)),                                        // MINHOPCOUNT
    known(IPV6, 74, 0, Wish(Wishes::ORIGIN_6)),                               // RECVORIGDSTADDR
    known(IPV6, 75, 0, Admin),                                                // TRANSPARENT
    known(IPV6, 77, 0, Flag),                                                 // RECVFRAGSIZE
    known(IPV6, 78, 0, Flag),                                                 // FREEBIND
];

/// Of IP those that want at least a byte: of others no bytes at all are a zero.
pub(super) const WANTS_BYTE: [u32; 7] = [2, 15, 19, 21, 33, 34, 49];
/// Of IPv6 those of which fewer than four bytes are a zero.
pub(super) const ZERO_IF_SHORT: [u32; 3] = [62, 70, 77];

fn byte(value: i32) -> i32 {
    value & 0xff
}

/// Of TCP the two lowest bits are congestion control's.
pub(super) fn class(value: i32) -> i32 {
    value & 0xfc
}

/// Seconds, at most TCP_FIN_TIMEOUT_MAX; 0: net.ipv4.tcp_fin_timeout.
fn linger(seconds: i32) -> i32 {
    match seconds {
        0 => 60,
        _ => seconds.clamp(-1, 120),
    }
}

/// At least half of the least SO_RCVBUF; 0: none.
fn clamp(bytes: i32) -> i32 {
    match bytes {
        0 => 0,
        _ => bytes.max(1152),
    }
}

/// Seconds in as many retransmissions as they need: after 1, 2, 4, ... 120 s, at most 255 (secs_to_retrans in Linux).
fn defer(seconds: i32) -> i32 {
    let (mut count, mut timeout, mut period) = (0, 1, 0);
    while seconds > period && count < 255 {
        period += timeout;
        (count, timeout) = (count + 1, (timeout * 2).min(120));
    }
    period
}

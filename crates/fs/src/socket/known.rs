//! Options that are numbers, which a socket keeps and tells, with Linux's default values and limits.

use super::options::{Name, IP, IPV6, SOL_SOCKET, TCP, UDP};
use bitflags::bitflags;

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
    /// Zero or not, kept where receiving finds it.
    Wish(Wishes),
    /// Zero or not.
    Flag,
    /// What is out of the range is EINVAL.
    Range(i32, i32),
    /// The same; -1 sets the default.
    RangeOrDefault(i32, i32),
    Any,
    /// Nothing but its default: there is nothing behind it.
    Default,
    /// Only CAP_NET_ADMIN may set it (EPERM).
    Admin,
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
    known(SOL_SOCKET, 1, 0, Admin),                     // DEBUG
    known(SOL_SOCKET, 2, 0, Flag),                      // REUSEADDR
    known(SOL_SOCKET, 5, 0, Flag),                      // DONTROUTE
    known(SOL_SOCKET, 6, 0, Flag),                      // BROADCAST
    known(SOL_SOCKET, 9, 0, Flag),                      // KEEPALIVE
    known(SOL_SOCKET, 10, 0, Wish(Wishes::INLINE)),     // OOBINLINE
    known(SOL_SOCKET, 11, 0, Flag),                     // NO_CHECK
    known(SOL_SOCKET, 12, 0, Range(0, 6)),              // PRIORITY
    known(SOL_SOCKET, 14, 0, ReadOnly),                 // BSDCOMPAT
    known(SOL_SOCKET, 15, 0, Flag),                     // REUSEPORT
    known(SOL_SOCKET, 19, 1, ReadOnly),                 // SNDLOWAT
    known(SOL_SOCKET, 36, 0, Admin),                    // MARK
    known(SOL_SOCKET, 40, 0, Flag),                     // RXQ_OVFL
    known(SOL_SOCKET, 43, 0, Flag),                     // NOFCS
    known(SOL_SOCKET, 45, 0, Wish(Wishes::ERRORS_PRI)), // SELECT_ERR_QUEUE
    known(SOL_SOCKET, 46, 0, Admin),                    // BUSY_POLL
    known(SOL_SOCKET, 48, 64, ReadOnly),                // BPF_EXTENSIONS
    known(SOL_SOCKET, 49, -1, Any),                     // INCOMING_CPU
    known(SOL_SOCKET, 60, 0, Default),                  // ZEROCOPY
    known(TCP, 1, 0, Flag),                             // NODELAY
    known(TCP, 3, 0, Flag),                             // CORK
    known(TCP, 4, 7200, Range(1, 32767)),               // KEEPIDLE
    known(TCP, 5, 75, Range(1, 32767)),                 // KEEPINTVL
    known(TCP, 6, 9, Range(1, 127)),                    // KEEPCNT
    known(TCP, 7, 6, Range(1, 127)),                    // SYNCNT
    known(TCP, 8, 60, Any),                             // LINGER2
    known(TCP, 9, 0, Any),                              // DEFER_ACCEPT
    known(TCP, 10, 0, Any),                             // WINDOW_CLAMP
    known(TCP, 12, 1, Any),                             // QUICKACK
    known(TCP, 18, 0, Range(0, i32::MAX)),              // USER_TIMEOUT
    known(TCP, 23, 0, Default),                         // FASTOPEN
    known(TCP, 25, 0, Any),                             // NOTSENT_LOWAT
    known(TCP, 30, 0, Default),                         // FASTOPEN_CONNECT
    known(TCP, 36, 0, Wish(Wishes::INQ)),               // INQ
    known(UDP, 1, 0, Default),                          // CORK
    known(UDP, 103, 0, Default),                        // SEGMENT
    known(UDP, 104, 0, Flag),                           // GRO: two datagrams are never one.
    known(IP, 1, 0, Any),                               // TOS
    known(IP, 2, 64, RangeOrDefault(1, 255)),           // TTL
    known(IP, 6, 0, Flag),                              // RECVOPTS
    known(IP, 7, 0, Flag),                              // RETOPTS
    known(IP, 8, 0, Wish(Wishes::PKTINFO)),             // PKTINFO
    known(IP, 10, 1, Range(0, 5)),                      // MTU_DISCOVER
    known(IP, 11, 0, Wish(Wishes::ERRORS)),             // RECVERR
    known(IP, 12, 0, Wish(Wishes::TTL)),                // RECVTTL
    known(IP, 13, 0, Wish(Wishes::TOS)),                // RECVTOS
    known(IP, 15, 0, Flag),                             // FREEBIND
    known(IP, 19, 0, Admin),                            // TRANSPARENT
    known(IP, 20, 0, Wish(Wishes::ORIGIN)),             // RECVORIGDSTADDR
    known(IP, 24, 0, Flag),                             // BIND_ADDRESS_NO_PORT
    known(IP, 33, 1, RangeOrDefault(0, 255)),           // MULTICAST_TTL
    known(IP, 34, 1, Flag),                             // MULTICAST_LOOP
    known(IPV6, 16, 64, RangeOrDefault(0, 255)),        // UNICAST_HOPS
    known(IPV6, 18, 1, RangeOrDefault(0, 255)),         // MULTICAST_HOPS
    known(IPV6, 19, 1, Range(0, 1)),                    // MULTICAST_LOOP
    known(IPV6, 23, 1, Range(0, 5)),                    // MTU_DISCOVER
    known(IPV6, 25, 0, Wish(Wishes::ERRORS_6)),         // RECVERR
    known(IPV6, 26, 0, Flag),                           // V6ONLY
    known(IPV6, 49, 0, Wish(Wishes::PKTINFO_6)),        // RECVPKTINFO
    known(IPV6, 51, 0, Wish(Wishes::TTL_6)),            // RECVHOPLIMIT
    known(IPV6, 62, 0, Flag),                           // DONTFRAG
    known(IPV6, 66, 0, Wish(Wishes::TOS_6)),            // RECVTCLASS
    known(IPV6, 67, 0, RangeOrDefault(0, 255)),         // TCLASS
    known(IPV6, 74, 0, Wish(Wishes::ORIGIN_6)),         // RECVORIGDSTADDR
    known(IPV6, 70, 1, Flag),                           // AUTOFLOWLABEL
];

//! The interface `lo` as RTM_NEWLINK has it.

use super::wire::Answers;
use crate::network::lo;
use linux_raw_sys::{if_arp::ARPHRD_LOOPBACK, netlink::*};

pub const AF_INET: u8 = 2;
pub const AF_INET6: u8 = 10;
/// `struct ifinfomsg`: family, type, index, flags, which flags changed.
pub const STRUCTURE: usize = 16;
/// RTEXT_FILTER_SKIP_STATS of IFLA_EXT_MASK: no statistics of IPv6.
pub const SKIP_STATISTICS: u32 = 8;

const RTM_NEWLINK: u32 = 16;
// Newer than linux-raw-sys, or of a header that it does not have.
const IFLA_ALLMULTI: u32 = 61;
const IFLA_DEVLINK_PORT: u32 = 62;
const IFLA_GSO_IPV4_MAX_SIZE: u32 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u32 = 64;
const IFLA_DPLL_PIN: u32 = 65;
const IFLA_MAX_PACING_OFFLOAD_HORIZON: u32 = 66;
const IFLA_NETNS_IMMUTABLE: u32 = 67;
const IFLA_HEADROOM: u32 = 68;
const IFLA_TAILROOM: u32 = 69;
const IFLA_INET_CONF: u32 = 1;
/// NLA_F_NESTED, which only newer attributes have.
const NESTED: u32 = 0x8000;
/// XDP_ATTACHED_NONE.
const NOT_ATTACHED: u8 = 0;
const IF_READY: u32 = 0x8000_0000;

/// Settings of IPv4 (IPV4_DEVCONF_*), as /proc/sys/net/ipv4/conf/lo has them.
const CONF: [i32; 33] =
    [0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10000, 1000, 0, 0, 0, 0, 1];

/// Of IPv6 (DEVCONF_*).
const CONF6: [i32; 60] = [
    0, 64, 65536, 1, 1, 1, 1, -1, 4000, 1000, -1, 604_800, 86400, 3, 600, 16, 0, 1, 1, 1, 60000, 0, 0, 0, 0, 0, 0, -1,
    0, 0, 10000, 1000, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 3_600_000, 0, 0, 1, 0, 0, 0, 0, 0, 1024, 0, 65535, -1, 1, 0, 0,
    0,
];

/// Counters of IPv6 and of its ICMP, the first of which says how many there are. Nothing travels in packets, so nothing is counted.
const STATISTICS6: [u64; 38] = counters();
const ICMP6: [u64; 7] = counters();

const fn counters<const N: usize>() -> [u64; N] {
    let mut counters = [0; N];
    counters[0] = N as u64;
    counters
}

fn structure(family: u8) -> [u8; STRUCTURE] {
    let mut bytes = [0; STRUCTURE];
    bytes[0] = family;
    bytes[2..4].copy_from_slice(&(ARPHRD_LOOPBACK as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&lo::INDEX.to_ne_bytes());
    bytes[8..12].copy_from_slice(&lo::ALL_FLAGS.to_ne_bytes());
    bytes
}

/// All that there is to say, in Linux's order (rtnl_fill_ifinfo).
pub fn put(answers: &mut Answers, mask: u32) {
    answers.message(RTM_NEWLINK, &structure(0), |answers| {
        answers.attribute(IFLA_IFNAME as u32, b"lo\0");
        answers.number(IFLA_TXQLEN as u32, lo::QUEUE_LENGTH);
        answers.attribute(IFLA_OPERSTATE as u32, &[0]);
        answers.attribute(IFLA_LINKMODE as u32, &[0]);
        answers.attribute(IFLA_NETNS_IMMUTABLE, &[1]);
        answers.number(IFLA_MTU as u32, lo::MTU);
        for zero in
            [IFLA_MIN_MTU as u32, IFLA_MAX_MTU as u32, IFLA_GROUP as u32, IFLA_PROMISCUITY as u32, IFLA_ALLMULTI]
        {
            answers.number(zero, 0);
        }
        answers.number(IFLA_NUM_TX_QUEUES as u32, 1);
        answers.number(IFLA_GSO_MAX_SEGS as u32, 65535);
        for size in [IFLA_GSO_MAX_SIZE as u32, IFLA_GRO_MAX_SIZE as u32, IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE]
        {
            answers.number(size, 65536);
        }
        answers.number(IFLA_TSO_MAX_SIZE as u32, 524_280);
        answers.number(IFLA_TSO_MAX_SEGS as u32, 65535);
        answers.number(IFLA_MAX_PACING_OFFLOAD_HORIZON, 0);
        answers.number(IFLA_NUM_RX_QUEUES as u32, 1);
        answers.attribute(IFLA_CARRIER as u32, &[1]);
        for count in [IFLA_CARRIER_CHANGES as u32, IFLA_CARRIER_UP_COUNT as u32, IFLA_CARRIER_DOWN_COUNT as u32] {
            answers.number(count, 0);
        }
        answers.attribute(IFLA_HEADROOM, &[0; 2]);
        answers.attribute(IFLA_TAILROOM, &[0; 2]);
        answers.attribute(IFLA_PROTO_DOWN as u32, &[0]);
        answers.attribute(IFLA_ADDRESS as u32, &[0; lo::HARDWARE_LENGTH]);
        answers.attribute(IFLA_BROADCAST as u32, &[0; lo::HARDWARE_LENGTH]);
        answers.attribute(IFLA_STATS64 as u32, &[0; 200]);
        answers.attribute(IFLA_STATS as u32, &[0; 96]);
        answers.nest(IFLA_XDP as u32, |answers| answers.attribute(IFLA_XDP_ATTACHED as u32, &[NOT_ATTACHED]));
        answers.attribute(IFLA_QDISC as u32, b"noqueue\0");
        answers.nest(IFLA_AF_SPEC as u32, |answers| {
            answers.nest(AF_INET.into(), |answers| answers.nest(IFLA_INET_CONF, |answers| put_words(answers, &CONF)));
            answers.nest(AF_INET6.into(), |answers| put_inet6(answers, mask & SKIP_STATISTICS == 0));
        });
        answers.attribute(IFLA_MAP as u32, &[0; 32]);
        for none in [IFLA_DEVLINK_PORT, IFLA_DPLL_PIN] {
            answers.attribute(none | NESTED, &[]);
        }
    });
}

/// What is asked for by AF_INET6 (inet6_fill_ifinfo).
pub fn put_for_inet6(answers: &mut Answers) {
    answers.message(RTM_NEWLINK, &structure(AF_INET6), |answers| {
        answers.attribute(IFLA_IFNAME as u32, b"lo\0");
        answers.attribute(IFLA_ADDRESS as u32, &[0; lo::HARDWARE_LENGTH]);
        answers.number(IFLA_MTU as u32, lo::MTU);
        answers.attribute(IFLA_OPERSTATE as u32, &[0]);
        answers.nest(IFLA_PROTINFO as u32, |answers| put_inet6(answers, true));
    });
}

fn put_words(answers: &mut Answers, words: &[i32]) {
    words.iter().for_each(|word| answers.put(&word.to_ne_bytes()));
}

fn put_counters(answers: &mut Answers, kind: u32, counters: &[u64]) {
    answers.nest(kind, |answers| counters.iter().for_each(|count| answers.put(&count.to_ne_bytes())));
}

fn put_inet6(answers: &mut Answers, statistics: bool) {
    answers.number(IFLA_INET6_FLAGS as u32, IF_READY);
    // Longest packet, when it was changed last, and the times in milliseconds that neighbours are believed and asked anew.
    answers.nest(IFLA_INET6_CACHEINFO as u32, |answers| put_words(answers, &[65535, 0, 30000, 1000]));
    answers.nest(IFLA_INET6_CONF as u32, |answers| put_words(answers, &CONF6));
    if statistics {
        put_counters(answers, IFLA_INET6_STATS as u32, &STATISTICS6);
        put_counters(answers, IFLA_INET6_ICMP6STATS as u32, &ICMP6);
    }
    answers.attribute(IFLA_INET6_TOKEN as u32, &[0; 16]);
    answers.attribute(IFLA_INET6_ADDR_GEN_MODE as u32, &[0]);
}

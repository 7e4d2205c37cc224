//! /sys/class/net: the one interface, `lo` (Documentation/ABI of Linux, sysfs-class-net). Nothing can be changed.

use crate::proc::made::Directory as Names;
use alloc::format;
use alloc::{boxed::Box, vec::Vec};
use fs::network::lo;
use fs::synthetic::{hash_ino, Content, Node};
use fs::Caller;
use machine::{errno::Result, BoxFuture, Errno};

/// Where `/sys/class/net/lo` leads.
pub(super) const LINK: &str = "../../devices/virtual/net/lo";

/// Those that are all zero.
const COUNTERS: &str = "collisions multicast rx_bytes rx_compressed rx_crc_errors rx_dropped rx_errors rx_fifo_errors rx_frame_errors \
                        rx_length_errors rx_missed_errors rx_nohandler rx_over_errors rx_packets tx_aborted_errors tx_bytes \
                        tx_carrier_errors tx_compressed tx_dropped tx_errors tx_fifo_errors tx_heartbeat_errors tx_packets tx_window_errors";
const ZERO: &str = "addr_assign_type carrier_changes carrier_down_count carrier_up_count dev_port dormant gro_flush_timeout link_mode \
                    napi_defer_hard_irqs netdev_group proto_down testing threaded";

/// The directory of `lo`, which is at `path`.
pub(super) fn interface(names: Names, path: &str) -> Names {
    let zeroes = |names: Names, list: &'static str| {
        list.split_whitespace().fold(names, |names, name| names.constant(name, "0\n"))
    };
    let unknown = |name| Node::file(hash_ino(format!("{path}/{name}").as_bytes()), Unknown);
    zeroes(names, ZERO)
        .constant("addr_len", format!("{}\n", lo::HARDWARE_LENGTH))
        .constant("address", "00:00:00:00:00:00\n")
        .constant("broadcast", "00:00:00:00:00:00\n")
        .constant("carrier", "1\n")
        .constant("dev_id", "0x0\n")
        .with("duplex", unknown("duplex"))
        .constant("flags", format!("{:#x}\n", lo::FLAGS & CHANGEABLE))
        .constant("ifalias", "")
        .constant("ifindex", format!("{}\n", lo::INDEX))
        .constant("iflink", format!("{}\n", lo::INDEX))
        .constant("mtu", format!("{}\n", lo::MTU))
        .constant("name_assign_type", "2\n")
        .constant("operstate", "unknown\n")
        .with("speed", unknown("speed"))
        .link("subsystem", "../../../../class/net")
        .constant("tx_queue_len", format!("{}\n", lo::QUEUE_LENGTH))
        .constant("type", format!("{ARPHRD_LOOPBACK}\n"))
        .constant("uevent", format!("INTERFACE={}\nIFINDEX={}\n", lo::NAME, lo::INDEX))
        .directory("statistics", |names| zeroes(names, COUNTERS))
}

const ARPHRD_LOOPBACK: u32 = 772;
/// Without IFF_RUNNING, which is worked out.
const CHANGEABLE: u16 = !0x40;

/// What `lo` has no answer for.
struct Unknown;

impl Content for Unknown {
    fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(core::future::ready(Err(Errno::EINVAL)))
    }
}

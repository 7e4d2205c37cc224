//! The loopback interface.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Its number.
pub const INDEX: u32 = 1;
pub const NAME: &str = "lo";
pub const MTU: u32 = 65536;
/// Packets that may wait to be sent.
pub const QUEUE_LENGTH: u32 = 1000;
/// Length of a hardware address, which is all zeroes.
pub const HARDWARE_LENGTH: usize = 6;
/// IFF_UP, IFF_LOOPBACK, IFF_RUNNING: what ioctls know of the flags.
pub const FLAGS: u16 = 0x49;
/// Those that SIOCSIFFLAGS looks at (__dev_change_flags in Linux): it leaves IFF_LOOPBACK and IFF_RUNNING as they are.
pub const SETTABLE: u16 = 0xf3a5;
/// With IFF_LOWER_UP, which only netlink and /sys tell.
pub const ALL_FLAGS: u32 = FLAGS as u32 | 0x1_0000;
pub const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub const PREFIX: u8 = 8;
pub const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 0, 0, 0);
pub const NETWORK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 0);
/// Of the network; the interface has none (SIOCGIFBRDADDR).
pub const BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);
pub const ADDRESS6: Ipv6Addr = Ipv6Addr::LOCALHOST;
pub const PREFIX6: u8 = 128;

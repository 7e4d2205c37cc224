//! Descriptor tables that threads of several kernels share.

use crate::fs::Opened;
use alloc::vec::Vec;
use machine::{errno, KernelId, Pid};
use serde::{Deserialize, Serialize};

/// A descriptor table on all kernels: the kernel that made it, and a number of that kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableId {
    /// The kernel that keeps the table: all operations on it go there.
    pub home: KernelId,
    /// Which of that kernel's tables.
    pub serial: u64,
}

messages! {
    "descriptor" 0x280;

    /// Descriptor `fd` of a table, for a kernel that has not cached it.
    fd_get: DescriptorGet { table: TableId, fd: u32 } -> errno::Result<(Opened, bool)>, Low;

    /// Put a file at the lowest free number from `from` on (or exactly at it, replacing); answers the number, and whether
    /// only one process uses the table.
    fd_put: DescriptorPut { table: TableId, file: Opened, from: u32, exactly: bool, close_on_exec: bool, limit: u64 } -> errno::Result<(u32, bool)>, Low;

    /// Put two files at the two lowest free numbers; otherwise the same.
    fd_put_two: DescriptorPutTwo { table: TableId, files: (Opened, Opened), close_on_exec: bool, limit: u64 } -> errno::Result<((u32, u32), bool)>, Low;

    /// Free a number; answers what it held.
    fd_take: DescriptorTake { table: TableId, fd: u32 } -> errno::Result<Opened>, Low;

    /// Set the close-on-exec flag.
    fd_flag: DescriptorFlag { table: TableId, fd: u32, close_on_exec: bool } -> errno::Result<()>, Low;

    /// All open descriptors with their flag (fork on another kernel, close_range, /proc).
    fd_list: DescriptorList { table: TableId } -> Vec<(u32, Opened, bool)>, Low;

    /// The home of a table tells kernels that cached it that a number changed or went; answered before the
    /// change is.
    fd_forget: DescriptorForget { table: TableId, fd: u32 } -> (), High;

    /// One user of the table less among the processes at home on `user` (or, with `more`, one more). With the last one all is
    /// closed; if that is the end of process `ended`, its record locks end too.
    fd_users: DescriptorUsers { table: TableId, user: KernelId, more: bool, ended: Option<Pid> } -> (), Low;
}

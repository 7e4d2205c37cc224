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
    fd_get: DescriptorGet {
        /// The descriptor table that this is about.
        table: TableId,
        /// The descriptor's number.
        fd: u32,
    } -> errno::Result<(Opened, bool)>, Low;

    /// Put a file at the lowest free number from `from` on (or exactly at it, replacing); answers the number, and whether
    /// only one process uses the table.
    fd_put: DescriptorPut {
        /// The descriptor table that this is about.
        table: TableId,
        /// The open file, as a reference for the table.
        file: Opened,
        /// Least number, or the number itself.
        from: u32,
        /// dup2 and its like: at `from`, and whatever is there goes.
        exactly: bool,
        /// FD_CLOEXEC of the new descriptor.
        close_on_exec: bool,
        /// RLIMIT_NOFILE: EMFILE (or EBADF, if `exactly`) if the number would not be below.
        limit: u64,
    } -> errno::Result<(u32, bool)>, Low;

    /// Put two files at the two lowest free numbers; otherwise the same.
    fd_put_two: DescriptorPutTwo {
        /// The descriptor table that this is about.
        table: TableId,
        /// The open files, as references for the table.
        files: (Opened, Opened),
        /// FD_CLOEXEC of both.
        close_on_exec: bool,
        /// RLIMIT_NOFILE: EMFILE if one of the numbers would not be below.
        limit: u64,
    } -> errno::Result<((u32, u32), bool)>, Low;

    /// Free a number; answers what it held.
    fd_take: DescriptorTake {
        /// The descriptor table that this is about.
        table: TableId,
        /// The descriptor's number.
        fd: u32,
    } -> errno::Result<Opened>, Low;

    /// Set the close-on-exec flag.
    fd_flag: DescriptorFlag {
        /// The descriptor table that this is about.
        table: TableId,
        /// The descriptor's number.
        fd: u32,
        /// FD_CLOEXEC from now on.
        close_on_exec: bool,
    } -> errno::Result<()>, Low;

    /// All open descriptors with their flag (fork on another kernel, close_range, /proc).
    fd_list: DescriptorList {
        /// The descriptor table that this is about.
        table: TableId,
    } -> Vec<(u32, Opened, bool)>, Low;

    /// The home of a table tells kernels that cached it that a number changed or went; answered before the
    /// change is.
    fd_forget: DescriptorForget {
        /// The descriptor table that this is about.
        table: TableId,
        /// The number whose file is not what it was.
        fd: u32,
    } -> (), High;

    /// One user of the table less among the processes at home on `user` (or, with `more`, one more). With the last one all is
    /// closed; if that is the end of process `ended`, its record locks end too.
    fd_users: DescriptorUsers {
        /// The descriptor table that this is about.
        table: TableId,
        /// The home of the processes that are counted.
        user: KernelId,
        /// One more, not one less.
        more: bool,
        /// The process whose end it is; None: it has got another table.
        ended: Option<Pid>,
    } -> (), Low;
}

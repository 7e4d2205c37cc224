//! Descriptor tables that threads of several kernels share.

use crate::fs::Opened;
use alloc::vec::Vec;
use machine::{errno, KernelId, Pid};
use serde::{Deserialize, Serialize};

/// A descriptor table on all kernels: the kernel that made it, and a number of that kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableId {
    /// The kernel that keeps the table. All operations on it go there.
    pub home: KernelId,
    /// Which of that kernel's tables.
    pub serial: u64,
}

messages! {
    "descriptor" 0x280;

    /// Asks the home of a table for the file of a descriptor that the sender has not cached. Answered with a reference to the file, and FD_CLOEXEC.
    fd_get: DescriptorGet {
        /// The descriptor table that this is about.
        table: TableId,
        /// The descriptor's number.
        fd: u32,
    } -> errno::Result<(Opened, bool)>, Low;

    /// Puts a file at the lowest free number from `from` on, or with `exactly` at `from`. The home answers the number, and whether only one
    /// process uses the table.
    fd_put: DescriptorPut {
        /// The descriptor table that this is about.
        table: TableId,
        /// The open file, as a reference for the table.
        file: Opened,
        /// The least number, or with `exactly` the number.
        from: u32,
        /// dup2 and its like: the file takes the number `from`, and what was there is closed.
        exactly: bool,
        /// FD_CLOEXEC of the new descriptor.
        close_on_exec: bool,
        /// RLIMIT_NOFILE: EMFILE (with `exactly` EBADF) if the number would not be below.
        limit: u64,
    } -> errno::Result<(u32, bool)>, Low;

    /// Puts two files at the two lowest free numbers (pipe, socketpair). Answered like [`DescriptorPut`].
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

    /// close: frees a number. The home answers with a reference to the file that was there.
    fd_take: DescriptorTake {
        /// The descriptor table that this is about.
        table: TableId,
        /// The descriptor's number.
        fd: u32,
    } -> errno::Result<Opened>, Low;

    /// Sets FD_CLOEXEC of a descriptor.
    fd_flag: DescriptorFlag {
        /// The descriptor table that this is about.
        table: TableId,
        /// The descriptor's number.
        fd: u32,
        /// FD_CLOEXEC from now on.
        close_on_exec: bool,
    } -> errno::Result<()>, Low;

    /// Asks for all open descriptors: number, file and FD_CLOEXEC. For a fork on another kernel, close_range and /proc.
    fd_list: DescriptorList {
        /// The descriptor table that this is about.
        table: TableId,
    } -> Vec<(u32, Opened, bool)>, Low;

    /// The home of a table tells kernels that have cached a number that its file is closed or replaced. The home answers whoever closes or
    /// replaces it when all have answered this.
    fd_forget: DescriptorForget {
        /// The descriptor table that this is about.
        table: TableId,
        /// The number, which the receiver drops from its cache.
        fd: u32,
    } -> (), High;

    /// Counts one process less, or with `more` one more, that uses the table and is at home on `user`. When the last one goes all descriptors
    /// are closed. If process `ended` has ended, its record locks end as well.
    fd_users: DescriptorUsers {
        /// The descriptor table that this is about.
        table: TableId,
        /// The home of the processes that are counted.
        user: KernelId,
        /// One more, not one less.
        more: bool,
        /// The process that goes, if it has ended. None: it has got another table.
        ended: Option<Pid>,
    } -> (), Low;
}

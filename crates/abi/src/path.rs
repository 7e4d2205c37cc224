//! Everything that takes a path name, as a value.

use crate::{OpenFlags, SetAttributes, XattrOp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Paths are bytes without NUL, at most PATH_MAX; the empty path means the base itself where Linux has
/// AT_EMPTY_PATH (`empty_ok`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathOp {
    Open {
        path: Vec<u8>,
        flags: OpenFlags,
        mode: u32,
        resolve: u64,
    },
    Stat {
        path: Vec<u8>,
        follow: bool,
        empty_ok: bool,
    },
    StatFs {
        path: Vec<u8>,
    },
    ReadLink {
        path: Vec<u8>,
        empty_ok: bool,
    },
    /// access(2): `mode` of R_OK, W_OK, X_OK, tested for real or effective ids.
    Access {
        path: Vec<u8>,
        mode: u32,
        effective: bool,
        follow: bool,
        empty_ok: bool,
    },
    MakeDir {
        path: Vec<u8>,
        mode: u32,
    },
    MakeNode {
        path: Vec<u8>,
        mode: u32,
        rdev: (u32, u32),
    },
    Symlink {
        target: Vec<u8>,
        path: Vec<u8>,
    },
    /// `from` is looked up at the base, `to` at the second base.
    Link {
        from: Vec<u8>,
        to: Vec<u8>,
        follow: bool,
        empty_ok: bool,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
        flags: u32,
    },
    Unlink {
        path: Vec<u8>,
        directory: bool,
    },
    SetAttributes {
        path: Vec<u8>,
        follow: bool,
        empty_ok: bool,
        set: SetAttributes,
    },
    /// getxattr(2) and its kin.
    Xattr {
        path: Vec<u8>,
        follow: bool,
        op: XattrOp,
    },
    Mount {
        source: Vec<u8>,
        path: Vec<u8>,
        kind: Vec<u8>,
        flags: u64,
        data: Vec<u8>,
    },
    Unmount {
        path: Vec<u8>,
        flags: u32,
    },
    /// sync(2): every file system.
    Sync,
    /// inotify_init1(2): made where the files are.
    Notify {
        flags: OpenFlags,
    },
    /// inotify_add_watch(2); the descriptor is the second base.
    Watch {
        path: Vec<u8>,
        mask: u32,
    },
}

/// statfs(2), with Linux's field meanings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemInfo {
    pub kind: u64,
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub id: u64,
    pub name_max: u64,
    pub flags: u64,
}

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
    /// Looks up all of a path but its last component: for the second path of a rename or link over kernels.
    Parent {
        path: Vec<u8>,
    },
    /// sync(2): every file system.
    Sync,
    /// syncfs(2): that of a file.
    SyncFs {
        path: Vec<u8>,
    },
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

impl PathOp {
    /// The path, or with `second` the second one.
    pub fn path(&self, second: bool) -> Option<&Vec<u8>> {
        match self {
            PathOp::Link { to: path, .. } | PathOp::Rename { to: path, .. } if second => Some(path),
            _ if second => None,
            PathOp::Open { path, .. }
            | PathOp::Stat { path, .. }
            | PathOp::StatFs { path }
            | PathOp::SyncFs { path }
            | PathOp::ReadLink { path, .. }
            | PathOp::Access { path, .. }
            | PathOp::MakeDir { path, .. }
            | PathOp::MakeNode { path, .. }
            | PathOp::Symlink { path, .. }
            | PathOp::Link { from: path, .. }
            | PathOp::Rename { from: path, .. }
            | PathOp::Unlink { path, .. }
            | PathOp::SetAttributes { path, .. }
            | PathOp::Xattr { path, .. }
            | PathOp::Mount { path, .. }
            | PathOp::Unmount { path, .. }
            | PathOp::Parent { path }
            | PathOp::Watch { path, .. } => Some(path),
            PathOp::Sync | PathOp::Notify { .. } => None,
        }
    }

    /// A copy, for who must go on with it after it was sent. None: there is no memory for the value of an attribute, which is the longest thing that a program passes.
    pub fn try_clone(&self) -> Option<PathOp> {
        let PathOp::Xattr { path, follow, op: XattrOp::Set { name, value, when } } = self else {
            return Some(self.clone());
        };
        let mut copy = Vec::new();
        copy.try_reserve_exact(value.len()).ok()?;
        copy.extend_from_slice(value);
        let op = XattrOp::Set { name: name.clone(), value: copy, when: *when };
        Some(PathOp::Xattr { path: path.clone(), follow: *follow, op })
    }

    /// Another path in its place.
    pub fn set_path(&mut self, second: bool, new: Vec<u8>) {
        match self {
            PathOp::Link { to: path, .. } | PathOp::Rename { to: path, .. } if second => *path = new,
            PathOp::Link { from: path, empty_ok, .. } => {
                // A link of /proc to an open file of another kernel.
                *empty_ok |= new.is_empty();
                *path = new;
            }
            PathOp::Open { path, .. }
            | PathOp::Stat { path, .. }
            | PathOp::StatFs { path }
            | PathOp::SyncFs { path }
            | PathOp::ReadLink { path, .. }
            | PathOp::Access { path, .. }
            | PathOp::MakeDir { path, .. }
            | PathOp::MakeNode { path, .. }
            | PathOp::Symlink { path, .. }
            | PathOp::Rename { from: path, .. }
            | PathOp::Unlink { path, .. }
            | PathOp::SetAttributes { path, .. }
            | PathOp::Xattr { path, .. }
            | PathOp::Mount { path, .. }
            | PathOp::Unmount { path, .. }
            | PathOp::Parent { path }
            | PathOp::Watch { path, .. } => *path = new,
            PathOp::Sync | PathOp::Notify { .. } => {}
        }
    }
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
    /// Not of statfs(2): an error was found, and nothing is written any more (`emergency_ro` in /proc/mounts).
    pub has_stopped: bool,
}

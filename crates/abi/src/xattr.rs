//! Extended attributes (man 7 xattr).

use alloc::vec::Vec;
use machine::{errno::Result, Errno};
use serde::{Deserialize, Serialize};

/// What a system call does to the extended attributes of a file. All but `Get` and `List` answer no bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrOp {
    /// getxattr(2): answers the value.
    Get { name: Vec<u8> },
    /// listxattr(2): answers the names, a NUL behind each.
    List,
    /// setxattr(2).
    Set { name: Vec<u8>, value: Vec<u8>, when: SetWhen },
    /// removexattr(2).
    Remove { name: Vec<u8> },
}

/// XATTR_CREATE and XATTR_REPLACE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetWhen {
    /// The attribute may be there already; else EEXIST.
    pub present: bool,
    /// The attribute may be missing; else ENODATA.
    pub missing: bool,
}

impl SetWhen {
    /// Without a flag.
    pub const ALWAYS: SetWhen = SetWhen { present: true, missing: true };
    /// XATTR_CREATE.
    pub const MISSING: SetWhen = SetWhen { present: false, missing: true };
    /// XATTR_REPLACE.
    pub const PRESENT: SetWhen = SetWhen { present: true, missing: false };

    /// Whether an attribute that is there (`present`) or is not may be set.
    pub fn check(self, present: bool) -> Result<()> {
        match present {
            true if !self.present => Err(Errno::EEXIST),
            false if !self.missing => Err(Errno::ENODATA),
            _ => Ok(()),
        }
    }
}

//! Capabilities (man 7 capabilities): what user 0 may, in pieces that can be given up.

use serde::{Deserialize, Serialize};

/// A set of capabilities, as capset(2) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitySet(pub u64);

/// One of them, by number.
pub mod capability {
    pub const CHOWN: u32 = 0;
    pub const DAC_OVERRIDE: u32 = 1;
    pub const DAC_READ_SEARCH: u32 = 2;
    pub const FOWNER: u32 = 3;
    pub const FSETID: u32 = 4;
    pub const KILL: u32 = 5;
    pub const SETGID: u32 = 6;
    pub const SETUID: u32 = 7;
    pub const SETPCAP: u32 = 8;
    pub const NET_ADMIN: u32 = 12;
    pub const IPC_LOCK: u32 = 14;
    pub const IPC_OWNER: u32 = 15;
    pub const SYS_RAWIO: u32 = 17;
    pub const SYS_CHROOT: u32 = 18;
    pub const SYS_PTRACE: u32 = 19;
    pub const SYS_ADMIN: u32 = 21;
    pub const SYS_NICE: u32 = 23;
    pub const SYS_RESOURCE: u32 = 24;
    pub const SYS_TIME: u32 = 25;
    pub const MKNOD: u32 = 27;
    pub const SETFCAP: u32 = 31;
    pub const WAKE_ALARM: u32 = 35;
    /// The last one of Linux 6.1 (CHECKPOINT_RESTORE).
    pub const LAST: u32 = 40;
}

impl CapabilitySet {
    pub const NONE: CapabilitySet = CapabilitySet(0);
    pub const ALL: CapabilitySet = CapabilitySet((1 << (capability::LAST + 1)) - 1);
    /// Those that follow the user id of files (setfsuid): CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID,
    /// LINUX_IMMUTABLE, MKNOD, MAC_OVERRIDE.
    pub const FILES: CapabilitySet = CapabilitySet(0x1f | 1 << 9 | 1 << 27 | 1 << 32);

    pub fn has(self, capability: u32) -> bool {
        capability < 64 && self.0 & 1 << capability != 0
    }

    pub fn only(capability: u32) -> Self {
        CapabilitySet(1 << capability)
    }

    pub fn and(self, other: Self) -> Self {
        CapabilitySet(self.0 & other.0)
    }

    pub fn or(self, other: Self) -> Self {
        CapabilitySet(self.0 | other.0)
    }

    pub fn without(self, other: Self) -> Self {
        CapabilitySet(self.0 & !other.0)
    }

    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

/// Those of user 0.
impl Default for CapabilitySet {
    fn default() -> Self {
        CapabilitySet::ALL
    }
}

/// Bits of PR_SET_SECUREBITS.
pub mod secure {
    pub const NO_ROOT: u32 = 1;
    pub const NO_SETUID_FIXUP: u32 = 4;
    pub const KEEP_CAPS: u32 = 16;
    pub const KEEP_CAPS_LOCKED: u32 = 32;
    pub const ALL: u32 = 0xff;
}

/// A thread's sets beside the effective one, which is part of its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub permitted: CapabilitySet,
    pub inheritable: CapabilitySet,
    pub bounding: CapabilitySet,
    pub ambient: CapabilitySet,
    pub secure: u32,
}

impl Capabilities {
    /// Of a program that a user starts with.
    pub fn of_user(uid: u32) -> Self {
        let permitted = if uid == 0 { CapabilitySet::ALL } else { CapabilitySet::NONE };
        let (none, all) = (CapabilitySet::NONE, CapabilitySet::ALL);
        Capabilities { permitted, inheritable: none, bounding: all, ambient: none, secure: 0 }
    }

    /// What setuid(2) and its kin do to them; the new effective set.
    pub fn after_set_uid(&mut self, old: [u32; 3], new: [u32; 3], effective: CapabilitySet) -> CapabilitySet {
        if self.secure & secure::NO_SETUID_FIXUP != 0 {
            return effective;
        }
        let mut effective = effective;
        if old.contains(&0) && !new.contains(&0) {
            if self.secure & secure::KEEP_CAPS == 0 {
                self.permitted = CapabilitySet::NONE;
                effective = CapabilitySet::NONE;
            }
            self.ambient = CapabilitySet::NONE;
        }
        // The second is the effective id.
        match (old[1], new[1]) {
            (0, 1..) => CapabilitySet::NONE,
            (1.., 0) => self.permitted,
            _ => effective,
        }
    }

    /// What execve of a program without capabilities of its own does; the new effective set.
    pub fn after_execute(&mut self, uid: u32, euid: u32) -> CapabilitySet {
        let root = self.secure & secure::NO_ROOT == 0;
        let (all, effective) = (root && (uid == 0 || euid == 0), root && euid == 0);
        self.permitted = if all { self.bounding.or(self.inheritable) } else { CapabilitySet::NONE };
        self.permitted = self.permitted.or(self.ambient);
        self.secure &= !secure::KEEP_CAPS;
        if effective {
            self.permitted
        } else {
            self.ambient
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_user_0_loses_all_unless_kept() {
        let mut mine = Capabilities::of_user(0);
        assert_eq!(mine.after_set_uid([0, 0, 0], [5, 5, 5], CapabilitySet::ALL), CapabilitySet::NONE);
        assert_eq!(mine.permitted, CapabilitySet::NONE);
        let mut mine = Capabilities { secure: secure::KEEP_CAPS, ..Capabilities::of_user(0) };
        assert_eq!(mine.after_set_uid([0, 0, 0], [5, 5, 5], CapabilitySet::ALL), CapabilitySet::NONE);
        assert_eq!(mine.permitted, CapabilitySet::ALL);
        // seteuid away and back.
        let mut mine = Capabilities::of_user(0);
        assert_eq!(mine.after_set_uid([0, 0, 0], [0, 5, 0], CapabilitySet::ALL), CapabilitySet::NONE);
        assert_eq!(mine.after_set_uid([0, 5, 0], [0, 0, 0], CapabilitySet::NONE), CapabilitySet::ALL);
    }

    #[test]
    fn a_program_of_user_0_gets_what_the_bound_allows() {
        let bounding = CapabilitySet::ALL.without(CapabilitySet::only(capability::CHOWN));
        let mut mine = Capabilities { bounding, permitted: CapabilitySet::NONE, ..Capabilities::of_user(0) };
        assert_eq!(mine.after_execute(0, 0), bounding);
        assert_eq!(mine.after_execute(5, 5), CapabilitySet::NONE);
    }
}

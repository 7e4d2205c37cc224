//! Keys, ids, permissions.

use crate::{Ipc, CREATE, EXCLUSIVE};
use abi::Credentials;
use alloc::{
    collections::{btree_map::Entry, BTreeMap},
    sync::Arc,
    vec::Vec,
};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    Errno, HashMap, KernelId, Memory,
};
use messages::ipc::{IpcCheck, IpcKind, IpcMake, Permissions, Wanted};

/// An id is a serial number of its owner, and the owner.
const KERNELS: i32 = 512;
/// Objects of a kind that one kernel may own (SHMMNI, SEMMNI, MSGMNI are as large or larger).
const OBJECTS: usize = 4096;

/// The kernel that owns an object. None: there is no such id.
pub fn owner(id: i32) -> Option<KernelId> {
    (id >= 0).then_some(KernelId((id % KERNELS) as u16))
}

/// What the keys name; only the primary's is used.
#[derive(Default)]
pub(crate) struct Keys {
    /// Held while an object is being made.
    making: AsyncLockUnit,
    known: Lock<HashMap<(IpcKind, i32), i32>>,
}

struct AsyncLockUnit(AsyncLock<()>);

impl Default for AsyncLockUnit {
    fn default() -> Self {
        AsyncLockUnit(AsyncLock::new(()))
    }
}

impl Keys {
    pub fn forget(&self, kind: IpcKind, key: i32, id: i32) {
        let mut known = self.known.lock();
        if known.get(&(kind, key)) == Some(&id) {
            known.remove(&(kind, key));
        }
    }
}

impl Ipc {
    /// At the primary: the object of a key, made by `from` if there is none.
    pub(crate) async fn get_for(&self, from: KernelId, wanted: Wanted) -> Result<i32> {
        let _making = self.keys.making.0.lock().await;
        let name = (wanted.kind, wanted.key);
        let known = self.keys.known.lock().get(&name).copied();
        if let Some(id) = known {
            if wanted.flags & (CREATE | EXCLUSIVE) == CREATE | EXCLUSIVE {
                return Err(Errno::EEXIST);
            }
            let owner = owner(id).ok_or(Errno::EINVAL)?;
            let ask = IpcCheck { id, wanted: wanted.clone() };
            match self.system().endpoint.call(owner, ask).await {
                Ok(Err(Errno::EIDRM)) | Err(_) => self.keys.forget(wanted.kind, wanted.key, id),
                Ok(answer) => return answer.map(|()| id),
            }
        }
        if wanted.flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        let id = self.system().endpoint.call(from, IpcMake { wanted }).await.map_err(Errno::from)??;
        self.keys.known.lock().insert(name, id);
        Ok(id)
    }
}

/// The objects of one kind that this kernel owns.
pub(crate) struct Table<T> {
    me: KernelId,
    objects: Lock<(i32, BTreeMap<i32, Arc<T>>)>,
}

impl<T> Table<T> {
    /// A boot generation of a kernel begins with other ids than the last one: keys and programs may still name those.
    pub fn new(memory: &dyn Memory) -> Self {
        let begin = memory.boot_generation().wrapping_sub(1) % (i32::MAX / KERNELS) as u32;
        let next = (begin as i32).wrapping_mul(OBJECTS as i32).rem_euclid(i32::MAX / KERNELS);
        Table { me: memory.kernel(), objects: Lock::new((next, BTreeMap::new())) }
    }

    pub fn insert(&self, object: T) -> Result<i32> {
        let mut objects = self.objects.lock();
        let (next, known) = &mut *objects;
        if known.len() >= OBJECTS {
            return Err(Errno::ENOSPC);
        }
        loop {
            let id = *next * KERNELS + i32::from(self.me.0);
            *next = (*next + 1) % (i32::MAX / KERNELS);
            if let Entry::Vacant(free) = known.entry(id) {
                free.insert(Arc::new(object));
                return Ok(id);
            }
        }
    }

    /// EINVAL: no such object.
    pub fn get(&self, id: i32) -> Result<Arc<T>> {
        self.objects.lock().1.get(&id).cloned().ok_or(Errno::EINVAL)
    }

    pub fn remove(&self, id: i32) {
        let gone = self.objects.lock().1.remove(&id);
        drop(gone);
    }

    pub fn all(&self) -> Vec<(i32, Arc<T>)> {
        self.objects.lock().1.iter().map(|(id, object)| (*id, object.clone())).collect()
    }
}

pub(crate) fn permissions_of(wanted: &Wanted) -> Permissions {
    let who = &wanted.asker.who;
    let (uid, gid) = (who.euid, who.egid);
    Permissions { key: wanted.key, uid, gid, cuid: uid, cgid: gid, mode: wanted.flags & 0o777 }
}

pub(crate) const READ: u32 = 0o444;
pub(crate) const WRITE: u32 = 0o222;

/// EACCES unless the mode gives all that `wanted` (permission bits of any class) asks for.
pub(crate) fn check(permissions: &Permissions, who: &Credentials, wanted: u32) -> Result<()> {
    let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
    let in_group = |gid: u32| who.egid == gid || who.groups.contains(&gid);
    let granted = if [permissions.uid, permissions.cuid].contains(&who.euid) {
        permissions.mode >> 6
    } else if in_group(permissions.gid) || in_group(permissions.cgid) {
        permissions.mode >> 3
    } else {
        permissions.mode
    };
    match wanted & !granted & 7 == 0 || who.can(abi::capability::IPC_OWNER) {
        true => Ok(()),
        false => Err(Errno::EACCES),
    }
}

/// EPERM unless it is the asker's (IPC_SET, IPC_RMID).
pub(crate) fn check_owner(permissions: &Permissions, who: &Credentials) -> Result<()> {
    match [permissions.uid, permissions.cuid].contains(&who.euid) || who.is_privileged() {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

/// IPC_SET.
pub(crate) fn set(permissions: &mut Permissions, uid: u32, gid: u32, mode: u32) -> Result<()> {
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    (permissions.uid, permissions.gid) = (uid, gid);
    permissions.mode = permissions.mode & !0o777 | mode & 0o777;
    Ok(())
}

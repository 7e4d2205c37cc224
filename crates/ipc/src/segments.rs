//! Shared memory segments (man 2 shmget, shmat, shmctl).
//!
//! A segment is a file without a name of the kernel that made it, and attaching is mapping that file shared; so its
//! memory is coherent as that of any file is. How often it is attached is nowhere written down: it is how many regions
//! of all spaces map it, and they are counted when somebody asks. That follows fork, exec, munmap and the end of
//! processes by itself.
//!
//! A segment that was removed while attached stays (nameless, as on Linux) until nobody maps it. It is looked for at
//! every list and detachment, and when a process that attached one, or a child of such a one, has ended.

use crate::{
    names::{check, check_owner, permissions_of, set, READ, WRITE},
    Ipc,
};
use alloc::{format, sync::Arc};
use fs::{Caller, File, Services, SetAttributes};
use machine::{errno::Result, sync::Lock, Errno, KernelId, Pid, PAGE_SIZE};
use messages::{fs::Opened, ipc::*};

/// SHMMAX of Linux: ULONG_MAX - (1 << 24).
pub const SIZE_MAX: u64 = u64::MAX - (1 << 24);
/// What a file may be as large as.
const FILE_MAX: u64 = i64::MAX as u64;
/// Bits of the mode that only the kernel sets.
const DESTROYED: u32 = 0o1000;
const LOCKED: u32 = 0o2000;
/// SHM_NORESERVE.
const NORESERVE: u32 = 0o10000;

pub(crate) struct Segment {
    pub size: u64,
    file: Arc<dyn File>,
    state: Lock<State>,
}

struct State {
    permissions: Permissions,
    created: i64,
    attached: i64,
    detached: i64,
    creator: Pid,
    last: Pid,
}

impl Segment {
    /// `most` is the memory of the machine.
    pub async fn new(services: &Arc<Services>, wanted: &Wanted, now: i64, most: u64) -> Result<Segment> {
        if wanted.size == 0 || wanted.size > SIZE_MAX {
            return Err(Errno::EINVAL);
        }
        // More than the machine has is promised to nobody (vm.overcommit_memory 0), unless SHM_NORESERVE says so.
        let most = match wanted.flags & NORESERVE {
            0 => most,
            _ => FILE_MAX - PAGE_SIZE as u64,
        };
        if wanted.size > most {
            return Err(Errno::ENOMEM);
        }
        let file = fs::memfd(services, format!("SYSV{:08x}", wanted.key).as_bytes(), 0)?;
        let caller = Caller {
            credentials: wanted.asker.who.clone(),
            process: wanted.asker.process,
            thread: wanted.asker.process,
            group: wanted.asker.process,
            session: wanted.asker.process,
            umask: 0,
            shield: machine::Shield::NONE,
        };
        let size = Some(wanted.size.next_multiple_of(PAGE_SIZE as u64));
        file.set_attributes(&caller, SetAttributes { size, ..SetAttributes::default() }).await?;
        let state = State {
            permissions: permissions_of(wanted),
            created: now,
            attached: 0,
            detached: 0,
            creator: wanted.asker.process,
            last: Pid(0),
        };
        Ok(Segment { size: wanted.size, file, state: Lock::new(state) })
    }

    pub fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }

    fn is_removed(&self) -> bool {
        self.permissions().mode & DESTROYED != 0
    }
}

impl Ipc {
    async fn attachments(&self, segment: &Segment) -> u64 {
        let Ok(object) = segment.file.object().await else { return 0 };
        let kernels = self.system().kernels().into_iter().collect();
        let counts = self.system().endpoint.multicast(&kernels, MemoryCount { object: object.id() }).await;
        counts.into_iter().map(|(_, count)| count.unwrap_or(0)).sum()
    }

    pub(crate) async fn segment_status(&self, id: i32, segment: &Segment) -> Status {
        let attached = self.attachments(segment).await;
        // In blocks of 512 bytes.
        let blocks = segment.file.attributes().await.map_or(0, |attributes| attributes.blocks);
        let state = segment.state.lock();
        let details = Details::Memory {
            size: segment.size,
            attached,
            resident: blocks * 512 / PAGE_SIZE as u64,
            attach_time: state.attached,
            detach_time: state.detached,
            creator: state.creator,
            last: state.last,
        };
        Status { id, permissions: state.permissions, changed: state.created, details }
    }

    /// Removed segments that nobody maps any more go.
    pub(crate) async fn sweep_segments(&self) {
        for (id, segment) in self.segments.all() {
            if segment.is_removed() && self.attachments(&segment).await == 0 {
                self.segments.remove(id);
            }
        }
    }

    pub(crate) async fn attach(
        &self,
        from: KernelId,
        id: i32,
        write: bool,
        asker: &Asker,
    ) -> Result<(Opened, u64, i32)> {
        self.sweep_if_removed(id).await;
        let segment = self.segments.get(id)?;
        check(&segment.permissions(), &asker.who, if write { READ | WRITE } else { READ })?;
        self.watch_end(asker.process).await?;
        let file = self.system().descriptor_transfer.give_away(&segment.file, from).await?;
        let mut state = segment.state.lock();
        state.attached = self.seconds();
        state.last = asker.process;
        Ok((file, segment.size, state.permissions.key))
    }

    async fn sweep_if_removed(&self, id: i32) {
        if self.segments.get(id).is_ok_and(|segment| segment.is_removed()) {
            self.sweep_segments().await;
        }
    }

    pub(crate) async fn detached(&self, object: abi::ObjectId, process: Pid) -> Option<u64> {
        for (_, segment) in self.segments.all() {
            if segment.file.object().await.is_ok_and(|known| known.id() == object) {
                let mut state = segment.state.lock();
                state.detached = self.seconds();
                state.last = process;
                return Some(segment.size);
            }
        }
        None
    }

    pub(crate) async fn control_segment(&self, id: i32, command: Command, asker: &Asker) -> Result<Answer> {
        self.sweep_if_removed(id).await;
        let segment = self.segments.get(id)?;
        let now = self.seconds();
        match command {
            Command::Status { check: checked } => {
                if checked {
                    check(&segment.permissions(), &asker.who, READ)?;
                }
                return Ok(Answer::Status(self.segment_status(id, &segment).await));
            }
            Command::Set { uid, gid, mode, .. } => {
                let mut state = segment.state.lock();
                check_owner(&state.permissions, &asker.who)?;
                set(&mut state.permissions, uid, gid, mode)?;
                state.created = now;
            }
            Command::Remove => {
                let key = {
                    let mut state = segment.state.lock();
                    check_owner(&state.permissions, &asker.who)?;
                    state.permissions.mode |= DESTROYED;
                    core::mem::take(&mut state.permissions.key)
                };
                self.forget_key(IpcKind::Memory, key, id).await;
                self.sweep_segments().await;
            }
            // There is no swap to keep it out of.
            Command::Lock(on) => {
                let mut state = segment.state.lock();
                check_owner(&state.permissions, &asker.who)?;
                match on {
                    true => state.permissions.mode |= LOCKED,
                    false => state.permissions.mode &= !LOCKED,
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(Answer::Done)
    }
}

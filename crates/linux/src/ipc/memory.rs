//! shmget, shmat, shmdt, shmctl. Attaching is mapping the segment's file shared.

use super::*;
use ::ipc::SIZE_MAX;
use ::messages::ipc::{Details, MemoryAttach, MemoryDetach};
use alloc::format;
use machine::{Access, PageRange, UserAddr, PAGE_SIZE};
use process::DescriptorTransfer;
use vm::{MapAddress, MapRequest, Source};

const LOCK: i32 = 11;
const UNLOCK: i32 = 12;
const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const SHM_STAT_ANY: i32 = 15;

const RDONLY: u32 = 0o10000;
const ROUND: u32 = 0o20000;
const REMAP: u32 = 0o40000;
const EXEC: u32 = 0o100000;
const HUGETLB: u32 = 0o4000;

/// What /proc/PID/maps calls it, and how shmdt knows what to look for.
const LABEL: &[u8] = b"/SYSV";

pub(crate) async fn shmget(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(2) as u32;
    let makes = call.int(0) == 0 || flags & ::ipc::CREATE != 0;
    if makes && call.arg(1) > i64::MAX as u64 {
        // More than a file can have.
        return Err(Errno::EINVAL);
    }
    if makes && flags & HUGETLB != 0 && call.arg(1) > 0 {
        // As Linux without huge pages in the pool; of pages of a size that is none, not even that.
        let size = flags >> 26 & 0x3f;
        return Err(match size {
            0 | 21 | 30 if !call.can(abi::capability::IPC_LOCK) => Errno::EPERM,
            0 | 21 | 30 => Errno::ENOMEM,
            _ => Errno::EINVAL,
        });
    }
    get(call, IpcKind::Memory, call.int(0), call.arg(1), flags).await
}

pub(crate) async fn shmat(call: &mut Call<'_>) -> Result<u64> {
    let (id, mut address, flags) = (call.int(0), call.arg(1), call.arg(2) as u32);
    let page = PAGE_SIZE as u64;
    let owner = owner(id)?;
    if address != 0 {
        if address % page != 0 {
            if flags & ROUND == 0 {
                return Err(Errno::EINVAL);
            }
            address -= address % page;
        }
        if address == 0 && flags & REMAP != 0 {
            return Err(Errno::EINVAL);
        }
    } else if flags & REMAP != 0 {
        return Err(Errno::EINVAL);
    }
    let write = flags & RDONLY == 0;
    let ask = MemoryAttach { id, write, asker: asker(call) };
    let take = |from: &dyn DescriptorTransfer, reply: Result<_>| {
        let (file, size, key) = reply?;
        Result::Ok((from.take(file)?, size, key))
    };
    let (file, size, key) = call.system().ask_for(owner, ask, take).await.map_err(|_| Errno::EINVAL)??;
    if flags & REMAP == 0 && address.checked_add(size).is_none() {
        return Err(Errno::EINVAL);
    }
    let mut prot = Access::READ;
    prot.set(Access::WRITE, write);
    prot.set(Access::EXEC, flags & EXEC != 0);
    let place = match (address, flags & REMAP) {
        (0, _) => MapAddress::Hint(UserAddr::NULL),
        (address, 0) => MapAddress::FixedNoReplace(UserAddr(address)),
        (address, _) => MapAddress::Fixed(UserAddr(address)),
    };
    let label = [LABEL, format!("{key:08x} (deleted)").as_bytes()].concat();
    let limit = if write { Access::all() } else { Access::READ | Access::EXEC };
    let source = Source::Object { object: file.object().await?, offset: 0, label: label.into(), limit };
    let request = MapRequest { place, length: size, prot, shared: true, source, ..MapRequest::anonymous(size, prot) };
    match call.space().map(request).await {
        Ok(at) => Ok(at.0),
        Err(Errno::EEXIST) => Err(Errno::EINVAL),
        Err(error) => Err(error),
    }
}

pub(crate) async fn shmdt(call: &mut Call<'_>) -> Result<u64> {
    let address = call.arg(0);
    let page = PAGE_SIZE as u64;
    if !address.is_multiple_of(page) {
        return Err(Errno::EINVAL);
    }
    let space = call.space();
    // Regions that are part of a segment attached at the address, which may have been cut since.
    let part = |region: &vm::RegionReport| {
        let start = region.range.start.address().0;
        let backing = region.backing.as_ref().filter(|backing| backing.label.starts_with(LABEL));
        backing.is_some_and(|backing| start.checked_sub(backing.first * page) == Some(address))
    };
    let above = PageRange::new(UserAddr(address).page(), PageRange::user().end);
    let mut regions = space.regions(above);
    let object = loop {
        match regions.next().await.ok_or(Errno::EINVAL)? {
            region if part(&region) => break region.backing.ok_or(Errno::EINVAL)?.object,
            _ => {}
        }
    };
    let ask = MemoryDetach { object, process: call.process().id };
    let size = call.system().endpoint.call(object.owner, ask).await.ok().flatten().ok_or(Errno::EINVAL)?;
    let end = address.saturating_add(size.next_multiple_of(page));
    let mut regions = space.regions(above);
    while let Some(region) = regions.next().await {
        let start = region.range.start.address();
        let same = part(&region) && region.backing.as_ref().is_some_and(|backing| backing.object == object);
        if start.0 < end && same {
            space.unmap(start, region.range.len() * page).await?;
        }
    }
    Ok(0)
}

pub(crate) async fn shmctl(call: &mut Call<'_>) -> Result<u64> {
    let (id, command, at) = (call.int(0), call.int(1), call.pointer(2));
    if id < 0 || command < 0 {
        return Err(Errno::EINVAL);
    }
    let asked = match command {
        INFO => return limits(call, at).await,
        SHM_INFO => return usage(call, at).await,
        STAT => return stat(call, id, true, at).await.map(|_| 0),
        SHM_STAT | SHM_STAT_ANY => {
            let id = at_index(call, IpcKind::Memory, id).await?;
            return stat(call, id, command == SHM_STAT, at).await;
        }
        SET => {
            let (uid, gid, mode) = new_permissions(call, at).await?;
            Command::Set { uid, gid, mode, limit: None }
        }
        REMOVE => Command::Remove,
        LOCK | UNLOCK => Command::Lock(command == LOCK),
        _ => return Err(Errno::EINVAL),
    };
    control(call, IpcKind::Memory, id, asked).await?;
    Ok(0)
}

/// `struct shmid64_ds`.
async fn stat(call: &Call<'_>, id: i32, check: bool, at: UserAddr) -> Result<u64> {
    let status = status(call, IpcKind::Memory, id, check).await?;
    let Details::Memory { size, attached, attach_time, detach_time, creator, last, .. } = status.details else {
        return Err(Errno::EIO);
    };
    let fields = Fields::default().permissions(&status.permissions, id).long(size).long(attach_time as u64);
    let fields = fields.long(detach_time as u64).long(status.changed as u64).int(creator.0).int(last.0);
    call.space().write(at, &fields.long(attached).longs(2).0).await?;
    Ok(id as u64)
}

/// `struct shminfo64`: SHMMAX, SHMMIN, SHMMNI, SHMSEG, SHMALL.
async fn limits(call: &Call<'_>, at: UserAddr) -> Result<u64> {
    const SHMMNI: u64 = 4096;
    let all = service(call.system())?.list(IpcKind::Memory).await;
    let words = [SIZE_MAX, 1, SHMMNI, SHMMNI, SIZE_MAX, 0, 0, 0, 0];
    call.put(at, &words).await?;
    Ok(all.len().saturating_sub(1) as u64)
}

/// `struct shm_info`.
async fn usage(call: &Call<'_>, at: UserAddr) -> Result<u64> {
    let all = service(call.system())?.list(IpcKind::Memory).await;
    let (mut pages, mut present) = (0, 0);
    for status in &all {
        if let Details::Memory { size, resident, .. } = status.details {
            pages += size.div_ceil(PAGE_SIZE as u64);
            present += resident;
        }
    }
    call.put(at, &[all.len() as u64, pages, present, 0, 0, 0]).await?;
    Ok(all.len().saturating_sub(1) as u64)
}

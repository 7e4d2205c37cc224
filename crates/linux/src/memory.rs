//! mmap and its kin (man 2 mmap, munmap, mprotect, mremap, madvise, msync, mincore, brk).

use crate::{arch::MAP_32BIT, call::Call, mlock};
use alloc::{sync::Arc, vec::Vec};
use fs::OpenFlags;
use machine::{errno::Result, Access, Errno, PageRange, UserAddr, PAGE_SIZE, USER_END};
use messages::inspect::RunState;
use vm::{MapAddress, MapRequest, RegionFlags, Source};

const PROT_GROWSDOWN: u64 = 0x0100_0000;
const PROT_GROWSUP: u64 = 0x0200_0000;

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_TYPE: u64 = 0xf;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_DENYWRITE: u64 = 0x800;
const MAP_EXECUTABLE: u64 = 0x1000;
const MAP_LOCKED: u64 = 0x2000;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_NONBLOCK: u64 = 0x1_0000;
const MAP_STACK: u64 = 0x2_0000;
const MAP_HUGETLB: u64 = 0x4_0000;
/// Pages that are in memory for good, of a device: no file here has any.
const MAP_SYNC: u64 = 0x8_0000;
const MAP_HUGE_SHIFT: u32 = 26;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
/// What MAP_SHARED_VALIDATE knows; plain MAP_SHARED ignores unknown flags.
const MAP_KNOWN: u64 = MAP_TYPE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_32BIT
    | MAP_GROWSDOWN
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_FIXED_NOREPLACE;

/// What a program asks for, with what its personality adds.
fn wanted_access(call: &Call<'_>, prot: u64) -> Access {
    let implied = prot & 1 != 0 && call.thread.state.lock().personality & process::image::READ_IMPLIES_EXEC != 0;
    access_of(if implied { prot | 4 } else { prot })
}

fn access_of(prot: u64) -> Access {
    let mut access = Access::empty();
    access.set(Access::READ, prot & 1 != 0);
    access.set(Access::WRITE, prot & 2 != 0);
    access.set(Access::EXEC, prot & 4 != 0);
    access
}

pub(crate) async fn mmap(call: &mut Call<'_>) -> Result<u64> {
    let [address, length, prot, flags, _, offset] = call.arguments();
    if offset % PAGE_SIZE as u64 != 0 {
        return Err(Errno::EINVAL);
    }
    // The descriptor is looked at first, as Linux does.
    let file = match flags & MAP_ANONYMOUS {
        0 => Some(call.file(4).await?),
        _ => None,
    };
    if flags & MAP_HUGETLB != 0 && (file.is_some() || !matches!(flags >> MAP_HUGE_SHIFT & 0x3f, 0 | 21 | 30)) {
        // Of huge pages are only the files of their own file system; and they are of 2 MiB or 1 GiB.
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    // The place comes before what is to be there.
    let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if length > USER_END || fixed && address > USER_END - length {
        return Err(Errno::ENOMEM);
    }
    if fixed && address % PAGE_SIZE as u64 != 0 {
        return Err(Errno::EINVAL);
    }
    if fixed && address < vm::MMAP_MIN && !may_be_low(call) {
        return Err(Errno::EPERM);
    }
    let grows_down = flags & MAP_GROWSDOWN != 0;
    let shared = match flags & MAP_TYPE {
        MAP_SHARED if file.is_none() && grows_down => return Err(Errno::EINVAL),
        MAP_SHARED => true,
        // Anonymous memory knows the old types only.
        MAP_SHARED_VALIDATE if file.is_none() => return Err(Errno::EINVAL),
        MAP_SHARED_VALIDATE if flags & !MAP_KNOWN != 0 => return Err(Errno::EOPNOTSUPP),
        MAP_SHARED_VALIDATE => true,
        MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    if flags & MAP_SYNC != 0 && file.is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & MAP_HUGETLB != 0 {
        // No huge page pool: as Linux answers with nr_hugepages = 0.
        return Err(Errno::ENOMEM);
    }
    let place = match (flags & MAP_FIXED_NOREPLACE, flags & MAP_FIXED) {
        (0, 0) => MapAddress::Hint(UserAddr(address & !(PAGE_SIZE as u64 - 1))),
        (0, _) => MapAddress::Fixed(UserAddr(address)),
        _ => MapAddress::FixedNoReplace(UserAddr(address)),
    };
    // Only counters of CPUs can both be mapped and tell of changes. No part of them is in a page cache.
    let counts = file.as_ref().is_some_and(|file| file.changes().is_some());
    let source = match file {
        None => Source::Anonymous,
        Some(file) => {
            let open = file.flags();
            if offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
                return Err(Errno::EOVERFLOW);
            }
            if !open.readable() {
                return Err(Errno::EACCES);
            }
            if shared && prot & 2 != 0 && !open.writable() {
                return Err(Errno::EACCES);
            }
            let mut limit = if shared && !open.writable() { Access::READ | Access::EXEC } else { Access::all() };
            if open.contains(OpenFlags::NOEXEC) {
                if prot & 4 != 0 {
                    return Err(Errno::EPERM);
                }
                limit.remove(Access::EXEC);
            }
            let label: Arc<[u8]> = file.path().await.into();
            Source::Object { object: file.object().await?, offset, label, limit }
        }
    };
    let (future, present) = mlock::future(call);
    let locked = flags & MAP_LOCKED != 0 || future;
    if flags & MAP_LOCKED != 0 {
        mlock::may_lock(call)?;
    }
    if locked {
        mlock::check_room(call, length.div_ceil(PAGE_SIZE as u64)).await?;
    }
    let populate = flags & MAP_POPULATE != 0 && flags & MAP_NONBLOCK == 0;
    let request = MapRequest {
        place,
        length,
        prot: match &source {
            Source::Object { limit, .. } if !limit.contains(Access::EXEC) => access_of(prot),
            _ => wanted_access(call, prot),
        },
        shared,
        source,
        grows_down,
        no_reserve: flags & MAP_NORESERVE != 0,
        locked,
        low: may_be_low(call),
        stack: false,
        program: false,
        survives_owner: counts,
    };
    let (space, prot) = (call.space(), request.prot);
    let at = space.map(request).await?;
    if populate || present || flags & MAP_LOCKED != 0 {
        let pages = PageRange::new(at.page(), at.page().add(length.div_ceil(PAGE_SIZE as u64)));
        call.unless_killed(space.populate(pages, prot)).await?;
    }
    Ok(at.0)
}

/// May it map what lies below vm.mmap_min_addr?
fn may_be_low(call: &Call<'_>) -> bool {
    call.can(abi::capability::SYS_RAWIO)
}

pub(crate) async fn munmap(call: &mut Call<'_>) -> Result<u64> {
    call.space().unmap(call.pointer(0), call.arg(1)).await?;
    Ok(0)
}

pub(crate) async fn mprotect(call: &mut Call<'_>) -> Result<u64> {
    let (mut start, mut length, prot) = (call.pointer(0), call.arg(1), call.arg(2));
    let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
    if grows == PROT_GROWSDOWN | PROT_GROWSUP || start.offset() != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let bytes = mlock::whole_pages(length);
    if bytes == 0 || start.0.checked_add(bytes).is_none() {
        return Err(Errno::ENOMEM);
    }
    if prot & !(7 | 8 | PROT_GROWSDOWN | PROT_GROWSUP) != 0 {
        return Err(Errno::EINVAL);
    }
    if grows != 0 {
        // From the start of a mapping that grows. None grows up here.
        let grown = call.space().regions(PageRange::one(start.page())).next().await.ok_or(Errno::ENOMEM)?;
        if grows == PROT_GROWSUP || grown.kind.flags & RegionFlags::GROWS_DOWN.bits() == 0 {
            return Err(Errno::EINVAL);
        }
        length = bytes + (start.0 - grown.range.start.address().0);
        start = grown.range.start.address();
    }
    call.space().protect(start, length, wanted_access(call, prot)).await?;
    Ok(0)
}

pub(crate) async fn mremap(call: &mut Call<'_>) -> Result<u64> {
    let flags = u32::try_from(call.arg(3)).map_err(|_| Errno::EINVAL)?;
    let to =
        call.space().remap(call.pointer(0), call.arg(1), call.arg(2), flags, call.pointer(4), may_be_low(call)).await?;
    Ok(to.0)
}

pub(crate) async fn madvise(call: &mut Call<'_>) -> Result<u64> {
    let (space, advice) = (call.space(), call.arg(2) as u32);
    let advised = space.advise(call.pointer(0), call.arg(1), advice);
    match vm::is_populating(advice) {
        true => call.unless_killed(advised).await??,
        false => advised.await?,
    }
    Ok(0)
}

pub(crate) async fn msync(call: &mut Call<'_>) -> Result<u64> {
    let _waits = call.thread.waits(RunState::Uninterruptible);
    call.space().sync(call.pointer(0), mlock::whole_pages(call.arg(1)), call.arg(2) as u32).await?;
    Ok(0)
}

pub(crate) async fn mincore(call: &mut Call<'_>) -> Result<u64> {
    let (mut start, mut length, mut out) = (call.pointer(0), call.arg(1), call.pointer(2));
    if start.offset() != 0 {
        return Err(Errno::EINVAL);
    }
    if start.0.checked_add(length).is_none_or(|end| end > USER_END) {
        return Err(Errno::ENOMEM);
    }
    if out.0.checked_add(length.div_ceil(PAGE_SIZE as u64)).is_none_or(|end| end > USER_END) {
        return Err(Errno::EFAULT);
    }
    if length == 0 {
        return Ok(0);
    }
    loop {
        let resident: Vec<u8> = call.space().resident(start, length).await?.into_iter().map(u8::from).collect();
        call.space().write(out, &resident).await?;
        (start, out) = (start.add(resident.len() * PAGE_SIZE), out.add(resident.len()));
        length = length.saturating_sub((resident.len() * PAGE_SIZE) as u64);
        if length == 0 {
            return Ok(0);
        }
        call.pause().await?;
    }
}

/// The new break, or the old one if it can't be had.
pub(crate) async fn brk(call: &mut Call<'_>) -> Result<u64> {
    let (space, wanted) = (call.space(), call.pointer(0));
    if !mlock::future(call).0 {
        return Ok(space.brk(wanted).await.0);
    }
    let old = space.brk(UserAddr(0)).await;
    if mlock::check_room(call, wanted.0.saturating_sub(old.0).div_ceil(PAGE_SIZE as u64)).await.is_err() {
        return Ok(old.0);
    }
    let new = space.brk(wanted).await;
    mlock::lock_heap(call, old, new).await;
    Ok(new.0)
}

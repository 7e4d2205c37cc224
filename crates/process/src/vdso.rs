//! The vDSO (man 7 vdso): a page of code that execve maps into every program, so that reading a clock is no system call.
//!
//! `user/vdso/vdso.c` is the code. Each kernel has a page of its own, with the clock's parameters written into it; they are the same
//! on all kernels, so a thread that moves goes on with whichever page it has. The page is a file's without a name: it comes into
//! memory when the first program wants it and goes when memory is short.

use crate::{arch, System};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use fs::{file::Frames, Object, PageCache, Store};
use machine::{errno::Result, sync::Lock, Access, BoxFuture, Counter, Errno, UserAddr, PAGE_SIZE};
use vm::{MapRequest, Source, Space};

/// The time of day, and the page in which programs read it.
#[derive(Default)]
pub(crate) struct WallClock {
    /// The image that is mapped into each program.
    vdso: Lock<Option<Arc<dyn Object>>>,
    /// ns between the epoch and the start of the machine.
    pub realtime_offset: AtomicU64,
}

/// Of `parameters` in vdso.c; vdso.ld puts them there.
const PARAMETERS: usize = 0xfc0;

struct Vdso {
    system: Weak<System>,
    page: &'static [u8; PAGE_SIZE],
    counter: Counter,
}

impl Store for Vdso {
    fn read<'a>(&'a self, offset: u64, mut to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let system = self.system.upgrade().ok_or(Errno::EIO)?;
            let tells_cpu = arch::tells_cpu(&*system.cpu);
            let realtime = system.clock.realtime_offset.load(Relaxed);
            let page = filled_in(self.page, [self.counter.base, self.counter.rate, realtime, tells_cpu.into()]);
            let rest = page.get(offset as usize..).unwrap_or_default();
            let bytes = rest.len().min(to.len());
            to.put(&rest[..bytes]);
            Ok(bytes)
        })
    }

    fn write<'a>(&'a self, _offset: u64, _from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(Errno::EPERM) })
    }
}

/// The page with the parameters in the order of vdso.c.
fn filled_in(page: &[u8; PAGE_SIZE], parameters: [u64; 4]) -> Vec<u8> {
    let mut page = page.to_vec();
    for (place, value) in page[PARAMETERS..].chunks_exact_mut(8).zip(parameters) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    page
}

impl System {
    /// Maps a vDSO into programs started from now on, if the CPU has a counter by which they can read the clock.
    pub fn provide_vdso(self: &Arc<Self>) {
        let (Some(page), Some(counter)) = (arch::VDSO, self.cpu.counter()) else { return };
        let vdso = Arc::new(Vdso { system: Arc::downgrade(self), page, counter });
        *self.clock.vdso.lock() = Some(PageCache::over(&self.services, PAGE_SIZE as u64, vdso));
    }

    /// Maps the page, if there is one, into a new program's space: where (AT_SYSINFO_EHDR).
    pub(crate) async fn map_vdso(&self, space: &Arc<Space>) -> Result<Option<u64>> {
        let Some(object) = self.clock.vdso.lock().clone() else { return Ok(None) };
        let source = Source::Object { object, offset: 0, label: Arc::from(*b"[vdso]"), limit: Access::all() };
        let request = MapRequest { source, ..MapRequest::anonymous(PAGE_SIZE as u64, Access::READ | Access::EXEC) };
        let UserAddr(at) = space.map(request).await?;
        Ok(Some(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elf::{endian::LittleEndian, ElfBytes};

    /// What dynamic linkers look for, and that the parameters are where they are looked for.
    #[test]
    fn the_page_is_a_shared_object_of_one_segment() {
        let built = arch::VDSO.expect("programs of the host have one");
        let page = filled_in(built, [1, 2, 3, 4]);
        let file = ElfBytes::<LittleEndian>::minimal_parse(&page).unwrap();
        let segments: Vec<_> = file.segments().unwrap().iter().collect();
        let loaded: Vec<_> = segments.iter().filter(|segment| segment.p_type == elf::abi::PT_LOAD).collect();
        assert_eq!(loaded.len(), 1);
        assert_eq!((loaded[0].p_vaddr, loaded[0].p_offset, loaded[0].p_flags), (0, 0, 5));
        assert_eq!(loaded[0].p_filesz as usize, PARAMETERS + 4 * 8);
        assert!(segments.iter().any(|segment| segment.p_type == elf::abi::PT_DYNAMIC));
        assert_eq!(&built[PARAMETERS..], [0; PAGE_SIZE - PARAMETERS]);
        for name in ["clock_gettime", "clock_getres", "gettimeofday", "time", "getcpu"] {
            let name = alloc::format!("__vdso_{name}\0");
            assert!(page.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
        }
    }
}

//! Restartable sequences: rseq(2), Documentation of `struct rseq` in linux/rseq.h.
//!
//! A thread registers an area where the kernel keeps the number of the CPU it is on, and where the thread
//! names the critical section it is in. If the thread loses its CPU or gets a signal inside of one, it goes on
//! at the section's abort address instead.
//!
//! A thread changes its CPU (or its kernel) only while it is suspended, so this is looked at when a thread that
//! was suspended is about to enter user mode, and only then; the numbers are written only if they changed.
//! Writing them may itself suspend the thread (a page to be fetched), which makes it look once more.

use crate::call::Call;
use alloc::sync::Arc;
use machine::{errno::Result, Errno, UserAddr, UserRegisters, USER_END};
use process::{Context, Thread};
use vm::Space;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const UNREGISTER: u64 = 1;
/// Bytes and alignment of the first version of the area, which every later one starts with.
const SIZE: u32 = 32;
const CPU_UNINITIALIZED: u32 = u32::MAX;

/// Where `struct rseq` has the pointer to the critical section.
const SECTION_AT: usize = 8;
const NODE_AT: usize = 20;

/// `struct rseq_cs`.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct Section {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

impl Section {
    /// EINVAL for one that Linux would not take either.
    fn check(&self) -> Result<()> {
        let end = self.start.checked_add(self.length).ok_or(Errno::EINVAL)?;
        if self.start >= USER_END || end >= USER_END || self.abort >= USER_END {
            return Err(Errno::EINVAL);
        }
        // The flags that forbade a restart are gone since Linux 6.1; an abort inside would never end.
        if self.version != 0 || self.flags != 0 || self.contains(self.abort) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn contains(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.start) < self.length
    }
}

pub(crate) async fn rseq(call: &mut Call<'_>) -> Result<u64> {
    let (at, len, flags, signature) = (call.arg(0), call.arg(1) as u32, call.arg(2) as u32, call.arg(3) as u32);
    let known = call.thread.state.lock().rseq;
    if u64::from(flags) == UNREGISTER {
        match known {
            Some((address, size, _)) if (address, size) != (at, len) => return Err(Errno::EINVAL),
            Some((_, _, expected)) if expected != signature => return Err(Errno::EPERM),
            Some(_) => {}
            None => return Err(Errno::EINVAL),
        }
        write_cpu(call.thread, at, CpuFields { start: 0, cpu: CPU_UNINITIALIZED }, NodeFields::default()).await?;
        call.thread.state.lock().rseq = None;
        return Ok(0);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    if let Some((address, size, expected)) = known {
        return Err(match (address, size) == (at, len) {
            false => Errno::EINVAL,
            true if expected != signature => Errno::EPERM,
            true => Errno::EBUSY,
        });
    }
    if len < SIZE || at % u64::from(SIZE) != 0 {
        return Err(Errno::EINVAL);
    }
    if at.checked_add(u64::from(len)).is_none_or(|end| end > USER_END) {
        return Err(Errno::EFAULT);
    }
    call.thread.state.lock().rseq = Some((at, len, signature));
    call.thread.rseq_cpu.store(CPU_UNINITIALIZED, core::sync::atomic::Ordering::Relaxed);
    // The numbers are written on the way back to user mode.
    call.thread.note_descheduled();
    Ok(0)
}

/// `cpu_id_start`, `cpu_id`.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct CpuFields {
    start: u32,
    cpu: u32,
}

/// `node_id`, `mm_cid`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct NodeFields {
    node: u32,
    concurrency: u32,
}

async fn write_cpu(thread: &Arc<Thread>, at: u64, cpu: CpuFields, node: NodeFields) -> Result<()> {
    let space = thread.process.space();
    space.write(UserAddr(at), cpu.as_bytes()).await?;
    space.write(UserAddr(at).add(NODE_AT), node.as_bytes()).await
}

/// Whether nothing is to be written or aborted before a thread that was suspended goes on, as nearly always: no area is registered, or it names
/// this CPU and no critical section. False: [`resume`] has to look.
pub(crate) fn is_current(thread: &Arc<Thread>, space: &Space) -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    let Some((at, _, _)) = thread.state.lock().rseq else { return true };
    if thread.rseq_cpu.load(Relaxed) != thread.process.system.cpu.current().0 {
        return false;
    }
    let mut pointer = 0u64;
    space.table().read(UserAddr(at).add(SECTION_AT), pointer.as_mut_bytes()).is_ok() && pointer == 0
}

/// Before user mode, after the thread was suspended. An error is SIGSEGV.
pub(crate) async fn resume(thread: &Arc<Thread>, context: &mut Context) -> Result<()> {
    use core::sync::atomic::Ordering::Relaxed;
    let Some((at, _, _)) = thread.state.lock().rseq else { return Ok(()) };
    leave_section(thread, context).await?;
    let system = &thread.process.system;
    let cpu = system.cpu.current().0;
    if thread.rseq_cpu.load(Relaxed) != cpu {
        // Of the threads of a process that run at a time each has another CPU, over all kernels: a CPU's number
        // is a concurrency id, too.
        let node = NodeFields { node: system.node_of(cpu), concurrency: cpu };
        write_cpu(thread, at, CpuFields { start: cpu, cpu }, node).await?;
        thread.rseq_cpu.store(cpu, Relaxed);
    }
    Ok(())
}

/// If the thread is inside a critical section, it goes on at its abort address; the section is over. Also
/// before a signal's frame is made, which then returns to the abort address.
pub(crate) async fn leave_section(thread: &Arc<Thread>, context: &mut Context) -> Result<()> {
    let Some((at, _, signature)) = thread.state.lock().rseq else { return Ok(()) };
    let space = thread.process.space();
    let pointer_at = UserAddr(at).add(SECTION_AT);
    let pointer: u64 = space.read_value(pointer_at).await?;
    if pointer == 0 {
        return Ok(());
    }
    if pointer >= USER_END {
        return Err(Errno::EINVAL);
    }
    let section: Section = space.read_value(UserAddr(pointer)).await?;
    section.check()?;
    let found: u32 = space.read_value(UserAddr(section.abort.wrapping_sub(4))).await?;
    if found != signature {
        log::debug!("{}: rseq signature {found:#x} instead of {signature:#x}", thread.tid);
        return Err(Errno::EINVAL);
    }
    // The thread left the section without saying so: the pointer is only tidied up.
    space.write_value(pointer_at, &0u64).await?;
    if section.contains(context.registers.instruction()) {
        context.registers.set_instruction(section.abort);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_before_its_last_address_and_aborts_outside() {
        let section = Section { version: 0, flags: 0, start: 0x1000, length: 0x10, abort: 0x2000 };
        assert_eq!(section.check(), Ok(()));
        assert!(section.contains(0x1000) && section.contains(0x100f));
        assert!(!section.contains(0x1010) && !section.contains(0xfff));
        for bad in [
            Section { abort: 0x1008, ..section },
            Section { version: 1, ..section },
            Section { flags: 1, ..section },
            Section { abort: USER_END, ..section },
            Section { length: u64::MAX, ..section },
            Section { start: USER_END - 1, ..section },
        ] {
            assert_eq!(bad.check(), Err(Errno::EINVAL));
        }
    }
}

//! What the machine is: uname, sysinfo, and the calls that only a whole machine could obey.

use crate::{arch, call::Call};
use abi::{RELEASE, VERSION};
use machine::{errno::Result, CpuId, Errno, PAGE_SIZE};
use messages::process::Change;
use zerocopy::{Immutable, IntoBytes};

const FIELD: usize = 65;

pub(crate) async fn uname(call: &mut Call<'_>) -> Result<u64> {
    let names = call.system().host_name();
    // PER_LINUX32.
    let machine = if call.thread.state.lock().personality & 0xff == 8 { arch::MACHINE_32 } else { arch::MACHINE };
    let mut text = [0u8; FIELD * 6];
    let fields: [&[u8]; 6] = [b"Linux", &names.0, RELEASE.as_bytes(), VERSION.as_bytes(), machine, &names.1];
    for (index, field) in fields.into_iter().enumerate() {
        let len = field.len().min(FIELD - 1);
        text[index * FIELD..index * FIELD + len].copy_from_slice(&field[..len]);
    }
    call.space().write(call.pointer(0), &text).await?;
    Ok(0)
}

async fn set_name(call: &Call<'_>, domain: bool) -> Result<u64> {
    if !call.caller().credentials.is_privileged() {
        return Err(Errno::EPERM);
    }
    let len = call.int(1);
    if !(0..=64).contains(&len) {
        return Err(Errno::EINVAL);
    }
    let name = call.bytes(call.pointer(0), len as usize, 64).await?;
    call.system().set_name(domain, name).await?;
    Ok(0)
}

pub(crate) async fn sethostname(call: &mut Call<'_>) -> Result<u64> {
    set_name(call, false).await
}

pub(crate) async fn setdomainname(call: &mut Call<'_>) -> Result<u64> {
    set_name(call, true).await
}

/// `struct sysinfo`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Sysinfo {
    uptime: u64,
    loads: [u64; 3],
    total_ram: u64,
    free_ram: u64,
    shared_ram: u64,
    buffer_ram: u64,
    total_swap: u64,
    free_swap: u64,
    procs: u16,
    padding: [u8; 6],
    total_high: u64,
    free_high: u64,
    unit: u32,
    tail: [u8; 4],
}

pub(crate) async fn sysinfo(call: &mut Call<'_>) -> Result<u64> {
    let system = call.system();
    let (mut total, mut free) = system.memory.totals();
    let mut loads = system.status().averages;
    for kernel in system.others() {
        if let Ok(status) = system.endpoint.call(kernel, messages::control::Status {}).await {
            total += status.memory_total / PAGE_SIZE as u64;
            loads.iter_mut().zip(status.averages).for_each(|(load, other)| *load += other);
            free += status.memory_free / PAGE_SIZE as u64;
        }
    }
    let info = Sysinfo {
        uptime: system.now() / crate::time::SECOND,
        // With 16 bits behind the point (SI_LOAD_SHIFT).
        loads: loads.map(|load| load << 5),
        total_ram: total * PAGE_SIZE as u64,
        free_ram: free * PAGE_SIZE as u64,
        procs: system.list().await.len() as u16,
        unit: 1,
        ..Sysinfo::default()
    };
    call.put(call.pointer(0), &info).await?;
    Ok(0)
}

/// membarrier(2). Every barrier here is as strong as the strongest: each CPU that runs the process has been in
/// the kernel and its instruction stream is serialised (see `System::barrier`).
pub(crate) async fn membarrier(call: &mut Call<'_>) -> Result<u64> {
    const QUERY: u32 = 0;
    const GLOBAL: u32 = 1;
    const GLOBAL_EXPEDITED: u32 = 2;
    const REGISTER_GLOBAL_EXPEDITED: u32 = 4;
    const PRIVATE_EXPEDITED: u32 = 8;
    const REGISTER_PRIVATE_EXPEDITED: u32 = 16;
    const PRIVATE_EXPEDITED_SYNC_CORE: u32 = 32;
    const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: u32 = 64;
    const PRIVATE_EXPEDITED_RSEQ: u32 = 128;
    const REGISTER_PRIVATE_EXPEDITED_RSEQ: u32 = 256;
    const GET_REGISTRATIONS: u32 = 512;
    const ALL: u32 = 1023;
    const FLAG_CPU: u32 = 1;
    let (command, flags) = (call.arg(0) as u32, call.arg(1) as u32);
    if flags != 0 && (command, flags) != (PRIVATE_EXPEDITED_RSEQ, FLAG_CPU) {
        return Err(Errno::EINVAL);
    }
    let registered = |commands| call.process().with_shared(|shared| shared.barriers & commands != 0);
    match command {
        QUERY => return Ok(u64::from(ALL)),
        // Whoever has not registered for the expedited one gets it all the same.
        GLOBAL | GLOBAL_EXPEDITED => call.system().barrier(None).await,
        PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE | PRIVATE_EXPEDITED_RSEQ => {
            // The command that registers is the next bit.
            if !registered(command << 1) {
                return Err(Errno::EPERM);
            }
            match command {
                PRIVATE_EXPEDITED_RSEQ => {
                    let only = (flags == FLAG_CPU).then_some(call.arg(2) as i32);
                    // A negative number is that of no CPU, and means all (as in Linux).
                    let only = only.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
                    call.system().barrier_and_abort(call.process(), only).await;
                }
                _ => call.system().barrier(Some(call.process())).await,
            }
        }
        REGISTER_GLOBAL_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
        | REGISTER_PRIVATE_EXPEDITED_RSEQ => {
            // Also if it is registered: another thread's may be on its way to other kernels.
            call.process().change(Change::Barriers(command)).await?;
        }
        GET_REGISTRATIONS => {
            let registrations = call.process().with_shared(|shared| shared.barriers);
            // Linux registers for the plain one as well, and tells, but does not let it be used.
            let plain = registrations & (REGISTER_PRIVATE_EXPEDITED_SYNC_CORE | REGISTER_PRIVATE_EXPEDITED_RSEQ) != 0;
            return Ok(u64::from(registrations | if plain { REGISTER_PRIVATE_EXPEDITED } else { 0 }));
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

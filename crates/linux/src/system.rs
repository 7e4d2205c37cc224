//! What the machine is: uname, sysinfo, and the calls that only a whole machine could obey.

use crate::call::Call;
use machine::{errno::Result, Errno, PAGE_SIZE};
use zerocopy::{Immutable, IntoBytes};

/// The Linux release whose interface this is.
pub const RELEASE: &str = "6.1.0-cob";
pub const VERSION: &str = concat!("#1 SMP Cob ", env!("CARGO_PKG_VERSION"));

const FIELD: usize = 65;

pub(crate) async fn uname(call: &mut Call<'_>) -> Result<u64> {
    let names = call.system().host_name();
    let mut text = [0u8; FIELD * 6];
    let fields: [&[u8]; 6] = [b"Linux", &names.0, RELEASE.as_bytes(), VERSION.as_bytes(), b"x86_64", &names.1];
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
    call.system().set_host_name(name, domain);
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
    for kernel in system.others() {
        if let Ok(status) = system.endpoint.call(kernel, messages::control::Status {}).await {
            total += status.memory_total / PAGE_SIZE as u64;
            free += status.memory_free / PAGE_SIZE as u64;
        }
    }
    let info = Sysinfo {
        uptime: system.now() / crate::time::SECOND,
        total_ram: total * PAGE_SIZE as u64,
        free_ram: free * PAGE_SIZE as u64,
        procs: system.list().await.len() as u16,
        unit: 1,
        ..Sysinfo::default()
    };
    call.put(call.pointer(0), &info).await?;
    Ok(0)
}

/// membarrier(2): query says what works, and that is nothing yet (Linux without CONFIG_MEMBARRIER: ENOSYS).
pub(crate) async fn membarrier(_call: &mut Call<'_>) -> Result<u64> {
    Err(Errno::ENOSYS)
}

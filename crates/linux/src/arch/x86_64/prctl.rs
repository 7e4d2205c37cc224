//! arch_prctl (man 2 arch_prctl): the bases of fs and gs.

use crate::call::Call;
use machine::{errno::Result, Errno, Registers, UserAddr, USER_END};

pub(crate) async fn arch_prctl(call: &mut Call<'_>) -> Result<u64> {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    let address = call.arg(1);
    match call.arg(0) {
        SET_GS | SET_FS if address >= USER_END => return Err(Errno::EPERM),
        SET_GS => call.context.registers.gs_base = address,
        SET_FS => call.context.registers.fs_base = address,
        GET_FS => call.put(UserAddr(address), &call.context.registers.fs_base).await?,
        GET_GS => call.put(UserAddr(address), &call.context.registers.gs_base).await?,
        // CET, XCOMP and others: unknown to this kernel.
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// CLONE_SETTLS. As arch_prctl: the base of a segment lies in user space.
pub(crate) fn set_thread_pointer(registers: &mut Registers, tls: u64) -> Result<()> {
    if tls >= USER_END {
        return Err(Errno::EPERM);
    }
    registers.fs_base = tls;
    Ok(())
}

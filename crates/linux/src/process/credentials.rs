//! User and group ids (man 7 credentials). They belong to the thread; glibc keeps those of a process equal.

use crate::{call::Call, table::unsupported};
use abi::Credentials;
use alloc::vec::Vec;
use machine::{errno::Result, Errno};
use zerocopy::IntoBytes;

/// "Leave it as it is."
const SAME: u32 = u32::MAX;
const NGROUPS_MAX: u64 = 65536;

fn read<T>(call: &Call<'_>, get: impl FnOnce(&Credentials) -> T) -> T {
    get(&call.thread.state.lock().credentials)
}

fn change(call: &Call<'_>, set: impl FnOnce(&mut Credentials) -> Result<()>) -> Result<u64> {
    let mut state = call.thread.state.lock();
    let mut new = state.credentials.clone();
    set(&mut new)?;
    state.credentials = new;
    Ok(0)
}

pub(crate) async fn getuid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(read(call, |who| who.uid)))
}

pub(crate) async fn geteuid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(read(call, |who| who.euid)))
}

pub(crate) async fn getgid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(read(call, |who| who.gid)))
}

pub(crate) async fn getegid(call: &mut Call<'_>) -> Result<u64> {
    Ok(u64::from(read(call, |who| who.egid)))
}

pub(crate) async fn getresuid(call: &mut Call<'_>) -> Result<u64> {
    let (real, effective, saved) = read(call, |who| (who.uid, who.euid, who.suid));
    call.put(call.pointer(0), &real).await?;
    call.put(call.pointer(1), &effective).await?;
    call.put(call.pointer(2), &saved).await?;
    Ok(0)
}

pub(crate) async fn getresgid(call: &mut Call<'_>) -> Result<u64> {
    let (real, effective, saved) = read(call, |who| (who.gid, who.egid, who.sgid));
    call.put(call.pointer(0), &real).await?;
    call.put(call.pointer(1), &effective).await?;
    call.put(call.pointer(2), &saved).await?;
    Ok(0)
}

pub(crate) async fn setuid(call: &mut Call<'_>) -> Result<u64> {
    let uid = call.arg(0) as u32;
    change(call, |who| {
        if uid == SAME {
            return Err(Errno::EINVAL);
        }
        if who.is_privileged() {
            (who.uid, who.suid) = (uid, uid);
        } else if uid != who.uid && uid != who.suid {
            return Err(Errno::EPERM);
        }
        (who.euid, who.fsuid) = (uid, uid);
        Ok(())
    })
}

pub(crate) async fn setgid(call: &mut Call<'_>) -> Result<u64> {
    let gid = call.arg(0) as u32;
    change(call, |who| {
        if gid == SAME {
            return Err(Errno::EINVAL);
        }
        if who.is_privileged() {
            (who.gid, who.sgid) = (gid, gid);
        } else if gid != who.gid && gid != who.sgid {
            return Err(Errno::EPERM);
        }
        (who.egid, who.fsgid) = (gid, gid);
        Ok(())
    })
}

pub(crate) async fn setreuid(call: &mut Call<'_>) -> Result<u64> {
    let (real, effective) = (call.arg(0) as u32, call.arg(1) as u32);
    change(call, |who| {
        let old = who.clone();
        let may_real = real == SAME || real == old.uid || real == old.euid;
        let may_effective = effective == SAME || [old.uid, old.euid, old.suid].contains(&effective);
        if !(old.is_privileged() || may_real && may_effective) {
            return Err(Errno::EPERM);
        }
        if real != SAME {
            who.uid = real;
        }
        if effective != SAME {
            who.euid = effective;
        }
        if real != SAME || effective != SAME && effective != old.uid {
            who.suid = who.euid;
        }
        who.fsuid = who.euid;
        Ok(())
    })
}

pub(crate) async fn setregid(call: &mut Call<'_>) -> Result<u64> {
    let (real, effective) = (call.arg(0) as u32, call.arg(1) as u32);
    change(call, |who| {
        let old = who.clone();
        let may_real = real == SAME || real == old.gid || real == old.egid;
        let may_effective = effective == SAME || [old.gid, old.egid, old.sgid].contains(&effective);
        if !(old.is_privileged() || may_real && may_effective) {
            return Err(Errno::EPERM);
        }
        if real != SAME {
            who.gid = real;
        }
        if effective != SAME {
            who.egid = effective;
        }
        if real != SAME || effective != SAME && effective != old.gid {
            who.sgid = who.egid;
        }
        who.fsgid = who.egid;
        Ok(())
    })
}

pub(crate) async fn setresuid(call: &mut Call<'_>) -> Result<u64> {
    let wanted = [0, 1, 2].map(|index| call.arg(index) as u32);
    change(call, |who| {
        let known = [who.uid, who.euid, who.suid];
        if !who.is_privileged() && wanted.iter().any(|id| *id != SAME && !known.contains(id)) {
            return Err(Errno::EPERM);
        }
        let pick = |index: usize| if wanted[index] == SAME { known[index] } else { wanted[index] };
        (who.uid, who.euid, who.suid) = (pick(0), pick(1), pick(2));
        who.fsuid = who.euid;
        Ok(())
    })
}

pub(crate) async fn setresgid(call: &mut Call<'_>) -> Result<u64> {
    let wanted = [0, 1, 2].map(|index| call.arg(index) as u32);
    change(call, |who| {
        let known = [who.gid, who.egid, who.sgid];
        if !who.is_privileged() && wanted.iter().any(|id| *id != SAME && !known.contains(id)) {
            return Err(Errno::EPERM);
        }
        let pick = |index: usize| if wanted[index] == SAME { known[index] } else { wanted[index] };
        (who.gid, who.egid, who.sgid) = (pick(0), pick(1), pick(2));
        who.fsgid = who.egid;
        Ok(())
    })
}

/// setfsuid answers the old id, whether it changed or not.
pub(crate) async fn setfsuid(call: &mut Call<'_>) -> Result<u64> {
    let uid = call.arg(0) as u32;
    let mut state = call.thread.state.lock();
    let who = &mut state.credentials;
    let old = who.fsuid;
    if who.is_privileged() || [who.uid, who.euid, who.suid, who.fsuid].contains(&uid) {
        who.fsuid = if uid == SAME { old } else { uid };
    }
    Ok(u64::from(old))
}

pub(crate) async fn setfsgid(call: &mut Call<'_>) -> Result<u64> {
    let gid = call.arg(0) as u32;
    let mut state = call.thread.state.lock();
    let who = &mut state.credentials;
    let old = who.fsgid;
    if who.is_privileged() || [who.gid, who.egid, who.sgid, who.fsgid].contains(&gid) {
        who.fsgid = if gid == SAME { old } else { gid };
    }
    Ok(u64::from(old))
}

pub(crate) async fn getgroups(call: &mut Call<'_>) -> Result<u64> {
    let size = call.int(0);
    let groups = read(call, |who| who.groups.clone());
    if size < 0 {
        return Err(Errno::EINVAL);
    }
    if size > 0 {
        if (size as usize) < groups.len() {
            return Err(Errno::EINVAL);
        }
        call.space().write(call.pointer(1), groups.as_slice().as_bytes()).await?;
    }
    Ok(groups.len() as u64)
}

pub(crate) async fn setgroups(call: &mut Call<'_>) -> Result<u64> {
    if !read(call, Credentials::is_privileged) {
        return Err(Errno::EPERM);
    }
    if u64::from(call.arg(0) as u32) > NGROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let groups: Vec<u32> = call.space().read_values(call.pointer(1), call.arg(0) as u32 as usize).await?;
    change(call, |who| {
        who.groups = groups;
        Ok(())
    })
}

const CAPABILITY_VERSION_1: u32 = 0x1998_0330;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// Capabilities 0 to 40 of Linux 6.1.
const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// User 0 has all capabilities, everybody else none.
pub(crate) async fn capget(call: &mut Call<'_>) -> Result<u64> {
    let [version, pid]: [u32; 2] = call.get(call.pointer(0)).await?;
    let words = match version {
        CAPABILITY_VERSION_1 => 1,
        0x2007_1026 | CAPABILITY_VERSION_3 => 2,
        _ => {
            call.put(call.pointer(0), &CAPABILITY_VERSION_3).await?;
            return if call.pointer(1).is_null() { Ok(0) } else { Err(Errno::EINVAL) };
        }
    };
    if call.pointer(1).is_null() {
        return Ok(0);
    }
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let all = if read(call, Credentials::is_privileged) { ALL_CAPABILITIES } else { 0 };
    let (low, high) = (all as u32, (all >> 32) as u32);
    let data = [[low, low, 0], [high, high, 0]];
    call.space().write(call.pointer(1), data[..words].as_bytes()).await?;
    Ok(0)
}

/// Dropping capabilities without leaving user 0 is not something Cob can honour.
pub(crate) async fn capset(call: &mut Call<'_>) -> Result<u64> {
    let [version, _]: [u32; 2] = call.get(call.pointer(0)).await?;
    let words = if version == CAPABILITY_VERSION_1 { 1 } else { 2 };
    let data: Vec<[u32; 3]> = call.space().read_values(call.pointer(1), words).await?;
    let have = if read(call, Credentials::is_privileged) { ALL_CAPABILITIES } else { 0 };
    let wanted = data.iter().enumerate().fold(0, |all, (index, word)| all | u64::from(word[0]) << (32 * index));
    if wanted & !have != 0 {
        return Err(Errno::EPERM);
    }
    if wanted != have {
        return Err(unsupported(call, "dropping single capabilities", Errno::EPERM));
    }
    Ok(0)
}

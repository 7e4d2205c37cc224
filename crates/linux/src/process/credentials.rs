//! User and group ids (man 7 credentials). They belong to the thread; glibc keeps those of a process equal.

use crate::call::Call;
use abi::{capability, secure, Capabilities, CapabilitySet, Credentials};
use alloc::vec::Vec;
use machine::{errno::Result, Errno, Pid};
use messages::{
    inspect::{Inspect, Inspection},
    process::Change,
};
use zerocopy::IntoBytes;

/// "Leave it as it is."
const SAME: u32 = u32::MAX;
const NGROUPS_MAX: u64 = 65536;

fn read<T>(call: &Call<'_>, get: impl FnOnce(&Credentials) -> T) -> T {
    get(&call.thread.state.lock().credentials)
}

async fn change(call: &Call<'_>, set: impl FnOnce(&mut Credentials) -> Result<()>) -> Result<u64> {
    {
        let mut state = call.thread.state.lock();
        let mut new = state.credentials.clone();
        set(&mut new)?;
        let ids = |who: &Credentials| [who.uid, who.euid, who.suid];
        let (old, wanted) = (ids(&state.credentials), ids(&new));
        if old != wanted {
            new.effective = state.capabilities.after_set_uid(old, wanted, new.effective);
            // What waits for it is its new user's.
            state.pending.pay_from(&call.process().account(new.uid));
        }
        state.credentials = new;
    }
    tell_home(call).await?;
    Ok(0)
}

/// Who signals the process or looks into it is checked at its home, against the main thread's credentials.
async fn tell_home(call: &Call<'_>) -> Result<()> {
    if call.thread.tid != call.process().id {
        return Ok(());
    }
    let owner = read(call, Credentials::clone);
    call.process().change(Change::Owner(owner)).await
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
        if who.can(capability::SETUID) {
            (who.uid, who.suid) = (uid, uid);
        } else if uid != who.uid && uid != who.suid {
            return Err(Errno::EPERM);
        }
        (who.euid, who.fsuid) = (uid, uid);
        Ok(())
    })
    .await
}

pub(crate) async fn setgid(call: &mut Call<'_>) -> Result<u64> {
    let gid = call.arg(0) as u32;
    change(call, |who| {
        if gid == SAME {
            return Err(Errno::EINVAL);
        }
        if who.can(capability::SETGID) {
            (who.gid, who.sgid) = (gid, gid);
        } else if gid != who.gid && gid != who.sgid {
            return Err(Errno::EPERM);
        }
        (who.egid, who.fsgid) = (gid, gid);
        Ok(())
    })
    .await
}

pub(crate) async fn setreuid(call: &mut Call<'_>) -> Result<u64> {
    let (real, effective) = (call.arg(0) as u32, call.arg(1) as u32);
    change(call, |who| {
        let old = who.clone();
        let may_real = real == SAME || real == old.uid || real == old.euid;
        let may_effective = effective == SAME || [old.uid, old.euid, old.suid].contains(&effective);
        if !(old.can(capability::SETUID) || may_real && may_effective) {
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
    .await
}

pub(crate) async fn setregid(call: &mut Call<'_>) -> Result<u64> {
    let (real, effective) = (call.arg(0) as u32, call.arg(1) as u32);
    change(call, |who| {
        let old = who.clone();
        let may_real = real == SAME || real == old.gid || real == old.egid;
        let may_effective = effective == SAME || [old.gid, old.egid, old.sgid].contains(&effective);
        if !(old.can(capability::SETGID) || may_real && may_effective) {
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
    .await
}

pub(crate) async fn setresuid(call: &mut Call<'_>) -> Result<u64> {
    let wanted = [0, 1, 2].map(|index| call.arg(index) as u32);
    change(call, |who| {
        let known = [who.uid, who.euid, who.suid];
        if !who.can(capability::SETUID) && wanted.iter().any(|id| *id != SAME && !known.contains(id)) {
            return Err(Errno::EPERM);
        }
        let pick = |index: usize| if wanted[index] == SAME { known[index] } else { wanted[index] };
        (who.uid, who.euid, who.suid) = (pick(0), pick(1), pick(2));
        who.fsuid = who.euid;
        Ok(())
    })
    .await
}

pub(crate) async fn setresgid(call: &mut Call<'_>) -> Result<u64> {
    let wanted = [0, 1, 2].map(|index| call.arg(index) as u32);
    change(call, |who| {
        let known = [who.gid, who.egid, who.sgid];
        if !who.can(capability::SETGID) && wanted.iter().any(|id| *id != SAME && !known.contains(id)) {
            return Err(Errno::EPERM);
        }
        let pick = |index: usize| if wanted[index] == SAME { known[index] } else { wanted[index] };
        (who.gid, who.egid, who.sgid) = (pick(0), pick(1), pick(2));
        who.fsgid = who.egid;
        Ok(())
    })
    .await
}

/// setfsuid answers the old id, whether it changed or not.
pub(crate) async fn setfsuid(call: &mut Call<'_>) -> Result<u64> {
    let uid = call.arg(0) as u32;
    let permitted = call.thread.state.lock().capabilities.permitted;
    let old = read(call, |who| who.fsuid);
    change(call, |who| {
        if who.can(capability::SETUID) || [who.uid, who.euid, who.suid, who.fsuid].contains(&uid) {
            who.fsuid = if uid == SAME { old } else { uid };
            let files = CapabilitySet::FILES;
            match (old, who.fsuid) {
                (0, 1..) => who.effective = who.effective.without(files),
                (1.., 0) => who.effective = who.effective.or(permitted.and(files)),
                _ => {}
            }
        }
        Ok(())
    })
    .await?;
    Ok(u64::from(old))
}

pub(crate) async fn setfsgid(call: &mut Call<'_>) -> Result<u64> {
    let gid = call.arg(0) as u32;
    let old = read(call, |who| who.fsgid);
    change(call, |who| {
        if who.can(capability::SETGID) || [who.gid, who.egid, who.sgid, who.fsgid].contains(&gid) {
            who.fsgid = if gid == SAME { old } else { gid };
        }
        Ok(())
    })
    .await?;
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
    if !read(call, |who| who.can(capability::SETGID)) {
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
    .await
}

const CAPABILITY_VERSION_1: u32 = 0x1998_0330;
const CAPABILITY_VERSION_2: u32 = 0x2007_1026;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// How many words each set has; EINVAL, with the version that is known.
async fn words(call: &Call<'_>, version: u32) -> Result<usize> {
    match version {
        CAPABILITY_VERSION_1 => Ok(1),
        CAPABILITY_VERSION_2 | CAPABILITY_VERSION_3 => Ok(2),
        _ => {
            call.put(call.pointer(0), &CAPABILITY_VERSION_3).await?;
            Err(Errno::EINVAL)
        }
    }
}

pub(crate) async fn capget(call: &mut Call<'_>) -> Result<u64> {
    let [version, pid]: [u32; 2] = call.get(call.pointer(0)).await?;
    let words = match words(call, version).await {
        // Only asked for the version.
        Err(Errno::EINVAL) if call.pointer(1).is_null() => return Ok(0),
        words => words?,
    };
    if call.pointer(1).is_null() {
        // Whoever is meant.
        return Ok(0);
    }
    if (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let (effective, sets) = match pid {
        0 => own_sets(call),
        tid => sets_of(call, Pid(tid)).await?,
    };
    let word = |shift: u32| [effective, sets.permitted, sets.inheritable].map(|set| (set.0 >> shift) as u32);
    call.space().write(call.pointer(1), [word(0), word(32)][..words].as_bytes()).await?;
    Ok(0)
}

fn own_sets(call: &Call<'_>) -> (CapabilitySet, Capabilities) {
    let state = call.thread.state.lock();
    (state.credentials.effective, state.capabilities)
}

async fn sets_of(call: &Call<'_>, tid: Pid) -> Result<(CapabilitySet, Capabilities)> {
    let who = call.caller().credentials;
    let process = call.system().process_of(tid).await.ok_or(Errno::ESRCH)?;
    let Inspection::View(view) = call.system().inspect(process, Inspect::View, who).await? else {
        return Err(Errno::ESRCH);
    };
    let thread = view.threads.iter().find(|thread| thread.thread == tid).ok_or(Errno::ESRCH)?;
    Ok((thread.effective, thread.capabilities))
}

pub(crate) async fn capset(call: &mut Call<'_>) -> Result<u64> {
    let [version, pid]: [u32; 2] = call.get(call.pointer(0)).await?;
    let words = words(call, version).await?;
    if pid != 0 && Pid(pid) != call.thread.tid {
        return Err(Errno::EPERM);
    }
    let data: Vec<[u32; 3]> = call.space().read_values(call.pointer(1), words).await?;
    let set = |index: usize| {
        let bits = data.iter().enumerate().fold(0, |all, (word, sets)| all | u64::from(sets[index]) << (32 * word));
        CapabilitySet(bits).and(CapabilitySet::ALL)
    };
    let (effective, permitted, inheritable) = (set(0), set(1), set(2));
    let mut state = call.thread.state.lock();
    let old = state.capabilities;
    let may_inherit = match state.credentials.can(capability::SETPCAP) {
        true => true,
        false => inheritable.is_within(old.inheritable.or(old.permitted)),
    };
    if !may_inherit
        || !inheritable.is_within(old.inheritable.or(old.bounding))
        || !permitted.is_within(old.permitted)
        || !effective.is_within(permitted)
    {
        return Err(Errno::EPERM);
    }
    let ambient = old.ambient.and(permitted).and(inheritable);
    state.capabilities = Capabilities { permitted, inheritable, ambient, ..old };
    state.credentials.effective = effective;
    Ok(0)
}

/// The options of prctl(2) about capabilities; None: it is another option.
pub(crate) fn control(call: &Call<'_>) -> Option<Result<u64>> {
    const GET_KEEPCAPS: u32 = 7;
    const SET_KEEPCAPS: u32 = 8;
    const CAPBSET_READ: u32 = 23;
    const CAPBSET_DROP: u32 = 24;
    const GET_SECUREBITS: u32 = 27;
    const SET_SECUREBITS: u32 = 28;
    const CAP_AMBIENT: u32 = 47;
    let value = call.arg(1);
    let mut state = call.thread.state.lock();
    let may_set = state.credentials.can(capability::SETPCAP);
    let sets = &mut state.capabilities;
    let known = value <= u64::from(capability::LAST);
    Some(match call.arg(0) as u32 {
        GET_KEEPCAPS => Ok(u64::from(sets.secure & secure::KEEP_CAPS != 0)),
        SET_KEEPCAPS if value > 1 => Err(Errno::EINVAL),
        SET_KEEPCAPS if sets.secure & secure::KEEP_CAPS_LOCKED != 0 => Err(Errno::EPERM),
        SET_KEEPCAPS => {
            sets.secure = sets.secure & !secure::KEEP_CAPS | if value == 1 { secure::KEEP_CAPS } else { 0 };
            Ok(0)
        }
        CAPBSET_READ | CAPBSET_DROP if call.arg(0) as u32 == CAPBSET_READ && !known => Err(Errno::EINVAL),
        CAPBSET_READ => Ok(u64::from(sets.bounding.has(value as u32))),
        CAPBSET_DROP if !may_set => Err(Errno::EPERM),
        CAPBSET_DROP if !known => Err(Errno::EINVAL),
        CAPBSET_DROP => {
            sets.bounding = sets.bounding.without(CapabilitySet::only(value as u32));
            Ok(0)
        }
        GET_SECUREBITS => Ok(u64::from(sets.secure)),
        SET_SECUREBITS => set_secure(sets, value, may_set),
        CAP_AMBIENT => ambient(sets, value, call.arg(2), call.arg(3) | call.arg(4)),
        _ => return None,
    })
}

/// A locked bit (each is beside what it locks) stays as it is.
fn set_secure(sets: &mut Capabilities, value: u64, may_set: bool) -> Result<u64> {
    const LOCKS: u32 = 0xaa;
    let locked = sets.secure & LOCKS;
    let changes = sets.secure ^ value as u32;
    let frozen = locked | locked >> 1;
    if value > u64::from(secure::ALL) || changes & frozen != 0 || !may_set {
        return Err(Errno::EPERM);
    }
    sets.secure = value as u32;
    Ok(0)
}

fn ambient(sets: &mut Capabilities, command: u64, value: u64, unused: u64) -> Result<u64> {
    const IS_SET: u64 = 1;
    const RAISE: u64 = 2;
    const LOWER: u64 = 3;
    const CLEAR_ALL: u64 = 4;
    /// SECBIT_NO_CAP_AMBIENT_RAISE.
    const NO_RAISE: u32 = 64;
    if command == CLEAR_ALL {
        if value | unused != 0 {
            return Err(Errno::EINVAL);
        }
        sets.ambient = CapabilitySet::NONE;
        return Ok(0);
    }
    if unused != 0 || value > u64::from(capability::LAST) {
        return Err(Errno::EINVAL);
    }
    let one = CapabilitySet::only(value as u32);
    match command {
        IS_SET => return Ok(u64::from(sets.ambient.has(value as u32))),
        RAISE if !one.is_within(sets.permitted.and(sets.inheritable)) || sets.secure & NO_RAISE != 0 => {
            return Err(Errno::EPERM);
        }
        RAISE => sets.ambient = sets.ambient.or(one),
        LOWER => sets.ambient = sets.ambient.without(one),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

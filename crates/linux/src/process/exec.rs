//! execve, execveat (man 2 execve).

use crate::call::{Call, AT_FDCWD};
use alloc::{format, vec::Vec};
use fs::{Kind, OpenFlags, PathAnswer, PathOp};
use machine::{errno::Result, Errno, UserAddr, UserRegisters};
use process::{
    image::{ARGUMENTS_MAX, ARGUMENT_MAX},
    Absence, Program,
};

const AT_EMPTY_PATH: i32 = 0x1000;
const AT_SYMLINK_NOFOLLOW: i32 = 0x100;
/// Only whether the file may be executed.
const AT_EXECVE_CHECK: i32 = 0x1_0000;

pub(crate) async fn execve(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    run(call, AT_FDCWD, path, call.pointer(1), call.pointer(2), 0).await
}

pub(crate) async fn execveat(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.int(4);
    let path = call.path_with(1, flags & AT_EMPTY_PATH != 0).await?;
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_EXECVE_CHECK) != 0 {
        return Err(Errno::EINVAL);
    }
    run(call, call.int(0), path, call.pointer(2), call.pointer(3), flags).await
}

async fn run(
    call: &mut Call<'_>,
    fd: i32,
    path: Vec<u8>,
    arguments: UserAddr,
    environment: UserAddr,
    flags: i32,
) -> Result<u64> {
    let (base, caller) = (call.base_of(fd, &path).await?, call.caller());
    if path.is_empty() {
        let attributes = base.at.attributes().await?;
        match attributes.kind() {
            // An eventfd and its kin have no type at all.
            Kind::Regular if Kind::of_mode(attributes.mode) == Some(Kind::Regular) => {}
            Kind::Symlink => return Err(Errno::ELOOP),
            _ => return Err(Errno::EACCES),
        }
    }
    let mut open = OpenFlags::EXEC;
    open.set(OpenFlags::NOFOLLOW, flags & AT_SYMLINK_NOFOLLOW != 0);
    let op = PathOp::Open { path: path.clone(), flags: open, mode: 0, resolve: 0 };
    let PathAnswer::File(file) = call.system().paths.run(&caller, &base, op).await? else { return Err(Errno::EIO) };
    // What a script is found by.
    let by_descriptor = path.first() != Some(&b'/') && (fd != AT_FDCWD || path.is_empty());
    let name = match by_descriptor {
        true if path.is_empty() => format!("/dev/fd/{fd}").into_bytes(),
        true => [format!("/dev/fd/{fd}/").as_bytes(), &path].concat(),
        false => path,
    };
    let closes = by_descriptor && call.process().files().descriptor(fd as u32).await?.close_on_exec;
    let mut room = ARGUMENTS_MAX;
    let arguments = strings(call, arguments, &mut room).await?;
    let environment = strings(call, environment, &mut room).await?;
    if flags & AT_EXECVE_CHECK != 0 {
        return Ok(0);
    }
    // Since Linux 5.18 an empty argv becomes one empty string.
    let arguments = if arguments.is_empty() { [Vec::new()].into() } else { arguments };
    if call.thread.place_program() {
        // The thread goes back to the instruction that made this call, and moves on the way: the other kernel
        // does the call from its beginning.
        let registers = &mut call.context.registers;
        registers.repeat_call(registers.call_number());
        return Ok(registers.result());
    }
    let program = Program { file, path: name, closes, arguments, environment };
    if call.thread.clone().execute(call.context, program).await? == Absence::Over {
        call.over = true;
    }
    // The new program's: zero.
    Ok(call.context.registers.result())
}

/// A NULL-terminated array of strings; a NULL array is empty. E2BIG, EFAULT.
async fn strings(call: &Call<'_>, at: UserAddr, room: &mut usize) -> Result<Vec<Vec<u8>>> {
    let space = call.space();
    let mut list = Vec::new();
    if at.is_null() {
        return Ok(list);
    }
    for index in 0.. {
        let pointer: u64 = space.read_value(at.add(index * 8)).await?;
        if pointer == 0 {
            break;
        }
        let string = space.read_c_string(UserAddr(pointer), ARGUMENT_MAX).await.map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            error => error,
        })?;
        *room = room.checked_sub(string.len() + 9).ok_or(Errno::E2BIG)?;
        list.push(string);
        call.pause().await?;
    }
    Ok(list)
}

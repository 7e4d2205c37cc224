//! getdents, getdents64, and where a process is: getcwd, chdir, fchdir, chroot.

use super::open::open_file;
use crate::call::{Call, AT_FDCWD};
use alloc::{sync::Arc, vec::Vec};
use fs::{DirEntry, File, Kind, OpenFlags, PathOp, Whence};
use machine::{errno::Result, Errno};

/// Bytes asked for at a time; a caller with a larger buffer calls again.
const BUDGET: usize = 128 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `struct linux_dirent`: the type is the last byte.
    Old,
    /// `struct linux_dirent64`.
    New,
}

pub(crate) async fn getdents64(call: &mut Call<'_>) -> Result<u64> {
    entries(call, Form::New).await
}

pub(crate) async fn getdents(call: &mut Call<'_>) -> Result<u64> {
    entries(call, Form::Old).await
}

async fn entries(call: &Call<'_>, form: Form) -> Result<u64> {
    let file = call.file(0).await?;
    // Linux counts in an int what is left of the buffer: a negative size has room for nothing.
    let budget = (call.arg(2) as i32).max(0) as usize;
    let budget = budget.min(BUDGET);
    let mut bytes = Vec::new();
    if !can_be_told(call).await {
        // What can't be told has not been read: the next call tells it.
        let position = file.seek(0, Whence::Current).await;
        if file.read_dir(budget).await?.is_empty() {
            return Ok(0);
        }
        file.seek(position? as i64, Whence::Set).await?;
        return Err(Errno::EFAULT);
    }
    let mut ends = Vec::new();
    for entry in file.read_dir(budget).await? {
        encode(&mut bytes, &entry, form);
        ends.push((bytes.len(), entry.next));
    }
    let (written, error) = call.space().write_some(call.pointer(1), &bytes).await;
    if written == bytes.len() {
        return Ok(written as u64);
    }
    // The rest of the memory is not there: the entries that were told count, the others are for the next call.
    let &(told, next) = ends.iter().rev().find(|(end, _)| *end <= written).ok_or(error)?;
    file.seek(next as i64, Whence::Set).await?;
    Ok(told as u64)
}

/// Is there memory for the smallest entry? (What is there is written back: one can't ask otherwise.)
async fn can_be_told(call: &Call<'_>) -> bool {
    let mut smallest = [0; 24];
    let at = call.pointer(1);
    let (read, _) = call.space().read_some(at, &mut smallest).await;
    read == smallest.len() && call.space().write_some(at, &smallest).await.0 == read
}

/// Both forms take the same room: the old one ends with the type that the new one has before the name.
fn encode(out: &mut Vec<u8>, entry: &DirEntry, form: Form) {
    let start = out.len();
    let size = (19 + entry.name.len() + 1).next_multiple_of(8);
    out.extend(entry.ino.to_le_bytes());
    out.extend(entry.next.to_le_bytes());
    out.extend((size as u16).to_le_bytes());
    if form == Form::New {
        out.push(entry.d_type);
    }
    out.extend(&entry.name);
    out.extend(core::iter::repeat_n(0, start + size - out.len()));
    if form == Form::Old {
        out[start + size - 1] = entry.d_type;
    }
}

pub(crate) async fn getcwd(call: &mut Call<'_>) -> Result<u64> {
    let directories = call.process().directories().await?;
    let (cwd, root) = (directories.cwd.path().await, directories.root.path().await);
    if cwd.len() >= 4096 {
        return Err(Errno::ENAMETOOLONG);
    }
    if cwd.ends_with(b" (deleted)") {
        return Err(Errno::ENOENT);
    }
    let mut path = beneath(&root, cwd);
    path.push(0);
    if path.len() as u64 > call.arg(1) {
        return Err(Errno::ERANGE);
    }
    call.space().write(call.pointer(0), &path).await?;
    Ok(path.len() as u64)
}

/// `cwd` as seen by a process whose root directory is `root` (man 2 getcwd: "(unreachable)").
fn beneath(root: &[u8], cwd: Vec<u8>) -> Vec<u8> {
    if root == b"/" {
        return cwd;
    }
    match cwd.strip_prefix(root) {
        Some(b"") => b"/".to_vec(),
        Some(rest) if rest[0] == b'/' => rest.to_vec(),
        _ => [b"(unreachable)", &cwd[..]].concat(),
    }
}

pub(crate) async fn chdir(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    let directory = enter(call, path).await?;
    call.process().change_directory(directory, false).await?;
    Ok(0)
}

pub(crate) async fn fchdir(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file_or_name(0).await?;
    if file.attributes().await?.kind() != Kind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let base = call.base_of(call.int(0), b"").await?;
    let search = PathOp::Access { path: Vec::new(), mode: 1, effective: true, follow: true, empty_ok: true };
    call.system().paths.run(&call.caller(), &base, search).await?;
    call.process().change_directory(file, false).await?;
    Ok(0)
}

pub(crate) async fn chroot(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    let directory = enter(call, path).await?;
    if !call.can(abi::capability::SYS_CHROOT) {
        return Err(Errno::EPERM);
    }
    call.process().change_directory(directory, true).await?;
    Ok(0)
}

/// The directory at `path`, if the caller may search it.
async fn enter(call: &Call<'_>, path: Vec<u8>) -> Result<Arc<dyn File>> {
    let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
    let directory = open_file(call, AT_FDCWD, path.clone(), flags, 0, 0).await?;
    let search = PathOp::Access { path: path.clone(), mode: 1, effective: true, follow: true, empty_ok: false };
    call.at_path(AT_FDCWD, &path, search).await?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_end_with_a_nul() {
        let entry = DirEntry { ino: 7, next: 2, d_type: 4, name: b"bin".to_vec() };
        let mut new = Vec::new();
        encode(&mut new, &entry, Form::New);
        assert_eq!((new.len(), new[16], new[18]), (24, 24, 4));
        assert_eq!(&new[19..23], b"bin\0");
        let mut old = Vec::new();
        encode(&mut old, &entry, Form::Old);
        assert_eq!((old.len(), &old[18..22], old[23]), (24, &b"bin\0"[..], 4));
    }

    #[test]
    fn the_working_directory_is_told_from_the_root_of_the_process() {
        assert_eq!(beneath(b"/", b"/tmp".to_vec()), b"/tmp");
        assert_eq!(beneath(b"/srv", b"/srv/a".to_vec()), b"/a");
        assert_eq!(beneath(b"/srv", b"/srv".to_vec()), b"/");
        assert_eq!(beneath(b"/srv", b"/srvx".to_vec()), b"(unreachable)/srvx");
    }
}

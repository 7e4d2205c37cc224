//! Which file PROGRAM means, and whether this machine could run it at all. A mistake is told before anything boots.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{anyhow, bail, Context, Result};

/// What a shell searches when PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// As many links as Linux follows (man 7 path_resolution).
const MAX_LINKS: usize = 40;

/// The absolute path, as the guest sees it, of the file that `name` means.
pub fn find(name: &OsStr, root: Option<&Path>, search: Option<&OsStr>, cwd: &Path) -> Result<PathBuf> {
    let shown = Path::new(name).display().to_string();
    if name.is_empty() {
        bail!("the program's name is empty");
    }
    if name.as_bytes().contains(&b'/') {
        let path = cwd.join(name);
        let file = in_root(root, &path).map_err(|error| anyhow!("{shown}: {}", reason(&error)))?;
        check(&file).with_context(|| shown)?;
        return Ok(path);
    }
    let search = search.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut not_executable = None;
    for directory in search.as_bytes().split(|byte| *byte == b':') {
        // An empty entry of PATH means the current directory.
        let path = cwd.join(OsStr::from_bytes(directory)).join(name);
        let Ok(file) = in_root(root, &path) else {
            continue;
        };
        match fs::metadata(&file) {
            Ok(meta) if meta.is_file() && executable(&meta) => {
                check(&file).with_context(|| path.display().to_string())?;
                return Ok(path);
            }
            Ok(meta) if meta.is_file() => not_executable = Some(path),
            _ => {}
        }
    }
    match not_executable {
        Some(path) => bail!("{}: permission denied: not an executable file", path.display()),
        None => bail!("{shown}: not found on PATH"),
    }
}

/// Where `path` of the guest lies on the host: links inside another root stay inside it.
pub fn in_root(root: Option<&Path>, path: &Path) -> std::io::Result<PathBuf> {
    let Some(root) = root else {
        return fs::metadata(path).map(|_| path.to_path_buf());
    };
    let mut pending: Vec<PathBuf> = steps(path);
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(step) = pending.pop() {
        if step == Path::new("..") {
            inside.pop();
            continue;
        }
        let here = root.join(&inside).join(&step);
        let meta = fs::symlink_metadata(&here)?;
        if !meta.is_symlink() {
            inside.push(step);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(std::io::Error::from_raw_os_error(nix::libc::ELOOP));
        }
        let target = fs::read_link(&here)?;
        if target.is_absolute() {
            inside = PathBuf::new();
        }
        pending.extend(steps(&target));
    }
    Ok(root.join(inside))
}

/// The components to walk, the first last.
fn steps(path: &Path) -> Vec<PathBuf> {
    let walk = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    let mut steps: Vec<PathBuf> = walk.collect();
    steps.reverse();
    steps
}

fn executable(meta: &fs::Metadata) -> bool {
    meta.permissions().mode() & 0o111 != 0
}

/// The words of strerror, without Rust's "(os error 2)".
fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => nix::errno::Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string(),
    }
}

fn check(file: &Path) -> Result<()> {
    let meta = fs::metadata(file).map_err(|error| anyhow!(reason(&error)))?;
    if meta.is_dir() {
        bail!("is a directory");
    }
    if !meta.is_file() {
        bail!("not a regular file");
    }
    if !executable(&meta) {
        bail!("permission denied: not an executable file");
    }
    let mut head = Vec::new();
    File::open(file).and_then(|file| file.take(64).read_to_end(&mut head)).map_err(|error| anyhow!(reason(&error)))?;
    loadable(&head)
}

/// Judges the first 64 bytes (the ELF header, `man 5 elf`).
fn loadable(head: &[u8]) -> Result<()> {
    if head.starts_with(b"#!") {
        return Ok(());
    }
    if !head.starts_with(b"\x7fELF") {
        bail!("neither an ELF program nor a #! script");
    }
    if head.len() < 64 {
        bail!("truncated ELF header");
    }
    let (class, order) = (head[4], head[5]);
    let half = |at: usize| match order {
        2 => u16::from_be_bytes([head[at], head[at + 1]]),
        _ => u16::from_le_bytes([head[at], head[at + 1]]),
    };
    const X86_64: u16 = 62;
    if half(18) != X86_64 || class != 2 || order != 1 {
        let bits = if class == 2 { "64" } else { "32" };
        bail!("a program for another architecture ({}, {bits} bits), not x86-64", architecture(half(18)));
    }
    match half(16) {
        2 | 3 => Ok(()),
        1 => bail!("an object file, not a program"),
        _ => bail!("an ELF file, but not a program"),
    }
}

fn architecture(machine: u16) -> String {
    let name = match machine {
        3 => "i386",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC64",
        22 => "S390",
        40 => "ARM",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        other => return format!("ELF machine {other}"),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn elf(class: u8, order: u8, kind: u8, machine: u8) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
        head[16] = kind;
        head[18] = machine;
        head
    }

    #[test]
    fn only_programs_of_this_architecture_are_taken() {
        assert!(loadable(&elf(2, 1, 2, 62)).is_ok());
        assert!(loadable(&elf(2, 1, 3, 62)).is_ok());
        assert!(loadable(b"#!/bin/sh\n").is_ok());
        let complaint = |head: &[u8]| loadable(head).unwrap_err().to_string();
        assert!(complaint(&elf(2, 1, 2, 183)).contains("AArch64"));
        assert!(complaint(&elf(1, 1, 2, 3)).contains("i386"));
        assert!(complaint(&elf(1, 1, 2, 62)).contains("32 bits"));
        assert!(complaint(&elf(2, 1, 1, 62)).contains("object file"));
        assert!(complaint(b"hello").contains("neither"));
        assert!(complaint(b"").contains("neither"));
        assert!(complaint(b"\x7fELF\x02").contains("truncated"));
    }

    fn put(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, elf(2, 1, 3, 62)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn path_is_searched_as_a_shell_does() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("a/tool"), 0o644);
        put(&dir.path().join("b/tool"), 0o755);
        put(&dir.path().join("a/plain"), 0o644);
        let search = OsStr::new("a:b");
        let find = |name: &str| find(OsStr::new(name), None, Some(search), dir.path());
        assert_eq!(find("tool").unwrap(), dir.path().join("b/tool"));
        assert_eq!(find("./b/tool").unwrap(), dir.path().join("./b/tool"));
        assert!(find("plain").unwrap_err().to_string().contains("permission denied"));
        assert!(find("none").unwrap_err().to_string().contains("not found"));
        assert_eq!(format!("{:#}", find("./none").unwrap_err()), "./none: no such file or directory");
        assert!(format!("{:#}", find("./b").unwrap_err()).contains("is a directory"));
    }

    #[test]
    fn links_of_another_root_stay_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(&root.join("usr/bin/dash"), 0o755);
        symlink("/usr/bin", root.join("bin")).unwrap();
        symlink("dash", root.join("usr/bin/sh")).unwrap();
        symlink("../../../../usr/bin/sh", root.join("usr/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let resolve = |path: &str| in_root(Some(root), Path::new(path));
        assert_eq!(resolve("/bin/sh").unwrap(), root.join("usr/bin/dash"));
        assert_eq!(resolve("/usr/up").unwrap(), root.join("usr/bin/dash"));
        assert_eq!(resolve("/loop").unwrap_err().raw_os_error(), Some(nix::libc::ELOOP));
        assert!(resolve("/bin/none").is_err());
        let found = find(OsStr::new("sh"), Some(root), Some(OsStr::new("/bin")), Path::new("/"));
        assert_eq!(found.unwrap(), Path::new("/bin/sh"));
    }
}

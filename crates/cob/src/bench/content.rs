//! Files of this machine for an initramfs, under the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::machines::outcome;
use crate::cpio::Archive;

/// What an initramfs has beside its /init, by name without the first slash.
#[derive(Default)]
pub struct Content {
    directories: BTreeSet<String>,
    files: BTreeMap<String, (u32, Vec<u8>)>,
}

/// What the dynamic linker of this machine finds for a program or a library.
pub fn libraries(program: &Path) -> Result<Vec<String>> {
    let listing = outcome(Command::new("ldd").arg(program))?;
    let names = listing.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(names.map(String::from).collect())
}

/// An error names the package of Debian that is missing.
pub fn installed(programs: &[impl AsRef<Path>], package: &str) -> Result<()> {
    match programs.iter().find(|program| !program.as_ref().is_file()) {
        Some(missing) => bail!("no {} here (apt-get install {package})", missing.as_ref().display()),
        None => Ok(()),
    }
}

impl Content {
    pub fn file(&mut self, name: &str, mode: u32, data: Vec<u8>) {
        let name = name.trim_start_matches('/');
        self.directories_of(name);
        self.files.insert(name.to_string(), (mode, data));
    }

    /// The file `from` of this machine, or what it is a link to, as `name`.
    pub fn copy(&mut self, from: &Path, name: &str) -> Result<()> {
        let mode = fs::metadata(from).with_context(|| from.display().to_string())?.permissions().mode() & 0o7777;
        self.file(name, mode, fs::read(from)?);
        Ok(())
    }

    /// All below the directory `from`, as `name`.
    pub fn tree(&mut self, from: &Path, name: &str) -> Result<()> {
        let name = name.trim_start_matches('/');
        self.directories_of(&format!("{name}/"));
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let inside = format!("{name}/{}", entry.file_name().to_string_lossy());
            match entry.path().is_dir() {
                true => self.tree(&entry.path(), &inside)?,
                false => self.copy(&entry.path(), &inside)?,
            }
        }
        Ok(())
    }

    /// A program and the libraries that it needs.
    pub fn program(&mut self, path: &str) -> Result<()> {
        self.copy(Path::new(path), path)?;
        self.libraries_of(Path::new(path))
    }

    /// The libraries that a program or another library needs.
    pub fn libraries_of(&mut self, program: &Path) -> Result<()> {
        libraries(program)?.iter().try_for_each(|name| self.copy(Path::new(name), name))
    }

    /// Adds all of it.
    pub fn pack(self, archive: Archive) -> Archive {
        let made = ["dev", "proc", "sys", "tmp"].map(String::from);
        let wanted = self.directories.iter().filter(|directory| !made.contains(directory));
        let archive = wanted.fold(archive, |archive, directory| archive.directory(directory));
        self.files.into_iter().fold(archive, |archive, (name, (mode, data))| archive.file(&name, mode, &data))
    }

    fn directories_of(&mut self, name: &str) {
        let ends = name.char_indices().filter(|(at, letter)| *at > 0 && *letter == '/').map(|(at, _)| at);
        self.directories.extend(ends.map(|end| name[..end].to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_directories_before_it() {
        let mut content = Content::default();
        content.file("/usr/lib/x", 0o644, b"1".to_vec());
        content.file("tmp/y", 0o600, Vec::new());
        assert_eq!(content.directories.iter().collect::<Vec<_>>(), ["tmp", "usr", "usr/lib"]);
        let archive = content.pack(Archive::with_init(b"")).finish();
        let text = String::from_utf8_lossy(&archive);
        assert_eq!(text.matches("tmp\0").count(), 1, "the archive has its own already");
        assert!(text.find("usr/lib\0") < text.find("usr/lib/x\0"));
    }
}

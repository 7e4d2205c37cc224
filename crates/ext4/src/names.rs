//! Inodes that get, change and lose names. Each operation happens as a whole or not at all.
//!
//! The caller keeps others from changing the directories that take part, and checks what the format does not ask for: permissions, that a name is there or is not, and that no
//! directory moves below itself. An inode that has lost its last name stays on the list of orphans until the caller frees it.

use crate::{
    extents::EMPTY, handle::Handle, inode::EXTENTS, Device, Error, FileType, Inode, NewInode, Result, Time, Volume,
};

/// Names of a file, and subdirectories of a directory with their `..`, at most.
const MOST_LINKS: u16 = 65000;

/// The inodes of an operation as they are afterwards.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The inode that got, moved or lost a name.
    pub inode: Inode,
    /// The directory of the name; of the old one, if it moved.
    pub directory: Inode,
    /// The inode that was replaced, or exchanged with the other one.
    pub other: Option<Inode>,
    /// The directory that it moved to, if that is another one.
    pub other_directory: Option<Inode>,
}

/// A name in a directory, and the block to look for it: which has the name, or has room for it ([`Handle::add_name`]).
#[derive(Clone, Copy)]
pub(crate) struct NamePlace<'a> {
    pub directory: u32,
    pub name: &'a [u8],
    pub block: Option<u32>,
}

impl NamePlace<'_> {
    /// The block that has the name.
    fn found(&self) -> Result<u32> {
        self.block.ok_or(Error::Gone)
    }
}

fn is_directory(inode: &Inode) -> Result<bool> {
    Ok(inode.file_type()? == FileType::Directory)
}

/// A directory's contents change.
fn touch(directory: &mut Inode, time: Time) {
    (directory.modified, directory.changed) = (time, time);
}

fn leads_to(found: u32, expected: u32) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::Gone),
    }
}

impl Handle<'_> {
    /// A directory that is in use.
    pub(crate) fn directory(&self, number: u32) -> Result<Inode> {
        let directory = self.inode(number)?.ok_or(Error::Gone)?;
        match is_directory(&directory)? {
            true => Ok(directory),
            false => Err(Error::Corrupt("a file that was a directory")),
        }
    }

    /// A directory gets a subdirectory, whose `..` leads to it. One with an index may have more of them than can be counted: then it says 1.
    fn add_subdirectory(&self, directory: &mut Inode) -> Result<()> {
        directory.links = match directory.links {
            1 => 1,
            links if links < MOST_LINKS => links + 1,
            _ if self.superblock().has_many_links() && directory.flags & crate::inode::INDEX != 0 => 1,
            _ => return Err(Error::TooManyLinks),
        };
        Ok(())
    }

    /// A directory loses a subdirectory.
    fn remove_subdirectory(&self, directory: &mut Inode) {
        if directory.links > 2 {
            directory.links -= 1;
        }
    }

    /// An inode loses a name: a directory its only one. The caller stores it.
    fn lose_name(&mut self, inode: &mut Inode, time: Time) -> Result<()> {
        inode.links = if is_directory(inode)? { 0 } else { inode.links.saturating_sub(1) };
        inode.changed = time;
        match inode.links {
            0 => self.add_orphan(inode),
            _ => Ok(()),
        }
    }

    /// Gives a new symbolic link its target: in the inode if it is short, else in a block.
    fn set_target(&mut self, inode: &mut Inode, target: &[u8]) -> Result<()> {
        // One byte behind it is 0.
        if target.is_empty() || target.len() >= self.block_bytes() {
            return Err(Error::TooLarge);
        }
        inode.size = target.len() as u64;
        if target.len() < inode.root.len() {
            inode.flags &= !EXTENTS;
            inode.root.fill(0);
            inode.root[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        (inode.flags, inode.root) = (inode.flags | EXTENTS, EMPTY);
        let place = self.new_block(self.goal(inode.number))?;
        self.edit(place)?[..target.len()].copy_from_slice(target);
        inode.count_blocks(self.superblock(), 1);
        self.add_extent(inode, crate::extents::Extent { block: 0, blocks: 1, place, written: true })
    }

    /// See [`Volume::create`].
    pub(crate) fn create(&mut self, at: &NamePlace<'_>, new: &NewInode, target: Option<&[u8]>) -> Result<Changed> {
        let mut directory = self.directory(at.directory)?;
        let mut inode = self.make_inode(at.directory, new)?;
        let file_type = inode.file_type()?;
        match (file_type, target) {
            (FileType::Directory, _) => {
                self.add_subdirectory(&mut directory)?;
                self.make_directory_block(&mut inode, directory.number)?;
                inode.links = 2;
            }
            (FileType::Symlink, Some(target)) => self.set_target(&mut inode, target)?,
            _ => {}
        }
        self.add_name(&mut directory, at.name, inode.number, file_type, at.block)?;
        touch(&mut directory, new.time);
        self.put_inode(&inode)?;
        self.put_inode(&directory)?;
        Ok(Changed { inode, directory, other: None, other_directory: None })
    }

    /// See [`Volume::create_unnamed`].
    pub(crate) fn create_unnamed(&mut self, directory: u32, new: &NewInode) -> Result<Inode> {
        let mut inode = self.make_inode(directory, new)?;
        inode.links = 0;
        self.add_orphan(&mut inode)?;
        self.put_inode(&inode)?;
        Ok(inode)
    }

    /// See [`Volume::add_link`].
    pub(crate) fn add_link(&mut self, at: &NamePlace<'_>, inode: u32, time: Time) -> Result<Changed> {
        let mut directory = self.directory(at.directory)?;
        let mut inode = self.any_inode(inode)?;
        if inode.links >= MOST_LINKS {
            return Err(Error::TooManyLinks);
        }
        let file_type = inode.file_type()?;
        self.add_name(&mut directory, at.name, inode.number, file_type, at.block)?;
        inode.links += 1;
        inode.changed = time;
        if inode.links == 1 {
            self.remove_orphan(&mut inode)?;
        }
        touch(&mut directory, time);
        self.put_inode(&inode)?;
        self.put_inode(&directory)?;
        Ok(Changed { inode, directory, other: None, other_directory: None })
    }

    /// See [`Volume::unlink`] and [`Volume::remove_directory`].
    pub(crate) fn unlink(&mut self, at: &NamePlace<'_>, inode: u32, time: Time) -> Result<Changed> {
        let mut directory = self.directory(at.directory)?;
        let mut inode = self.any_inode(inode)?;
        leads_to(self.remove_name(&directory, at.name, at.found()?)?, inode.number)?;
        if is_directory(&inode)? {
            self.remove_subdirectory(&mut directory);
        }
        self.lose_name(&mut inode, time)?;
        touch(&mut directory, time);
        self.put_inode(&inode)?;
        self.put_inode(&directory)?;
        Ok(Changed { inode, directory, other: None, other_directory: None })
    }

    /// The directories of two names: the second is None if it is the same.
    fn directories(&self, first: u32, second: u32) -> Result<(Inode, Option<Inode>)> {
        let other = if first == second { None } else { Some(self.directory(second)?) };
        Ok((self.directory(first)?, other))
    }

    /// See [`Volume::rename`].
    pub(crate) fn rename(
        &mut self,
        from: &NamePlace<'_>,
        inode: u32,
        to: &NamePlace<'_>,
        replaced: Option<u32>,
        time: Time,
    ) -> Result<Changed> {
        let (mut directory, mut other_directory) = self.directories(from.directory, to.directory)?;
        let mut inode = self.any_inode(inode)?;
        let mut other = replaced.map(|replaced| self.any_inode(replaced)).transpose()?;
        let (file_type, moves) = (inode.file_type()?, other_directory.is_some());
        // First the old name goes: nothing of the directory has moved yet since that was found.
        leads_to(self.remove_name(&directory, from.name, from.found()?)?, inode.number)?;
        if file_type == FileType::Directory {
            self.remove_subdirectory(&mut directory);
            if moves {
                self.set_parent(&inode, to.directory)?;
            }
        }
        let target = other_directory.as_mut().unwrap_or(&mut directory);
        match &mut other {
            Some(other) => {
                leads_to(self.change_name(target, to.name, to.found()?, inode.number, file_type)?, other.number)?;
                // A directory that is replaced by another one leaves the number of subdirectories as it is.
                match (is_directory(other)?, file_type == FileType::Directory) {
                    (true, false) => self.remove_subdirectory(target),
                    (false, true) => self.add_subdirectory(target)?,
                    _ => {}
                }
                self.lose_name(other, time)?;
            }
            None => {
                if file_type == FileType::Directory {
                    self.add_subdirectory(target)?;
                }
                self.add_name(target, to.name, inode.number, file_type, to.block)?;
            }
        }
        inode.changed = time;
        touch(&mut directory, time);
        other_directory.iter_mut().for_each(|directory| touch(directory, time));
        self.store(Changed { inode, directory, other, other_directory })
    }

    /// See [`Volume::exchange`].
    pub(crate) fn exchange(
        &mut self,
        from: &NamePlace<'_>,
        inode: u32,
        to: &NamePlace<'_>,
        other: u32,
        time: Time,
    ) -> Result<Changed> {
        let (mut directory, mut other_directory) = self.directories(from.directory, to.directory)?;
        let (mut inode, mut other) = (self.any_inode(inode)?, self.any_inode(other)?);
        let kinds = (inode.file_type()?, other.file_type()?);
        leads_to(self.change_name(&directory, from.name, from.found()?, other.number, kinds.1)?, inode.number)?;
        let target = other_directory.as_ref().unwrap_or(&directory);
        leads_to(self.change_name(target, to.name, to.found()?, inode.number, kinds.0)?, other.number)?;
        if let Some(target) = &mut other_directory {
            for (moved, parent) in [(&inode, to.directory), (&other, from.directory)] {
                if is_directory(moved)? {
                    self.set_parent(moved, parent)?;
                }
            }
            match (kinds.0 == FileType::Directory, kinds.1 == FileType::Directory) {
                (true, false) => {
                    self.remove_subdirectory(&mut directory);
                    self.add_subdirectory(target)?;
                }
                (false, true) => {
                    self.remove_subdirectory(target);
                    self.add_subdirectory(&mut directory)?;
                }
                _ => {}
            }
            touch(target, time);
        }
        touch(&mut directory, time);
        (inode.changed, other.changed) = (time, time);
        self.store(Changed { inode, directory, other: Some(other), other_directory })
    }

    fn store(&mut self, changed: Changed) -> Result<Changed> {
        let Changed { inode, directory, other, other_directory } = &changed;
        for inode in [inode, directory].into_iter().chain(other).chain(other_directory) {
            self.put_inode(inode)?;
        }
        Ok(changed)
    }
}

impl<D: Device> Volume<D> {
    /// A name that is there.
    async fn there<'a>(&self, directory: u32, name: &'a [u8]) -> Result<NamePlace<'a>> {
        let inode = self.run(|handle| handle.directory(directory)).await?;
        let entry = self.noted(self.lookup(&inode, name).await)?.ok_or(Error::Gone)?;
        Ok(NamePlace { directory, name, block: Some(entry.block) })
    }

    /// A name that is not there.
    async fn room<'a>(&self, directory: u32, name: &'a [u8]) -> Result<NamePlace<'a>> {
        let inode = self.run(|handle| {
            handle.core().check_room_for_names()?;
            handle.directory(directory)
        });
        let inode = inode.await?;
        Ok(NamePlace { directory, name, block: self.noted(self.find_room(&inode, name.len()).await)? })
    }

    /// Makes an inode with a name in `directory`, which does not have that yet. `target`: where a symbolic link leads; [`Error::TooLarge`]: that does not fit a block.
    pub async fn create(&self, directory: u32, name: &[u8], new: &NewInode, target: Option<&[u8]>) -> Result<Changed> {
        let at = self.room(directory, name).await?;
        self.run(|handle| handle.create(&at, new, target)).await
    }

    /// Makes an inode without a name, near `directory`. It is on the list of orphans until it gets a name.
    pub async fn create_unnamed(&self, directory: u32, new: &NewInode) -> Result<Inode> {
        self.run(|handle| handle.create_unnamed(directory, new)).await
    }

    /// Gives an inode that is no directory another name, which is not there yet.
    pub async fn add_link(&self, directory: u32, name: &[u8], inode: u32, time: Time) -> Result<Changed> {
        let at = self.room(directory, name).await?;
        self.run(|handle| handle.add_link(&at, inode, time)).await
    }

    /// Removes a name of an inode that is no directory. It is an orphan if that was the last one.
    pub async fn unlink(&self, directory: u32, name: &[u8], inode: u32, time: Time) -> Result<Changed> {
        let at = self.there(directory, name).await?;
        self.run(|handle| handle.unlink(&at, inode, time)).await
    }

    /// Removes a directory, which becomes an orphan. [`Error::NotEmpty`]: it has names.
    pub async fn remove_directory(&self, directory: u32, name: &[u8], inode: u32, time: Time) -> Result<Changed> {
        self.check_empty(inode).await?;
        self.unlink(directory, name, inode, time).await
    }

    /// Gives an inode another name in the place of its old one. `replaced`: to which inode the new name leads; that must be a directory without names if the inode is one, or else
    /// none. The two are not the same.
    pub async fn rename(
        &self,
        from: (u32, &[u8]),
        inode: u32,
        to: (u32, &[u8]),
        replaced: Option<u32>,
        time: Time,
    ) -> Result<Changed> {
        let at = self.there(from.0, from.1).await?;
        let to = match replaced {
            Some(replaced) => {
                self.check_empty(replaced).await?;
                self.there(to.0, to.1).await?
            }
            None => self.room(to.0, to.1).await?,
        };
        self.run(|handle| handle.rename(&at, inode, &to, replaced, time)).await
    }

    /// Lets each of two names lead to the inode of the other.
    pub async fn exchange(
        &self,
        first: (u32, &[u8]),
        inode: u32,
        second: (u32, &[u8]),
        other: u32,
        time: Time,
    ) -> Result<Changed> {
        let from = self.there(first.0, first.1).await?;
        let to = self.there(second.0, second.1).await?;
        self.run(|handle| handle.exchange(&from, inode, &to, other, time)).await
    }

    async fn check_empty(&self, inode: u32) -> Result<()> {
        let inode = self.run(|handle| handle.any_inode(inode)).await?;
        match !is_directory(&inode)? || self.noted(self.is_empty_directory(&inode).await)? {
            true => Ok(()),
            false => Err(Error::NotEmpty),
        }
    }
}

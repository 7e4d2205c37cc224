//! [`Files`]: a descriptor table, one over all kernels.
//!
//! The table's home keeps it: which numbers are taken, and by what. Another kernel that runs a thread using
//! it caches what it has looked up. Only *present* numbers are cached, so opening tells nobody; closing or
//! replacing a number makes the home call back every kernel that may have cached it *before* the change is
//! answered. Dangerous interleaving: kernel A asks for fd 3 while B closes it. The home answers A, then calls
//! A back, and A's thread, which was waiting, resumes only after both have arrived. So A counts call-backs, and
//! keeps an answer only if none came since it asked.

pub(crate) mod follow;
mod table;

pub use table::Descriptor;

use crate::{users::Users, DescriptorTransfer, System};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use fs::File;
use machine::{errno::Result, sync::Lock, Errno, HashMap, KernelId, Pid};
use messages::{
    descriptor::{
        DescriptorFlag, DescriptorForget, DescriptorGet, DescriptorList, DescriptorPut, DescriptorPutTwo,
        DescriptorTake, DescriptorUsers, TableId,
    },
    fs::{Opened, WaitPlace},
};
use table::{Cache, Slots, Table};

/// Descriptor tables that this kernel knows.
#[derive(Default)]
pub(crate) struct Tables {
    /// Tables whose home is this kernel.
    pub home: Lock<HashMap<TableId, Arc<Files>>>,
    /// Caches of other kernels' tables, kept while a process here uses them.
    pub cached: Lock<HashMap<TableId, Weak<Files>>>,
}

/// See [`Files::is_astray`].
const ASTRAY: u32 = 4;
/// In a table without higher numbers there are few files.
const FEW_OPEN: u32 = 64;
/// About how many bytes an open file takes of the heap.
const FILE_BYTES: usize = 512;
/// Most bytes that a descriptor takes in a list, with what other kernels are told of it.
const LISTED_BYTES: usize = 128;

/// A descriptor table as one kernel has it: the table itself where it was made, elsewhere what is cached of it.
pub struct Files {
    id: TableId,
    system: Arc<System>,
    part: Part,
}

enum Part {
    Home(Lock<Table>),
    Cache(Lock<Cache>),
}

/// What is cached is forgotten with its last user here: a process that has ended, or has another table since execve.
impl Drop for Files {
    fn drop(&mut self) {
        if let Part::Cache(_) = self.part {
            let mut cached = self.system.tables.cached.lock();
            // Somebody may have begun a new one meanwhile.
            if cached.get(&self.id).is_some_and(|entry| entry.strong_count() == 0) {
                cached.remove(&self.id);
            }
        }
    }
}

impl Files {
    /// An empty table, at home here, for a process that is at home on `user`.
    pub(crate) fn new(system: &Arc<System>, user: KernelId) -> Arc<Files> {
        let id = TableId { home: system.kernel, serial: system.serials.next() };
        let table = Table::new(Users::only(user));
        let files = Arc::new(Files { id, system: system.clone(), part: Part::Home(Lock::new(table)) });
        system.tables.home.lock().insert(id, files.clone());
        files
    }

    /// The table `id` as this kernel sees it.
    pub(crate) fn attach(system: &Arc<System>, id: TableId) -> Result<Arc<Files>> {
        if id.home == system.kernel {
            return system.tables.home.lock().get(&id).cloned().ok_or(Errno::ESRCH);
        }
        let mut cached = system.tables.cached.lock();
        if let Some(known) = cached.get(&id).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let files = Arc::new(Files { id, system: system.clone(), part: Part::Cache(Lock::default()) });
        cached.insert(id, Arc::downgrade(&files));
        Ok(files)
    }

    /// The table `id` if this kernel has it, at home or cached.
    pub(crate) fn find(system: &System, id: TableId) -> Result<Arc<Files>> {
        let own = system.tables.home.lock().get(&id).cloned();
        let cached = || system.tables.cached.lock().get(&id).and_then(Weak::upgrade);
        own.or_else(cached).ok_or(Errno::ESRCH)
    }

    /// Its name on all kernels.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The file behind a number, if this kernel knows without asking.
    #[inline]
    pub fn known(&self, fd: u32) -> Option<Arc<dyn File>> {
        match &self.part {
            Part::Home(table) => table.lock().get(fd).ok().map(|descriptor| descriptor.file.clone()),
            Part::Cache(cache) => cache.lock().known.get(&fd).map(|descriptor| descriptor.file.clone()),
        }
    }

    /// The file behind a number; asks the table's home if this kernel does not know. EBADF if there is none.
    pub async fn get(&self, fd: u32) -> Result<Arc<dyn File>> {
        Ok(self.descriptor(fd).await?.file)
    }

    /// The same, with the close-on-exec flag.
    pub async fn descriptor(&self, fd: u32) -> Result<Descriptor> {
        let cache = match &self.part {
            Part::Home(table) => return table.lock().get(fd).cloned(),
            Part::Cache(cache) => cache,
        };
        let forgotten = {
            let cache = cache.lock();
            if let Some(known) = cache.known.get(&fd) {
                return Ok(known.clone());
            }
            cache.forgotten
        };
        let ask = DescriptorGet { table: self.id, fd };
        let take = |from: &dyn DescriptorTransfer, reply: Result<(Opened, bool)>| -> Result<Descriptor> {
            let (file, close_on_exec) = reply?;
            Ok(Descriptor { file: from.take(file)?, close_on_exec })
        };
        let descriptor = self.system.ask_for(self.id.home, ask, take).await??;
        let mut cache = cache.lock();
        if cache.forgotten == forgotten {
            cache.known.insert(fd, descriptor.clone());
        }
        Ok(descriptor)
    }

    /// Puts a file at the lowest free number from `from` on, below `limit` (EMFILE).
    pub async fn add(&self, file: Arc<dyn File>, from: u32, close_on_exec: bool, limit: u64) -> Result<u32> {
        self.put(file, from, false, close_on_exec, limit).await
    }

    /// dup2: puts a file exactly at `fd`, closing what was there.
    pub async fn replace(&self, file: Arc<dyn File>, fd: u32, close_on_exec: bool, limit: u64) -> Result<u32> {
        self.put(file, fd, true, close_on_exec, limit).await
    }

    async fn put(&self, file: Arc<dyn File>, from: u32, exactly: bool, close_on_exec: bool, limit: u64) -> Result<u32> {
        let table = match &self.part {
            Part::Home(table) => table,
            Part::Cache(cache) => {
                let talks = matches!(file.waiting(), WaitPlace::Socket(_) | WaitPlace::Epoll);
                let given = self.system.descriptor_transfer.give(&file, self.id.home).await?;
                let ask = DescriptorPut { table: self.id, file: given, from, exactly, close_on_exec, limit };
                let (fd, alone) = self.system.endpoint.call(self.id.home, ask).await.map_err(Errno::from)??;
                // A table with many files would cost more than it saves.
                cache.lock().note_put(alone, if talks && fd < FEW_OPEN { ASTRAY + 1 } else { 1 });
                return Ok(fd);
            }
        };
        let (fd, old) = {
            let mut table = table.lock();
            let fd = if exactly { from } else { table.free(from) };
            if u64::from(fd) >= limit {
                return Err(if exactly { Errno::EBADF } else { Errno::EMFILE });
            }
            (fd, table.set(fd, Descriptor { file, close_on_exec }))
        };
        if old.is_some() {
            self.call_back(fd).await;
        }
        Ok(fd)
    }

    /// Puts two files at the two lowest free numbers in one step (pipe2, socketpair), so that no thread that closes or opens
    /// numbers gets between the two.
    pub async fn add_two(&self, files: [Arc<dyn File>; 2], close_on_exec: bool, limit: u64) -> Result<(u32, u32)> {
        let table = match &self.part {
            Part::Home(table) => table,
            Part::Cache(cache) => {
                let (home, transfer) = (self.id.home, &self.system.descriptor_transfer);
                let given = (transfer.give(&files[0], home).await?, transfer.give(&files[1], home).await?);
                let ask = DescriptorPutTwo { table: self.id, files: given, close_on_exec, limit };
                let (fds, alone) = self.system.endpoint.call(home, ask).await.map_err(Errno::from)??;
                cache.lock().note_put(alone, 1);
                return Ok(fds);
            }
        };
        let mut table = table.lock();
        let first = table.free(0);
        let second = table.free(first + 1);
        if u64::from(second) >= limit {
            return Err(Errno::EMFILE);
        }
        for (fd, file) in [first, second].into_iter().zip(files) {
            table.set(fd, Descriptor { file, close_on_exec });
        }
        Ok((first, second))
    }

    /// Is every number below `limit` taken, as far as this kernel knows without asking? open(2) refuses before it looks for the name.
    pub fn is_full(&self, limit: u64) -> bool {
        let Part::Home(table) = &self.part else { return false };
        u64::from(table.lock().free(0)) >= limit
    }

    /// Frees a number; gives what it held.
    pub async fn take(&self, fd: u32) -> Result<Arc<dyn File>> {
        let table = match &self.part {
            Part::Home(table) => table,
            Part::Cache(_) => {
                let ask = DescriptorTake { table: self.id, fd };
                let take = |from: &dyn DescriptorTransfer, reply: Result<Opened>| from.take(reply?);
                let file = self.system.ask_for(self.id.home, ask, take).await??;
                drop(self.forget(fd));
                return Ok(file);
            }
        };
        let taken = table.lock().take(fd)?;
        self.call_back(fd).await;
        Ok(taken.file)
    }

    /// FD_CLOEXEC of a number. EBADF if there is none.
    pub async fn set_close_on_exec(&self, fd: u32, close_on_exec: bool) -> Result<()> {
        let table = match &self.part {
            Part::Home(table) => table,
            Part::Cache(_) => {
                let ask = DescriptorFlag { table: self.id, fd, close_on_exec };
                self.system.endpoint.call(self.id.home, ask).await.map_err(Errno::from)??;
                drop(self.forget(fd));
                return Ok(());
            }
        };
        table.lock().get_mut(fd)?.close_on_exec = close_on_exec;
        self.call_back(fd).await;
        Ok(())
    }

    /// All open descriptors in order. ENOMEM: they are so many that the list is too long for the heap.
    pub async fn list(&self) -> Result<Vec<(u32, Descriptor)>> {
        let table = match &self.part {
            Part::Home(table) => table,
            Part::Cache(_) => {
                let ask = DescriptorList { table: self.id };
                let take =
                    |from: &dyn DescriptorTransfer, list: Vec<(u32, Opened, bool)>| -> Vec<Result<(u32, Descriptor)>> {
                        let take =
                            |(fd, file, close_on_exec)| Ok((fd, Descriptor { file: from.take(file)?, close_on_exec }));
                        list.into_iter().map(take).collect()
                    };
                return self.system.ask_for(self.id.home, ask, take).await?.into_iter().collect();
            }
        };
        let table = table.lock();
        let count = table.iter().count();
        if !self.system.memory.has_room_for(count * LISTED_BYTES) {
            return Err(Errno::ENOMEM);
        }
        let mut list = Vec::with_capacity(count);
        list.extend(table.iter().map(|(fd, descriptor)| (fd, descriptor.clone())));
        Ok(list)
    }

    /// Numbers of open descriptors from `from` on, ascending, `most` at most.
    pub(crate) async fn numbers(&self, from: u32, most: usize) -> Result<Vec<u32>> {
        Ok(match &self.part {
            Part::Home(table) => table.lock().iter_from(from).map(|(fd, _)| fd).take(most).collect(),
            Part::Cache(_) => {
                let all = self.list().await?.into_iter().map(|(fd, _)| fd);
                all.filter(|&fd| fd >= from).take(most).collect()
            }
        })
    }

    /// Bytes that its files may take of this kernel's heap.
    pub(crate) fn bytes(&self) -> usize {
        match &self.part {
            Part::Home(table) => table.lock().iter().count() * FILE_BYTES,
            Part::Cache(_) => 0,
        }
    }

    /// A copy with the same open files, at home here (fork, unshare), for a process that is at home on `user`.
    pub(crate) async fn copy(&self, user: KernelId) -> Result<Arc<Files>> {
        let list = self.list().await?;
        let copy = Files::new(&self.system, user);
        if let Part::Home(table) = &copy.part {
            let mut table = table.lock();
            for (fd, descriptor) in list {
                table.set(fd, descriptor);
            }
        }
        Ok(copy)
    }

    /// execve: closes the descriptors that are marked close-on-exec.
    pub async fn close_on_exec(&self) -> Result<Vec<Arc<dyn File>>> {
        let mut closed = Vec::new();
        for (fd, descriptor) in self.list().await? {
            if descriptor.close_on_exec {
                closed.push(descriptor.file);
                self.take(fd).await?;
            }
        }
        Ok(closed)
    }

    /// One more process, at home on `user`, uses the table (CLONE_FILES).
    pub(crate) async fn retain(&self, user: KernelId) {
        // With a dead home the process is about to be killed.
        let _ = self.count(user, true, None).await;
    }

    /// A process stops using it, because it has `ended` or has another; the last one closes everything. EIO: the table has died,
    /// and nothing in it was closed.
    pub(crate) async fn release(&self, user: KernelId, ended: Option<Pid>) -> Result<()> {
        // A process that has ended is known at home until somebody waits for it; a pipe that it keeps open may be just what that
        // waits for first.
        self.forget_all();
        self.count(user, false, ended).await
    }

    async fn count(&self, user: KernelId, more: bool, ended: Option<Pid>) -> Result<()> {
        match &self.part {
            Part::Home(_) => self.count_at_home(user, more, ended).await,
            Part::Cache(_) => {
                let users = DescriptorUsers { table: self.id, user, more, ended };
                self.system.endpoint.call(self.id.home, users).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn count_at_home(&self, user: KernelId, more: bool, ended: Option<Pid>) {
        let closed = self.change_users(|users| match more {
            true => {
                users.add(user);
                false
            }
            false => users.remove(user),
        });
        let Some(process) = ended else { return };
        // Closing its descriptors ends a process's record locks, also on files that others have open too.
        let (credentials, shield) = (Default::default(), machine::Shield::NONE);
        let caller =
            fs::Caller { credentials, process, thread: process, group: process, session: process, umask: 0, shield };
        for file in closed.into_files() {
            fs::file::close_descriptor(file, &caller).await;
        }
    }

    /// The processes that were at home on `dead` use it no longer.
    pub(crate) fn forget_users(&self, dead: KernelId) {
        drop(self.change_users(|users| users.forget(dead)));
    }

    /// `change` says whether nobody uses the table any more: then what was in it is the caller's to close.
    fn change_users(&self, change: impl FnOnce(&mut Users) -> bool) -> Slots {
        let Part::Home(table) = &self.part else { return Slots::default() };
        let closed = {
            let mut table = table.lock();
            if !change(&mut table.users) {
                return Slots::default();
            }
            table.take_all()
        };
        self.system.tables.home.lock().remove(&self.id);
        closed
    }

    /// Whether it is time to ask if the table could move here: threads here have put several files into a table of another
    /// kernel, or a socket or an epoll, which follow it (follow.rs). After a yes, it takes more of them for the next.
    pub fn is_astray(&self) -> bool {
        let Part::Cache(cache) = &self.part else { return false };
        let mut cache = cache.lock();
        let astray = cache.put > ASTRAY << cache.worth.min(16);
        if astray {
            (cache.put, cache.worth) = (0, cache.worth + 2);
        }
        astray
    }

    /// Whether more than one process uses the table.
    pub fn is_shared(&self) -> bool {
        match &self.part {
            Part::Home(table) => table.lock().users.total() > 1,
            Part::Cache(_) => true,
        }
    }

    /// Makes every kernel that may have cached `fd` forget it.
    async fn call_back(&self, fd: u32) {
        let Part::Home(table) = &self.part else { return };
        let cachers = table.lock().cachers.clone();
        if !cachers.is_empty() {
            self.system.endpoint.multicast(&cachers, DescriptorForget { table: self.id, fd }).await;
        }
    }

    /// On a caching kernel: forgets a number that the home calls back.
    pub(crate) fn forget(&self, fd: u32) -> Option<Descriptor> {
        let Part::Cache(cache) = &self.part else { return None };
        let mut cache = cache.lock();
        cache.forgotten += 1;
        cache.known.remove(&fd)
    }

    /// On a caching kernel: what still uses the table, if anything does, asks again.
    fn forget_all(&self) {
        if let Part::Cache(cache) = &self.part {
            let forgotten = {
                let mut cache = cache.lock();
                cache.forgotten += 1;
                core::mem::take(&mut cache.known)
            };
            drop(forgotten);
        }
    }

    /// At home: answers a kernel that asks for a number and will cache it.
    pub(crate) fn look_up_for(&self, kernel: KernelId, fd: u32) -> Result<Descriptor> {
        let Part::Home(table) = &self.part else { return Err(Errno::ESRCH) };
        let mut table = table.lock();
        let descriptor = table.get(fd)?.clone();
        table.cachers.insert(kernel);
        Ok(descriptor)
    }
}

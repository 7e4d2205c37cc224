//! Connections and epolls follow the only program that has them.
//!
//! Problem: a file stays on the kernel that made it. A program that goes to another kernel would ask the first one for each byte and each event.
//!
//! Idea: when its only thread has arrived, and its descriptor table with it, this kernel asks for those files of which it has the only
//! references. An end of a connection comes as one that is accepted here does (`socket/handover.rs`); of an epoll it is told what that watches,
//! and a new one is made.
//!
//! ```text
//! this kernel                                      the owner
//! -- EpollMove ----------------------------------> what does it watch?
//! -- FileControl (Move, an end that is made here) -> nobody else has the file, nor watches it: the end leaves
//! <-------------------- what the end takes along --
//! an epoll that watches the end, and the rest
//! both into the descriptor table
//! -- FileRelease --------------------------------> what is left of both ends
//! ```
//!
//! Dangerous: an epoll that stays where it is, and watches an end that has left, would never hear of it again. So the owner is told how many
//! entries will follow, and keeps an end that more watch.

use super::{stand_in, Remote};
use crate::{
    epoll::Epoll,
    file::{address_of, Fetched, LeftFile, WatchedFiles},
    socket, Caller, File, FileRef, OpenFlags,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use machine::{errno::Result, Errno, KernelId};
use messages::fs::{EpollMove, WaitPlace};

pub(super) fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on_sync(|remote, from, EpollMove { id, references }| remote.tell_epoll(from, id, references));
}

/// An epoll of another kernel that is to move here.
struct Moving {
    from: Arc<dyn File>,
    flags: OpenFlags,
    watched: WatchedFiles,
}

/// Whether the descriptors have the only references to the file.
fn is_only(held: &&LeftFile) -> bool {
    Arc::strong_count(&held.file) == held.descriptors + 1
}

impl Remote {
    fn tell_epoll(&self, from: KernelId, id: u64, references: u64) -> Result<(OpenFlags, WatchedFiles)> {
        let file = self.exports.get(id)?;
        let loan = self.exports.loan_of(&file);
        let is_its = loan.is_some_and(|loan| loan.settled && loan.holders == [(from, references)]);
        // Those references, and one here.
        let is_only = is_its && Arc::strong_count(&file) == 2;
        let watcher = file.watcher().filter(|_| is_only).ok_or(Errno::EBUSY)?;
        let watched = watcher.to_move(&|address| self.name_of(address)).ok_or(Errno::EBUSY)?;
        Ok((file.flags(), watched))
    }

    /// The name of a file of this kernel that others know.
    fn name_of(&self, address: usize) -> Option<FileRef> {
        Some(FileRef { owner: self.me(), id: self.exports.number(address)? })
    }

    /// Of the files of a program, each once, those come here that no other has and that can: each with what it is from now on.
    pub async fn fetch(&self, files: &[LeftFile], caller: &Caller) -> Vec<Fetched> {
        let only: Vec<&LeftFile> = files.iter().filter(is_only).collect();
        let account = self.sockets.lock().upgrade().and_then(|sockets| sockets.account(socket::credentials_of(caller)));
        let Some(account) = account else { return Vec::new() };
        let mut names = self.names_of(files);
        let epolls = self.watching(&only, &names).await;
        let here = only.iter().filter_map(|held| held.file.watcher());
        let mut watchers: BTreeMap<FileRef, u32> = BTreeMap::new();
        // The owner counts all entries of another kernel's epolls as one.
        let there = here.clone().flat_map(|watcher| watcher.foreign()).collect::<BTreeSet<_>>();
        for file in epolls.iter().flat_map(|epoll| epoll.watched.iter().map(|(_, file, _)| *file)).chain(there) {
            *watchers.entry(file).or_default() += 1;
        }
        let (mut fetched, mut moved) = (Vec::new(), BTreeMap::new());
        for held in &only {
            let Some((end, name)) = stand_in(&held.file).ok().zip(held.file.remote()) else { continue };
            if end.socket().is_none() {
                continue;
            }
            let watchers = watchers.get(&name).copied().unwrap_or_default();
            // Else it stays where it is.
            if let Ok(to) = end.fetch_end(caller, watchers).await {
                moved.insert(name, to.clone());
                fetched.push(Fetched { from: held.file.clone(), to });
            }
        }
        for watcher in here {
            watcher.follow(caller, &moved).await;
        }
        names.append(&mut moved);
        for Moving { from, flags, watched } in epolls {
            let to = Epoll::moved(account.clone(), flags, watched, &names, caller).await;
            fetched.push(Fetched { from, to });
        }
        fetched
    }

    fn names_of(&self, files: &[LeftFile]) -> BTreeMap<FileRef, Arc<dyn File>> {
        let named = |held: &LeftFile| {
            let name = held.file.remote().or_else(|| self.name_of(address_of(&held.file)));
            Some((name?, held.file.clone()))
        };
        files.iter().filter_map(named).collect()
    }

    /// Of these files the epolls of other kernels that can come: which watch nothing that is not among `names`.
    async fn watching(&self, files: &[&LeftFile], names: &BTreeMap<FileRef, Arc<dyn File>>) -> Vec<Moving> {
        let mut epolls = Vec::new();
        for held in files {
            let Some(there) = stand_in(&held.file).ok().filter(|there| there.waiting() == WaitPlace::Epoll) else {
                continue;
            };
            let message = EpollMove { id: there.name().id, references: there.count() };
            let Ok(Ok((flags, watched))) = self.endpoint.call(there.name().owner, message).await else { continue };
            if watched.iter().all(|(_, file, _)| names.contains_key(file)) {
                epolls.push(Moving { from: held.file.clone(), flags, watched });
            }
        }
        epolls
    }
}

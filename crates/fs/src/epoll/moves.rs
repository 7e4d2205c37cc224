//! An epoll follows the only program that has it to another kernel: it is made anew there, and watches what the old one did. What was ready is
//! reported once more, also where edges are told.

use super::{Description, Entering, Epoll};
use crate::{
    control::EpollInterest,
    file::{WatchedFiles, Watcher, MOST_FETCHED},
    Caller, File, FileRef, OpenFlags,
};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{account::Account, errno::Result, BoxFuture};

impl Epoll {
    /// Whether nobody hears of it who would not hear of the new one.
    pub(super) fn can_move(&self) -> bool {
        !super::is_watched(&self.shared.changes) && !self.flags.is_owned()
    }

    /// One that has moved here; `flags` are those of the old one.
    pub(crate) async fn moved(
        account: Arc<Account>,
        flags: OpenFlags,
        watched: WatchedFiles,
        files: &BTreeMap<FileRef, Arc<dyn File>>,
        caller: &Caller,
    ) -> Arc<Self> {
        let epoll = Epoll::of(account, flags);
        for (fd, file, interest) in watched {
            if let Some(file) = files.get(&file) {
                // What can't be watched any more has died with its kernel.
                let _ = epoll.watch_as_before(caller, fd, file, interest).await;
            }
        }
        epoll
    }

    async fn watch_as_before(
        &self,
        caller: &Caller,
        fd: i32,
        file: &Arc<dyn File>,
        interest: EpollInterest,
    ) -> Result<()> {
        let entry = self.watch_file(caller, fd, file, interest, Entering::Moved).await?;
        entry.resume(interest);
        Ok(())
    }
}

impl Watcher for Epoll {
    fn to_move(&self, name: &dyn Fn(usize) -> Option<FileRef>) -> Option<WatchedFiles> {
        let entries = self.shared.entries.lock();
        if entries.all.len() > MOST_FETCHED || !self.can_move() {
            return None;
        }
        let open = entries.all.values().filter(|entry| entry.file().is_some());
        open.map(|entry| {
            let file = match entry.key.1 {
                Description::Here(address) => name(address)?,
                Description::Foreign(file) => file,
            };
            Some((entry.key.0, file, entry.interest()))
        })
        .collect()
    }

    fn foreign(&self) -> Vec<FileRef> {
        let entries = self.shared.entries.lock();
        let foreign = entries.asked.keys().filter_map(|(_, file)| match file {
            Description::Foreign(file) => Some(*file),
            Description::Here(_) => None,
        });
        foreign.collect()
    }

    fn follow<'a>(&'a self, caller: &'a Caller, moved: &'a BTreeMap<FileRef, Arc<dyn File>>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let followed: Vec<_> = {
                let entries = self.shared.entries.lock();
                let is_moved = |entry: &&Arc<super::Entry>| matches!(entry.key.1, Description::Foreign(file) if moved.contains_key(&file));
                entries.asked.values().filter(is_moved).cloned().collect()
            };
            for entry in followed {
                let Description::Foreign(name) = entry.key.1 else { continue };
                let Some(file) = moved.get(&name) else { continue };
                self.forget(&entry);
                entry.close();
                // What this kernel has needs no question that could fail.
                let _ = self.watch_as_before(caller, entry.key.0, file, entry.interest()).await;
            }
        })
    }
}

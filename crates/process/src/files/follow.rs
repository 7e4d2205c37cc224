//! Files follow the only thread of a process to another kernel: its descriptor table, and what the kernel that it comes from has of connections
//! and epolls that nobody else has (`fs/src/remote/moves.rs`).

use super::{Descriptor, Files, Part};
use crate::Thread;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use fs::{file::address_of, Caller, Fetched, File, LeftFile, MOST_FETCHED};
use messages::fs::WaitPlace;

/// So many files follow whoever goes elsewhere; more, up to [`MOST_FETCHED`], only one that goes there to talk.
pub(crate) const FEW: usize = 16;

/// Whether the descriptor has the only reference to a file that can follow it.
fn follows(file: &Arc<dyn File>) -> bool {
    Arc::strong_count(file) == 1 && file.may_move()
}

impl Thread {
    /// If it has left files on the kernel that it comes from, and its process has no other thread, they come here.
    pub(crate) async fn fetch_left_files(self: &Arc<Self>) {
        let (left, sees) = {
            let mut state = self.state.lock();
            (core::mem::take(&mut state.left_files), state.credentials.clone())
        };
        if !left {
            return;
        }
        let process = &self.process;
        if process.fetch_files(sees).await {
            process.files().fetch(&process.caller(self)).await;
        }
    }
}

impl Files {
    /// Whether the table is of one process and has files of this kernel that can follow that elsewhere, but not more than so many: each costs messages.
    pub(crate) fn may_follow(&self, most: usize) -> bool {
        let Part::Home(table) = &self.part else { return false };
        let table = table.lock();
        let follow = table.iter().take(MOST_FETCHED).filter(|(_, descriptor)| follows(&descriptor.file)).count();
        table.users.total() == 1 && (1..=most).contains(&follow)
    }

    /// Whether a thread that leaves this kernel would leave sockets or epolls here, which it would use from afar: those that can't follow it. Of
    /// what other kernels have nothing is known before it is used here. Of very many files: yes. `in_call`: the thread may be in a call that has
    /// references as well, so it is not looked whether others have.
    pub(crate) fn stay_behind(&self, in_call: bool) -> bool {
        self.any(|file| {
            let talks = matches!(file.waiting(), WaitPlace::Socket(_) | WaitPlace::Epoll);
            talks && !file.is_elsewhere() && !if in_call { file.may_move() } else { follows(file) }
        })
    }

    /// Whether it would leave ends of pipes here that can be read, or their like (eventfds, timers). At a terminal it waits for a person.
    pub(crate) fn leave_pipes(&self) -> bool {
        self.any(|file| {
            let waits = matches!(file.waiting(), WaitPlace::Here | WaitPlace::Signals);
            waits && !file.is_elsewhere() && file.flags().readable()
        })
    }

    /// Whether one of the files that are known here is so, or there are very many.
    fn any(&self, so: impl Fn(&Arc<dyn File>) -> bool) -> bool {
        let so = |(at, descriptor): (usize, &Descriptor)| at == MOST_FETCHED || so(&descriptor.file);
        match &self.part {
            Part::Home(table) => table.lock().iter().map(|(_, descriptor)| descriptor).enumerate().any(so),
            Part::Cache(cache) => cache.lock().known.values().enumerate().any(so),
        }
    }

    /// For the only thread that uses the table: files of other kernels that can follow it here do.
    async fn fetch(&self, caller: &Caller) {
        let Part::Home(table) = &self.part else { return };
        let mut held: BTreeMap<usize, LeftFile> = BTreeMap::new();
        for (_, descriptor) in table.lock().iter().take(MOST_FETCHED) {
            let file = &descriptor.file;
            let held = held.entry(address_of(file)).or_insert_with(|| LeftFile { file: file.clone(), descriptors: 0 });
            held.descriptors += 1;
        }
        let held: Vec<LeftFile> = held.into_values().collect();
        let fetched = self.system.descriptor_transfer.fetch(&held, caller).await;
        drop(held);
        for Fetched { from, to } in fetched {
            let mut changed = Vec::new();
            for (fd, descriptor) in table.lock().iter_mut() {
                if Arc::ptr_eq(&descriptor.file, &from) {
                    descriptor.file = to.clone();
                    changed.push(fd);
                }
            }
            for fd in changed {
                self.call_back(fd).await;
            }
            fs::file::close(from).await;
        }
    }
}

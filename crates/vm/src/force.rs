//! /proc/PID/mem: access to a process's memory from outside, also where the process itself has none (man 5 proc_pid_mem; FOLL_FORCE of
//! Linux's get_user_pages).
//!
//! The owner of a page does it, in the frame itself: no page table has to allow it, and no replica gets pages that only a debugger looked
//! at. What a program may not write becomes a page of its own first, like a page that is copied on write: the file of a private mapping and
//! the other users of a page that is shared since a fork never see it. A shared mapping is written only if the program may write it.
//! Between finding the page and the copy nobody can take it away, for both hold the lock of `state`.

use crate::{
    fault::{Demand, Resolution},
    region::Region,
    space::Space,
};
use alloc::{sync::Arc, vec, vec::Vec};
use machine::{Access, KernelId, Mapping, PageRange, Soft, UserAddr, PAGE_SIZE, USER_END};
use messages::vm::{ForceAccess, Transfer, Transferred};

/// Most bytes of one message.
const CHUNK: usize = 1 << 14;

impl Space {
    /// Reads bytes from `from` on; fewer than asked for, or none, where nothing can be read.
    pub async fn force_read(self: &Arc<Self>, from: UserAddr, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < bytes {
            let part = Transfer::Read((bytes - all.len()).min(CHUNK) as u32);
            match self.force(from.add(all.len()), part).await {
                Transferred::Read(part) if !part.is_empty() => all.extend(part),
                _ => break,
            }
        }
        all
    }

    /// How many bytes of `from` could be written.
    pub async fn force_write(self: &Arc<Self>, to: UserAddr, from: &[u8]) -> usize {
        let mut done = 0;
        while done < from.len() {
            let part = Transfer::Write(from[done..from.len().min(done + CHUNK)].to_vec());
            match self.force(to.add(done), part).await {
                Transferred::Written(part) if part > 0 => done += part as usize,
                _ => break,
            }
        }
        done
    }

    /// Asks the owner of the first page, and answers as much as that can do.
    async fn force(self: &Arc<Self>, at: UserAddr, transfer: Transfer) -> Transferred {
        // No slice, and nobody's.
        if at.0 >= USER_END {
            return Transferred::Written(0);
        }
        loop {
            let page = PageRange::one(at.page());
            let owner = self.pieces(page)[0].0;
            if owner == self.me() {
                match self.force_here(at, &transfer).await {
                    Some(transferred) => return transferred,
                    None => continue,
                }
            }
            self.certain(page).await;
            let request = ForceAccess { space: self.id, at, transfer: transfer.clone() };
            match self.vm.endpoint.call(owner, request).await {
                Ok(Transferred::Moved(news)) => self.correct(owner, &news),
                Ok(transferred) => return transferred,
                Err(_) => return Transferred::Written(0),
            }
        }
    }

    pub(crate) async fn serve_force(self: &Arc<Self>, from: KernelId, at: UserAddr, transfer: Transfer) -> Transferred {
        self.join(from);
        let page = PageRange::one(at.page());
        if self.check_owned(page).await {
            if let Some(transferred) = self.force_here(at, &transfer).await {
                return transferred;
            }
        }
        Transferred::Moved(self.news(page))
    }

    /// Reads or writes as far as this kernel owns the pages. None: another kernel owns the first one.
    async fn force_here(self: &Arc<Self>, at: UserAddr, transfer: &Transfer) -> Option<Transferred> {
        let (mut read, len) = match transfer {
            Transfer::Read(bytes) => (vec![0; (*bytes as usize).min(CHUNK)], (*bytes as usize).min(CHUNK)),
            Transfer::Write(bytes) => (Vec::new(), bytes.len()),
        };
        let mut done = 0;
        while done < len && at.add(done).0 < USER_END {
            let at = at.add(done);
            let part = done..len.min(done + PAGE_SIZE - at.offset());
            let moved = match transfer {
                Transfer::Read(_) => {
                    let to = &mut read[part.clone()];
                    self.force_page(at, Access::READ, |space, mapping| {
                        space.vm.memory.read(mapping.frame, at.offset(), to)
                    })
                    .await
                }
                Transfer::Write(bytes) => {
                    let from = &bytes[part.clone()];
                    self.force_page(at, Access::WRITE, |space, mapping| {
                        space.vm.memory.write(mapping.frame, at.offset(), from)
                    })
                    .await
                }
            };
            match moved {
                None if done == 0 => return None,
                Some(true) => done = part.end,
                _ => break,
            }
        }
        read.truncate(done);
        Some(match transfer {
            Transfer::Read(_) => Transferred::Read(read),
            Transfer::Write(_) => Transferred::Written(done as u32),
        })
    }

    /// Finds or makes the page, and hands its frame to `copy`. Some(false): there is no page, or the access is refused. None: another
    /// kernel owns the page.
    async fn force_page(
        self: &Arc<Self>,
        at: UserAddr,
        access: Access,
        copy: impl FnOnce(&Self, Mapping),
    ) -> Option<bool> {
        let page = at.page();
        loop {
            let mut demand = Demand::forced(page, access);
            match self.resolve_fully(&mut demand).await {
                Resolution::Mapped => {}
                Resolution::Foreign(_) => return None,
                _ => return Some(false),
            }
            let state = self.state.lock();
            if self.owner(&state, page) != self.me() {
                return None;
            }
            let writes = access.contains(Access::WRITE);
            let fits = |mapping: &Mapping| {
                let (cow, cache) = (mapping.soft.contains(Soft::COW), mapping.soft.contains(Soft::CACHE));
                !writes || !cow && (!cache || mapping.access.contains(Access::WRITE))
            };
            // Else somebody was faster: it is looked at anew.
            let Some(mapping) = self.table.get(page).filter(fits) else { continue };
            if state.is_busy(PageRange::one(page)) {
                continue;
            }
            copy(self, mapping);
            if writes {
                // In place, so it can't fail.
                let _ = self.table.set(page, Mapping { soft: mapping.soft | Soft::DIRTY, ..mapping });
            }
            return Some(true);
        }
    }
}

impl Region {
    /// Whether the region allows that access through /proc/PID/mem.
    pub(crate) fn can_be_forced(&self, access: Access) -> bool {
        match access.contains(Access::WRITE) {
            true => !self.is_shared() || self.access().contains(Access::WRITE),
            false => self.kind.limit.contains(Access::READ),
        }
    }
}

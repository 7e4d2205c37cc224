//! Pages of files that control groups pay for (machine/src/group.rs): charged when they are made, to the group of the thread that reads or writes, and the
//! first to go when their group needs room (reclaim.rs).

use super::{PageCache, Services};
use machine::{
    errno::Result,
    group::{ChargedPage, PageKind},
    Errno,
};

/// What a system call answers that found its group full. (A fault tells that from a kernel without memory, for which processes of any group end.)
pub(super) fn for_caller(error: Errno) -> Errno {
    if error == Errno::EDQUOT {
        Errno::ENOMEM
    } else {
        error
    }
}

impl Services {
    /// Charges whoever this CPU works for with a page, and makes room in the group for it. EDQUOT: there is none.
    pub(crate) async fn charge(&self, kind: PageKind) -> Result<ChargedPage<'_>> {
        loop {
            let payer = self.spawner.payer();
            if let Ok(page) = ChargedPage::new(&*self.memory, payer, kind) {
                return Ok(page);
            }
            let room = match self.mappers() {
                Some(mappers) => mappers.room_in_group(payer).await,
                None => false,
            };
            if !room {
                return Err(Errno::EDQUOT);
            }
        }
    }

    /// The same if the kernel may charge it at once.
    pub(crate) fn charge_now(&self, kind: PageKind) -> Option<ChargedPage<'_>> {
        ChargedPage::new(&*self.memory, self.spawner.payer(), kind).ok()
    }
}

impl PageCache {
    pub(super) fn page_kind(&self) -> PageKind {
        if self.store.is_some() {
            PageKind::File
        } else {
            PageKind::Shared
        }
    }
}

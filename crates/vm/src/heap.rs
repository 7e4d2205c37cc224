//! brk (man 2 brk). Home keeps the break; the pages are their owner's, as everywhere.

use crate::{region::RegionFlags, space::Space};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, Access, BoxFuture, Page, PageRange, UserAddr, PAGE_SIZE, USER_END};
use messages::vm::{Operation, RegionKind};

impl Space {
    /// brk(2): answers the break that holds afterwards, which is the old one if it could not be moved.
    pub async fn brk(self: &Arc<Self>, to: UserAddr) -> UserAddr {
        UserAddr(self.change(Operation::Break { to }).await.unwrap_or(0))
    }

    /// At home: says where the heap starts, as execve has decided.
    pub fn set_brk(&self, start: UserAddr) {
        self.state.lock().heap = (start, start);
    }

    /// Boxed because it makes changes and is one.
    pub(crate) fn break_here(self: &Arc<Self>, to: UserAddr) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let _heap = self.heap.lock().await;
            let ((start, old), limits) = {
                let state = self.state.lock();
                (state.heap, state.limits)
            };
            if to < start || to.0 > USER_END || to.0 - start.0 > limits.data {
                return Ok(old.0);
            }
            let round = |at: UserAddr| Page(at.0.div_ceil(PAGE_SIZE as u64));
            let (old_end, new_end) = (round(old), round(to));
            let moved = if new_end > old_end {
                let prot = Access::READ | Access::WRITE;
                let kind = RegionKind { prot, limit: Access::all(), flags: RegionFlags::HEAP.bits() };
                let pages = new_end.0 - old_end.0;
                if self.check_promise(&kind, pages).is_err() || self.check_room(&kind, pages, None).await.is_err() {
                    return Ok(old.0);
                }
                let range = PageRange::new(old_end, new_end);
                self.change(Operation::Map { range, replace: false, kind, backing: None }).await
            } else {
                self.change(Operation::Unmap { range: PageRange::new(new_end, old_end) }).await
            };
            if moved.is_err() {
                return Ok(old.0);
            }
            self.state.lock().heap.1 = to;
            Ok(to.0)
        })
    }
}

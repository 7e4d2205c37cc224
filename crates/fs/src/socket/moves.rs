//! An end of a connection follows the only program that has it to another kernel, so that what the program sends and receives asks nobody there. It
//! is a new socket with all that the old one was (handover.rs), which is left as what keeps a port, or ends.

use super::{FarSocket, Role, Socket};
use crate::{control::ControlAnswer, epoll::count_watchers, Caller, File};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, Errno, KernelId};
use messages::fs::MovedFile;

impl Socket {
    /// Whether it is a connection that has all to go on anywhere.
    pub(super) fn can_move(&self) -> bool {
        let state = self.state.lock();
        let connected = match &state.role {
            Role::Connected(other) => other.strong_count() > 0,
            Role::Linked(link) => !link.closed,
            _ => false,
        };
        // Who looks for a name finds the kernel that it was bound on.
        let is_named = state.place.is_some();
        let accepted = state.listener.strong_count() == 0;
        self.kind.connects() && connected && accepted && !is_named && state.errors.is_none() && !self.flags.is_owned()
    }

    /// Serves [`Move`](messages::fs::SocketControl::Move): see there.
    pub(super) async fn give_up(
        &self,
        (kernel, serial): (KernelId, u64),
        references: u64,
        watchers: u32,
        caller: &Caller,
    ) -> Result<ControlAnswer> {
        let this = self.this.upgrade().ok_or(Errno::EBADF)?;
        let file: Arc<dyn File> = this.clone();
        let loan = self.names.others()?.loan_of(&file);
        let is_its = loan.is_some_and(|loan| loan.settled && loan.holders == [(kernel, references)]);
        // Those references, who serves this call, and two here.
        let is_only = is_its && Arc::strong_count(&this) == 4;
        if !is_only || count_watchers(&self.changes) != watchers as usize || !self.can_move() {
            return Err(Errno::EBUSY);
        }
        let mut end = this.hand_over(FarSocket { kernel, serial }, caller).await.ok_or(Errno::EBUSY)?;
        end.state.file = Some(self.moved_file());
        Ok(ControlAnswer::End(Box::new(end)))
    }

    fn moved_file(&self) -> MovedFile {
        let state = self.state.lock();
        MovedFile {
            attributes: self.inode.attributes(),
            flags: self.flags.get(),
            error: state.error,
            wants_credentials: state.wants_credentials,
            untold: self.inet.as_ref().is_some_and(|inet| inet.is_untold()),
        }
    }
}

//! Which spaces the death of a kernel condemns.
//!
//! Problem: the memory of kernel D will be a later boot's. A page of a space may be a frame of D that its owner, a survivor, has
//! adopted from D or borrowed from it; the thread that touched it may be long gone, and a fork has given the frame to a child
//! that never had a thread on D. A survivor may own slices of such a space without any process of it: it got them when its home
//! forked. So to look at processes is not enough.
//!
//! Rule: a space is condemned if a survivor has a replica of it which says that D is its home or an owner, or whose page table
//! leads to a frame of D, or to one that D had pinned for it. Every survivor looks at all its replicas, and is through with D when a look finds none; until then it has who uses
//! those it found killed, and the spaces ended, wherever they are at home (crate `process`, death.rs). It need not look again
//! after that, because nothing new comes to lead to a frame of D:
//!
//! - what D sent has been handled before the look ([`fabric::Endpoint::silence`]), and of what waits since, no frame that D
//!   offered is adopted: that is decided under the lock under which the look reads the table;
//! - frames of D in stock are forgotten before, and what is mapped of its files as well (`Remote::kernel_died`); pages of them that a
//!   survivor maps in a slice of its own are taken out of the page tables before the first look (`Remote::lose_objects`). A borrower elsewhere may look
//!   before they are taken from it: that process is killed;
//! - pages of files and of shared memory here that D had lent are forgotten before the last look, and taken from all that were ever given
//!   some (`lose_frames`); so who asks for one later finds none;
//! - a borrower's frame comes from the owner, another survivor, who looks for himself, and takes it back as the space ends;
//! - a fork copies what its parent has. The look and the copying exclude each other on a kernel:
//!
//! ```text
//! look                               fork of P into C
//! C: nothing of D
//!                                    copies a page of P: a frame of D
//!                                    munmap of it in P
//! P: nothing of D                                                        <- C maps it
//! ```
//!
//! Before that, the threads that are killed must come to their end, so nothing here may wait for a word of D:
//!
//! ```text
//! D (home)                           S (owner)                   T, thread on another kernel
//! fork: freeze ------------------>   frozen
//! dies                                                           fault at S, waits for the thaw ...
//!                                    ... that D can't send any more
//! ```
//!
//! So what D had frozen thaws, also if the freeze was only being made when D died; and a range that was handed over to D counts as
//! taken over.

use crate::{space::Space, Vm};
use alloc::vec::Vec;
use machine::{KernelId, PageRange, SpaceId, Step};
use messages::vm::UnknownSpaces;

/// Most spaces that one message lists.
pub const MOST_SPACES: usize = 64;

impl Vm {
    /// Called when a kernel was declared dead: tasks here that wait for a message of `dead` go on without it.
    pub fn stop_waiting_for(&self, dead: KernelId) {
        for space in self.spaces() {
            match space.id().home == dead {
                true => space.thaw(),
                false => space.changed.wake_all(),
            }
        }
    }

    /// Drops frames of `dead` that are in stock, and pages of shared memory that lie in such frames.
    pub async fn lose_frames(&self, dead: KernelId) {
        self.shared.memory.forget(dead);
        for memory in self.shared.all_memories() {
            memory.lose_frames().await;
        }
    }

    /// The spaces of this kernel that had memory on `dead`.
    pub fn condemned_by(&self, dead: KernelId) -> Vec<SpaceId> {
        self.shared.memory.forget(dead);
        let _no_copies = self.shared.copying.lock();
        self.spaces().iter().filter(|space| space.had_something_on(dead)).map(|space| space.id()).collect()
    }

    /// Gives up what a fork that failed half-way has left here: replicas that their home does not know. It has the first and the
    /// last replica of a space, so there is none to come.
    pub async fn give_up_unknown(&self) {
        for home in self.shared.endpoint.others().iter() {
            let mut there: Vec<SpaceId> = self.spaces().iter().map(|space| space.id()).collect();
            there.retain(|space| space.home == home);
            for spaces in there.chunks(MOST_SPACES) {
                let question = UnknownSpaces { spaces: spaces.into() };
                // If it has just died, its own death is the reason to give them up.
                let unknown = self.shared.endpoint.call(home, question).await.unwrap_or_default();
                for space in unknown.into_iter().filter_map(|space| self.find(space)) {
                    space.abandon().await;
                }
            }
        }
    }

    /// Ends the space, whatever the count of its users says. Called at its home.
    pub async fn end(&self, id: SpaceId) {
        if let Some(space) = self.find(id) {
            space.destroy().await;
        }
    }
}

impl Space {
    /// Whether `kernel` is its home, owns some of it, or has a frame that is mapped here.
    pub fn had_something_on(&self, kernel: KernelId) -> bool {
        let state = self.state.lock();
        let parts = state.slices.certain(PageRange::user(), self.me(), self.id.home);
        let mut had = self.id.home == kernel
            || state.slices.owners().any(|owner| owner == kernel)
            || parts.iter().any(|part| part.owner == kernel);
        if !had {
            self.table.walk(PageRange::user(), &mut |_, mapping| {
                // Also what it had pinned for us: it may have borrowed that elsewhere.
                let memory = &self.vm.memory;
                had = memory.home_of(mapping.frame) == Some(kernel) || memory.pinned_by(mapping.frame) == Some(kernel);
                if had {
                    Step::Stop
                } else {
                    Step::Keep
                }
            });
        }
        had
    }
}

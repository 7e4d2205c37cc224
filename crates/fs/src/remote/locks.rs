//! Record locks of another kernel's file that this kernel keeps, so that its programs lock and unlock without a message.
//!
//! The owner of a file gives its locks to a kernel that has taken several in a row ([`crate::locks`]), with the answer to the last of
//! these. From then on `fcntl(F_SETLK)` of processes here, and their closes, change the table here. Whoever else wants to know of
//! the locks makes the owner fetch them. A lock that somebody here must wait for is waited for at the owner, which fetches them too.
//!
//! The dangerous interleaving is a fetch that overtakes what was given:
//!
//! ```text
//! kernel K                                owner                          another process
//!   FileLock -------------------------->  the fourth in a row: given
//!                                                                        locks the file, too
//!   no such token: NotYet  <------------- LocksFetch
//!   ------------------------------------> they are what was given
//! Given arrives: is not kept                                             <- else both have the lock
//! ```
//!
//! So K notes what was asked for too early ([`KeptState::early`]) as long as any of its questions is unanswered. K gives locks back by itself when
//! it keeps very many; a fetch that meets this on its way waits for them to arrive.
//!
//! When K dies its processes die, and so do all others that have a replica there: their locks end with it. So locks that processes of other kernels
//! hold are not given away with the rest: the owner waits until there are none. And execve, which drops the replicas on all kernels but one,
//! waits until locks of the process that were kept there have arrived at the owners ([`Remote::give_back_locks`]). That is why locks go back
//! in a message that the owner answers, also if it has fetched them: K knows which have arrived.

use super::Remote;
use crate::{
    inode::held::{self, HeldLock, Owner},
    locks::LockKeeper,
    namespace, Caller, File, Inode, OpenFlags,
};
use abi::{LockConflict, LockMode, LockOp, RecordLock};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, KernelId, Pid,
};
use messages::fs::{FetchedLocks, FileLock, LockReply, LocksFetch, LocksReturn};

/// Files whose locks a kernel keeps for others.
const MOST: usize = 64;

/// Registers what answers each message of the subject.
pub fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on::<FileLock, _, _>(|remote, from, FileLock { id, caller, op, here }| async move {
        let file = remote.exports.get(id)?;
        remote.lock_for(from, &*file, &caller, op, here).await
    });
    serve.on_sync(|remote, from, LocksFetch { token }| remote.fetched(from, token));
    serve.on_sync(|remote, from, LocksReturn { token, locks }| remote.given_locks.came_home(from, token, Some(locks)));
}

// The owner's side.

/// Locks of files of this kernel that others keep.
#[derive(Default)]
pub(super) struct GivenLocks(Lock<Given>);

#[derive(Default)]
struct Given {
    last: u64,
    /// By token.
    files: BTreeMap<u64, (KernelId, Weak<dyn Inode>)>,
}

struct Keeper {
    remote: Weak<Remote>,
    kernel: KernelId,
    token: u64,
}

impl LockKeeper for Keeper {
    fn kernel(&self) -> KernelId {
        self.kernel
    }

    fn is_alive(&self) -> bool {
        self.remote.upgrade().is_some_and(|remote| remote.endpoint.is_alive(self.kernel))
    }

    fn token(&self) -> u64 {
        self.token
    }

    fn fetch(self: Arc<Self>) {
        let Some(remote) = self.remote.upgrade() else { return };
        let (kernel, token) = (self.kernel, self.token);
        remote.clone().spawn(async move {
            match remote.endpoint.call(kernel, LocksFetch { token }).await {
                Ok(FetchedLocks::NotYet) => remote.given_locks.came_home(kernel, token, None),
                // If the kernel dies before they have come, or has died: `keeper_died`, then `lose`.
                Ok(FetchedLocks::Returning) | Err(_) => {}
            }
        });
    }
}

impl GivenLocks {
    fn came_home(&self, from: KernelId, token: u64, locks: Option<Vec<RecordLock>>) {
        let inode = {
            let mut given = self.0.lock();
            match given.files.get(&token) {
                Some((kernel, _)) if *kernel == from => given.files.remove(&token),
                _ => None,
            }
        };
        let inode = inode.and_then(|(_, inode)| inode.upgrade());
        if let Some(table) = inode.as_ref().and_then(|inode| inode.locks()) {
            table.came_home(token, locks);
        }
    }

    /// `dead` has died, and threads of its processes may still run elsewhere, until [`lose`](Self::lose). Who only gives locks up does not
    /// wait for them any longer.
    pub fn keeper_died(&self, dead: KernelId) {
        let all: Vec<Arc<dyn Inode>> = {
            let given = self.0.lock();
            given
                .files
                .values()
                .filter(|(kernel, _)| *kernel == dead)
                .filter_map(|(_, inode)| inode.upgrade())
                .collect()
        };
        for table in all.iter().filter_map(|inode| inode.locks()) {
            table.keeper_died();
        }
    }

    /// `dead` has died, and so has every process that had locks there.
    pub fn lose(&self, dead: KernelId) {
        let tokens: Vec<u64> = {
            let given = self.0.lock();
            given.files.iter().filter(|(_, (kernel, _))| *kernel == dead).map(|(token, _)| *token).collect()
        };
        for token in tokens {
            self.came_home(dead, token, Some(Vec::new()));
        }
    }
}

impl Remote {
    /// [`FileLock`] of `from`.
    async fn lock_for(
        self: &Arc<Self>,
        from: KernelId,
        file: &dyn File,
        caller: &Caller,
        op: LockOp,
        here: bool,
    ) -> Result<LockReply> {
        let of_process = matches!(op, LockOp::Set { description: false, .. } | LockOp::Get { description: false, .. });
        let takes = matches!(op, LockOp::Set { description: false, mode: LockMode::Shared | LockMode::Exclusive, .. });
        let inode = namespace::inode_of(file).filter(|_| of_process);
        let table = inode.as_ref().and_then(|inode| inode.locks());
        if let (false, Some(token)) = (here, table.and_then(|table| table.kept_by(from))) {
            return Ok(LockReply::Yours(token));
        }
        let conflict = file.lock(caller, op).await?;
        let (Some(inode), Some(table), true) = (&inode, table, takes) else { return Ok(LockReply::Done(conflict)) };
        // No kernel opens the file by itself from the lock on until there is none any more, here or at the keeper: so every close is told.
        match table.taken_by(from, caller.process).then(|| self.give_locks(from, caller.process, inode)).flatten() {
            Some((token, locks)) => Ok(LockReply::Given { token, locks }),
            None => Ok(LockReply::Done(conflict)),
        }
    }

    fn give_locks(
        self: &Arc<Self>,
        to: KernelId,
        process: Pid,
        inode: &Arc<dyn Inode>,
    ) -> Option<(u64, Vec<RecordLock>)> {
        let table = inode.locks()?;
        let token = {
            let mut given = self.given_locks.0.lock();
            given.last += 1;
            let token = given.last;
            given.files.insert(token, (to, Arc::downgrade(inode)));
            token
        };
        let keeper: Arc<dyn LockKeeper> = Arc::new(Keeper { remote: self.this.clone(), kernel: to, token });
        let locks = table.give(&keeper, process);
        // Of one that has died `lose` may have been called already, and has not found them.
        if locks.is_none() || !self.endpoint.is_alive(to) {
            self.given_locks.0.lock().files.remove(&token);
            table.came_home(token, None);
            return None;
        }
        Some((token, locks?))
    }
}

// The side of the kernel that keeps them.

/// The record locks of one file.
pub(super) struct KeptTable {
    /// None: they are not kept any more.
    held: Lock<Option<Vec<HeldLock>>>,
}

/// Locks of other kernels' files that this kernel keeps.
#[derive(Default)]
pub(super) struct KeptLocks {
    state: Lock<KeptState>,
    /// Woken when some have gone back.
    returned: WaitQueue,
}

#[derive(Default)]
struct KeptState {
    tables: BTreeMap<(KernelId, u64), Arc<KeptTable>>,
    /// Those that go back: the owner has not answered [`LocksReturn`].
    returning: BTreeSet<(KernelId, u64)>,
    /// Fetched before they had arrived.
    early: BTreeSet<(KernelId, u64)>,
    /// Questions ([`FileLock`]) that have not been answered.
    asking: usize,
}

/// Locks that are on their way to the owner.
struct Leaving {
    owner: KernelId,
    token: u64,
    locks: Vec<RecordLock>,
}

impl KeptState {
    /// From now on these are not kept any more, but on their way to the owner.
    fn take(&mut self, (owner, token): (KernelId, u64)) -> Option<Leaving> {
        let table = self.tables.remove(&(owner, token))?;
        self.returning.insert((owner, token));
        let held = table.held.lock().take().unwrap_or_default();
        Some(Leaving { owner, token, locks: held.iter().filter_map(HeldLock::of_process).collect() })
    }
}

/// A question is under way.
struct Asking(Arc<Remote>);

impl Asking {
    fn new(remote: Arc<Remote>) -> Self {
        remote.locks.state.lock().asking += 1;
        Asking(remote)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.0.locks.state.lock();
        state.asking -= 1;
        if state.asking == 0 {
            state.early.clear();
        }
    }
}

impl KeptLocks {
    fn find(&self, owner: KernelId, token: u64) -> Option<Arc<KeptTable>> {
        self.state.lock().tables.get(&(owner, token)).cloned()
    }

    /// The owner is dead, and the files are no more.
    pub fn owner_died(&self, owner: KernelId) {
        let mut state = self.state.lock();
        let gone: Vec<_> = state.tables.extract_if(.., |(of, _), _| *of == owner).collect();
        for (_, table) in gone {
            *table.held.lock() = None;
        }
        state.early.retain(|(of, _)| *of != owner);
    }
}

impl Remote {
    /// [`LockReply::Given`] has arrived.
    fn locks_given(self: &Arc<Self>, owner: KernelId, token: u64, locks: Vec<RecordLock>) -> Option<Arc<KeptTable>> {
        let held = locks.into_iter().map(HeldLock::from).collect();
        let table = Arc::new(KeptTable { held: Lock::new(Some(held)) });
        let many = {
            let mut state = self.locks.state.lock();
            // A dead owner's table would answer as if the file were still there.
            if state.early.remove(&(owner, token)) || !self.endpoint.is_alive(owner) {
                return None;
            }
            state.tables.insert((owner, token), table.clone());
            // Tokens count up: of one owner's the first is the oldest.
            let many = state.tables.len() > MOST;
            let oldest = state.tables.keys().copied().find(|key| *key != (owner, token)).filter(|_| many);
            oldest.and_then(|oldest| state.take(oldest))
        };
        if let Some(oldest) = many {
            self.send_back(oldest);
        }
        Some(table)
    }

    fn send_back(self: &Arc<Self>, Leaving { owner, token, locks }: Leaving) {
        let remote = self.clone();
        self.spawn(async move {
            // Fails if the owner is dead.
            let _ = remote.endpoint.call(owner, LocksReturn { token, locks }).await;
            remote.locks.state.lock().returning.remove(&(owner, token));
            remote.locks.returned.wake_all();
        });
    }

    /// [`LocksFetch`].
    fn fetched(self: &Arc<Self>, owner: KernelId, token: u64) -> FetchedLocks {
        let mut state = self.locks.state.lock();
        if let Some(fetched) = state.take((owner, token)) {
            drop(state);
            self.send_back(fetched);
            return FetchedLocks::Returning;
        }
        if state.returning.contains(&(owner, token)) {
            return FetchedLocks::Returning;
        }
        if state.asking > 0 {
            state.early.insert((owner, token));
        }
        FetchedLocks::NotYet
    }

    /// The replica of `process` on this kernel goes, and the process may live on if this kernel dies: what its locks are must not be known
    /// here alone. Returns when the owners know. No thread of it is here, nor any question about its locks ([`Shield`](machine::Shield)).
    pub async fn give_back_locks(self: &Arc<Self>, process: Pid) {
        let has_some = |table: &KeptTable| {
            let held = table.held.lock();
            held.iter().flatten().any(|lock| lock.owner == Owner::Process(process))
        };
        let its_own: Vec<Leaving> = {
            let mut state = self.locks.state.lock();
            let keys: Vec<_> = state.tables.iter().filter(|(_, table)| has_some(table)).map(|(key, _)| *key).collect();
            keys.into_iter().filter_map(|key| state.take(key)).collect()
        };
        its_own.into_iter().for_each(|leaving| self.send_back(leaving));
        // Some may have been on their way already.
        let on_their_way = self.locks.state.lock().returning.clone();
        let arrived = || on_their_way.is_disjoint(&self.locks.state.lock().returning).then_some(());
        self.locks.returned.wait_until(arrived).await;
    }
}

impl KeptTable {
    /// Does `op` here. None: the owner must be asked.
    pub fn lock(&self, flags: OpenFlags, process: Pid, op: &LockOp) -> Option<Result<Option<LockConflict>>> {
        let mut held = self.held.lock();
        let held = held.as_mut()?;
        let owner = Owner::Process(process);
        match *op {
            LockOp::Set { range, mode, wait, description: false } => {
                let allowed = match mode {
                    LockMode::Shared => flags.readable(),
                    LockMode::Exclusive => flags.writable(),
                    LockMode::Unlock => true,
                };
                if !allowed {
                    return Some(Err(Errno::EBADF));
                }
                if range.start >= range.end {
                    return Some(Err(Errno::EINVAL));
                }
                // More would not travel in one message. (To unlock the middle of a lock makes two of it.)
                held::make_room(held, crate::locks::MOST_GIVEN).ok()?;
                if mode == LockMode::Unlock {
                    held::carve(held, owner, range);
                    return Some(Ok(None));
                }
                match (held::take(held, owner, range, mode == LockMode::Exclusive), wait) {
                    (true, _) => Some(Ok(None)),
                    (false, false) => Some(Err(Errno::EAGAIN)),
                    (false, true) => None,
                }
            }
            LockOp::Get { range, mode, description: false } => {
                let exclusive = mode == LockMode::Exclusive;
                let found = (mode != LockMode::Unlock).then(|| held::conflict(held, owner, range, exclusive));
                Some(Ok(found.flatten().map(|found| found.conflict())))
            }
            _ => None,
        }
    }

    /// A descriptor of the file was closed. False: the owner must be told.
    pub fn closed(&self, process: Pid) -> bool {
        match &mut *self.held.lock() {
            Some(held) => {
                held.retain(|lock| lock.owner != Owner::Process(process));
                true
            }
            None => false,
        }
    }
}

impl super::RemoteFile {
    /// Whether the file's locks are kept here, and the process has none left: see [`KeptTable::closed`].
    pub(super) fn closed_here(&self, caller: &Caller) -> bool {
        self.kept.lock().as_ref().is_some_and(|table| table.closed(caller.process))
    }

    fn lock_here(&self, caller: &Caller, op: &LockOp) -> Option<Result<Option<LockConflict>>> {
        let table = self.kept.lock().clone()?;
        table.lock(self.flags(), caller.process, op)
    }

    pub(super) async fn lock_anywhere(&self, caller: &Caller, op: LockOp) -> Result<Option<LockConflict>> {
        if let Some(answer) = self.lock_here(caller, &op) {
            return answer;
        }
        let owner = self.name().owner;
        let mut here = self.kept.lock().as_ref().is_some_and(|table| table.held.lock().is_some());
        loop {
            let message = FileLock { id: self.name().id, caller: caller.clone(), op, here };
            let remote = self.remote.clone();
            let asking = Asking::new(remote.clone());
            let accept = move |reply: Result<LockReply>| -> Result<Answer> {
                let _asking = &asking;
                Ok(match reply? {
                    LockReply::Done(conflict) => Answer::Done(conflict),
                    LockReply::Given { token, locks } => Answer::Given(remote.locks_given(owner, token, locks)),
                    LockReply::Yours(token) => Answer::Yours(remote.locks.find(owner, token)),
                })
            };
            // A lock that is granted just when a signal comes is held, and reported as such.
            let answer = self.remote.ask_and_stay(owner, message, accept, &caller.shield, true).await;
            match answer.map_err(super::file::interrupted)?? {
                Answer::Done(conflict) => return Ok(conflict),
                Answer::Given(table) => {
                    *self.kept.lock() = table;
                    return Ok(None);
                }
                Answer::Yours(table) => *self.kept.lock() = table,
            }
            if let Some(answer) = self.lock_here(caller, &op) {
                return answer;
            }
            here = true;
        }
    }
}

enum Answer {
    Done(Option<LockConflict>),
    Given(Option<Arc<KeptTable>>),
    Yours(Option<Arc<KeptTable>>),
}

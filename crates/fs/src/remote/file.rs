//! [`RemoteFile`]: the stand-in for a file of another kernel.

mod control;
mod signals;
mod transfer;

use super::{loan::Loan, locks::KeptTable, Remote};
use crate::{
    anonymous::StatusFlags,
    control::{Control, ControlAnswer},
    file::{Access, Destination, Gained, HeldBytes, Observed, SignalView, Source, Transfer},
    waiting::{Patience, MUST_WAIT},
    Attributes, Caller, DirEntry, Events, File, FileRef, Object, ObjectId, OpenFlags, SetAttributes, SyncRange, Whence,
    XattrOp,
};
use abi::{signal::SignalSet, FileOwner, LockConflict, LockOp, OwnerChange};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    any::Any,
    future::Future,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use fabric::CallError;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno, Pid, Shield,
};
use messages::{
    fs::{
        FileAllocate, FileAttributes, FileClosed, FileIoctl, FileObject, FilePath, FileReadDir, FileRelease,
        FileReopen, FileSeal, FileSeek, FileSetAttributes, FileSetFlags, FileSetOwner, FileSync, FileWatch, FileXattr,
        Opened, SignalsSeen, WaitPlace, INLINE_BYTES,
    },
    Request,
};

/// The stand-in for a file of another kernel. Its operations are calls to the owner.
pub struct RemoteFile {
    pub(super) remote: Arc<Remote>,
    name: FileRef,
    /// The flags as this kernel last heard of them. Those at the owner hold.
    flags: StatusFlags,
    waiting: WaitPlace,
    pollable: bool,
    /// References to the file that this stand-in gives back when it is dropped.
    count: AtomicU64,
    news: Arc<News>,
    gained: Gained,
    /// The file's record locks, if this kernel keeps them.
    pub(super) kept: Lock<Option<Arc<KeptTable>>>,
    /// The owner has died.
    lost: AtomicBool,
}

/// The file's readiness as the owner has told it.
#[derive(Default)]
struct News {
    ready: Lock<Events>,
    /// Counts the owner's messages about changes (`FileReady`).
    heard: AtomicU64,
    /// The owner has been asked to send them.
    watched: AtomicBool,
    changes: WaitQueue,
}

impl News {
    fn tell(&self, ready: Events) {
        {
            let mut known = self.ready.lock();
            *known = ready;
            self.heard.fetch_add(1, Ordering::AcqRel);
        }
        self.changes.wake_all();
    }

    /// Enters the owner's answer to a question that was asked when `heard` had this value. If a `FileReady` came meanwhile, either may
    /// be the newer one, so both are kept: at worst a file looks ready for a moment after it was.
    fn answered(&self, ready: Events, heard: u64) {
        let mut known = self.ready.lock();
        *known = match self.heard.load(Ordering::Acquire) == heard {
            true => ready,
            false => *known | ready,
        };
    }
}

fn shield_of(caller: Option<&Caller>) -> &Shield {
    caller.map_or(&Shield::NONE, |caller| &caller.shield)
}

pub(super) fn interrupted(error: CallError) -> Errno {
    match error {
        CallError::Cancelled => Errno::RESTART,
        error => error.into(),
    }
}

impl RemoteFile {
    pub(super) fn new(remote: Arc<Remote>, opened: Opened) -> Self {
        RemoteFile {
            remote,
            name: opened.file,
            flags: StatusFlags::new(opened.flags),
            waiting: opened.waiting,
            pollable: opened.pollable,
            count: AtomicU64::new(1),
            news: Arc::default(),
            gained: Gained::default(),
            kept: Lock::new(None),
            lost: AtomicBool::new(false),
        }
    }

    /// Its owner has died. A kernel that was booted in its place knows nothing of the file.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Gives all references back, and waits until the owner has uncounted them. `by`: because a descriptor of this process was closed.
    pub(super) async fn release(self, by: Option<Caller>) {
        let (id, count) = (self.name.id, self.count.swap(0, Ordering::AcqRel));
        // Both fail if the owner is dead.
        let _ = match by.filter(|caller| self.must_tell_of_close(caller)) {
            Some(caller) => self.ask(FileClosed { id, caller, count }).await,
            None => self.ask(FileRelease { id, count }).await,
        };
    }

    /// Whether the owner must hear that a descriptor was closed: it may have record locks of the process on the file.
    fn must_tell_of_close(&self, caller: &Caller) -> bool {
        self.waiting == WaitPlace::Never && !self.closed_here(caller)
    }

    /// The file's number and all references, which the caller gives back.
    pub(super) fn take_count(self) -> (u64, u64) {
        (self.name.id, self.count.swap(0, Ordering::AcqRel))
    }

    pub(crate) fn name(&self) -> FileRef {
        self.name
    }

    pub(super) fn opened(&self) -> Opened {
        let (file, flags, giver) = (self.name, self.flags.get(), None);
        Opened { file, flags, waiting: self.waiting, pollable: self.pollable, giver }
    }

    pub(super) fn count_one_more(&self) {
        self.gained.count_one();
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Changes whom the file signals, at its owner: see [`abi::OwnerChange`].
    pub(super) async fn change_owner(&self, caller: &Caller, change: OwnerChange) -> Result<FileOwner> {
        let (owner, flags) = self.ask(FileSetOwner { id: self.name.id, caller: caller.clone(), change }).await??;
        self.flags.learn(flags);
        Ok(owner)
    }

    /// `FileReady` of the owner.
    pub(super) fn hear(&self, ready: Events) {
        self.news.tell(ready);
    }

    pub(super) fn owner_died(&self) {
        self.lost.store(true, Ordering::Release);
        self.news.tell(Events::ERR | Events::HUP);
    }

    async fn ask<M: Request>(&self, message: M) -> Result<M::Reply> {
        self.remote.note_deed(self.name.owner);
        let answer = self.remote.endpoint.call(self.name.owner, message).await;
        self.remote.note_deed(self.name.owner);
        Ok(answer?)
    }

    /// A call that must not be repeated: a thread that gets a signal still waits for the answer. With `cancels` the owner, which may be
    /// waiting itself, is asked to give up.
    async fn ask_and_stay<M, T>(
        &self,
        message: M,
        accept: impl FnOnce(M::Reply) -> T + Send + 'static,
        caller: Option<&Caller>,
        cancels: bool,
    ) -> Result<T>
    where
        M: Request,
        T: Send + 'static,
    {
        let shield = match self.waiting {
            // Regular files and their like answer soon. Only a thread that is killed leaves.
            WaitPlace::Never => &Shield::NONE,
            _ => shield_of(caller),
        };
        self.remote.ask_and_stay(self.name.owner, message, accept, shield, cancels).await.map_err(interrupted)
    }

    /// Repeats `attempt` while the owner answers [`MUST_WAIT`], after each change of the file's readiness. If `patience` says so it
    /// tries only once. The wait in between may be dropped at any time.
    async fn insist<T, F: Future<Output = Result<T>>>(
        &self,
        patience: Patience,
        shield: &Shield,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T> {
        loop {
            let heard = self.news.heard.load(Ordering::Acquire);
            let result = attempt().await;
            match patience {
                _ if !matches!(result, Err(MUST_WAIT)) => return result,
                // If other threads are faster again and again, the wait below never begins, which would notice the signal.
                Patience::Waits if shield.is_leaving() => return Err(Errno::RESTART),
                Patience::Waits => {}
                other => return Err(other.answer()),
            }
            if !self.news.watched.load(Ordering::Acquire) {
                // The next attempt sees whatever has changed before this.
                self.watch_now().await?;
                continue;
            }
            let changed = || (self.news.heard.load(Ordering::Acquire) != heard).then_some(());
            self.news.changes.wait_until(changed).await;
        }
    }

    async fn watch_now(&self) -> Result<()> {
        let heard = self.news.heard.load(Ordering::Acquire);
        let ready = self.ask(FileWatch { id: self.name.id }).await??;
        self.news.answered(ready, heard);
        self.news.watched.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.remote.forget(self.name);
        let count = self.count.load(Ordering::Acquire);
        if count > 0 {
            // Fails if the owner is dead.
            self.remote.note_deed(self.name.owner);
            let _ = self.remote.endpoint.send(self.name.owner, FileRelease { id: self.name.id, count });
        }
    }
}

impl File for RemoteFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        // What was read from a stream can't be put back if a copy to the user faults. So it goes to a buffer of the kernel.
        let buf = match to.buffer() {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        match access.caller().and_then(|caller| Some((caller, self.signals_of(caller)?))) {
            Some((caller, source)) => {
                let reading = Box::pin(self.read_signals(source, caller, buf));
                Transfer::Later(access.patience.limit(reading))
            }
            None => Transfer::later(self.read_all(buf, access)),
        }
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        Transfer::later(self.write_all(from, access))
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move { self.ask(FileSeek { id: self.name.id, offset, whence }).await? })
    }

    fn flags(&self) -> OpenFlags {
        self.flags.get()
    }

    fn current_flags(&self) -> BoxFuture<'_, Result<OpenFlags>> {
        Box::pin(async move {
            let flags = self.ask(FileSetFlags { id: self.name.id, flags: None }).await??;
            self.flags.learn(flags);
            Ok(flags)
        })
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let flags = self.ask(FileSetFlags { id: self.name.id, flags: Some(flags) }).await??;
            self.flags.learn(flags);
            Ok(())
        })
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(async move { self.ask(FileAttributes { id: self.name.id }).await? })
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        let message = FileSetAttributes { id: self.name.id, caller: caller.clone(), set };
        Box::pin(async move { self.ask(message).await? })
    }

    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        let message = FileXattr { id: self.name.id, caller: caller.clone(), op };
        Box::pin(async move { self.ask(message).await? })
    }

    fn read_dir(&self, budget: usize) -> BoxFuture<'_, Result<Vec<DirEntry>>> {
        let budget = budget.min(INLINE_BYTES * 4) as u32;
        Box::pin(async move { self.ask(FileReadDir { id: self.name.id, budget }).await? })
    }

    fn ioctl<'a>(&'a self, caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        Box::pin(async move {
            let message = FileIoctl { id: self.name.id, caller: caller.clone(), request, data: data.clone() };
            let cancels = self.waiting == WaitPlace::AtOwner;
            let (value, answer) = self.ask_and_stay(message, |reply| reply, Some(caller), cancels).await??;
            *data = answer;
            Ok(value)
        })
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.ask(FileSync { id: self.name.id, data_only, range: None }).await? })
    }

    fn sync_range(&self, range: SyncRange) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.ask(FileSync { id: self.name.id, data_only: true, range: Some(range) }).await? })
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.ask(FileAllocate { id: self.name.id, mode, offset, len }).await? })
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        self.control_with(caller, control, Patience::Waits)
    }

    fn waiting(&self) -> WaitPlace {
        self.waiting
    }

    fn control_with<'a>(
        &'a self,
        caller: &'a Caller,
        control: Control,
        patience: Patience,
    ) -> BoxFuture<'a, Result<ControlAnswer>> {
        Box::pin(self.insist_control(caller, control, patience))
    }

    fn hold<'a>(
        &'a self,
        shield: &'a Shield,
        most: usize,
        wait: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldBytes>>>> {
        Box::pin(self.hold_pipe(shield, most, wait))
    }

    fn poll(&self) -> Events {
        if !self.pollable {
            return Events::IN | Events::OUT | Events::RDNORM | Events::WRNORM;
        }
        *self.news.ready.lock()
    }

    fn changes(&self) -> Option<&WaitQueue> {
        self.pollable.then_some(&self.news.changes)
    }

    fn watch(&self) -> BoxFuture<'_, Result<()>> {
        match self.pollable {
            true => Box::pin(self.watch_now()),
            false => crate::file::ready(Ok(())),
        }
    }

    fn observe(&self) -> Option<BoxFuture<'_, Result<Arc<dyn Observed>>>> {
        Some(Box::pin(async move { Ok(self.remote.observe(self.name).await? as Arc<dyn Observed>) }))
    }

    fn seen_by(&self, process: Pid, thread: Option<Pid>) -> Option<Arc<dyn SignalView>> {
        self.view(process, thread)
    }

    fn signals(&self, wanted: Option<SignalSet>) -> BoxFuture<'_, Result<(SignalSet, OpenFlags)>> {
        Box::pin(self.change_signals(wanted))
    }

    fn signals_from_now_on(&self, caller: &Caller) -> Option<(SignalsSeen, Arc<dyn SignalView>)> {
        self.view_from_now_on(caller)
    }

    fn timeouts(&self) -> Option<[u64; 2]> {
        match self.socket() {
            Some(_) => None,
            None => Some([0; 2]),
        }
    }

    fn gained(&self) -> Option<&Gained> {
        self.socket().map(|_| &self.gained)
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(async move {
            let remote = self.remote.clone();
            let accept = move |reply: Result<(Opened, ObjectId, bool)>| -> Result<Arc<dyn Object>> {
                let (opened, id, keep) = reply?;
                Ok(if keep { remote.mapped(opened, id)? } else { remote.object(opened, id)? })
            };
            self.remote.ask(self.name.owner, FileObject { id: self.name.id }, accept, drop).await?
        })
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        Box::pin(async move { self.ask(FilePath { id: self.name.id }).await.unwrap_or_default() })
    }

    fn lock<'a>(&'a self, caller: &'a Caller, op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        Box::pin(self.lock_anywhere(caller, op))
    }

    fn seal(&self, add: u32) -> BoxFuture<'_, Result<u32>> {
        Box::pin(async move { self.ask(FileSeal { id: self.name.id, add }).await? })
    }

    fn reopen<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        let message = FileReopen { id: self.name.id, caller: caller.clone(), flags };
        let remote = self.remote.clone();
        let accept = move |reply: Result<_>| remote.accept(reply?);
        Box::pin(async move { self.remote.ask(self.name.owner, message, accept, drop).await? })
    }

    fn closed<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        if !self.must_tell_of_close(caller) {
            return crate::file::ready(());
        }
        let message = FileClosed { id: self.name.id, caller: caller.clone(), count: 0 };
        Box::pin(async move {
            // Fails if the owner is dead, with its locks.
            let _ = self.ask(message).await;
        })
    }

    fn remote(&self) -> Option<FileRef> {
        Some(self.name)
    }

    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        Arc::into_inner(self).map(|last| -> BoxFuture<'static, ()> { Box::pin(last.release(None)) })
    }

    fn close_descriptor(self: Arc<Self>, caller: &Caller) -> BoxFuture<'static, ()> {
        let caller = caller.clone();
        match Arc::try_unwrap(self) {
            Ok(last) => Box::pin(last.release(Some(caller))),
            Err(file) => Box::pin(async move {
                file.closed(&caller).await;
                crate::file::close(file).await;
            }),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

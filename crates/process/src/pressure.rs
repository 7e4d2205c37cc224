//! How many threads there may be, and the process that goes when memory is used up.
//!
//! It is the one whose end gives most, of all kernels: what is free anywhere can be borrowed (vm/src/borrow.rs). Pages count, and what a
//! kernel keeps for it: open files, and what its account is charged with (machine/src/account.rs). What it
//! shares with others (as after a fork) does not count, other than on Linux: else a shell would go for its many children.
//! One that is ending already is waited for rather than that a second one is ended. A process's oom_score_adj moves it up or down, by
//! thousandths of the kernel's memory; with the least, [`NEVER`], it is not chosen.

use crate::{change::Step, exit::INIT, process::Flags, Process, System, Thread};
use abi::{capability, signal::Signal};
use alloc::{string::String, sync::Arc, vec::Vec};
use machine::{
    errno::Result,
    sync::{AsyncLock, WaitQueue},
    Errno, KernelId, Pid, SpaceId, PAGE_SIZE,
};
use messages::process::{AdjustOom, AskHeaviest, Change, CountThreads, EndHeaviest, ExitStatus, Heaviest, SharedPart};

/// The tasks that wait for memory.
#[derive(Default)]
pub(crate) struct Pressure {
    /// Woken while the heap is short of memory.
    shortage: WaitQueue,
    /// Woken when the heap is no longer short of memory.
    relief: WaitQueue,
    /// Held while a process is killed for its memory, until it has ended.
    ending_one: AsyncLock<()>,
}

/// Pages; nobody waits for the end of a process that has no more than these.
const WORTH_WAITING: u64 = 64;
/// How often pages of files that are mapped go for the heap, before a process does.
const MAPPED_ROUNDS: usize = 64;
/// Time between two looks at whether memory is free, ns. Who waits sleeps: it may be a kernel's work for another kernel, or a
/// thread of a real-time class, and either would never let the process run that is to end.
const LOOK_AGAIN_NS: u64 = 1_000_000;
/// Frames that were on other kernels come back a little after the process has ended: looks at whether they have.
const LOOKS: usize = 100;
/// The memory of a process goes a little after it, or stays because one on another kernel shares it (vfork): looks at whether it has gone.
const LOOKS_AT_SPACE: usize = 1000;

/// The oom_score_adj of a process that is not ended for its memory (OOM_SCORE_ADJ_MIN).
pub const NEVER: i16 = -1000;
/// RLIMIT_NPROC.
const NPROC: usize = 6;
/// Memory of a kernel per thread that it lets be born: what Linux computes threads-max from.
const BYTES_PER_THREAD: usize = 128 << 10;
/// The same per process: a fork of a shell or an interpreter takes half of this for tables and first copies. So a fork
/// bomb hears EAGAIN before memory is used up and others are ended for it.
const BYTES_PER_PROCESS: usize = 512 << 10;

impl System {
    /// EAGAIN if `parent` must not have another thread, or `process`: more than the memory of this kernel, where it is born, is good for; or
    /// than RLIMIT_NPROC lets the user have, on all kernels. They are asked only for users that have a limit.
    pub(crate) async fn admit_thread(&self, parent: &Thread, process: bool) -> Result<()> {
        let most = |bytes: usize| (self.memory.totals().0 as usize / (bytes / PAGE_SIZE)).max(1);
        if self.threads.lock().len() >= most(BYTES_PER_THREAD)
            || process && self.processes.lock().len() >= most(BYTES_PER_PROCESS)
        {
            return Err(Errno::EAGAIN);
        }
        let limit = parent.process.limit(NPROC);
        let (uid, exempt) = {
            let credentials = &parent.state.lock().credentials;
            let may = [capability::SYS_RESOURCE, capability::SYS_ADMIN].into_iter().any(|one| credentials.can(one));
            (credentials.uid, credentials.uid == 0 || may)
        };
        if exempt || limit == u64::MAX {
            return Ok(());
        }
        let mut own = self.threads_of(uid);
        if own < limit {
            let elsewhere = self.endpoint.multicast(&self.endpoint.others(), CountThreads { uid }).await;
            // One that has died has none any more.
            own += elsewhere.into_iter().filter_map(|(_, count)| count.ok()).sum::<u64>();
        }
        match own < limit {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Threads of user `uid` here, and processes at home here that have ended and not been waited for.
    pub(crate) fn threads_of(&self, uid: u32) -> u64 {
        let threads: Vec<Arc<Thread>> = self.threads.lock().values().cloned().collect();
        let processes: Vec<Arc<Process>> = self.processes.lock().values().cloned().collect();
        let own = |thread: &&Arc<Thread>| !thread.is_away() && thread.state.lock().credentials.uid == uid;
        let zombie = |process: &&Arc<Process>| process.has_ended() && process.credentials().uid == uid;
        (threads.iter().filter(own).count() + processes.iter().filter(zombie).count()) as u64
    }

    /// Waits until the heap of this kernel may grow again.
    pub async fn relieved(&self) {
        self.pressure.relief.wait_until(|| (!self.memory.is_short()).then_some(())).await;
    }

    /// For the kernel's own CPUs, as often as they like: somebody has to look after a heap that is short.
    pub fn notice_shortage(&self) {
        if self.memory.is_short() {
            self.pressure.shortage.wake_all();
        }
    }

    /// Makes room each time the heap has grown where there was none: no call that wants of it can be refused that.
    pub async fn relieve(&self) {
        loop {
            self.pressure.shortage.wait_until(|| self.memory.is_short().then_some(())).await;
            trace::memory_short(self.memory.totals().1);
            let _one = self.pressure.ending_one.lock().await;
            while !self.memory.has_room() && self.vm.reclaim() {}
            // Programs may map them again as fast as they go.
            for _ in 0..MAPPED_ROUNDS {
                if self.memory.has_room() || !self.vm.reclaim_mapped().await {
                    break;
                }
            }
            if !self.memory.has_room() {
                self.paths.drop_unused().await;
            }
            let heaviest = if self.memory.has_room() { None } else { self.heaviest() };
            if let Some(heaviest) = heaviest {
                // Room for a moment says little: what the process had goes piece by piece, and what is on its way takes it.
                self.end_here(heaviest, None, |gone| gone && self.memory.has_room()).await;
            }
            self.memory.relieved();
            trace::memory_relieved(self.memory.totals().1);
            self.pressure.relief.wake_all();
        }
    }

    /// Ends the process that has most of one kernel's memory, for a fault in `space`; returns when its memory is free. False if
    /// it is the process of `space` itself, which must come to its end first, or if there is none.
    pub async fn end_heaviest(self: &Arc<Self>, space: SpaceId) -> bool {
        // One at a time: what the first one ends is probably enough for all that wait, and looking for it is work.
        let mut waited = false;
        let _one = loop {
            if self.is_ending(space) {
                return false;
            }
            match self.pressure.ending_one.try_lock() {
                Some(_) if waited => return true,
                Some(one) => break one,
                None => self.look_again().await,
            }
            waited = true;
        };
        let free = self.memory.totals().1;
        let Some((kernel, chosen)) = self.heaviest_of_all().await else { return false };
        if kernel != self.kernel {
            return self.end_there(kernel, chosen, space).await;
        }
        self.end_here(chosen, Some(space), |_| self.memory.totals().1 > free).await
    }

    /// Ends the process, and waits until it is `enough`, which is told whether its memory has gone from here, or nothing more of it
    /// will come. False if it is the process of `space`.
    async fn end_here(&self, chosen: Heaviest, space: Option<SpaceId>, enough: impl Fn(bool) -> bool + Send) -> bool {
        let Some(victim) = self.process(chosen.process) else { return true };
        let id = victim.space().id();
        if !chosen.ending {
            self.kill_for_memory(&victim).await;
        }
        if Some(id) == space {
            return false;
        }
        let (mut looks, mut at_space) = (LOOKS, LOOKS_AT_SPACE);
        while looks > 0 && at_space > 0 {
            // Of a process that is at home elsewhere only the end of its space shows that all of it is gone.
            let gone = self.vm.find(id).is_none();
            if enough(gone) {
                break;
            }
            match gone {
                true => looks -= 1,
                false if self.process(chosen.process).is_none_or(|process| process.has_ended()) => at_space -= 1,
                false => {}
            }
            self.look_again().await;
        }
        true
    }

    async fn look_again(&self) {
        self.scheduler.sleep_until(self.now() + LOOK_AGAIN_NS).await;
    }

    /// Whether a process that uses this space is ending.
    fn is_ending(&self, space: SpaceId) -> bool {
        let processes = self.processes.lock();
        processes.values().any(|process| process.space().id() == space && process.has(Flags::ENDING))
    }

    /// A process with more memory than any here has it on another kernel. Its end is not waited for inside the other
    /// kernel: that might wait in turn for one of our processes, which waits for a frame here.
    async fn end_there(&self, kernel: KernelId, chosen: Heaviest, space: SpaceId) -> bool {
        while let Ok(true) = self.endpoint.call(kernel, EndHeaviest { process: chosen.process }).await {
            if self.is_ending(space) {
                return false;
            }
            self.look_again().await;
        }
        true
    }

    /// The order of candidates: processes that are ending come first, then the largest.
    async fn heaviest_of_all(&self) -> Option<(KernelId, Heaviest)> {
        let mut all: Vec<_> = self.heaviest().map(|own| (self.kernel, own)).into_iter().collect();
        for (kernel, there) in self.endpoint.multicast(&self.endpoint.others(), AskHeaviest {}).await {
            all.extend(there.ok().flatten().map(|there| (kernel, there)));
        }
        all.into_iter().max_by_key(|(kernel, process)| (process.ending, process.points, *kernel == self.kernel))
    }

    /// The heaviest process of this kernel alone; of equals the youngest.
    pub(crate) fn heaviest(&self) -> Option<Heaviest> {
        self.heaviest_among(|_| true)
    }

    /// The same of those that are meant.
    pub(crate) fn heaviest_among(&self, is_meant: impl Fn(&Process) -> bool) -> Option<Heaviest> {
        let all: Vec<Arc<Process>> = self
            .processes
            .lock()
            .values()
            .filter(|process| process.id != INIT && !process.has_ended() && is_meant(process))
            .cloned()
            .collect();
        let free = self.memory.totals().1;
        let charged = self.accounts.processes();
        let thousandth = (self.memory.totals().0 / 1000) as i64;
        let sized = all.into_iter().filter_map(|process| {
            let (adjust, ending) = (process.with_shared(|shared| shared.oom.0), process.has(Flags::ENDING));
            if adjust == NEVER && !ending {
                return None;
            }
            let kept = process.files().bytes() + charged.get(&process.id).unwrap_or(&0);
            let pages = process.space().footprint().exclusive + (kept / PAGE_SIZE) as u64;
            let points = pages as i64 + i64::from(adjust) * thousandth;
            Some(Heaviest { process: process.id, ending, pages, points })
        });
        let sized: Vec<Heaviest> = sized.collect();
        // The pages of a space are counted before it goes, or after all of it has: then there is room, and no second one need end.
        let freed = self.memory.totals().1 > free + WORTH_WAITING;
        let worth = |size: &Heaviest| !size.ending || size.pages > WORTH_WAITING || freed;
        sized.into_iter().filter(worth).max_by_key(|size| (size.ending, size.points, size.process))
    }

    /// Sets the oom_score_adj of any process of the machine; see [`AdjustOom`]. ESRCH.
    pub async fn adjust_oom(&self, process: Pid, adjust: i16, old_file: bool, privileged: bool) -> Result<()> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.adjust_oom_here(process, adjust, old_file, privileged).await;
        }
        let ask = AdjustOom { process, adjust, old_file, privileged };
        self.endpoint.call(home, ask).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) async fn adjust_oom_here(
        &self,
        process: Pid,
        adjust: i16,
        old_file: bool,
        privileged: bool,
    ) -> Result<()> {
        let process = self.process(process).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        let turn = process.home().ok_or(Errno::ESRCH)?.changes.lock().await;
        let (now, least) = process.with_shared(|shared| shared.oom);
        let bound = if old_file { now } else { least };
        if adjust < bound && !privileged {
            return Err(Errno::EACCES);
        }
        // Who may go below it sets it anew.
        let change = Change::Oom { adjust, least: (privileged && !old_file).then_some(adjust) };
        match process.sharing_group(SharedPart::Memory) {
            None => process.change_in_turn(change, &turn).await,
            Some(sharing_group) => {
                drop(turn);
                process.system.change_sharing_group(sharing_group, Step::Other(change)).await
            }
        }
    }

    /// Kills the process unless it is ending already. False: it is gone.
    pub(crate) async fn end_heaviest_here(&self, process: Pid) -> bool {
        let Some(victim) = self.process(process).filter(|process| !process.has_ended()) else { return false };
        if !victim.has(Flags::ENDING) {
            self.kill_for_memory(&victim).await;
        }
        true
    }

    /// The victim and whoever shares its memory (vfork): else nothing would be freed.
    async fn kill_for_memory(&self, victim: &Arc<Process>) {
        let size = victim.space().footprint();
        let kib = |pages: u64| pages * PAGE_SIZE as u64 / 1024;
        // Of threads that are away, what is known since they left.
        let thread = victim.local_threads().into_iter().next().or_else(|| self.thread(victim.id));
        let name = thread.map(|thread| thread.state.lock().name.clone()).unwrap_or_default();
        log::error!(
            "Out of memory: Killed process {} ({}) total-vm:{}kB, anon-rss:{}kB, file-rss:{}kB, pgtables:{}kB",
            victim.id,
            String::from_utf8_lossy(&name),
            kib(size.mapped),
            kib(size.anonymous),
            kib(size.cached),
            kib(size.tables)
        );
        let space = victim.space().id();
        let sharers: Vec<Arc<Process>> =
            self.processes.lock().values().filter(|process| process.space().id() == space).cloned().collect();
        for process in sharers {
            process.end(ExitStatus::Signal { signal: Signal::KILL, core: false }).await;
        }
    }
}

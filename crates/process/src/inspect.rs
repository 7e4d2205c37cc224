//! A look at processes from outside: /proc, ps.

use crate::{process::Flags, usage::Gathered, DescriptorTransfer, Process, System, Thread};
use abi::Credentials;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::*;
use fs::{
    remote::loan::{self, Loan},
    File,
};
use machine::{account::Resource, errno::Result, Errno, Page, PageRange, Pid, PAGE_SIZE};
use messages::control::KernelStatus;
use messages::{
    fs::{Data, Opened, ReadReply},
    inspect::{Inspect, InspectFile, InspectProcess, Inspection, ProcessFile, ProcessView, ThreadView},
    process::ListProcesses,
    vm::RegionReport,
};
use vm::{Space, REGIONS_LISTED};

/// Most descriptors of one answer.
const DESCRIPTORS: usize = 512;
/// The same where it is asked which pages were touched, which takes a message for each other kernel that has some: most readers begin with a few KiB.
const COUNTED_REGIONS: u32 = 16;

impl System {
    /// All processes of the machine, ascending.
    pub async fn list(&self) -> Vec<Pid> {
        let mut all = self.list_here();
        for kernel in self.others() {
            all.extend(self.endpoint.call(kernel, ListProcesses {}).await.unwrap_or_default());
        }
        all.sort();
        all
    }

    pub(crate) fn list_here(&self) -> Vec<Pid> {
        self.processes.lock().values().filter(|process| process.is_home()).map(|process| process.id).collect()
    }

    /// Messages by type: sent and received by this kernel.
    pub fn message_types(&self) -> Vec<(u16, u64, u64)> {
        self.endpoint.stats().types.iter().map(|counts| (counts.kind.0, counts.sent, counts.received)).collect()
    }

    /// What this kernel has done so far.
    pub fn status(&self) -> KernelStatus {
        let (total, free) = self.memory.totals();
        let stats = self.endpoint.stats();
        let faults = self.vm.fault_totals();
        let (under_way, parked) = self.endpoint.outstanding();
        KernelStatus {
            uptime_ns: self.now(),
            cpus: self.cpu.cpus().to_vec(),
            memory_total: total * PAGE_SIZE as u64,
            memory_free: free * PAGE_SIZE as u64,
            load: self.thread_load() as u64,
            averages: self.load_average.get(),
            threads_now: self.thread_count() as u64,
            threads_started: self.counters.threads_started.load(Relaxed),
            switches: self.scheduler.switches(),
            migrations_in: self.counters.migrations_in.load(Relaxed),
            migrations_out: self.counters.migrations_out.load(Relaxed),
            faults_local: faults.local,
            faults_remote: faults.remote,
            messages_sent: stats.messages_sent(),
            messages_received: stats.messages_received(),
            doorbells_sent: stats.doorbells_rung,
            doorbells_suppressed: stats.doorbells_suppressed,
            calls_under_way: under_way as u64,
            calls_parked: parked as u64,
            // The platform knows it.
            deepest_stack: 0,
            idle_ns: self.scheduler.idle_ns(),
            user_ns: self.counters.user_ns.iter().map(|ns| ns.load(Relaxed)).collect(),
        }
    }

    /// The time that threads have had the CPUs of this kernel.
    pub(crate) fn threads_ns(&self, now: u64) -> u64 {
        self.threads_time.iter().map(|time| time.read(now)).sum()
    }

    /// A thread has been in user mode on the CPU with this index.
    pub(crate) fn count_user(&self, cpu: usize, ns: u64) {
        if let Some(counter) = self.counters.user_ns.get(cpu) {
            counter.store(counter.load(Relaxed) + ns, Relaxed);
        }
    }

    /// The thread of this serial loads its extended state on this CPU, or finds it there: true if it was the last to load.
    pub(crate) fn claim_fpu(&self, index: usize, serial: u64) -> bool {
        let Some(owner) = self.counters.fpu_owners.get(index) else { return false };
        let was = owner.load(Relaxed);
        owner.store(serial, Relaxed);
        was == serial
    }

    /// Inspects any process of the machine, at its home.
    pub async fn inspect(self: &Arc<Self>, process: Pid, what: Inspect, reader: Credentials) -> Result<Inspection> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.inspect_here(process, what, reader).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        let (loan, what, sent) = self.lend(what);
        let ask = InspectProcess { process, what, frames: loan.frames().to_vec(), sent, reader };
        // The frames stay lent until the home has answered, even if nobody waits for that any more.
        let take = move |reply: Result<(Inspection, u32)>| {
            let (mut found, in_frames) = reply?;
            if let (Inspection::Bytes(bytes), true) = (&mut found, in_frames > 0) {
                *bytes = loan.collect(in_frames as usize);
            }
            Ok(found)
        };
        self.endpoint.call_then(home, ask, take).await.map_err(|_| Errno::ESRCH)?
    }

    /// Frames for the bytes of a question, which go into them (so many), or for those of its answer.
    fn lend(&self, mut what: Inspect) -> (Loan, Inspect, u32) {
        let frames = |bytes: usize| Loan::for_bytes(&self.memory, bytes);
        let mut sent = 0;
        let loan = match &mut what {
            Inspect::Poke { bytes, .. } | Inspect::ForceWrite { bytes, .. } => {
                let loan = frames(bytes.len());
                if let Data::Frames(_, filled) = loan.send(bytes) {
                    (*bytes, sent) = (Vec::new(), filled);
                }
                loan
            }
            Inspect::Peek { bytes, .. } | Inspect::ForceRead { bytes, .. } => frames(*bytes as usize),
            Inspect::Memory { start, end } => frames(end.saturating_sub(*start) as usize),
            _ => frames(0),
        };
        (loan, what, sent)
    }

    /// Serves another kernel that inspects a process at home here.
    pub(crate) async fn inspect_for(self: &Arc<Self>, ask: InspectProcess) -> Result<(Inspection, u32)> {
        let InspectProcess { process, mut what, frames, sent, reader } = ask;
        loan::check(&*self.memory, &frames, sent as usize)?;
        if let (Inspect::Poke { bytes, .. } | Inspect::ForceWrite { bytes, .. }, true) = (&mut what, sent > 0) {
            *bytes = loan::copy_out(&*self.memory, &frames, sent as usize);
        }
        let mut found = self.inspect_here(process, what, reader).await?;
        let mut in_frames = 0;
        if let Inspection::Bytes(bytes) = &mut found {
            match loan::answer(&*self.memory, &frames, core::mem::take(bytes)) {
                ReadReply::Inline(data) => *bytes = data,
                ReadReply::InFrames(count) => in_frames = count,
            }
        }
        Ok((found, in_frames))
    }

    /// A file that any process of the machine has open.
    pub async fn inspect_file(
        self: &Arc<Self>,
        process: Pid,
        which: ProcessFile,
        reader: Credentials,
    ) -> Result<Arc<dyn File>> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.file_here(process, which, &reader).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        let take = |from: &dyn DescriptorTransfer, reply: Result<Opened>| from.take(reply?);
        self.ask_for(home, InspectFile { process, which, reader }, take).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) async fn file_here(&self, pid: Pid, which: ProcessFile, reader: &Credentials) -> Result<Arc<dyn File>> {
        let process = self.process(pid).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        if !process.lets(reader, reader.fsuid, reader.fsgid) {
            return Err(Errno::EACCES);
        }
        if process.has_ended() {
            return Err(Errno::ENOENT);
        }
        match which {
            ProcessFile::Descriptor(fd) => process.files().get(fd).await.map_err(|_| Errno::ENOENT),
            ProcessFile::Cwd => Ok(process.directories().await?.cwd),
            ProcessFile::Root => Ok(process.directories().await?.root),
        }
    }

    pub(crate) async fn inspect_here(
        self: &Arc<Self>,
        pid: Pid,
        what: Inspect,
        reader: Credentials,
    ) -> Result<Inspection> {
        let process = self.process(pid).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        match what {
            Inspect::View | Inspect::Threads | Inspect::Owner => {}
            // Where man 2 ptrace has PTRACE_MODE_ATTACH_REALCREDS or PTRACE_MODE_READ_REALCREDS.
            Inspect::Peek { .. } | Inspect::Poke { .. } | Inspect::RobustList { .. } => {
                if !process.lets(&reader, reader.uid, reader.gid) {
                    return Err(Errno::EPERM);
                }
            }
            // Looked at when the file was opened.
            Inspect::ForceRead { .. } | Inspect::ForceWrite { .. } => {}
            _ if !process.lets(&reader, reader.fsuid, reader.fsgid) => return Err(Errno::EACCES),
            _ => {}
        }
        let ended = process.has(Flags::ENDING) && process.home().is_some_and(|home| home.state.lock().zombie.is_some());
        Ok(match what {
            Inspect::View => Inspection::View(Box::new(process.view(true).await)),
            Inspect::Threads => Inspection::View(Box::new(process.view(false).await)),
            Inspect::Owner => process.owner(),
            Inspect::RobustList { thread } => match process.gather_threads().await.threads.get(&thread) {
                Some(view) => Inspection::RobustList(view.robust_list),
                // The main thread has an id until the process is waited for; when it ended its list was done with.
                None if thread == pid => Inspection::RobustList(0),
                None => return Err(Errno::ESRCH),
            },
            _ if ended => return Err(Errno::ENOENT),
            Inspect::Maps { from } => Inspection::Regions(some_regions(&process.space(), from, false).await),
            Inspect::Touched { from } => Inspection::Regions(some_regions(&process.space(), from, true).await),
            Inspect::Spread => Inspection::Spread(process.space().spread().await),
            Inspect::ClearTouched { anonymous, files } => {
                process.space().clear_touched(anonymous, files).await;
                Inspection::Count(0)
            }
            Inspect::ClearPeak => {
                process.space().clear_peak().await;
                Inspection::Count(0)
            }
            Inspect::Memory { start, end } => {
                let len = end.saturating_sub(start).min(1 << 20) as usize;
                let mut bytes = alloc::vec![0; len];
                process.space().read(machine::UserAddr(start), &mut bytes).await?;
                Inspection::Bytes(bytes)
            }
            Inspect::Peek { at, bytes } => {
                let mut buffer = alloc::vec![0; (bytes as usize).min(1 << 16)];
                match process.space().read_some(machine::UserAddr(at), &mut buffer).await {
                    (0, error) => return Err(error),
                    (read, _) => buffer.truncate(read),
                }
                Inspection::Bytes(buffer)
            }
            Inspect::Poke { at, bytes } => match process.space().write_some(machine::UserAddr(at), &bytes).await {
                (0, error) => return Err(error),
                (written, _) => Inspection::Count(written as u32),
            },
            Inspect::Space => Inspection::Space(process.space().id()),
            // Since then it has executed something else.
            Inspect::ForceRead { space, .. } | Inspect::ForceWrite { space, .. } if process.space().id() != space => {
                return Err(Errno::ENOENT)
            }
            Inspect::ForceRead { at, bytes, .. } => {
                let bytes = (bytes as usize).min(1 << 16);
                Inspection::Bytes(process.space().force_read(machine::UserAddr(at), bytes).await)
            }
            Inspect::ForceWrite { at, bytes, .. } => {
                Inspection::Count(process.space().force_write(machine::UserAddr(at), &bytes).await as u32)
            }
            Inspect::Descriptors { from } => Inspection::Descriptors(process.files().numbers(from, DESCRIPTORS).await?),
        })
    }
}

impl Process {
    /// May somebody look into this process as user `uid` and group `gid` (man 2 ptrace, "Ptrace access mode
    /// checking", without a security module)? Only at home.
    fn lets(&self, who: &Credentials, uid: u32, gid: u32) -> bool {
        let owner = self.credentials();
        let same = [owner.uid, owner.euid, owner.suid].iter().all(|id| *id == uid)
            && [owner.gid, owner.egid, owner.sgid].iter().all(|id| *id == gid);
        let open = self.with_shared(|shared| shared.dumpable) && owner.effective.is_within(who.effective);
        who.can(abi::capability::SYS_PTRACE) || same && open
    }
}

impl Thread {
    pub(crate) fn view(&self) -> ThreadView {
        let usage = self.usage();
        let state = self.state.lock();
        ThreadView {
            thread: self.tid,
            kernel: self.process.system.kernel,
            name: state.name.clone(),
            state: self.run_state(),
            blocked: state.blocked,
            pending: state.pending.set(),
            affinity: state.affinity.clone(),
            nice: state.nice,
            policy: state.policy,
            personality: state.personality,
            usage,
            started: state.started,
            capabilities: state.capabilities,
            effective: state.credentials.effective,
            cpu: self.last_cpu(),
            robust_list: state.robust_list.0,
        }
    }
}

impl Process {
    /// Only at home.
    fn owner(&self) -> Inspection {
        let home = self.home().map(|home| {
            let state = home.state.lock();
            let threads: Vec<Pid> = state.members.keys().copied().collect();
            (state.zombie.is_some().then(|| state.credentials.clone()), threads)
        });
        let (last, mut threads) = home.unwrap_or_default();
        let credentials = last.unwrap_or_else(|| self.credentials());
        // The main thread is there until its process has gone, as a zombie once it has ended.
        if !threads.contains(&self.id) {
            threads.push(self.id);
        }
        Inspection::Owner { uid: credentials.euid, gid: credentials.egid, threads }
    }

    /// At home: everything that /proc shows of the process. The sizes of its memory take a walk over all its pages.
    async fn view(self: &Arc<Self>, with_sizes: bool) -> ProcessView {
        let Gathered { gone: mut usage, threads, faults } = self.gather_threads().await;
        let threads: Vec<ThreadView> = threads.into_values().collect();
        let (zombie, name, credentials, children_usage) = match self.home() {
            Some(home) => {
                let state = home.state.lock();
                (state.zombie.is_some(), state.name.clone(), state.credentials.clone(), state.children_usage)
            }
            None => Default::default(),
        };
        for thread in &threads {
            usage.add(&thread.usage);
        }
        // Not the first: another kernel than the one that gave the process its id may have had lower ones for its threads.
        let main = threads.iter().find(|thread| thread.thread == self.id);
        let name = main.map_or(name, |thread| thread.name.clone());
        let credentials = if zombie { credentials } else { self.credentials() };
        let (sizes, peak) = match with_sizes && !zombie {
            false => Default::default(),
            true => (self.space().statistics().await, self.space().peak().await),
        };
        let queued = self.account(credentials.uid).used_at_top(Resource::Signals) as u64;
        ProcessView {
            process: self.id,
            shared: self.shared(),
            name,
            credentials,
            zombie,
            stopped: self.has(Flags::STOPPED),
            threads,
            usage,
            children_usage,
            faults_local: faults.0,
            faults_remote: faults.1,
            pending: self.pending(),
            queued,
            mapped_pages: sizes.mapped,
            resident_pages: sizes.resident,
            locked_pages: sizes.locked,
            data_pages: sizes.data,
            stack_pages: sizes.stack,
            text_pages: sizes.text,
            // What several kernels own is not looked at in one moment.
            most_mapped_pages: peak.mapped.max(sizes.mapped),
            most_resident_pages: peak.resident.max(sizes.resident),
        }
    }
}

/// The lowest regions above `from`; none if there are no more.
async fn some_regions(space: &Arc<Space>, from: Page, touched: bool) -> Vec<RegionReport> {
    let most = if touched { COUNTED_REGIONS } else { REGIONS_LISTED };
    let mut regions = space.counted_regions(PageRange::new(from, PageRange::user().end)).in_steps_of(most);
    let mut some = Vec::new();
    while some.len() < most as usize {
        let Some(mut region) = regions.next().await else { break };
        if touched {
            space.count_touched(&mut region).await;
        }
        some.push(region);
    }
    some
}

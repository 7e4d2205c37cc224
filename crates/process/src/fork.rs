//! New threads and processes (man 2 clone).

use crate::thread::{DEADLINE, FIFO, RESET_ON_FORK, ROUND_ROBIN};
use crate::{death::KILLED, exit::INIT, home::Child, process::Directories, Context, Files, Flags, Process, Thread};
use abi::signal::{AltStack, Signal};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;
use machine::{errno::Result, Errno, GroupId, KernelSet, Pid, Registers};
use messages::cgroup::Life;
use messages::process::{
    AdoptChild, Change, ExitStatus, Gathered, Rounds, Shared, SharedPart, ThreadState, Usage, SHARED_PARTS,
};

/// What clone's flags and arguments ask for, decoded by crate `linux`.
#[derive(Clone, Debug)]
pub struct CloneRequest {
    /// CLONE_THREAD: same process.
    pub thread: bool,
    /// CLONE_VM without CLONE_THREAD.
    pub share_space: bool,
    /// CLONE_FILES without CLONE_THREAD.
    pub share_files: bool,
    /// CLONE_VFORK.
    pub parent_waits: bool,
    /// CLONE_FS without CLONE_THREAD.
    pub share_directories: bool,
    /// CLONE_SIGHAND without CLONE_THREAD.
    pub share_handlers: bool,
    /// CLONE_PARENT.
    pub sibling: bool,
    /// CLONE_CLEAR_SIGHAND.
    pub clear_handlers: bool,
    /// Signal the parent gets when the child ends; 0: none.
    pub exit_signal: u8,
    /// CLONE_INTO_CGROUP: the inode number of the group's directory.
    pub cgroup: Option<u64>,
    /// Address for CLONE_CHILD_CLEARTID; 0: none.
    pub clear_child_tid: u64,
    /// Where the child starts: a copy of the parent's registers with stack, TLS and result set.
    pub registers: Registers,
}

impl Thread {
    /// Makes a thread or process. The new thread does not run before [`Thread::launch`], so that the caller
    /// can write its id where both will look.
    pub async fn clone_from(self: &Arc<Self>, request: &CloneRequest) -> Result<Arc<Thread>> {
        let system = &self.process.system;
        system.admit_thread(self, !request.thread).await?;
        let tid = system.new_pid();
        let fpu = self.with_fpu(|fpu| fpu.clone());
        let state = self.child_state(request)?;
        let process = match request.thread {
            true => self.process.clone(),
            false => self.begin_process(tid, request).await?,
        };
        let thread = Thread::new(tid, process.clone(), state, fpu);
        trace::sched_process_fork(self.tid.0, tid.0, process.id.0);
        match request.thread {
            true => process.add_member(tid).await?,
            // A child that was killed before it had a thread gets one all the same: who else would end it?
            false => process.first_member(tid),
        }
        system.born_here.lock().insert(tid, process.id);
        system.threads.lock().insert(tid, thread.clone());
        thread.enter_process();
        if request.thread {
            thread.place_at_birth();
        } else {
            // A new process stays beside its parent, whose memory it shares, until it executes a program.
            process.take_news(self.process.end_fork(tid).await).await;
            if !process.cgroup().is_root() {
                system.tell_cgroup_life(tid, Life::Born).await;
            }
            // Linux undoes the fork of a process that was killed meanwhile.
            if self.process.has(Flags::ENDING) {
                process.end(ExitStatus::Signal { signal: Signal::KILL, core: false }).await;
            }
        }
        Ok(thread)
    }

    /// Lets a thread made by [`Thread::clone_from`] run.
    pub fn launch(self: &Arc<Self>, request: &CloneRequest) {
        self.start(Context { registers: request.registers });
    }

    /// CLONE_VFORK: waits until the child has a memory of its own, or has ended.
    pub async fn wait_for_release(child: &Arc<Thread>) {
        let process = &child.process;
        let released = || {
            let borrowed = process.in_parents_space.load(SeqCst) && !process.has_ended();
            (!borrowed).then_some(())
        };
        process.space_released.wait_until(released).await;
    }

    /// EAGAIN: what the thread has reserved can't be had twice (man 7 sched).
    fn child_state(&self, request: &CloneRequest) -> Result<ThreadState> {
        let mut state = self.state.lock().clone();
        if state.policy.0 == DEADLINE {
            return Err(Errno::EAGAIN);
        }
        state.pending = state.pending.of_child();
        state.saved_blocked = None;
        state.sleep_end = None;
        // man 2 clone: kept by fork and vfork, dropped by a thread.
        if request.thread {
            state.alt_stack = AltStack::NONE;
        }
        state.clear_child_tid = request.clear_child_tid;
        state.robust_list = (0, 0);
        if request.share_space {
            state.rseq = None;
        }
        // man 7 sched: the child does not inherit what is above the default.
        if state.policy.0 & RESET_ON_FORK != 0 {
            state.policy.0 &= !RESET_ON_FORK;
            if matches!(state.policy.0, FIFO | ROUND_ROBIN | DEADLINE) {
                state.policy = (0, 0);
            }
            state.nice = state.nice.max(0);
        }
        state.usage = Usage::default();
        state.started = self.process.system.now();
        state.visited = KernelSet::new();
        state.moves = 0;
        state.gathered = Gathered::default();
        state.monitored = false;
        state.timer_slack.1 = state.timer_slack.0;
        if !request.thread {
            state.parent_death_signal = 0;
        }
        Ok(state)
    }

    async fn begin_process(self: &Arc<Self>, id: Pid, request: &CloneRequest) -> Result<Arc<Process>> {
        let group = self.cgroup_for_child(id, request.cgroup).await?;
        let made = match self.begin_fork(id).await {
            Ok(rounds) => {
                let made = self.fork_process(id, request, rounds, group).await;
                if made.is_err() {
                    self.process.end_fork(id).await;
                }
                made
            }
            Err(error) => Err(error),
        };
        if made.is_err() && !group.is_root() {
            self.process.system.tell_cgroup_life(id, Life::Gone).await;
        }
        made
    }

    async fn fork_process(
        self: &Arc<Self>,
        id: Pid,
        request: &CloneRequest,
        rounds: Rounds,
        cgroup: GroupId,
    ) -> Result<Arc<Process>> {
        let parent = &self.process;
        let system = &parent.system;
        // Opened before there is anything to undo.
        parent.directories().await?;
        let space = match request.share_space {
            true => {
                let space = parent.space();
                system.retain_space(space.id(), system.kernel).await;
                space
            }
            false => parent.space().fork().await?,
        };
        let files = match request.share_files {
            true => {
                let files = parent.files();
                files.retain(system.kernel).await;
                files
            }
            false => match parent.files().copy(system.kernel).await {
                Ok(files) => files,
                Err(error) => {
                    system.release_space(&space, system.kernel).await;
                    return Err(error);
                }
            },
        };
        let mut shared: Shared = parent.shared();
        let new_parent = if request.sibling { shared.parent } else { parent.id };
        shared.parent = new_parent;
        // A sibling's end sends what its maker's would.
        let exit_signal = if request.sibling { shared.exit_signal } else { request.exit_signal };
        shared.exit_signal = exit_signal;
        shared.cgroup = cgroup;
        shared.executed = false;
        shared.sharing_groups = [None; SHARED_PARTS];
        shared.child_subreaper = false;
        shared.lock_future = 0;
        shared.monitored = false;
        shared.started = system.now();
        if request.clear_handlers {
            shared.actions.reset_for_exec();
        }
        let group = shared.group;
        let child = Process::new(system, id, system.kernel, shared, parent.open_directories(), space, files);
        child.in_parents_space.store(request.share_space, SeqCst);
        child.bound_space();
        if let Some(home) = child.home() {
            let mut state = home.state.lock();
            state.rounds = rounds;
            state.counted.in_group = !cgroup.is_root();
            let mine = self.state.lock();
            state.credentials = mine.credentials.clone();
            state.name = mine.name.clone();
        }
        child.enter();
        if let Err(error) = child.join_sharing_groups(parent, request).await {
            child.abandon_birth().await;
            return Err(error);
        }
        let uid = self.state.lock().credentials.uid;
        let mut adopted = system.adopt(new_parent, id, group, uid, exit_signal).await;
        while !adopted {
            // A sibling's parent has ended meanwhile.
            let heir = system.subreaper_of(parent).await;
            let _ = child.change(Change::Parent(heir)).await;
            adopted = system.adopt(heir, id, group, uid, Signal::CHLD.number()).await;
        }
        child.watch_inherited_cpu_time().await;
        Ok(child)
    }
}

impl Process {
    async fn join_sharing_groups(self: &Arc<Self>, parent: &Arc<Process>, request: &CloneRequest) -> Result<()> {
        if request.share_directories {
            self.join_sharing_group(parent, SharedPart::Directories).await?;
        }
        if request.share_handlers {
            self.join_sharing_group(parent, SharedPart::Handlers).await?;
        }
        if request.share_space && !request.parent_waits {
            self.join_sharing_group(parent, SharedPart::Memory).await?;
        }
        Ok(())
    }

    /// Undoes the making of a child that no other kernel has heard of yet.
    async fn abandon_birth(self: &Arc<Self>) {
        self.system.processes.lock().remove(&self.id);
        self.system.release_space(&self.space(), self.home).await;
        let _ = self.files().release(self.home, None).await;
        for part in SharedPart::ALL {
            let _ = self.leave_sharing_group(part).await;
        }
        // But for a kernel that mourns another, which has found it among the users of a space and waits for its end.
        if let Some(home) = self.home() {
            home.state.lock().zombie = Some(KILLED);
            home.members_changed.wake_all();
        }
    }
}

impl crate::System {
    /// Notes a child with its parent's home; false if the parent has handed out its children already, or is gone.
    pub(crate) async fn adopt(&self, parent: Pid, child: Pid, group: Pid, uid: u32, exit_signal: u8) -> bool {
        match self.origin(parent) {
            // Init takes whatever comes, and knows no children.
            _ if parent == INIT => true,
            Some(home) if home == self.kernel => self.adopt_here(parent, child, group, uid, exit_signal),
            Some(home) => {
                let ask = AdoptChild { parent, child, group, exit_signal, new: true };
                self.endpoint.call(home, ask).await.unwrap_or(false)
            }
            None => false,
        }
    }

    pub(crate) fn adopt_here(&self, parent: Pid, child: Pid, group: Pid, uid: u32, exit_signal: u8) -> bool {
        let Some(parent) = self.process(parent) else { return false };
        let Some(home) = parent.home() else { return false };
        let mut state = home.state.lock();
        if state.handed_out.is_none() {
            let entry = Child { group, uid, exit_signal, event: None, order: 0, usage: Usage::default() };
            state.children.insert(child, entry);
        }
        state.handed_out.is_none()
    }

    /// The first program's process, a child of init.
    pub async fn first_process(
        self: &Arc<Self>,
        shared: Shared,
        root: Arc<dyn fs::File>,
        cwd: Arc<dyn fs::File>,
        state: ThreadState,
    ) -> Result<Arc<Thread>> {
        self.make_process(self.new_pid(), shared, Directories { root, cwd }, state).await
    }

    /// Process 1, for those who look at it: it is asleep for ever, with no memory, and takes no signals. Its children are
    /// reaped by their own homes.
    pub async fn make_init(
        self: &Arc<Self>,
        shared: Shared,
        root: Arc<dyn fs::File>,
        state: ThreadState,
    ) -> Result<()> {
        self.make_process(INIT, shared, Directories { cwd: root.clone(), root }, state).await.map(drop)
    }

    async fn make_process(
        self: &Arc<Self>,
        id: Pid,
        mut shared: Shared,
        directories: Directories,
        state: ThreadState,
    ) -> Result<Arc<Thread>> {
        let space = self.vm.create()?;
        shared.group = id;
        shared.session = id;
        let files = Files::new(self, self.kernel);
        let process = Process::new(self, id, self.kernel, shared, Some(directories), space, files);
        process.bound_space();
        process.enter();
        if let Some(home) = process.home() {
            let mut home = home.state.lock();
            home.credentials = state.credentials.clone();
            home.name = state.name.clone();
        }
        process.member_born(id, self.kernel, false).unwrap_or(Ok(()))?;
        let fpu = machine::FpuState::initial(self.cpu.fpu_size());
        let thread = Thread::new(id, process.clone(), state, fpu);
        self.born_here.lock().insert(id, id);
        self.threads.lock().insert(id, thread.clone());
        process.threads.lock().insert(id, thread.clone());
        process.watch_inherited_cpu_time().await;
        Ok(thread)
    }

    /// Starts a thread of [`System::first_process`] with these registers.
    pub fn launch_first(&self, thread: &Arc<Thread>, registers: Registers) {
        thread.start(Context { registers });
    }
}

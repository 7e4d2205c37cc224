//! Processes and threads: membership, migration, shared state. Signals, and parents and children, are subjects of their own.

pub(crate) mod family;
mod replica;
mod scheduling;
mod shared;
pub(crate) mod signals;
mod thread;

pub use family::*;
pub use replica::*;
pub use scheduling::*;
pub use shared::*;
pub use signals::*;
pub use thread::*;

use crate::{
    fs::Opened,
    vm::{Runs, Touch},
};
use abi::Credentials;
use alloc::{boxed::Box, vec::Vec};
use machine::{errno, Access, KernelId, KernelSet, Page, Pid, SpaceId};
use serde::{Deserialize, Serialize};

/// What the primary decides for the whole machine: the clock and its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Grows with each change; a lower one than is known is out of date.
    pub version: u64,
    /// ns between the epoch and the start of the machine.
    pub realtime_offset: u64,
    /// sethostname(2).
    pub host: Vec<u8>,
    /// setdomainname(2).
    pub domain: Vec<u8>,
}

/// The process that has most of a kernel's memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Heaviest {
    /// The process that should end.
    pub process: Pid,
    /// Its end is under way already, so no other process need be chosen.
    pub ending: bool,
    /// Pages that its end would free.
    pub pages: u64,
    /// What candidates are compared by: `pages` and oom_score_adj, in thousandths of the kernel's memory.
    pub points: i64,
}

/// A thread that talks with another, as its kernel knows it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Talker {
    /// Its process.
    pub process: Pid,
    /// CPU time that it has used.
    pub used_ns: u64,
    /// How often it has waited.
    pub waits: u64,
    /// Pages that it has touched.
    pub pages: u64,
    /// It may come to the kernel that asks, with the sockets and epolls that it has.
    pub may_come: bool,
    /// The same, but for the other threads of its process, which work, too: it may come together with these.
    pub may_come_with_others: bool,
    /// It would leave pipes or their like behind: worth it only if it mostly waits for the other one.
    pub leaves_pipes: bool,
}

messages! {
    "process" 0x200;

    /// A kernel that is about to run its first thread of a process asks the home for a replica. From then on the
    /// home tells it of every change.
    join: Join {
        /// The process of which the sender gets a replica.
        process: Pid,
    } -> errno::Result<Replica>, Low;

    /// The home sends a replica unasked to a kernel that has none, because a thread is about to move there. From now on the home counts
    /// the receiver as a member. `touches`: pages that the thread will touch at once; their mappings follow in [`Migrate`], and may be
    /// revoked from now on.
    push_replica: PushReplica {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that is about to arrive.
        thread: Pid,
        /// The replica.
        replica: Box<Replica>,
        /// Pages that the thread will touch at once; [`Migrate::pages`] answers them.
        touches: Vec<Touch>,
    } -> (), High;

    /// A replica needs the root and the working directory for the first time, and the home hands it references to both. The home
    /// tells it of later changes (`ApplyChange`).
    directories: AskDirectories {
        /// The process whose directories they are.
        process: Pid,
    } -> errno::Result<(Opened, Opened)>, Low;

    /// A thread moves: the kernel that it leaves hands it to the kernel that it goes to, which answers once the
    /// thread may run there. `pages`: the mappings that the home had ready for each touch of [`PushReplica`]. `touches`: pages that the
    /// thread will touch at once and that the receiver asks their owners for.
    migrate: Migrate {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The home of the process.
        home: KernelId,
        /// The thread that moves.
        thread: Pid,
        /// Its registers and state.
        thread_context: Box<ThreadContext>,
        /// The mappings that the home had ready, one entry for each touch of [`PushReplica`].
        pages: Vec<Runs>,
        /// The address space of the process.
        space: SpaceId,
        /// Pages that the thread will touch at once, for the receiver to ask for.
        touches: Vec<(Page, Access)>,
    } -> errno::Result<()>, Low;

    /// The kernel that a thread has arrived on tells the home of its process, so that signals find it. (Not when the thread came from the
    /// home: the answer to [`Migrate`] says so there.) `moves` puts reports of two kernels in order, which may arrive in another one.
    moved: Moved {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that moved.
        thread: Pid,
        /// Where it is now.
        to: KernelId,
        /// How often it has moved. The home drops a report with a lower number than one that it has seen.
        moves: u64,
    } -> (), High;

    /// A kernel asks the home to change what the threads of a process share. The home answers when all replicas
    /// have made the change.
    change: ChangeShared {
        /// The process (thread group) that this is about.
        process: Pid,
        /// What is to change.
        change: Change,
    } -> errno::Result<()>, Low;

    /// The home tells a replica of a change.
    apply: ApplyChange {
        /// The process (thread group) that this is about.
        process: Pid,
        /// What has changed.
        change: Change,
    } -> (), High;

    /// A thread has made a thread: its kernel tells the home before the new one runs.
    born: ThreadBorn {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The new thread.
        thread: Pid,
        /// The kernel that it is on.
        at: KernelId,
    } -> errno::Result<()>, Low;

    /// A thread has ended on the sender. The home takes it off its list, and ends the process with the last one.
    gone: ThreadGone {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that ended.
        thread: Pid,
        /// `comm`, which a zombie keeps.
        name: Vec<u8>,
        /// What it has used.
        usage: Usage,
        /// Kernels that it has been on, which may keep a shadow of it.
        visited: KernelSet,
        /// How it ended: the process's status if it is the last.
        status: ExitStatus,
        /// How it was scheduled, if it was the main thread.
        last: Option<LastSchedulingParameters>,
    } -> (), Low;

    /// The home tells a kernel that a thread has been on that the thread has ended elsewhere. The receiver drops its shadow of it.
    end_shadow: EndShadow {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that ended.
        thread: Pid,
    } -> (), High;

    /// exit_group, or a fatal signal: a kernel asks the home to end every thread of a process.
    end_process: EndProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// How the process ends, unless it is ending already.
        status: ExitStatus,
    } -> (), Low;

    /// execve: a kernel asks the home to end every thread but one; the home answers when they are gone. The survivor
    /// then takes the process's own id.
    unthread: Unthread {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that calls execve.
        survivor: Pid,
    } -> errno::Result<()>, Low;

    /// The home tells a replica that its threads of the process (all but `survivor`) must end.
    end_threads: EndThreads {
        /// The process (thread group) that this is about.
        process: Pid,
        /// How the process ends.
        status: ExitStatus,
        /// The thread that goes on (execve); None: none does.
        survivor: Option<Survivor>,
    } -> (), High;

    /// The home tells a replica that the process is no more.
    drop_replica: DropReplica {
        /// The process (thread group) that this is about.
        process: Pid,
    } -> (), High;

    /// sethostname and setdomainname: asks the primary to name the machine.
    set_name: SetName {
        /// setdomainname, not sethostname.
        domain: bool,
        /// The new name.
        name: Vec<u8>,
    } -> (), Low;

    /// The primary, or the kernel that boots another, tells it the time and the machine's names.
    facts: TellFacts {
        /// What holds from now on, unless a later version is known.
        facts: Facts,
    } -> (), High;

    /// Lists the processes that are at home on the receiver.
    list: ListProcesses {} -> Vec<Pid>, Low;

    /// Asks which process a thread belongs to. The receiver is the kernel from whose range of ids the thread's is.
    find_thread: FindThread {
        /// The thread's id.
        thread: Pid,
    } -> Option<Pid>, Low;

    /// Asks the home what a process has used over all kernels, and the children that it has waited for; with `thread`, what that
    /// thread has used. EINVAL: there is no such thread.
    usage: AskUsage {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread; None: the process.
        thread: Option<Pid>,
    } -> errno::Result<(Usage, Usage)>, Low;

    /// prlimit: reads or sets a resource limit of a process at home on the receiver, which answers the old one.
    limit: ProcessLimit {
        /// The process (thread group) that this is about.
        process: Pid,
        /// RLIMIT_*.
        resource: u32,
        /// (soft, hard); None: only the answer is wanted.
        new: Option<(u64, u64)>,
        /// Who asks, for permissions.
        sender: Credentials,
        /// The sender asks about itself, which needs no permission.
        own: bool,
    } -> errno::Result<(u64, u64)>, Low;

    /// Sets oom_score_adj of a process at home on the receiver. EACCES: without `privileged` it may not be made less than the least it
    /// was allowed to be, nor through `old_file` (oom_adj) less than it is.
    adjust_oom: AdjustOom {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The new value, from -1000 to 1000.
        adjust: i16,
        /// Written to oom_adj, not to oom_score_adj.
        old_file: bool,
        /// CAP_SYS_RESOURCE.
        privileged: bool,
    } -> errno::Result<()>, Low;

    /// Sets or reads affinity, nice value or policy of a thread, on the kernel that it is on, which answers what holds then. (Also its
    /// name, which goes the same way.)
    change_scheduling: ChangeScheduling {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that is scheduled otherwise.
        thread: Pid,
        /// What is set, if anything.
        change: SchedulingChange,
        /// Who asks, for permissions.
        sender: Credentials,
    } -> errno::Result<Scheduling>, Low;

    /// Memory is used up on the sender, which asks every kernel which process with memory there should be killed.
    ask_heaviest: AskHeaviest {} -> Option<Heaviest>, Low;

    /// RLIMIT_NPROC: asks how many threads of a user are on the receiver, before the sender makes another one.
    count_threads: CountThreads {
        /// Real user id.
        uid: u32,
    } -> u64, Low;

    /// Kills the process that the sender has chosen among the answers to [`AskHeaviest`]. Answered when its end is under way; false:
    /// there is no such process any more.
    end_heaviest: EndHeaviest {
        /// The process that is to end.
        process: Pid,
    } -> bool, Low;

    /// A thread on the sender waits for a lock with an owner (FUTEX_LOCK_PI) that `thread` holds: asks the home of the owner's process
    /// to tell of its end. Answers the kernels that have asked so. ESRCH: the owner has ended.
    watch_thread: WatchThread {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that has the lock.
        thread: Pid,
    } -> errno::Result<KernelSet>, Low;

    /// A thread leaves its memory (execve). The home of its process answers when the locks with an owner that the thread holds have been
    /// handed over wherever others wait for them.
    leave_locks: LeaveLocks {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that executes a program.
        thread: Pid,
    } -> (), Low;

    /// A process has got semaphore adjustments (SEM_UNDO) or attached memory at `kernel`. Its home, the receiver, is to tell that
    /// kernel of its end.
    note_ipc: NoteIpc {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The kernel that is to be told.
        kernel: KernelId,
    } -> errno::Result<()>, Low;

    /// One process less, at home on `of`, uses an address space that is at home on the receiver; with `more`, one more. The space ends
    /// with its last user.
    space_users: SpaceUsers {
        /// The address space that this is about.
        space: SpaceId,
        /// The home of the processes that are counted.
        of: KernelId,
        /// One more, not one less.
        more: bool,
    } -> (), Low;

    /// Tells the home of a process that a thread of it went to `dead`, which has died, with its move number `moves`, and that the sender
    /// knows nothing later of it.
    thread_lost: ThreadLost {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that went there.
        thread: Pid,
        /// The kernel that is dead.
        dead: KernelId,
        /// How often it had moved.
        moves: u64,
    } -> (), Low;

    /// These address spaces had memory on a kernel that died. The receiver kills the processes in them, and answers when
    /// those at home there are gone.
    end_users: EndUsers {
        /// The address spaces.
        spaces: Vec<SpaceId>,
    } -> (), Low;

    /// Ends an address space that had memory on a kernel that died, after all its users have been killed: those counted on the dead kernel
    /// will not be counted down.
    end_space: EndSpace {
        /// The address space that this is about.
        space: SpaceId,
    } -> (), Low;

    /// Asks whether the receiver has finished its part of the death of `dead`. It answers when no program there runs in memory that the dead
    /// kernel had, or that had been lent to it.
    mourned: Mourned {
        /// The kernel that is dead.
        dead: KernelId,
    } -> (), Low;

    /// A process has ended whose descriptor table was on a kernel that died, so that none of its files was closed. The receiver drops the
    /// record locks that the process has on its files.
    end_locks: EndLocks {
        /// The process that ended.
        process: Pid,
    } -> (), Low;

    /// A kernel on which a thread talks much with another asks the thread's kernel what it has used, and whether it may come. None: it
    /// is not there any more.
    ask_talker: AskTalker {
        /// The thread.
        thread: Pid,
    } -> Option<Talker>, Low;

    /// The same kernel has the thread come. The answer says whether it will; then it is marked, and not moved again for a while.
    gather: Gather {
        /// The thread.
        thread: Pid,
        /// It comes together with other threads of its process. Else only if it works alone.
        with_others: bool,
    } -> bool, Low;

    /// Enters a process into a sharing group that the receiver keeps, or takes it out.
    sharing_group_member: SharingGroupMember {
        /// Which sharing group.
        sharing_group: SharingGroupId,
        /// The process, which the sender is the home of.
        process: Pid,
        /// It joins, not leaves.
        joins: bool,
    } -> errno::Result<()>, Low;

    /// Asks the keeper of a sharing group to change what its members have in common. Answered when all members have the change.
    change_sharing_group: ChangeSharingGroup {
        /// Which sharing group.
        sharing_group: SharingGroupId,
        /// What changes for all members.
        change: Change,
    } -> errno::Result<()>, Low;

    /// umt_enable: the receiver makes a counter for each of its CPUs, in their order, and keeps them until [`DropCounters`].
    make_counters: MakeCounters {
        /// The process whose monitored threads are counted.
        process: Pid,
        /// The user who pays for them.
        uid: u32,
        /// They tell only of CPUs that have nothing to run.
        idle_only: bool,
    } -> errno::Result<Vec<Opened>>, Low;

    /// The home of a process says that its monitored threads are counted no more: it has ended, or executes a program.
    drop_counters: DropCounters {
        /// The process.
        process: Pid,
    } -> (), High;

    /// The keeper of a sharing group has the home of a member make a change.
    change_member: ChangeMember {
        /// The member.
        process: Pid,
        /// What changes.
        change: Change,
    } -> errno::Result<()>, Low;
}

//! Processes and threads: membership, migration, shared state, signals, waiting.

mod family;
mod replica;
mod scheduling;
mod shared;
mod signals;
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
use abi::{
    signal::{Signal, SignalInfo, SignalSet, Taken},
    CpuSet, Credentials,
};
use alloc::{boxed::Box, vec::Vec};
use machine::{errno, Access, KernelId, KernelSet, Page, Pid, SpaceId};
use serde::{Deserialize, Serialize};

/// What the primary decides for the whole machine.
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
    /// Its end is under way already: nobody else need be chosen.
    pub ending: bool,
    /// Pages that its end would give.
    pub pages: u64,
    /// What is compared: those, and its oom_score_adj, in thousandths of the kernel's memory.
    pub points: i64,
}

messages! {
    "process" 0x200;

    /// A kernel about to run its first thread of a process asks the home for a replica; from then on the
    /// home tells it of every change.
    join: Join {
        /// The process of which the sender gets a replica.
        process: Pid,
    } -> errno::Result<Replica>, Low;

    /// A thread is about to leave the home for a kernel that it has not counted yet, and is counting now: the replica. `touches`: pages of its
    /// address space that the thread will touch at once, which the home sends with it and may take back from now on.
    push_replica: PushReplica {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that is about to arrive.
        thread: Pid,
        /// What the receiver must know of the process.
        replica: Box<Replica>,
        /// Pages that the thread will touch at once; their owner sends them with it.
        touches: Vec<Touch>,
    } -> (), High;

    /// A replica's first use of the root and the working directory: the home opens both for it. Later changes it is told.
    directories: AskDirectories {
        /// The process whose directories they are.
        process: Pid,
    } -> errno::Result<(Opened, Opened)>, Low;

    /// A thread moves: the kernel it leaves hands it to the kernel it goes to, which answers once the
    /// thread may run there. `pages`: for each touch of [`PushReplica`] what the home had ready. `touches`: other pages of its address space that
    /// it will touch at once.
    migrate: Migrate {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The home of the process.
        home: KernelId,
        /// The thread that moves.
        thread: Pid,
        /// Registers and state of the thread.
        thread_context: Box<ThreadContext>,
        /// For each touch of [`PushReplica`], what the home had ready.
        pages: Vec<Runs>,
        /// The address space of the process.
        space: SpaceId,
        /// Other pages that the thread will touch at once.
        touches: Vec<(Page, Access)>,
    } -> errno::Result<()>, Low;

    /// The kernel that a thread arrived on tells its home (unless it came from there, where the answer to [`Migrate`] says so), so that
    /// signals find it. `moves` is how often it has moved: what two kernels tell may come in another order than it happened.
    moved: Moved {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that moved.
        thread: Pid,
        /// Where it is now.
        to: KernelId,
        /// How often it has moved; a lower number than one heard before is out of date.
        moves: u64,
    } -> (), High;

    /// A kernel asks the home to change what the threads of a process share; answered when all replicas
    /// have it.
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

    /// A thread made a thread: the home learns of the new member before it runs.
    born: ThreadBorn {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The new thread.
        thread: Pid,
        /// The kernel that it is on.
        at: KernelId,
    } -> errno::Result<()>, Low;

    /// A thread has ended on the sender; the home drops it, and finishes the process with the last one.
    gone: ThreadGone {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that ended.
        thread: Pid,
        /// `comm`, which a zombie keeps.
        name: Vec<u8>,
        /// What it has used.
        usage: Usage,
        /// Kernels that may have a shadow of it.
        visited: KernelSet,
        /// How it ended: the process's status if it is the last.
        status: ExitStatus,
        /// How it was scheduled, if it was the main thread.
        last: Option<LastSchedulingParameters>,
    } -> (), Low;

    /// The home tells kernels that a thread left behind that it has ended elsewhere: its shadow goes.
    end_shadow: EndShadow {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that ended.
        thread: Pid,
    } -> (), High;

    /// exit_group, or a deadly signal: the home ends every thread.
    end_process: EndProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// How the process ends, unless it is ending already.
        status: ExitStatus,
    } -> (), Low;

    /// execve: the home ends every thread but one, and answers when they are gone. The survivor takes the
    /// process's own id.
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

    /// A thread has taken a stop that was sent after `continues` SIGCONTs. The home stops the process, unless it was sent
    /// another SIGCONT since.
    stop_process: StopProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The stop signal.
        signal: Signal,
        /// How many SIGCONTs had been sent before it.
        continues: u64,
    } -> (), Low;

    /// The home tells a replica whether the threads of the process are stopped, and that stops sent before the last SIGCONT
    /// are void.
    set_stopped: SetStopped {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Whether it is stopped.
        stop_state: StopState,
        /// Signals for the process that wait.
        pending: PendingSet,
    } -> (), High;

    /// A stop or SIGCONT is sent to a thread: the home continues the process if it must, and answers the number of the
    /// last SIGCONT.
    sending: Sending {
        /// The process (thread group) that this is about.
        process: Pid,
        /// SIGCONT or a stop signal.
        signal: Signal,
    } -> u64, Low;

    /// A signal for a process, sent to its home. `sender` is checked for permission there. Not behind requests, so that those
    /// who ask too much can be killed.
    signal_process: SignalProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The signal; None: only the permission is checked (kill with 0).
        info: Option<SignalInfo>,
        /// Who is checked for permission; None: the kernel itself sends.
        sender: Option<Credentials>,
    } -> errno::Result<()>, High;

    /// A signal for one thread, sent to the home of its process and on to where the thread is. `continues` once it has had
    /// the effects of being sent: the number of the last SIGCONT. `ignorings` once it has been where its process is: how many changes had
    /// made a signal ignored.
    signal_thread: SignalThread {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that gets it.
        thread: Pid,
        /// The signal; None: only the permission is checked (tgkill with 0).
        info: Option<SignalInfo>,
        /// Who is checked for permission; None: the kernel itself sends, or it has been checked.
        sender: Option<Credentials>,
        /// The number of the last SIGCONT; None: the effects of sending are still to come.
        continues: Option<u64>,
        /// How many changes had made a signal ignored; None: it has not been where its process is.
        ignorings: Option<u64>,
    } -> errno::Result<()>, Low;

    /// A signal for all processes of a group (or, without one, for everybody but init and the sender) that
    /// are at home on the receiver, and that this round has not come to; answers how many there were and how many could be signalled.
    signal_group: SignalGroup {
        /// The process group; None: all processes.
        group: Option<Pid>,
        /// The signal; None: only the permission is checked (kill with 0).
        signal: Option<RoundSignal>,
        /// Who is checked for permission; None: the kernel itself sends.
        sender: Option<Credentials>,
        /// Who is left out of a signal for all: the sender.
        except: Pid,
    } -> (u32, u32), Low;

    /// A thread is about to fork, unless signals that it does not block are first.
    begin_fork: BeginFork {
        /// The parent.
        process: Pid,
        /// The id that the child will have.
        child: Pid,
        /// Signals that the forking thread blocks.
        blocked: SignalSet,
    } -> errno::Result<BeginForkReply>, Low;

    /// The fork is over; answers what the child, which can be found by now, is to have of its parent.
    end_fork: EndFork {
        /// The parent.
        process: Pid,
        /// The child.
        child: Pid,
    } -> EndForkReply, Low;

    /// The home tells replicas which process-directed signals are waiting to be taken.
    pending: PendingSignals {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Signals for the process that wait.
        pending: PendingSet,
    } -> (), High;

    /// A thread that could take one of these process-directed signals asks the home for it, and hears which are left. If it `acts`, what
    /// the signal does to the process by default has been done.
    take_signal: TakeSignal {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Signals that the thread would take.
        wanted: SignalSet,
        /// Whether the default action is done at home: stop, or end of the process.
        acts: bool,
    } -> (Option<Taken>, PendingSet), Low;

    /// Signals that were taken for a read of a signalfd that was interrupted meanwhile wait at the home again.
    put_back: PutBack {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The signals, with what they carry.
        signals: Vec<Taken>,
    } -> (), Low;

    /// A child at home on the sender has changed; the parent's home wakes its waiters and sends SIGCHLD.
    /// Answers whether the child may be forgotten at once (nobody will wait for it). `order` numbers a child's changes:
    /// one that comes after a later one (and whatever comes after the end) is out of date.
    child: ChildChanged {
        /// The parent, at home on the receiver.
        parent: Pid,
        /// The child.
        child: Pid,
        /// The child's process group.
        group: Pid,
        /// The child's real user id (`si_uid`).
        uid: u32,
        /// What happened to it.
        event: ChildEvent,
        /// Counts the child's changes.
        order: u64,
        /// What it has used, with its own children.
        usage: Usage,
    } -> bool, Low;

    /// The parent's home notes its `new` child, unless it has handed out its children already (false); or that a child is in
    /// another group now, if there is still such a child.
    adopt: AdoptChild {
        /// The parent, at home on the receiver.
        parent: Pid,
        /// The child.
        child: Pid,
        /// Its process group, for waits for a group.
        group: Pid,
        /// Signal that the parent gets when it ends; 0: none.
        exit_signal: u8,
        /// It was just born, not put into another group.
        new: bool,
    } -> bool, Low;

    /// wait4, waitid: waits at the parent's home until a child has something to report; None if `poll`
    /// and nothing has. ECHILD without children.
    wait: Wait {
        /// The process that waits.
        parent: Pid,
        /// By id or group.
        which: WaitFor,
        /// By the signal of their end.
        kind: WaitKind,
        /// WEXITED.
        exited: bool,
        /// WSTOPPED (WUNTRACED).
        stopped: bool,
        /// WCONTINUED.
        continued: bool,
        /// WNOWAIT: it stays waitable.
        keep: bool,
        /// WNOHANG.
        poll: bool,
    } -> errno::Result<Option<WaitAnswer>>, Low;

    /// The waited-for child is told that its zombie may go.
    reap: Reap {
        /// The child that was waited for.
        child: Pid,
    } -> (), Low;

    /// The parent is gone: the child gets a new one.
    reparent: Reparent {
        /// The child, at home on the receiver.
        child: Pid,
        /// Its new parent.
        parent: Pid,
    } -> Reparented, Low;

    /// setpgid, setsid and their questions, answered by the process's home.
    set_group: SetGroup {
        /// The process that gets a new group.
        process: Pid,
        /// The group; equal to `process`: a new one.
        group: Pid,
        /// The process that asks.
        caller: Pid,
        /// Its session.
        session: Pid,
    } -> errno::Result<()>, Low;

    /// The session of a process group with a member at home on the receiver. Asked of every kernel.
    find_group: FindGroup {
        /// The process group.
        group: Pid,
    } -> Option<Pid>, Low;

    /// Is the signal blocked by one of these threads of a process? Yes also for one that is not there: whoever asks
    /// wants to know whether it may be dropped.
    ask_blocked: AskBlocked {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Which of its threads.
        threads: Vec<Pid>,
        /// The signal that they may block.
        signal: Signal,
    } -> bool, High;

    /// Would a thread not notice the signal, ignored by its process or blocked by it? Asked where it may be, and
    /// passed on to where it went.
    ask_ignores: AskIgnores {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that would get it.
        thread: Pid,
        /// The signal that it may ignore.
        signal: Signal,
    } -> bool, Low;

    /// The parents of the processes of a group that are at home on the receiver; and is one of these stopped?
    parents: GroupParents {
        /// The process group.
        group: Pid,
    } -> (Vec<Pid>, bool), Low;

    /// Group and session of a process; asked of its home.
    group_of: GroupOf {
        /// The process (thread group) that this is about.
        process: Pid,
    } -> Option<(Pid, Pid)>, Low;

    /// The primary names the machine.
    set_name: SetName {
        /// setdomainname, not sethostname.
        domain: bool,
        /// The new name.
        name: Vec<u8>,
    } -> (), Low;

    /// The primary, or who boots a kernel, says what time it is and what the machine's names are.
    facts: TellFacts {
        /// What holds from now on, unless a later version is known.
        facts: Facts,
    } -> (), High;

    /// All processes at home on the receiver.
    list: ListProcesses {} -> Vec<Pid>, Low;

    /// Which process a thread id belongs to; asked of the kernel whose range it is in.
    find_thread: FindThread {
        /// The thread's id.
        thread: Pid,
    } -> Option<Pid>, Low;

    /// What a process has used over all kernels, and the children it waited for; or (with `thread`) what one of its
    /// threads has. Asked of its home; EINVAL without such a thread.
    usage: AskUsage {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread; None: the process.
        thread: Option<Pid>,
    } -> errno::Result<(Usage, Usage)>, Low;

    /// Who adopts the children of a process that ends: is this one, at home on the receiver, alive and a subreaper, and
    /// whose child is it? None if it is not there any more.
    ask_heir: AskHeir {
        /// Who would adopt them.
        process: Pid,
    } -> Option<(bool, Pid)>, Low;

    /// A resource limit of another process, at home on the receiver; the old one.
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

    /// oom_score_adj of a process at home on the receiver becomes `adjust`. EACCES if that is less than it may be, unless `privileged`;
    /// with `old_file` (oom_adj) less than it is.
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

    /// Affinity, nice value or policy of a thread, set or read where the thread is; answers what holds now.
    change_scheduling: ChangeScheduling {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that is scheduled otherwise.
        thread: Pid,
        /// What is set, if anything.
        change: SchedulingChange,
        /// Who asks, for permissions.
        sender: Credentials,
    } -> errno::Result<(CpuSet, i8, (u32, u32))>, Low;

    /// Memory is used up on the sender: which process should end, of those with memory on the receiver?
    ask_heaviest: AskHeaviest {} -> Option<Heaviest>, Low;

    /// A thread of user `uid` is about to be born on the sender, within a limit: how many of the user's are on the receiver?
    count_threads: CountThreads {
        /// Real user id.
        uid: u32,
    } -> u64, Low;

    /// It is this one, of all kernels' answers. Answered when its end is under way; true: it is still there, ask again.
    end_heaviest: EndHeaviest {
        /// The process that is to end.
        process: Pid,
    } -> bool, Low;

    /// A kernel where a thread waits for a lock of `thread`, a member of a process at home on the receiver, wants to
    /// hear of its end. Answers all that do. ESRCH if it has ended.
    watch_thread: WatchThread {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that has the lock.
        thread: Pid,
    } -> errno::Result<KernelSet>, Low;

    /// A thread goes on without its memory (execve): locks with an owner that it holds and others wait for are handed over when this is
    /// answered.
    leave_locks: LeaveLocks {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that executes a program.
        thread: Pid,
    } -> (), Low;

    /// A process has got System V semaphores to undo or memory attached at `kernel`, which its home, the receiver, is to
    /// tell of its end.
    note_ipc: NoteIpc {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The kernel that is to be told.
        kernel: KernelId,
    } -> errno::Result<()>, Low;

    /// One process less, at home on `of`, uses the space, which is at home on the receiver (or, with `more`, one more); the last
    /// one's end is the space's.
    space_users: SpaceUsers {
        /// The address space that this is about.
        space: SpaceId,
        /// The home of the processes that are counted.
        of: KernelId,
        /// One more, not one less.
        more: bool,
    } -> (), Low;

    /// The last that the sender knows of a thread is that it went to `dead`, which has died, with its move number `moves`; the
    /// receiver is the home of its process.
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

    /// These spaces had something on a kernel that died: the receiver kills the processes it has in them, and answers when
    /// those at home there are gone.
    end_users: EndUsers {
        /// The address spaces.
        spaces: Vec<SpaceId>,
    } -> (), Low;

    /// Such a space, at home on the receiver, has no users any more: it ends, whatever the count of them says.
    end_space: EndSpace {
        /// The address space that this is about.
        space: SpaceId,
    } -> (), Low;

    /// Answered when the receiver is through with the death of `dead`: nothing there runs in memory that the dead kernel had, or that
    /// had been lent to it.
    mourned: Mourned {
        /// The kernel that is dead.
        dead: KernelId,
    } -> (), Low;

    /// A process has ended whose descriptor table was on a kernel that died, so that none of its files was closed: it has no record
    /// locks any more on files of the receiver.
    end_locks: EndLocks {
        /// The process that ended.
        process: Pid,
    } -> (), Low;

    /// A process joins a sharing group that the receiver keeps, or leaves it.
    sharing_group_member: SharingGroupMember {
        /// Which sharing group.
        sharing_group: SharingGroupId,
        /// The process, which the sender is the home of.
        process: Pid,
        /// It joins, not leaves.
        joins: bool,
    } -> errno::Result<()>, Low;

    /// A change of something that a sharing group has in common; answered when all members have it.
    change_sharing_group: ChangeSharingGroup {
        /// Which sharing group.
        sharing_group: SharingGroupId,
        /// What changes for all members.
        change: Change,
    } -> errno::Result<()>, Low;

    /// The sharing group's keeper has a member, at home on the receiver, changed.
    change_member: ChangeMember {
        /// The member.
        process: Pid,
        /// What changes.
        change: Change,
    } -> errno::Result<()>, Low;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::TableId;

    #[test]
    fn all_of_a_replica_travels() {
        let shared = Shared::first([(1, 2); RESOURCES], b"/bin/true".into());
        let plain = Replica {
            shared,
            space: SpaceId { home: KernelId(1), serial: 2 },
            in_parents_space: false,
            files: TableId { home: KernelId(3), serial: 4 },
            ending: None,
            survivor: None,
            stop_state: StopState::default(),
            pending: PendingSet::default(),
        };
        let full = Replica {
            in_parents_space: true,
            ending: Some(ExitStatus::Code(5)),
            survivor: Some(Survivor { thread: Pid(6), at: 7 }),
            stop_state: StopState { stopped: true, order: 8, continues: 9 },
            pending: PendingSet { set: SignalSet(u64::MAX), version: 10 },
            ..plain.clone()
        };
        for replica in [plain, full] {
            let bytes = postcard::to_allocvec(&replica).unwrap();
            assert_eq!(postcard::from_bytes::<Replica>(&bytes).unwrap(), replica);
        }
    }
}

//! Processes and threads: membership, migration, shared state, signals, waiting.

mod family;
mod shared;
mod signals;
mod thread;

pub use family::*;
pub use shared::*;
pub use signals::*;
pub use thread::*;

use crate::{
    descriptor::TableId,
    fs::Opened,
    vm::{Runs, Touch},
};
use abi::{
    signal::{Signal, SignalInfo, SignalSet, Taken},
    CpuSet, Credentials,
};
use alloc::{borrow::Cow, boxed::Box, vec::Vec};
use machine::{errno, Access, KernelId, KernelSet, Page, Pid, SpaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What is the same on the whole machine but decided by somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Grows with each change.
    pub version: u64,
    /// ns between the epoch and the start of the machine.
    pub realtime_offset: u64,
    /// sethostname(2).
    pub host: Vec<u8>,
    /// setdomainname(2).
    pub domain: Vec<u8>,
}

/// execve ends all threads but this one; also those that are still under way, unless they were born later than `at` (ns
/// of the clock all share).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// The thread that called execve.
    pub thread: Pid,
    /// When execve began.
    pub at: u64,
}

/// What a kernel needs to hold a replica of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// What its threads share, as of now; further changes follow.
    pub shared: Shared,
    /// Its address space.
    pub space: SpaceId,
    /// It is its parent's space (vfork).
    pub in_parents_space: bool,
    /// Its descriptor table.
    pub files: TableId,
    /// The process is ending, with this status; None: it is not.
    pub ending: Option<ExitStatus>,
    /// A thread is in execve, and the others end.
    pub survivor: Option<Survivor>,
    /// Whether it is stopped.
    pub standing: Standing,
    /// Signals for the process that wait.
    pub pending: PendingSet,
}

/// The numbers of a [`Replica`], as they travel: see those of a thread.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Numbers {
    space: u64,
    files: u64,
    order: u64,
    continues: u64,
    pending: u64,
    version: u64,
    space_home: u16,
    files_home: u16,
    in_parents_space: u16,
    stopped: u16,
}

/// What travels of it.
#[derive(Serialize, Deserialize)]
struct Travelling<'a> {
    #[serde(with = "machine::plain")]
    numbers: Numbers,
    shared: Cow<'a, Shared>,
    ending: Option<ExitStatus>,
    survivor: Option<Survivor>,
}

impl Serialize for Replica {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Replica { space, files, standing, pending, .. } = self;
        let numbers = Numbers {
            space: space.serial,
            files: files.serial,
            order: standing.order,
            continues: standing.continues,
            pending: pending.set.0,
            version: pending.version,
            space_home: space.home.0,
            files_home: files.home.0,
            in_parents_space: self.in_parents_space.into(),
            stopped: standing.stopped.into(),
        };
        let (shared, ending, survivor) = (Cow::Borrowed(&self.shared), self.ending, self.survivor);
        Travelling { numbers, shared, ending, survivor }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Replica {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Travelling { numbers, shared, ending, survivor } = Deserialize::deserialize(from)?;
        let Numbers { order, continues, version, .. } = numbers;
        Ok(Replica {
            shared: shared.into_owned(),
            space: SpaceId { home: KernelId(numbers.space_home), serial: numbers.space },
            in_parents_space: numbers.in_parents_space != 0,
            files: TableId { home: KernelId(numbers.files_home), serial: numbers.files },
            ending,
            survivor,
            standing: Standing { stopped: numbers.stopped != 0, order, continues },
            pending: PendingSet { set: SignalSet(numbers.pending), version },
        })
    }
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

/// How sched_setaffinity, setpriority and sched_setscheduler reach a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Tune {
    /// sched_setaffinity. EINVAL if none of the CPUs is there.
    Affinity(CpuSet),
    /// setpriority: from -20 to 19.
    Nice(i8),
    /// sched_setscheduler: SCHED_* and the real-time priority.
    Policy(u32, u32),
    /// What /proc/PID/comm shows.
    Name(Vec<u8>),
    /// Changes nothing; the answer tells what holds.
    Read,
}

/// How a main thread is scheduled that has ended: as long as its process is there it may be asked for, and set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastTuning {
    /// Its real user id, for the permission to change it.
    pub uid: u32,
    /// Its effective user id, for the same.
    pub euid: u32,
    /// sched_getaffinity.
    pub affinity: CpuSet,
    /// getpriority: from -20 to 19.
    pub nice: i8,
    /// sched_getscheduler and sched_getparam: SCHED_* and the real-time priority.
    pub policy: (u32, u32),
}

messages! {
    "process" 0x200;

    /// A kernel about to run its first thread of a process asks the home for a replica; from then on the
    /// home tells it of every change.
    join: Join { process: Pid } -> errno::Result<Replica>, Low;

    /// A thread is about to leave the home for a kernel that it has not counted yet, and is counting now: the replica. `touches`: pages of its
    /// address space that the thread will touch at once, which the home sends with it and may take back from now on.
    hold_replica: HoldReplica { process: Pid, thread: Pid, replica: Box<Replica>, touches: Vec<Touch> } -> (), High;

    /// A replica's first use of the root and the working directory: the home opens both for it. Later changes it is told.
    directories: AskDirectories { process: Pid } -> errno::Result<(Opened, Opened)>, Low;

    /// A thread moves: the kernel it leaves hands it to the kernel it goes to, which answers once the
    /// thread may run there. `pages`: for each touch of [`HoldReplica`] what the home had ready. `touches`: other pages of its address space that
    /// it will touch at once.
    migrate: Migrate {
        process: Pid, home: KernelId, thread: Pid, baggage: Box<Baggage>, pages: Vec<Runs>, space: SpaceId, touches: Vec<(Page, Access)>,
    } -> errno::Result<()>, Low;

    /// The kernel that a thread arrived on tells its home (unless it came from there, where the answer to [`Migrate`] says so), so that
    /// signals find it. `moves` is how often it has moved: what two kernels tell may come in another order than it happened.
    moved: Moved { process: Pid, thread: Pid, to: KernelId, moves: u64 } -> (), High;

    /// A kernel asks the home to change what the threads of a process share; answered when all replicas
    /// have it.
    change: ChangeShared { process: Pid, change: Change } -> errno::Result<()>, Low;

    /// The home tells a replica of a change.
    apply: ApplyChange { process: Pid, change: Change } -> (), High;

    /// A thread made a thread: the home learns of the new member before it runs.
    born: ThreadBorn { process: Pid, thread: Pid, at: KernelId } -> errno::Result<()>, Low;

    /// A thread has ended on the sender; the home drops it, and finishes the process with the last one.
    gone: ThreadGone {
        process: Pid, thread: Pid, name: Vec<u8>, usage: Usage, visited: KernelSet, status: ExitStatus, last: Option<LastTuning>,
    } -> (), Low;

    /// The home tells kernels that a thread left behind that it has ended elsewhere: its shadow goes.
    end_shadow: EndShadow { process: Pid, thread: Pid } -> (), High;

    /// exit_group, or a deadly signal: the home ends every thread.
    end_process: EndProcess { process: Pid, status: ExitStatus } -> (), Low;

    /// execve: the home ends every thread but one, and answers when they are gone. The survivor takes the
    /// process's own id.
    unthread: Unthread { process: Pid, survivor: Pid } -> errno::Result<()>, Low;

    /// The home tells a replica that its threads of the process (all but `survivor`) must end.
    end_threads: EndThreads { process: Pid, status: ExitStatus, survivor: Option<Survivor> } -> (), High;

    /// The home tells a replica that the process is no more.
    drop_replica: DropReplica { process: Pid } -> (), High;

    /// A thread has taken a stop that was sent after `continues` SIGCONTs. The home stops the process, unless it was sent
    /// another SIGCONT since.
    stop_process: StopProcess { process: Pid, signal: Signal, continues: u64 } -> (), Low;

    /// The home tells a replica whether the threads of the process are stopped, and that stops sent before the last SIGCONT
    /// are void.
    set_stopped: SetStopped { process: Pid, standing: Standing, pending: PendingSet } -> (), High;

    /// A stop or SIGCONT is sent to a thread: the home continues the process if it must, and answers the number of the
    /// last SIGCONT.
    sending: Sending { process: Pid, signal: Signal } -> u64, Low;

    /// A signal for a process, sent to its home. `sender` is checked for permission there. Not behind requests, so that those
    /// who ask too much can be killed.
    signal_process: SignalProcess { process: Pid, info: Option<SignalInfo>, sender: Option<Credentials> } -> errno::Result<()>, High;

    /// A signal for one thread, sent to the home of its process and on to where the thread is. `continues` once it has had
    /// the effects of being sent: the number of the last SIGCONT. `ignorings` once it has been where its process is: how many changes had
    /// made a signal ignored.
    signal_thread: SignalThread {
        process: Pid, thread: Pid, info: Option<SignalInfo>, sender: Option<Credentials>, continues: Option<u64>, ignorings: Option<u64>,
    } -> errno::Result<()>, Low;

    /// A signal for all processes of a group (or, without one, for everybody but init and the sender) that
    /// are at home on the receiver, and that this round has not come to; answers how many there were and how many could be signalled.
    signal_group: SignalGroup {
        group: Option<Pid>, signal: Option<RoundSignal>, sender: Option<Credentials>, except: Pid,
    } -> (u32, u32), Low;

    /// A thread is about to fork, unless signals that it does not block are first.
    birth_begins: BirthBegins { process: Pid, child: Pid, blocked: SignalSet } -> errno::Result<BirthStart>, Low;

    /// The fork is over; answers what the child, which can be found by now, is to have of its parent.
    birth_ends: BirthEnds { process: Pid, child: Pid } -> BirthNews, Low;

    /// The home tells replicas which process-directed signals are waiting to be taken.
    pending: PendingSignals { process: Pid, pending: PendingSet } -> (), High;

    /// A thread that could take one of these process-directed signals asks the home for it, and hears which are left. If it `acts`, what
    /// the signal does to the process by default has been done.
    take_signal: TakeSignal { process: Pid, wanted: SignalSet, acts: bool } -> (Option<Taken>, PendingSet), Low;

    /// Signals that were taken for a read of a signalfd that was interrupted meanwhile wait at the home again.
    put_back: PutBack { process: Pid, signals: Vec<Taken> } -> (), Low;

    /// A child at home on the sender has changed; the parent's home wakes its waiters and sends SIGCHLD.
    /// Answers whether the child may be forgotten at once (nobody will wait for it). `order` numbers a child's changes:
    /// one that comes after a later one (and whatever comes after the end) is out of date.
    child: ChildChanged { parent: Pid, child: Pid, group: Pid, uid: u32, event: ChildEvent, order: u64, usage: Usage }
        -> bool, Low;

    /// The parent's home notes its `new` child, unless it has handed out its children already (false); or that a child is in
    /// another group now, if there is still such a child.
    adopt: AdoptChild { parent: Pid, child: Pid, group: Pid, exit_signal: u8, new: bool } -> bool, Low;

    /// wait4, waitid: waits at the parent's home until a child has something to report; None if `poll`
    /// and nothing has. ECHILD without children.
    wait: Wait { parent: Pid, which: WaitFor, kind: WaitKind, exited: bool, stopped: bool, continued: bool, keep: bool, poll: bool }
        -> errno::Result<Option<WaitAnswer>>, Low;

    /// The waited-for child is told that its zombie may go.
    reap: Reap { child: Pid } -> (), Low;

    /// The parent is gone: the child gets a new one.
    reparent: Reparent { child: Pid, parent: Pid } -> Reparented, Low;

    /// setpgid, setsid and their questions, answered by the process's home.
    set_group: SetGroup { process: Pid, group: Pid, caller: Pid, session: Pid } -> errno::Result<()>, Low;

    /// The session of a process group with a member at home on the receiver. Asked of every kernel.
    find_group: FindGroup { group: Pid } -> Option<Pid>, Low;

    /// Is the signal blocked by one of these threads of a process? Yes also for one that is not there: whoever asks
    /// wants to know whether it may be dropped.
    ask_blocked: AskBlocked { process: Pid, threads: Vec<Pid>, signal: Signal } -> bool, High;

    /// Would a thread not notice the signal, ignored by its process or blocked by it? Asked where it may be, and
    /// passed on to where it went.
    ask_ignores: AskIgnores { process: Pid, thread: Pid, signal: Signal } -> bool, Low;

    /// The parents of the processes of a group that are at home on the receiver; and is one of these stopped?
    parents: GroupParents { group: Pid } -> (Vec<Pid>, bool), Low;

    /// Group and session of a process; asked of its home.
    group_of: GroupOf { process: Pid } -> Option<(Pid, Pid)>, Low;

    /// The primary names the machine.
    set_name: SetName { domain: bool, name: Vec<u8> } -> (), Low;

    /// The primary, or who boots a kernel, says what time it is and what the machine's names are.
    facts: TellFacts { facts: Facts } -> (), High;

    /// All processes at home on the receiver.
    list: ListProcesses {} -> Vec<Pid>, Low;

    /// Which process a thread id belongs to; asked of the kernel whose range it is in.
    find_thread: FindThread { thread: Pid } -> Option<Pid>, Low;

    /// What a process has used over all kernels, and the children it waited for; or (with `thread`) what one of its
    /// threads has. Asked of its home; EINVAL without such a thread.
    usage: AskUsage { process: Pid, thread: Option<Pid> } -> errno::Result<(Usage, Usage)>, Low;

    /// Who adopts the children of a process that ends: is this one, at home on the receiver, alive and a subreaper, and
    /// whose child is it? None if it is not there any more.
    ask_heir: AskHeir { process: Pid } -> Option<(bool, Pid)>, Low;

    /// A resource limit of another process, at home on the receiver; the old one.
    limit: ProcessLimit { process: Pid, resource: u32, new: Option<(u64, u64)>, sender: Credentials, own: bool } -> errno::Result<(u64, u64)>, Low;

    /// oom_score_adj of a process at home on the receiver becomes `adjust`. EACCES if that is less than it may be, unless `privileged`;
    /// with `old_file` (oom_adj) less than it is.
    adjust_oom: AdjustOom { process: Pid, adjust: i16, old_file: bool, privileged: bool } -> errno::Result<()>, Low;

    /// Affinity, nice value or policy of a thread, set or read where the thread is; answers what holds now.
    tune: TuneThread { process: Pid, thread: Pid, tune: Tune, sender: Credentials } -> errno::Result<(CpuSet, i8, (u32, u32))>, Low;

    /// Memory is used up on the sender: which process should end, of those with memory on the receiver?
    ask_heaviest: AskHeaviest {} -> Option<Heaviest>, Low;

    /// A thread of user `uid` is about to be born on the sender, within a limit: how many of the user's are on the receiver?
    count_threads: CountThreads { uid: u32 } -> u64, Low;

    /// It is this one, of all kernels' answers. Answered when its end is under way; true: it is still there, ask again.
    end_heaviest: EndHeaviest { process: Pid } -> bool, Low;

    /// A kernel where a thread waits for a lock of `thread`, a member of a process at home on the receiver, wants to
    /// hear of its end. Answers all that do. ESRCH if it has ended.
    watch_thread: WatchThread { process: Pid, thread: Pid } -> errno::Result<KernelSet>, Low;

    /// A thread goes on without its memory (execve): locks with an owner that it holds and others wait for are handed over when this is
    /// answered.
    leave_locks: LeaveLocks { process: Pid, thread: Pid } -> (), Low;

    /// A process has got System V semaphores to undo or memory attached at `kernel`, which its home, the receiver, is to
    /// tell of its end.
    note_ipc: NoteIpc { process: Pid, kernel: KernelId } -> errno::Result<()>, Low;

    /// One process less, at home on `of`, uses the space, which is at home on the receiver (or, with `more`, one more); the last
    /// one's end is the space's.
    space_users: SpaceUsers { space: SpaceId, of: KernelId, more: bool } -> (), Low;

    /// The last that the sender knows of a thread is that it went to `dead`, which has died, with its move number `moves`; the
    /// receiver is the home of its process.
    thread_lost: ThreadLost { process: Pid, thread: Pid, dead: KernelId, moves: u64 } -> (), Low;

    /// These spaces had something on a kernel that died: the receiver kills the processes it has in them, and answers when
    /// those at home there are gone.
    end_users: EndUsers { spaces: Vec<SpaceId> } -> (), Low;

    /// Such a space, at home on the receiver, has no users any more: it ends, whatever the count of them says.
    end_space: EndSpace { space: SpaceId } -> (), Low;

    /// Answered when the receiver is through with the death of `dead`: nothing there runs in memory that the dead kernel had, or that
    /// had been lent to it.
    mourned: Mourned { dead: KernelId } -> (), Low;

    /// A process has ended whose descriptor table was on a kernel that died, so that none of its files was closed: it has no record
    /// locks any more on files of the receiver.
    end_locks: EndLocks { process: Pid } -> (), Low;

    /// A process joins a circle that the receiver keeps, or leaves it.
    circle_member: CircleMember { circle: CircleId, process: Pid, joins: bool } -> errno::Result<()>, Low;

    /// A change of something that a circle has in common; answered when all members have it.
    change_circle: ChangeCircle { circle: CircleId, change: Change } -> errno::Result<()>, Low;

    /// The circle's keeper has a member, at home on the receiver, changed.
    change_member: ChangeMember { process: Pid, change: Change } -> errno::Result<()>, Low;
}

#[cfg(test)]
mod tests {
    use super::*;

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
            standing: Standing::default(),
            pending: PendingSet::default(),
        };
        let full = Replica {
            in_parents_space: true,
            ending: Some(ExitStatus::Code(5)),
            survivor: Some(Survivor { thread: Pid(6), at: 7 }),
            standing: Standing { stopped: true, order: 8, continues: 9 },
            pending: PendingSet { set: SignalSet(u64::MAX), version: 10 },
            ..plain.clone()
        };
        for replica in [plain, full] {
            let bytes = postcard::to_allocvec(&replica).unwrap();
            assert_eq!(postcard::from_bytes::<Replica>(&bytes).unwrap(), replica);
        }
    }
}

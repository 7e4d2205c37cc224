//! The table of trace points. docs/trace-events.md is made from it (`cargo run -q -p trace --example table > docs/trace-events.md`).
//!
//! A new point goes at the end of its group, and the code at its place calls the function of its name. Nothing else need be changed: the host
//! knows the table. Fields lie in a record in the order of the row (pack.rs).

use crate::{Field, Kind, PointInfo};

macro_rules! bits {
    (u8) => {
        8
    };
    (u16) => {
        16
    };
    (u32) => {
        32
    };
    (u64) => {
        64
    };
    (bytes) => {
        0
    };
}

macro_rules! argument {
    (bytes) => {
        &[u8]
    };
    ($type:ident) => {
        $type
    };
}

macro_rules! put {
    ($packer:ident, bytes, $value:ident) => {
        $packer.put_text($value)
    };
    ($packer:ident, $type:ident, $value:ident) => {
        $packer.put(u64::from($value), bits!($type))
    };
}

macro_rules! points {
    ($($group:ident $group_name:literal $group_about:literal {
        $($(#[doc = $about:literal])* $point:ident $name:ident($($field:ident: $type:ident $kind:ident),* $(,)?);)*
    })*) => {
        /// Points that are switched on together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Group {
            $(#[doc = $group_about] $group,)*
        }

        impl Group {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Group] = &[$(Group::$group,)*];

            /// As lists of events name it.
            pub fn name(self) -> &'static str {
                match self { $(Group::$group => $group_name,)* }
            }

            /// What its points tell.
            pub fn about(self) -> &'static str {
                match self { $(Group::$group => $group_about,)* }
            }
        }

        /// A trace point. At most 64, of which one bit each says whether it is on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Point {
            $($($(#[doc = $about])* $point,)*)*
        }

        /// The table, by point.
        pub static POINTS: &[PointInfo] = &[$($(PointInfo {
            point: Point::$point,
            name: stringify!($name),
            group: Group::$group,
            about: concat!($($about),*),
            fields: &[$(Field { name: stringify!($field), bits: bits!($type), kind: Kind::$kind },)*],
        },)*)*];

        /// Whether a point is on, for places that prepare what they record.
        pub mod on {
            $($(
                $(#[doc = $about])*
                #[inline(always)]
                pub fn $name() -> bool {
                    crate::enabled::is_on::<{ super::Point::$point as u32 }>()
                }
            )*)*
        }

        $($(
            $(#[doc = $about])*
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "a row of the table has as many fields as it needs")]
            pub fn $name($($field: argument!($type)),*) {
                #[cold]
                #[inline(never)]
                #[allow(clippy::too_many_arguments, reason = "a row of the table has as many fields as it needs")]
                fn pack($($field: argument!($type)),*) {
                    #[allow(unused_mut, reason = "there are points without a field")]
                    let mut packer = crate::Packer::<{ crate::words_of(&[$(bits!($type)),*]) }>::default();
                    $(put!(packer, $type, $field);)*
                    crate::record(Point::$point, packer.words());
                }
                if self::on::$name() {
                    pack($($field),*);
                }
            }
        )*)*
    };
}

points! {
    Trace "trace" "The trace itself. Always on." {
        /// Events were lost on this CPU before this one, because the ring was full.
        LostEvents lost_events(count: u64 Number);
        /// The name of a thread and its process: as tracing begins, at fork, execve, and when a thread is given a name or comes to a kernel.
        ThreadName thread_name(tid: u32 Tid, pid: u32 Tid, comm: bytes Text);
        /// From here on other points are on than before: bit N is point N. What happened meanwhile was not recorded.
        Recording recording(points: u64 Hex);
        /// A program wrote this to /sys/kernel/tracing/trace_marker.
        Marker marker(tid: u32 For, text: bytes Text);
    }
    Sched "sched" "Who has which CPU, who wakes whom, and where threads go." {
        /// A CPU goes from one task to another. All work that a kernel does for itself counts as one task, and so does idling. `next_prio` is that of Linux: 120 and the nice value, or 99 less a real-time priority; 0 of what is no thread.
        SchedSwitch sched_switch(prev_tid: u32 Tid, next_tid: u32 Tid, next_prio: u8 Number, prev_state: u8 State);
        /// A thread that waited can go on, and waits for this CPU now; `waker_tid` made it so.
        SchedWakeup sched_wakeup(tid: u32 Tid, waker_tid: u32 For, target_cpu: u16 Cpu);
        /// A thread that waits for a CPU goes to the queue of another one of its kernel.
        SchedMigrateTask sched_migrate_task(tid: u32 Tid, orig_cpu: u16 Cpu, dest_cpu: u16 Cpu);
        /// A thread leaves for another kernel, with its `moves`th move.
        ThreadLeave thread_leave(tid: u32 Tid, moves: u32 Number, to: u16 Kernel);
        /// A thread has arrived from another kernel; `moves` is that of its leaving.
        ThreadArrive thread_arrive(tid: u32 Tid, moves: u32 Number, from: u16 Kernel);
        /// A thread makes another one, of its process or of a new one.
        SchedProcessFork sched_process_fork(parent_tid: u32 Tid, child_tid: u32 Tid, child_pid: u32 Tid);
        /// A process runs another program.
        SchedProcessExec sched_process_exec(tid: u32 Tid, filename: bytes Text);
        /// A thread ends.
        SchedProcessExit sched_process_exit(tid: u32 Tid);
    }
    Syscall "syscall" "System calls in and out." {
        /// A thread begins a system call.
        SyscallEntry syscall_entry(
            nr: u32 Syscall, tid: u32 Tid,
            a0: u64 Hex, a1: u64 Hex, a2: u64 Hex, a3: u64 Hex, a4: u64 Hex, a5: u64 Hex,
        );
        /// It ends, with this result; -4 (EINTR) may become a restart.
        SyscallExit syscall_exit(nr: u32 Syscall, tid: u32 Tid, ret: u64 Signed);
    }
    Fault "fault" "Page faults of programs." {
        /// A program touches a page that its page table does not allow. `access`: 1 read, 2 write, 4 execute.
        PageFaultUser page_fault_user(address: u64 Hex, tid: u32 Tid, access: u8 Number);
        /// The fault is over. `outcome`: 0 the page is there, 1 a signal, 2 the thread ends.
        FaultDone fault_done(address: u64 Hex, tid: u32 Tid, outcome: u8 Number);
    }
    Message "message" "What kernels say to each other." {
        /// A message goes out, for the thread `tid` (0: for the kernel). With `to`, `role` and `id` it is found at its receiver.
        MessageSend message_send(id: u64 Hex, tid: u32 For, bytes: u32 Number, to: u16 Kernel, kind: u16 Message, role: u8 Role);
        /// A message has come out of its lane.
        MessageReceive message_receive(id: u64 Hex, tid: u32 For, from: u16 Kernel, kind: u16 Message, role: u8 Role);
        /// The handler of a request or notice begins.
        HandlerBegin handler_begin(id: u64 Hex, from: u16 Kernel, kind: u16 Message);
        /// The handler has ended, or waits from now on as a task. `outcome`: 0 it has answered, 1 it waits, 2 it was refused.
        HandlerEnd handler_end(id: u64 Hex, from: u16 Kernel, kind: u16 Message, outcome: u8 Number);
        /// A handler that waited has ended. `outcome`: 0 it answers, 3 the caller had cancelled it.
        HandlerDone handler_done(id: u64 Hex, from: u16 Kernel, kind: u16 Message, outcome: u8 Number);
        /// A CPU of another kernel is interrupted, because messages lie in its lanes.
        DoorbellRing doorbell_ring(to: u16 Kernel);
    }
    Irq "irq" "Interrupts." {
        /// This CPU was interrupted for these events. `events`: 1 timer, 2 doorbell, 4 another CPU of this kernel, 8 a device.
        IrqEvents irq_events(events: u32 Hex);
    }
    Lock "lock" "Spin locks of a kernel that were taken." {
        /// A CPU begins to wait for a lock that another one holds.
        ContentionBegin contention_begin(lock_addr: u64 Hex);
        /// It has the lock.
        ContentionEnd contention_end(lock_addr: u64 Hex);
    }
    Memory "memory" "Memory pressure." {
        /// A kernel runs out of memory: its threads wait until some has come back.
        MemoryShort memory_short(free_pages: u64 Number);
        /// It has enough again.
        MemoryRelieved memory_relieved(free_pages: u64 Number);
    }
    Timer "timer" "Timers." {
        /// A CPU wakes those whose time has come.
        TimerExpire timer_expire(due: u64 Number);
    }
    Umt "umt" "User-monitored threads. CPUs are counted in their kernel." {
        /// A thread asks to be monitored (`requested` 1) or no more (0), and was so before or not (`active`).
        UmtActivate umt_activate(tid: u32 Tid, active: u8 Number, requested: u8 Number);
        /// A monitored thread leaves this CPU, because it waits, ends or goes to another kernel.
        UmtBlock umt_block(tid: u32 Tid, index: u16 Number);
        /// A monitored thread can use this CPU.
        UmtUnblock umt_unblock(tid: u32 Tid, index: u16 Number);
        /// A monitored thread that could go on has come from another CPU: a block there, an unblock here.
        UmtMove umt_move(tid: u32 Tid, old: u16 Number, new: u16 Number);
    }
    Block "block" "Requests of disks, on the kernel that has the disk. `sector` and `nr_sector` count 512 bytes." {
        /// The thread `tid` wants blocks of a disk: a request for them waits in the queue.
        BlockRqInsert block_rq_insert(sector: u64 Number, dev: u32 Device, nr_sector: u32 Number, tid: u32 For, rwbs: u16 Operation);
        /// These blocks were added to the end of a request that waits, or to a flush that does.
        BlockBioBackmerge block_bio_backmerge(sector: u64 Number, dev: u32 Device, nr_sector: u32 Number, tid: u32 For, rwbs: u16 Operation);
        /// These were put before the first of one.
        BlockBioFrontmerge block_bio_frontmerge(sector: u64 Number, dev: u32 Device, nr_sector: u32 Number, tid: u32 For, rwbs: u16 Operation);
        /// This request was joined to the one before it, which ends where this one begins.
        BlockRqMerge block_rq_merge(sector: u64 Number, dev: u32 Device, nr_sector: u32 Number, tid: u32 For, rwbs: u16 Operation);
        /// The device gets a request. `tid` wanted it first.
        BlockRqIssue block_rq_issue(sector: u64 Number, dev: u32 Device, nr_sector: u32 Number, tid: u32 For, rwbs: u16 Operation);
        /// The device has answered. `error` is 0, or the error number less than 0.
        BlockRqComplete block_rq_complete(
            sector: u64 Number, error: u64 Signed, dev: u32 Device, nr_sector: u32 Number, tid: u32 For, rwbs: u16 Operation,
        );
    }
    Profile "profile" "What `cob profile` asks for. Not in `all`." {
        /// Where this CPU was when the host asked, and what it is of: `ticks` samples, for so often has the host asked since the last one. `pc`, `sp` and `fp` (program counter, stack and frame pointer) are those of the kernel, or 0: the CPU was in user mode; `user_pc`, `user_sp` and `user_fp` those with which the thread last left user mode, or 0: there is no thread, or it has not been in user mode on this kernel. `words` and `user_words` of both stacks follow.
        Sample sample(
            space: u64 Number, pc: u64 Hex, sp: u64 Hex, fp: u64 Hex, user_pc: u64 Hex, user_sp: u64 Hex, user_fp: u64 Hex,
            tid: u32 Tid, ticks: u32 Number, words: u16 Number, user_words: u16 Number, home: u16 Kernel,
        );
        /// A piece of the stack of the sample before, from `address` on: the words behind this field.
        StackPiece stack_piece(address: u64 Hex);
        /// The address space `space` of kernel `home` has a file's pages at `start`, to be executed, from byte `offset` of the file on. A long path comes in parts, counted from 0.
        MapFile map_file(
            space: u64 Number, start: u64 Hex, length: u64 Hex, offset: u64 Hex, home: u16 Kernel, part: u8 Number, path: bytes Text,
        );
        /// The space `child` begins as a copy of `parent`.
        ForkSpace fork_space(parent: u64 Number, child: u64 Number, parent_home: u16 Kernel, child_home: u16 Kernel);
    }
}

const _: () = assert!(POINTS.len() <= 64);

/// Points that are on whenever anything is.
pub const ALWAYS: u64 =
    Point::LostEvents.bit() | Point::ThreadName.bit() | Point::Recording.bit() | Point::Marker.bit();

impl Point {
    /// The point with this number.
    pub fn from_number(number: u8) -> Option<Point> {
        POINTS.get(usize::from(number)).map(|info| info.point)
    }

    /// Its row.
    pub fn info(self) -> &'static PointInfo {
        &POINTS[self as usize]
    }

    /// Its bit in what [`enable`](crate::enable) takes.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

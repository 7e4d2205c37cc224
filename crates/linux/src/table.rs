//! The system call table: number, name, function. Dispatch, names and the list in `docs/` come from here.
//!
//! A number that is not in the table answers ENOSYS, and is named in the log once per program.

use crate::{
    call::Call,
    files::{
        access, attributes, descriptor, directory, epoll, event, fcntl, inotify, ioctl, mount, name, open, pipe, poll,
        read, select, signalfd, socket, splice, stat, storage, vmsplice, write, xattr,
    },
    futex::futex,
    ipc, memory, mlock,
    process::{
        clone, credentials, end, exec, group, limits, memory as process_memory, pidfd, prctl, schedule, signals,
    },
    rseq::rseq,
    system,
    time::{clock, itimer, posix, sleep},
};
use alloc::string::String;
use core::fmt::Write;
use machine::{errno::Result, Errno};

macro_rules! system_calls {
    ($($number:literal $name:ident => $function:path;)*) => {
        /// Runs the call; None if there is no such call.
        pub(crate) async fn dispatch(number: u64, call: &mut Call<'_>) -> Option<Result<u64>> {
            Some(match number {
                // Pinned where it is made: `.await` alone would copy the call's whole state once more.
                $($number => core::pin::pin!($function(call)).await,)*
                _ => return None,
            })
        }

        const IMPLEMENTED: &[(u64, &str)] = &[$(($number, stringify!($name)),)*];
    };
}

system_calls! {
    0 read => read::read;
    1 write => write::write;
    2 open => open::open;
    3 close => descriptor::close;
    4 stat => stat::stat;
    5 fstat => stat::fstat;
    6 lstat => stat::lstat;
    7 poll => poll::poll;
    8 lseek => read::lseek;
    9 mmap => memory::mmap;
    10 mprotect => memory::mprotect;
    11 munmap => memory::munmap;
    12 brk => memory::brk;
    13 rt_sigaction => signals::rt_sigaction;
    14 rt_sigprocmask => signals::rt_sigprocmask;
    15 rt_sigreturn => signals::rt_sigreturn;
    16 ioctl => ioctl::ioctl;
    17 pread64 => read::pread64;
    18 pwrite64 => write::pwrite64;
    19 readv => read::readv;
    20 writev => write::writev;
    21 access => access::access;
    22 pipe => pipe::pipe;
    23 select => select::select;
    24 sched_yield => schedule::sched_yield;
    25 mremap => memory::mremap;
    26 msync => memory::msync;
    27 mincore => memory::mincore;
    28 madvise => memory::madvise;
    29 shmget => ipc::memory::shmget;
    30 shmat => ipc::memory::shmat;
    31 shmctl => ipc::memory::shmctl;
    32 dup => descriptor::dup;
    33 dup2 => descriptor::dup2;
    34 pause => signals::pause;
    35 nanosleep => sleep::nanosleep;
    36 getitimer => itimer::getitimer;
    37 alarm => itimer::alarm;
    38 setitimer => itimer::setitimer;
    39 getpid => clone::getpid;
    40 sendfile => splice::sendfile;
    41 socket => socket::socket;
    42 connect => socket::connect;
    43 accept => socket::accept;
    44 sendto => socket::message::sendto;
    45 recvfrom => socket::message::recvfrom;
    46 sendmsg => socket::message::sendmsg;
    47 recvmsg => socket::message::recvmsg;
    48 shutdown => socket::shutdown;
    49 bind => socket::bind;
    50 listen => socket::listen;
    51 getsockname => socket::getsockname;
    52 getpeername => socket::getpeername;
    53 socketpair => socket::socketpair;
    54 setsockopt => socket::setsockopt;
    55 getsockopt => socket::getsockopt;
    56 clone => clone::clone;
    57 fork => clone::fork;
    58 vfork => clone::vfork;
    59 execve => exec::execve;
    60 exit => end::exit;
    61 wait4 => end::wait4;
    62 kill => signals::kill;
    63 uname => system::uname;
    64 semget => ipc::semaphores::semget;
    65 semop => ipc::semaphores::semop;
    66 semctl => ipc::semaphores::semctl;
    67 shmdt => ipc::memory::shmdt;
    68 msgget => ipc::messages::msgget;
    69 msgsnd => ipc::messages::msgsnd;
    70 msgrcv => ipc::messages::msgrcv;
    71 msgctl => ipc::messages::msgctl;
    72 fcntl => fcntl::fcntl;
    73 flock => fcntl::flock;
    74 fsync => storage::fsync;
    75 fdatasync => storage::fdatasync;
    76 truncate => attributes::truncate;
    77 ftruncate => attributes::ftruncate;
    78 getdents => directory::getdents;
    79 getcwd => directory::getcwd;
    80 chdir => directory::chdir;
    81 fchdir => directory::fchdir;
    82 rename => name::rename;
    83 mkdir => name::mkdir;
    84 rmdir => name::rmdir;
    85 creat => open::creat;
    86 link => name::link;
    87 unlink => name::unlink;
    88 symlink => name::symlink;
    89 readlink => name::readlink;
    90 chmod => attributes::chmod;
    91 fchmod => attributes::fchmod;
    92 chown => attributes::chown;
    93 fchown => attributes::fchown;
    94 lchown => attributes::lchown;
    95 umask => attributes::umask;
    96 gettimeofday => clock::gettimeofday;
    97 getrlimit => limits::getrlimit;
    98 getrusage => end::getrusage;
    99 sysinfo => system::sysinfo;
    100 times => end::times;
    102 getuid => credentials::getuid;
    104 getgid => credentials::getgid;
    105 setuid => credentials::setuid;
    106 setgid => credentials::setgid;
    107 geteuid => credentials::geteuid;
    108 getegid => credentials::getegid;
    109 setpgid => group::setpgid;
    110 getppid => clone::getppid;
    111 getpgrp => group::getpgrp;
    112 setsid => group::setsid;
    113 setreuid => credentials::setreuid;
    114 setregid => credentials::setregid;
    115 getgroups => credentials::getgroups;
    116 setgroups => credentials::setgroups;
    117 setresuid => credentials::setresuid;
    118 getresuid => credentials::getresuid;
    119 setresgid => credentials::setresgid;
    120 getresgid => credentials::getresgid;
    121 getpgid => group::getpgid;
    122 setfsuid => credentials::setfsuid;
    123 setfsgid => credentials::setfsgid;
    124 getsid => group::getsid;
    125 capget => credentials::capget;
    126 capset => credentials::capset;
    127 rt_sigpending => signals::rt_sigpending;
    128 rt_sigtimedwait => signals::rt_sigtimedwait;
    129 rt_sigqueueinfo => signals::rt_sigqueueinfo;
    130 rt_sigsuspend => signals::rt_sigsuspend;
    131 sigaltstack => signals::sigaltstack;
    132 utime => attributes::utime;
    133 mknod => name::mknod;
    135 personality => prctl::personality;
    137 statfs => stat::statfs;
    138 fstatfs => stat::fstatfs;
    140 getpriority => schedule::getpriority;
    141 setpriority => schedule::setpriority;
    142 sched_setparam => schedule::sched_setparam;
    143 sched_getparam => schedule::sched_getparam;
    144 sched_setscheduler => schedule::sched_setscheduler;
    145 sched_getscheduler => schedule::sched_getscheduler;
    146 sched_get_priority_max => schedule::sched_get_priority_max;
    147 sched_get_priority_min => schedule::sched_get_priority_min;
    148 sched_rr_get_interval => schedule::sched_rr_get_interval;
    149 mlock => mlock::mlock;
    150 munlock => mlock::munlock;
    151 mlockall => mlock::mlockall;
    152 munlockall => mlock::munlockall;
    157 prctl => prctl::prctl;
    158 arch_prctl => prctl::arch_prctl;
    160 setrlimit => limits::setrlimit;
    161 chroot => directory::chroot;
    162 sync => storage::sync;
    164 settimeofday => clock::settimeofday;
    165 mount => mount::mount;
    166 umount2 => mount::umount2;
    170 sethostname => system::sethostname;
    171 setdomainname => system::setdomainname;
    186 gettid => clone::gettid;
    187 readahead => storage::readahead;
    188 setxattr => xattr::setxattr;
    189 lsetxattr => xattr::lsetxattr;
    190 fsetxattr => xattr::fsetxattr;
    191 getxattr => xattr::getxattr;
    192 lgetxattr => xattr::lgetxattr;
    193 fgetxattr => xattr::fgetxattr;
    194 listxattr => xattr::listxattr;
    195 llistxattr => xattr::llistxattr;
    196 flistxattr => xattr::flistxattr;
    197 removexattr => xattr::removexattr;
    198 lremovexattr => xattr::lremovexattr;
    199 fremovexattr => xattr::fremovexattr;
    200 tkill => signals::tkill;
    201 time => clock::time;
    202 futex => futex;
    203 sched_setaffinity => schedule::sched_setaffinity;
    204 sched_getaffinity => schedule::sched_getaffinity;
    213 epoll_create => epoll::epoll_create;
    217 getdents64 => directory::getdents64;
    218 set_tid_address => clone::set_tid_address;
    220 semtimedop => ipc::semaphores::semtimedop;
    221 fadvise64 => storage::fadvise64;
    222 timer_create => posix::timer_create;
    223 timer_settime => posix::timer_settime;
    224 timer_gettime => posix::timer_gettime;
    225 timer_getoverrun => posix::timer_getoverrun;
    226 timer_delete => posix::timer_delete;
    227 clock_settime => clock::clock_settime;
    228 clock_gettime => clock::clock_gettime;
    229 clock_getres => clock::clock_getres;
    230 clock_nanosleep => sleep::clock_nanosleep;
    231 exit_group => end::exit_group;
    232 epoll_wait => epoll::epoll_wait;
    233 epoll_ctl => epoll::epoll_ctl;
    234 tgkill => signals::tgkill;
    235 utimes => attributes::utimes;
    247 waitid => end::waitid;
    253 inotify_init => inotify::inotify_init;
    254 inotify_add_watch => inotify::inotify_add_watch;
    255 inotify_rm_watch => inotify::inotify_rm_watch;
    257 openat => open::openat;
    258 mkdirat => name::mkdirat;
    259 mknodat => name::mknodat;
    260 fchownat => attributes::fchownat;
    261 futimesat => attributes::futimesat;
    262 newfstatat => stat::newfstatat;
    263 unlinkat => name::unlinkat;
    264 renameat => name::renameat;
    265 linkat => name::linkat;
    266 symlinkat => name::symlinkat;
    267 readlinkat => name::readlinkat;
    268 fchmodat => attributes::fchmodat;
    269 faccessat => access::faccessat;
    270 pselect6 => select::pselect6;
    271 ppoll => poll::ppoll;
    272 unshare => clone::unshare;
    273 set_robust_list => clone::set_robust_list;
    274 get_robust_list => clone::get_robust_list;
    275 splice => splice::splice;
    276 tee => splice::tee;
    277 sync_file_range => storage::sync_file_range;
    278 vmsplice => vmsplice::vmsplice;
    280 utimensat => attributes::utimensat;
    281 epoll_pwait => epoll::epoll_pwait;
    282 signalfd => signalfd::signalfd;
    283 timerfd_create => event::timerfd_create;
    284 eventfd => event::eventfd;
    285 fallocate => storage::fallocate;
    286 timerfd_settime => event::timerfd_settime;
    287 timerfd_gettime => event::timerfd_gettime;
    288 accept4 => socket::accept4;
    289 signalfd4 => signalfd::signalfd4;
    290 eventfd2 => event::eventfd2;
    291 epoll_create1 => epoll::epoll_create1;
    292 dup3 => descriptor::dup3;
    293 pipe2 => pipe::pipe2;
    294 inotify_init1 => inotify::inotify_init1;
    295 preadv => read::preadv;
    296 pwritev => write::pwritev;
    297 rt_tgsigqueueinfo => signals::rt_tgsigqueueinfo;
    299 recvmmsg => socket::message::recvmmsg;
    302 prlimit64 => limits::prlimit64;
    306 syncfs => storage::syncfs;
    307 sendmmsg => socket::message::sendmmsg;
    309 getcpu => prctl::getcpu;
    310 process_vm_readv => process_memory::process_vm_readv;
    311 process_vm_writev => process_memory::process_vm_writev;
    314 sched_setattr => schedule::sched_setattr;
    315 sched_getattr => schedule::sched_getattr;
    316 renameat2 => name::renameat2;
    318 getrandom => prctl::getrandom;
    319 memfd_create => event::memfd_create;
    322 execveat => exec::execveat;
    324 membarrier => system::membarrier;
    325 mlock2 => mlock::mlock2;
    326 copy_file_range => splice::copy_file_range;
    327 preadv2 => read::preadv2;
    328 pwritev2 => write::pwritev2;
    332 statx => stat::statx;
    334 rseq => rseq;
    424 pidfd_send_signal => pidfd::pidfd_send_signal;
    434 pidfd_open => pidfd::pidfd_open;
    435 clone3 => clone::clone3;
    436 close_range => descriptor::close_range;
    437 openat2 => open::openat2;
    438 pidfd_getfd => pidfd::pidfd_getfd;
    439 faccessat2 => access::faccessat2;
    441 epoll_pwait2 => epoll::epoll_pwait2;
    452 fchmodat2 => attributes::fchmodat2;
}

/// The name of an implemented call.
pub fn name_of(number: u64) -> Option<&'static str> {
    IMPLEMENTED.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The list for `docs/syscalls.md`.
pub fn table_markdown() -> String {
    let mut text = String::from("| number | call |\n|---|---|\n");
    for (number, name) in IMPLEMENTED {
        writeln!(text, "| {number} | {name} |").expect("a String takes everything");
    }
    text
}

/// For calls that exist but lack a part: named in the log, answered as Linux answers without the feature.
pub(crate) fn unsupported(call: &Call<'_>, what: &str, errno: Errno) -> Errno {
    let name = String::from_utf8_lossy(&call.thread.state.lock().name).into_owned();
    log::warn!("{name}: {what} is not supported: {errno:?}");
    errno
}

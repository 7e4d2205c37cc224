//! The system call table: number and function. Dispatch, names and the list in `docs/` come from here; the numbers are those of
//! this architecture in Linux's headers (linux-raw-sys). Calls that not every architecture has are in its folder (`arch/x86_64/calls.rs`).
//!
//! A number that is not in the table answers ENOSYS, and is named in the log once per program.

use crate::{
    arch::with_own_calls,
    call::Call,
    files::{
        access, attributes, descriptor, directory, epoll, event, fcntl, inotify, ioctl, mount, name, open, pipe, poll,
        read, select, signalfd, socket, splice, stat, storage, vmsplice, write, xattr,
    },
    futex::futex,
    ipc, memory, mlock,
    process::{
        clone, credentials, end, exec, group, limits, memory as process_memory, pidfd, prctl, schedule, signals, umt,
    },
    rseq::rseq,
    system,
    time::{clock, itimer, posix, sleep},
};
use alloc::string::String;
use core::fmt::Write;
use machine::{errno::Result, Errno};

/// Numbers of system calls.
#[allow(non_upper_case_globals, reason = "named like those of Linux")]
mod numbers {
    pub use linux_raw_sys::general::*;

    /// Cob's own, where Linux has none (`include/cob/umt.h`).
    pub const __NR_umt_enable: u32 = 0xc0b0;
    pub const __NR_umt_control: u32 = 0xc0b1;
}

macro_rules! system_calls {
    ($($number:ident => $function:path;)*) => {
        /// Runs the call; None if there is no such call.
        pub(crate) async fn dispatch(number: u64, call: &mut Call<'_>) -> Option<Result<u64>> {
            Some(match u32::try_from(number).ok()? {
                // Pinned where it is made: `.await` alone would copy the call's whole state once more.
                $(numbers::$number => core::pin::pin!($function(call)).await,)*
                _ => return None,
            })
        }

        const IMPLEMENTED: &[(u32, &str)] = &[$((numbers::$number, stringify!($number)),)*];
    };
}

with_own_calls! {
    system_calls!
    __NR_read => read::read;
    __NR_write => write::write;
    __NR_close => descriptor::close;
    __NR_fstat => stat::fstat;
    __NR_lseek => read::lseek;
    __NR_mmap => memory::mmap;
    __NR_mprotect => memory::mprotect;
    __NR_munmap => memory::munmap;
    __NR_brk => memory::brk;
    __NR_rt_sigaction => signals::rt_sigaction;
    __NR_rt_sigprocmask => signals::rt_sigprocmask;
    __NR_rt_sigreturn => signals::rt_sigreturn;
    __NR_ioctl => ioctl::ioctl;
    __NR_pread64 => read::pread64;
    __NR_pwrite64 => write::pwrite64;
    __NR_readv => read::readv;
    __NR_writev => write::writev;
    __NR_sched_yield => schedule::sched_yield;
    __NR_mremap => memory::mremap;
    __NR_msync => memory::msync;
    __NR_mincore => memory::mincore;
    __NR_madvise => memory::madvise;
    __NR_shmget => ipc::memory::shmget;
    __NR_shmat => ipc::memory::shmat;
    __NR_shmctl => ipc::memory::shmctl;
    __NR_dup => descriptor::dup;
    __NR_nanosleep => sleep::nanosleep;
    __NR_getitimer => itimer::getitimer;
    __NR_setitimer => itimer::setitimer;
    __NR_getpid => clone::getpid;
    __NR_sendfile => splice::sendfile;
    __NR_socket => socket::socket;
    __NR_connect => socket::connect;
    __NR_accept => socket::accept;
    __NR_sendto => socket::message::sendto;
    __NR_recvfrom => socket::message::recvfrom;
    __NR_sendmsg => socket::message::sendmsg;
    __NR_recvmsg => socket::message::recvmsg;
    __NR_shutdown => socket::shutdown;
    __NR_bind => socket::bind;
    __NR_listen => socket::listen;
    __NR_getsockname => socket::getsockname;
    __NR_getpeername => socket::getpeername;
    __NR_socketpair => socket::socketpair;
    __NR_setsockopt => socket::setsockopt;
    __NR_getsockopt => socket::getsockopt;
    __NR_clone => clone::clone;
    __NR_execve => exec::execve;
    __NR_exit => end::exit;
    __NR_wait4 => end::wait4;
    __NR_kill => signals::kill;
    __NR_uname => system::uname;
    __NR_semget => ipc::semaphores::semget;
    __NR_semop => ipc::semaphores::semop;
    __NR_semctl => ipc::semaphores::semctl;
    __NR_shmdt => ipc::memory::shmdt;
    __NR_msgget => ipc::messages::msgget;
    __NR_msgsnd => ipc::messages::msgsnd;
    __NR_msgrcv => ipc::messages::msgrcv;
    __NR_msgctl => ipc::messages::msgctl;
    __NR_fcntl => fcntl::fcntl;
    __NR_flock => fcntl::flock;
    __NR_fsync => storage::fsync;
    __NR_fdatasync => storage::fdatasync;
    __NR_truncate => attributes::truncate;
    __NR_ftruncate => attributes::ftruncate;
    __NR_getcwd => directory::getcwd;
    __NR_chdir => directory::chdir;
    __NR_fchdir => directory::fchdir;
    __NR_fchmod => attributes::fchmod;
    __NR_fchown => attributes::fchown;
    __NR_umask => attributes::umask;
    __NR_gettimeofday => clock::gettimeofday;
    __NR_getrlimit => limits::getrlimit;
    __NR_getrusage => end::getrusage;
    __NR_sysinfo => system::sysinfo;
    __NR_times => end::times;
    __NR_getuid => credentials::getuid;
    __NR_getgid => credentials::getgid;
    __NR_setuid => credentials::setuid;
    __NR_setgid => credentials::setgid;
    __NR_geteuid => credentials::geteuid;
    __NR_getegid => credentials::getegid;
    __NR_setpgid => group::setpgid;
    __NR_getppid => clone::getppid;
    __NR_setsid => group::setsid;
    __NR_setreuid => credentials::setreuid;
    __NR_setregid => credentials::setregid;
    __NR_getgroups => credentials::getgroups;
    __NR_setgroups => credentials::setgroups;
    __NR_setresuid => credentials::setresuid;
    __NR_getresuid => credentials::getresuid;
    __NR_setresgid => credentials::setresgid;
    __NR_getresgid => credentials::getresgid;
    __NR_getpgid => group::getpgid;
    __NR_setfsuid => credentials::setfsuid;
    __NR_setfsgid => credentials::setfsgid;
    __NR_getsid => group::getsid;
    __NR_capget => credentials::capget;
    __NR_capset => credentials::capset;
    __NR_rt_sigpending => signals::rt_sigpending;
    __NR_rt_sigtimedwait => signals::rt_sigtimedwait;
    __NR_rt_sigqueueinfo => signals::rt_sigqueueinfo;
    __NR_rt_sigsuspend => signals::rt_sigsuspend;
    __NR_sigaltstack => signals::sigaltstack;
    __NR_personality => prctl::personality;
    __NR_statfs => stat::statfs;
    __NR_fstatfs => stat::fstatfs;
    __NR_getpriority => schedule::getpriority;
    __NR_setpriority => schedule::setpriority;
    __NR_sched_setparam => schedule::sched_setparam;
    __NR_sched_getparam => schedule::sched_getparam;
    __NR_sched_setscheduler => schedule::sched_setscheduler;
    __NR_sched_getscheduler => schedule::sched_getscheduler;
    __NR_sched_get_priority_max => schedule::sched_get_priority_max;
    __NR_sched_get_priority_min => schedule::sched_get_priority_min;
    __NR_sched_rr_get_interval => schedule::sched_rr_get_interval;
    __NR_mlock => mlock::mlock;
    __NR_munlock => mlock::munlock;
    __NR_mlockall => mlock::mlockall;
    __NR_munlockall => mlock::munlockall;
    __NR_prctl => prctl::prctl;
    __NR_setrlimit => limits::setrlimit;
    __NR_chroot => directory::chroot;
    __NR_sync => storage::sync;
    __NR_settimeofday => clock::settimeofday;
    __NR_mount => mount::mount;
    __NR_umount2 => mount::umount2;
    __NR_sethostname => system::sethostname;
    __NR_setdomainname => system::setdomainname;
    __NR_gettid => clone::gettid;
    __NR_readahead => storage::readahead;
    __NR_setxattr => xattr::setxattr;
    __NR_lsetxattr => xattr::lsetxattr;
    __NR_fsetxattr => xattr::fsetxattr;
    __NR_getxattr => xattr::getxattr;
    __NR_lgetxattr => xattr::lgetxattr;
    __NR_fgetxattr => xattr::fgetxattr;
    __NR_listxattr => xattr::listxattr;
    __NR_llistxattr => xattr::llistxattr;
    __NR_flistxattr => xattr::flistxattr;
    __NR_removexattr => xattr::removexattr;
    __NR_lremovexattr => xattr::lremovexattr;
    __NR_fremovexattr => xattr::fremovexattr;
    __NR_tkill => signals::tkill;
    __NR_futex => futex;
    __NR_sched_setaffinity => schedule::sched_setaffinity;
    __NR_sched_getaffinity => schedule::sched_getaffinity;
    __NR_getdents64 => directory::getdents64;
    __NR_set_tid_address => clone::set_tid_address;
    __NR_semtimedop => ipc::semaphores::semtimedop;
    __NR_fadvise64 => storage::fadvise64;
    __NR_timer_create => posix::timer_create;
    __NR_timer_settime => posix::timer_settime;
    __NR_timer_gettime => posix::timer_gettime;
    __NR_timer_getoverrun => posix::timer_getoverrun;
    __NR_timer_delete => posix::timer_delete;
    __NR_clock_settime => clock::clock_settime;
    __NR_clock_gettime => clock::clock_gettime;
    __NR_clock_getres => clock::clock_getres;
    __NR_clock_nanosleep => sleep::clock_nanosleep;
    __NR_exit_group => end::exit_group;
    __NR_epoll_ctl => epoll::epoll_ctl;
    __NR_tgkill => signals::tgkill;
    __NR_waitid => end::waitid;
    __NR_inotify_add_watch => inotify::inotify_add_watch;
    __NR_inotify_rm_watch => inotify::inotify_rm_watch;
    __NR_openat => open::openat;
    __NR_mkdirat => name::mkdirat;
    __NR_mknodat => name::mknodat;
    __NR_fchownat => attributes::fchownat;
    __NR_newfstatat => stat::newfstatat;
    __NR_unlinkat => name::unlinkat;
    __NR_renameat => name::renameat;
    __NR_linkat => name::linkat;
    __NR_symlinkat => name::symlinkat;
    __NR_readlinkat => name::readlinkat;
    __NR_fchmodat => attributes::fchmodat;
    __NR_faccessat => access::faccessat;
    __NR_pselect6 => select::pselect6;
    __NR_ppoll => poll::ppoll;
    __NR_unshare => clone::unshare;
    __NR_set_robust_list => clone::set_robust_list;
    __NR_get_robust_list => clone::get_robust_list;
    __NR_splice => splice::splice;
    __NR_tee => splice::tee;
    __NR_sync_file_range => storage::sync_file_range;
    __NR_vmsplice => vmsplice::vmsplice;
    __NR_utimensat => attributes::utimensat;
    __NR_epoll_pwait => epoll::epoll_pwait;
    __NR_timerfd_create => event::timerfd_create;
    __NR_fallocate => storage::fallocate;
    __NR_timerfd_settime => event::timerfd_settime;
    __NR_timerfd_gettime => event::timerfd_gettime;
    __NR_accept4 => socket::accept4;
    __NR_signalfd4 => signalfd::signalfd4;
    __NR_eventfd2 => event::eventfd2;
    __NR_epoll_create1 => epoll::epoll_create1;
    __NR_dup3 => descriptor::dup3;
    __NR_pipe2 => pipe::pipe2;
    __NR_inotify_init1 => inotify::inotify_init1;
    __NR_preadv => read::preadv;
    __NR_pwritev => write::pwritev;
    __NR_rt_tgsigqueueinfo => signals::rt_tgsigqueueinfo;
    __NR_recvmmsg => socket::message::recvmmsg;
    __NR_prlimit64 => limits::prlimit64;
    __NR_syncfs => storage::syncfs;
    __NR_sendmmsg => socket::message::sendmmsg;
    __NR_getcpu => prctl::getcpu;
    __NR_process_vm_readv => process_memory::process_vm_readv;
    __NR_process_vm_writev => process_memory::process_vm_writev;
    __NR_sched_setattr => schedule::sched_setattr;
    __NR_sched_getattr => schedule::sched_getattr;
    __NR_renameat2 => name::renameat2;
    __NR_getrandom => prctl::getrandom;
    __NR_memfd_create => event::memfd_create;
    __NR_execveat => exec::execveat;
    __NR_umt_enable => umt::umt_enable;
    __NR_umt_control => umt::umt_control;
    __NR_membarrier => system::membarrier;
    __NR_mlock2 => mlock::mlock2;
    __NR_copy_file_range => splice::copy_file_range;
    __NR_preadv2 => read::preadv2;
    __NR_pwritev2 => write::pwritev2;
    __NR_statx => stat::statx;
    __NR_rseq => rseq;
    __NR_pidfd_send_signal => pidfd::pidfd_send_signal;
    __NR_pidfd_open => pidfd::pidfd_open;
    __NR_clone3 => clone::clone3;
    __NR_close_range => descriptor::close_range;
    __NR_openat2 => open::openat2;
    __NR_pidfd_getfd => pidfd::pidfd_getfd;
    __NR_faccessat2 => access::faccessat2;
    __NR_epoll_pwait2 => epoll::epoll_pwait2;
    __NR_fchmodat2 => attributes::fchmodat2;
}

fn plain(constant: &'static str) -> &'static str {
    constant.strip_prefix("__NR_").unwrap_or(constant)
}

/// The name of an implemented call.
pub fn name_of(number: u64) -> Option<&'static str> {
    IMPLEMENTED.iter().find(|(known, _)| u64::from(*known) == number).map(|(_, name)| plain(name))
}

/// The list for `docs/syscalls.md`.
pub fn table_markdown() -> String {
    let mut text = String::from("| number | call |\n|---|---|\n");
    let mut calls = IMPLEMENTED.to_vec();
    calls.sort_unstable();
    for (number, name) in calls {
        writeln!(text, "| {number} | {} |", plain(name)).expect("a String takes everything");
    }
    text
}

/// For calls that exist but lack a part: named in the log, answered as Linux answers without the feature.
pub(crate) fn unsupported(call: &Call<'_>, what: &str, errno: Errno) -> Errno {
    let name = String::from_utf8_lossy(&call.thread.state.lock().name).into_owned();
    log::warn!("{name}: {what} is not supported: {errno:?}");
    errno
}

//! System calls of x86-64 that later architectures did without.

/// Hands the calls of `$list` on to the macro before them, with those that only this architecture has.
macro_rules! with_own_calls {
    ($list:ident! $($common:tt)*) => {
        $list! {
            $($common)*
            __NR_open => crate::files::open::open;
            __NR_stat => crate::files::stat::stat;
            __NR_lstat => crate::files::stat::lstat;
            __NR_poll => crate::files::poll::poll;
            __NR_access => crate::files::access::access;
            __NR_pipe => crate::files::pipe::pipe;
            __NR_select => crate::files::select::select;
            __NR_dup2 => crate::files::descriptor::dup2;
            __NR_pause => crate::process::signals::pause;
            __NR_alarm => crate::time::itimer::alarm;
            __NR_fork => crate::process::clone::fork;
            __NR_vfork => crate::process::clone::vfork;
            __NR_getdents => crate::files::directory::getdents;
            __NR_rename => crate::files::name::rename;
            __NR_mkdir => crate::files::name::mkdir;
            __NR_rmdir => crate::files::name::rmdir;
            __NR_creat => crate::files::open::creat;
            __NR_link => crate::files::name::link;
            __NR_unlink => crate::files::name::unlink;
            __NR_symlink => crate::files::name::symlink;
            __NR_readlink => crate::files::name::readlink;
            __NR_chmod => crate::files::attributes::chmod;
            __NR_chown => crate::files::attributes::chown;
            __NR_lchown => crate::files::attributes::lchown;
            __NR_getpgrp => crate::process::group::getpgrp;
            __NR_utime => crate::files::attributes::utime;
            __NR_mknod => crate::files::name::mknod;
            __NR_arch_prctl => crate::arch::arch_prctl;
            __NR_time => crate::time::clock::time;
            __NR_epoll_create => crate::files::epoll::epoll_create;
            __NR_epoll_wait => crate::files::epoll::epoll_wait;
            __NR_utimes => crate::files::attributes::utimes;
            __NR_inotify_init => crate::files::inotify::inotify_init;
            __NR_futimesat => crate::files::attributes::futimesat;
            __NR_signalfd => crate::files::signalfd::signalfd;
            __NR_eventfd => crate::files::event::eventfd;
        }
    };
}
pub(crate) use with_own_calls;

//! Linux error numbers (man 3 errno).

use core::fmt;
use serde::{Deserialize, Serialize};

/// An error number as a system call returns it, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Errno(pub u16);

/// A result as system calls have it.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! numbers {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!(stringify!($name), " of errno(3), with its number on Linux.")]
                pub const $name: Errno = Errno(linux_raw_sys::errno::$name as u16);
            )*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno::RESTART => f.write_str("RESTART"),
                    Errno(number) => write!(f, "E{number}"),
                }
            }
        }
    };
}

numbers! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK
    EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE
    EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA ETIME
    EPROTO EBADMSG EOVERFLOW EILSEQ ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT
    EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
    ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETIMEDOUT EUCLEAN
    ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EREMOTEIO EDQUOT ECANCELED EOWNERDEAD
    ENOTRECOVERABLE ENOMSG EIDRM ENOPKG ETOOMANYREFS
}

impl Errno {
    /// The other name of EAGAIN.
    pub const EWOULDBLOCK: Errno = Errno::EAGAIN;

    /// Inside the kernel only: a signal interrupted the call, which is to be restarted if the
    /// handler has SA_RESTART or there is no handler, and answers EINTR otherwise (man 7 signal;
    /// Linux's ERESTARTSYS).
    pub const RESTART: Errno = Errno(512);

    /// Inside the kernel only: interrupted, restarted only if no handler runs (Linux's ERESTARTNOHAND:
    /// poll, select, epoll_wait, pause, sigsuspend and their like).
    pub const RESTART_NO_HANDLER: Errno = Errno(514);

    /// Inside the kernel only: interrupted, restarted only if in the end no signal and no stop came to this thread. Each thread
    /// that could take a signal of its process is woken for it, and one of them gets it.
    pub const RESTART_UNTOUCHED: Errno = Errno(515);
    /// Inside the kernel only: interrupted, and always restarted, after the handler (Linux's ERESTARTNOINTR).
    pub const RESTART_ALWAYS: Errno = Errno(513);

    /// What the call's result is then.
    pub fn to_return(self) -> u64 {
        (-(i64::from(self.0))) as u64
    }
}

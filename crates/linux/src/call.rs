//! What a system call gets to work with.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{Caller, File, OpenFlags};
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    BoxFuture, Errno, UserAddr, UserRegisters,
};
use process::{Context, Process, System, Thread};
use vm::Space;

/// One system call under way.
pub struct Call<'a> {
    pub thread: &'a Arc<Thread>,
    pub context: &'a mut Context,
    /// Set by execve from another thread than the main one: this thread is over.
    pub over: bool,
}

pub(crate) const RLIMIT_NOFILE: usize = 7;

/// What a call needs of memory while it goes on is charged from this on; less than that each thread may have. From `HUGE` on it is refused
/// where memory is short.
const LARGE: usize = 16 << 10;
const HUGE: usize = 64 << 10;

/// Longest path with its NUL (PATH_MAX).
pub const PATH_MAX: usize = 4096;

/// "The current directory" instead of a descriptor.
pub const AT_FDCWD: i32 = -100;

impl<'a> Call<'a> {
    pub fn new(thread: &'a Arc<Thread>, context: &'a mut Context) -> Self {
        Call { thread, context, over: false }
    }

    /// The six arguments as registers hold them: until the call gives the thread others (execve, rt_sigreturn).
    #[inline]
    pub fn arguments(&self) -> [u64; 6] {
        self.context.registers.call_arguments()
    }

    pub fn process(&self) -> &'a Arc<Process> {
        &self.thread.process
    }

    pub fn system(&self) -> &'a Arc<System> {
        &self.thread.process.system
    }

    pub fn space(&self) -> Arc<Space> {
        self.thread.process.space()
    }

    pub fn caller(&self) -> Caller {
        self.thread.process.caller(self.thread)
    }

    /// Whether the thread has the capability.
    pub fn can(&self, capability: u32) -> bool {
        self.thread.state.lock().credentials.can(capability)
    }

    /// Who pays for what this kernel keeps for the caller.
    pub fn account(&self) -> Arc<Account> {
        let uid = self.thread.state.lock().credentials.uid;
        self.process().account(uid)
    }

    /// Before the call takes so much memory for as long as it goes on, because the program says so: charged to it as long as the
    /// answer exists. ENOMEM: there is no room for that.
    pub fn room_for(&self, bytes: usize) -> Result<Option<Charge>> {
        if bytes < LARGE {
            return Ok(None);
        }
        if bytes >= HUGE && !self.system().memory.has_room_for(bytes) {
            return Err(Errno::ENOMEM);
        }
        self.account().charge(Resource::Memory, bytes).map(Some).map_err(|OverLimit| Errno::ENOMEM)
    }

    pub fn arg(&self, index: usize) -> u64 {
        self.arguments()[index]
    }

    /// An `int` argument: the register's low half.
    pub fn int(&self, index: usize) -> i32 {
        self.arguments()[index] as i32
    }

    pub fn pointer(&self, index: usize) -> UserAddr {
        UserAddr(self.arguments()[index])
    }

    /// The open file behind a descriptor argument. EBADF, also for one that only stands for a name (O_PATH).
    pub async fn file(&self, index: usize) -> Result<Arc<dyn File>> {
        self.file_at(self.int(index)).await
    }

    pub async fn file_at(&self, fd: i32) -> Result<Arc<dyn File>> {
        Ok(self.opened(fd).await?.0)
    }

    /// The same with its flags.
    pub async fn opened(&self, fd: i32) -> Result<(Arc<dyn File>, OpenFlags)> {
        let file = match self.known(fd) {
            Some(file) => file,
            None => self.ask_for(fd).await?,
        };
        let flags = file.flags();
        match flags.contains(OpenFlags::PATH) {
            true => Err(Errno::EBADF),
            false => Ok((file, flags)),
        }
    }

    /// [`Call::opened`], if this kernel knows without asking.
    #[inline]
    pub fn opened_here(&self, fd: i32) -> Option<(Arc<dyn File>, OpenFlags)> {
        let file = self.known(fd)?;
        let flags = file.flags();
        (!flags.contains(OpenFlags::PATH)).then_some((file, flags))
    }

    /// The same with O_PATH: for what is done to the descriptor or by its name. (Linux: fdget_raw.)
    pub async fn file_or_name(&self, index: usize) -> Result<Arc<dyn File>> {
        self.file_or_name_at(self.int(index)).await
    }

    pub async fn file_or_name_at(&self, fd: i32) -> Result<Arc<dyn File>> {
        match self.known(fd) {
            Some(file) => Ok(file),
            None => self.ask_for(fd).await,
        }
    }

    /// What is behind a descriptor, if this kernel knows without asking.
    fn known(&self, fd: i32) -> Option<Arc<dyn File>> {
        self.process().known_file(u32::try_from(fd).ok()?)
    }

    /// Boxed: it is rare, and large.
    fn ask_for(&self, fd: i32) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let fd = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
            self.process().files().get(fd).await
        })
    }

    /// A path argument. EFAULT, ENAMETOOLONG, ENOENT if it is empty: all of it before anything else about it.
    pub async fn path(&self, index: usize) -> Result<Vec<u8>> {
        self.path_with(index, false).await
    }

    /// A path argument that may be empty if `empty_ok` (AT_EMPTY_PATH).
    pub async fn path_with(&self, index: usize, empty_ok: bool) -> Result<Vec<u8>> {
        match self.space().read_c_string(self.pointer(index), PATH_MAX).await {
            Ok(path) if path.is_empty() && !empty_ok => Err(Errno::ENOENT),
            path => path,
        }
    }

    /// The root of a path relative to descriptor `fd`, and where it starts.
    pub async fn root_and_start(&self, fd: i32) -> Result<(Arc<dyn File>, Arc<dyn File>)> {
        let directories = self.process().directories().await?;
        let at = match fd {
            AT_FDCWD => directories.cwd,
            fd => self.file_or_name_at(fd).await?,
        };
        Ok((directories.root, at))
    }

    /// Installs a new descriptor at the lowest free number.
    pub async fn install(&self, file: Arc<dyn File>, close_on_exec: bool) -> Result<u64> {
        let limit = self.process().limit(RLIMIT_NOFILE);
        let files = self.process().files();
        let fd = files.add(file, 0, close_on_exec, limit).await?;
        if files.is_astray() {
            self.process().fetch_files(self.caller().credentials).await;
        }
        Ok(u64::from(fd))
    }

    /// EMFILE if that would fail for want of a number, as far as that is known here.
    pub fn check_descriptors(&self) -> Result<()> {
        match self.process().files().is_full(self.process().limit(RLIMIT_NOFILE)) {
            true => Err(Errno::EMFILE),
            false => Ok(()),
        }
    }

    /// Between two pieces of a call whose length the caller decides ([`machine::pause`]). EINTR: the thread must end.
    pub async fn pause(&self) -> Result<()> {
        self.system().scheduler.pause().await;
        match self.thread.must_end() {
            true => Err(Errno::EINTR),
            false => Ok(()),
        }
    }

    /// Work on memory that may take long, and may be given up at any time: it is if the thread must end.
    pub async fn unless_killed<T>(&self, work: impl core::future::Future<Output = T>) -> Result<T> {
        self.thread.unless_killed(work).await.ok_or(Errno::EINTR)
    }

    /// Waits for `wait` unless a signal comes first (RESTART).
    pub async fn interruptible<T>(&self, wait: impl core::future::Future<Output = Result<T>>) -> Result<T> {
        self.thread.interruptible(wait).await?
    }
}

/// The thread's name, for the log.
pub(crate) fn name(thread: &Thread) -> alloc::string::String {
    alloc::string::String::from_utf8_lossy(&thread.state.lock().name).into_owned()
}

//! The memory service of a kernel: its replicas by id, and its end of the protocol.

use crate::{
    borrow::Hope,
    relief::Relief,
    shared::SharedMemory,
    space::{Space, State},
    Objects,
};
use abi::ObjectId;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    future::Future,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
};
use fabric::Endpoint;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock, WaitQueue},
    Errno, Frame, HashMap, Memory, NoMemory, PageRange, Serials, SpaceId, Spawner,
};
use messages::vm::*;

/// Frames of another kernel that are worth a message home of their own.
pub(crate) const FRAMES_BATCH: usize = 64;

/// What all replicas of a kernel share.
pub(crate) struct Shared {
    pub memory: Arc<dyn Memory>,
    pub endpoint: Arc<Endpoint>,
    pub spawner: Arc<dyn Spawner>,
    pub objects: Arc<dyn Objects>,
    /// Mapped copy-on-write wherever anonymous memory was only read so far. Other kernels map their own.
    pub zero: Frame,
    /// Shared anonymous memory of this kernel, by serial number; it takes itself out when it ends.
    pub memories: Lock<HashMap<u64, Weak<SharedMemory>>>,
    pub relief: Lock<Option<Arc<dyn Relief>>>,
    /// The kernel that lent us frames last, and whether to ask (borrow.rs).
    pub lender: AtomicU16,
    pub hope: Hope,
    pub hope_of_files: Hope,
    /// What is to come at once: see [`Vm::expect_soon`].
    soon: AtomicU32,
    spaces: Lock<HashMap<SpaceId, Arc<Space>>>,
    /// Held while a fork copies page tables, and while spaces are looked through for frames of a dead kernel (death.rs).
    pub copying: Lock<()>,
    /// Faults of replicas that are gone.
    past_faults: Lock<crate::FaultCount>,
    pub serials: Serials,
    /// Spaces are audited when they end, and what was found wrong in pages.
    pub audits: AtomicBool,
    pub audit_faults: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.memory.release(self.zero);
    }
}

/// The memory service of this kernel. One per kernel.
pub struct Vm {
    pub(crate) shared: Arc<Shared>,
}

impl Vm {
    /// Starts the service and registers its handlers at `endpoint`. Fails if there is not even a frame
    /// for the zero page.
    pub fn new(
        memory: Arc<dyn Memory>,
        endpoint: Arc<Endpoint>,
        spawner: Arc<dyn Spawner>,
        objects: Arc<dyn Objects>,
    ) -> core::result::Result<Arc<Vm>, NoMemory> {
        let zero = memory.alloc().ok_or(NoMemory)?;
        let shared = Arc::new(Shared {
            serials: Serials::new(&*memory),
            memory,
            endpoint,
            spawner,
            objects,
            zero,
            memories: Lock::default(),
            relief: Lock::default(),
            lender: AtomicU16::new(0),
            hope: Hope::default(),
            hope_of_files: Hope::default(),
            soon: AtomicU32::new(0),
            spaces: Lock::default(),
            copying: Lock::default(),
            past_faults: Lock::default(),
            audits: AtomicBool::new(false),
            audit_faults: AtomicU64::new(0),
        });
        register(&shared);
        Ok(Arc::new(Vm { shared }))
    }

    /// An empty space with its home here.
    pub fn create(&self) -> Result<Arc<Space>> {
        let id = self.shared.new_id();
        self.shared.replica(id)
    }

    /// The replica for a thread that arrived: made now if this is the first. ESRCH if the space is of
    /// this kernel and gone, EIO if its home is: when this kernel is through with that death nobody would end it.
    pub fn attach(&self, id: SpaceId) -> Result<Arc<Space>> {
        match self.shared.find(id) {
            Some(space) => Ok(space),
            None if id.home == self.shared.memory.kernel() => Err(Errno::ESRCH),
            None if !self.shared.endpoint.is_alive(id.home) => Err(Errno::EIO),
            None => self.shared.replica(id),
        }
    }

    /// The replica if there is one.
    pub fn find(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.shared.find(id)
    }

    /// Shared anonymous memory of this kernel by its name, if it is in use. It is an object like those of
    /// files; `fs::Services` knows only those.
    pub fn shared_memory(&self, id: ObjectId) -> Option<Arc<SharedMemory>> {
        self.shared.shared_memory(id)
    }

    /// How often the spaces of this machine map `object` in slices that this kernel owns.
    pub fn mappings_of(&self, object: ObjectId) -> u64 {
        self.spaces().iter().map(|space| space.mappings_of(object)).sum()
    }

    /// All replicas of this kernel, for /proc and audits.
    pub fn spaces(&self) -> Vec<Arc<Space>> {
        self.shared.all()
    }

    /// Drops the replica of a space that has ended. Home tells every kernel it knows of; a kernel whose
    /// threads never asked home for anything hears it from the process service instead.
    pub fn drop_replica(&self, id: SpaceId) {
        if let Some(space) = self.shared.find(id) {
            space.drop_everything();
        }
    }

    /// From now on spaces that are at home here are audited when they end (audit.rs).
    pub fn start_audits(&self) {
        self.shared.audits.store(true, Ordering::Relaxed);
    }

    /// Pages that were found wrong by audits.
    pub fn audit_faults(&self) -> u64 {
        self.shared.audit_faults.load(Ordering::Relaxed)
    }

    /// Faults of all replicas that live here or lived here.
    pub fn fault_totals(&self) -> crate::FaultCount {
        let past = *self.shared.past_faults.lock();
        self.spaces().iter().fold(past, |sum, space| {
            let count = space.fault_count();
            crate::FaultCount { local: sum.local + count.local, remote: sum.remote + count.remote }
        })
    }

    /// Whether a reply is expected within microseconds, or a thread was announced: the idle loop polls meanwhile instead of
    /// halting.
    pub fn expects_soon(&self) -> bool {
        self.shared.soon.load(Ordering::Relaxed) != 0
    }

    /// Makes [`Vm::expects_soon`] true until what it answers is dropped.
    pub fn expect_soon(&self) -> Soon {
        self.shared.expect_soon()
    }

    /// Sends frames of others that nobody here uses any more home, if at least `at_least` have gathered.
    /// The idle loop calls it with 1.
    pub fn send_frames_home(&self, at_least: usize) {
        self.shared.send_frames_home(at_least);
    }
}

/// Held while a reply is expected within microseconds: see [`Vm::expects_soon`].
pub struct Soon(Arc<Shared>);

impl Drop for Soon {
    fn drop(&mut self) {
        self.0.soon.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn expect_soon(self: &Arc<Self>) -> Soon {
        self.soon.fetch_add(1, Ordering::Relaxed);
        Soon(self.clone())
    }

    pub fn new_id(&self) -> SpaceId {
        SpaceId { home: self.memory.kernel(), serial: self.serials.next() }
    }

    pub fn find(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.spaces.lock().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Space>> {
        self.spaces.lock().values().cloned().collect()
    }

    /// The replica of `id`, made if it is not there.
    pub fn replica(self: &Arc<Self>, id: SpaceId) -> Result<Arc<Space>> {
        if let Some(space) = self.find(id) {
            return Ok(space);
        }
        let table = match self.memory.new_table() {
            Ok(table) => table,
            Err(NoMemory) if self.reclaim() => self.memory.new_table().map_err(|NoMemory| Errno::ENOMEM)?,
            Err(NoMemory) => return Err(Errno::ENOMEM),
        };
        let state = Lock::new(State::new());
        let (changed, [heap, moving, whole]) = (WaitQueue::new(), [(); 3].map(AsyncLock::new));
        let space = Arc::new(Space { vm: self.clone(), id, table, state, changed, heap, moving, whole });
        Ok(self.spaces.lock().entry(id).or_insert(space).clone())
    }

    pub fn all_memories(&self) -> Vec<Arc<SharedMemory>> {
        self.memories.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub fn shared_memory(&self, id: ObjectId) -> Option<Arc<SharedMemory>> {
        if id.owner != self.memory.kernel() {
            return None;
        }
        self.memories.lock().get(&id.serial)?.upgrade()
    }

    pub fn forget(&self, id: SpaceId) -> Option<Arc<Space>> {
        let space = self.spaces.lock().remove(&id)?;
        let count = space.fault_count();
        let mut past = self.past_faults.lock();
        past.local += count.local;
        past.remote += count.remote;
        Some(space)
    }

    pub fn send_frames_home(&self, at_least: usize) {
        while let Some((home, frames)) = self.memory.frames_to_return(at_least) {
            // To a kernel that died there is nothing to return.
            let _ = self.endpoint.send(home, FramesHome { frames });
        }
    }
}

/// Registers what this kernel answers. A message for a replica that is not here any more meets a thread
/// that was killed with its process: what it gets no longer matters, so long as it is an answer.
fn register(shared: &Arc<Shared>) {
    let serve = shared.endpoint.serve(shared);
    macro_rules! answer {
        ($method:ident, $message:ty, $gone:expr, |$space:ident, $from:ident, $request:ident| $work:expr) => {
            serve.$method(move |shared, $from, $request: $message| {
                run(shared.find($request.space), $gone, move |$space| $work)
            });
        };
    }
    async fn run<R, F: Future<Output = R>>(
        space: Option<Arc<Space>>,
        gone: R,
        work: impl FnOnce(Arc<Space>) -> F,
    ) -> R {
        match space {
            Some(space) => work(space).await,
            None => gone,
        }
    }

    let gone = || FaultReply { answer: FaultAnswer::Failed(Fault::NotMapped), adopted: 0 };
    answer!(on_to_completion, FaultRequest, gone(), |space, from, request| async move {
        space.serve_fault(from, request).await
    });
    serve.on_sync(|shared, from, FaultAhead { space, range }| match shared.find(space) {
        Some(space) => space.serve_ahead(from, range),
        None => Runs(Vec::new()),
    });
    serve.on_sync(|shared, from, FirstPages { space, touches }| match shared.find(space) {
        Some(space) => space.serve_first(from, &touches),
        None => Vec::new(),
    });
    serve.on_to_completion(|shared, from, Change { space, operation, frozen }| {
        let space = match operation {
            // The kernel that has the object may not have met the space yet.
            Operation::Place { .. } if space.home != shared.memory.kernel() => shared.replica(space).ok(),
            _ => shared.find(space),
        };
        let gone = ChangeReply::Done(Err(Errno::ESRCH));
        run(space, gone, move |space| async move { space.serve_change(from, operation, frozen).await })
    });
    answer!(on_to_completion, ChangeAll, Err(Errno::ESRCH), |space, from, request| async move {
        space.join(from);
        space.change_frozen(request.operation).await
    });
    answer!(on_to_completion, TakeSlices, Err(Errno::ESRCH), |space, from, request| async move {
        space.serve_slices(from, request.count).await
    });
    answer!(on, ListSlices, Err(Errno::ESRCH), |space, from, _request| async move {
        match space.admit(from) {
            true => Ok(space.slices()),
            false => Err(Errno::ESRCH),
        }
    });
    answer!(on, Freeze, Vec::new(), |space, _from, request| async move { space.freeze(request.range).await });
    let nothing = Listed { regions: Vec::new(), end: PageRange::user().end, holders: Vec::new() };
    answer!(on, Inspect, nothing.clone(), |space, _from, request| async move {
        space.inspect(request.range, request.counted, request.most).await
    });
    answer!(on, DescribeReplica, None, |space, _from, _request| async move { Some(space.describe()) });
    answer!(on, AskPeak, Peak::default(), |space, _from, request| async move {
        space.serve_peak(request.everywhere, request.clear).await
    });
    answer!(on, StealForTest, None, |space, from, request| async move { space.hand_some(from, request.chance) });
    let gone = ChangeReply::Done(Err(Errno::ESRCH));
    answer!(on_to_completion, TakeRange, gone.clone(), |space, from, request| async move {
        space.serve_take_range(from, request.range, request.replace).await
    });
    answer!(
        on_to_completion,
        Census,
        Vec::new(),
        |space, _from, request| async move { space.census(request.from).await }
    );
    serve.on_sync(|shared, _, CountUses { object, usage }| shared.uses_here(object, usage));
    answer!(on, Touched, Vec::new(), |space, _from, request| async move {
        space.serve_touched(request.range, request.clear, request.everywhere).await
    });
    answer!(on, LimitSpace, (), |space, _from, request| async move {
        space.serve_limits(request.limits, request.everywhere).await
    });
    answer!(on, AskResidency, ResidencyReply::Pages(None), |space, from, request| async move {
        space.serve_residency(from, request.range).await
    });
    answer!(on_to_completion, ForceAccess, Transferred::Written(0), |space, from, request| async move {
        space.serve_force(from, request.at, request.transfer).await
    });
    answer!(on, LocateFutex, LocateFutexReply::Key(None), |space, from, request| async move {
        space.serve_futex(from, request.at, request.shared).await
    });

    serve.on_to_completion(|shared, from, request: Fork| {
        run(shared.find(request.parent), Err(Errno::ESRCH), move |space| async move {
            space.join(from);
            space.fork_here(request.child).await
        })
    });
    serve.on_to_completion(|shared, _, request: CloneSlices| {
        run(shared.find(request.parent), Err(Errno::ESRCH), move |space| async move {
            space.clone_here(request.child, &request.slices).await
        })
    });

    serve.on(|shared, _from, UnknownSpaces { mut spaces }| {
        spaces.retain(|space| shared.find(*space).is_none());
        core::future::ready(spaces)
    });

    serve.on(|shared, from, request: BorrowFrames| core::future::ready(shared.lend_some(from, request)));

    macro_rules! notice {
        ($message:ty, |$space:ident, $from:ident, $request:ident| $work:expr) => {
            serve.on_sync(|shared, $from, $request: $message| {
                if let Some($space) = shared.find($request.space) {
                    $work
                }
            });
        };
    }
    notice!(Revoke, |space, _from, request| space.give_back(&request.ranges, request.keep));
    notice!(TakenOver, |space, from, request| space.confirmed(from, request.range));
    notice!(GiveBack, |space, from, request| space.take_back(from, request.range));
    notice!(Thaw, |space, _from, request| space.thaw());
    notice!(Detach, |space, _from, request| space.leave());
    notice!(Destroy, |space, _from, request| space.drop_everything());
    serve.on_sync(|shared, from, FramesHome { frames }| {
        frames.into_iter().for_each(|frame| shared.memory.take_home(frame, from));
    });
}

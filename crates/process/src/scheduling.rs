//! How a thread is scheduled: its affinity, nice value and policy, read and changed from any kernel, and who may change them.

use crate::thread::{FIFO, IDLE, RESET_ON_FORK, ROUND_ROBIN};
use crate::{route::Trail, thread::Presence, Process, System, Thread};
use abi::{CpuSet, Credentials};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;
use machine::{errno::Result, Errno, Pid};
use messages::process::{ChangeScheduling, DeadlineParameters, LastSchedulingParameters, Scheduling, SchedulingChange};

const RLIMIT_NICE: usize = 13;
const RLIMIT_RTPRIO: usize = 14;

impl System {
    /// Reads or sets how a thread is scheduled, wherever it is.
    pub async fn change_scheduling(
        self: &Arc<Self>,
        thread: Pid,
        change: SchedulingChange,
        sender: Credentials,
    ) -> Result<Scheduling> {
        let here = self.thread(thread).filter(|thread| !thread.is_away());
        if let Some(parameters) = here.and_then(|local| local.change_scheduling(&change, &sender)) {
            return parameters;
        }
        let process = self.process_of(thread).await.ok_or(Errno::ESRCH)?;
        self.route_scheduling_change(ChangeScheduling { process, thread, change, sender }).await
    }

    pub(crate) async fn route_scheduling_change(self: &Arc<Self>, message: ChangeScheduling) -> Result<Scheduling> {
        loop {
            match self.trail(message.process, message.thread).await {
                // None: it has left since.
                Trail::Here(thread) => {
                    if let Some(parameters) = thread.change_scheduling(&message.change, &message.sender) {
                        return parameters;
                    }
                }
                Trail::At(kernel) => return self.endpoint.call(kernel, message).await.map_err(|_| Errno::ESRCH)?,
                Trail::Cold => return self.change_scheduling_of_ended(message),
            }
        }
    }

    /// At home: the thread is no more. The main thread can be asked for all the same, until its process has gone.
    fn change_scheduling_of_ended(&self, message: ChangeScheduling) -> Result<Scheduling> {
        let process =
            self.process(message.process).filter(|process| process.id == message.thread).ok_or(Errno::ESRCH)?;
        let limits = process.scheduling_limits();
        let mut state = process.home().ok_or(Errno::ESRCH)?.state.lock();
        let last = state.last_scheduling.as_mut().ok_or(Errno::ESRCH)?;
        let thread = ScheduledThread { uid: last.uid, euid: last.euid, nice: last.nice, policy: last.policy, limits };
        thread.check(&message.change, &message.sender)?;
        let LastSchedulingParameters { affinity, nice, policy, .. } = last;
        match message.change {
            SchedulingChange::Read => {}
            SchedulingChange::Affinity(wanted) => *affinity = self.usable(&wanted)?,
            SchedulingChange::Nice(new) => *nice = new.clamp(-20, 19),
            SchedulingChange::Policy(new, priority) => *policy = (new, priority),
            SchedulingChange::Name(_) | SchedulingChange::Deadline(..) => return Err(Errno::ESRCH),
        }
        let deadline = DeadlineParameters::default();
        Ok(Scheduling { affinity: affinity.clone(), nice: *nice, policy: *policy, deadline })
    }

    fn usable(&self, wanted: &CpuSet) -> Result<CpuSet> {
        let usable = wanted.intersect(&self.all_cpus());
        match usable.is_empty() {
            true => Err(Errno::EINVAL),
            false => Ok(usable),
        }
    }
}

impl Thread {
    /// None if the thread is not here.
    fn change_scheduling(
        self: &Arc<Self>,
        change: &SchedulingChange,
        sender: &Credentials,
    ) -> Option<Result<Scheduling>> {
        let presence = self.presence.lock();
        if !matches!(*presence, Presence::Here) {
            return None;
        }
        let result = self.change_scheduling_here(change.clone(), sender);
        drop(presence);
        self.wake();
        Some(result)
    }

    fn change_scheduling_here(&self, change: SchedulingChange, sender: &Credentials) -> Result<Scheduling> {
        let limits = self.process.scheduling_limits();
        let mut state = self.state.lock();
        let (uid, euid) = (state.credentials.uid, state.credentials.euid);
        ScheduledThread { uid, euid, nice: state.nice, policy: state.policy, limits }.check(&change, sender)?;
        use SchedulingChange::{Deadline, Nice, Policy};
        let reschedule = matches!(change, Nice(_) | Policy(..) | Deadline(..));
        let mut mask = 0;
        match change {
            SchedulingChange::Read => {}
            SchedulingChange::Affinity(wanted) => {
                let usable = self.process.system.usable(&wanted)?;
                if self.is_reserved() && !self.process.system.is_within(&usable) {
                    return Err(Errno::EBUSY);
                }
                // Looked at when the thread next goes to user mode.
                let here = self.process.system.cpu.current();
                let stays = usable == state.affinity && usable.contains(here);
                mask = self.process.system.local_mask(&usable);
                state.affinity = usable;
                if !stays {
                    // Only the thread itself takes that back: it may be under way to where the one before sent it.
                    self.misplaced.store(true, SeqCst);
                }
            }
            SchedulingChange::Nice(nice) => state.nice = nice.clamp(-20, 19),
            SchedulingChange::Name(name) => {
                trace::thread_name(self.tid.0, self.process.id.0, &name);
                state.name = name;
            }
            SchedulingChange::Policy(policy, priority) => {
                state.policy = (policy, priority);
                self.release_reservation();
            }
            SchedulingChange::Deadline(policy, parameters) => {
                self.reserve(parameters, &state.affinity)?;
                state.policy = (policy, 0);
            }
        }
        let deadline = self.deadline_parameters();
        let parameters =
            Scheduling { affinity: state.affinity.clone(), nice: state.nice, policy: state.policy, deadline };
        drop(state);
        if reschedule {
            self.reschedule();
        }
        // Cloned first: the scheduler may look at this thread.
        let task = self.task.lock().clone();
        if let Some(task) = task.filter(|_| mask != 0) {
            self.process.system.scheduler.set_allowed(&task, mask);
        }
        Ok(parameters)
    }
}

impl Process {
    /// What [`ScheduledThread::limits`] says.
    pub(crate) fn scheduling_limits(&self) -> (u64, u64) {
        (self.limit(RLIMIT_NICE), self.limit(RLIMIT_RTPRIO))
    }
}

/// The scheduling of a thread that is to be changed, for the check of permissions.
struct ScheduledThread {
    uid: u32,
    euid: u32,
    nice: i8,
    policy: (u32, u32),
    /// Soft limits of its process: RLIMIT_NICE and RLIMIT_RTPRIO.
    limits: (u64, u64),
}

impl ScheduledThread {
    /// Checks whether `sender` may make the change: EPERM or EACCES if not (man 2 setpriority, man 7 sched).
    fn check(&self, change: &SchedulingChange, sender: &Credentials) -> Result<()> {
        let owns = [self.uid, self.euid].contains(&sender.euid);
        if matches!(change, SchedulingChange::Read) || sender.can(abi::capability::SYS_NICE) {
            return Ok(());
        }
        match *change {
            _ if !owns => Err(Errno::EPERM),
            SchedulingChange::Nice(nice) if nice < self.nice && !self.may_be(nice) => Err(Errno::EACCES),
            // Only with CAP_SYS_NICE.
            SchedulingChange::Deadline(..) => Err(Errno::EPERM),
            SchedulingChange::Policy(policy, priority) if !self.may_follow(policy, priority) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// RLIMIT_NICE, which counts from 19 down.
    fn may_be(&self, nice: i8) -> bool {
        self.limits.0 >= (20 - i64::from(nice)) as u64
    }

    fn may_follow(&self, policy: u32, priority: u32) -> bool {
        let ((old, old_priority), most) = (self.policy, self.limits.1);
        let (base, old_base) = (policy & !RESET_ON_FORK, old & !RESET_ON_FORK);
        if matches!(base, FIFO | ROUND_ROBIN) {
            let same = base == old_base || most > 0;
            if !same || u64::from(priority) > most && priority > old_priority {
                return false;
            }
        }
        // Out of SCHED_IDLE is up; and what is reset on fork stays so.
        let rises = old_base == IDLE && base != IDLE && !self.may_be(self.nice);
        let keeps = old & RESET_ON_FORK != 0 && policy & RESET_ON_FORK == 0;
        !rises && !keeps
    }
}

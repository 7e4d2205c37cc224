//! Semaphore sets (man 2 semop, semctl).

use crate::{
    names::{check, check_owner, permissions_of, set, READ, WRITE},
    Ipc, NO_WAIT,
};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    collections::try_filled,
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, Pid,
};
use messages::ipc::*;

/// SEMMSL, SEMOPM, SEMVMX.
pub const SET_MAX: u64 = 32000;
pub const OPS_MAX: usize = 500;
pub const VALUE_MAX: i32 = 32767;
pub const UNDO: i16 = 0x1000;

pub(crate) struct Set {
    state: Lock<State>,
    changed: WaitQueue,
}

struct State {
    permissions: Permissions,
    values: Vec<Semaphore>,
    /// For those, to who has made them.
    _charge: Charge,
    created: i64,
    operated: i64,
    /// What to add at a process's end.
    undo: BTreeMap<Pid, Undo>,
    /// What each waiter waits for: semaphore, and whether for zero. By a number of its own.
    waiting: BTreeMap<u64, (u16, bool)>,
    next_waiter: u64,
    removed: bool,
}

struct Undo {
    /// Of each semaphore.
    adjust: Vec<i32>,
    /// To the process.
    _charge: Charge,
}

/// `count` times `value`, and what is charged for it. ENOMEM.
fn charged<T: Clone>(count: usize, value: T, account: &Arc<Account>) -> Result<(Vec<T>, Charge)> {
    let charge = account.charge(Resource::Memory, count * size_of::<T>()).map_err(|OverLimit| Errno::ENOMEM)?;
    Ok((try_filled(count, value)?, charge))
}

#[derive(Clone, Copy)]
struct Semaphore {
    value: i32,
    last: Pid,
}

/// What trying came to.
enum Tried {
    Done,
    /// It must wait for this semaphore (to become zero).
    Blocks(u16, bool),
}

impl State {
    /// All operations or none.
    fn attempt(&mut self, ops: &[SemaphoreOp], process: Pid, now: i64) -> Result<Tried> {
        let mut values: Vec<i32> = self.values.iter().map(|semaphore| semaphore.value).collect();
        let mut undo = self.undo.get(&process).map(|undo| undo.adjust.clone());
        for op in ops {
            let (number, change) = (usize::from(op.number), i32::from(op.change));
            let value = &mut values[number];
            let blocks = match change {
                0 => *value != 0,
                _ => *value + change < 0,
            };
            if blocks {
                return match op.flags as u32 & NO_WAIT {
                    0 => Ok(Tried::Blocks(op.number, change == 0)),
                    _ => Err(Errno::EAGAIN),
                };
            }
            if *value + change > VALUE_MAX {
                return Err(Errno::ERANGE);
            }
            *value += change;
            if op.flags & UNDO != 0 && change != 0 {
                // There is one, see [`Set::make_undo`], unless the process has ended.
                let adjust = &mut undo.as_mut().ok_or(Errno::EINTR)?[number];
                *adjust -= change;
                if adjust.abs() > VALUE_MAX {
                    return Err(Errno::ERANGE);
                }
            }
        }
        for (semaphore, value) in self.values.iter_mut().zip(values) {
            semaphore.value = value;
        }
        for op in ops {
            self.values[usize::from(op.number)].last = process;
        }
        if let (Some(adjust), Some(undo)) = (undo, self.undo.get_mut(&process)) {
            undo.adjust = adjust;
        }
        self.operated = now;
        Ok(Tried::Done)
    }
}

/// A waiter is counted until it is over.
struct Counted<'a> {
    set: &'a Set,
    number: u64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.set.state.lock().waiting.remove(&self.number);
    }
}

impl Set {
    pub fn new(wanted: &Wanted, account: &Arc<Account>, now: i64) -> Result<Set> {
        if wanted.size == 0 || wanted.size > SET_MAX {
            return Err(Errno::EINVAL);
        }
        let (values, charge) = charged(wanted.size as usize, Semaphore { value: 0, last: Pid(0) }, account)?;
        let state = State {
            permissions: permissions_of(wanted),
            values,
            _charge: charge,
            created: now,
            operated: 0,
            undo: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_waiter: 0,
            removed: false,
        };
        Ok(Set { state: Lock::new(state), changed: WaitQueue::new() })
    }

    pub fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }

    pub fn count(&self) -> usize {
        self.state.lock().values.len()
    }

    pub fn status(&self, id: i32) -> Status {
        let state = self.state.lock();
        let details = Details::Semaphores { count: state.values.len() as u64, operated: state.operated };
        Status { id, permissions: state.permissions, changed: state.created, details }
    }

    /// The process has ended.
    pub fn undo(&self, process: Pid, now: i64) {
        {
            let mut state = self.state.lock();
            let Some(undo) = state.undo.remove(&process) else { return };
            for (semaphore, change) in state.values.iter_mut().zip(undo.adjust) {
                if change != 0 {
                    // Linux clips what would leave the range.
                    semaphore.value = (semaphore.value + change).clamp(0, VALUE_MAX);
                    semaphore.last = process;
                }
            }
            state.operated = now;
        }
        self.changed.wake_all();
    }

    /// Processes that have something to undo.
    pub fn undoers(&self) -> Vec<Pid> {
        self.state.lock().undo.keys().copied().collect()
    }

    fn needs_undo(&self, process: Pid) -> bool {
        !self.state.lock().undo.contains_key(&process)
    }

    /// Of a process that has none yet. ENOMEM.
    fn make_undo(&self, process: Pid, account: &Arc<Account>) -> Result<()> {
        let mut state = self.state.lock();
        let (adjust, _charge) = charged(state.values.len(), 0, account)?;
        state.undo.entry(process).or_insert(Undo { adjust, _charge });
        Ok(())
    }

    async fn operate(&self, ops: &[SemaphoreOp], process: Pid, now: impl Fn() -> i64) -> Result<()> {
        let number = {
            let mut state = self.state.lock();
            state.next_waiter += 1;
            state.next_waiter
        };
        let counted = Counted { set: self, number };
        let attempt = || {
            let mut state = self.state.lock();
            if state.removed {
                return Some(Err(Errno::EIDRM));
            }
            match state.attempt(ops, process, now()) {
                Ok(Tried::Done) => Some(Ok(())),
                Ok(Tried::Blocks(semaphore, zero)) => {
                    state.waiting.insert(number, (semaphore, zero));
                    None
                }
                Err(error) => Some(Err(error)),
            }
        };
        let result = self.changed.wait_until(attempt).await;
        drop(counted);
        if result.is_ok() && ops.iter().any(|op| op.change != 0) {
            self.changed.wake_all();
        }
        result
    }
}

impl Ipc {
    pub(crate) async fn operate(&self, id: i32, ops: Vec<SemaphoreOp>, asker: Asker) -> Result<()> {
        let set = self.sets.get(id)?;
        let count = set.count();
        if ops.iter().any(|op| usize::from(op.number) >= count) {
            return Err(Errno::EFBIG);
        }
        let alters = ops.iter().any(|op| op.change != 0);
        check(&set.permissions(), &asker.who, if alters { WRITE } else { READ })?;
        let undoes = ops.iter().any(|op| op.flags & UNDO != 0);
        if undoes && set.needs_undo(asker.process) {
            self.watch_end(asker.process).await?;
            set.make_undo(asker.process, &self.account_of(&asker))?;
        }
        set.operate(&ops, asker.process, || self.seconds()).await
    }

    pub(crate) async fn control_set(&self, id: i32, command: Command, asker: &Asker) -> Result<Answer> {
        let set = self.sets.get(id)?;
        if let Command::Remove = command {
            let key = set.remove(asker)?;
            self.sets.remove(id);
            set.changed.wake_all();
            self.forget_key(IpcKind::Semaphores, key, id).await;
            return Ok(Answer::Done);
        }
        let answer = set.control(id, command, asker, self.seconds())?;
        set.changed.wake_all();
        Ok(answer)
    }
}

impl Set {
    /// The key it had.
    fn remove(&self, asker: &Asker) -> Result<i32> {
        let mut state = self.state.lock();
        check_owner(&state.permissions, &asker.who)?;
        state.removed = true;
        Ok(state.permissions.key)
    }

    fn control(&self, id: i32, command: Command, asker: &Asker, now: i64) -> Result<Answer> {
        let mut state = self.state.lock();
        let index = |number: i32| usize::try_from(number).ok().filter(|index| *index < state.values.len());
        let may = |wanted: u32| check(&state.permissions, &asker.who, wanted);
        let answer = match command {
            Command::Status { check } => {
                if check {
                    may(READ)?;
                }
                drop(state);
                return Ok(Answer::Status(self.status(id)));
            }
            Command::GetValue { number } => {
                let at = index(number).ok_or(Errno::EINVAL);
                may(READ)?;
                Answer::Number(i64::from(state.values[at?].value))
            }
            Command::GetPid { number } => {
                let at = index(number).ok_or(Errno::EINVAL);
                may(READ)?;
                Answer::Number(i64::from(state.values[at?].last.0))
            }
            Command::GetWaiting { number, zero } => {
                let at = index(number).ok_or(Errno::EINVAL);
                may(READ)?;
                let at = at?;
                let meant = |(semaphore, for_zero): &&(u16, bool)| usize::from(*semaphore) == at && *for_zero == zero;
                Answer::Number(state.waiting.values().filter(meant).count() as i64)
            }
            Command::GetAll => {
                may(READ)?;
                Answer::Values(state.values.iter().map(|semaphore| semaphore.value as u16).collect())
            }
            Command::SetValue { number, value } => {
                let at = index(number).ok_or(Errno::EINVAL)?;
                may(WRITE)?;
                state.values[at] = Semaphore { value, last: asker.process };
                state.undo.values_mut().for_each(|undo| undo.adjust[at] = 0);
                state.created = now;
                Answer::Done
            }
            Command::SetAll(values) => {
                may(WRITE)?;
                if values.len() != state.values.len() {
                    return Err(Errno::EINVAL);
                }
                if values.iter().any(|value| i32::from(*value) > VALUE_MAX) {
                    return Err(Errno::ERANGE);
                }
                for (semaphore, value) in state.values.iter_mut().zip(values) {
                    *semaphore = Semaphore { value: i32::from(value), last: asker.process };
                }
                state.undo.values_mut().for_each(|undo| undo.adjust.fill(0));
                state.created = now;
                Answer::Done
            }
            Command::Set { uid, gid, mode, .. } => {
                check_owner(&state.permissions, &asker.who)?;
                set(&mut state.permissions, uid, gid, mode)?;
                state.created = now;
                Answer::Done
            }
            Command::Remove | Command::Lock(_) => return Err(Errno::EINVAL),
        };
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn set_of(values: &[i32]) -> State {
        let values = values.iter().map(|value| Semaphore { value: *value, last: Pid(0) }).collect();
        State {
            permissions: Permissions::default(),
            values,
            _charge: Charge::FREE,
            created: 0,
            operated: 0,
            undo: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_waiter: 0,
            removed: false,
        }
    }

    fn op(number: u16, change: i16, flags: i16) -> SemaphoreOp {
        SemaphoreOp { number, change, flags }
    }

    #[test]
    fn operations_happen_all_or_not_at_all() {
        let mut state = set_of(&[1, 0]);
        assert!(matches!(state.attempt(&[op(0, -1, 0), op(1, -1, 0)], Pid(1), 0), Ok(Tried::Blocks(1, false))));
        assert_eq!(state.values[0].value, 1);
        assert!(matches!(state.attempt(&[op(0, 0, 0)], Pid(1), 0), Ok(Tried::Blocks(0, true))));
        assert!(matches!(state.attempt(&[op(0, 0, NO_WAIT as i16)], Pid(1), 0), Err(Errno::EAGAIN)));
        state.undo.insert(Pid(7), Undo { adjust: vec![0, 0], _charge: Charge::FREE });
        assert!(matches!(state.attempt(&[op(1, 1, 0), op(1, -1, 0), op(0, -1, UNDO)], Pid(7), 0), Ok(Tried::Done)));
        assert_eq!((state.values[0].value, state.undo[&Pid(7)].adjust[0]), (0, 1));
        assert!(matches!(state.attempt(&[op(0, 32767, 0), op(0, 1, 0)], Pid(1), 0), Err(Errno::ERANGE)));
    }

    #[test]
    fn the_end_of_a_process_undoes_within_the_range() {
        let mut state = set_of(&[0, 5]);
        state.undo.insert(Pid(7), Undo { adjust: vec![1, -9], _charge: Charge::FREE });
        let set = Set { state: Lock::new(state), changed: WaitQueue::new() };
        set.undo(Pid(7), 3);
        set.undo(Pid(7), 4);
        let state = set.state.lock();
        assert_eq!((state.values[0].value, state.values[1].value, state.operated), (1, 0, 3));
    }
}

//! Who pays for what a kernel keeps.
//!
//! Whatever a kernel keeps on behalf of a program is charged to an [`Account`] of that kernel: a process's, which passes the
//! charge on to its user's. Accounts of different kernels know nothing of each other, so charging costs no message; a limit is
//! therefore one per kernel. A [`Charge`] is part of the object that it is for: when the object is dropped, the account has
//! the amount back, however the object came to its end.
//!
//! ```text
//! Accounts ── user 1000 ─┬─ process 17 <── Charge in a queued message
//!    │                   └─ process 23 <── Charge in an epoll entry
//!    └─────── user 0 ────── process 5
//! a tmpfs (an account by itself, limited by size= and nr_inodes=) <── Charge in each of its inodes
//! ```
//!
//! An account lives as long as a charge does, so objects may outlive their process. What a process holds is looked at when
//! memory is short ([`Accounts::processes`]).

use crate::{sync::Lock, HashMap, Pid};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is counted, each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of kernel memory.
    Memory,
    /// Pages of files in memory.
    Pages,
    /// Files and directories of a file system in memory.
    Inodes,
    /// Descriptors in messages that nobody has received (RLIMIT_NOFILE).
    DescriptorsInFlight,
    /// Bytes of buffers for what a program reads or writes. Without one a transfer goes page by page.
    Transfers,
    /// Bytes that pipes keep. What they may keep is limited by the next.
    PipeBytes,
    /// Pages that pipes have room for (pipe-user-pages-soft).
    PipePages,
    /// Signals that wait, and timers, each of which has a place among them (RLIMIT_SIGPENDING).
    Signals,
    /// Files that epolls watch (fs.epoll.max_user_watches).
    Watches,
}

const RESOURCES: usize = 9;

/// The account, or one above it, would exceed its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit;

/// What has been charged to one payer, and how much may be, by [`Resource`].
#[derive(Debug)]
pub struct Account {
    above: Option<Arc<Account>>,
    used: [AtomicUsize; RESOURCES],
    most: [AtomicUsize; RESOURCES],
}

impl Account {
    /// An account whose charges are charged to `above`, too. Resources that `most` does not name have no limit.
    pub fn new(above: Option<Arc<Account>>, most: &[(Resource, usize)]) -> Arc<Self> {
        let account =
            Account { above, used: Default::default(), most: core::array::from_fn(|_| AtomicUsize::new(usize::MAX)) };
        most.iter().for_each(|(resource, most)| account.set_most(*resource, *most));
        Arc::new(account)
    }

    /// How much of the resource is charged now.
    pub fn used(&self, resource: Resource) -> usize {
        self.used[resource as usize].load(Relaxed)
    }

    /// How much may be charged; `usize::MAX`: no limit.
    pub fn most(&self, resource: Resource) -> usize {
        self.most[resource as usize].load(Relaxed)
    }

    /// Sets the limit. What is charged beyond it stays charged.
    pub fn set_most(&self, resource: Resource, most: usize) {
        self.most[resource as usize].store(most, Relaxed);
    }

    /// Charges `amount` to this account and those above it.
    pub fn charge(self: &Arc<Self>, resource: Resource, amount: usize) -> Result<Charge, OverLimit> {
        let mut charge = self.nothing(resource);
        charge.grow(amount)?;
        Ok(charge)
    }

    /// Charges with `most` as the limit of the topmost account (`usize::MAX`: none) instead of the limits the accounts have:
    /// for a limit of the caller's own, and for those who may exceed it.
    pub fn charge_within(
        self: &Arc<Self>,
        resource: Resource,
        amount: usize,
        most: usize,
    ) -> Result<Charge, OverLimit> {
        let mut charge = self.nothing(resource);
        charge.set_within(amount, most)?;
        Ok(charge)
    }

    /// How much more it may be charged with, and those above it.
    pub fn room(&self, resource: Resource) -> usize {
        let left = |account: &Account| account.most(resource).saturating_sub(account.used(resource));
        self.chain().map(left).min().unwrap_or(0)
    }

    /// What the topmost account is charged with: of a process's, its user.
    pub fn used_at_top(&self, resource: Resource) -> usize {
        self.chain().last().map_or(0, |top| top.used(resource))
    }

    /// A charge of nothing, to be grown.
    pub fn nothing(self: &Arc<Self>, resource: Resource) -> Charge {
        Charge { account: Some(self.clone()), resource, amount: 0 }
    }

    /// Bytes of kernel memory that all of it takes.
    fn bytes(&self) -> usize {
        let bytes: usize =
            [Resource::Memory, Resource::Transfers, Resource::PipeBytes].map(|of| self.used(of)).iter().sum();
        bytes + self.used(Resource::Watches) * WATCH_BYTES + self.used(Resource::Signals) * SIGNAL_BYTES
    }

    /// Itself and those above it.
    fn chain(&self) -> impl Iterator<Item = &Account> {
        core::iter::successors(Some(self), |account| account.above.as_deref())
    }

    fn add(&self, resource: Resource, amount: usize) {
        self.used[resource as usize].fetch_add(amount, Relaxed);
    }

    fn give_back(&self, resource: Resource, amount: usize) {
        self.used[resource as usize].fetch_sub(amount, Relaxed);
    }

    fn take(&self, resource: Resource, amount: usize) -> Result<(), OverLimit> {
        for account in self.chain() {
            let (used, most) = (&account.used[resource as usize], account.most(resource));
            let before = used.fetch_add(amount, Relaxed);
            if before.checked_add(amount).is_none_or(|now| now > most) {
                // This one and those below it.
                let failed = core::ptr::from_ref(account);
                for charged in self.chain() {
                    charged.give_back(resource, amount);
                    if core::ptr::eq(charged, failed) {
                        break;
                    }
                }
                return Err(OverLimit);
            }
        }
        Ok(())
    }
}

/// An amount that an account is charged with as long as this exists.
#[derive(Debug)]
pub struct Charge {
    /// None: what is charged to nobody.
    account: Option<Arc<Account>>,
    resource: Resource,
    amount: usize,
}

impl Charge {
    /// A charge that nobody pays: for what the kernel keeps for itself.
    pub const FREE: Charge = Charge { account: None, resource: Resource::Memory, amount: 0 };

    /// How much is charged with it.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Whether anybody pays.
    pub fn is_charged(&self) -> bool {
        self.account.is_some()
    }

    /// Charges `by` more; if that is too much, nothing changes.
    pub fn grow(&mut self, by: usize) -> Result<(), OverLimit> {
        if let Some(account) = &self.account {
            account.take(self.resource, by)?;
        }
        self.amount += by;
        Ok(())
    }

    /// Charges `by` more, whatever the limits say: for what exists already.
    pub fn grow_anyway(&mut self, by: usize) {
        if let Some(account) = &self.account {
            account.chain().for_each(|account| account.add(self.resource, by));
        }
        self.amount += by;
    }

    /// Changes the amount. More is refused if the topmost account would then have more than `most`; its own limit is not looked at.
    pub fn set_within(&mut self, amount: usize, most: usize) -> Result<(), OverLimit> {
        let Some(by) = amount.checked_sub(self.amount).filter(|by| *by > 0) else {
            self.shrink(self.amount - amount);
            return Ok(());
        };
        if self.account.as_ref().is_some_and(|account| account.used_at_top(self.resource).saturating_add(by) > most) {
            return Err(OverLimit);
        }
        self.grow_anyway(by);
        Ok(())
    }

    /// Gives back `by`, or all that there is.
    pub fn shrink(&mut self, by: usize) {
        let by = by.min(self.amount);
        self.amount -= by;
        if let Some(account) = &self.account {
            account.chain().for_each(|account| account.give_back(self.resource, by));
        }
    }
}

impl Default for Charge {
    fn default() -> Self {
        Charge::FREE
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

/// A user's kernel objects may take this part of a kernel's memory.
const USER_PART: usize = 8;
/// Files that a user's epolls watch may take this part of it, as on Linux (eventpoll_init).
const WATCHES_PART: usize = 25;
/// About what one of those takes, and a signal that waits: bytes.
const WATCH_BYTES: usize = 512;
const SIGNAL_BYTES: usize = 64;
/// Buffers of transfers of all processes of a user may take this part.
const TRANSFERS_PART: usize = 16;

/// The accounts of one kernel.
pub struct Accounts {
    /// Of the kernel, bytes.
    memory: usize,
    known: Lock<Known>,
}

#[derive(Default)]
struct Known {
    users: HashMap<u32, Weak<Account>>,
    processes: HashMap<(Pid, u32), Weak<Account>>,
}

impl Accounts {
    /// For a kernel with so many bytes of memory, of which the limits are parts.
    pub fn new(memory: usize) -> Arc<Self> {
        Arc::new(Accounts { memory, known: Lock::default() })
    }

    /// The account of `process`, which acts for the user with the real id `uid`: an account may come with each change of user.
    pub fn of(&self, process: Pid, uid: u32) -> Arc<Account> {
        let mut known = self.known.lock();
        if let Some(account) = known.processes.get(&(process, uid)).and_then(Weak::upgrade) {
            return account;
        }
        let user = match known.users.get(&uid).and_then(Weak::upgrade) {
            Some(user) => user,
            None => {
                let user = Account::new(None, &self.limits(uid));
                sweep(&mut known.users);
                known.users.insert(uid, Arc::downgrade(&user));
                user
            }
        };
        let account = Account::new(Some(user), &[]);
        sweep(&mut known.processes);
        known.processes.insert((process, uid), Arc::downgrade(&account));
        account
    }

    /// Files that the epolls of a user may watch on this kernel (fs.epoll.max_user_watches).
    pub fn most_watches(&self) -> usize {
        self.memory / WATCHES_PART / WATCH_BYTES
    }

    /// Bytes of memory the superuser may have charged as much as there is; a process with too much is found when memory is short.
    fn limits(&self, uid: u32) -> Vec<(Resource, usize)> {
        let memory = if uid == 0 { usize::MAX } else { self.memory / USER_PART };
        let transfers = self.memory / TRANSFERS_PART;
        [(Resource::Memory, memory), (Resource::Transfers, transfers), (Resource::Watches, self.most_watches())].into()
    }

    /// Bytes that each process is charged with, whoever it acted for.
    pub fn processes(&self) -> BTreeMap<Pid, usize> {
        let mut charged = BTreeMap::new();
        for ((process, _), account) in self.known.lock().processes.iter() {
            if let Some(account) = account.upgrade() {
                *charged.entry(*process).or_default() += account.bytes();
            }
        }
        charged
    }
}

/// Before one is added: those that are no more go whenever the map would have to grow.
fn sweep<K: core::hash::Hash + Eq>(known: &mut HashMap<K, Weak<Account>>) {
    if known.len() == known.capacity() {
        known.retain(|_, account| account.strong_count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_goes_up_to_the_user_and_comes_back() {
        let accounts = Accounts::new(8 << 20);
        let (one, other) = (accounts.of(Pid(7), 1000), accounts.of(Pid(8), 1000));
        assert!(Arc::ptr_eq(&one, &accounts.of(Pid(7), 1000)));
        let mut kept = one.charge(Resource::Memory, 600 << 10).unwrap();
        assert_eq!(other.charge(Resource::Memory, 600 << 10).unwrap_err(), OverLimit);
        assert_eq!(other.used(Resource::Memory), 0, "what was refused is charged to nobody");
        assert_eq!((one.room(Resource::Memory), one.room(Resource::Inodes)), (424 << 10, usize::MAX));
        let more = other.charge(Resource::Memory, 424 << 10).unwrap();
        assert_eq!(one.room(Resource::Memory), 0);
        assert!(kept.grow(1).is_err());
        kept.shrink(1);
        assert!(kept.grow(1).is_ok());
        drop(kept);
        assert!(other.charge(Resource::Memory, 600 << 10).is_ok());
        drop(other);
        assert_eq!(accounts.processes(), [(Pid(7), 0), (Pid(8), 424 << 10)].into());
        drop((one, more));
        assert!(accounts.processes().is_empty());
    }

    #[test]
    fn users_do_not_pay_for_each_other_and_the_superuser_has_no_limit() {
        let accounts = Accounts::new(8 << 20);
        let all = accounts.of(Pid(7), 1000).charge(Resource::Memory, 1 << 20).unwrap();
        assert!(accounts.of(Pid(8), 1000).charge(Resource::Memory, 1).is_err());
        assert!(accounts.of(Pid(8), 1001).charge(Resource::Memory, 1 << 20).is_ok());
        assert!(accounts.of(Pid(9), 0).charge(Resource::Memory, 1 << 30).is_ok());
        drop(all);
    }

    #[test]
    fn a_limit_of_the_caller_bounds_what_its_user_has_in_all_processes() {
        let accounts = Accounts::new(8 << 20);
        let two = accounts.of(Pid(7), 1000).charge_within(Resource::DescriptorsInFlight, 2, 3).unwrap();
        let process = accounts.of(Pid(8), 1000);
        assert!(process.charge_within(Resource::DescriptorsInFlight, 2, 3).is_err());
        assert!(process.charge_within(Resource::DescriptorsInFlight, 2, usize::MAX).is_ok());
        drop(two);
        assert!(process.charge_within(Resource::DescriptorsInFlight, 3, 3).is_ok());
    }

    #[test]
    fn a_charge_over_its_limit_stays_and_may_only_become_smaller() {
        let accounts = Accounts::new(8 << 20);
        let mut kept = accounts.of(Pid(7), 1000).charge_within(Resource::PipePages, 16, 20).unwrap();
        let mut other = accounts.of(Pid(8), 1000).charge_within(Resource::PipePages, 9, usize::MAX).unwrap();
        assert_eq!((kept.set_within(17, 20), kept.amount()), (Err(OverLimit), 16));
        assert_eq!((kept.set_within(12, 20), kept.amount()), (Ok(()), 12));
        assert_eq!(
            (other.set_within(9, 20), other.set_within(8, 20), other.set_within(9, 20)),
            (Ok(()), Ok(()), Err(OverLimit))
        );
    }

    #[test]
    fn all_that_is_kept_for_a_process_counts_as_bytes() {
        let accounts = Accounts::new(8 << 20);
        let account = accounts.of(Pid(7), 0);
        let kept = [(Resource::Memory, 10), (Resource::PipeBytes, 20), (Resource::Watches, 3), (Resource::Signals, 2)];
        let kept = kept.map(|(resource, amount)| account.charge(resource, amount).unwrap());
        assert_eq!(accounts.processes(), [(Pid(7), 30 + 3 * WATCH_BYTES + 2 * SIGNAL_BYTES)].into());
        drop(kept);
        assert!(account.charge(Resource::Watches, accounts.most_watches() + 1).is_err(), "the superuser, too");
    }

    #[test]
    fn accounts_that_are_no_more_are_forgotten() {
        let accounts = Accounts::new(8 << 20);
        for process in 0..10_000 {
            drop(accounts.of(Pid(process), process).charge(Resource::Memory, 1));
        }
        assert!(accounts.known.lock().users.capacity() < 100);
    }
}

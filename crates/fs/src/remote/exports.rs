//! The table of this kernel's files that other kernels have references to, and how many each has.

use super::{observe::Observation, watch::Watch};
use crate::{
    file::{address_of, count_gained},
    socket::SocketLoan,
    File, FileRef,
};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, sync::Lock, Errno, KernelId, Memory, Serials};
use messages::{control::Reference, fs::Opened};

/// A file that other kernels have references to.
struct Export {
    file: Arc<dyn File>,
    /// How many references each kernel has.
    holders: BTreeMap<KernelId, u64>,
    /// References that one kernel has handed on to another: by holder and giver, how many `FileRetain` of the giver have come, less
    /// how many `FileArrived` of the holder. The first of the two messages about a reference is counted in `holders`. Above zero, so
    /// many references are on their way; below zero, so many `FileRetain` are.
    given: BTreeMap<(KernelId, KernelId), i64>,
    watches: BTreeMap<KernelId, Arc<Watch>>,
}

/// A file that epolls of other kernels watch. They need not have references to it.
struct ObservedExport {
    /// Weak, so that it does not keep the file open. The address stays taken, so no other file gets this one's number.
    file: Weak<dyn File>,
    by: BTreeMap<KernelId, Arc<Observation>>,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<u64, Export>,
    seen: BTreeMap<u64, ObservedExport>,
    /// The number of a file by its address: the same file always gets the same number.
    numbers: BTreeMap<usize, u64>,
}

pub struct Exports {
    table: Lock<Table>,
    serials: Serials,
}

/// References that were released, which the caller drops outside the lock: closing a file may call back into this table.
pub struct Ended {
    _file: Arc<dyn File>,
    watches: Vec<Arc<Watch>>,
}

impl Exports {
    pub fn new(memory: &dyn Memory) -> Self {
        Exports { table: Lock::default(), serials: Serials::new(memory) }
    }

    /// Counts one more reference of `holder` to `file`, and answers it. `me` is this kernel.
    pub fn add(&self, me: KernelId, file: &Arc<dyn File>, holder: KernelId) -> Opened {
        let mut table = self.table.lock();
        let table = &mut *table;
        let id = *table.numbers.entry(address_of(file)).or_insert_with(|| self.serials.next());
        let export = table.files.entry(id).or_insert_with(|| Export {
            file: file.clone(),
            holders: BTreeMap::new(),
            given: BTreeMap::new(),
            watches: BTreeMap::new(),
        });
        *export.holders.entry(holder).or_default() += 1;
        count_gained(&**file);
        describe(FileRef { owner: me, id }, file)
    }

    /// `FileRetain`: `giver` sends `holder` a reference.
    pub fn given(&self, id: u64, holder: KernelId, giver: KernelId) {
        let mut table = self.table.lock();
        let Some(export) = table.files.get_mut(&id) else { return };
        count_gained(&*export.file);
        if export.balance(holder, giver, 1) >= 0 {
            *export.holders.entry(holder).or_default() += 1;
        }
    }

    /// `FileArrived`: a reference that `giver` has sent is at `holder`.
    pub fn arrived(&self, id: u64, holder: KernelId, giver: KernelId) {
        let mut table = self.table.lock();
        let Some(export) = table.files.get_mut(&id) else { return };
        count_gained(&*export.file);
        if export.balance(holder, giver, -1) <= 0 {
            *export.holders.entry(holder).or_default() += 1;
        }
    }

    /// `FilesLost`: references that `giver` has announced for `holder` and that have not arrived never will. Uncounts them.
    pub fn lost(&self, holder: KernelId, giver: KernelId) -> Vec<Ended> {
        let mut table = self.table.lock();
        let take = |(id, export): (&u64, &mut Export)| {
            let count = export.given.remove(&(holder, giver))?;
            count_gained(&*export.file);
            Some((*id, count))
        };
        let lost: Vec<(u64, i64)> = table.files.iter_mut().filter_map(take).collect();
        let lost = lost.into_iter().filter_map(|(id, count)| Some((id, u64::try_from(count).ok()?)));
        lost.filter_map(|(id, count)| table.release(id, holder, count)).collect()
    }

    /// `FileUnsent`: `giver` does not send `holder` a reference that it has announced. Uncounts it.
    pub fn unsent(&self, id: u64, holder: KernelId, giver: KernelId) -> Option<Ended> {
        let mut table = self.table.lock();
        let export = table.files.get_mut(&id)?;
        count_gained(&*export.file);
        let before = export.balance(holder, giver, -1);
        (before > 0).then(|| table.release(id, holder, 1))?
    }

    /// The file with this number. EBADF: it is closed.
    pub fn get(&self, id: u64) -> Result<Arc<dyn File>> {
        let table = self.table.lock();
        let exported = table.files.get(&id).map(|export| export.file.clone());
        exported.iter().for_each(|file| count_gained(&**file));
        exported.or_else(|| table.seen.get(&id)?.file.upgrade()).ok_or(Errno::EBADF)
    }

    /// Which kernels have references to a socket. None: no other kernel has.
    pub fn loan_of(&self, file: &Arc<dyn File>) -> Option<SocketLoan> {
        let table = self.table.lock();
        let id = *table.numbers.get(&address_of(file))?;
        let export = table.files.get(&id)?;
        let holders = export.holders.iter().map(|(&holder, &count)| (holder, count)).collect();
        Some(SocketLoan { id, holders, settled: export.given.is_empty() })
    }

    /// The number of the file at this address.
    pub fn number(&self, address: usize) -> Option<u64> {
        self.table.lock().numbers.get(&address).copied()
    }

    /// The file of a reference to this kernel's own file that `giver` has sent it. The reference is uncounted at once, since the caller
    /// has the file.
    pub fn come_home(&self, id: u64, me: KernelId, giver: KernelId) -> Result<Arc<dyn File>> {
        let file = self.get(id)?;
        self.arrived(id, me, giver);
        drop(self.release(id, me, 1));
        Ok(file)
    }

    /// `FileRelease`: uncounts references of `holder`.
    pub fn release(&self, id: u64, holder: KernelId, count: u64) -> Vec<Ended> {
        self.table.lock().release(id, holder, count).into_iter().collect()
    }

    /// Uncounts all references of a dead kernel, and ends what its epolls observed.
    pub fn release_all(&self, holder: KernelId) -> Vec<Ended> {
        let mut table = self.table.lock();
        let watched: Vec<u64> = table.seen.keys().copied().collect();
        let ended: Vec<_> = watched
            .into_iter()
            .filter_map(|id| {
                let seen = table.seen.get_mut(&id)?;
                let observation = seen.by.remove(&holder);
                if seen.by.is_empty() {
                    table.forget_seen(id);
                }
                observation
            })
            .collect();
        let held: Vec<u64> =
            table.files.iter().filter(|(_, export)| export.holders.contains_key(&holder)).map(|(&id, _)| id).collect();
        let released = held.into_iter().filter_map(|id| table.release(id, holder, u64::MAX)).collect();
        table.files.values_mut().for_each(|export| export.given.retain(|(to, _), _| *to != holder));
        drop(table);
        drop(ended);
        released
    }

    /// `FileWatch`: tells `holder` of changes of the file's readiness from now on.
    pub fn watch(
        &self,
        id: u64,
        holder: KernelId,
        watch: impl FnOnce(&Arc<dyn File>) -> Arc<Watch>,
    ) -> Result<Arc<dyn File>> {
        let mut table = self.table.lock();
        let export = table.files.get_mut(&id).ok_or(Errno::EBADF)?;
        let file = export.file.clone();
        if export.pollable() {
            export.watches.entry(holder).or_insert_with(|| watch(&file));
        }
        Ok(file)
    }

    /// `FileObserve`: epolls of `holder` watch a file that it has a reference to. `begin` makes the observation if there is none yet.
    pub fn observe(
        &self,
        id: u64,
        holder: KernelId,
        begin: impl FnOnce(&Arc<dyn File>) -> Arc<Observation>,
    ) -> Result<(Arc<dyn File>, Arc<Observation>)> {
        let mut table = self.table.lock();
        let file = table.files.get(&id).map(|export| export.file.clone()).ok_or(Errno::EBADF)?;
        let seen =
            table.seen.entry(id).or_insert_with(|| ObservedExport { file: Arc::downgrade(&file), by: BTreeMap::new() });
        let observation = seen.by.entry(holder).or_insert_with(|| begin(&file)).clone();
        Ok((file, observation))
    }

    /// What the epolls of `holder` observe of the file.
    pub fn observation(&self, id: u64, holder: KernelId) -> Option<Arc<Observation>> {
        self.table.lock().seen.get(&id)?.by.get(&holder).cloned()
    }

    /// `FileUnobserve`: ends an observation, which the caller drops outside the lock.
    pub fn unobserve(&self, id: u64, holder: KernelId) -> Option<Arc<Observation>> {
        let mut table = self.table.lock();
        let seen = table.seen.get_mut(&id)?;
        let observation = seen.by.remove(&holder);
        if seen.by.is_empty() {
            table.forget_seen(id);
        }
        observation
    }

    /// Ends all observations of a file that is closed.
    pub fn end_observed(&self, id: u64) -> Vec<Arc<Observation>> {
        let seen = self.table.lock().forget_seen(id);
        seen.map(|seen| seen.by.into_values().collect()).unwrap_or_default()
    }

    /// All references to files of this kernel.
    pub fn lent(&self, me: KernelId) -> Vec<Reference> {
        let table = self.table.lock();
        let of = |(&id, export): (&u64, &Export)| {
            let file = FileRef { owner: me, id };
            let each = export.holders.iter().map(|(&holder, &count)| Reference { file, holder, count });
            each.collect::<Vec<_>>()
        };
        table.files.iter().flat_map(of).collect()
    }

    /// How many references only the giver or only the receiver has told of.
    pub fn under_way(&self) -> usize {
        self.table.lock().files.values().map(|export| export.given.len()).sum()
    }

    /// How many files other kernels have references to, or watch.
    pub fn len(&self) -> usize {
        let table = self.table.lock();
        table.files.len() + table.seen.keys().filter(|id| !table.files.contains_key(id)).count()
    }
}

impl Export {
    /// Counts a message of the giver (`word` is 1) or of the holder (-1) in `given`. Answers the balance before.
    fn balance(&mut self, holder: KernelId, giver: KernelId, word: i64) -> i64 {
        let balance = self.given.entry((holder, giver)).or_default();
        let before = core::mem::replace(balance, *balance + word);
        if before + word == 0 {
            self.given.remove(&(holder, giver));
        }
        before
    }

    fn pollable(&self) -> bool {
        self.file.changes().is_some()
    }
}

impl Table {
    fn release(&mut self, id: u64, holder: KernelId, count: u64) -> Option<Ended> {
        let export = self.files.get_mut(&id)?;
        let held = export.holders.get_mut(&holder)?;
        count_gained(&*export.file);
        *held = held.saturating_sub(count);
        if *held > 0 {
            return None;
        }
        export.holders.remove(&holder);
        let watch = export.watches.remove(&holder);
        let file = export.file.clone();
        let gone = self.remove_if_unused(id);
        let watches = watch.into_iter().chain(gone.into_iter().flat_map(|gone| gone.watches)).collect();
        Some(Ended { _file: file, watches })
    }

    fn forget_seen(&mut self, id: u64) -> Option<ObservedExport> {
        let seen = self.seen.remove(&id)?;
        if !self.files.contains_key(&id) {
            self.numbers.remove(&(seen.file.as_ptr().cast::<()>() as usize));
        }
        Some(seen)
    }

    fn remove_if_unused(&mut self, id: u64) -> Option<Ended> {
        let export = self.files.get(&id)?;
        if !export.holders.is_empty() {
            return None;
        }
        let export = self.files.remove(&id)?;
        if !self.seen.contains_key(&id) {
            self.numbers.remove(&address_of(&export.file));
        }
        Some(Ended { _file: export.file, watches: export.watches.into_values().collect() })
    }
}

/// The reference to a file of this kernel, with all that a stand-in must know without asking.
fn describe(name: FileRef, file: &Arc<dyn File>) -> Opened {
    let pollable = file.changes().is_some();
    Opened { file: name, flags: file.flags(), waiting: file.waiting(), pollable, giver: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::EventFd, remote::tests::TestMemory};
    use Word::*;

    const OWNER: KernelId = KernelId(0);
    const GIVER: KernelId = KernelId(1);
    const HOLDER: KernelId = KernelId(2);

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Word {
        Retain,
        Unsent,
        Arrived,
        Release,
    }

    /// All orders in which words of two kernels can come, those of each in its own order.
    fn merged(giver: &[Word], holder: &[Word]) -> Vec<Vec<(KernelId, Word)>> {
        let mut orders = Vec::new();
        for (who, first, left) in [(GIVER, giver.split_first(), holder), (HOLDER, holder.split_first(), giver)] {
            let Some((word, rest)) = first else { continue };
            let later = if who == GIVER { merged(rest, left) } else { merged(left, rest) };
            orders.extend(later.into_iter().map(|order| [(who, *word)].into_iter().chain(order).collect()));
        }
        if orders.is_empty() {
            orders.push(Vec::new());
        }
        orders
    }

    #[test]
    fn a_file_is_open_while_somebody_has_it_in_whatever_order_the_words_come() {
        // The giver drops what it has at the end; the holder drops each at once, or all when all are there.
        let givers = [
            &[Retain, Retain, Release][..],
            &[Retain, Unsent, Retain, Retain, Release],
            &[Retain, Retain, Unsent, Release],
        ];
        for giver in givers {
            let count = |words: &[Word], of| words.iter().filter(|word| **word == of).count();
            let sent = count(giver, Retain) - count(giver, Unsent);
            let at_once = [Arrived, Release].repeat(sent);
            let together = [[Arrived].repeat(sent), [Release].repeat(sent)].concat();
            for order in [at_once, together].iter().flat_map(|holder| merged(giver, holder)) {
                let exports = Exports::new(&TestMemory(OWNER, Default::default()));
                let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
                let id = exports.add(OWNER, &file, GIVER).file.id;
                for (done, (who, word)) in order.iter().enumerate() {
                    assert_eq!(exports.len(), 1, "{order:?}, {done} done");
                    match word {
                        Retain => exports.given(id, HOLDER, GIVER),
                        Unsent => drop(exports.unsent(id, HOLDER, GIVER)),
                        Arrived => exports.arrived(id, HOLDER, GIVER),
                        Release => drop(exports.release(id, *who, 1)),
                    }
                }
                assert_eq!(exports.len(), 0, "{order:?}");
            }
        }
    }
}

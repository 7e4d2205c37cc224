//! The files of this kernel that others know, and how often.

use super::{observe::Observation, watch::Watch};
use crate::{file::count_gained, socket::SocketLoan, File, FileRef};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, sync::Lock, Errno, KernelId, Memory, Serials};
use messages::{control::Reference, fs::Opened};

struct Export {
    file: Arc<dyn File>,
    holders: BTreeMap<KernelId, u64>,
    /// By holder and by who gave, where that was another kernel: what that has said of, less what the holder has said of. Above zero,
    /// so many are on their way; below, the words of the giver are. Either word counts the reference, the other one does not again.
    given: BTreeMap<(KernelId, KernelId), i64>,
    watches: BTreeMap<KernelId, Arc<Watch>>,
}

/// A file that epolls of other kernels watch. It need not be exported any more.
struct Seen {
    /// Keeps the address, not the file.
    file: Weak<dyn File>,
    by: BTreeMap<KernelId, Arc<Observation>>,
}

#[derive(Default)]
struct Table {
    files: BTreeMap<u64, Export>,
    seen: BTreeMap<u64, Seen>,
    /// Number of a file by its address: the same file always has the same number.
    numbers: BTreeMap<usize, u64>,
}

pub struct Exports {
    table: Lock<Table>,
    serials: Serials,
}

/// Given to the caller to drop outside the lock: the last reference to a file may do anything.
pub struct Ended {
    _file: Arc<dyn File>,
    watches: Vec<Arc<Watch>>,
}

fn address(file: &Arc<dyn File>) -> usize {
    Arc::as_ptr(file).cast::<()>() as usize
}

impl Exports {
    pub fn new(memory: &dyn Memory) -> Self {
        Exports { table: Lock::default(), serials: Serials::new(memory) }
    }

    /// One more reference to `file`, for `holder`.
    pub fn add(&self, me: KernelId, file: &Arc<dyn File>, holder: KernelId) -> Opened {
        let mut table = self.table.lock();
        let table = &mut *table;
        let id = *table.numbers.entry(address(file)).or_insert_with(|| self.serials.next());
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

    /// `giver` sends one to `holder`.
    pub fn given(&self, id: u64, holder: KernelId, giver: KernelId) {
        let mut table = self.table.lock();
        let Some(export) = table.files.get_mut(&id) else { return };
        count_gained(&*export.file);
        if export.balance(holder, giver, 1) >= 0 {
            *export.holders.entry(holder).or_default() += 1;
        }
    }

    /// One that `giver` has sent is at `holder`.
    pub fn arrived(&self, id: u64, holder: KernelId, giver: KernelId) {
        let mut table = self.table.lock();
        let Some(export) = table.files.get_mut(&id) else { return };
        count_gained(&*export.file);
        if export.balance(holder, giver, -1) <= 0 {
            *export.holders.entry(holder).or_default() += 1;
        }
    }

    /// Nothing more that `giver` had counted for `holder` will arrive.
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

    /// One of which `giver` has said that it sends it to `holder`, it does not.
    pub fn unsent(&self, id: u64, holder: KernelId, giver: KernelId) -> Option<Ended> {
        let mut table = self.table.lock();
        let export = table.files.get_mut(&id)?;
        count_gained(&*export.file);
        let before = export.balance(holder, giver, -1);
        (before > 0).then(|| table.release(id, holder, 1))?
    }

    pub fn get(&self, id: u64) -> Result<Arc<dyn File>> {
        let table = self.table.lock();
        let exported = table.files.get(&id).map(|export| export.file.clone());
        exported.iter().for_each(|file| count_gained(&**file));
        exported.or_else(|| table.seen.get(&id)?.file.upgrade()).ok_or(Errno::EBADF)
    }

    pub fn loan_of(&self, file: &Arc<dyn File>) -> Option<SocketLoan> {
        let table = self.table.lock();
        let id = *table.numbers.get(&address(file))?;
        let export = table.files.get(&id)?;
        let holders = export.holders.iter().map(|(&holder, &count)| (holder, count)).collect();
        Some(SocketLoan { id, holders, settled: export.given.is_empty() })
    }

    /// The number of the file at this address.
    pub fn number(&self, address: usize) -> Option<u64> {
        self.table.lock().numbers.get(&address).copied()
    }

    /// What `giver` had counted for this kernel itself is there: who has the file now keeps it.
    pub fn come_home(&self, id: u64, me: KernelId, giver: KernelId) -> Result<Arc<dyn File>> {
        let file = self.get(id)?;
        self.arrived(id, me, giver);
        drop(self.release(id, me, 1));
        Ok(file)
    }

    pub fn release(&self, id: u64, holder: KernelId, count: u64) -> Vec<Ended> {
        self.table.lock().release(id, holder, count).into_iter().collect()
    }

    /// All that a dead kernel held.
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

    /// `holder` is to hear of changes.
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

    /// Epolls of `holder` watch a file that it has a reference to.
    pub fn observe(
        &self,
        id: u64,
        holder: KernelId,
        begin: impl FnOnce(&Arc<dyn File>) -> Arc<Observation>,
    ) -> Result<(Arc<dyn File>, Arc<Observation>)> {
        let mut table = self.table.lock();
        let file = table.files.get(&id).map(|export| export.file.clone()).ok_or(Errno::EBADF)?;
        let seen = table.seen.entry(id).or_insert_with(|| Seen { file: Arc::downgrade(&file), by: BTreeMap::new() });
        let observation = seen.by.entry(holder).or_insert_with(|| begin(&file)).clone();
        Ok((file, observation))
    }

    pub fn observation(&self, id: u64, holder: KernelId) -> Option<Arc<Observation>> {
        self.table.lock().seen.get(&id)?.by.get(&holder).cloned()
    }

    /// The observation is to be dropped outside the lock.
    pub fn unobserve(&self, id: u64, holder: KernelId) -> Option<Arc<Observation>> {
        let mut table = self.table.lock();
        let seen = table.seen.get_mut(&id)?;
        let observation = seen.by.remove(&holder);
        if seen.by.is_empty() {
            table.forget_seen(id);
        }
        observation
    }

    /// The file is closed.
    pub fn end_observed(&self, id: u64) -> Vec<Arc<Observation>> {
        let seen = self.table.lock().forget_seen(id);
        seen.map(|seen| seen.by.into_values().collect()).unwrap_or_default()
    }

    /// What each kernel has of each file.
    pub fn lent(&self, me: KernelId) -> Vec<Reference> {
        let table = self.table.lock();
        let of = |(&id, export): (&u64, &Export)| {
            let file = FileRef { owner: me, id };
            let each = export.holders.iter().map(|(&holder, &count)| Reference { file, holder, count });
            each.collect::<Vec<_>>()
        };
        table.files.iter().flat_map(of).collect()
    }

    /// References of which only one of giver and receiver has told.
    pub fn under_way(&self) -> usize {
        self.table.lock().files.values().map(|export| export.given.len()).sum()
    }

    /// Files that other kernels hold or watch.
    pub fn len(&self) -> usize {
        let table = self.table.lock();
        table.files.len() + table.seen.keys().filter(|id| !table.files.contains_key(id)).count()
    }
}

impl Export {
    /// A word of the giver (1), or of the holder (-1). What was known before.
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

    fn forget_seen(&mut self, id: u64) -> Option<Seen> {
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
            self.numbers.remove(&address(&export.file));
        }
        Some(Ended { _file: export.file, watches: export.watches.into_values().collect() })
    }
}

/// What a stand-in has to know.
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

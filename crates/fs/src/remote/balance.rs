//! References between kernels, as both sides count them (`cob run --audit`).
//!
//! The owner of a file counts what each kernel has of it (exports.rs), and the stand-in there counts what it will give back. While
//! words are under way the two differ; at rest they are equal, file by file. If the owner counts more, the file never ends;
//! if it counts less, it ends while somebody has it open. Neither side can see that alone.

use super::{Remote, RemoteFile};
use alloc::{format, string::String, sync::Arc, vec::Vec};
use machine::KernelId;
use messages::control::{Reference, Stock};

impl Remote {
    /// What this kernel has of others' files: by file, as its stand-ins count it.
    pub fn held(&self) -> Vec<Reference> {
        // Outside the lock: a stand-in whose last user goes meanwhile ends here.
        let all: Vec<Arc<RemoteFile>> = self.stand_ins.lock().values().filter_map(|file| file.upgrade()).collect();
        let reference =
            |file: &Arc<RemoteFile>| Reference { file: file.name(), holder: self.me(), count: file.count() };
        all.iter().map(reference).collect()
    }

    /// What others have of this kernel's files, as their owner counts it.
    pub fn lent(&self) -> Vec<Reference> {
        self.exports.lent(self.me())
    }

    /// References of which the giver has told, or the receiver, but not both; and what is put aside.
    pub fn under_way(&self) -> usize {
        self.exports.under_way() + self.aside.lock().len()
    }
}

/// Where the two sides differ, of the kernels that have said what they have.
pub fn disagreements(stocks: &[(KernelId, Stock)]) -> Vec<String> {
    let known = |kernel: KernelId| stocks.iter().any(|(id, _)| *id == kernel);
    let sorted = |of: fn(&Stock) -> &Vec<Reference>| {
        let all = stocks.iter().flat_map(|(_, stock)| of(stock));
        let mut all: Vec<&Reference> =
            all.filter(|reference| known(reference.file.owner) && known(reference.holder)).collect();
        all.sort_unstable_by_key(|reference| (reference.file, reference.holder));
        all
    };
    let (held, lent) = (sorted(|stock| &stock.held), sorted(|stock| &stock.lent));
    let mut found = Vec::new();
    let count = |list: &[&Reference], wanted: &Reference| {
        let key = (wanted.file, wanted.holder);
        let at = list.binary_search_by_key(&key, |reference| (reference.file, reference.holder));
        at.map_or(0, |at| list[at].count)
    };
    let mut compare = |reference: &Reference, held: u64, lent: u64| {
        if held != lent {
            let Reference { file, holder, .. } = reference;
            found.push(format!(
                "kernel {holder} has {held} references to file {:#x} of kernel {}, which counts {lent}",
                file.id, file.owner
            ));
        }
    };
    lent.iter().for_each(|reference| compare(reference, count(&held, reference), reference.count));
    let unknown = held.iter().filter(|reference| count(&lent, reference) == 0);
    unknown.for_each(|reference| compare(reference, reference.count, 0));
    found
}

//! An audit of the references between kernels (`cob run --audit`).
//!
//! The owner of a file counts the references of each kernel (exports.rs), and the stand-in there counts those that it will give back.
//! While messages are under way the two may differ; at rest they are equal for each file. If the owner counts more, the file is never
//! closed. If it counts less, it is closed while somebody has it open. Neither side can see that alone.

use super::{Remote, RemoteFile};
use alloc::{format, string::String, sync::Arc, vec::Vec};
use machine::KernelId;
use messages::control::{Reference, Stock};

impl Remote {
    /// The references of this kernel to files of others, as its stand-ins count them.
    pub fn held(&self) -> Vec<Reference> {
        // Used outside the lock: this may drop the last reference to a stand-in, which takes the lock.
        let all: Vec<Arc<RemoteFile>> = self.stand_ins.lock().values().filter_map(|file| file.upgrade()).collect();
        let reference =
            |file: &Arc<RemoteFile>| Reference { file: file.name(), holder: self.me(), count: file.count() };
        all.iter().map(reference).collect()
    }

    /// The references of others to files of this kernel, as this kernel counts them.
    pub fn lent(&self) -> Vec<Reference> {
        self.exports.lent(self.me())
    }

    /// References of which only the giver or only the receiver has told this kernel, and those that it has made for itself.
    pub fn under_way(&self) -> usize {
        self.exports.under_way() + self.aside.lock().len()
    }
}

/// The differences between the two sides, one line each. A reference is compared only if both its kernels have sent their [`Stock`].
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

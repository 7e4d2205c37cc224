//! The kernels that have pages of an object from the object itself.
//!
//! They are asked when pages are lost, and nobody else: an object that no other kernel maps loses pages without a
//! message. A kernel is written down *before* it is given a page, so whoever takes the page away afterwards finds it
//! here. It is not told when a mapping there ends; the next question finds that out, and takes it off the list.
//! Dangerous is a page that is given meanwhile:
//!
//! ```text
//! object                                kernel K
//! lost: asks K -----------------------> uses nothing of the object: "no more"
//!   K asks for a page, gets it  <-----> has it
//! "no more" arrives: K is forgotten     <- and never asked for that page
//! ```
//!
//! So it is counted how often K was given something, and K is only forgotten if that is still the number which it was
//! asked with.

use super::Mappers;
use alloc::collections::BTreeMap;
use machine::{sync::Lock, KernelId};
use messages::fs::Lost;

#[derive(Default)]
pub struct Holders(Lock<BTreeMap<KernelId, u64>>);

impl Holders {
    pub fn add(&self, kernel: KernelId) {
        *self.0.lock().entry(kernel).or_default() += 1;
    }

    /// Returns when no other kernel shows the lost pages.
    pub async fn tell(&self, mappers: &dyn Mappers, lost: Lost) {
        let asked = self.0.lock().clone();
        if asked.is_empty() {
            return;
        }
        let done = mappers.recall(asked.keys().copied().collect(), lost).await;
        let mut now = self.0.lock();
        for kernel in done.iter() {
            if now.get(&kernel) == asked.get(&kernel) {
                now.remove(&kernel);
            }
        }
    }
}

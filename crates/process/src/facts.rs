//! What is the same on the whole machine but decided by somebody: the time of day, and the machine's names.
//!
//! The primary decides, tells everybody and then answers: who hears of a new name from the one that set it finds it, on
//! whatever kernel. Two changes can't end in different orders on two kernels, for each has a number, and one that is older
//! than what is known is ignored. A kernel that comes later hears it from whoever booted it.

use crate::System;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use machine::{errno::Result, Errno, KernelId, KernelSet};
use messages::process::{Facts, SetName, TellFacts};

impl System {
    /// CLOCK_REALTIME in ns.
    pub fn realtime(&self) -> u64 {
        self.now() + self.realtime_offset()
    }

    /// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, ns; it never changes while programs run. (The difference of two readings
    /// is not that: time goes on in between.)
    pub fn realtime_offset(&self) -> u64 {
        self.clock.realtime_offset.load(Relaxed)
    }

    /// Host name and domain name.
    pub fn host_name(&self) -> (Vec<u8>, Vec<u8>) {
        let facts = self.facts.lock();
        (facts.host.clone(), facts.domain.clone())
    }

    /// On the primary, before there are others: the time (ns since the epoch) and the host's name.
    pub fn begin(&self, realtime: u64, host: Vec<u8>) {
        let offset = realtime.saturating_sub(self.now());
        let version = self.facts.lock().version + 1;
        self.learn(Facts { version, realtime_offset: offset, host, domain: b"(none)".to_vec() });
    }

    /// sethostname, setdomainname.
    pub async fn set_name(&self, domain: bool, name: Vec<u8>) -> Result<()> {
        if self.kernel == KernelId::PRIMARY {
            self.decide_name(domain, name).await;
            return Ok(());
        }
        self.endpoint.call(KernelId::PRIMARY, SetName { domain, name }).await.map_err(Errno::from)
    }

    pub(crate) async fn decide_name(&self, domain: bool, name: Vec<u8>) {
        let facts = {
            let mut facts = self.facts.lock();
            facts.version += 1;
            match domain {
                true => facts.domain = name,
                false => facts.host = name,
            }
            facts.clone()
        };
        self.endpoint.multicast(&self.endpoint.others(), TellFacts { facts }).await;
    }

    /// Tells kernels that have just joined what time it is, and the machine's names.
    pub async fn tell_facts(&self, newcomers: &KernelSet) {
        let facts = self.facts.lock().clone();
        self.endpoint.multicast(newcomers, TellFacts { facts }).await;
    }

    pub(crate) fn learn(&self, news: Facts) {
        let mut facts = self.facts.lock();
        if news.version > facts.version {
            self.clock.realtime_offset.store(news.realtime_offset, Relaxed);
            *facts = news;
        }
    }
}

//! What an epoll watches, and how an entry holds it: so that the file does not stay open.

use crate::{file::Observed, File};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::KernelId;

pub(super) enum Watched {
    Here(Arc<dyn File>),
    Elsewhere(Arc<dyn Observed>),
}

impl Watched {
    pub fn file(&self) -> Arc<dyn File> {
        match self {
            Watched::Here(file) => file.clone(),
            Watched::Elsewhere(file) => file.clone(),
        }
    }
}

pub(super) enum Held {
    Here(Weak<dyn File>),
    Elsewhere(Arc<dyn Observed>),
}

impl Held {
    pub fn new(watched: &Watched) -> Self {
        match watched {
            Watched::Here(file) => Held::Here(Arc::downgrade(file)),
            Watched::Elsewhere(file) => Held::Elsewhere(file.clone()),
        }
    }

    /// None: it is closed.
    pub fn get(&self) -> Option<Watched> {
        match self {
            Held::Here(file) => file.upgrade().map(Watched::Here),
            Held::Elsewhere(file) => (!file.is_gone()).then(|| Watched::Elsewhere(file.clone())),
        }
    }
}

/// Asks the owners of these files what is ready, each once.
pub(super) async fn refresh(observed: &[Arc<dyn Observed>]) {
    let mut owners: BTreeMap<KernelId, Vec<&Arc<dyn Observed>>> = BTreeMap::new();
    for file in observed.iter().filter(|file| !file.is_gone()) {
        owners.entry(file.name().owner).or_default().push(file);
    }
    for files in owners.values() {
        let ids = files.iter().map(|file| file.name().id).collect();
        let deeds = files[0].deeds();
        let answer = files[0].ask(ids).await;
        for (index, file) in files.iter().enumerate() {
            file.hear(answer.get(index).cloned().flatten());
            file.answered(deeds);
        }
    }
}

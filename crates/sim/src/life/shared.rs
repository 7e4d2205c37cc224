//! A map whose copies share what none of them has changed: the search copies the state at each step, and a step changes little of it.

use super::model::Id;
use std::{
    collections::{btree_map, BTreeMap},
    ops::Index,
    sync::Arc,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedMap<T>(Arc<BTreeMap<Id, Arc<T>>>);

impl<T> Default for SharedMap<T> {
    fn default() -> Self {
        SharedMap(Arc::default())
    }
}

impl<T> FromIterator<(Id, T)> for SharedMap<T> {
    fn from_iter<I: IntoIterator<Item = (Id, T)>>(pairs: I) -> Self {
        SharedMap(Arc::new(pairs.into_iter().map(|(id, value)| (id, Arc::new(value))).collect()))
    }
}

impl<T: Clone> SharedMap<T> {
    pub fn get(&self, id: &Id) -> Option<&T> {
        self.0.get(id).map(|value| &**value)
    }

    pub fn get_mut(&mut self, id: &Id) -> Option<&mut T> {
        // What is not there is no reason for a copy.
        self.0.contains_key(id).then_some(())?;
        Arc::make_mut(&mut self.0).get_mut(id).map(Arc::make_mut)
    }

    pub fn contains_key(&self, id: &Id) -> bool {
        self.0.contains_key(id)
    }

    pub fn insert(&mut self, id: Id, value: T) {
        Arc::make_mut(&mut self.0).insert(id, Arc::new(value));
    }

    pub fn remove(&mut self, id: &Id) -> Option<T> {
        Arc::make_mut(&mut self.0).remove(id).map(Arc::unwrap_or_clone)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn keys(&self) -> btree_map::Keys<'_, Id, Arc<T>> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|value| &**value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Id, &T)> {
        self.0.iter().map(|(id, value)| (id, &**value))
    }
}

impl<T> Index<&Id> for SharedMap<T> {
    type Output = T;

    fn index(&self, id: &Id) -> &T {
        &self.0[id]
    }
}

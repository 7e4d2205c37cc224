//! Hash maps without std.
//!
//! Whoever walks one does things in its order. With one hasher for all that order follows from what was done before, so
//! that a seed of the simulator is one run; hashbrown's own takes a new hasher for each map.

use foldhash::fast::FixedState;

pub type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;
pub type HashSet<T> = hashbrown::HashSet<T, FixedState>;

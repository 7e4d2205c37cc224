//! Plain data in messages as it lies in memory, not number by number: `#[serde(with = "machine::plain")]`.

use serde::{de::Error as _, Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Writes the bytes of `value` as they lie in memory.
pub fn serialize<T: IntoBytes + Immutable, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    Bytes::new(value.as_bytes()).serialize(to)
}

/// Takes a value from as many bytes as it has; else an error.
pub fn deserialize<'de, T: FromBytes, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let bytes: &'de Bytes = Deserialize::deserialize(from)?;
    T::read_from_bytes(bytes).map_err(|_| D::Error::invalid_length(bytes.len(), &"all of it"))
}

/// The same for lists: `#[serde(with = "machine::plain::list")]`.
pub mod list {
    use super::*;
    use alloc::vec::Vec;

    /// Writes the bytes of all values.
    pub fn serialize<T: IntoBytes + Immutable, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        Bytes::new(values.as_bytes()).serialize(to)
    }

    /// Takes values until the bytes are used up; an error if some are left over or memory is short.
    pub fn deserialize<'de, T: FromBytes + IntoBytes, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        let bytes: &'de Bytes = Deserialize::deserialize(from)?;
        let wrong = || D::Error::invalid_length(bytes.len(), &"whole values");
        let mut values = T::new_vec_zeroed(bytes.len() / size_of::<T>()).map_err(|_| wrong())?;
        let room = values.as_mut_bytes();
        if room.len() != bytes.len() {
            return Err(wrong());
        }
        room.copy_from_slice(bytes);
        Ok(values)
    }
}

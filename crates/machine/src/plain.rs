//! Plain data in messages as it lies in memory, not number by number: `#[serde(with = "machine::plain")]`.

use serde::{de::Error as _, Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub fn serialize<T: IntoBytes + Immutable, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    Bytes::new(value.as_bytes()).serialize(to)
}

pub fn deserialize<'de, T: FromBytes, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let bytes: &'de Bytes = Deserialize::deserialize(from)?;
    T::read_from_bytes(bytes).map_err(|_| D::Error::invalid_length(bytes.len(), &"all of it"))
}

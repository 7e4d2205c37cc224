//! Structures in user memory.

use crate::call::Call;
use alloc::vec::Vec;
use machine::{collections::try_filled, errno::Result, Errno, UserAddr};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

impl Call<'_> {
    /// Reads a structure. EFAULT.
    pub async fn get<T: FromBytes + FromZeros + IntoBytes>(&self, at: UserAddr) -> Result<T> {
        let mut value = T::new_zeroed();
        self.space().read(at, value.as_mut_bytes()).await?;
        Ok(value)
    }

    /// Writes a structure. EFAULT.
    pub async fn put<T: IntoBytes + Immutable>(&self, at: UserAddr, value: &T) -> Result<()> {
        self.space().write(at, value.as_bytes()).await
    }

    /// Writes a structure if the pointer is not null.
    pub async fn put_if<T: IntoBytes + Immutable>(&self, at: UserAddr, value: &T) -> Result<()> {
        if at.is_null() {
            return Ok(());
        }
        self.put(at, value).await
    }

    /// Bytes of user memory. EFAULT; ENOMEM past `limit`.
    pub async fn bytes(&self, at: UserAddr, len: usize, limit: usize) -> Result<Vec<u8>> {
        if len > limit {
            return Err(Errno::ENOMEM);
        }
        let mut bytes = try_filled(len, 0)?;
        self.space().read(at, &mut bytes).await?;
        Ok(bytes)
    }
}

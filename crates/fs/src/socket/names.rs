//! Which socket is bound where.

use super::Socket;
use crate::control::UnixPlace;
use alloc::{
    collections::BTreeMap,
    format,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, sync::Lock, Errno};

/// Names that autobind may choose (man 7 unix): a NUL and five hexadecimal digits.
const AUTOMATIC: u32 = 1 << 20;

#[derive(Default)]
pub struct UnixNames {
    bound: Lock<BTreeMap<UnixPlace, Weak<Socket>>>,
}

impl UnixNames {
    pub(super) fn bind(&self, place: UnixPlace, socket: &Weak<Socket>) -> Result<()> {
        let mut bound = self.bound.lock();
        if bound.get(&place).is_some_and(|there| there.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        bound.insert(place, socket.clone());
        Ok(())
    }

    pub(super) fn autobind(&self, socket: &Weak<Socket>) -> Result<(UnixPlace, Vec<u8>)> {
        for number in 0..AUTOMATIC {
            let name = format!("\0{number:05x}").into_bytes();
            let place = UnixPlace::Abstract(name.clone());
            if self.bind(place.clone(), socket).is_ok() {
                return Ok((place, name));
            }
        }
        Err(Errno::ENOSPC)
    }

    pub(super) fn unbind(&self, place: &UnixPlace, socket: &Weak<Socket>) {
        let mut bound = self.bound.lock();
        if bound.get(place).is_some_and(|there| there.ptr_eq(socket)) {
            bound.remove(place);
        }
    }

    /// ECONNREFUSED: there is a node, but nobody behind it.
    pub(super) fn find(&self, place: &UnixPlace) -> Result<Arc<Socket>> {
        self.bound.lock().get(place).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)
    }
}

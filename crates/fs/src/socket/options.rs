//! getsockopt and setsockopt (man 7 socket).

use super::{inbox, Role, Socket};
use alloc::vec::Vec;
use machine::{errno::Result, Errno};

const SOL_SOCKET: u32 = 1;
const SO_REUSEADDR: u32 = 2;
const SO_TYPE: u32 = 3;
const SO_ERROR: u32 = 4;
const SO_SNDBUF: u32 = 7;
const SO_RCVBUF: u32 = 8;
const SO_KEEPALIVE: u32 = 9;
const SO_PASSCRED: u32 = 16;
const SO_PEERCRED: u32 = 17;
const SO_ACCEPTCONN: u32 = 30;
const SO_PROTOCOL: u32 = 38;
const SO_DOMAIN: u32 = 39;
const AF_UNIX: i32 = 1;

impl Socket {
    pub(super) fn option(&self, level: u32, name: u32) -> Result<Vec<u8>> {
        if level != SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut state = self.state.lock();
        let value = match name {
            SO_TYPE => self.kind as i32,
            SO_ERROR => state.error.take().map_or(0, |errno| i32::from(errno.0)),
            SO_SNDBUF | SO_RCVBUF => inbox::LIMIT as i32,
            SO_PASSCRED => i32::from(state.wants_credentials),
            SO_ACCEPTCONN => i32::from(matches!(state.role, Role::Listening { .. })),
            SO_DOMAIN => AF_UNIX,
            SO_PROTOCOL | SO_REUSEADDR | SO_KEEPALIVE => 0,
            SO_PEERCRED => {
                let (pid, uid, gid) =
                    state.peer_credentials.map_or((0, u32::MAX, u32::MAX), |peer| (peer.pid, peer.uid, peer.gid));
                return Ok([pid, uid, gid].iter().flat_map(|word| word.to_ne_bytes()).collect());
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    pub(super) fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<()> {
        if level != SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        let value = crate::anonymous::argument_int(value).map_err(|_| Errno::EINVAL)?;
        match name {
            SO_PASSCRED => self.state.lock().wants_credentials = value != 0,
            // Limits are a hint that Linux bounds, too; the others mean nothing in this family, there as here.
            SO_SNDBUF | SO_RCVBUF | SO_REUSEADDR | SO_KEEPALIVE => {}
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }
}

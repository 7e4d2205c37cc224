//! ioctls about network interfaces, which any socket may be asked for (man 7 netdevice): there are none.

use linux_raw_sys::ioctl::*;
use machine::{errno::Result, Errno};

pub(super) fn no_interfaces(request: u32, data: &mut [u8]) -> Result<()> {
    match request {
        // The argument is read before the request is looked at, here and on Linux.
        SIOCADDRT..=0x89df if data.is_empty() => Err(Errno::EFAULT),
        SIOCGIFCONF => {
            // The length of the list.
            data[..4].fill(0);
            Ok(())
        }
        SIOCGIFNAME | SIOCGIFINDEX | SIOCGIFFLAGS | SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFMAP
        | SIOCGIFTXQLEN => Err(Errno::ENODEV),
        _ => Err(Errno::ENOTTY),
    }
}

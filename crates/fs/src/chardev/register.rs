//! Which device numbers lead to which files: called once, on the kernel that owns /dev.

use super::{Device, DeviceFile};
use crate::{
    devfs::{Devices, Opening},
    file::ready,
    tty::{Terminals, PTS_MAJOR},
    File, Kind, Services,
};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, Cpu, Errno};

const CHAR: Kind = Kind::CharDevice;
/// Registers null, zero, full, random, urandom, tty, console, ptmx, the slaves of pseudoterminals, and fifos.
pub fn register(devices: &Devices, terminals: &Arc<Terminals>, cpu: &Arc<dyn Cpu>, services: &Arc<Services>) {
    for device in Device::ALL {
        let (cpu, services) = (cpu.clone(), services.clone());
        let open = move |opening: &Opening<'_>| -> Result<Arc<dyn File>> {
            let at = Some(opening.at.clone());
            Ok(DeviceFile::open(device, cpu.clone(), services.clone(), opening.flags, at))
        };
        devices.register(device.name(), CHAR, device.number(), 0o666, opener(open));
    }
    let of = terminals.clone();
    let open = move |opening: &Opening<'_>| of.open_current(opening.caller, opening.flags, Some(opening.at.clone()));
    devices.register("tty", CHAR, (5, 0), 0o666, opener(open));
    let of = terminals.clone();
    let open = move |opening: &Opening<'_>| of.open_console(opening.caller, opening.flags, Some(opening.at.clone()));
    devices.register("console", CHAR, (5, 1), 0o600, opener(open));
    let of = terminals.clone();
    devices.register("ptmx", CHAR, (5, 2), 0o666, opener(move |opening| of.open_ptmx(opening.caller, opening.flags)));
    let of = terminals.clone();
    let open = move |opening: &Opening<'_>| {
        let at = Some(opening.at.clone());
        // A node that somebody made for a terminal that is not there.
        of.open_pts(opening.rdev.1, opening.caller, opening.flags, at).map_err(|errno| match errno {
            Errno::ENOENT => Errno::EIO,
            other => other,
        })
    };
    devices.register_major(CHAR, PTS_MAJOR, opener(open));
    devices.set_fifo(Arc::new(|opening| Box::pin(crate::pipe::open_node(opening))));
}

fn opener(open: impl Fn(&Opening<'_>) -> Result<Arc<dyn File>> + Send + Sync + 'static) -> crate::devfs::Opener {
    Arc::new(move |opening: Opening<'_>| -> BoxFuture<'_, Result<Arc<dyn File>>> { ready(open(&opening)) })
}

//! The character devices that are memory: null, zero, full, random, urandom (man 4 null, full, random).

mod register;

pub use register::register;

use crate::{
    anonymous::{Identity, StatusFlags},
    file::{ready, Access, Destination, Fasync, Source, Transfer},
    namespace::nodes,
    namespace::Location,
    Attributes, Caller, File, Kind, Object, OpenFlags, Services, SetAttributes, Whence,
};
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::any::Any;
use linux_raw_sys::ioctl::{RNDADDENTROPY, RNDADDTOENTCNT, RNDCLEARPOOL, RNDGETENTCNT, RNDRESEEDCRNG, RNDZAPENTCNT};
use machine::{errno::Result, BoxFuture, Cpu, Errno};

/// Major number of the memory devices; the minor is the device.
const MEMORY: u32 = 1;

/// Bits in the pool, as Linux reports since the pool is a hash.
const ENTROPY_BITS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Null = 3,
    Zero = 5,
    Full = 7,
    Random = 8,
    Urandom = 9,
}

impl Device {
    pub const ALL: [Device; 5] = [Device::Null, Device::Zero, Device::Full, Device::Random, Device::Urandom];

    pub fn name(self) -> &'static str {
        match self {
            Device::Null => "null",
            Device::Zero => "zero",
            Device::Full => "full",
            Device::Random => "random",
            Device::Urandom => "urandom",
        }
    }

    pub fn number(self) -> (u32, u32) {
        (MEMORY, self as u32)
    }
}

pub struct DeviceFile {
    device: Device,
    cpu: Arc<dyn Cpu>,
    services: Arc<Services>,
    flags: StatusFlags,
    inode: Identity,
    at: Option<Location>,
}

impl DeviceFile {
    /// `at`: the node it is opened through.
    pub fn open(
        device: Device,
        cpu: Arc<dyn Cpu>,
        services: Arc<Services>,
        flags: OpenFlags,
        at: Option<Location>,
    ) -> Arc<Self> {
        let mode = Kind::CharDevice as u32 | 0o666;
        let inode = Identity::of((0, 6), u64::from(device as u32), mode, (0, 0), device.number());
        Arc::new(DeviceFile { device, cpu, services, flags: StatusFlags::new(flags), inode, at })
    }

    fn get(&self, mut to: Destination<'_>) -> Result<usize> {
        if !self.flags.get().readable() {
            return Err(Errno::EBADF);
        }
        let wanted = to.len();
        match self.device {
            Device::Null => return Ok(0),
            Device::Zero | Device::Full => to.put_zeros(wanted)?,
            Device::Random | Device::Urandom => self.cpu.random(to.buffer()?),
        }
        Ok(wanted)
    }

    /// None looks at what is written (Linux: write_null, also of /dev/zero), but the random devices, which take it as no more than a
    /// contribution, and /dev/full, which takes none.
    fn put(&self, from: Source<'_>) -> Result<usize> {
        if !self.flags.get().writable() {
            return Err(Errno::EBADF);
        }
        match self.device {
            Device::Null | Device::Zero => Ok(from.len()),
            Device::Full => from.buffer().and(Err(Errno::ENOSPC)),
            Device::Random | Device::Urandom => Ok(from.buffer()?.len()),
        }
    }
}

impl File for DeviceFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, _access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(self.get(to))
    }

    fn write_from<'a>(&'a self, from: Source<'a>, _access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(self.put(from))
    }

    /// null_lseek and noop_llseek: both stay at 0.
    fn seek(&self, _offset: i64, _whence: Whence) -> BoxFuture<'_, Result<u64>> {
        ready(Ok(0))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        matches!(self.device, Device::Random | Device::Urandom).then_some(Fasync::Input)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(nodes::attributes(self.at.as_ref(), &self.inode))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(nodes::set_attributes(self.at.as_ref(), &self.inode, caller, set))
    }

    fn ioctl<'a>(&'a self, caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        if !matches!(self.device, Device::Random | Device::Urandom) {
            return ready(Err(Errno::ENOTTY));
        }
        ready(match request {
            RNDGETENTCNT => {
                crate::anonymous::answer_int(data, ENTROPY_BITS);
                Ok(0)
            }
            RNDADDTOENTCNT | RNDADDENTROPY | RNDZAPENTCNT | RNDCLEARPOOL | RNDRESEEDCRNG => {
                let counts = matches!(request, RNDADDTOENTCNT | RNDADDENTROPY);
                match counts.then(|| crate::anonymous::argument_int(data)) {
                    _ if !caller.credentials.is_privileged() => Err(Errno::EPERM),
                    Some(Ok(..0)) => Err(Errno::EINVAL),
                    Some(Err(error)) => Err(error),
                    _ => Ok(0),
                }
            }
            _ => Err(Errno::EINVAL),
        })
    }

    /// A private mapping of /dev/zero is anonymous memory, a shared one an object of its own.
    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(match self.device {
            Device::Zero => Ok(crate::anonymous_object(&self.services, u64::MAX >> 1)),
            _ => Err(Errno::ENODEV),
        })
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(match &self.at {
            Some(at) => at.path(),
            None => format!("/dev/{}", self.device.name()).into_bytes(),
        })
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.at.as_ref().map(|at| at as _)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;

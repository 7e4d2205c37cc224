use super::*;
use crate::{remote::tests::services, testing::*};
use core::sync::atomic::AtomicBool;
use machine::{CpuId, FpuState, PageTable, Registers, Trap};

struct TestCpu;

impl Cpu for TestCpu {
    fn current(&self) -> CpuId {
        CpuId(0)
    }
    fn cpus(&self) -> &[CpuId] {
        &[CpuId(0)]
    }
    fn run_user(&self, _: &mut Registers, _: &dyn PageTable, _: &AtomicBool) -> Trap {
        unimplemented!("no user code here")
    }
    fn fpu_size(&self) -> usize {
        512
    }
    fn fpu_load(&self, _: &FpuState) {}
    fn fpu_save(&self, _: &mut FpuState) {}
    fn now(&self) -> u64 {
        0
    }
    fn set_alarm(&self, _: Option<u64>) {}
    fn kick(&self, _: CpuId) {}
    fn capabilities(&self) -> (u64, u64) {
        (0, 0)
    }
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

fn open(device: Device, flags: OpenFlags) -> Arc<DeviceFile> {
    DeviceFile::open(device, Arc::new(TestCpu), services(), flags, None)
}

#[test]
fn reads_and_writes_are_those_of_linux() {
    for (device, read, byte, written) in [
        (Device::Null, 0, 1, Ok(3)),
        (Device::Zero, 4, 0, Ok(3)),
        (Device::Full, 4, 0, Err(Errno::ENOSPC)),
        (Device::Random, 4, 0x5a, Ok(3)),
        (Device::Urandom, 4, 0x5a, Ok(3)),
    ] {
        let file = open(device, OpenFlags::RDWR);
        let mut buf = [1; 4];
        assert_eq!(block_on(file.read(&mut buf)), Ok(read), "{device:?}");
        assert_eq!(buf, [byte; 4], "{device:?}");
        assert_eq!(block_on(file.write(b"abc")), written, "{device:?}");
        assert_eq!(block_on(file.write_at(b"abc", 9)), written, "{device:?}");
        assert_eq!(block_on(file.seek(5, Whence::Set)), Ok(0), "{device:?}");
        assert_eq!(block_on(file.object()).is_ok(), device == Device::Zero);
        assert_eq!(block_on(file.attributes()).unwrap().rdev, device.number());
        assert!(file.changes().is_none());
    }
    let reader = open(Device::Zero, OpenFlags::empty());
    assert_eq!(block_on(reader.write(b"x")), Err(Errno::EBADF));
    let writer = open(Device::Zero, OpenFlags::WRONLY);
    assert_eq!(block_on(writer.read(&mut [0])), Err(Errno::EBADF));
}

#[test]
fn entropy_can_be_asked_for_but_not_taken_away() {
    let file = open(Device::Random, OpenFlags::empty());
    let user = user(1, 1000);
    let mut data = Vec::new();
    assert_eq!(block_on(file.ioctl(&user, RNDGETENTCNT, &mut data)), Ok(0));
    assert_eq!(data, 256i32.to_ne_bytes());
    assert_eq!(block_on(file.ioctl(&user, RNDCLEARPOOL, &mut data)), Err(Errno::EPERM));
    let null = open(Device::Null, OpenFlags::empty());
    assert_eq!(block_on(null.ioctl(&user, RNDGETENTCNT, &mut data)), Err(Errno::ENOTTY));
}

//! Opening devices: from a PCI function to queues that work.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::fmt;

use machine::errno::Result as ErrnoResult;
use machine::{block::Pieces, sync::WaitQueue, BoxFuture, ByteStream, CpuId, PageQueue};
use virtio_drivers::transport::DeviceType;

use crate::plan::Ecam;
use crate::{arch, irq, percpu};

use super::dma::PartitionMemory;
use super::msix::Msix;
use super::pci::{Function, Pci};
use super::receive::ReceiveQueue;
use super::registers::Registers;
use super::request::RequestQueue;
use super::ring::Ring;

const VIRTIO_VENDOR: u16 = 0x1af4;
/// Device ids of 1.x devices start here, those of devices that can also be used in the old way at 0x1000.
const MODERN: u16 = 0x1040;
const TRANSITIONAL_BLOCK: u16 = 0x1001;
const TRANSITIONAL_CONSOLE: u16 = 0x1003;
const TRANSITIONAL_9P: u16 = 0x1009;

/// VIRTIO_9P_F_MOUNT_TAG: the configuration has the mount tag.
const MOUNT_TAG: u64 = 1 << 0;
/// VIRTIO_F_INDIRECT_DESC: a chain may have its descriptors elsewhere.
const INDIRECT: u64 = 1 << 28;

/// A queue of requests over this kernel's memory.
pub type Queue = RequestQueue<PartitionMemory>;

/// A disk whose queues work. What is said through them crate `dev` knows.
pub struct OpenedDisk {
    /// Features that both sides have agreed on.
    pub features: u64,
    pub configuration: Vec<u8>,
    pub queues: Arc<DiskQueues>,
}

/// The queues of a disk. A request goes through that of the CPU which sends it.
pub struct DiskQueues {
    queues: Vec<Arc<Queue>>,
    registers: Registers,
    /// Woken when the configuration has changed. None: no vector was left for that.
    changes: Option<Arc<WaitQueue>>,
}

impl DiskQueues {
    fn mine(&self) -> &Queue {
        &self.queues[percpu::current_index() % self.queues.len()]
    }
}

impl PageQueue for DiskQueues {
    fn submit(&self, header: Vec<u8>, pieces: Pieces, device_writes: bool) -> BoxFuture<'_, ErrnoResult<u8>> {
        self.mine().submit(header, pieces, device_writes)
    }

    fn most_segments(&self) -> usize {
        self.queues[0].most_segments()
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn changes(&self) -> Option<&WaitQueue> {
        self.changes.as_deref()
    }

    fn configuration(&self) -> Vec<u8> {
        self.registers.configuration()
    }
}

/// Why a device can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// It lacks the registers of virtio 1.x, or does not offer VIRTIO_F_VERSION_1.
    NotModern,
    /// It has no message interrupts, too few, or no vector was left.
    NoInterrupt,
    /// It did not reset, or did not accept the features.
    Refused,
    Queue(virtio_drivers::Error),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::NotModern => f.write_str("not a virtio 1.x device"),
            DeviceError::NoInterrupt => f.write_str("no message interrupt"),
            DeviceError::Refused => f.write_str("the device refused its driver"),
            DeviceError::Queue(error) => write!(f, "queue: {error}"),
        }
    }
}

/// A virtio device that nobody has opened yet.
pub struct Found {
    pci: Arc<Pci>,
    at: Function,
    kind: DeviceType,
}

/// All virtio consoles, 9P servers and disks of the machine, in the order of their place on the bus. Which of them this
/// kernel may open is the partition plan's decision.
pub fn find(ecam: Option<Ecam>) -> Vec<Found> {
    let pci = Arc::new(Pci::new(ecam));
    let mut found: Vec<Found> = pci
        .functions()
        .into_iter()
        .filter_map(|at| Some(Found { pci: pci.clone(), at, kind: kind(pci.id(at))? }))
        .collect();
    found.sort_by_key(|found| (found.at.bus, found.at.device, found.at.function));
    found
}

fn kind((vendor, device): (u16, u16)) -> Option<DeviceType> {
    const CONSOLE: u16 = MODERN + DeviceType::Console as u16;
    const NINEP: u16 = MODERN + DeviceType::_9P as u16;
    const BLOCK: u16 = MODERN + DeviceType::Block as u16;
    match (vendor, device) {
        (VIRTIO_VENDOR, CONSOLE | TRANSITIONAL_CONSOLE) => Some(DeviceType::Console),
        (VIRTIO_VENDOR, NINEP | TRANSITIONAL_9P) => Some(DeviceType::_9P),
        (VIRTIO_VENDOR, BLOCK | TRANSITIONAL_BLOCK) => Some(DeviceType::Block),
        _ => None,
    }
}

impl Found {
    pub fn is_console(&self) -> bool {
        self.kind == DeviceType::Console
    }

    pub fn is_ninep(&self) -> bool {
        self.kind == DeviceType::_9P
    }

    pub fn is_block(&self) -> bool {
        self.kind == DeviceType::Block
    }

    /// Opens port 0 of a console; its interrupts go to `cpu`. Without VIRTIO_CONSOLE_F_MULTIPORT, queue 0 is what the
    /// host says and queue 1 what it hears, and the port is open from the start.
    pub fn console(self, cpu: CpuId) -> Result<Arc<Console>, DeviceError> {
        let mut device = self.prepare(0)?;
        let receive = Arc::new(ReceiveQueue::new(device.ring(0)?));
        let transmit = Arc::new(RequestQueue::new(device.ring(1)?));
        device.connect(0, receive.clone(), cpu)?;
        device.connect(1, transmit.clone(), cpu)?;
        device.registers.start();
        receive.notify();
        Ok(Arc::new(Console { receive, transmit }))
    }

    /// Opens a 9P server; its interrupts go to `cpu`. Gives its configuration (the mount tag) and its queue.
    pub fn ninep(self, cpu: CpuId) -> Result<(Vec<u8>, Arc<Queue>), DeviceError> {
        let mut device = self.prepare(MOUNT_TAG)?;
        let queue = Arc::new(RequestQueue::new(device.ring(0)?));
        device.connect(0, queue.clone(), cpu)?;
        device.registers.start();
        Ok((device.registers.configuration(), queue))
    }

    /// Opens a disk, of which crate `dev` wants `features`; `queues` says how many queues it has by those that both have agreed on and its configuration. Each CPU
    /// gets the interrupts of a queue, as long as there are queues.
    pub fn block(
        self,
        cpus: &[CpuId],
        features: u64,
        queues: impl Fn(u64, &[u8]) -> u16,
    ) -> Result<OpenedDisk, DeviceError> {
        let mut device = self.prepare(features | INDIRECT)?;
        let (features, configuration) = (device.agreed, device.registers.configuration());
        let mut opened = Vec::new();
        for (index, cpu) in (0..queues(features, &configuration)).zip(cpus) {
            let queue = device.ring(index).map(|ring| Arc::new(RequestQueue::new(ring)));
            let queue = queue.and_then(|queue| match queue.prepare_for_pieces() {
                true => device.connect(index, queue.clone(), *cpu).map(|()| queue),
                false => Err(DeviceError::Queue(virtio_drivers::Error::DmaError)),
            });
            match queue {
                Ok(queue) => opened.push(queue),
                // Vectors are few where there are many disks and CPUs. One queue will do.
                Err(_) if index > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let changes = cpus.first().and_then(|cpu| device.tell_of_changes(opened.len() as u16, *cpu));
        device.registers.start();
        let queues = DiskQueues { queues: opened, registers: device.registers, changes };
        Ok(OpenedDisk { features, configuration, queues: Arc::new(queues) })
    }

    /// Ends whatever the device does, because the kernel that drove it is no more. Afterwards it touches no memory.
    pub fn reset(&self) -> Result<(), DeviceError> {
        Registers::find(&self.pci, self.at, self.kind)?.reset()
    }

    /// Up to the point where queues can be set up.
    fn prepare(&self, features: u64) -> Result<Device, DeviceError> {
        self.pci.enable(self.at);
        let mut registers = Registers::find(&self.pci, self.at, self.kind)?;
        let agreed = registers.negotiate(features)?;
        let msix = Msix::enable(&self.pci, self.at).ok_or(DeviceError::NoInterrupt)?;
        Ok(Device { registers, msix, agreed })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.kind, self.at)
    }
}

/// A device between FEATURES_OK and DRIVER_OK.
struct Device {
    registers: Registers,
    msix: Msix,
    /// Features that it has and that were wanted.
    agreed: u64,
}

impl Device {
    /// Sets up queue `index`, with the MSI-X entry of the same number.
    fn ring(&mut self, index: u16) -> Result<Ring<PartitionMemory>, DeviceError> {
        let doorbell = self.registers.doorbell(index);
        self.registers.set_vector(index);
        let indirect = self.agreed & INDIRECT != 0;
        let ring = Ring::new(&mut self.registers, index, indirect, doorbell).map_err(DeviceError::Queue)?;
        // The device says whether it could take the vector; a queue that can't interrupt is of no use.
        self.registers.has_vector(index).then_some(ring).ok_or(DeviceError::NoInterrupt)
    }

    /// Has the device interrupt `cpu`, through MSI-X entry `entry`, when its configuration changes, and wake who waits for that.
    fn tell_of_changes(&self, entry: u16, cpu: CpuId) -> Option<Arc<WaitQueue>> {
        // Vectors are few and never given back: none for a device that can't use it. Until the entry is set it is masked.
        if !self.msix.has(entry) || !self.registers.set_change_vector(entry) {
            return None;
        }
        let vector = irq::alloc_vector()?;
        let (address, data) = arch::message_interrupt(cpu, vector)?;
        let changes = Arc::new(WaitQueue::new());
        let woken = changes.clone();
        irq::on_irq(vector, move || woken.wake_all());
        self.msix.set(entry, address, data).then_some(changes)
    }

    /// Lets the interrupt of queue `index` complete it on `cpu`. The interrupt table keeps `queue` for ever, which is
    /// what makes it sound to give the device its memory.
    fn connect(&self, index: u16, queue: Arc<dyn Complete>, cpu: CpuId) -> Result<(), DeviceError> {
        let vector = irq::alloc_vector().ok_or(DeviceError::NoInterrupt)?;
        let (address, data) = arch::message_interrupt(cpu, vector).ok_or(DeviceError::NoInterrupt)?;
        irq::on_irq(vector, move || queue.complete());
        let set = self.msix.set(index, address, data);
        set.then_some(()).ok_or(DeviceError::NoInterrupt)
    }
}

/// A queue that its interrupt can bring forward.
trait Complete: Send + Sync {
    fn complete(&self);
}

impl Complete for Queue {
    fn complete(&self) {
        RequestQueue::complete(self);
    }
}

impl Complete for ReceiveQueue<PartitionMemory> {
    fn complete(&self) {
        ReceiveQueue::complete(self);
    }
}

/// Port 0 of a virtio console: a byte stream to the host.
pub struct Console {
    receive: Arc<ReceiveQueue<PartitionMemory>>,
    transmit: Arc<Queue>,
}

impl ByteStream for Console {
    fn receive(&self) -> BoxFuture<'_, ErrnoResult<Vec<u8>>> {
        Box::pin(self.receive.receive())
    }

    fn send(&self, bytes: Vec<u8>) -> BoxFuture<'_, ErrnoResult<()>> {
        Box::pin(async move { self.transmit.request(bytes, 0).await.map(|_| ()) })
    }
}

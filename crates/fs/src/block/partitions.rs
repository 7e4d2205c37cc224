//! Tables of partitions: GPT (UEFI 2.10, 5.3) and those of the master boot record.

use super::volume::Identity;
use alloc::{format, string::String, vec::Vec};
use core::future::Future;
use machine::block::SECTOR;

/// CRC-32 as in IEEE 802.3, which GPT takes.
const SUM: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
/// Numbers of partitions that are looked at.
const MOST: usize = 128;
/// An extended partition has at most so many logical ones here.
const MOST_LOGICAL: usize = 60;
const GPT_SIGNATURE: &[u8] = b"EFI PART";
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// A partition: its number, counted from 1, and its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As in `vda1`.
    pub number: u32,
    /// Its first sector.
    pub start: u64,
    /// How many sectors it has.
    pub sectors: u64,
    /// What it is called.
    pub identity: Identity,
}

/// Where bytes of a disk are read; None: they can't be.
pub trait Sectors {
    /// `bytes` bytes from a sector on.
    fn read(&mut self, sector: u64, bytes: usize) -> impl Future<Output = Option<Vec<u8>>> + Send;
}

/// The partitions of a disk of `sectors` sectors, with blocks of `block` bytes. Those that reach past its end, or have no sector, are left out.
pub async fn read(disk: &mut (impl Sectors + Send), sectors: u64, block: u32) -> Vec<Partition> {
    let Some(first) = disk.read(0, SECTOR as usize).await.filter(|first| first[510..] == [0x55, 0xaa]) else {
        return Vec::new();
    };
    let is_protective = entries(&first).any(|entry| entry.kind == PROTECTIVE);
    let mut found = match is_protective {
        true => gpt(disk, block).await.unwrap_or_default(),
        false => mbr(disk, &first).await,
    };
    let fits = |partition: &Partition| {
        partition.sectors > 0 && partition.start.checked_add(partition.sectors).is_some_and(|end| end <= sectors)
    };
    found.retain(fits);
    found
}

struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

/// The four entries of a boot record.
fn entries(record: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    record[446..510].chunks_exact(16).map(|entry| Entry {
        kind: entry[4],
        start: number(&entry[8..12]),
        sectors: number(&entry[12..16]),
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

async fn mbr(disk: &mut (impl Sectors + Send), first: &[u8]) -> Vec<Partition> {
    let mut found = Vec::new();
    for (entry, number) in entries(first).zip(1..) {
        if entry.kind == 0 || entry.sectors == 0 {
            continue;
        }
        found.push(Partition { number, start: entry.start, sectors: entry.sectors, identity: Identity::default() });
        if EXTENDED.contains(&entry.kind) {
            // Linux shows only so much of it that a boot loader has room.
            if let Some(last) = found.last_mut() {
                last.sectors = last.sectors.min(2);
            }
            logical(disk, entry.start, &mut found).await;
        }
    }
    found.sort_by_key(|partition| partition.number);
    // The signature that Windows gives disks.
    let disk = number(&first[440..444]);
    for partition in found.iter_mut().filter(|_| disk != 0) {
        partition.identity.uuid = format!("{disk:08x}-{:02x}", partition.number);
    }
    found
}

/// Logical partitions: a chain of records, each with one partition and where the next is, counted from the extended one's start.
async fn logical(disk: &mut (impl Sectors + Send), base: u64, found: &mut Vec<Partition>) {
    let mut at = base;
    for number in 5..5 + MOST_LOGICAL as u32 {
        let record = disk.read(at, SECTOR as usize).await.filter(|record| record[510..] == [0x55, 0xaa]);
        let Some(record) = record else { return };
        let (mut next, mut data) = (None, None);
        for entry in entries(&record).filter(|entry| entry.sectors > 0) {
            match EXTENDED.contains(&entry.kind) {
                true => next = next.or(Some(base + entry.start)),
                false => {
                    let (start, sectors) = (at + entry.start, entry.sectors);
                    data = data.or(Some(Partition { number, start, sectors, identity: Identity::default() }));
                }
            }
        }
        found.extend(data);
        match next {
            Some(next) if next > at => at = next,
            _ => return,
        }
    }
}

/// From the first header, or if that is damaged None. (The second one, at the end, is for tools that repair.)
async fn gpt(disk: &mut (impl Sectors + Send), block: u32) -> Option<Vec<Partition>> {
    let per_block = u64::from(block) / SECTOR;
    let header = disk.read(per_block, SECTOR as usize).await?;
    let field = |at: usize, bytes: usize| number(&header[at..at + bytes]);
    let header_bytes = field(12, 4) as usize;
    if &header[..8] != GPT_SIGNATURE || !(92..=SECTOR as usize).contains(&header_bytes) {
        return None;
    }
    let mut copy = header[..header_bytes].to_vec();
    copy[16..20].fill(0);
    if SUM.checksum(&copy) != field(16, 4) as u32 {
        return None;
    }
    let (at, count, bytes) = (field(72, 8), field(80, 4) as usize, field(84, 4) as usize);
    if !(128..=4096).contains(&bytes) || !bytes.is_power_of_two() || count > 1024 {
        return None;
    }
    let table = disk.read(at.checked_mul(per_block)?, (count * bytes).next_multiple_of(SECTOR as usize)).await?;
    let table = table.get(..count * bytes)?;
    if SUM.checksum(table) != field(88, 4) as u32 {
        return None;
    }
    let mut found = Vec::new();
    for (entry, index) in table.chunks_exact(bytes).zip(1..).take(MOST) {
        let (first, last) = (number(&entry[32..40]), number(&entry[40..48]));
        if entry[..16].iter().any(|byte| *byte != 0) && last >= first {
            let (start, sectors) = (first.checked_mul(per_block)?, (last - first + 1).checked_mul(per_block)?);
            found.push(Partition { number: index, start, sectors, identity: gpt_identity(entry) });
        }
    }
    Some(found)
}

/// The unique GUID of an entry, whose first three fields are little-endian, and its name in UTF-16.
fn gpt_identity(entry: &[u8]) -> Identity {
    let hex =
        |bytes: &mut dyn Iterator<Item = &u8>| bytes.fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let guid = &entry[16..32];
    let [a, b, c] = [&guid[..4], &guid[4..6], &guid[6..8]].map(|field| hex(&mut field.iter().rev()));
    let [d, e] = [&guid[8..10], &guid[10..]].map(|field| hex(&mut field.iter()));
    let units = entry[56..128].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let name = char::decode_utf16(units.take_while(|unit| *unit != 0));
    let label = name.map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Identity { uuid: format!("{a}-{b}-{c}-{d}-{e}"), label }
}

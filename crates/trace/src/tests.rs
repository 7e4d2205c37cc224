//! Points, packing, and the ring under a writer and a reader that do not wait for each other.

use crate::*;
use std::{
    sync::atomic::{AtomicU64, Ordering::*},
    vec::Vec,
};

struct Shared(&'static [AtomicU64]);

impl RingMemory for Shared {
    fn read(&self, from: usize, words: &mut [u64]) -> Option<()> {
        for (word, slot) in words.iter_mut().zip(self.0.get(from..)?) {
            *word = slot.load(Acquire);
        }
        Some(())
    }

    fn write(&self, at: usize, word: u64) -> Option<()> {
        self.0.get(at)?.store(word, Release);
        Some(())
    }
}

fn ring(capacity: usize, overwrite: bool) -> (Ring, Reader<Shared>) {
    let words: Vec<AtomicU64> = (0..RING_HEADER_WORDS + capacity).map(|_| AtomicU64::new(0)).collect();
    let words: &'static [AtomicU64] = Vec::leak(words);
    let layout = Layout { kernel: 3, boot_generation: 2, cpu: 7, capacity: capacity as u64, overwrite };
    let (header, records) = words.split_at(RING_HEADER_WORDS);
    let ring = Ring::new(header, records, layout).unwrap();
    let reader = Reader::new(Shared(words)).unwrap();
    assert_eq!(reader.layout(), layout);
    (ring, reader)
}

/// The records in these words: point, time, fields.
fn records(words: &[u64]) -> Vec<(Point, u64, Vec<u64>)> {
    let (mut at, mut found) = (0, Vec::new());
    while at < words.len() {
        let header = Header::decode(words[at]).unwrap_or_else(|| panic!("no record begins at word {at}"));
        if let Some(point) = header.point {
            found.push((point, header.time, words[at + 1..at + header.words].to_vec()));
        }
        at += header.words;
    }
    assert_eq!(at, words.len(), "the last record is whole");
    found
}

#[test]
fn fields_come_out_as_they_went_in() {
    for info in POINTS {
        let mut packer = <Packer>::default();
        let mut put = Vec::new();
        for (number, field) in info.fields.iter().enumerate() {
            let value = 0xfedc_ba98_7654_3210u64.rotate_left(number as u32 * 8);
            match field.bits {
                0 => packer.put_text(b"a text of more than eight bytes"),
                bits => {
                    let value = if bits == 64 { value } else { value & ((1 << bits) - 1) };
                    packer.put(value, bits);
                    put.push(value);
                }
            }
        }
        let got: Vec<Value> = unpack(info.fields, packer.words()).collect();
        assert_eq!(got.len(), info.fields.len(), "{}", info.name);
        let numbers: Vec<u64> = got
            .iter()
            .zip(info.fields)
            .filter(|(_, field)| field.kind != Kind::Text)
            .map(|(value, _)| value.number())
            .collect();
        assert_eq!(numbers, put, "{}", info.name);
        for (value, _) in got.iter().zip(info.fields).filter(|(_, field)| field.kind == Kind::Text) {
            assert_eq!(value.text(), b"a text of more than eight bytes");
        }
        if !packer.words().is_empty() {
            let short = &packer.words()[..packer.words().len() - 1];
            assert!(unpack(info.fields, short).count() < info.fields.len(), "{}: a cut record shows", info.name);
        }
    }
}

#[test]
fn a_text_is_cut_where_the_record_ends() {
    let mut packer = <Packer>::default();
    packer.put(1, 32);
    packer.put_text(&[b'x'; 1000]);
    assert!(packer.words().len() <= 16);
    let fields = Point::Marker.info().fields;
    assert_eq!(unpack(fields, packer.words()).last().unwrap().text().len(), 87);
}

#[test]
fn points_are_where_the_table_says() {
    for (number, info) in POINTS.iter().enumerate() {
        assert_eq!(info.point as usize, number);
        assert_eq!(Point::from_number(number as u8), Some(info.point));
        assert!(!info.about.is_empty());
    }
    assert_eq!(Point::from_number(POINTS.len() as u8), None);
}

#[test]
fn lists_of_events() {
    let switch = Point::SchedSwitch.bit();
    assert_eq!(select("sched_switch"), Ok(switch | ALWAYS));
    assert_eq!(select(" sched , -sched_wakeup").map(|points| points & switch), Ok(switch));
    assert_eq!(select("sched,-sched_wakeup").map(|points| points & Point::SchedWakeup.bit()), Ok(0));
    assert_eq!(select("none"), Ok(0));
    assert_eq!(select(""), Ok(0));
    // Samples come only where the host asks for them.
    let profile = POINTS.iter().filter(|info| info.group == Group::Profile).count();
    assert_eq!(select("all").map(u64::count_ones), Ok((POINTS.len() - profile) as u32));
    assert_eq!(select("all").map(|points| points & Point::Sample.bit()), Ok(0));
    assert_eq!(select("profile").map(|points| points & (Point::Sample.bit() | switch)), Ok(Point::Sample.bit()));
    assert_eq!(select("-lock").map(|points| points & Point::ContentionBegin.bit()), Ok(0));
    assert_eq!(select("sched,nothing"), Err(UnknownEvent("nothing")));
}

#[test]
fn a_full_ring_loses_the_newest_and_says_how_many() {
    let (ring, mut reader) = ring(2048, false);
    for number in 0..3000 {
        ring.push(Point::TimerExpire, number, &[number]);
    }
    let mut words = Vec::new();
    assert_eq!(reader.take(&mut words), 0);
    let first = records(&words);
    assert!(first.iter().map(|record| record.1).eq(0..1024));
    assert_eq!(reader.lost(), 3000 - 1024);
    ring.push(Point::TimerExpire, 3000, &[3000]);
    words.clear();
    reader.take(&mut words);
    let second = records(&words);
    assert_eq!(second[0], (Point::LostEvents, 3000, vec![3000 - 1024]));
    assert_eq!(second[1], (Point::TimerExpire, 3000, vec![3000]));
    ring.push(Point::TimerExpire, 3001, &[3001]);
    words.clear();
    reader.take(&mut words);
    assert_eq!(records(&words), [(Point::TimerExpire, 3001, vec![3001])], "it is told once");
}

#[test]
fn an_overwriting_ring_keeps_the_newest() {
    let (ring, mut reader) = ring(2048, true);
    for number in 0..10_000 {
        ring.push(Point::SyscallExit, number, &[number, number]);
    }
    let mut words = Vec::new();
    let missed = reader.take(&mut words);
    let kept = records(&words);
    let first = kept[0].1;
    assert!(kept.iter().map(|record| record.1).eq(first..10_000));
    assert!(kept.len() > 2048 / 3 * 3 / 4, "{}", kept.len());
    assert!(missed > 0);
}

/// A writer that never waits, and a reader that reads as it likes: every record that comes out is whole, none comes twice, and what is
/// missing was counted.
#[test]
fn a_writer_and_a_reader_at_the_same_time() {
    for overwrite in [false, true] {
        let (ring, mut reader) = ring(4096, overwrite);
        const EVENTS: u64 = 300_000;
        let done = AtomicU64::new(0);
        let words = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..EVENTS {
                    let fields = [number; 7];
                    ring.push(Point::SyscallEntry, number, &fields[..1 + number as usize % 7]);
                }
                done.store(1, Release);
            });
            let mut pieces = Vec::new();
            loop {
                let last = done.load(Acquire) == 1;
                let mut words = Vec::new();
                reader.take(&mut words);
                pieces.push(words);
                if last {
                    return pieces;
                }
                std::thread::yield_now();
            }
        });
        let (mut next, mut lost) = (0, 0);
        for (point, time, fields) in words.iter().flat_map(|piece| records(piece)) {
            match point {
                Point::LostEvents => lost += fields[0],
                _ => {
                    assert!(time >= next, "{time} comes after {next}");
                    assert!(fields.len() == 1 + time as usize % 7 && fields.iter().all(|field| *field == time));
                    if !overwrite {
                        assert_eq!(time - next, lost, "what is missing before {time} was told");
                        lost = 0;
                    }
                    next = time + 1;
                }
            }
        }
        if overwrite {
            assert_eq!(next, EVENTS, "the newest is there");
        }
    }
}

#[test]
fn a_directory_says_where_the_rings_are() {
    let page: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
    let read = |page: &[AtomicU64]| page.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>();
    assert!(Directory::read(&read(&page)).is_none());
    Directory::write(&page, [[0x1000, 8], [0x2000, 16]].into_iter());
    assert!(Directory::read(&read(&page)).unwrap().eq([[0x1000, 8], [0x2000, 16]]));
}

#[test]
fn nothing_is_recorded_without_a_sink() {
    assert!(!enable(u64::MAX));
    sched_switch(1, 2, 0, 0);
    assert_eq!(enabled(), 0);
}

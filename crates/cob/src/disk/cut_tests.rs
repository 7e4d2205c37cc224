use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::{tempdir, TempDir};

use super::super::log::Writer;
use super::*;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 8;
const SIZE: u64 = BLOCK * BLOCKS;
/// What the image is full of. Writes begin at 1 and zeroing is 0.
const OLD: u8 = 255;

/// What happens: the client sends a request, or one of those that wait is answered.
#[derive(Debug, Clone)]
enum Step {
    Send { kind: Kind, durable: bool, first: u64, blocks: u64 },
    Answer(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let kind =
        prop::sample::select(vec![Kind::Write, Kind::Write, Kind::Write, Kind::WriteZeroes, Kind::Trim, Kind::Flush]);
    let durable = prop::bool::weighted(0.2);
    prop_oneof![
        (kind, durable, 0..BLOCKS, 1..4u64).prop_map(|(kind, durable, first, blocks)| {
            Step::Send { kind, durable, first, blocks: blocks.min(BLOCKS - first) }
        }),
        any::<usize>().prop_map(Step::Answer),
    ]
}

/// A request as the client saw it: when it was sent and answered, counted in steps.
#[derive(Debug, Clone)]
struct Seen {
    entry: Entry,
    fill: u8,
    sent: usize,
    answered: usize,
}

/// Plays the steps against a disk that only keeps its log; what waits in the end is answered. In the order of the log.
fn play(steps: &[Step]) -> Vec<Seen> {
    let (mut waiting, mut log): (Vec<Seen>, Vec<Seen>) = (Vec::new(), Vec::new());
    let mut writes = 0;
    let drain = steps.iter().cloned().chain((0..steps.len()).map(|_| Step::Answer(0)));
    for (time, step) in drain.enumerate() {
        match step {
            Step::Send { kind, durable, first, blocks } => {
                let is_flush = kind == Kind::Flush;
                let (offset, length) = if is_flush { (0, 0) } else { (first * BLOCK, blocks * BLOCK) };
                writes += u8::from(kind == Kind::Write);
                let fill = if kind == Kind::Write { writes } else { 0 };
                let entry = Entry { kind, durable: durable && !is_flush, offset, length, came: log.len() as u64 };
                waiting.push(Seen { entry, fill, sent: time, answered: usize::MAX });
            }
            Step::Answer(_) if waiting.is_empty() => (),
            Step::Answer(index) => {
                let mut seen = waiting.remove(index % waiting.len());
                seen.answered = time;
                log.push(seen);
            }
        }
    }
    log
}

/// What a block may hold after the power has failed just after `time`, from what the client knows alone.
fn allowed(log: &[Seen], block: u64, time: usize) -> BTreeSet<u8> {
    let touches = |seen: &&Seen| (seen.entry.offset..seen.entry.offset + seen.entry.length).contains(&(block * BLOCK));
    let flushed = |seen: &Seen| {
        let flushes = log.iter().filter(|flush| flush.entry.kind == Kind::Flush && flush.answered <= time);
        flushes.clone().any(|flush| seen.answered < flush.sent)
    };
    let is_certain = |seen: &Seen| seen.answered <= time && (seen.entry.durable || flushed(seen));
    let mut values = BTreeSet::from([OLD]);
    for seen in log.iter().filter(touches).filter(|seen| seen.sent <= time) {
        if is_certain(seen) {
            values.clear();
        }
        values.insert(seen.fill);
    }
    values
}

fn options(directory: &TempDir) -> CutOptions {
    let file = |name: &str| -> PathBuf { directory.path().join(name) };
    CutOptions { log: file("log"), image: file("image"), output: file("output"), at: None, seed: Some(1), tear: BLOCK }
}

/// The log and the image in files.
fn written(log: &[Seen]) -> Files {
    let directory = tempdir().unwrap();
    let options = options(&directory);
    fs::write(&options.image, vec![OLD; SIZE as usize]).unwrap();
    let mut writer = Writer::create(&options.log, SIZE).unwrap();
    for seen in log {
        let data = if seen.entry.kind == Kind::Write { seen.entry.length } else { 0 };
        writer.append(&seen.entry, &vec![seen.fill; data as usize]).unwrap();
    }
    Files { options, directory }
}

/// Options whose files are in a directory that goes with them.
struct Files {
    options: CutOptions,
    directory: TempDir,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Each block holds what the last flush or a later write has put there, in particular what was flushed.
    #[test]
    fn a_cut_is_a_disk_that_could_be(steps in prop::collection::vec(step(), 1..60), at in any::<Index>(), seed in any::<u64>()) {
        let log = play(&steps);
        let mut files = written(&log);
        let at = at.index(log.len() + 1);
        (files.options.at, files.options.seed) = (Some(at as u64), Some(seed));
        cut(&files.options).unwrap();
        let disk = fs::read(&files.options.output).unwrap();
        // As late as could be: just before the next answer.
        let time = log.get(at).map_or(usize::MAX - 1, |next| next.answered - 1);
        for (block, bytes) in disk.chunks(BLOCK as usize).enumerate() {
            let allowed = allowed(&log, block as u64, time);
            prop_assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {} is torn", block);
            prop_assert!(allowed.contains(&bytes[0]), "block {} holds {}, not one of {:?}", block, bytes[0], allowed);
        }
        // The same seed, the same disk.
        cut(&files.options).unwrap();
        prop_assert!(fs::read(&files.options.output).unwrap() == disk);
    }
}

fn write(offset: u64, length: u64, fill: u8, came: u64) -> Seen {
    let entry = Entry { kind: Kind::Write, durable: false, offset, length, came };
    Seen { entry, fill, sent: 0, answered: 0 }
}

fn flush(came: u64) -> Seen {
    let entry = Entry { kind: Kind::Flush, durable: false, offset: 0, length: 0, came };
    Seen { entry, fill: 0, sent: 0, answered: 0 }
}

/// What block 0 begins with, over many seeds.
fn outcomes(log: &[Seen], at: u64) -> BTreeSet<u8> {
    let mut files = written(log);
    let mut outcome = |seed| {
        (files.options.at, files.options.seed) = (Some(at), Some(seed));
        cut(&files.options).unwrap();
        fs::read(&files.options.output).unwrap()[0]
    };
    (0..60).map(&mut outcome).collect()
}

#[test]
fn every_disk_that_could_be_comes_up() {
    let log =
        [write(0, BLOCK, 1, 0), flush(1), write(0, BLOCK, 2, 2), write(0, BLOCK, 3, 2), flush(2), write(0, 1, 4, 4)];
    assert_eq!(outcomes(&log, 0), BTreeSet::from([OLD, 1]), "under way");
    assert_eq!(outcomes(&log, 1), BTreeSet::from([OLD, 1]));
    assert_eq!(outcomes(&log, 2), BTreeSet::from([1, 2, 3]), "two are under way");
    assert_eq!(outcomes(&log, 4), BTreeSet::from([1, 2, 3, 4]), "both were answered, and the next is under way");
    assert_eq!(outcomes(&log, 6), BTreeSet::from([1, 2, 3, 4]), "the flush had come before they were answered");
}

#[test]
fn blocks_tear_where_it_is_said() {
    for (tear, torn) in [(BLOCK, false), (512, true)] {
        let mut files = written(&[write(0, SIZE, 1, 0)]);
        files.options.tear = tear;
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            files.options.seed = Some(seed);
            files.options.at = Some(1);
            cut(&files.options).unwrap();
            let disk = fs::read(&files.options.output).unwrap();
            assert!(disk.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            seen.insert(disk.chunks(BLOCK as usize).any(|block| block.iter().any(|byte| *byte != block[0])));
        }
        assert_eq!(seen.contains(&true), torn);
    }
}

#[test]
fn pieces_end_at_aligned_blocks() {
    let pieces: Vec<_> = pieces(&write(1000, 9000, 1, 0).entry, BLOCK).collect();
    assert_eq!(pieces, [1000..4096, 4096..8192, 8192..10000]);
}

#[test]
fn files_that_cannot_be_are_told() {
    let mut files = written(&[write(0, BLOCK, 1, 0)]);
    let complaint = |options: &CutOptions| cut(options).unwrap_err().to_string();
    files.options.at = Some(2);
    assert!(complaint(&files.options).contains("the log has 1 entries"));
    files.options.at = None;
    for other in [files.options.image.clone(), files.options.log.clone()] {
        let options = CutOptions { output: other, ..options(&files.directory) };
        assert!(complaint(&options).contains("a file of its own"));
    }
    fs::write(&files.options.image, [0; 512]).unwrap();
    assert!(complaint(&files.options).contains("has 512 bytes"));
}

#[test]
fn a_summary_counts() {
    let log = [write(0, BLOCK, 1, 0), write(0, 512, 2, 0), write(0, 512, 3, 0), flush(3), write(0, 512, 4, 4)];
    let text = summary(&written(&log).options.log).unwrap();
    let has = |words: &str| text.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == words);
    assert!(has("writes 4 5632") && has("flushes 1 0") && has("trims 0 0"), "{text}");
    assert!(text.contains("at most: 3\n") && !text.contains("cut off"), "{text}");
}

#[test]
fn most_at_once_is_counted_by_position() {
    assert_eq!(most_at_once(&[]), 0);
    assert_eq!(most_at_once(&[0, 1, 2, 3]), 1);
    assert_eq!(most_at_once(&[0, 0, 0, 1]), 3);
    assert_eq!(most_at_once(&[0, 0, 1, 2, 2]), 3);
}

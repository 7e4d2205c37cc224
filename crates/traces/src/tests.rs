//! Traces made by hand, through real rings: their order, what is found wrong in them, what figures and other formats say.

use crate::{
    check::Checker, ctf, file::*, perfetto, report::Report, svg, Doing, Event, Filter, Place, States, Stretch,
};
use std::{
    fs::File,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::*},
};
use tempfile::TempDir;
use trace::{Layout, Packer, Point, Reader, Ring, RingMemory, IDLE, KERNEL_WORK, RING_HEADER_WORDS};

struct Words(&'static [AtomicU64], &'static [AtomicU64]);

impl RingMemory for Words {
    fn read(&self, from: usize, words: &mut [u64]) -> Option<()> {
        for (at, word) in (from..).zip(words) {
            let of = if at < RING_HEADER_WORDS { self.0.get(at) } else { self.1.get(at - RING_HEADER_WORDS) };
            *word = of?.load(Relaxed);
        }
        Some(())
    }

    fn write(&self, at: usize, word: u64) -> Option<()> {
        self.0.get(at)?.store(word, Relaxed);
        Some(())
    }
}

/// A machine of kernels of one CPU each, that records what it is told.
struct Recording {
    directory: TempDir,
    writer: Writer<File>,
    rings: Vec<(Ring, Reader<Words>)>,
}

fn zeroes(count: usize) -> &'static [AtomicU64] {
    Vec::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

impl Recording {
    fn new(cpus: u16) -> Recording {
        let directory = TempDir::new().unwrap();
        let file = File::create(directory.path().join("t")).unwrap();
        let ring = |cpu| {
            let (header, records) = (zeroes(RING_HEADER_WORDS), zeroes(2048));
            let layout = Layout { kernel: cpu, boot_generation: 1, cpu, capacity: 2048, overwrite: false };
            (Ring::new(header, records, layout).unwrap(), Reader::new(Words(header, records)).unwrap())
        };
        Recording {
            directory,
            writer: Writer::new(file, "a <test> of \"words\"").unwrap(),
            rings: (0..cpus).map(ring).collect(),
        }
    }

    /// One event. `fields` are numbers in the order of the table; a text follows.
    fn add(&mut self, cpu: u16, time: u64, point: Point, fields: &[u64], text: &str) {
        let mut packer = <Packer>::default();
        let mut numbers = fields.iter();
        for field in point.info().fields {
            match field.bits {
                0 => packer.put_text(text.as_bytes()),
                64 => packer.put(*numbers.next().unwrap(), 64),
                bits => packer.put(*numbers.next().unwrap() & ((1 << bits) - 1), bits),
            }
        }
        assert!(numbers.next().is_none(), "{point:?} has fewer fields");
        self.rings[usize::from(cpu)].0.push(point, time, packer.words());
    }

    fn switch(&mut self, cpu: u16, time: u64, prev: u32, state: u64, next: u32) {
        self.add(cpu, time, Point::SchedSwitch, &[prev.into(), next.into(), 120, state], "");
    }

    /// Copies the rings to the file.
    fn copy(&mut self) {
        for (_, reader) in &mut self.rings {
            let mut words = Vec::new();
            reader.take(&mut words);
            let Layout { cpu, kernel, boot_generation, .. } = reader.layout();
            self.writer.add(Place { cpu, kernel, boot_generation }, reader.lost(), &words).unwrap();
        }
        self.writer.flush().unwrap();
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("t")
    }

    fn trace(&mut self) -> Trace {
        self.copy();
        self.writer.end().unwrap();
        Trace::open(&self.path()).unwrap()
    }
}

fn events(trace: &Trace) -> Vec<Event> {
    trace.events().unwrap().map(Result::unwrap).collect()
}

/// What a checker finds in a trace of which nothing is missing.
fn wrong(recording: &mut Recording) -> Vec<String> {
    let trace = recording.trace();
    let mut checker = Checker::new(trace.places().map(|(place, _)| place.kernel), []);
    events(&trace).iter().for_each(|event| checker.take(event));
    checker.found().iter().map(|violation| violation.what.clone()).collect()
}

/// What was on a kernel that has died may go on elsewhere, and what is under way from and to it does not come.
#[test]
fn a_kernel_that_dies_is_forgiven() {
    let mut r = Recording::new(2);
    r.add(0, 1000, Point::ThreadName, &[7, 7], "a");
    r.add(0, 1010, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 1100, IDLE, 0, 7);
    r.add(0, 1110, Point::MessageSend, &[5, 7, 40, 1, 0x106, 0], "");
    r.add(1, 1120, Point::MessageSend, &[6, 7, 40, 0, 0x106, 0], "");
    r.switch(1, 1200, KERNEL_WORK, 0, 7);
    let events = events(&r.trace());
    for dies in [false, true] {
        let mut checker = Checker::new([0, 1], []);
        events[..5].iter().for_each(|event| checker.take(event));
        assert_eq!(checker.under_way().count(), 2);
        if dies {
            checker.kernel_died(0);
        }
        assert_eq!(checker.under_way().count(), if dies { 0 } else { 2 });
        checker.take(&events[5]);
        assert_eq!(checker.found().is_empty(), dies, "{:?}", checker.found());
    }
}

/// A thread that works, waits for an answer of the other kernel, moves there, and ends.
fn a_life() -> Recording {
    let mut r = Recording::new(2);
    r.add(0, 1000, Point::ThreadName, &[7, 7], "a \"name\"");
    r.add(0, 1000, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 1100, IDLE, 0, 7);
    r.add(0, 1200, Point::SyscallEntry, &[0, 7, 1, 2, 3, 4, 5, 6], "");
    r.add(0, 1250, Point::MessageSend, &[5, 7, 40, 1, 0x106, 0], "");
    r.switch(0, 1300, 7, 1, IDLE);
    r.add(1, 1260, Point::MessageReceive, &[5, 7, 0, 0x106, 0], "");
    r.add(1, 1265, Point::HandlerBegin, &[5, 0, 0x106], "");
    r.add(1, 1400, Point::MessageSend, &[5, 7, 20, 0, 0x106, 2], "");
    r.add(1, 1420, Point::HandlerEnd, &[5, 0, 0x106, 0], "");
    r.add(0, 1500, Point::MessageReceive, &[5, 7, 1, 0x106, 2], "");
    r.add(0, 1510, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 1600, IDLE, 0, 7);
    r.add(0, 1700, Point::SyscallExit, &[0, 7, -4i64 as u64], "");
    r.add(0, 1750, Point::Marker, &[7], "half\tway & more");
    r.switch(0, 1800, 7, 0, KERNEL_WORK);
    r.add(0, 1810, Point::ThreadLeave, &[7, 1, 1], "");
    r.switch(0, 1820, KERNEL_WORK, 0, IDLE);
    r.add(1, 1900, Point::ThreadArrive, &[7, 1, 0], "");
    r.add(1, 1950, Point::SchedWakeup, &[7, 0, 1], "");
    r.switch(1, 2000, KERNEL_WORK, 0, 7);
    r.add(1, 2400, Point::SchedProcessExit, &[7], "");
    r.switch(1, 2500, 7, 16, IDLE);
    r
}

#[test]
fn events_of_all_cpus_come_in_the_order_of_time() {
    let mut recording = a_life();
    let trace = recording.trace();
    let events = events(&trace);
    assert!(events.is_sorted_by_key(|event| event.time));
    assert_eq!(events.len(), 23);
    assert_eq!((events[0].point, events[0].text(), events[0].tid("pid")), (Point::ThreadName, "a \"name\"".into(), 7));
    assert_eq!((trace.lost(), trace.is_cut(), trace.about()), (0, false, "a <test> of \"words\""));
}

#[test]
fn pieces_of_a_ring_belong_together_wherever_they_were_cut() {
    let mut recording = Recording::new(1);
    for number in 0..40_000 {
        recording.add(0, number, Point::TimerExpire, &[number], "");
        if number % 700 == 0 {
            recording.copy();
        }
    }
    let trace = recording.trace();
    assert!(events(&trace).iter().map(|event| event.number("due")).eq(0..40_000));
}

#[test]
fn times_go_on_where_the_record_has_no_more_bits() {
    let mut recording = Recording::new(1);
    for time in [(1 << 48) - 5, 1 << 48, (1 << 48) + 9] {
        recording.add(0, time, Point::TimerExpire, &[0], "");
    }
    let times: Vec<u64> = events(&recording.trace()).iter().map(|event| event.time).collect();
    assert_eq!(times, [(1 << 48) - 5, 1 << 48, (1 << 48) + 9]);
}

#[test]
fn a_file_that_was_cut_off_is_read_as_far_as_it_goes() {
    let mut recording = a_life();
    recording.copy();
    let whole = std::fs::read(recording.path()).unwrap();
    let text = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let mut most = 0;
    for length in text..whole.len() {
        std::fs::write(recording.path(), &whole[..length]).unwrap();
        let trace = Trace::open(&recording.path()).unwrap();
        assert!(trace.is_cut());
        let count = events(&trace).len();
        assert!(count >= most, "more of the file has fewer events");
        let mut checker = Checker::of(&trace).unwrap();
        events(&trace).iter().for_each(|event| checker.take(event));
        let found: Vec<_> = checker.found().iter().map(|violation| &violation.what).collect();
        assert!(found.is_empty(), "{length} bytes: {found:?}");
        most = count;
    }
    assert_eq!(most, 22);
}

#[test]
fn other_files_are_refused() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("t");
    for text in ["", "hello\n", "cob trace 1\told_event count:64;\tx\n"] {
        std::fs::write(&path, text).unwrap();
        assert!(Trace::open(&path).is_err(), "{text:?}");
    }
}

#[test]
fn a_life_is_in_order() {
    assert_eq!(wrong(&mut a_life()), Vec::<String>::new());
}

#[test]
fn a_thread_on_two_cpus_is_found() {
    let mut r = Recording::new(2);
    r.add(0, 1, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 2, IDLE, 0, 7);
    r.switch(1, 3, IDLE, 0, 7);
    assert_eq!(wrong(&mut r), ["thread 7 is on CPUs 0 and 1 at once"]);
}

#[test]
fn a_thread_that_runs_without_a_wake_is_found() {
    let mut r = Recording::new(1);
    r.add(0, 1, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 2, IDLE, 0, 7);
    r.switch(0, 3, 7, 1, IDLE);
    r.switch(0, 4, IDLE, 0, 7);
    assert_eq!(wrong(&mut r), ["thread 7 runs, but it is Waits"]);
}

#[test]
fn a_wake_may_come_before_the_cpu_says_that_it_left_the_thread() {
    let mut r = Recording::new(2);
    r.add(0, 1, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 2, IDLE, 0, 7);
    r.add(1, 3, Point::SchedWakeup, &[7, 0, 1], "");
    r.switch(0, 4, 7, 1, IDLE);
    r.switch(1, 5, IDLE, 0, 7);
    assert!(wrong(&mut r).is_empty());
}

#[test]
fn a_cpu_that_leaves_whom_it_did_not_have_is_found() {
    let mut r = Recording::new(1);
    r.add(0, 1, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 2, IDLE, 0, 7);
    r.switch(0, 3, 8, 0, IDLE);
    assert_eq!(wrong(&mut r), ["CPU 0 leaves 8, but it had 7"]);
}

#[test]
fn messages_and_moves_from_nowhere_are_found() {
    let mut r = Recording::new(2);
    r.switch(1, 0, IDLE, 0, KERNEL_WORK);
    r.add(0, 1, Point::MessageReceive, &[5, 7, 1, 0x106, 0], "");
    r.add(0, 2, Point::ThreadArrive, &[9, 3, 1], "");
    r.add(0, 3, Point::HandlerDone, &[5, 1, 0x106, 0], "");
    let wrong = wrong(&mut r);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert!(wrong[0].contains("was not sent") && wrong[1].contains("arrives") && wrong[2].contains("has not begun"));
}

#[test]
fn what_is_missing_is_forgiven_where_events_were_lost() {
    let mut r = Recording::new(2);
    r.switch(1, 0, IDLE, 0, 8);
    r.add(1, 1, Point::LostEvents, &[1000], "");
    r.add(0, 2, Point::MessageReceive, &[5, 7, 1, 0x106, 0], "");
    r.switch(1, 3, IDLE, 0, 7);
    r.switch(0, 4, IDLE, 0, 8);
    assert!(wrong(&mut r).is_empty());
}

#[test]
fn stretches_say_what_a_thread_waited_for() {
    let trace = a_life().trace();
    let mut states = States::default();
    let mut of = Vec::new();
    for event in events(&trace) {
        states.take(&event, &mut |stretch| {
            if let Stretch::Thread { from, to, doing, .. } = stretch {
                of.push((from, to, doing));
            }
        });
    }
    let waits = Doing::Waits { call: Some(0), fault: false, message: Some(0x106) };
    let wanted = [
        (1000, 1100, Doing::Ready),
        (1100, 1200, Doing::User { cpu: 0 }),
        (1200, 1300, Doing::InCall { cpu: 0, call: 0 }),
        (1300, 1510, waits),
        (1510, 1600, Doing::Ready),
        (1600, 1700, Doing::InCall { cpu: 0, call: 0 }),
        (1700, 1800, Doing::User { cpu: 0 }),
        (1800, 1810, Doing::Ready),
        (1810, 1950, Doing::Moves { to: 1 }),
        (1950, 2000, Doing::Ready),
        (2000, 2500, Doing::User { cpu: 1 }),
    ];
    assert_eq!(of, wanted);
}

/// Two threads of a process share CPU 0 from 0 to 800; CPU 1 idles but for another process from 0 to 200.
#[test]
fn figures_are_those_of_the_thesis() {
    let mut r = Recording::new(2);
    for tid in [7, 8] {
        r.add(0, 0, Point::ThreadName, &[tid, 7], "program");
    }
    r.add(1, 0, Point::ThreadName, &[9, 9], "other");
    r.add(0, 0, Point::SchedProcessFork, &[7, 8, 7], "");
    r.add(0, 0, Point::SchedWakeup, &[7, 0, 0], "");
    r.switch(0, 0, IDLE, 0, 7);
    r.add(0, 0, Point::SchedWakeup, &[8, 7, 0], "");
    r.add(1, 0, Point::SchedWakeup, &[9, 0, 1], "");
    r.switch(1, 0, IDLE, 0, 9);
    r.switch(1, 200, 9, 1, IDLE);
    for (time, prev, next) in [(200, 7, 8), (400, 8, 7), (600, 7, 8)] {
        r.switch(0, time, prev, 0, KERNEL_WORK);
        r.switch(0, time, KERNEL_WORK, 0, next);
    }
    // 8 waits, so that this is no switch between two that could go on.
    r.switch(0, 800, 8, 1, KERNEL_WORK);
    r.switch(0, 800, KERNEL_WORK, 0, 7);
    r.switch(0, 1000, 7, 1, IDLE);
    r.switch(1, 1000, IDLE, 0, KERNEL_WORK);
    let report = Report::of(&r.trace(), Filter::default()).unwrap();
    assert_eq!(report.in_benchmark_switches(), 3);
    assert_eq!(report.threads_created(), 1);
    assert_eq!(report.idle_percent(), 40.0, "800 of 2000");
    assert_eq!(report.ready_jam_percent(), 40.0, "80 % of one, nothing of the other");
    let text = report.text();
    assert!(text.contains("program/7") && text.contains("other/9"), "{text}");
}

/// A disk that has two requests at once, then one; and a CPU whose monitored threads wait and go on.
fn a_disk() -> Recording {
    let mut r = Recording::new(1);
    let device = 254 << 20 | 16;
    r.add(0, 900, Point::UmtUnblock, &[7, 0], "");
    r.add(0, 1000, Point::BlockRqIssue, &[8, device, 8, 7, 4], "");
    r.add(0, 1100, Point::UmtBlock, &[7, 0], "");
    r.add(0, 2000, Point::BlockRqIssue, &[64, device, 16, 0, 1], "");
    r.add(0, 4000, Point::BlockRqComplete, &[8, 0, device, 8, 7, 4], "");
    r.add(0, 5000, Point::BlockRqComplete, &[64, -5i64 as u64, device, 16, 0, 1], "");
    r
}

#[test]
fn a_disk_answers_what_it_was_asked_for() {
    assert_eq!(wrong(&mut a_disk()), [""; 0]);
    let mut recording = a_disk();
    recording.add(0, 6000, Point::BlockRqComplete, &[64, 0, 254 << 20 | 16, 16, 0, 1], "");
    assert_eq!(wrong(&mut recording), ["a disk answers what it was not asked for"]);
}

#[test]
fn what_disks_did_is_reported_and_drawn() {
    let trace = a_disk().trace();
    let text = Report::of(&trace, Filter::default()).unwrap().text();
    let row: Vec<&str> =
        text.lines().find(|line| line.starts_with("254:16")).unwrap().split_ascii_whitespace().collect();
    // A read and a write, of which one failed; 4 and 8 KiB, 3 µs each; busy for 4 µs, with 1.5 requests in the mean.
    assert_eq!(row[..8], ["254:16", "1", "1", "0", "0", "1", "4", "8"]);
    assert_eq!(row[8..], ["0.003", "ms", "0.004", "ms", "1.5,", "2"]);
    let mut svg = Vec::new();
    svg::write(&trace, Filter::default(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert!(svg.contains("disk 254:16") && svg.contains("2 requests at once, 2.0 us"), "{svg}");
    assert!(svg.contains("ready on CPU 0 of kernel 0") && svg.contains("0 threads could go on, 3.9 us"), "{svg}");
    let lines: Vec<String> = events(&trace).iter().map(|event| event.line(&crate::Names::default())).collect();
    assert!(lines[1].ends_with("block_rq_issue       sector=8 254:16 nr_sector=8 tid=?/7 R"), "{}", lines[1]);
}

#[test]
fn a_filter_leaves_one_process() {
    let mut r = Recording::new(2);
    r.add(0, 0, Point::ThreadName, &[7, 7], "one");
    r.add(1, 0, Point::ThreadName, &[9, 9], "two");
    r.switch(0, 1, IDLE, 0, 7);
    r.switch(1, 1, IDLE, 0, 9);
    r.add(0, 2, Point::TimerExpire, &[1], "");
    r.add(1, 2, Point::TimerExpire, &[2], "");
    let trace = r.trace();
    let mut filter = Filter::new(Some("two".into()));
    let left: Vec<Event> = events(&trace).into_iter().filter(|event| filter.wants(event)).collect();
    assert!(left.iter().all(|event| event.place.cpu == 1));
    assert_eq!(left.len(), 3);
    let mut filter = Filter::new(Some("7".into()));
    assert_eq!(events(&trace).iter().filter(|event| filter.wants(event)).count(), 3);
}

/// What Trace Compass takes a value of in the analysis behind its views of control flow and resources: the value is cast to `Long` or `String`, and a field that is missing ends the analysis.
/// From its source (github.com/tracecompass/tracecompass, analysis/org.eclipse.tracecompass.analysis.os.linux.core, package internal.analysis.os.linux.core.kernel.handlers, by the names of
/// lttng/org.eclipse.tracecompass.lttng2.kernel.core, LttngEventLayout, Lttng26EventLayout and Lttng27EventLayout).
const TRACE_COMPASS: &[(&str, &[&str], &[&str])] = &[
    // SchedSwitchHandler, fd7961acdf64
    ("sched_switch", &["prev_tid", "prev_state", "prev_prio", "next_tid", "next_prio"], &["prev_comm", "next_comm"]),
    // SchedWakeupHandler, d3cc952fc100
    ("sched_wakeup", &["tid", "prio"], &[]),
    // SchedMigrateTaskHandler, 1b71b8a3da75
    ("sched_migrate_task", &["tid", "dest_cpu"], &[]),
    // ProcessForkHandler, 0b89ade2ae50
    ("sched_process_fork", &["parent_tid", "child_tid", "child_pid"], &["child_comm"]),
    // ProcessExitHandler, c8f45ad2d503
    ("sched_process_exit", &[], &[]),
    // ProcessFreeHandler, 642b494702cb
    ("sched_process_free", &["tid"], &[]),
    // SysEntryHandler and SysExitHandler, 0f7a12d321f8, by what the name begins with; `ret` is that of the layout
    ("syscall_entry_read", &[], &[]),
    ("syscall_exit_read", &["ret"], &[]),
];

#[test]
fn trace_compass_finds_the_fields_that_it_reads() {
    let mut recording = a_life();
    let directory = recording.directory.path().join("ctf");
    ctf::write(&recording.trace(), Filter::default(), &directory).unwrap();
    let metadata = std::fs::read_to_string(directory.join("metadata")).unwrap();
    // LttngKernelTrace, 0e4f957eff33: what makes it a trace of a kernel, and chooses the layout of LTTng 2.8 and later.
    for line in ["domain = \"kernel\";", "tracer_name = \"lttng-modules\";", "tracer_major = 2;", "tracer_minor = 13;"]
    {
        assert!(metadata.contains(line), "{line}");
    }
    // StreamInputPacketIndexEntry, 0bd5e9279bda, and CTFPacketReader, 32ea78ed2bb2: integers by which packets, CPUs and events are found.
    let stream = metadata.split("\nstream {").nth(1).unwrap().split("\nevent {").next().unwrap();
    for field in [
        "timestamp_begin",
        "timestamp_end",
        "content_size",
        "packet_size",
        "events_discarded",
        "cpu_id",
        "id",
        "timestamp",
    ] {
        let declared =
            |line: &str| line.trim().strip_suffix(&format!(" {field};")).is_some_and(|kind| kind.starts_with("uint"));
        assert!(stream.lines().any(declared), "{field}: {stream}");
    }
    for (event, numbers, texts) in TRACE_COMPASS {
        let begins = format!("\n\tname = \"{event}\";");
        let mut found = metadata.split("\nevent {").filter(|text| text.starts_with(&begins));
        let fields = found.next().unwrap_or_else(|| panic!("no event {event}"));
        assert!(found.next().is_none(), "{event} twice");
        // CtfTmfEventField, 0b1ac3e2cd08: it takes the underscore away; a `Long` is an integer that is no enumeration, a `String` a string or an array of encoded characters.
        let kind = |name: &str| {
            let line = |line: &&str| line.contains(&format!("}} _{name};")) || line.contains(&format!("}} _{name}["));
            let line = fields.lines().find(line).unwrap_or_else(|| panic!("{event} has no field {name}"));
            (line.trim().split(' ').next().unwrap().to_string(), line.contains("encoding = UTF8"))
        };
        numbers.iter().for_each(|name| assert_eq!(kind(name), ("integer".into(), false), "{event}: {name}"));
        texts.iter().for_each(|name| assert!(kind(name).1, "{event}: {name}"));
    }
}

/// Debian's babeltrace2 (2.0.4) reads what we write, and finds the same events in the same order.
#[test]
fn babeltrace_reads_our_ctf() {
    let mut recording = a_life();
    recording.add(1, 2600, Point::LostEvents, &[12], "");
    recording.switch(1, 2700, IDLE, 0, KERNEL_WORK);
    let trace = recording.trace();
    let directory = recording.directory.path().join("ctf");
    ctf::write(&trace, Filter::default(), &directory).unwrap();
    // Again: what was there is replaced.
    let written = ctf::write(&trace, Filter::default(), &directory).unwrap();
    let output = Command::new("babeltrace2").arg("--clock-cycles").arg(&directory).output();
    let output = output.expect("babeltrace2 is there: ./cob test installs it");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    // What LTTng has and we have no point for, as thread 7 ends.
    let (freed, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains("sched_process_free"));
    assert!(
        matches!(freed[..], [line] if line.contains("tid = 7") && line.contains("comm = \"a \\\"name\\\"\"")),
        "{freed:?}"
    );
    let events = events(&trace);
    assert_eq!(lines.len(), events.len(), "{text}");
    assert_eq!(written, events.len() as u64 + 1);
    for (line, event) in lines.iter().zip(&events) {
        let name = match event.point {
            Point::SyscallEntry => "syscall_entry_read:",
            Point::SyscallExit => "syscall_exit_read:",
            _ => event.info().name,
        };
        assert!(line.contains(name), "{line}: not {name}");
        assert!(line.contains(&format!("{:020}", event.time)), "{line}: not at {}", event.time);
    }
    let switch = lines.iter().find(|line| line.contains("sched_switch")).unwrap();
    assert!(switch.contains("prev_comm = \"swapper/0\"") && switch.contains("next_tid = 7"), "{switch}");
    let exit = lines.iter().find(|line| line.contains("sched_process_exit")).unwrap();
    assert!(exit.contains("comm = \"a \\\"name\\\"\", prio = ") && exit.contains("tid = 7"), "{exit}");
    assert!(lines.iter().any(|line| line.contains("text = \"half\\tway & more\"")), "{text}");
    assert!(errors.contains("discarded 12 events"), "{errors}");
    std::fs::write(directory.join("mine"), "").unwrap();
    assert!(ctf::write(&trace, Filter::default(), &directory).is_err(), "a directory with other files is left alone");
    assert!(directory.join("channel0_0").exists(), "all of it");
    let other = recording.directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("metadata"), "somebody else's").unwrap();
    assert!(ctf::write(&trace, Filter::default(), &other).is_err());
    assert_eq!(std::fs::read(other.join("metadata")).unwrap(), b"somebody else's");
}

#[test]
fn pictures_are_well_formed_and_bounded() {
    let mut recording = a_life();
    let mut svg = Vec::new();
    svg::write(&recording.trace(), Filter::default(), &mut svg).unwrap();
    let text = String::from_utf8(svg).unwrap();
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains("a &lt;test&gt;") && !text.contains("NaN"));
    let mut long = Recording::new(1);
    for turn in 0..20_000 {
        long.switch(0, turn * 100, IDLE, 0, 7);
        long.switch(0, turn * 100 + 50, 7, 1, IDLE);
        if turn % 100 == 0 {
            long.copy();
        }
    }
    let mut svg = Vec::new();
    svg::write(&long.trace(), Filter::default(), &mut svg).unwrap();
    assert!(svg.len() < 1 << 20, "{} bytes", svg.len());
}

/// What the messages are is the business of Perfetto's own schema (tests/trace); here, that each packet is one.
#[test]
fn perfetto_is_written_in_packets() {
    let mut recording = a_life();
    let mut bytes = Vec::new();
    perfetto::write(&recording.trace(), Filter::default(), &mut bytes).unwrap();
    let mut at = 0;
    let mut packets = 0;
    while at < bytes.len() {
        assert_eq!(bytes[at], 0x0a, "field 1, with a length");
        let (mut length, mut shift) = (0usize, 0);
        loop {
            at += 1;
            length |= usize::from(bytes[at] & 0x7f) << shift;
            shift += 7;
            if bytes[at] < 0x80 {
                break;
            }
        }
        at += 1 + length;
        packets += 1;
    }
    assert_eq!(at, bytes.len());
    assert!(packets > 10);
}

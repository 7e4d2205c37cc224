//! Perfetto's protobuf (protos/perfetto/trace in its source, whose field numbers are below): for https://ui.perfetto.dev and trace_processor.
//!
//! Who had which CPU goes in as Linux's scheduler events, so that Perfetto makes its tracks of CPUs and states of threads of them. What a thread does in the kernel (calls, faults) are
//! slices of its track; requests that a disk has, and monitored threads that could go on on a CPU, are counters; each CPU of a kernel has a track of the handlers that it runs, below the track of its kernel; messages and moves between kernels are flows from one to the other.

use crate::{
    ctf::tid as other_tid,
    file::Trace,
    levels::{Level, Levels},
    names::{message_name, role_name, syscall_name},
    states::is_thread,
    Event, Filter, Names,
};
use anyhow::Result;
use prost::Message;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io::Write,
};
use trace::Point;

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<FtraceEventBundle>,
    #[prost(message, optional, tag = "2")]
    process_tree: Option<ProcessTree>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

/// The file is one message with repeated packets, so each packet can be written by itself.
#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    event: Vec<FtraceEvent>,
    #[prost(bool, optional, tag = "3")]
    lost_events: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pid: Option<u32>,
    #[prost(message, optional, tag = "4")]
    sched_switch: Option<SchedSwitch>,
    #[prost(message, optional, tag = "20")]
    sched_waking: Option<SchedWaking>,
}

#[derive(Clone, PartialEq, Message)]
struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    next_prio: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct SchedWaking {
    #[prost(string, optional, tag = "1")]
    comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    target_cpu: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<TreeProcess>,
    #[prost(message, repeated, tag = "2")]
    threads: Vec<TreeThread>,
}

#[derive(Clone, PartialEq, Message)]
struct TreeProcess {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    ppid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TreeThread {
    #[prost(int32, optional, tag = "1")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    tgid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

/// The track is one of numbers.
#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
/// SEQ_INCREMENTAL_STATE_CLEARED.
const CLEARED: u32 = 1;
const SEQUENCE: u32 = 1;
/// Scheduler events of a CPU that go into one packet.
const BUNDLE: usize = 512;

/// Tracks have numbers of 64 bits that are ours to choose.
fn kernel_track(kernel: u16) -> u64 {
    1 << 40 | u64::from(kernel)
}

fn handler_track(kernel: u16, cpu: u16) -> u64 {
    1 << 41 | u64::from(kernel) << 16 | u64::from(cpu)
}

fn thread_track(tid: u32) -> u64 {
    1 << 42 | u64::from(tid)
}

fn level_track(level: Level) -> u64 {
    match level {
        Level::Disk(device) => 1 << 43 | u64::from(device),
        Level::Ready { kernel, index } => 1 << 44 | u64::from(kernel) << 16 | u64::from(index),
    }
}

/// A message is a flow whose number both ends can say.
fn message_flow(from: u16, to: u16, event: &Event) -> u64 {
    let words = [u64::from(from), u64::from(to), event.number("kind"), event.number("role"), event.number("id")];
    hash(&words)
}

fn move_flow(tid: u32, moves: u64) -> u64 {
    hash(&[u64::MAX, u64::from(tid), moves])
}

/// FNV-1a.
fn hash(words: &[u64]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Writes a trace.
pub fn write(trace: &Trace, filter: Filter, to: &mut impl Write) -> Result<()> {
    let mut perfetto = Perfetto {
        to,
        names: Names::default(),
        bundles: HashMap::new(),
        known: BTreeSet::new(),
        open: HashMap::new(),
        flows: HashSet::new(),
        levels: Levels::default(),
        is_first: true,
    };
    for event in trace.events()?.filtered(filter) {
        perfetto.add(&event?)?;
    }
    perfetto.finish()
}

struct Perfetto<'a, W> {
    to: &'a mut W,
    names: Names,
    bundles: HashMap<u16, FtraceEventBundle>,
    /// Tracks that have been described.
    known: BTreeSet<u64>,
    /// Slices of a track that have begun.
    open: HashMap<u64, u32>,
    /// Flows that have begun and not ended.
    flows: HashSet<u64>,
    levels: Levels,
    is_first: bool,
}

impl<W: Write> Perfetto<'_, W> {
    fn put(&mut self, mut packet: TracePacket) -> Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        if std::mem::take(&mut self.is_first) {
            packet.sequence_flags = Some(CLEARED);
        }
        self.to.write_all(&Packets { packet: vec![packet] }.encode_to_vec())?;
        Ok(())
    }

    fn scheduled(&mut self, event: &Event, of: FtraceEvent) -> Result<()> {
        let cpu = event.place.cpu;
        let bundle = self
            .bundles
            .entry(cpu)
            .or_insert_with(|| FtraceEventBundle { cpu: Some(cpu.into()), ..Default::default() });
        bundle.event.push(of);
        if bundle.event.len() >= BUNDLE {
            let bundle = self.bundles.remove(&cpu);
            self.put(TracePacket { ftrace_events: bundle, ..Default::default() })?;
        }
        Ok(())
    }

    fn comm(&self, tid: u32, event: &Event) -> String {
        match tid {
            trace::IDLE => format!("swapper/{}", event.place.cpu),
            trace::KERNEL_WORK => format!("kernel/{}", event.place.kernel),
            _ => self.names.comm(tid).into_owned(),
        }
    }

    fn describe(&mut self, track: TrackDescriptor) -> Result<()> {
        if self.known.insert(track.uuid()) {
            self.put(TracePacket { track_descriptor: Some(track), ..Default::default() })?;
        }
        Ok(())
    }

    fn on_thread(&mut self, tid: u32) -> Result<u64> {
        let uuid = thread_track(tid);
        let thread = ThreadDescriptor {
            pid: Some(self.names.process(tid) as i32),
            tid: Some(tid as i32),
            thread_name: Some(self.names.comm(tid).into_owned()),
        };
        self.describe(TrackDescriptor { uuid: Some(uuid), thread: Some(thread), ..Default::default() })?;
        Ok(uuid)
    }

    fn on_kernel(&mut self, event: &Event) -> Result<u64> {
        let (kernel, cpu) = (event.place.kernel, event.place.cpu);
        let (above, uuid) = (kernel_track(kernel), handler_track(kernel, cpu));
        let name = Some(format!("kernel {kernel}"));
        self.describe(TrackDescriptor { uuid: Some(above), name, ..Default::default() })?;
        let name = Some(format!("messages on CPU {cpu}"));
        self.describe(TrackDescriptor { uuid: Some(uuid), name, parent_uuid: Some(above), ..Default::default() })?;
        Ok(uuid)
    }

    fn slice(&mut self, event: &Event, of: TrackEvent) -> Result<()> {
        let track = of.track_uuid();
        match of.kind() {
            BEGIN => *self.open.entry(track).or_default() += 1,
            // What began before the trace did has no beginning.
            END => match self.open.get_mut(&track) {
                Some(open) if *open > 0 => *open -= 1,
                _ => return Ok(()),
            },
            _ => {}
        }
        self.put(TracePacket { timestamp: Some(event.time), track_event: Some(of), ..Default::default() })
    }

    fn begin(&mut self, event: &Event, track: u64, category: &str, name: String) -> Result<()> {
        let of = TrackEvent {
            kind: Some(BEGIN),
            track_uuid: Some(track),
            name: Some(name),
            categories: vec![category.into()],
            ..Default::default()
        };
        self.slice(event, of)
    }

    fn end(&mut self, event: &Event, track: u64) -> Result<()> {
        self.slice(event, TrackEvent { kind: Some(END), track_uuid: Some(track), ..Default::default() })
    }

    fn instant(&mut self, event: &Event, track: u64, name: String, from: &[u64], until: &[u64]) -> Result<()> {
        self.flows.extend(from);
        // What began before the trace did has no beginning.
        let until: Vec<u64> = until.iter().copied().filter(|flow| self.flows.remove(flow)).collect();
        let of = TrackEvent {
            kind: Some(INSTANT),
            track_uuid: Some(track),
            name: Some(name),
            categories: vec![event.info().group.name().into()],
            flow_ids: from.to_vec(),
            terminating_flow_ids: until,
            ..Default::default()
        };
        self.slice(event, of)
    }

    fn count(&mut self, event: &Event) -> Result<()> {
        let mut changes = Vec::new();
        self.levels.take(event, &mut |level, value| changes.push((level, value)));
        for (level, value) in changes {
            let uuid = level_track(level);
            let (name, counter) = (Some(level.name()), Some(CounterDescriptor {}));
            self.describe(TrackDescriptor { uuid: Some(uuid), name, counter, ..Default::default() })?;
            let of = TrackEvent {
                kind: Some(COUNTER),
                track_uuid: Some(uuid),
                counter_value: Some(value.into()),
                ..Default::default()
            };
            self.put(TracePacket { timestamp: Some(event.time), track_event: Some(of), ..Default::default() })?;
        }
        Ok(())
    }

    fn add(&mut self, event: &Event) -> Result<()> {
        self.names.take(event);
        self.count(event)?;
        let kernel = event.place.kernel;
        match event.point {
            Point::SchedSwitch => {
                let (prev, next) = (event.tid("prev_tid"), event.tid("next_tid"));
                let switch = SchedSwitch {
                    prev_comm: Some(self.comm(prev, event)),
                    prev_pid: Some(other_tid(prev, kernel) as i32),
                    prev_prio: Some(120),
                    prev_state: Some(event.number("prev_state") as i64),
                    next_comm: Some(self.comm(next, event)),
                    next_pid: Some(other_tid(next, kernel) as i32),
                    next_prio: Some(120),
                };
                let of = FtraceEvent {
                    timestamp: Some(event.time),
                    pid: Some(other_tid(prev, kernel)),
                    sched_switch: Some(switch),
                    ..Default::default()
                };
                self.scheduled(event, of)
            }
            Point::SchedWakeup => {
                let tid = event.tid("tid");
                let waking = SchedWaking {
                    comm: Some(self.comm(tid, event)),
                    pid: Some(tid as i32),
                    prio: Some(120),
                    success: Some(1),
                    target_cpu: Some(event.number("target_cpu") as i32),
                };
                let waker = other_tid(event.tid("waker_tid"), kernel);
                let of = FtraceEvent {
                    timestamp: Some(event.time),
                    pid: Some(waker),
                    sched_waking: Some(waking),
                    ..Default::default()
                };
                self.scheduled(event, of)
            }
            Point::ThreadName => {
                let (tid, pid) = (event.tid("tid"), event.tid("pid"));
                let thread = TreeThread { tid: Some(tid as i32), name: Some(event.text()), tgid: Some(pid as i32) };
                let processes = match tid == pid {
                    true => vec![TreeProcess { pid: Some(pid as i32), ppid: Some(0), cmdline: vec![event.text()] }],
                    false => Vec::new(),
                };
                let tree = ProcessTree { processes, threads: vec![thread] };
                self.put(TracePacket { timestamp: Some(event.time), process_tree: Some(tree), ..Default::default() })
            }
            Point::SyscallEntry => {
                let track = self.on_thread(event.tid("tid"))?;
                self.begin(event, track, "syscall", syscall_name(event.number("nr") as u32).into_owned())
            }
            Point::PageFaultUser => {
                let track = self.on_thread(event.tid("tid"))?;
                self.begin(event, track, "fault", "page fault".into())
            }
            Point::SyscallExit | Point::FaultDone => {
                let track = self.on_thread(event.tid("tid"))?;
                self.end(event, track)
            }
            Point::ThreadLeave => {
                let (tid, to) = (event.tid("tid"), event.number("to"));
                let track = self.on_thread(tid)?;
                self.instant(event, track, format!("to kernel {to}"), &[move_flow(tid, event.number("moves"))], &[])
            }
            Point::ThreadArrive => {
                let (tid, from) = (event.tid("tid"), event.number("from"));
                let track = self.on_thread(tid)?;
                self.instant(event, track, format!("from kernel {from}"), &[], &[move_flow(tid, event.number("moves"))])
            }
            Point::Marker => {
                let tid = event.tid("tid");
                let track = if is_thread(tid) { self.on_thread(tid)? } else { self.on_kernel(event)? };
                self.instant(event, track, event.text(), &[], &[])
            }
            Point::MessageSend => {
                let track = self.on_kernel(event)?;
                let flow = message_flow(kernel, event.number("to") as u16, event);
                self.instant(event, track, message_words(event, "to"), &[flow], &[])
            }
            Point::MessageReceive => {
                let track = self.on_kernel(event)?;
                let flow = message_flow(event.number("from") as u16, kernel, event);
                self.instant(event, track, message_words(event, "from"), &[], &[flow])
            }
            Point::HandlerBegin => {
                let track = self.on_kernel(event)?;
                self.begin(event, track, "message", message_name(event.number("kind") as u16).into())
            }
            Point::HandlerEnd => {
                let track = self.on_kernel(event)?;
                self.end(event, track)
            }
            Point::LostEvents => {
                let bundle = FtraceEventBundle {
                    cpu: Some(event.place.cpu.into()),
                    lost_events: Some(true),
                    ..Default::default()
                };
                self.put(TracePacket { ftrace_events: Some(bundle), ..Default::default() })
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        for bundle in std::mem::take(&mut self.bundles).into_values() {
            self.put(TracePacket { ftrace_events: Some(bundle), ..Default::default() })?;
        }
        Ok(())
    }
}

fn message_words(event: &Event, other: &str) -> String {
    let (kind, role) = (message_name(event.number("kind") as u16), role_name(event.number("role") as u8));
    format!("{kind} ({role}) {other} kernel {}", event.number(other))
}

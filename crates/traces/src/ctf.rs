//! Common Trace Format 1.8 (diamon.org/ctf/v1.8.3), with the event names, fields and environment of LTTng's kernel tracer, so that babeltrace2 2.0 reads it and
//! Trace Compass draws its control flow and resources views. One stream for each CPU; the metadata is text (TSDL) and comes last, for only then is it known
//! which system calls there were.
//!
//! What Trace Compass reads for those views was looked up in its source, for nobody could run it here: github.com/tracecompass/tracecompass, the handlers of
//! org.eclipse.tracecompass.analysis.os.linux.core/kernel and the layouts of lttng2.kernel.core (2015 to 2018). A field that is missing is an exception there, which ends the analysis.
//! [`added`] has what it or LTTng wants beside our fields; tests.rs has all that it reads as a list.
//!
//! LTTng numbers a CPU's idle task 0. Here the work that a kernel does for itself is a thread, too, and has the id [`KERNEL_TID`] + number of the kernel.

use crate::{
    file::Trace,
    names::{message_name, role_name, syscall_name},
    Event, Filter, Names,
};
use anyhow::{bail, Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};
use trace::{Field, Kind, Point, POINTS};

/// Thread ids of Linux are below this.
pub const KERNEL_TID: u32 = 1 << 22;

const MAGIC: u32 = 0xc1fc_1fc1;
const METADATA: &str = "metadata";
/// Names of streams begin so; the number of the CPU follows.
const CHANNEL: &str = "channel0_";
/// What is packed together; more is a new packet.
const PACKET_BYTES: usize = 1 << 20;
/// Bytes before the events of a packet.
const PACKET_HEADER: usize = 4 + 16 + 4 + 8 * 6 + 4;
/// Ids of the events of system calls: in and out.
const ENTRY_FROM: u16 = 1000;
const EXIT_FROM: u16 = 2000;
/// Id of `sched_process_free`, which we have no point for.
const FREE: u16 = 900;
/// LTTng's length of `comm`.
const COMM: usize = 16;
/// The state of a thread that has ended, as it leaves its CPU.
const ENDED: u64 = 16;
/// Linux's priority of a thread of which nothing is known: nice 0.
const USUAL_PRIORITY: u8 = 120;

/// How the text of the metadata begins.
const BEGIN: &str = "/* CTF 1.8, written by cob */\n";

/// Makes room for a trace in a directory, which is made; a trace of ours that is there goes. Anything else there is an error, and nothing is touched.
pub fn prepare(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let mut old = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_metadata = || fs::read(&path).is_ok_and(|text| text.starts_with(BEGIN.as_bytes()));
        match name.strip_prefix(CHANNEL).is_some_and(|cpu| cpu.parse::<u16>().is_ok())
            || name == METADATA && is_metadata()
        {
            true => old.push(path),
            false => bail!("{} is in the way", path.display()),
        }
    }
    old.iter().try_for_each(fs::remove_file)?;
    Ok(())
}

/// A field that LTTng has and the ring has not: what is known of the thread in a field of ours.
enum Added {
    Name { field: &'static str, of: &'static str },
    Priority { field: &'static str, of: &'static str },
}

/// Fields before those of the table.
fn added(point: Point) -> &'static [Added] {
    use Added::{Name, Priority};
    match point {
        Point::SchedSwitch => &[
            Name { field: "prev_comm", of: "prev_tid" },
            Name { field: "next_comm", of: "next_tid" },
            Priority { field: "prev_prio", of: "prev_tid" },
        ],
        Point::SchedWakeup | Point::SchedMigrateTask | Point::SchedProcessExit => {
            &[Name { field: "comm", of: "tid" }, Priority { field: "prio", of: "tid" }]
        }
        // A child begins with its parent's name.
        Point::SchedProcessFork => {
            &[Name { field: "parent_comm", of: "parent_tid" }, Name { field: "child_comm", of: "parent_tid" }]
        }
        _ => &[],
    }
}

/// Writes a trace into a directory ([`prepare`]). Gives how many events that are.
pub fn write(trace: &Trace, filter: Filter, directory: &Path) -> Result<u64> {
    prepare(directory)?;
    let mut writer = Ctf {
        directory,
        streams: BTreeMap::new(),
        calls: BTreeSet::new(),
        names: Names::default(),
        priorities: HashMap::new(),
        written: 0,
    };
    for event in trace.events()?.filtered(filter) {
        writer.add(&event?)?;
    }
    for stream in writer.streams.values_mut() {
        stream.finish_packet()?;
        stream.file.flush()?;
    }
    let metadata = writer.metadata(trace)?;
    fs::write(directory.join(METADATA), metadata).context(METADATA)?;
    Ok(writer.written)
}

struct Ctf<'a> {
    directory: &'a Path,
    streams: BTreeMap<u16, Stream>,
    calls: BTreeSet<u32>,
    names: Names,
    /// Those that threads had when they were given a CPU last.
    priorities: HashMap<u32, u8>,
    written: u64,
}

/// The file of a CPU.
struct Stream {
    file: BufWriter<File>,
    cpu: u16,
    packet: Vec<u8>,
    first: u64,
    last: u64,
    sequence: u64,
    lost: u64,
}

impl Stream {
    fn finish_packet(&mut self) -> Result<()> {
        if self.packet.is_empty() {
            return Ok(());
        }
        let bits = ((PACKET_HEADER + self.packet.len()) * 8) as u64;
        let mut header = Vec::with_capacity(PACKET_HEADER);
        header.extend_from_slice(&MAGIC.to_le_bytes());
        header.extend_from_slice(&UUID);
        header.extend_from_slice(&0u32.to_le_bytes());
        for word in [self.first, self.last, bits, bits, self.sequence, self.lost] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        header.extend_from_slice(&u32::from(self.cpu).to_le_bytes());
        self.file.write_all(&header)?;
        self.file.write_all(&self.packet)?;
        self.packet.clear();
        self.sequence += 1;
        Ok(())
    }
}

/// Any: it only joins metadata and streams.
const UUID: [u8; 16] = *b"cob kernel trace";

fn uuid_text() -> String {
    let hex: String = UUID.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Integers of the format: name, bits, and how they are shown.
fn integer(field: &Field) -> (u32, bool, u32) {
    let base = if field.kind == Kind::Hex { 16 } else { 10 };
    (field.bits, matches!(field.kind, Kind::Signed | Kind::Tid | Kind::For), base)
}

impl Ctf<'_> {
    fn add(&mut self, event: &Event) -> Result<()> {
        let added = self.added_values(event);
        self.names.take(event);
        if event.point == Point::SchedSwitch {
            self.priorities.insert(event.tid("next_tid"), event.number("next_prio") as u8);
        }
        let cpu = event.place.cpu;
        let stream = match self.streams.entry(cpu) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let file = File::create(self.directory.join(format!("{CHANNEL}{cpu}")))?;
                let file = BufWriter::new(file);
                entry.insert(Stream { file, cpu, packet: Vec::new(), first: 0, last: 0, sequence: 0, lost: 0 })
            }
        };
        if stream.packet.len() >= PACKET_BYTES {
            stream.finish_packet()?;
        }
        // What a CPU says again after another boot of its kernel is later, too.
        if stream.packet.is_empty() {
            stream.first = event.time;
        }
        stream.last = event.time;
        if event.point == Point::LostEvents {
            // A packet says how many had been lost by its end, and readers tell from two that follow each other.
            stream.finish_packet()?;
            stream.lost += event.number("count");
            stream.first = event.time;
        }
        let id = match event.point {
            Point::SyscallEntry | Point::SyscallExit => {
                let call = event.number("nr") as u32;
                self.calls.insert(call);
                let from = if event.point == Point::SyscallEntry { ENTRY_FROM } else { EXIT_FROM };
                from + (call as u16).min(999)
            }
            point => point as u16,
        };
        let to = &mut stream.packet;
        to.extend_from_slice(&id.to_le_bytes());
        to.extend_from_slice(&event.time.to_le_bytes());
        to.extend_from_slice(&added);
        self.written += 1;
        for (field, value) in event.fields().filter(|(field, _)| is_kept(event.point, field)) {
            match field.kind {
                Kind::Text => {
                    to.extend(value.text().iter().filter(|byte| **byte != 0));
                    to.push(0);
                }
                Kind::Tid => to.extend_from_slice(&tid(value.number() as u32, event.place.kernel).to_le_bytes()),
                _ => to.extend_from_slice(&value.number().to_le_bytes()[..(field.bits / 8) as usize]),
            }
        }
        if event.point == Point::SchedSwitch && event.number("prev_state") == ENDED {
            // As LTTng says when the last of a thread is given back: with this, readers forget it.
            let thread = event.tid("prev_tid");
            to.extend_from_slice(&FREE.to_le_bytes());
            to.extend_from_slice(&event.time.to_le_bytes());
            to.extend_from_slice(&name_of(&self.names, event, thread));
            to.push(self.priorities.remove(&thread).unwrap_or(USUAL_PRIORITY));
            to.extend_from_slice(&tid(thread, event.place.kernel).to_le_bytes());
            self.written += 1;
        }
        Ok(())
    }

    /// The values of [`added`].
    fn added_values(&self, event: &Event) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in added(event.point) {
            match field {
                Added::Name { of, .. } => bytes.extend_from_slice(&name_of(&self.names, event, event.tid(of))),
                Added::Priority { of, .. } => {
                    bytes.push(self.priorities.get(&event.tid(of)).copied().unwrap_or(USUAL_PRIORITY));
                }
            }
        }
        bytes
    }

    fn metadata(&self, trace: &Trace) -> Result<String> {
        let mut text = String::from(BEGIN);
        for bits in [8, 16, 32, 64] {
            writeln!(text, "typealias integer {{ size = {bits}; align = 8; signed = false; }} := uint{bits}_t;")?;
        }
        writeln!(text, "\ntrace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{}\";\n\tbyte_order = le;", uuid_text())?;
        text += "\tpacket.header := struct {\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\t};\n};\n\n";
        writeln!(
            text,
            "env {{\n\thostname = \"cob\";\n\tdomain = \"kernel\";\n\tsysname = \"Linux\";\n\tkernel_release = \"6.1\";\n\tkernel_version = \"{}\";\n\ttracer_name = \"lttng-modules\";\n\ttracer_major = 2;\n\ttracer_minor = 13;\n}};\n",
            quoted(&format!("Cob: {}", trace.about()))
        )?;
        text += "clock {\n\tname = \"monotonic\";\n\tdescription = \"Time since the machine started\";\n\tfreq = 1000000000;\n\toffset = 0;\n};\n\n";
        text += "typealias integer {\n\tsize = 64; align = 8; signed = false;\n\tmap = clock.monotonic.value;\n} := uint64_clock_monotonic_t;\n\n";
        text += "stream {\n\tid = 0;\n\tevent.header := struct {\n\t\tuint16_t id;\n\t\tuint64_clock_monotonic_t timestamp;\n\t} align(8);\n";
        text += "\tpacket.context := struct {\n\t\tuint64_clock_monotonic_t timestamp_begin;\n\t\tuint64_clock_monotonic_t timestamp_end;\n\t\tuint64_t content_size;\n\t\tuint64_t packet_size;\n\t\tuint64_t packet_seq_num;\n\t\tuint64_t events_discarded;\n\t\tuint32_t cpu_id;\n\t};\n};\n";
        for info in POINTS {
            match info.point {
                Point::SyscallEntry | Point::SyscallExit => {
                    let (prefix, from) = match info.point {
                        Point::SyscallEntry => ("syscall_entry_", ENTRY_FROM),
                        _ => ("syscall_exit_", EXIT_FROM),
                    };
                    for call in &self.calls {
                        let name = format!("{prefix}{}", syscall_name(*call));
                        self.event(&mut text, &name, from + (*call as u16).min(999), info.point)?;
                    }
                }
                point => self.event(&mut text, info.name, point as u16, point)?,
            }
        }
        writeln!(
            text,
            "\nevent {{\n\tname = \"sched_process_free\";\n\tid = {FREE};\n\tstream_id = 0;\n\tfields := struct {{"
        )?;
        declare(&mut text, &[Added::Name { field: "comm", of: "" }, Added::Priority { field: "prio", of: "" }])?;
        writeln!(text, "\t\tinteger {{ size = 32; align = 8; signed = true; base = 10; }} _tid;\n\t}};\n}};")?;
        Ok(text)
    }

    fn event(&self, text: &mut String, name: &str, id: u16, point: Point) -> Result<()> {
        writeln!(text, "\nevent {{\n\tname = \"{name}\";\n\tid = {id};\n\tstream_id = 0;\n\tfields := struct {{")?;
        declare(text, added(point))?;
        for field in point.info().fields.iter().filter(|field| is_kept(point, field)) {
            let name = field.name;
            match field.kind {
                Kind::Text => writeln!(text, "\t\tstring {{ encoding = UTF8; }} _{name};")?,
                Kind::Message | Kind::Role => self.enumeration(text, field)?,
                _ => {
                    let (bits, signed, base) = integer(field);
                    writeln!(
                        text,
                        "\t\tinteger {{ size = {bits}; align = 8; signed = {signed}; base = {base}; }} _{name};"
                    )?;
                }
            }
        }
        writeln!(text, "\t}};\n}};")?;
        Ok(())
    }

    fn enumeration(&self, text: &mut String, field: &Field) -> Result<()> {
        write!(text, "\t\tenum : uint{}_t {{", field.bits)?;
        if field.kind == Kind::Role {
            for role in 0..6u8 {
                write!(text, " \"{}\" = {role},", role_name(role))?;
            }
        } else {
            for message in messages::CATALOGUE {
                write!(text, " \"{}\" = {},", message_name(message.kind.0), message.kind.0)?;
            }
        }
        writeln!(text, " }} _{};", field.name)?;
        Ok(())
    }
}

fn declare(text: &mut String, fields: &[Added]) -> Result<()> {
    for field in fields {
        match field {
            Added::Name { field, .. } => writeln!(
                text,
                "\t\tinteger {{ size = 8; align = 8; signed = false; encoding = UTF8; }} _{field}[{COMM}];"
            )?,
            Added::Priority { field, .. } => {
                writeln!(text, "\t\tinteger {{ size = 8; align = 8; signed = false; base = 10; }} _{field};")?
            }
        }
    }
    Ok(())
}

/// The name of a thread as LTTng writes it.
fn name_of(names: &Names, event: &Event, tid: u32) -> [u8; COMM] {
    let name = match tid {
        trace::IDLE => format!("swapper/{}", event.place.cpu),
        trace::KERNEL_WORK => format!("kernel/{}", event.place.kernel),
        _ => names.comm(tid).into_owned(),
    };
    let mut bytes = [0; COMM];
    bytes.iter_mut().zip(name.bytes().take(COMM - 1)).for_each(|(to, from)| *to = from);
    bytes
}

/// The name of a system call is the event's; whose it is is whose the CPU is.
fn is_kept(point: Point, field: &Field) -> bool {
    !(field.kind == Kind::Syscall
        || matches!(point, Point::SyscallEntry | Point::SyscallExit) && field.kind == Kind::Tid)
}

/// A thread id as other tools take it.
pub(crate) fn tid(tid: u32, kernel: u16) -> u32 {
    match tid {
        trace::KERNEL_WORK => KERNEL_TID + u32::from(kernel),
        tid => tid,
    }
}

fn quoted(text: &str) -> String {
    text.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { ' ' } else { c }).collect()
}

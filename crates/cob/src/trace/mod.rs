//! `cob trace`: records what kernels do, and shows it.
//!
//! The machine's memory lies in files that this program reads too, so what kernels write into their rings (crate `trace`) comes out without a message, an interrupt or a device, also
//! of a kernel that has died. `collect` copies it into a file while the machine runs; `traces` makes everything else of that file.

mod collect;
mod memory;
mod sampler;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use traces::{check::Checker, ctf, file::Trace, file::Writer, perfetto, report::Report, svg, Filter, Names};

use crate::cli::{TraceCommand, TraceOptions, TraceOutputs};
use crate::qmp::Qmp;
use crate::run;
use crate::terminal::Terminal;
use crate::vm::{self, Machine};

pub use collect::{Collected, Collecting, Follow};
pub use memory::GuestMemory;
pub use sampler::Sampler;

/// What a run is to record, and where to.
pub struct Recorder {
    words: String,
    file: File,
    about: String,
    limit: u64,
    follow: Option<Follow>,
    hertz: Option<u32>,
}

impl Recorder {
    /// `words`: for the kernels' command line. `output`: the file, of at most `limit` MiB. `about`: for people, what is recorded.
    pub fn new(words: String, output: &Path, about: String, limit: u64) -> Result<Recorder> {
        let file = File::create(output).with_context(|| output.display().to_string())?;
        Ok(Recorder { words, file, about, limit: limit << 20, follow: None, hertz: None })
    }

    /// Asks for samples of all CPUs, too, so many in a second.
    pub fn with_samples(self, hertz: u32) -> Recorder {
        Recorder { hertz: Some(hertz), ..self }
    }

    /// Gives the machine memory that this program can read, and tells it what to record.
    pub fn prepare(&self, machine: &mut Machine) -> Result<()> {
        machine.append = format!("{} {}", machine.append, self.words);
        machine.shared_memory = Some(GuestMemory::new(&vm::node_sizes(machine.nodes.into(), machine.memory))?);
        Ok(())
    }

    /// Begins to read what it records, and to ask for samples.
    pub fn start(self, machine: &Machine, qmp: &Qmp) -> Result<(Collecting, Option<Sampler>)> {
        let memory = machine.shared_memory.clone().context("the machine's memory is not shared")?;
        let sampler = match self.hertz {
            Some(hertz) => Some(Sampler::start(memory.clone(), machine.cpus, qmp.another()?, hertz)?),
            None => None,
        };
        let writer = Writer::new(self.file, &self.about)?;
        // Directories of kernels that there are not are zero.
        Ok((Collecting::start(memory, machine.cpus, writer, self.limit, self.follow)?, sampler))
    }
}

pub fn main(options: Box<TraceOptions>) -> Result<u8> {
    match options.command {
        Some(TraceCommand::Report { file, list, check, outputs }) => report(&file, list, check, &outputs),
        None => record(*options),
    }
}

fn record(options: TraceOptions) -> Result<u8> {
    let words: Vec<_> = options.program.iter().map(|word| word.to_string_lossy()).collect();
    let about = words.join(" ");
    let mut append = format!("cob.trace={} cob.trace-ring={}", options.events, options.ring);
    if let Some(on) = &options.on {
        let (kernels, _) = options.machine.shape().map_err(|complaint| anyhow!(complaint))?;
        if on.largest >= kernels {
            bail!("--on {}: there is no kernel {}, only {kernels} of them", on.list, on.largest);
        }
        append += &format!(" cob.trace-kernels={}", on.list);
    }
    // What can't be written is told before the program has run.
    prepare_outputs(&options.outputs)?;
    if options.overwrite {
        append += " cob.trace-full=overwrite";
    }
    let follow = options.follow.then(|| Follow::new(Filter::new(options.outputs.process.clone())));
    let recorder = Recorder { follow, ..Recorder::new(append, &options.output, about, options.limit)? };
    let (status, collected) = run::execute(&options.machine, options.program, Terminal::of_caller(), Some(recorder))?;
    if let Some(collected) = collected {
        tell(&collected, &options.output);
        if collected.kernels.is_empty() {
            eprintln!("cob: no kernel has recorded anything");
            return Ok(status);
        }
    }
    write_outputs(&options.output, &options.outputs)?;
    if !options.follow {
        let trace = Trace::open(&options.output)?;
        eprint!("{}", Report::of(&trace, Filter::new(options.outputs.process))?.summary());
    }
    Ok(status)
}

/// Says what is missing.
fn tell(collected: &Collected, output: &Path) {
    if let Some(error) = &collected.error {
        eprintln!("cob: {}: {error}; events after that are not in it", output.display());
    }
    if collected.lost > 0 {
        eprintln!(
            "cob: {} events were lost, because they came faster than this machine read them (--ring)",
            collected.lost
        );
    }
    if collected.missed_words > 0 {
        eprintln!("cob: {} KiB of events were overwritten before they were read", collected.missed_words / 128);
    }
}

fn report(file: &Path, list: bool, check: bool, outputs: &TraceOutputs) -> Result<u8> {
    let trace = Trace::open(file)?;
    write_outputs(file, outputs)?;
    let filter = Filter::new(outputs.process.clone());
    let mut out = BufWriter::new(io::stdout().lock());
    if list {
        let mut names = Names::default();
        for event in trace.events()?.filtered(filter) {
            let event = event?;
            names.take(&event);
            if writeln!(out, "{}", event.line(&names)).is_err() {
                // Nobody reads on.
                return Ok(0);
            }
        }
        return Ok(0);
    }
    if check {
        let mut checker = Checker::of(&trace)?;
        for event in trace.events()? {
            checker.take(&event?);
        }
        for violation in checker.found() {
            println!("{:.9}: {}", violation.time as f64 / 1e9, violation.what);
        }
        let lost = trace.lost();
        println!(
            "{} events, {lost} lost, {} messages joined, {} wrong",
            checker.events,
            checker.joined,
            checker.found().len()
        );
        return Ok(u8::from(!checker.found().is_empty()));
    }
    let _ = write!(out, "{}", Report::of(&trace, filter)?.text());
    Ok(0)
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new).with_context(|| path.display().to_string())
}

fn prepare_outputs(outputs: &TraceOutputs) -> Result<()> {
    if let Some(directory) = &outputs.ctf {
        ctf::prepare(directory).with_context(|| directory.display().to_string())?;
    }
    [&outputs.perfetto, &outputs.svg].into_iter().flatten().try_for_each(|path| create(path).map(|_| ()))
}

fn write_outputs(file: &Path, outputs: &TraceOutputs) -> Result<()> {
    let filter = || Filter::new(outputs.process.clone());
    let open = || Trace::open(file);
    if let Some(directory) = &outputs.ctf {
        ctf::write(&open()?, filter(), directory).with_context(|| directory.display().to_string())?;
    }
    if let Some(path) = &outputs.perfetto {
        let mut to = create(path)?;
        perfetto::write(&open()?, filter(), &mut to)
            .and_then(|()| Ok(to.flush()?))
            .with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &outputs.svg {
        let mut to = create(path)?;
        svg::write(&open()?, filter(), &mut to)
            .and_then(|()| Ok(to.flush()?))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

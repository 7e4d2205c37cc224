//! `cob profile`: where CPUs are, so many times a second, in programs and in the kernels.
//!
//! Samples come out of the machine as a trace does (`crate::trace`): each CPU writes its own into a ring when the host interrupts it (`trace/sampler.rs`). What they mean is found afterwards, by crate `profile`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use profile::{Flame, Functions, Script, Table};
use traces::file::Trace;

use crate::cli::{ProfileCommand, ProfileOptions, ProfileOutputs};
use crate::prepare::kernel_image;
use crate::run;
use crate::terminal::Terminal;
use crate::trace::Recorder;

pub fn main(options: Box<ProfileOptions>) -> Result<u8> {
    match options.command {
        Some(ProfileCommand::Report { file, root, outputs }) => {
            print!("{}", report(&file, &root, &outputs)?);
            Ok(0)
        }
        None => record(*options),
    }
}

fn record(options: ProfileOptions) -> Result<u8> {
    let words: Vec<_> = options.program.iter().map(|word| word.to_string_lossy()).collect();
    let about = format!("{} Hz: {}", options.frequency, words.join(" "));
    // What can't be written is told before the program has run.
    [&options.outputs.svg, &options.outputs.script]
        .into_iter()
        .flatten()
        .try_for_each(|path| create(path).map(|_| ()))?;
    let more = options.trace.map(|list| format!(",{list}")).unwrap_or_default();
    let append = format!("cob.trace=profile{more} cob.trace-ring={} cob.sample-stack={}", options.ring, options.stack);
    let recorder = Recorder::new(append, &options.output, about, options.limit)?.with_samples(options.frequency);
    let (status, collected) = run::execute(&options.machine, options.program, Terminal::of_caller(), Some(recorder))?;
    if let Some(collected) = collected {
        if let Some(error) = &collected.error {
            eprintln!("cob: {}: {error}; samples after that are not in it", options.output.display());
        }
        if collected.kernels.is_empty() {
            eprintln!("cob: no kernel has taken a sample");
            return Ok(status);
        }
    }
    let root = options.machine.root.unwrap_or(PathBuf::from("/"));
    eprint!("{}", report(&options.output, &root, &options.outputs)?);
    Ok(status)
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new).with_context(|| path.display().to_string())
}

/// Writes what is wanted of samples in a file, and gives the tables.
fn report(file: &Path, root: &Path, outputs: &ProfileOutputs) -> Result<String> {
    let trace = Trace::open(file)?;
    let (hertz, title) = match trace.about().split_once(" Hz: ") {
        Some((hertz, title)) => (hertz.parse().ok(), title),
        None => (None, trace.about()),
    };
    let about = fs::metadata(file)?;
    let options = profile::Options {
        kernel: kernel_image()?,
        root: root.to_path_buf(),
        jit_maps: outputs.jit_maps.clone(),
        since: about.created().or(about.modified()).unwrap_or(SystemTime::UNIX_EPOCH),
        process: outputs.process.clone(),
    };
    let mut functions = Functions::default();
    let (mut table, mut flame) = (Table::default(), outputs.svg.as_ref().map(|_| Flame::new(outputs.per_kernel)));
    let script = outputs.script.as_ref().map(|path| Ok::<_, anyhow::Error>((path, create(path)?))).transpose()?;
    let mut script = script.map(|(path, to)| (path, Script::new(to, hertz.unwrap_or(1))));
    let quality = profile::read(&trace, &options, &mut functions, |functions, chain| {
        table.take(chain);
        flame.iter_mut().for_each(|flame| flame.take(chain));
        script.iter_mut().for_each(|(_, script)| script.take(functions, chain));
    })?;
    if let (Some(path), Some(flame)) = (&outputs.svg, flame) {
        let mut to = create(path)?;
        flame
            .write(&functions, title, &mut to)
            .and_then(|()| to.flush())
            .with_context(|| path.display().to_string())?;
    }
    if let Some((path, script)) = script {
        script.end().with_context(|| path.display().to_string())?;
    }
    let mut text = table.text(&functions, outputs.lines, hertz);
    if quality.lost > 0 {
        text += &format!(
            "\n{} records were lost, because they came faster than this machine read them (--ring)\n",
            quality.lost
        );
    }
    if quality.cut != [0, 0] {
        let [programs, kernels] = quality.cut;
        text += &format!(
            "\nchains that could not be followed to their beginning: {programs} of programs, {kernels} of kernels, of {} samples\n",
            quality.samples
        );
    }
    Ok(text)
}

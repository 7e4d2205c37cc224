//! Runs the guest tests: each case in a machine of its own, through `cob run` as a user would, and compares.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::cases::{self, Case, Judge, Recorded, Stdin};
use super::{loopback, profiled, stacks::Deepest, tail, traced, Tally};
use crate::cli::TestOptions;
use crate::vm::{self, with_parent_death_signal};

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Observed {
    status: i32,
    stdout: Vec<u8>,
    stderr: String,
}

/// A case with one number of kernels.
struct Job {
    case: Case,
    kernels: u16,
    /// With fault injection by this seed.
    shake: Option<u64>,
}

/// Kernels of a shaken machine, and how much longer it may take.
const SHAKEN: u16 = 4;
const PATIENCE: u64 = 4;

impl Job {
    fn name(&self) -> String {
        match self.shake {
            Some(seed) => format!("{} [{} --shake {seed}]", self.case.name, self.kernels),
            None => format!("{} [{}]", self.case.name, self.kernels),
        }
    }

    /// A name for its files.
    fn file(&self) -> String {
        let seed = self.shake.map(|seed| format!("-{seed}")).unwrap_or_default();
        format!("{}-{}{seed}", self.case.name.replace('/', "-"), self.kernels)
    }

    fn timeout(&self) -> u64 {
        self.case.timeout * if self.shake.is_some() { PATIENCE } else { 1 }
    }
}

pub fn run(project: &Path, options: &TestOptions, tally: &mut Tally) -> Result<()> {
    let source = project.join("tests/guest");
    let out = project.join("target/guest");
    fs::create_dir_all(&out)?;
    let mut jobs = select(all_cases(&source, &out, tally)?, options);
    leave_out_newer(&mut jobs, vm::qemu_version().unwrap_or(0), tally);
    if jobs.iter().any(|job| job.case.recorded == Recorded::Trace) && !traced::has_schema() {
        tally.skip("traces in Perfetto's schema", "PyPI's package perfetto could not be had (.cob/install.log)");
    }
    let gaps = gaps(&fs::read_to_string(source.join("gaps"))?);
    let work = tempfile::Builder::new().prefix("cob-test-").tempdir()?;
    let kept = project.join("target/guest/failed");
    fs::create_dir_all(&kept)?;
    let expected = expectations(&jobs, work.path(), tally)?;

    let mut queue: Vec<Job> = jobs;
    queue.reverse();
    let (queue, tally) = (Mutex::new(queue), Mutex::new(tally));
    let deepest = Mutex::new(Deepest::default());
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| loop {
                let Some(job) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop() else {
                    return;
                };
                let name = job.name();
                let (verdict, log) = judge(&job, expected.get(&job.case.name), work.path(), &kept);
                deepest.lock().unwrap_or_else(PoisonError::into_inner).note(&name, &log);
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                match gap(&gaps, &job.case.name) {
                    None => tally.add(&name, verdict),
                    Some(reason) => tally.add_gap(&name, verdict, reason),
                }
            });
        }
    });
    let deepest = deepest.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(verdict) = deepest.verdict() {
        tally.into_inner().unwrap_or_else(PoisonError::into_inner).add("kernel stacks", verdict);
    }
    Ok(())
}

/// Skips the cases that need a newer QEMU than this one.
fn leave_out_newer(jobs: &mut Vec<Job>, version: u32, tally: &mut Tally) {
    jobs.retain(|job| {
        let runs = job.case.qemu <= version;
        if !runs {
            let least = job.case.qemu;
            tally.skip(&job.name(), &format!("QEMU here is {version}, it needs {least} (COB_QEMU=PATH names another)"));
        }
        runs
    });
}

/// Known gaps: name of the case and reason, one a line.
fn gaps(list: &str) -> BTreeMap<String, String> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| line.split_once(": ").map(|(name, reason)| (name.to_string(), reason.to_string()));
    lines.filter_map(pair).collect()
}

/// The reason if the case, or the program it is a way of linking of, is a known gap.
fn gap<'a>(gaps: &'a BTreeMap<String, String>, case: &str) -> Option<&'a String> {
    gaps.get(case).or_else(|| gaps.get(case.split('.').next().unwrap_or(case)))
}

/// Builds what is to build. A program that does not compile is a failed test, not the end of all others.
fn all_cases(source: &Path, out: &Path, tally: &mut Tally) -> Result<Vec<Case>> {
    let listing = fs::read_dir(source).with_context(|| source.display().to_string())?;
    let mut files: Vec<PathBuf> = listing.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        match cases::from_source(&file, out) {
            Ok(built) => cases.extend(built),
            Err(error) => tally.add(&format!("{} (build)", file.display()), Err(format!("{error:#}"))),
        }
    }
    cases.extend(cases::from_table(&fs::read_to_string(source.join("cases.toml"))?)?);
    Ok(cases)
}

fn select(cases: Vec<Case>, options: &TestOptions) -> Vec<Job> {
    let named = |case: &Case| options.names.is_empty() || options.names.iter().any(|name| case.name.contains(name));
    let counted = |kernels: &u16| options.kernels.is_none_or(|only| only == *kernels);
    let cases = cases.into_iter().filter(named);
    let seeds = options.seeds();
    if !seeds.is_empty() {
        let shaken = |case: Case| case.shaken.clone().map(|command| Case { command, ..case });
        let cases: Vec<Case> = cases.filter(|case| case.kernels.contains(&SHAKEN)).filter_map(shaken).collect();
        let shaken =
            |seed: u64| cases.iter().map(move |case| Job { case: case.clone(), kernels: SHAKEN, shake: Some(seed) });
        return seeds.into_iter().flat_map(shaken).collect();
    }
    // Two kernels find little that neither one nor four do: only if they are asked for, or the test is.
    let usual = options.names.is_empty() && options.kernels.is_none();
    let (mut jobs, mut left) = (Vec::new(), 0);
    for case in cases {
        let between = case.kernels.contains(&1) && case.kernels.contains(&4);
        for kernels in case.kernels.iter().copied().filter(counted) {
            match usual && between && kernels == 2 {
                true => left += 1,
                false => jobs.push(Job { case: case.clone(), kernels, shake: None }),
            }
        }
    }
    if left > 0 {
        println!("{left} more on 2 kernels: ./cob test guest --kernels 2, or ./cob test --long");
    }
    jobs
}

/// What this machine's Linux answers, once per case however many kernels follow.
fn expectations(jobs: &[Job], work: &Path, tally: &mut Tally) -> Result<BTreeMap<String, Observed>> {
    let mut expected = BTreeMap::new();
    let needs_loopback = jobs.iter().any(|job| job.case.loopback && job.case.judge == Judge::Host);
    // Without it those cases have nothing to be compared with, and fail.
    let loopback = !needs_loopback || {
        let checked = loopback::check().map_err(|error| format!("{error:#}"));
        let works = checked.is_ok();
        tally.add("network namespace", checked);
        works
    };
    for case in jobs.iter().map(|job| &job.case).filter(|case| case.judge == Judge::Host) {
        if expected.contains_key(&case.name) || case.loopback && !loopback {
            continue;
        }
        // A session of its own: the one that started the tests may have its leader in another PID namespace,
        // and Linux then answers 0 for it. Niceness 0 as in the guest, whatever the tests were started with.
        let nicer = -rustix::process::getpriority_process(None)?;
        let mut command = Command::new("/usr/bin/setsid");
        command.args(["--wait", "/usr/bin/nice", "-n", &nicer.to_string()]);
        command.args(["/usr/bin/timeout", &case.timeout.to_string()]);
        if case.loopback {
            command.args(loopback::prefix());
        }
        command.args(&case.command);
        // The program finds the same directory, empty, at the same place in the guest.
        let observed =
            observe(command, case, &fresh(work, &case.name)?).with_context(|| format!("{} on the host", case.name))?;
        fresh(work, &case.name)?;
        expected.insert(case.name.clone(), observed);
    }
    Ok(expected)
}

fn fresh(work: &Path, name: &str) -> Result<PathBuf> {
    let directory = work.join(name.replace('/', "-"));
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn observe(mut command: Command, case: &Case, directory: &Path) -> Result<Observed> {
    command.current_dir(directory).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", directory);
    command.env("LANG", "C.UTF-8").env("TERM", "dumb");
    for name in ["COB_KERNEL", "COB_QEMU"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let scratch = tempfile::tempfile()?;
    match &case.stdin {
        Stdin::Null => command.stdin(Stdio::null()),
        Stdin::Text(text) => {
            fs::write(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&scratch)), text)?;
            command.stdin(scratch)
        }
        Stdin::From(line) => {
            let producer = Command::new("/bin/sh").args(["-c", line]).stdout(Stdio::piped()).spawn()?;
            command.stdin(producer.stdout.context("no pipe")?)
        }
    };
    let output = run_to_end(command, case)?;
    let status = match (output.status.code(), std::os::unix::process::ExitStatusExt::signal(&output.status)) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    };
    Ok(Observed { status, stdout: output.stdout, stderr: String::from_utf8_lossy(&output.stderr).into_owned() })
}

fn run_to_end(mut command: Command, case: &Case) -> Result<Output> {
    let Some(signal) = case.interrupt else {
        return Ok(command.output()?);
    };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut first = [0; 1];
    let mut pipe = child.stdout.take().context("no pipe")?;
    let started = pipe.read(&mut first)?;
    let top = if case.top { top_of(child.id())? } else { Vec::new() };
    kill(Pid::from_raw(child.id() as i32), signal)?;
    let mut stdout = first[..started].to_vec();
    pipe.read_to_end(&mut stdout)?;
    let mut rest = child.wait_with_output()?;
    rest.stderr.extend(top);
    Ok(Output { stdout, ..rest })
}

/// What `cob top` prints about the machine of this process, without the variables that the process does not have either.
fn top_of(pid: u32) -> Result<Vec<u8>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["top", "--once", "--machine", &pid.to_string()]).env_clear().stdin(Stdio::null());
    let output = command.output()?;
    Ok([output.stdout, output.stderr].concat())
}

/// Runs it and compares; gives the kernels' log, too, which outlives the test if it failed: a random failure may not come back.
fn judge(job: &Job, expected: Option<&Observed>, work: &Path, kept: &Path) -> (Result<(), String>, String) {
    let log = work.join(format!("{}.log", job.file()));
    let observed = in_guest(job, &log, work).map_err(|error| format!("{error:#}"));
    let kernels = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    let looked = || match job.case.recorded {
        Recorded::Trace => traced::verdict(&recording_of(job, work)),
        Recorded::Profile => profiled::verdict(&recording_of(job, work)),
        Recorded::Nothing if job.case.disk.is_some() => check_disk(&disk_of(job, work)),
        Recorded::Nothing => Ok(()),
    };
    let verdict = observed.and_then(|observed| {
        compare(&job.case, expected, &observed, &kernels).and_then(|()| looked()).map_err(|why| {
            let kept = kept.join(format!("{}.log", job.file()));
            let place = fs::copy(&log, &kept).map(|_| kept.display().to_string()).unwrap_or_default();
            format!("{why}\nstderr:\n{}\nlog {place}:\n{}", tail(&observed.stderr, 15), tail(&kernels, 15))
        })
    });
    (verdict, kernels)
}

fn compare(case: &Case, expected: Option<&Observed>, observed: &Observed, log: &str) -> Result<(), String> {
    let verdict = match (&case.judge, expected) {
        (Judge::Host, Some(host)) => same(host, observed),
        (Judge::Host, None) => Err("nothing to compare with".to_string()),
        (Judge::Itself, _) => match (observed.status, observed.stdout.trim_ascii_end().ends_with(b"ok")) {
            (0, true) => Ok(()),
            (status, _) => Err(format!("status {status}, stdout:\n{}", shown(&observed.stdout))),
        },
        (Judge::Expect { status, stdout, stderr }, _) => as_told(*status, stdout.as_deref(), stderr, observed),
    };
    verdict.and_then(|()| says("the log", log, &case.log))
}

/// The directory of what is recorded of it and what is made of that: another one for each number of kernels.
fn recording_of(job: &Job, work: &Path) -> PathBuf {
    work.join(format!("recording-{}", job.file()))
}

/// The file of its disk.
fn disk_of(job: &Job, work: &Path) -> PathBuf {
    work.join(format!("disk-{}", job.file()))
}

/// What the host's e2fsck says of a disk.
fn check_disk(disk: &Path) -> Result<(), String> {
    let output = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(disk).output();
    let output = output.map_err(|error| format!("e2fsck: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("the disk: {}", String::from_utf8_lossy(&output.stdout))),
    }
}

fn in_guest(job: &Job, log: &Path, work: &Path) -> Result<Observed> {
    let case = &job.case;
    File::create(log)?;
    // cob ends the machine itself at the timeout; the outer one is for a cob that does not. Both end with us: it passes TERM on.
    // In the foreground, for otherwise it passes a signal on twice: to cob, and to its group, which cob is in.
    // It does not pass on every signal: a command that gets one has no outer timeout.
    let cob = std::env::current_exe()?;
    let mut command = match case.interrupt {
        Some(_) => with_parent_death_signal("TERM", cob),
        None => {
            let mut outer = with_parent_death_signal("TERM", "/usr/bin/timeout");
            outer.args(["--foreground", "-s", "KILL", &(job.timeout() + 20).to_string()]).arg(cob);
            outer
        }
    };
    // Where it ran on the host: outputs name their directory. The guest does not change it.
    let directory = work.join(case.name.replace('/', "-"));
    fs::create_dir_all(&directory)?;
    let recording = recording_of(job, work);
    if case.recorded != Recorded::Nothing {
        fs::create_dir_all(&recording)?;
    }
    match case.recorded {
        Recorded::Trace => command.args(["trace", "--output"]).arg(traced::file(&recording)),
        Recorded::Profile => command.args(["profile", "--output"]).arg(profiled::file(&recording)),
        Recorded::Nothing => command.arg("run"),
    };
    command.args(["--kernels", &job.kernels.to_string()]).arg("--log").arg(log);
    // Four CPUs also for fewer kernels, so that kernels of several CPUs are tested too.
    if !case.options.iter().any(|option| option == "--cpus") {
        command.args(["--cpus", &job.kernels.max(4).to_string()]);
    }
    if let Some(words) = &case.disk {
        let comma = if words.is_empty() { "" } else { "," };
        let disk = disk_of(job, work);
        command.arg("--disk").arg(format!("{},size=64M,serial=cob-test{comma}{words}", disk.display()));
    }
    if let Some(seed) = job.shake {
        command.args(["--shake", &seed.to_string()]);
    }
    command
        .args(["--audit", "--timeout", &job.timeout().to_string()])
        .args(&case.options)
        .arg("--")
        .args(&case.command);
    observe(command, case, &directory)
}

fn same(host: &Observed, guest: &Observed) -> Result<(), String> {
    if host.stdout != guest.stdout {
        return Err(difference(&host.stdout, &guest.stdout));
    }
    if host.status != guest.status {
        return Err(format!("status {} here, {} in the guest", host.status, guest.status));
    }
    Ok(())
}

fn as_told(status: i32, stdout: Option<&str>, stderr: &[String], observed: &Observed) -> Result<(), String> {
    if observed.status != status {
        return Err(format!("status {} instead of {status}", observed.status));
    }
    if let Some(stdout) = stdout.filter(|stdout| stdout.as_bytes() != observed.stdout) {
        return Err(difference(stdout.as_bytes(), &observed.stdout));
    }
    says("stderr", &observed.stderr, stderr)
}

/// Whether all of `expected` is in a text of this name.
fn says(name: &str, text: &str, expected: &[String]) -> Result<(), String> {
    match expected.iter().find(|words| !text.contains(*words)) {
        Some(missing) => Err(format!("{name} does not say {missing:?}")),
        None => Ok(()),
    }
}

/// The first line that differs, with the one before it.
fn difference(expected: &[u8], observed: &[u8]) -> String {
    let (expected_text, observed_text) = (String::from_utf8_lossy(expected), String::from_utf8_lossy(observed));
    let (left, right): (Vec<&str>, Vec<&str>) = (expected_text.lines().collect(), observed_text.lines().collect());
    let at = (0..left.len().max(right.len())).find(|at| left.get(*at) != right.get(*at));
    let Some(at) = at else {
        return format!("{} bytes expected, {} in the guest", expected.len(), observed.len());
    };
    let line = |lines: &[&str]| lines.get(at).map_or("(nothing more)".to_string(), |line| shown(line.as_bytes()));
    let before = at.checked_sub(1).map(|at| format!("after   {}\n", shown(left[at].as_bytes()))).unwrap_or_default();
    format!("stdout differs in line {}:\n{before}here    {}\nguest   {}", at + 1, line(&left), line(&right))
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(status: i32, stdout: &str) -> Observed {
        Observed { status, stdout: stdout.as_bytes().to_vec(), stderr: "cob: not found\n".to_string() }
    }

    #[test]
    fn differences_are_found_and_named() {
        assert!(same(&observed(0, "a\nb\n"), &observed(0, "a\nb\n")).is_ok());
        let why = same(&observed(0, "a\nb\n"), &observed(0, "a\nc\n")).unwrap_err();
        assert!(why.contains("line 2") && why.contains("here    b") && why.contains("guest   c"), "{why}");
        assert!(same(&observed(0, "a\n"), &observed(0, "a")).unwrap_err().contains("bytes"));
        assert!(same(&observed(0, ""), &observed(1, "")).unwrap_err().contains("status 0 here, 1"));
        assert!(same(&observed(0, "a\nb\n"), &observed(0, "a\n")).unwrap_err().contains("nothing more"));
    }

    #[test]
    fn the_table_can_be_the_judge() {
        let said = ["not found".to_string()];
        assert!(as_told(2, None, &said, &observed(2, "x")).is_ok());
        assert!(as_told(0, None, &said, &observed(2, "x")).is_err());
        assert!(as_told(2, Some("y"), &said, &observed(2, "x")).is_err());
        assert!(as_told(2, None, &["else".to_string()], &observed(2, "x")).is_err());
    }
}

//! What the guest tests are: C programs that say in a comment how to build and judge them, and a table of
//! commands (`tests/guest/cases.toml`) that need no program of ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{anyhow, bail, Context, Result};
use nix::sys::signal::Signal;
use serde::Deserialize;

use super::cargo::{cargo, outcome};
use crate::cpio::Archive;

/// What a result is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judge {
    /// The same command on this machine: status and stdout.
    Host,
    /// The program checks itself: status 0 and `ok` as its last line.
    Itself,
    /// What the table says.
    Expect { status: i32, stdout: Option<String>, stderr: Vec<String> },
}

/// One command, to be run with several numbers of kernels.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub command: Vec<String>,
    pub stdin: Stdin,
    /// Options for `cob run`.
    pub options: Vec<String>,
    pub kernels: Vec<u16>,
    pub judge: Judge,
    /// Words that the kernels' log must have besides.
    pub log: Vec<String>,
    /// A signal for the command as soon as it has printed something.
    pub interrupt: Option<Signal>,
    /// Before that signal, what `cob top --once` prints about it on the host is added to stderr.
    pub top: bool,
    pub timeout: u64,
    /// The first version of QEMU that can run it.
    pub qemu: u32,
    /// The command for a run with fault injection; None for what is about where things are put.
    pub shaken: Option<Vec<String>>,
    /// What the host says is asked for in a network namespace with `lo` alone, which is the network of Cob.
    pub loopback: bool,
    pub recorded: Recorded,
    /// It has a disk of 64 MiB, and afterwards e2fsck finds nothing wrong with the file system on it. With words for `--disk`, which may be none.
    pub disk: Option<String>,
}

/// What is recorded of a test, and looked at afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recorded {
    #[default]
    Nothing,
    /// It runs under `cob trace` (traced.rs).
    Trace,
    /// It runs under `cob profile` (profiled.rs).
    Profile,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    Null,
    Text(String),
    /// What this shell command prints on the host.
    From(String),
}

const KERNELS: [u16; 3] = [1, 2, 4];
const TIMEOUT: u64 = 60;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// The program and its arguments, or
    command: Option<Vec<String>>,
    /// a line for /bin/sh.
    shell: Option<String>,
    stdin: Option<String>,
    stdin_from: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    kernels: Option<Vec<u16>>,
    timeout: Option<u64>,
    interrupt: Option<String>,
    /// See [`Case::top`].
    #[serde(default)]
    top: bool,
    shakes: Option<bool>,
    /// [`Recorded::Trace`].
    #[serde(default)]
    traced: bool,
    /// See [`Case::disk`].
    #[serde(default)]
    disk: bool,
    /// What else `--disk` is told of it, such as `delay=1000`.
    disk_words: Option<String>,
    /// `lo`: see [`Case::loopback`].
    net: Option<String>,
    /// Skipped where QEMU is older than that.
    #[serde(default)]
    qemu: u32,
    /// Any of these makes the table the judge instead of the host.
    status: Option<i32>,
    stdout: Option<String>,
    stderr: Option<Vec<String>>,
    /// Besides, whoever is the judge.
    #[serde(default)]
    log: Vec<String>,
}

/// The table's commands.
pub fn from_table(text: &str) -> Result<Vec<Case>> {
    let table: Table = toml::from_str(text).context("tests/guest/cases.toml")?;
    table.case.into_iter().map(from_entry).collect()
}

/// The key `net`, which has one value.
fn only_loopback(net: &str) -> Result<bool> {
    match net {
        "lo" => Ok(true),
        other => bail!("net={other}: expected lo"),
    }
}

fn from_entry(entry: Entry) -> Result<Case> {
    let command = match (entry.command, entry.shell) {
        (Some(command), None) => command,
        (None, Some(line)) => vec!["/bin/sh".to_string(), "-c".to_string(), line],
        _ => bail!("{}: either command or shell", entry.name),
    };
    let stdin = match (entry.stdin, entry.stdin_from) {
        (None, None) => Stdin::Null,
        (Some(text), None) => Stdin::Text(text),
        (None, Some(line)) => Stdin::From(line),
        _ => bail!("{}: either stdin or stdin_from", entry.name),
    };
    let judge = match (entry.status, entry.stdout, entry.stderr) {
        (None, None, None) => Judge::Host,
        (status, stdout, stderr) => {
            Judge::Expect { status: status.unwrap_or(0), stdout, stderr: stderr.unwrap_or_default() }
        }
    };
    let disk = match (entry.disk, entry.disk_words) {
        (true, words) => Some(words.unwrap_or_default()),
        (false, None) => None,
        (false, Some(_)) => bail!("{}: disk_words without disk", entry.name),
    };
    let shaken = entry.shakes.unwrap_or(true).then(|| command.clone());
    Ok(Case {
        name: entry.name,
        command,
        stdin,
        options: entry.options,
        kernels: entry.kernels.unwrap_or(KERNELS.to_vec()),
        judge,
        log: entry.log,
        interrupt: entry.interrupt.as_deref().map(str::parse).transpose()?,
        top: entry.top,
        timeout: entry.timeout.unwrap_or(TIMEOUT),
        qemu: entry.qemu,
        shaken,
        loopback: entry.net.as_deref().map_or(Ok(false), only_loopback)?,
        recorded: if entry.traced { Recorded::Trace } else { Recorded::Nothing },
        disk,
    })
}

/// A C program and how it wants to be built: the first line that starts with `// cob:`.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    links: Vec<String>,
    flags: Vec<String>,
    kernels: Vec<u16>,
    itself: bool,
    /// The program is the /init of an initramfs.
    initramfs: bool,
    /// For `cob run`.
    options: Vec<String>,
    args: Vec<String>,
    timeout: u64,
    /// The arguments for a run with fault injection, if there is one.
    shaken: Option<Vec<String>>,
    loopback: bool,
    recorded: Recorded,
    /// It is linked with the task runtime (`runtime/`).
    tasks: bool,
}

fn recipe(source: &str) -> Result<Recipe> {
    let mut recipe = Recipe {
        links: vec!["dynamic".to_string()],
        flags: Vec::new(),
        kernels: KERNELS.to_vec(),
        itself: false,
        initramfs: false,
        options: Vec::new(),
        args: Vec::new(),
        timeout: TIMEOUT,
        shaken: None,
        loopback: false,
        recorded: Recorded::Nothing,
        tasks: false,
    };
    let mut shakes = true;
    let line = source.lines().find_map(|line| line.strip_prefix("// cob:")).context("no line `// cob: ...`")?;
    for word in line.split_whitespace() {
        let (key, value) = word.split_once('=').with_context(|| format!("{word}: expected key=value"))?;
        let list = || value.split(',').map(str::to_string).collect::<Vec<_>>();
        match key {
            "link" => recipe.links = list(),
            "flags" => recipe.flags = list(),
            "kernels" => recipe.kernels = list().iter().map(|n| n.parse()).collect::<Result<_, _>>()?,
            "compare" => recipe.itself = value == "self",
            "root" if value == "initramfs" => recipe.initramfs = true,
            "net" => recipe.loopback = only_loopback(value)?,
            "traced" if value == "yes" => recipe.recorded = Recorded::Trace,
            "profiled" if value == "yes" => recipe.recorded = Recorded::Profile,
            "lib" if value == "tasks" => recipe.tasks = true,
            "options" => recipe.options = list(),
            "args" => recipe.args = list(),
            "shake" if value == "no" => shakes = false,
            "shake" => recipe.shaken = Some(list()),
            "timeout" => recipe.timeout = value.parse()?,
            _ => bail!("unknown key {key}"),
        }
    }
    recipe.shaken = shakes.then(|| recipe.shaken.unwrap_or(recipe.args.clone()));
    Ok(recipe)
}

/// Builds the program `source` in `out` and gives one case per way of linking.
pub fn from_source(source: &Path, out: &Path) -> Result<Vec<Case>> {
    let stem = source.file_stem().context("a source without a name")?.to_string_lossy().into_owned();
    let recipe = recipe(&fs::read_to_string(source)?).with_context(|| stem.clone())?;
    let mut cases = Vec::new();
    for link in &recipe.links {
        let binary = out.join(format!("{stem}.{link}"));
        let library = if recipe.tasks { Some(task_library(source)?) } else { None };
        compile(source, link, &recipe.flags, library.as_deref(), &binary).with_context(|| stem.clone())?;
        let mut command = vec![binary.to_string_lossy().into_owned()];
        let mut options = recipe.options.clone();
        if recipe.initramfs {
            let archive = binary.with_extension("cpio");
            fs::write(&archive, initramfs(&fs::read(&binary)?))?;
            options.extend(["--initramfs".to_string(), archive.to_string_lossy().into_owned()]);
            command = vec!["/init".to_string()];
        }
        let with = |arguments: &Vec<String>| [&command[..], arguments].concat();
        let (shaken, command) = (recipe.shaken.as_ref().map(with), with(&recipe.args));
        cases.push(Case {
            name: format!("{stem}.{link}"),
            command,
            stdin: Stdin::Null,
            options,
            kernels: kernels_for(link, &recipe),
            judge: if recipe.itself { Judge::Itself } else { Judge::Host },
            log: Vec::new(),
            interrupt: None,
            top: false,
            timeout: recipe.timeout,
            qemu: 0,
            shaken,
            loopback: recipe.loopback,
            recorded: recipe.recorded,
            disk: None,
        });
    }
    Ok(cases)
}

/// What such a program finds beside itself.
fn initramfs(init: &[u8]) -> Vec<u8> {
    let archive = Archive::with_init(init).directory("etc");
    archive.file("etc/text", 0o640, b"hello\n").link("etc/link", "text").finish()
}

/// The usual way of linking meets every number of kernels, the others only the largest: a test of a system call
/// learns nothing new from static linking on one kernel.
fn kernels_for(link: &str, recipe: &Recipe) -> Vec<u16> {
    if link == "dynamic" || recipe.links.len() == 1 {
        recipe.kernels.clone()
    } else {
        recipe.kernels.iter().copied().max().into_iter().collect()
    }
}

/// The task runtime as a library for C, of the project that `source` belongs to.
fn task_library(source: &Path) -> Result<PathBuf> {
    let project = source.ancestors().nth(3).context("a source outside of a project")?;
    let mut build = cargo(project);
    build.args(["build", "--quiet", "--release", "-p", "cob-tasks", "--lib"]);
    outcome(&mut build).map_err(|error| anyhow!(error))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    Ok(target.join("release/libcob_tasks.a"))
}

fn compile(source: &Path, link: &str, flags: &[String], library: Option<&Path>, binary: &PathBuf) -> Result<()> {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    // The headers of the tests, of which any may be included.
    let headers = ["test.h", "hands.h", "internet.h", "errnos.h", "errnos-each.h", "errnos-proc.h", "listing.h"];
    let headers = headers.map(|name| modified(&source.with_file_name(name)));
    let newest = headers.into_iter().chain([library.and_then(modified)]).fold(modified(source), Option::max);
    if modified(binary) > newest {
        return Ok(());
    }
    let link_flags: &[&str] = match link {
        "static" => &["-static"],
        "static-pie" => &["-static-pie"],
        "dynamic" => &[],
        other => bail!("link={other}: expected static, static-pie or dynamic"),
    };
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-D_GNU_SOURCE"]).args(link_flags);
    let result = gcc.args(flags).arg("-o").arg(binary).arg(source).args(library).arg("-lm").output().context("gcc")?;
    if !result.status.success() {
        return Err(anyhow!("gcc: {}", String::from_utf8_lossy(&result.stderr)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes() {
        let line =
            "// cob: link=static,dynamic flags=-pthread kernels=4 compare=self args=1,2 timeout=9 options=--cpus,8\n";
        let parsed = recipe(line).unwrap();
        assert_eq!(parsed.links, ["static", "dynamic"]);
        assert_eq!((parsed.kernels, parsed.itself, parsed.timeout), (vec![4], true, 9));
        assert_eq!(parsed.args, ["1", "2"]);
        assert_eq!(parsed.options, ["--cpus", "8"]);
        assert_eq!(parsed.shaken, Some(vec!["1".to_string(), "2".to_string()]));
        assert_eq!(recipe("// cob: args=1 shake=no\n").unwrap().shaken, None);
        assert_eq!(recipe("// cob: shake=3 args=1\n").unwrap().shaken, Some(vec!["3".to_string()]));
        assert_eq!(recipe("// words\n// cob: link=static\n").unwrap().kernels, KERNELS);
        assert_eq!(kernels_for("static", &recipe("// cob: link=static,dynamic\n").unwrap()), [4]);
        assert_eq!(kernels_for("dynamic", &recipe("// cob: link=static,dynamic\n").unwrap()), KERNELS);
        assert!(recipe("int main;").is_err());
        assert!(recipe("// cob: kernels=x\n").is_err());
        assert!(recipe("// cob: colour=red\n").is_err());
        assert!(recipe("// cob: net=lo\n").unwrap().loopback && !recipe("// cob: args=1\n").unwrap().loopback);
        assert!(recipe("// cob: net=eth0\n").is_err());
    }

    #[test]
    fn tables() {
        let cases = from_table("[[case]]\nname='a'\nshell='echo x'\n[[case]]\nname='b'\ncommand=['true']\nstatus=3\n");
        let cases = cases.unwrap();
        assert_eq!(cases[0].command, ["/bin/sh", "-c", "echo x"]);
        assert_eq!(cases[0].judge, Judge::Host);
        assert_eq!(cases[1].judge, Judge::Expect { status: 3, stdout: None, stderr: vec![] });
        assert!(!cases[0].loopback && from_table("[[case]]\nname='a'\nshell='x'\nnet='lo'\n").unwrap()[0].loopback);
        assert!(from_table("[[case]]\nname='a'\nshell='x'\nnet='eth0'\n").is_err());
        assert!(from_table("[[case]]\nname='a'\n").is_err());
        assert!(from_table("[[case]]\nname='a'\nshell='x'\nbogus=1\n").is_err());
    }

    #[test]
    fn the_table_in_the_tree_parses_and_names_are_unique() {
        let text = include_str!("../../../../tests/guest/cases.toml");
        let mut names: Vec<String> = from_table(text).unwrap().into_iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

//! The tests that cargo runs on this machine.

use std::path::Path;
use std::process::{Command, Output};

use super::{tail, Tally};

/// Crates that only exist on bare metal.
const BARE_METAL: [&str; 2] = ["kernel", "platform"];

/// The cargo that `./cob` chose.
pub fn cargo(project: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("COB_CARGO").unwrap_or("cargo".into()));
    command.current_dir(project).env("CARGO_TERM_COLOR", "never");
    command
}

/// The words that make cargo build for bare metal; `./cob` knows them, because they depend on the toolchain.
pub fn bare_metal_words() -> Vec<String> {
    let words = std::env::var("COB_BARE_METAL").unwrap_or_else(|_| "--target x86_64-unknown-none".to_string());
    words.split_whitespace().map(str::to_string).collect()
}

/// Those of `names` that are in the tree, with `flag` before each.
pub fn present(project: &Path, flag: &str, names: &[&str]) -> Vec<String> {
    let there = names.iter().filter(|name| project.join("crates").join(name).join("Cargo.toml").is_file());
    there.flat_map(|name| [flag.to_string(), name.to_string()]).collect()
}

/// Everything in the workspace that builds for this machine.
pub fn hosted(project: &Path) -> Vec<String> {
    let mut words = vec!["--workspace".to_string()];
    words.extend(present(project, "--exclude", &BARE_METAL));
    words
}

pub fn bare_metal(project: &Path) -> Vec<String> {
    present(project, "-p", &BARE_METAL)
}

/// Runs a command; `Err` is what it printed at last.
pub fn outcome(command: &mut Command) -> Result<String, String> {
    match command.output() {
        Ok(Output { status, stdout, stderr }) => {
            let text = format!("{}\n{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
            if status.success() {
                Ok(text)
            } else {
                Err(tail(&text, 60))
            }
        }
        Err(error) => Err(format!("{}: {error}", command.get_program().display())),
    }
}

pub fn unit(project: &Path, names: &[String], tally: &mut Tally) {
    // What of `platform` needs no hardware is tested here too.
    let words = [vec!["--workspace".to_string()], present(project, "--exclude", &["kernel", "sim"])].concat();
    run("unit", cargo(project), &words, names, tally);
}

/// The lock-free parts, whose orders of accesses loom tries: the words that choose their tests.
const MODELS: [(&[&str], &str, &str); 3] = [
    (&["-p", "fabric", "--test", "loom"], "", "--cfg loom"),
    (&["-p", "platform", "--lib"], "paging::tests::order", "--cfg loom"),
    // Its locks are points of decision, too.
    (&["-p", "sched", "--test", "loom"], "", "--cfg loom --cfg loom_locks"),
];

pub fn loom(project: &Path, names: &[String], tally: &mut Tally) {
    if !names.is_empty() && !names.iter().any(|name| "loom".contains(name.as_str())) {
        return;
    }
    for (words, filter, flags) in MODELS {
        let mut command = cargo(project);
        // All that depends on loom is another build.
        command.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", project.join("target/loom"));
        let words: Vec<String> = words.iter().chain(&["--release"]).map(|word| word.to_string()).collect();
        run("loom", command, &words, &[filter.to_string()], tally);
    }
}

/// Kinds of random programs, and how many of each `cob test` runs; `cob sim KIND --seeds 1000000` runs more.
const SEEDS: [(&str, &str); 7] = [
    ("memory", "10000"),
    ("life", "800"),
    ("futex", "1000"),
    ("files", "2000"),
    ("sockets", "500"),
    ("popcorn", "2000"),
    ("calls", "3000"),
];

/// The simulator; its arguments are still to come.
pub fn simulator(project: &Path) -> Command {
    let mut command = cargo(project);
    command.args(["run", "--quiet", "--release", "-p", "sim", "--"]);
    command
}

/// Marks for the compiler: a counter in each branch, which libFuzzer reads. Overflows are failures.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1 \
    -Cdebug-assertions=yes -Coverflow-checks=yes";
const HOST: &str = "x86_64-unknown-linux-gnu";

/// Programs of system calls on simulated kernels, guided by coverage; libFuzzer's arguments are still to come. What it
/// keeps and finds lies in `target/guided`.
pub fn guided(project: &Path) -> std::io::Result<Command> {
    let target = project.join("target/guided");
    let corpus = target.join("corpus");
    std::fs::create_dir_all(&corpus)?;
    let mut command = cargo(project);
    // With a target named, what runs while building is built without counters.
    command.env("RUSTFLAGS", COUNTERS).env("CARGO_TARGET_DIR", &target);
    command.args(["run", "--quiet", "--release", "--target", HOST, "-p", "sim", "--features", "guided"]);
    command.args(["--bin", "guided", "--"]).arg(&corpus);
    command.args(["-max_len=65536", "-len_control=0", "-timeout=60", "-rss_limit_mb=4096"]);
    command.arg(format!("-artifact_prefix={}/", target.display()));
    Ok(command)
}

pub fn sim(project: &Path, names: &[String], tally: &mut Tally) {
    let words = present(project, "-p", &["sim"]);
    if words.is_empty() {
        return tally.skip("sim", "crates/sim is not in the tree");
    }
    // In release, as the seeds are: most of the stage is the simulator running.
    run("sim", cargo(project), &[words, vec!["--release".to_string()]].concat(), names, tally);
    if names.is_empty() || names.iter().any(|name| "seeds".contains(name.as_str())) {
        for (kind, seeds) in SEEDS {
            let outcome = outcome(simulator(project).args([kind, "--seeds", seeds, "--check-trace"]));
            tally.add(&format!("sim {kind}: {seeds} seeds"), outcome.map(|text| print!("{text}")));
        }
    }
}

fn run(stage: &str, mut command: Command, words: &[String], names: &[String], tally: &mut Tally) {
    command.arg("test").arg("--no-fail-fast").args(words).arg("--").args(names);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return tally.add(stage, Err(format!("cargo: {error}"))),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let counted = count(&text);
    tally.passed += counted.passed;
    println!("{stage}: {} passed, {} failed, {} ignored", counted.passed, counted.failed.len(), counted.ignored.len());
    for name in counted.ignored {
        tally.skip(&format!("{stage} {name}"), "marked #[ignore]");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    if counted.failed.is_empty() && !output.status.success() {
        return tally.add(&format!("{stage} (build)"), Err(tail(&errors, 60)));
    }
    for name in counted.failed {
        let section = text.split(&format!("---- {name} stdout ----")).nth(1).unwrap_or_default();
        let section = section.split("\n----").next().unwrap_or_default();
        let lines: Vec<&str> = section.lines().take(30).collect();
        tally.add(&format!("{stage} {name}"), Err(lines.join("\n")));
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    passed: usize,
    failed: Vec<String>,
    ignored: Vec<String>,
}

/// Reads libtest's lines: `test NAME ... ok`.
fn count(text: &str) -> Counted {
    let mut counted = Counted::default();
    for line in text.lines() {
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            continue;
        };
        match verdict.split([',', ' ']).next() {
            Some("ok") => counted.passed += 1,
            Some("FAILED") => counted.failed.push(name.to_string()),
            Some("ignored") => counted.ignored.push(name.to_string()),
            _ => {}
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_lines_are_counted() {
        let text = "running 4 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored, slow\n\
                    test src/lib.rs - X (line 3) - compile fail ... ok\ntest result: FAILED. 2 passed; 1 failed\n";
        let counted = count(text);
        assert_eq!(counted, Counted { passed: 2, failed: vec!["c".into()], ignored: vec!["d".into()] });
    }
}

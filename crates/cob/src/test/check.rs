//! Hygiene, in seconds: formatting, lints, where unsafe code may be, and whether lists in `docs/` are current.

use std::fs;
use std::path::{Path, PathBuf};

use super::cargo::{bare_metal, bare_metal_words, cargo, hosted, outcome};
use super::{tail, Tally};

/// The crates that touch the machine. Every other one forbids unsafe code, so that the compiler watches it.
const MAY_BE_UNSAFE: [&str; 4] = ["platform", "frames", "fabric", "static-keys"];

/// The crates whose example `table` prints a page of `docs/`.
const GENERATED: [(&str, &str); 3] =
    [("messages", "docs/messages.md"), ("linux", "docs/syscalls.md"), ("trace", "docs/trace-events.md")];

pub fn run(project: &Path, tally: &mut Tally) {
    tally.add("check fmt", done(outcome(cargo(project).args(["fmt", "--all", "--check"]))));
    let lints = ["--", "-D", "warnings"];
    let hosted = hosted(project);
    tally.add("check clippy", done(outcome(cargo(project).args(["clippy", "--all-targets"]).args(hosted).args(lints))));
    let bare = bare_metal(project);
    if bare.is_empty() {
        tally.skip("check clippy on bare metal", "neither crates/kernel nor crates/platform is in the tree");
    } else {
        let mut command = cargo(project);
        command.env("RUSTC_BOOTSTRAP", "1").args(["clippy", "--profile", "kernel"]).args(bare).args(bare_metal_words());
        tally.add("check clippy on bare metal", done(outcome(command.args(lints))));
    }
    tally.add("check dependencies", every_dependency_has_a_reason(project));
    tally.add("check licences", every_licence_is_accepted(project));
    tally.add("check bad input", every_call_has_a_row(project));
    tally.add("check modules", super::modules::run(&project.join("crates")));
    tally.add("check pages", super::pages::run(project));
    tally.add("check registers", super::arch::names_stay_in_arch(&project.join("crates")));
    tally.add("check aarch64", super::arch::compiles_elsewhere(project));
    tally.add("check unsafe", unsafe_only_where_allowed(&project.join("crates")));
    for (package, page) in GENERATED {
        tally.add(&format!("check {page}"), is_current(project, package, page));
    }
}

fn is_current(project: &Path, package: &str, page: &str) -> Result<(), String> {
    let words = ["run", "-q", "-p", package, "--example", "table"];
    let printed = cargo(project).args(words).output().map_err(|error| format!("cargo: {error}"))?;
    if !printed.status.success() {
        return Err(tail(&String::from_utf8_lossy(&printed.stderr), 60));
    }
    match fs::read(project.join(page)) {
        Ok(there) if there == printed.stdout => Ok(()),
        _ => Err(format!("out of date: cargo {} >{page}", words.join(" "))),
    }
}

fn done(result: Result<String, String>) -> Result<(), String> {
    result.map(|_| ())
}

fn unsafe_only_where_allowed(crates: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    for member in entries(crates)? {
        let name = member.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !member.join("Cargo.toml").is_file() || MAY_BE_UNSAFE.contains(&name.as_str()) {
            continue;
        }
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| member.join(root));
        for root in roots.iter().filter(|root| root.is_file()) {
            let text = fs::read_to_string(root).map_err(|error| error.to_string())?;
            if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                wrong.push(format!("{}: #![forbid(unsafe_code)] is missing", root.display()));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// `docs/dependencies.md` has a row for every crate of others that the workspace names, and for no other.
fn every_dependency_has_a_reason(project: &Path) -> Result<(), String> {
    let read = |path: &str| fs::read_to_string(project.join(path)).map_err(|error| format!("{path}: {error}"));
    unexplained(&read("Cargo.toml")?, &read("docs/dependencies.md")?)
}

fn unexplained(manifest: &str, reasons: &str) -> Result<(), String> {
    let manifest: toml::Table = manifest.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let dependencies = manifest["workspace"].get("dependencies").and_then(toml::Value::as_table);
    let foreign = dependencies.into_iter().flatten().filter(|(_, value)| value.get("path").is_none());
    let named: Vec<&str> = foreign.map(|(name, _)| name.as_str()).collect();
    let rows = reasons.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let rows: Vec<&str> = rows.filter(|row| *row != "crate").collect();
    let missing = named.iter().filter(|name| !rows.contains(name)).map(|name| format!("no reason for {name}"));
    let stale = rows.iter().filter(|row| !named.contains(row)).map(|row| format!("{row} is not used any more"));
    let wrong: Vec<String> = missing.chain(stale).collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// Terms under which others may use what we take: they ask for no more than our own licences and a notice.
const LICENCES: [&str; 8] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "Unlicense"];

/// Every crate that cargo may build here can be had under accepted terms.
fn every_licence_is_accepted(project: &Path) -> Result<(), String> {
    let output = cargo(project).args(["metadata", "--format-version", "1", "--locked"]).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let wrong: Vec<String> = packages
        .filter(|package| !is_accepted(package["license"].as_str().unwrap_or_default()))
        .map(|package| format!("{}: {}", package["name"], package["license"]))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

fn is_accepted(licence: &str) -> bool {
    let accepted = |id: Option<spdx::LicenseId>| id.is_some_and(|id| LICENCES.contains(&id.name));
    let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX);
    expression.is_ok_and(|expression| expression.evaluate(|term| accepted(term.license.id())))
}

/// Every system call of `docs/syscalls.md` has a row in a table of bad input, `tests/guest/errnos-*.c`.
fn every_call_has_a_row(project: &Path) -> Result<(), String> {
    let list = fs::read_to_string(project.join("docs/syscalls.md")).map_err(|error| format!("syscalls.md: {error}"))?;
    let mut tables = String::new();
    for path in entries(&project.join("tests/guest"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("errnos-") && name.ends_with(".c") {
            tables += &fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    match without_row(&list, &tables)[..] {
        [] => Ok(()),
        ref calls => Err(format!("no row in tests/guest/errnos-*.c: {}", calls.join(", "))),
    }
}

/// From here on system calls are Cob's own. Linux has no answer that a row could be held against; tests of their own say what is refused.
const OWN_CALLS: u32 = 0xc000;

/// The calls of a list in Markdown that no line `ROW(call, ...)`, `ANY(call, ...)` or `AFTER(what, call, ...)` is about.
fn without_row<'a>(list: &'a str, tables: &str) -> Vec<&'a str> {
    let row = |line: &'a str| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ");
    let calls =
        list.lines().filter_map(row).filter(|(number, _)| number.parse::<u32>().is_ok_and(|number| number < OWN_CALLS));
    let subject = |line: &str| {
        let (macro_name, rest) = line.trim().split_once('(')?;
        let at = match macro_name {
            "ROW" | "ANY" => 0,
            "AFTER" => 1,
            _ => return None,
        };
        Some(rest.split([',', ')']).nth(at)?.trim().to_string())
    };
    let known: Vec<String> = tables.lines().filter_map(subject).collect();
    calls.map(|(_, call)| call).filter(|call| !known.iter().any(|name| name == call)).collect()
}

pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let listing = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = listing.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_and_reasons_agree() {
        let manifest = "[workspace.dependencies]\nours = { path = \"x\" }\na = \"=1\"\nb = { version = \"=2\" }\n";
        assert_eq!(unexplained(manifest, "| crate | for |\n|---|---|\n| a | x |\n| b | y |\n"), Ok(()));
        let wrong = unexplained(manifest, "| a | x |\n| c | z |\n").unwrap_err();
        assert_eq!(wrong, "no reason for b\nc is not used any more");
    }

    #[test]
    fn licences_are_accepted_if_one_of_their_choices_is() {
        for good in ["MIT", "MIT/Apache-2.0", "LGPL-2.1-or-later OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_accepted(good), "{good}");
        }
        for bad in ["", "GPL-2.0", "MIT AND GPL-3.0-only", "nobody's"] {
            assert!(!is_accepted(bad), "{bad}");
        }
    }

    #[test]
    fn a_call_without_a_row_is_found() {
        let list = "| number | call |\n|---|---|\n| 0 | read |\n| 34 | pause |\n| 39 | getpid |\n| 57 | fork |\n";
        let tables =
            "#define ROW(name, ...) x\n    ROW(read, F(1)),\n    AFTER(ticks, pause, C(0)),\n    ANY(getpid, C(0)),\n";
        assert_eq!(without_row(list, tables), ["fork"]);
        assert_eq!(without_row(list, &tables.replace("ROW(read,", "// ROW(read,")), ["read", "fork"]);
        assert!(without_row(list, &format!("{tables}ROW(fork, C(0)),\n")).is_empty());
    }

    #[test]
    fn every_system_call_has_a_row_of_bad_input() {
        assert_eq!(every_call_has_a_row(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")), Ok(()));
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("good", "//! x\n#![forbid(unsafe_code)]\n"), ("frames", ""), ("bad", "fn main() {}")] {
            fs::create_dir_all(dir.path().join(name).join("src")).unwrap();
            fs::write(dir.path().join(name).join("Cargo.toml"), "").unwrap();
            fs::write(dir.path().join(name).join("src/lib.rs"), text).unwrap();
        }
        let complaint = unsafe_only_where_allowed(dir.path()).unwrap_err();
        assert!(complaint.contains("bad/src/lib.rs") && complaint.lines().count() == 1, "{complaint}");
    }
}

//! The example programs as a user runs them: whatever the way to run them, the same result.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the line of JSON of an example says of `name`.
fn run(example: &str, words: &[&str], threads: &str, name: &str) -> String {
    // Beside this test, where cargo has put it.
    let program: PathBuf = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples").join(example);
    let mut command = Command::new(program);
    command.args(words).env("COB_TASKS", "baseline").env("COB_TASKS_THREADS_PER_CPU", threads);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let after = said.split_once(&format!("\"{name}\": ")).unwrap().1;
    after.split([',', '}']).next().unwrap().trim_matches('"').to_string()
}

/// On a disk: O_DIRECT is not for tmpfs.
fn place(name: &str) -> String {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    place.to_str().unwrap().to_string()
}

#[test]
fn all_versions_of_the_seismic_code_have_the_same_output() {
    let directory = place("fwi");
    for hz in ["hz=60", "hz=90"] {
        let mut sums = Vec::new();
        for version in ["none", "fdatasync", "multifile", "mmap", "nocache"] {
            let version = format!("version={version}");
            sums.push(run("fwi", &[&directory, &version, "scale=0.02", hz], "1", "checksum"));
        }
        sums.push(run("fwi", &[&directory, "io=sequential", "scale=0.02", hz], "1", "checksum"));
        let merged = run("fwi", &[&directory, "merge", "scale=0.02", hz], "1", "snapshots");
        sums.push(run("fwi", &[&directory, "scale=0.02", hz], "8", "checksum"));
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
        assert_eq!(merged, run("fwi", &[&directory, "scale=0.02", hz], "1", "snapshots"));
    }
}

#[test]
fn the_synthetic_benchmark_and_the_server_answer_right_with_any_number_of_threads() {
    let directory = place("others");
    let file = format!("{directory}/file");
    let sums =
        ["1", "8"].map(|threads| run("synthetic", &[&file, "S1", "tasks=10", "bytes=1048576"], threads, "checksum"));
    assert_eq!(sums[0], sums[1]);
    let keys = format!("{directory}/keys");
    for threads in ["1", "8"] {
        let words = [&keys, "keys=64", "connections=8", "requests=10", "writes=20"];
        assert_eq!(run("kvserver", &words, threads, "errors"), "0");
    }
}

//! What a user can do wrong, and what the command says: one line on stderr, status 2, and nothing is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn complaint(args: &[&str], directory: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
    // Should a check be missing, the machine must not start for real.
    command.current_dir(directory).args(args).env("COB_KERNEL", "/nonexistent/kernel");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    assert!(output.stdout.is_empty());
    assert!(text.starts_with("cob: "), "{text}");
    text
}

fn file(path: &Path, content: &[u8], mode: u32) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn every_mistake_is_told_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut arm = vec![0u8; 64];
    arm[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (arm[16], arm[18]) = (2, 183);
    file(&at.join("arm"), &arm, 0o755);
    file(&at.join("text"), b"hello\n", 0o755);
    file(&at.join("closed"), b"#!/bin/sh\n", 0o644);
    for (args, words) in [
        (&["run", "--bogus", "--", "true"][..], "--bogus"),
        (&["run", "--kernels", "0", "true"], "--kernels"),
        (&["run", "--kernels", "5", "--cpus", "2", "true"], "--kernels 5"),
        (&["run", "--memory", "1M", "true"], "64M"),
        (&["run", "--root", "/nonexistent", "true"], "/nonexistent"),
        (&["run", "--share", "/nonexistent", "true"], "/nonexistent"),
        (&["run", "--share", "text", "true"], "not a directory"),
        (&["run", "--env", "NAME", "true"], "NAME"),
        (&["run"], "PROGRAM"),
        (&["run", "no-such-program"], "not found on PATH"),
        (&["run", "./missing"], "no such file"),
        (&["run", "./arm"], "AArch64"),
        (&["run", "./text"], "neither an ELF program nor a #! script"),
        (&["run", "./closed"], "permission denied"),
        (&["run", "./"], "is a directory"),
        (&["run", "--", "true"], "/nonexistent/kernel"),
        (&["bench", "npb", "--json", "/nonexistent/file"], "/nonexistent/file"),
        (&["bench", "all", "--svg", "text"], "text"),
        (&["bench", "npb", "--class", "q"], "--class"),
        (&["bench", "npb", "--mitigations"], "--against"),
        (&["run", "--disk", "text,errors=often", "true"], "errors=often"),
        (&["run", "--disk", "text,delay=1ms", "true"], "delay=US"),
        (&["disk", "log", "text"], "text: not the log of a disk"),
        (&["disk", "cut", "--log", "none", "--image", "text", "--output", "out"], "none"),
        (&["fly"], "fly"),
        (&[], "a command is missing"),
    ] {
        let text = complaint(args, at);
        assert!(text.contains(words), "{args:?}: {text}");
    }
}

//! Two first starts of `./cob` at once: one builds, the other waits for it and finds all done. With a cargo that only notes that it was called.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Waits for "go" in a fifo, so that the test decides how long a build takes.
const CARGO: &str = r#"#!/bin/sh
cd "$PROJECT"
echo "$@" >>calls
read -r go <go
mkdir -p target/release target/x86_64-unknown-none/kernel
printf '#!/bin/sh\necho started\n' >target/release/cob && chmod +x target/release/cob
touch target/x86_64-unknown-none/kernel/kernel
"#;

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn start(project: &Path) -> Child {
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", project.join("bin").display());
    let mut command = Command::new(project.join("cob"));
    command.env_clear().env("PATH", path).env("PROJECT", project);
    command.arg("run").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn calls(project: &Path) -> usize {
    fs::read_to_string(project.join("calls")).unwrap_or_default().lines().count()
}

/// Whether somebody waits for the lock of the build (proc(5), /proc/locks: `->` marks who waits).
fn waits(lock: &Path) -> bool {
    let Ok(metadata) = fs::metadata(lock) else { return false };
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&metadata));
    fs::read_to_string("/proc/locks").unwrap().lines().any(|line| line.contains("->") && line.contains(&inode))
}

#[test]
fn two_first_builds_are_one() {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cob");
    fs::copy(source, project.join("cob")).unwrap();
    for name in ["crates", ".cargo", "bin"] {
        fs::create_dir(project.join(name)).unwrap();
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::write(project.join(name), "").unwrap();
    }
    script(&project.join("bin/cargo"), CARGO);
    // A toolchain that has everything, and programs that are there: nothing is to be installed.
    script(&project.join("bin/rustup"), "#!/bin/sh\necho x86_64-unknown-none\n");
    script(&project.join("bin/rustc"), "#!/bin/sh\necho rustc 1.99.0\n");
    for name in ["qemu-system-x86_64", "ld.lld"] {
        symlink("/bin/true", project.join("bin").join(name)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(project.join("go")).status().unwrap().success());

    let mut first = start(project);
    while calls(project) == 0 {
        thread::yield_now();
    }
    let mut second = start(project);
    while calls(project) < 2 && !waits(&project.join(".cob/lock")) {
        thread::yield_now();
    }
    if calls(project) > 1 {
        let _ = (first.kill(), second.kill());
        panic!("both build");
    }
    // The build has two parts, the host command and the kernel. Each reads a line.
    for part in 1..=2 {
        while calls(project) < part {
            thread::yield_now();
        }
        fs::write(project.join("go"), "go\n").unwrap();
    }
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "started\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(calls(project), 2, "who waited has built again");
}

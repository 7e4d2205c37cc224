//! What the command says when QEMU itself stops or ends: with a QEMU that is a script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Finds the descriptors of the link and of QMP among its arguments, then does `deed`.
fn run_with(deed: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let qemu = directory.path().join("qemu");
    let text = format!(
        r#"#!/bin/bash
for word; do
    case $word in
        socket,id=qmp,fd=*) qmp=${{word##*=}} ;;
        file,id=log,path=*) log=${{word##*path=}} ;;
    esac
done
{deed}
"#
    );
    fs::write(&qemu, text).unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    let kernel = directory.path().join("kernel");
    fs::write(&kernel, "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
    command.args(["run", "--timeout", "60", "/bin/true"]).env("COB_QEMU", &qemu).env("COB_KERNEL", &kernel);
    command.output().unwrap()
}

#[track_caller]
fn assert_told(output: &Output, status: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(words.iter().all(|words| text.contains(words)), "{words:?}: {text}");
}

#[test]
fn a_machine_that_qemu_stops_has_ended() {
    let output = run_with(
        r#"echo '{"QMP": {}}' >&$qmp
read -r line <&$qmp # qmp_capabilities
echo '{"return": {}}' >&$qmp
echo 'KVM internal error. Suberror: 1' >&2 # as QEMU does, before it stops the machine
echo '{"event": "STOP"}' >&$qmp
read -r line <&$qmp
[ "$line" = '{"execute": "query-status"}' ] || exit 9
echo '{"return": {"status": "internal-error", "running": false}}' >&$qmp
exec sleep 1000"#,
    );
    assert_told(&output, 125, &["QEMU has stopped the machine", "internal-error", "KVM internal error"]);
}

#[test]
fn a_qemu_that_ends_by_itself_is_told_with_its_status() {
    assert_told(&run_with("exit 3"), 125, &["ended without a word", "exit status: 3"]);
    assert_told(&run_with("kill -SEGV $$"), 125, &["ended without a word", "signal: 11"]);
    assert_told(&run_with("echo 'qemu: no such CPU' >&2; exit 1"), 125, &["no such CPU"]);
}

#[test]
fn a_machine_that_cannot_be_made_is_refused_with_a_sentence() {
    let output = run_with(r#"echo '[    0.000000] [k0] REFUSED: kernel 3 would have 2 MiB' >$log; exit 133"#);
    assert_told(&output, 2, &["cob: kernel 3 would have 2 MiB"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

//! The network of Cob on this machine's Linux: a network namespace with nothing but `lo`, up. Guest tests that ask for it
//! (`net=lo`) make their expectations there.
//!
//! Root makes the namespace as root, so that the program has the same rights as in the guest; anybody else through a user
//! namespace in which it keeps its own user, and gives up the rights that making the network took. `/sys` is mounted anew,
//! because a sysfs shows the network of whoever mounted it.

use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

const SET_UP: &str = "ip link set lo up && mount -t sysfs sysfs /sys";

/// The words before a command that make it run there.
pub fn prefix() -> Vec<String> {
    let (own_user, exec): (&[&str], _) = match rustix::process::geteuid().is_root() {
        true => (&[], "exec"),
        false => {
            (&["--user", "--map-current-user", "--keep-caps"], "exec setpriv --inh-caps=-all --ambient-caps=-all --")
        }
    };
    let line = format!("{SET_UP} && {exec} \"$@\"");
    let words = [&["/usr/bin/unshare"], own_user, &["--net", "--mount", "/bin/sh", "-c", &line, "sh"]].concat();
    words.into_iter().map(str::to_string).collect()
}

/// Whether such a namespace can be made here; why not, in the words of the command that failed.
pub fn check() -> Result<()> {
    let words = prefix();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["/bin/sh", "-c", "ls /sys/class/net"]);
    let path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
    let output = command.env("PATH", path).stdin(Stdio::null()).output().context("unshare")?;
    match (output.status.success(), output.stdout.as_slice()) {
        (true, b"lo\n") => Ok(()),
        _ => bail!("no network namespace with lo alone: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it can't be made the reason must be told, not an empty expectation.
    #[test]
    fn it_has_lo_alone_or_says_why_not() {
        match check() {
            Ok(()) => {
                let words = prefix();
                let output = Command::new(&words[0]).args(&words[1..]).args(["ip", "-o", "addr"]).output().unwrap();
                let addresses = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(addresses.contains("127.0.0.1/8") && addresses.contains("::1/128"), "{addresses}");
                assert!(addresses.lines().all(|line| line.contains(" lo ")), "{addresses}");
            }
            Err(error) => assert!(error.to_string().len() > "no network namespace with lo alone: ".len(), "{error}"),
        }
    }
}

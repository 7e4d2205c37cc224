//! PostgreSQL of this machine: its programs, and a cluster that was made here. Its user inside is `bench`.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::content::{installed, Content};
use super::machines::outcome;

const POSTGRES: &str = "/usr/lib/postgresql/15";
const SHARE: &str = "/usr/share/postgresql/15";
/// Whom initdb runs as where the caller is root, which it refuses.
const NOBODY: u32 = 65534;

fn program(name: &str) -> String {
    format!("{POSTGRES}/bin/{name}")
}

/// The server and its clients.
pub fn programs(content: &mut Content) -> Result<()> {
    let programs = ["postgres", "pgbench", "psql"].map(program);
    installed(&programs, "postgresql-15")?;
    programs.iter().try_for_each(|program| content.program(program))?;
    // The server loads it when a database is opened that has PL/pgSQL.
    content.program(&format!("{POSTGRES}/lib/plpgsql.so"))?;
    content.tree(Path::new(&format!("{SHARE}/timezonesets")), &format!("{SHARE}/timezonesets"))?;
    content.file("/etc/passwd", 0o644, b"bench:x:1000:1000::/tmp:/bin/sh\n".to_vec());
    Ok(())
}

/// Makes a cluster in a directory that is not there yet. Whoever owns it then must be able to get there.
pub fn cluster(data: &Path) -> Result<()> {
    let initdb = program("initdb");
    installed(&[&initdb], "postgresql-15")?;
    let mut command = Command::new(initdb);
    command.args(["-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1", "-D"]);
    // The machines have no zones but this one.
    command.arg(data).current_dir("/").env("TZ", "GMT");
    if nix::unistd::Uid::effective().is_root() {
        fs::create_dir(data)?;
        chown(data, Some(NOBODY), None)?;
        command.uid(NOBODY);
    }
    outcome(&mut command).context("initdb")?;
    Ok(())
}

//! The rows in groups that need the same programs, and those programs with all that they need, from this machine.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::Case;
use crate::bench::content::Content;
use crate::bench::machines::{outcome, sources};
use crate::vm;

#[derive(Clone, Copy, Debug)]
pub enum Group {
    Talk,
    Redis,
    Postgres,
    Hackbench,
    Make,
}

const POSTGRES: &str = "/usr/lib/postgresql/15";
const SHARE: &str = "/usr/share/postgresql/15";
/// Whom initdb runs as where the caller is root, which it refuses.
const NOBODY: u32 = 65534;

const MAKEFILE: &str = "objects := $(patsubst %.i,%.o,$(wildcard *.i))
all.o: $(objects)
\tld -r -z muldefs -o $@ $^
%.o: %.i
\tgcc -O1 -c -o $@ $<
clean:
\trm -f *.o
";

impl Group {
    pub const ALL: [Group; 5] = [Group::Talk, Group::Redis, Group::Postgres, Group::Hackbench, Group::Make];

    pub fn rows(self) -> &'static [&'static str] {
        match self {
            Group::Talk => &[
                "pipe-1",
                "pipe-4k",
                "pipe-bandwidth",
                "unix-1",
                "unix-4k",
                "unix-bandwidth",
                "tcp-1",
                "tcp-4k",
                "tcp-bandwidth",
            ],
            Group::Redis => &[
                "redis-unix-1",
                "redis-unix-20",
                "redis-unix-1-pipelined",
                "redis-unix-20-pipelined",
                "redis-tcp-1",
                "redis-tcp-20",
                "redis-tcp-1-pipelined",
                "redis-tcp-20-pipelined",
            ],
            Group::Postgres => &["pgbench-unix", "pgbench-tcp"],
            Group::Hackbench => &["hackbench-processes", "hackbench-threads"],
            Group::Make => &["make-j4"],
        }
    }

    /// Where many talk, nobody is pinned.
    fn places(self) -> &'static [&'static str] {
        match self {
            Group::Talk | Group::Redis | Group::Postgres => &["apart", "free"],
            Group::Hackbench | Group::Make => &["free"],
        }
    }

    pub fn cases(self) -> Vec<Case> {
        let places = |row: &&'static str| self.places().iter().map(|place| Case { row, place }).collect::<Vec<_>>();
        self.rows().iter().flat_map(places).collect()
    }

    /// What the machines have beside the program. An error says what is missing here.
    pub fn content(self, project: &Path) -> Result<Content> {
        let mut content = Content::default();
        match self {
            Group::Talk => {}
            Group::Redis => {
                let programs = ["/usr/bin/redis-server", "/usr/bin/redis-benchmark", "/usr/bin/redis-cli"];
                installed(&programs, "redis-server")?;
                programs.iter().try_for_each(|program| content.program(program))?;
            }
            Group::Postgres => postgres(&mut content)?,
            Group::Hackbench => {
                installed(&["/usr/bin/hackbench"], "rt-tests")?;
                content.program("/usr/bin/hackbench")?;
            }
            Group::Make => make(&mut content, project)?,
        }
        Ok(content)
    }
}

fn installed(programs: &[&str], package: &str) -> Result<()> {
    match programs.iter().find(|program| !Path::new(program).is_file()) {
        Some(missing) => bail!("no {missing} here (apt-get install {package})"),
        None => Ok(()),
    }
}

/// PostgreSQL and a database that was made here.
fn postgres(content: &mut Content) -> Result<()> {
    let program = |name: &str| format!("{POSTGRES}/bin/{name}");
    let (server, client, initdb) = (program("postgres"), program("pgbench"), program("initdb"));
    installed(&[&server, &client, &initdb], "postgresql-15")?;
    let files = vm::private_directory()?;
    let data = files.path().join("data");
    let mut command = Command::new(initdb);
    command.args(["-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1", "-D"]);
    // The machines have no zones but this one.
    command.arg(&data).current_dir("/").env("TZ", "GMT");
    if nix::unistd::Uid::effective().is_root() {
        fs::create_dir(&data)?;
        [files.path(), &data].into_iter().try_for_each(|path| std::os::unix::fs::chown(path, Some(NOBODY), None))?;
        command.uid(NOBODY);
    }
    outcome(&mut command).context("initdb")?;
    content.program(&server)?;
    content.program(&client)?;
    // The server loads it when a database is opened that has PL/pgSQL.
    content.program(&format!("{POSTGRES}/lib/plpgsql.so"))?;
    content.tree(Path::new(&format!("{SHARE}/timezonesets")), &format!("{SHARE}/timezonesets"))?;
    content.tree(&data, "/pgdata")?;
    content.file("/etc/passwd", 0o644, b"bench:x:1000:1000::/tmp:/bin/sh\n".to_vec());
    Ok(())
}

/// make, gcc, and C files that need no headers any more.
fn make(content: &mut Content, project: &Path) -> Result<()> {
    let programs = ["/usr/bin/make", "/usr/bin/gcc", "/usr/bin/as", "/usr/bin/ld", "/usr/bin/rm", "/bin/sh"];
    installed(&programs, "gcc make")?;
    programs.iter().try_for_each(|program| content.program(program))?;
    let compiler = outcome(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    content.program(compiler.trim())?;
    for directory in ["papers", "scale", "micro", "streams"] {
        for source in sources(&project.join("tests/bench").join(directory))? {
            let text = outcome(Command::new("gcc").args(["-std=gnu11", "-fopenmp", "-E", "-P"]).arg(&source))?;
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            content.file(&format!("/src/{directory}-{name}.i"), 0o644, text.into_bytes());
        }
    }
    content.file("/src/Makefile", 0o644, MAKEFILE.into());
    Ok(())
}

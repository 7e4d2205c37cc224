//! The rows in groups that need the same programs, and those programs with all that they need, from this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::Case;
use crate::bench::content::{installed, Content};
use crate::bench::machines::{outcome, sources};
use crate::bench::postgres;
use crate::vm;

#[derive(Clone, Copy, Debug)]
pub enum Group {
    Talk,
    Settle,
    Redis,
    Postgres,
    Hackbench,
    Make,
}

const MAKEFILE: &str = "objects := $(patsubst %.i,%.o,$(wildcard *.i))
all.o: $(objects)
\tld -r -z muldefs -o $@ $^
%.o: %.i
\tgcc -O1 -c -o $@ $<
clean:
\trm -f *.o
";

impl Group {
    pub const ALL: [Group; 6] =
        [Group::Talk, Group::Settle, Group::Redis, Group::Postgres, Group::Hackbench, Group::Make];

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
            Group::Settle => &["settle-pipe", "settle-unix", "settle-tcp"],
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
            Group::Settle | Group::Hackbench | Group::Make => &["free"],
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
            Group::Talk | Group::Settle => {}
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

/// PostgreSQL and a database that was made here.
fn postgres(content: &mut Content) -> Result<()> {
    postgres::programs(content)?;
    let files = vm::private_directory()?;
    // Who runs initdb must get there.
    fs::set_permissions(files.path(), fs::Permissions::from_mode(0o711))?;
    let data = files.path().join("data");
    postgres::cluster(&data)?;
    content.tree(&data, "/pgdata")
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

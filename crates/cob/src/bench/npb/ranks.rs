//! What the machines have beside /init for the workloads with MPI: the program of the ranks (`tests/bench/papers/mpi`), and Debian's
//! Open MPI. Not MPICH: its ranks spin while they wait, without sched_yield, also where they are more than CPUs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::bench::content::{libraries, Content};
use crate::bench::machines::{outcome, sources};
use crate::vm;

const MPIRUN: &str = "/usr/bin/mpirun.openmpi";
const PLUGINS: &str = "/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3";
/// Plugins that are needed, with the libraries that they bring.
const NEEDED: [&str; 3] = ["mca_pmix_ext3x.so", "mca_coll_sm.so", "mca_btl_vader.so"];
const SETTINGS: [&str; 3] = ["/etc/openmpi", "/usr/share/openmpi", "/usr/lib/x86_64-linux-gnu/pmix2/lib/pmix"];

pub fn content(papers: &Path) -> Result<Content> {
    if !Path::new(MPIRUN).is_file() {
        bail!("no {MPIRUN} here (apt-get install openmpi-bin libopenmpi-dev)");
    }
    let files = vm::private_directory()?;
    let ranks = files.path().join("ranks");
    let mut compiler = Command::new("mpicc.openmpi");
    compiler.args(["-std=gnu11", "-O2", "-o"]).arg(&ranks).args(sources(&papers.join("mpi"))?).arg("-lm");
    outcome(&mut compiler)?;

    let mut content = Content::default();
    content.copy(&ranks, "/ranks")?;
    content.program(MPIRUN)?;
    let mut brought = [libraries(&ranks)?, libraries(Path::new(MPIRUN))?].concat();
    for needed in NEEDED {
        brought.extend(libraries(&Path::new(PLUGINS).join(needed))?);
    }
    brought.iter().try_for_each(|library| content.copy(Path::new(library), library))?;
    // Of the plugins those that need nothing else: the others are for the hardware of clusters, files and OpenSHMEM.
    let listing = fs::read_dir(PLUGINS).context(PLUGINS)?;
    for plugin in listing.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()? {
        if libraries(&plugin)?.iter().all(|library| brought.contains(library)) {
            content.copy(&plugin, &plugin.to_string_lossy())?;
        }
    }
    SETTINGS.into_iter().try_for_each(|settings| content.tree(Path::new(settings), settings))?;
    content.file("/etc/hosts", 0o644, b"127.0.0.1 localhost\n".to_vec());
    Ok(content)
}

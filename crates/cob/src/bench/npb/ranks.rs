//! What the machines have beside /init for the workloads with MPI: the program of the ranks (`tests/bench/papers/mpi`) as it is built for Debian's Open MPI and
//! for its MPICH, and both of these.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::content::{installed, libraries, Content};
use crate::bench::machines::{outcome, sources};
use crate::vm;

const MPIRUN: &str = "/usr/bin/mpirun.openmpi";
const PLUGINS: &str = "/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3";
/// Plugins that are needed, with the libraries that they bring.
const NEEDED: [&str; 3] = ["mca_pmix_ext3x.so", "mca_coll_sm.so", "mca_btl_vader.so"];
const SETTINGS: [&str; 3] = ["/etc/openmpi", "/usr/share/openmpi", "/usr/lib/x86_64-linux-gnu/pmix2/lib/pmix"];
/// MPICH's, and what that starts the ranks with. It finds no plugins of UCX for the hardware of clusters.
const HYDRA: [&str; 2] = ["/usr/bin/mpirun.mpich", "/usr/bin/hydra_pmi_proxy"];

pub fn content(papers: &Path) -> Result<Content> {
    installed(&[MPIRUN, "/usr/bin/mpicc.openmpi"], "openmpi-bin libopenmpi-dev")?;
    installed(&[HYDRA[0], HYDRA[1], "/usr/bin/mpicc.mpich"], "mpich libmpich-dev")?;
    let mut content = Content::default();
    open_mpi(papers, &mut content)?;
    HYDRA.into_iter().try_for_each(|program| content.program(program))?;
    let files = vm::private_directory()?;
    let ranks = ranks(papers, "mpich", files.path())?;
    content.copy(&ranks, "/ranks.mpich")?;
    content.libraries_of(&ranks)?;
    content.file("/etc/hosts", 0o644, b"127.0.0.1 localhost\n".to_vec());
    Ok(content)
}

/// The ranks, built with the compiler of an MPI.
fn ranks(papers: &Path, of: &str, directory: &Path) -> Result<PathBuf> {
    let ranks = directory.join("ranks");
    let mut compiler = Command::new(format!("mpicc.{of}"));
    compiler.args(["-std=gnu11", "-O2", "-o"]).arg(&ranks).args(sources(&papers.join("mpi"))?).arg("-lm");
    outcome(&mut compiler)?;
    Ok(ranks)
}

fn open_mpi(papers: &Path, content: &mut Content) -> Result<()> {
    let files = vm::private_directory()?;
    let ranks = ranks(papers, "openmpi", files.path())?;
    content.copy(&ranks, "/ranks.openmpi")?;
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
    SETTINGS.into_iter().try_for_each(|settings| content.tree(Path::new(settings), settings))
}

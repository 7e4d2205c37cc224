//! A file that kernels map, each where chance has it.

use fs::{Object, PageCache};
use machine::{Access, UserAddr};
use sim::{
    cluster::{Cluster, Kernel, Shape},
    rng::Rng,
};
use std::sync::Arc;
use vm::{MapAddress, MapRequest, Source, Space};

pub const RW: Access = Access::READ.union(Access::WRITE);

/// One mapping of the whole file.
#[derive(Clone)]
pub struct Mapping {
    pub space: Arc<Space>,
    pub at: UserAddr,
    pub shared: bool,
}

pub struct Run {
    pub cluster: Cluster,
    pub rng: Rng,
    /// The kernel that has the file.
    pub owner: usize,
    pub file: Arc<PageCache>,
    pub mappings: Vec<Mapping>,
    bytes: u64,
}

/// The object of `file` as `kernel` maps it.
pub async fn object(kernel: (Arc<fs::remote::Remote>, bool), file: Arc<PageCache>) -> Arc<dyn Object> {
    match kernel {
        (_, true) => file,
        (remote, false) => remote.resolve(Object::id(&*file)).await.unwrap(),
    }
}

impl Run {
    /// A file of so many `bytes`, which `make` makes on one of `kernels`, and `mappings` or up to three more of it in two address spaces.
    pub fn with(
        (seed, rng): (u64, Rng),
        kernels: usize,
        bytes: u64,
        mappings: usize,
        make: impl FnOnce(&Arc<fs::Services>) -> Arc<PageCache>,
    ) -> Self {
        let cluster = Cluster::new(Shape { scarce: false, frames: 4096, ..Shape::of(seed, kernels) });
        let owner = rng.below(cluster.kernels.len());
        let file = make(&cluster.kernels[owner].objects.files);
        let mut run = Run { cluster, rng, owner, file, mappings: Vec::new(), bytes };
        let homes: Vec<_> = (0..2).map(|_| run.some().vm.create().unwrap().id()).collect();
        for _ in 0..mappings + run.rng.below(4) {
            let kernel = run.some();
            let space = kernel.vm.attach(*run.rng.pick(&homes)).unwrap();
            let mapping = run.map(kernel, space);
            run.mappings.push(mapping);
        }
        run
    }

    pub fn some(&self) -> &Kernel {
        self.rng.pick(&self.cluster.kernels)
    }

    /// Fixed mappings may lie in another kernel's slice.
    fn map(&self, kernel: &Kernel, space: Arc<Space>) -> Mapping {
        let (shared, fixed) = (self.rng.one_in(2), self.rng.one_in(3));
        let (file, remote) = (self.file.clone(), (kernel.objects.remote.clone(), kernel.id.index() == self.owner));
        let (of, bytes) = (space.clone(), self.bytes);
        let at = self.cluster.run(async move {
            let object = object(remote, file).await;
            let source = Source::Object { object, offset: 0, label: (*b"/f").into(), limit: RW };
            let mut request = MapRequest { shared, source, ..MapRequest::anonymous(bytes, RW) };
            if fixed {
                let room = of.map(MapRequest::anonymous(bytes, Access::empty())).await.unwrap();
                request = request.at(MapAddress::Fixed(room));
            }
            of.map(request).await.unwrap()
        });
        Mapping { space, at, shared }
    }

    /// Nobody maps the file any more. Gives back the machine and the file.
    pub fn end_mappings(self) -> (Cluster, Arc<PageCache>, usize) {
        let Run { cluster, mappings, file, owner, .. } = self;
        drop(mappings);
        for kernel in &cluster.kernels {
            for space in kernel.vm.spaces().into_iter().filter(|space| space.id().home == kernel.id) {
                cluster.run(async move { space.destroy().await });
            }
        }
        cluster.kernels.iter().for_each(|kernel| kernel.vm.send_frames_home(1));
        cluster.settle();
        (cluster, file, owner)
    }
}

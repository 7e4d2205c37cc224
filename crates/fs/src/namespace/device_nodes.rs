//! Nodes of devices that come and go while the machine runs, in every devtmpfs that is mounted.

use super::{dentry::Location, directory::DirFile, LocalPaths};
use crate::{file::SYSTEM, Base, File, FileSystem, OpenFlags};
use alloc::{sync::Arc, vec::Vec};
use machine::Errno;

impl LocalPaths {
    /// The topmost directory of each.
    fn device_trees(&self) -> Vec<Base> {
        let mut seen: Vec<Arc<dyn FileSystem>> = Vec::new();
        let mut trees = Vec::new();
        for mount in self.mounts.list() {
            let tree = &mount.file_system;
            let is_topmost = mount.root.inode.ino() == tree.root().ino();
            if tree.kind() == "devtmpfs" && is_topmost && !seen.iter().any(|other| Arc::ptr_eq(other, tree)) {
                seen.push(tree.clone());
                let at = Location { dentry: mount.root.clone(), mount };
                let directory = DirFile::new(&self.services, at, OpenFlags::DIRECTORY) as Arc<dyn File>;
                trees.push(Base::new(directory.clone(), directory));
            }
        }
        trees
    }

    /// A program may have made one of that name before, which stays.
    pub(super) async fn make_device(&self, name: &str, mode: u32, rdev: (u32, u32)) {
        for base in self.device_trees() {
            match self.make_node(&SYSTEM, &base, name.as_bytes(), mode, rdev).await {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => log::warn!("/dev/{name}: {error:?}"),
            }
        }
    }

    /// A program may have removed it before.
    pub(super) async fn remove_device(&self, name: &str) {
        for base in self.device_trees() {
            match self.unlink(&SYSTEM, &base, name.as_bytes(), false).await {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => log::warn!("/dev/{name}: {error:?}"),
            }
        }
    }
}

//! cgroup2: the tree of control groups as directories (Documentation/admin-guide/cgroup-v2.rst of Linux).
//!
//! It lives where the tree is owned, on the primary; other kernels reach it as they do any file. What the files say and do is in
//! files.rs; what there is to be said, in process/src/cgroup.

mod files;

use ::process::{
    cgroup::{Group, Ownership, Tree, ROOT_INO},
    System,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use files::{GroupFile, FILES};
use fs::{
    inode::{
        listing::{Listing, FIRST},
        NewNode,
    },
    synthetic::{Directory, Keeper, Node, Style, Synthetic},
    Caller, Kind, Services,
};
use machine::{account::Resource, errno::Result, BoxFuture, Errno, GroupId, Pid};

/// CGROUP2_SUPER_MAGIC.
pub const MAGIC: u64 = 0x6367_7270;
/// Position of the first group below one; that behind a group is its inode number's. Files are before.
const GROUPS: u64 = FIRST + 256;

/// The tree for /sys/fs/cgroup.
pub fn tree(system: &Arc<System>, services: &Arc<Services>) -> Arc<Synthetic> {
    let root = Place { system: system.clone(), services: services.clone(), ino: ROOT_INO };
    let node = system.with_cgroups(|groups| root.node_of(groups.get(GroupId::ROOT)));
    Synthetic::new(services, "cgroup2", MAGIC, node)
}

/// The directory of a group, by its inode number, which no other group has.
#[derive(Clone)]
struct Place {
    system: Arc<System>,
    services: Arc<Services>,
    ino: u64,
}

impl Place {
    /// Looks at the group, or changes it. ENODEV: it was removed.
    fn with<T>(&self, work: impl FnOnce(&mut Tree, GroupId) -> Result<T>) -> Result<T> {
        self.system.with_cgroups(|tree| {
            let group = tree.by_ino(self.ino).ok_or(Errno::ENODEV)?;
            work(tree, group)
        })
    }

    fn node_of(&self, group: Option<&Group>) -> Node {
        let Ownership { mode, uid, gid } =
            group.map_or(Ownership { mode: 0o555, uid: 0, gid: 0 }, |group| group.directory);
        let keeper = Arc::new(DirectoryKeeper(self.clone()));
        Node::directory(self.ino, self.clone()).mode(mode).owned(uid, gid).kept(keeper)
    }

    /// Inode number of a file, by its position in [`FILES`]. Those of directories are multiples of 256, but for the root's.
    fn file_ino(&self, position: usize) -> u64 {
        (self.ino.max(256) & !255) + 1 + position as u64
    }

    fn file(&self, position: usize, group: &Group) -> Node {
        let file = &FILES[position];
        let Ownership { mode, uid, gid } = group.file(file.name, file.mode);
        let content = GroupFile { place: self.clone(), file, changes: file.changes(group).cloned() };
        let keeper = Arc::new(FileKeeper(self.clone(), file));
        let node = Node::file(self.file_ino(position), content).mode(mode).owned(uid, gid).kept(keeper);
        // What can't be written answers EINVAL.
        node.style(Style::Process)
    }
}

impl Directory for Place {
    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Node>> {
        let found = self.with(|tree, id| {
            let group = tree.get(id).ok_or(Errno::ENOENT)?;
            if let Some(child) = group.children.get(name).and_then(|child| tree.get(*child)) {
                return Ok(Place { ino: child.ino, ..self.clone() }.node_of(Some(child)));
            }
            let position = FILES.iter().position(|file| file.name.as_bytes() == name).ok_or(Errno::ENOENT)?;
            match FILES[position].is_in(tree, id) {
                true => Ok(self.file(position, group)),
                false => Err(Errno::ENOENT),
            }
        });
        fs::file::ready(found.map_err(|_| Errno::ENOENT))
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        let from = to.scan.position;
        let names = self.with(|tree, id| {
            let files = FILES.iter().enumerate().filter(|(_, file)| file.is_in(tree, id));
            let files = files.map(|(position, file)| {
                (FIRST + 1 + position as u64, self.file_ino(position), Kind::Regular, file.name.as_bytes().to_vec())
            });
            let group = tree.get(id).ok_or(Errno::ENOENT)?;
            let children = group.children.iter().filter_map(|(name, child)| Some((name, tree.get(*child)?.ino)));
            let children = children.map(|(name, ino)| (GROUPS + ino, ino, Kind::Directory, name.clone()));
            let mut names: Vec<_> = files.chain(children).filter(|(next, ..)| *next > from).collect();
            names.sort_unstable_by_key(|(next, ..)| *next);
            Ok(names)
        });
        // A removed directory is empty.
        for (next, ino, kind, name) in names.unwrap_or_default() {
            if !to.add(ino, next, kind.d_type(), &name) {
                break;
            }
        }
        fs::file::ready(Ok(()))
    }

    fn takes_directories(&self) -> bool {
        true
    }

    fn make<'a>(&'a self, name: &'a [u8], new: &'a NewNode) -> BoxFuture<'a, Result<Node>> {
        let charge = self.services.accounts.of(Pid(0), new.uid).nothing(Resource::Memory);
        let made = self.with(|tree, above| {
            if FILES.iter().any(|file| file.name.as_bytes() == name) {
                return Err(Errno::EEXIST);
            }
            let directory = Ownership { mode: new.mode, uid: new.uid, gid: new.gid };
            let id = tree.make(above, name, directory, charge)?;
            let group = tree.get(id).ok_or(Errno::ENODEV)?;
            Ok(Place { ino: group.ino, ..self.clone() }.node_of(Some(group)))
        });
        // The directory that it would be in was removed.
        fs::file::ready(made.map_err(|error| if error == Errno::ENODEV { Errno::ENOENT } else { error }))
    }

    fn unmake<'a>(&'a self, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let child = self.with(|tree, id| {
                let group = tree.get(id).ok_or(Errno::ENOENT)?;
                let child = *group.children.get(name).ok_or(Errno::ENOENT)?;
                tree.remove(child)?;
                Ok(child)
            })?;
            self.system.empty_cgroup(child).await;
            Ok(())
        })
    }

    fn subdirectories(&self) -> u32 {
        self.with(|tree, id| Ok(tree.get(id).map_or(0, |group| group.children.len() as u32))).unwrap_or(0)
    }
}

fn change(owner: &mut Ownership, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) {
    owner.mode = mode.unwrap_or(owner.mode) & 0o7777;
    owner.uid = uid.unwrap_or(owner.uid);
    owner.gid = gid.unwrap_or(owner.gid);
}

fn told(owner: Ownership) -> (u32, u32, u32) {
    (owner.mode, owner.uid, owner.gid)
}

struct DirectoryKeeper(Place);

impl Keeper for DirectoryKeeper {
    fn get(&self) -> Option<(u32, u32, u32)> {
        self.0.with(|tree, id| Ok(told(tree.change(id)?.directory))).ok()
    }

    fn set(&self, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.0.with(|tree, id| {
            change(&mut tree.change(id)?.directory, mode, uid, gid);
            Ok(())
        })
    }
}

struct FileKeeper(Place, &'static files::File);

impl Keeper for FileKeeper {
    fn get(&self) -> Option<(u32, u32, u32)> {
        self.0.with(|tree, id| Ok(told(tree.change(id)?.file(self.1.name, self.1.mode)))).ok()
    }

    fn set(&self, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.0.with(|tree, id| {
            let group = tree.change(id)?;
            let mut owner = group.file(self.1.name, self.1.mode);
            change(&mut owner, mode, uid, gid);
            group.files.insert(self.1.name, owner);
            Ok(())
        })
    }
}

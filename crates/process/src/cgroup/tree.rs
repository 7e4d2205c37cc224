//! The tree of groups, as its owner keeps it: what there is, who is in it, and how many may be. Nothing here waits.

use super::memory::GroupMemory;
use abi::{capability, Credentials};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use fs::synthetic::Changes;
use machine::{account::Charge, errno::Result, Errno, GroupId, HashMap, Pid};
use messages::cgroup::{Life, ThreadCount};

bitflags::bitflags! {
    /// What a group can limit, if its parent lets it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Controllers: u8 {
        /// How many threads there are.
        const PIDS = 1;
        /// How much memory there is.
        const MEMORY = 2;
    }
}

impl Controllers {
    /// Those whose limits only mean something if processes are in leaves of the tree (a threaded controller's do anywhere).
    const DOMAIN: Controllers = Controllers::MEMORY;
}

/// To whom a directory or file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Permission bits.
    pub mode: u32,
    /// The user.
    pub uid: u32,
    /// The group of users.
    pub gid: u32,
}

/// A number that has a most.
#[derive(Clone, Debug, Default)]
pub struct Pids {
    /// Threads in the group and below it; a process that has ended counts one until it is waited for.
    pub current: u32,
    /// The most there were.
    pub peak: u32,
    /// pids.max; None: no limit.
    pub max: Option<u32>,
    /// How often this limit, or one below, has refused a thread.
    pub refused: u64,
    /// How often this one has.
    pub refused_here: u64,
}

/// A group, with what is below it.
pub struct Group {
    /// The last part of its path.
    pub name: Vec<u8>,
    /// None: it is the root.
    pub parent: Option<GroupId>,
    /// By their names.
    pub children: BTreeMap<Vec<u8>, GroupId>,
    /// Inode number of its directory: no other group has or had it.
    pub ino: u64,
    /// To whom its directory belongs.
    pub directory: Ownership,
    /// Of files that do not belong to who made the group.
    pub files: BTreeMap<&'static str, Ownership>,
    /// Who made it.
    pub maker: (u32, u32),
    /// What its children can limit (cgroup.subtree_control).
    pub enabled: Controllers,
    /// Of cgroup.events.
    pub events: Arc<Changes>,
    /// Its threads.
    pub pids: Pids,
    /// Its pages.
    pub memory: GroupMemory,
    /// Levels of groups that may be below it.
    pub max_depth: Option<u32>,
    /// Groups that may be below it.
    pub max_descendants: Option<u32>,
    /// rmdir: it is kept as long as a process that has ended is in it, or a group below it that is kept so.
    pub removed: bool,
    /// Processes in it that have not ended; and those below it, too.
    pub(super) processes: u32,
    pub(super) populated: u32,
    /// Members, those that have ended included.
    pub(super) entries: u32,
    /// Groups below it; and those that were removed and are kept, of which some were its children.
    descendants: u32,
    kept: u32,
    pub(super) kept_children: Vec<GroupId>,
    /// Paid by who made it.
    _charge: Charge,
}

/// A process in a group that is not the root.
pub(super) struct Member {
    pub group: GroupId,
    pub count: ThreadCount,
    pub life: Option<Life>,
    /// cgroup.kill has met it: it makes no more children.
    pub killed: bool,
}

/// All groups, and who is in those that are not the root.
pub struct Tree {
    pub(super) groups: BTreeMap<GroupId, Group>,
    numbers: BTreeMap<u64, GroupId>,
    pub(super) members: HashMap<Pid, Member>,
    /// Given last.
    last: GroupId,
    last_ino: u64,
    /// Groups whose cgroup.events has changed since [`Tree::take_changed`], and other files that have.
    pub(super) changed: Vec<GroupId>,
    pub(super) changed_files: Vec<Arc<Changes>>,
}

/// Inode number of the root's directory, as on Linux.
pub const ROOT_INO: u64 = 1;
/// Between the numbers of directories; the files of each have those behind it.
const INO_STEP: u64 = 256;
/// The file whose owner may move processes.
pub const PROCS: &str = "cgroup.procs";
/// Its mode, unless somebody has changed that.
pub const PROCS_MODE: u32 = 0o644;
/// What a group's record is charged with: bytes.
const GROUP_BYTES: usize = 1024;

impl Default for Tree {
    fn default() -> Self {
        let root = Ownership { mode: 0o555, uid: 0, gid: 0 };
        Tree {
            groups: [(GroupId::ROOT, Group::new(Vec::new(), None, ROOT_INO, root, Charge::FREE))].into(),
            numbers: [(ROOT_INO, GroupId::ROOT)].into(),
            members: HashMap::default(),
            last: GroupId::ROOT,
            last_ino: INO_STEP,
            changed: Vec::new(),
            changed_files: Vec::new(),
        }
    }
}

impl Group {
    fn new(name: Vec<u8>, parent: Option<GroupId>, ino: u64, directory: Ownership, charge: Charge) -> Group {
        Group {
            name,
            parent,
            children: BTreeMap::new(),
            ino,
            directory,
            files: BTreeMap::new(),
            maker: (directory.uid, directory.gid),
            enabled: Controllers::empty(),
            events: Arc::default(),
            pids: Pids::default(),
            memory: GroupMemory::default(),
            max_depth: None,
            max_descendants: None,
            removed: false,
            processes: 0,
            populated: 0,
            entries: 0,
            descendants: 0,
            kept: 0,
            kept_children: Vec::new(),
            _charge: charge,
        }
    }

    /// Whether a process that has not ended is in it or below it.
    pub fn is_populated(&self) -> bool {
        self.populated > 0
    }

    /// Groups below it; and those that were removed and are kept.
    pub fn descendants(&self) -> (u32, u32) {
        (self.descendants, self.kept)
    }

    /// To whom a file of its directory belongs, that has `mode` unless somebody has changed it.
    pub fn file(&self, name: &str, mode: u32) -> Ownership {
        let (uid, gid) = self.maker;
        self.files.get(name).copied().unwrap_or(Ownership { mode, uid, gid })
    }
}

impl Tree {
    /// A group that was not removed.
    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id).filter(|group| !group.removed)
    }

    /// ENODEV: it was removed.
    pub fn change(&mut self, id: GroupId) -> Result<&mut Group> {
        self.groups.get_mut(&id).filter(|group| !group.removed).ok_or(Errno::ENODEV)
    }

    /// The group whose directory has this inode number.
    pub fn by_ino(&self, ino: u64) -> Option<GroupId> {
        self.numbers.get(&ino).copied()
    }

    /// The group and all above it, without the root.
    pub(super) fn chain(&self, from: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        let above = |id: &GroupId| self.groups.get(id)?.parent;
        core::iter::successors(Some(from), above).filter(|id| !id.is_root())
    }

    pub(super) fn for_chain(&mut self, from: GroupId, mut each: impl FnMut(GroupId, &mut Group)) {
        let mut next = Some(from).filter(|id| !id.is_root());
        while let Some((id, group)) = next.and_then(|id| Some((id, self.groups.get_mut(&id)?))) {
            each(id, group);
            next = group.parent.filter(|id| !id.is_root());
        }
    }

    /// The group and those below it that were not removed, each before what is below it.
    pub fn subtree(&self, of: GroupId) -> Vec<GroupId> {
        let mut all = alloc::vec![of];
        let mut next = 0;
        while let Some(group) = all.get(next).map(|id| self.groups.get(id)) {
            all.extend(group.into_iter().flat_map(|group| group.children.values().copied()));
            next += 1;
        }
        all
    }

    /// All groups above one, the root included.
    fn for_above(&mut self, of: GroupId, mut each: impl FnMut(&mut Group)) {
        let mut next = self.groups.get(&of).and_then(|group| group.parent);
        while let Some(group) = next.and_then(|id| self.groups.get_mut(&id)) {
            each(group);
            next = group.parent;
        }
    }

    /// From the root, as in /proc/PID/cgroup.
    pub fn path(&self, id: GroupId) -> Vec<u8> {
        let names: Vec<&[u8]> = self.chain(id).filter_map(|id| Some(&self.groups.get(&id)?.name[..])).collect();
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        match () {
            () if path.is_empty() => b"/".into(),
            () if self.get(id).is_none() => [&path, &b" (deleted)"[..]].concat(),
            () => path,
        }
    }

    /// The nearest group that is both or above both.
    pub fn common(&self, one: GroupId, other: GroupId) -> GroupId {
        let above: Vec<GroupId> = self.chain(one).collect();
        self.chain(other).find(|id| above.contains(id)).unwrap_or_default()
    }

    /// The group that a process is in, as the tree knows.
    pub fn group_of(&self, process: Pid) -> GroupId {
        self.members.get(&process).map(|member| member.group).unwrap_or_default()
    }

    // ---- groups

    /// mkdir. `charge` is of nothing yet.
    pub fn make(&mut self, above: GroupId, name: &[u8], directory: Ownership, mut charge: Charge) -> Result<GroupId> {
        // Who reads /proc/PID/cgroup looks for the end of the line.
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        if self.get(above).ok_or(Errno::ENOENT)?.children.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let (mut next, mut depth) = (Some(above), 0);
        while let Some(group) = next.and_then(|id| self.groups.get(&id)) {
            let full = group.max_descendants.is_some_and(|most| group.descendants >= most);
            if full || group.max_depth.is_some_and(|most| depth >= most) {
                return Err(Errno::EAGAIN);
            }
            (next, depth) = (group.parent, depth + 1);
        }
        charge.grow(GROUP_BYTES + name.len()).map_err(|_| Errno::ENOMEM)?;
        // In turn, so that a number that was free for long is given first.
        let after = |id: GroupId| if id == GroupId::MAX { GroupId(1) } else { GroupId(id.0 + 1) };
        let start = after(self.last);
        let mut id = start;
        while self.groups.contains_key(&id) {
            id = after(id);
            if id == start {
                return Err(Errno::ENOSPC);
            }
        }
        self.last = id;
        self.last_ino += INO_STEP;
        let ino = self.last_ino;
        self.groups.insert(id, Group::new(name.to_vec(), Some(above), ino, directory, charge));
        self.numbers.insert(ino, id);
        if let Some(group) = self.groups.get_mut(&above) {
            group.children.insert(name.to_vec(), id);
        }
        self.for_above(id, |group| group.descendants += 1);
        Ok(id)
    }

    /// rmdir. EBUSY: there is something in it.
    pub fn remove(&mut self, id: GroupId) -> Result<()> {
        let group = self.change(id)?;
        let above = group.parent.ok_or(Errno::EBUSY)?;
        if group.populated > 0 || !group.children.is_empty() {
            return Err(Errno::EBUSY);
        }
        group.removed = true;
        let (name, ino) = (core::mem::take(&mut group.name), group.ino);
        if let Some(above) = self.groups.get_mut(&above) {
            above.children.remove(&name);
            above.kept_children.push(id);
        }
        self.numbers.remove(&ino);
        if let Some(group) = self.groups.get_mut(&id) {
            group.name = name;
        }
        self.for_above(id, |group| {
            group.descendants -= 1;
            group.kept += 1;
        });
        self.drop_unused(id);
        Ok(())
    }

    /// Forgets a removed group that nothing keeps any more, and those above it that it kept.
    pub(super) fn drop_unused(&mut self, id: GroupId) {
        let mut next = Some(id);
        while let Some((id, group)) = next.and_then(|id| Some((id, self.groups.get(&id)?))) {
            if !group.removed || group.entries > 0 || group.kept > 0 || group.memory.is_granted() {
                return;
            }
            next = group.parent;
            self.for_above(id, |group| group.kept -= 1);
            self.groups.remove(&id);
            if let Some(above) = next.and_then(|above| self.groups.get_mut(&above)) {
                above.kept_children.retain(|child| *child != id);
            }
        }
    }

    /// Whether a group was removed, and is not forgotten.
    pub(super) fn is_kept(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(|group| group.removed)
    }

    // ---- permissions

    /// Whether somebody may move a process from one group into another, whose cgroup.procs he may write.
    pub fn may_move(&self, who: &Credentials, from: GroupId, to: GroupId) -> Result<()> {
        self.may_write_procs(who, self.common(from, to))
    }

    pub(super) fn may_write_procs(&self, who: &Credentials, group: GroupId) -> Result<()> {
        let Ownership { mode, uid, gid } = self.get(group).ok_or(Errno::ENODEV)?.file(PROCS, PROCS_MODE);
        let bit = match () {
            () if who.can(capability::DAC_OVERRIDE) => return Ok(()),
            () if who.fsuid == uid => 0o200,
            () if who.fsgid == gid || who.groups.contains(&gid) => 0o020,
            () => 0o002,
        };
        if mode & bit == 0 {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// What a group can limit (cgroup.controllers).
    pub fn available(&self, id: GroupId) -> Controllers {
        match self.groups.get(&id).and_then(|group| group.parent) {
            None => Controllers::all(),
            Some(above) => self.groups.get(&above).map(|above| above.enabled).unwrap_or_default(),
        }
    }

    /// cgroup.subtree_control is written.
    pub fn enable(&mut self, id: GroupId, add: Controllers, remove: Controllers) -> Result<()> {
        let available = self.available(id);
        let group = self.groups.get(&id).filter(|group| !group.removed).ok_or(Errno::ENODEV)?;
        let (add, remove) = (add - group.enabled, remove & group.enabled);
        if !available.contains(add) {
            return Err(Errno::ENOENT);
        }
        let children: Vec<GroupId> = group.children.values().copied().collect();
        let used = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.enabled.intersects(remove));
        if children.iter().any(used) {
            return Err(Errno::EBUSY);
        }
        // Else what its processes use would compete with what its children use.
        let bare = !add.intersects(Controllers::DOMAIN) && self.may_have_both(group);
        if !add.is_empty() && !id.is_root() && !bare && group.processes > 0 {
            return Err(Errno::EBUSY);
        }
        let group = self.change(id)?;
        group.enabled = (group.enabled | add) - remove;
        for child in children {
            if let Some(child) = self.groups.get_mut(&child) {
                if remove.contains(Controllers::PIDS) {
                    child.pids.max = None;
                }
                if remove.contains(Controllers::MEMORY) {
                    child.memory.end_limits();
                }
            }
        }
        Ok(())
    }

    /// Whether processes may be in the group beside groups below it: if those have no processes, and only limit threads.
    pub(super) fn may_have_both(&self, group: &Group) -> bool {
        group.populated == group.processes && !group.enabled.intersects(Controllers::DOMAIN)
    }

    /// Whether a process may come into the group.
    pub(super) fn admits_processes(&self, id: GroupId) -> Result<()> {
        let group = self.get(id).ok_or(Errno::ENODEV)?;
        match id.is_root() || group.enabled.is_empty() || self.may_have_both(group) {
            true => Ok(()),
            false => Err(Errno::EBUSY),
        }
    }
}

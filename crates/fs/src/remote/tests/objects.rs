//! Mapped files of other kernels.

use super::*;
use crate::{Loaned, Lost, Mappers};
use alloc::boxed::Box;
use machine::{CountedFrame, GroupId, KernelSet};
use messages::cgroup::Reclaim;

/// A mapped file of three pages, each full of its number plus a generation.
struct Mapped {
    memory: TestMemory,
    generation: Mutex<u8>,
    holders: crate::Holders,
    asked: Mutex<Vec<u64>>,
    written: Mutex<Vec<u64>>,
    only_in_memory: bool,
}

struct MappedFile(Arc<Mapped>);

fn mapped(machine: &Machine, only_in_memory: bool) -> Arc<Mapped> {
    Arc::new(Mapped {
        memory: TestMemory(KernelId(0), machine.ram.clone()),
        generation: Mutex::new(10),
        holders: Default::default(),
        asked: Mutex::default(),
        written: Mutex::default(),
        only_in_memory,
    })
}

impl crate::Object for Mapped {
    fn id(&self) -> crate::ObjectId {
        crate::ObjectId { owner: KernelId(0), serial: 9 }
    }
    fn size(&self) -> u64 {
        3 * PAGE_SIZE as u64 - 10
    }
    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        self.asked.lock().unwrap().push(index);
        let frame = CountedFrame::from_raw(&self.memory, self.memory.alloc().unwrap());
        let byte = index as u8 + *self.generation.lock().unwrap();
        self.memory.write(frame.frame(), 0, &vec![byte; PAGE_SIZE]);
        crate::file::ready(Ok(frame))
    }
    fn resident(&self, _: u64) -> Option<CountedFrame<'_>> {
        None
    }
    fn mark_dirty(&self, index: u64) {
        self.written.lock().unwrap().push(index);
    }
    fn is_only_in_memory(&self) -> bool {
        self.only_in_memory
    }
    fn lend(&self, index: u64, to: KernelId, write: bool, _: crate::ReadAhead) -> BoxFuture<'_, Result<Loaned<'_>>> {
        self.holders.add(to);
        Box::pin(async move {
            if index > 2 {
                return Err(Errno::EFAULT);
            }
            let frame = self.page(index).await?;
            // The last page may change at any time.
            Ok(if write || index == 2 { Loaned::Own(frame) } else { Loaned::Copy(frame) })
        })
    }
    fn sync(&self, _: u64, _: u64) -> BoxFuture<'_, Result<()>> {
        let written = core::mem::take(&mut *self.written.lock().unwrap());
        crate::file::ready(if written == [1, 2] { Ok(()) } else { Err(Errno::EIO) })
    }
}

impl File for MappedFile {
    fn flags(&self) -> OpenFlags {
        OpenFlags::empty()
    }
    fn set_flags(&self, _: OpenFlags) -> BoxFuture<'_, Result<()>> {
        crate::file::ready(Ok(()))
    }
    fn attributes(&self) -> BoxFuture<'_, Result<crate::Attributes>> {
        let mut attributes = crate::anonymous::Identity::untyped().attributes();
        attributes.modified.seconds = i64::from(*self.0.generation.lock().unwrap());
        crate::file::ready(Ok(attributes))
    }
    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn crate::Object>>> {
        crate::file::ready(Ok(self.0.clone() as _))
    }
    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        crate::file::ready(Vec::new())
    }
    fn as_any(&self) -> &dyn core::any::Any {
        self
    }
}

/// Asks from kernel 0.
pub(super) struct Asking(pub Arc<Remote>, pub Mutex<usize>);

impl Mappers for Asking {
    fn lost(&self, _: Lost) -> BoxFuture<'_, ()> {
        crate::file::ready(())
    }
    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        *self.1.lock().unwrap() += others.len();
        Box::pin(async move { self.0.recall(&others, lost).await })
    }
    fn uses(&self, _: ObjectId, _: crate::MappingUse) -> BoxFuture<'_, u64> {
        crate::file::ready(0)
    }
}

#[test]
fn mapped_pages_are_local_copies_until_the_owner_asks_for_them() {
    let machine = Machine::new(2);
    let mapped = mapped(&machine, false);
    let file: Arc<dyn File> = Arc::new(MappedFile(mapped.clone()));
    let far = machine.pass(0, 1, &file);
    let object = machine.run(far.object()).unwrap();
    let local = &machine.kernels[1].memory;
    let first_byte = |frame: CountedFrame<'_>| {
        let mut byte = [0];
        local.read(frame.frame(), 0, &mut byte);
        byte[0]
    };
    let asking = Arc::new(Asking(machine.kernels[0].clone(), Mutex::default()));
    let lose = |first, end| {
        let lost = Lost { object: crate::Object::id(&*mapped), first, end, private: false };
        machine.run(Box::pin(mapped.holders.tell(&*asking, lost)));
        *asking.1.lock().unwrap()
    };
    assert_eq!(lose(0, 3), 0, "nobody has had a page");
    assert_eq!(first_byte(machine.run(object.page(0)).unwrap()), 10);
    assert_eq!(first_byte(object.resident(1).expect("it came along")), 11);
    assert!(object.resident(2).is_none(), "is not copied");
    assert_eq!(first_byte(machine.run(object.page(2)).unwrap()), 12);
    assert_eq!(machine.run(object.page(3)).err(), Some(Errno::EFAULT));
    let again = machine.run(far.object()).unwrap();
    assert_eq!(first_byte(again.resident(1).expect("still there")), 11);
    assert_eq!(*mapped.asked.lock().unwrap(), [0, 1, 2, 2]);
    *mapped.generation.lock().unwrap() = 20;
    let before = object.losses();
    assert_eq!(lose(1, 2), 1);
    assert!(
        object.losses() > before
            && object.resident(1).is_none()
            && object.resident(0).is_some_and(|f| first_byte(f) == 10)
    );
    // An answer that is under way when pages are lost is not kept.
    let mut late = object.page(1);
    assert!(once(late.as_mut()).is_none());
    drop(late);
    assert_eq!(lose(0, 3), 2);
    machine.settle();
    assert!(object.resident(1).is_none());
    assert_eq!(first_byte(machine.run(again.page(1)).unwrap()), 21);
    drop((object, again, far));
    // Kept in case it is mapped again.
    assert_eq!(lose(0, 1), 3);
    assert_eq!(machine.kernels[1].reclaim(), 1);
    machine.settle();
    assert_eq!((lose(0, 1), lose(0, 1)), (4, 4), "asked once more, then forgotten");
    drop(file);
    assert_eq!((machine.frames(), machine.kernels[0].exported()), (0, 0));
}

#[test]
fn a_page_that_has_come_is_kept_for_who_has_asked_for_it() {
    let machine = Machine::new(2);
    let mapped = mapped(&machine, false);
    let file: Arc<dyn File> = Arc::new(MappedFile(mapped.clone()));
    let far = machine.pass(0, 1, &file);
    let object = machine.run(far.object()).unwrap();
    let mut page = object.page(0);
    assert!(once(page.as_mut()).is_none());
    machine.settle();
    assert!(object.resident(1).is_some(), "it came along");
    // Before the thread goes on, memory gets short.
    assert_eq!(machine.run(Box::pin(machine.kernels[1].reclaim_of(&[GroupId::ROOT], Reclaim::Unmapped))), 1);
    assert!(object.resident(1).is_none());
    assert!(once(page.as_mut()).is_some_and(|page| page.is_ok()), "it is not asked for again");
}

#[test]
fn what_exists_only_in_memory_ends_with_its_last_mapping() {
    let machine = Machine::new(2);
    let mapped = mapped(&machine, true);
    let weak = Arc::downgrade(&mapped);
    let file: Arc<dyn File> = Arc::new(MappedFile(mapped));
    let far = machine.pass(0, 1, &file);
    let object = machine.run(far.object()).unwrap();
    drop((file, far, object));
    machine.settle();
    assert_eq!((weak.strong_count(), machine.kernels[0].exported()), (0, 0));
}

#[test]
fn an_object_is_found_by_name_and_its_own_frames_are_lent() {
    let machine = Machine::new(2);
    let mapped = mapped(&machine, false);
    let id = crate::Object::id(&*mapped);
    assert_eq!(machine.run(machine.kernels[1].resolve(id)).err(), Some(Errno::ESTALE));
    let own = Arc::downgrade(&mapped);
    machine.kernels[0].serve_objects(Arc::new(move |name| own.upgrade().filter(|_| name == id).map(|own| own as _)));
    let unknown = crate::ObjectId { serial: 10, ..id };
    for kernel in &machine.kernels {
        assert_eq!(machine.run(kernel.resolve(unknown)).err(), Some(Errno::ESTALE));
    }
    let object = machine.run(machine.kernels[1].resolve(id)).unwrap();
    assert_eq!(object.id(), id);
    let shared = object.shared().unwrap();
    drop(object);
    let frame = machine.run(shared.page(2)).unwrap();
    assert_eq!(machine.frames(), 1, "no copy");
    drop(frame);
    // The owner has counted it, but nobody waits for it any more.
    assert!(once(shared.page(0).as_mut()).is_none());
    machine.settle();
    assert_eq!(machine.frames(), 0);
    shared.mark_dirty(1);
    shared.mark_dirty(2);
    assert_eq!(machine.run(shared.sync(0, 8192)), Ok(()), "after the marks");
    // Who asks and goes leaves nothing behind either.
    assert!(once(core::pin::pin!(machine.kernels[1].resolve(id))).is_none());
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 1);
    drop(shared);
    machine.settle();
    assert_eq!(machine.kernels[0].exported(), 0);
}

#[test]
fn of_a_mapping_that_is_read_here_and_there_one_page_is_copied_at_a_time() {
    let machine = Machine::new(2);
    let mapped = mapped(&machine, false);
    let file: Arc<dyn File> = Arc::new(MappedFile(mapped.clone()));
    let far = machine.pass(0, 1, &file);
    let object = machine.run(far.object()).unwrap();
    drop(machine.run(object.page_advised(0, crate::ReadAhead::Random)).unwrap());
    assert!(object.resident(0).is_some() && object.resident(1).is_none());
    drop(machine.run(object.page_advised(1, crate::ReadAhead::Normal)).unwrap());
    // A page of which a part is still needed stays.
    machine.run(object.not_needed(1, 2 * PAGE_SIZE as u64));
    assert!(object.resident(0).is_some() && object.resident(1).is_none());
}

//! Faults that wait for a disk hold nothing that another fault needs.

use abi::ObjectId;
use fs::Object;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Access, BoxFuture, CountedFrame, Errno, Frame, FrameTree, Memory, PAGE_SIZE,
};
use sim::cluster::{Cluster, Shape};
use std::sync::{
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    Arc,
};
use vm::{MapRequest, Source};

const RW: Access = Access::READ.union(Access::WRITE);
const PAGE: u64 = PAGE_SIZE as u64;
const WAITERS: u64 = 500;

/// A file whose disk answers nothing before it is told to; its last page is in memory.
struct SlowFile {
    id: ObjectId,
    memory: Arc<dyn Memory>,
    frames: Lock<FrameTree<Frame>>,
    answers: AtomicBool,
    waiting: AtomicUsize,
    told: WaitQueue,
}

impl SlowFile {
    fn load(&self, index: u64) -> Result<CountedFrame<'_>> {
        if let Some(frame) = self.resident(index) {
            return Ok(frame);
        }
        let frame = CountedFrame::from_raw(&*self.memory, self.memory.alloc().ok_or(Errno::ENOMEM)?);
        self.memory.write(frame.frame(), 0, &(index as u32 + 1).to_le_bytes());
        self.frames.lock().insert(index, frame.clone(), |frame| frame);
        Ok(frame)
    }
}

impl Object for SlowFile {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn size(&self) -> u64 {
        (WAITERS + 1) * PAGE
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        Box::pin(async move {
            self.waiting.fetch_add(1, SeqCst);
            self.told.wait_until(|| self.answers.load(SeqCst).then_some(())).await;
            self.waiting.fetch_sub(1, SeqCst);
            self.load(index)
        })
    }

    fn resident(&self, index: u64) -> Option<CountedFrame<'_>> {
        let frames = self.frames.lock();
        Some(CountedFrame::retain(&*self.memory, *frames.get(&index)?))
    }

    fn mark_dirty(&self, _index: u64) {}

    fn sync(&self, _start: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn five_hundred_faults_wait_for_the_disk_and_the_next_one_does_not() {
    for shared in [false, true] {
        let cluster = Cluster::new(Shape { scarce: false, frames: 4000, ..Shape::of(7, 3) });
        let kernel = &cluster.kernels[0];
        let space = kernel.vm.create().unwrap();
        let memory = kernel.memory.clone();
        let file = Arc::new(SlowFile {
            id: ObjectId { owner: kernel.id, serial: 9 },
            frames: Lock::new(FrameTree::new(memory.clone())),
            memory,
            answers: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            told: WaitQueue::new(),
        });
        drop(file.load(WAITERS).unwrap());
        let at = {
            let source = Source::Object { object: file.clone(), offset: 0, label: (*b"/f").into(), limit: RW };
            let request = MapRequest { shared, source, ..MapRequest::anonymous((WAITERS + 1) * PAGE, RW) };
            let space = space.clone();
            cluster.run(async move { space.map(request).await }).unwrap()
        };
        // Some are threads of another kernel, whose faults this one resolves.
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(space.id()).unwrap();
        let page = move |index: u64| at.add((index * PAGE) as usize);
        let waiting: Vec<_> = (0..WAITERS)
            .map(|index| {
                let (space, at) = (on(usize::from(index % 5 == 0)), page(index));
                cluster.start(async move { space.load_u32(at).await })
            })
            .collect();
        cluster.settle();
        assert_eq!(file.waiting.load(SeqCst) as u64, WAITERS);
        // All the same: a page that is in memory, read and written, here and from another kernel; memory that is new; the map itself.
        for kernel in [0, 1] {
            let space = on(kernel);
            let (last, new) = cluster.run(async move {
                let last = space.load_u32(page(WAITERS)).await;
                let new = space.map(MapRequest::anonymous(PAGE, RW)).await.unwrap();
                space.compare_exchange_u32(page(WAITERS), last.unwrap(), 77).await.unwrap().unwrap();
                space.compare_exchange_u32(page(WAITERS), 77, last.unwrap()).await.unwrap().unwrap();
                let found = space.load_u32(new).await;
                space.unmap(new, PAGE).await.unwrap();
                (last, found)
            });
            assert_eq!((last, new), (Ok(WAITERS as u32 + 1), Ok(0)));
        }
        assert_eq!(file.waiting.load(SeqCst) as u64, WAITERS);
        file.answers.store(true, SeqCst);
        file.told.wake_all();
        cluster.settle();
        for (index, waiting) in waiting.into_iter().enumerate() {
            assert_eq!(waiting.take().unwrap(), Ok(index as u32 + 1));
        }
        sim::audit::check(&cluster);
    }
}

//! A host that keeps the rules of crate `link` to the letter, and tasks that run only when they were woken.
#![allow(dead_code)] // Each test uses its part.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use dev::link::Link;
use link::{Decoder, Message, ToGuest, ToHost, Window};
use machine::errno::Result;
use machine::sync::WaitQueue;
use machine::{BoxFuture, ByteStream, Errno, Spawner};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs tasks only when they were woken: a wake-up that is forgotten leaves its task where it is.
#[derive(Default)]
pub struct Tasks {
    new: Mutex<Vec<Task>>,
    all: Mutex<Vec<(Arc<Flag>, Task)>>,
}

impl Spawner for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.new.lock().unwrap().push(task);
    }
}

impl Tasks {
    /// Until no task is awake.
    pub fn settle(&self) {
        loop {
            let mut all = self.all.lock().unwrap();
            all.extend(self.new.lock().unwrap().drain(..).map(|task| (Arc::new(Flag(AtomicBool::new(true))), task)));
            let mut ran = false;
            all.retain_mut(|(flag, task)| {
                if !flag.0.swap(false, Ordering::SeqCst) {
                    return true;
                }
                ran = true;
                let waker = Waker::from(flag.clone());
                task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
            if !ran {
                return;
            }
        }
    }

    /// Runs `future` beside the others; its result appears in the slot.
    pub fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Arc<Mutex<Option<T>>> {
        let slot = Arc::new(Mutex::new(None));
        let result = slot.clone();
        self.spawn(Box::pin(async move {
            let value = future.await;
            *result.lock().unwrap() = Some(value);
        }));
        self.settle();
        slot
    }
}

/// The wire: what the host has sent and the guest has not taken, and the other way round.
#[derive(Default)]
pub struct Wire {
    to_guest: Mutex<VecDeque<Vec<u8>>>,
    to_host: Mutex<Vec<u8>>,
    pub arrived: WaitQueue,
    pub broken: AtomicBool,
    /// The device takes nothing while this is set.
    pub stuck: AtomicBool,
    pub unstuck: WaitQueue,
}

impl ByteStream for Wire {
    fn receive(&self) -> BoxFuture<'_, Result<Vec<u8>>> {
        Box::pin(self.arrived.wait_until(|| match self.to_guest.lock().unwrap().pop_front() {
            Some(bytes) => Some(Ok(bytes)),
            None => self.broken.load(Ordering::SeqCst).then_some(Err(Errno::EIO)),
        }))
    }

    fn send(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.unstuck.wait_until(|| (!self.stuck.load(Ordering::SeqCst)).then_some(())).await;
            self.to_host.lock().unwrap().extend_from_slice(&bytes);
            Ok(())
        })
    }
}

pub struct Host {
    pub tasks: Tasks,
    pub wire: Arc<Wire>,
    pub link: Arc<Link>,
    decoder: Decoder,
    pub stdin: Window,
    pub granted: u32,
}

impl Host {
    pub fn new() -> Self {
        let tasks = Tasks::default();
        let wire = Arc::new(Wire::default());
        let link = Link::start(wire.clone(), &tasks);
        tasks.settle();
        Host { tasks, wire, link, decoder: Decoder::new(), stdin: Window::stdin(), granted: 0 }
    }

    pub fn send_bytes(&self, bytes: &[u8]) {
        self.wire.to_guest.lock().unwrap().push_back(bytes.to_vec());
        self.wire.arrived.wake_all();
        self.tasks.settle();
    }

    pub fn send(&self, message: ToGuest) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.send_bytes(&bytes);
    }

    /// Everything the guest has sent since the last time; its credit goes into the stdin window.
    pub fn received(&mut self) -> Vec<ToHost> {
        let bytes = std::mem::take(&mut *self.wire.to_host.lock().unwrap());
        let mut input = &bytes[..];
        let mut messages = Vec::new();
        while let Some(message) = self.decoder.next(&mut input).expect("well-formed") {
            if let ToHost::Credit(amount) = message {
                self.stdin.give(amount).expect("no more credit than the window");
                self.granted += amount;
            }
            messages.push(message);
        }
        messages
    }

    pub fn read(&self, max: usize) -> Arc<Mutex<Option<Result<Vec<u8>>>>> {
        let link = self.link.clone();
        self.tasks.run(async move {
            let mut buffer = vec![0; max];
            let length = link.stdin_read(&mut buffer).await?;
            buffer.truncate(length);
            Ok(buffer)
        })
    }

    pub fn write(&self, bytes: Vec<u8>) -> Arc<Mutex<Option<Result<usize>>>> {
        let link = self.link.clone();
        self.tasks.run(async move { link.stdout_write(&bytes).await })
    }
}

pub fn taken<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap().take()
}

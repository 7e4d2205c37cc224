//! Files of the host, over 9P2000.L.
//!
//! `wire` knows the bytes, `client` the requests, `node` makes inodes of them: with a page cache for
//! contents, and attributes and names that are believed for a while ([`Options::believed`]). Who may do
//! what is decided twice: here by the mode bits, and by the host, whose refusal comes back as an errno.

mod client;
mod node;
mod wire;

use crate::{inode::Mounter, FileSystem, Inode, Services};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use client::Client;
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, Exchange};
use node::NineInode;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Largest message, in bytes. By default what fits into the 128 descriptors of QEMU's queue wherever the pages of a buffer are
    /// (platform/src/virtio/ring.rs).
    pub msize: u32,
    /// How long (ns) an answer of the host is believed.
    pub believed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { msize: 480 * 1024, believed: 1_000_000_000 }
    }
}

/// What the inodes of one share have in common.
struct Shared {
    services: Arc<Services>,
    device: (u32, u32),
    believed: u64,
    /// The inode of a file of the host, so that two names of a file share one page cache.
    inodes: Lock<BTreeMap<u64, Weak<NineInode>>>,
}

/// A tree of the host.
pub struct Share {
    shared: Arc<Shared>,
    root: Arc<NineInode>,
}

impl Share {
    pub async fn attach(exchange: Arc<dyn Exchange>, services: &Arc<Services>, options: Options) -> Result<Arc<Self>> {
        let client = Client::connect(exchange, services, options.msize).await?;
        let (fid, qid) = client.attach().await?;
        let shared = Arc::new(Shared {
            services: services.clone(),
            device: services.anonymous_device(),
            believed: options.believed,
            inodes: Lock::new(BTreeMap::new()),
        });
        let root = NineInode::found(&shared, fid, qid).await?;
        Ok(Arc::new(Share { shared, root }))
    }
}

impl FileSystem for Share {
    fn kind(&self) -> &'static str {
        "9p"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let inodes: Vec<_> = self.shared.inodes.lock().values().filter_map(Weak::upgrade).collect();
            let mut result = Ok(());
            for inode in inodes {
                result = inode.write_back().await.and(result);
            }
            result
        })
    }
}

/// `mount -t 9p TAG DIR`: `source` names one of the machine's exchanges.
pub struct NineMounter {
    pub services: Arc<Services>,
    pub options: Options,
    /// By mount tag.
    pub exchanges: BTreeMap<Vec<u8>, Arc<dyn Exchange>>,
}

impl Mounter for NineMounter {
    fn mount<'a>(
        &'a self,
        source: &'a [u8],
        _data: &'a [u8],
        _read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(async move {
            let exchange = self.exchanges.get(source).cloned().ok_or(Errno::ENOENT)?;
            let share = Share::attach(exchange, &self.services, self.options).await?;
            Ok(share as Arc<dyn FileSystem>)
        })
    }
}

//! What sockets of this kernel ask of other kernels: [`OtherKernels`], which [`crate::remote`] implements.

use super::{transfer::Datagram, Connecting, Lent};
use crate::{
    control::{InternetAddress, PortClaim, SocketMessage, UnixPlace},
    Caller, File, FileRef,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, BoxFuture, KernelId, KernelSet, Shield, Spawner};
use messages::fs::{ListedSocket, SocketAttached, SocketChange, SocketCredit, SocketGraphPage};

/// A socket by its number on another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarSocket {
    pub kernel: KernelId,
    /// Given by that kernel when the socket was bound.
    pub serial: u64,
}

/// What other kernels have of a socket of this one.
#[derive(Default)]
pub struct SocketLoan {
    pub id: u64,
    /// So many references each.
    pub holders: Vec<(KernelId, u64)>,
    /// Of each reference that one kernel has handed to another both have told.
    pub settled: bool,
}

/// Other kernels answer as [`super::NetNamespace`] and [`super::circles`] do here. `keeper` is the kernel that keeps the names.
pub trait OtherKernels: Send + Sync {
    /// This kernel.
    fn me(&self) -> KernelId;
    /// This kernel and all others.
    fn present(&self) -> KernelSet;
    /// What numbers that other kernels remember begin with in this life.
    fn first_serial(&self) -> u64;
    /// How many kernels the machine has, those that have died too.
    fn kernels(&self) -> usize;
    /// Runs a task of this kernel.
    fn run(&self, task: BoxFuture<'static, ()>);
    /// For work that goes on when the caller has gone.
    fn spawner(&self) -> &dyn Spawner;

    /// bind(2): `place` is that of this kernel's socket `serial`. EADDRINUSE.
    fn claim(&self, keeper: KernelId, place: UnixPlace, serial: u64) -> BoxFuture<'_, Result<()>>;
    /// The socket is closed, and its place free again. Nobody waits for that.
    fn unbind(&self, keeper: KernelId, place: UnixPlace, serial: u64);
    /// Which socket is bound at `place`. ECONNREFUSED.
    fn find(&self, keeper: KernelId, place: UnixPlace) -> BoxFuture<'_, Result<FarSocket>>;
    /// Whether that socket is still open.
    fn is_bound(&self, there: FarSocket) -> BoxFuture<'_, bool>;

    /// A socket of this kernel wants a port that `keeper` keeps. EADDRINUSE.
    fn claim_port(&self, keeper: KernelId, claim: PortClaim, serial: u64) -> BoxFuture<'_, Result<()>>;
    /// It has the port no longer; it is in TIME_WAIT until then. Nobody waits for that.
    fn release_port(&self, keeper: KernelId, protocol: u8, port: u16, serial: u64, until: u64);
    /// What a socket of another kernel wants of a port by now; None: it does not have it.
    fn held_port(&self, there: FarSocket, protocol: u8, port: u16) -> BoxFuture<'_, Option<PortClaim>>;
    /// Who takes what comes for a port. ECONNREFUSED.
    fn find_port(
        &self,
        keeper: KernelId,
        protocol: u8,
        to: InternetAddress,
        from: InternetAddress,
    ) -> BoxFuture<'_, Result<FarSocket>>;

    /// net.ipv4.ping_group_range of the kernel that has /proc.
    fn ping_groups(&self, keeper: KernelId) -> BoxFuture<'_, Result<(u32, u32)>>;

    /// The name of a datagram socket that one of this kernel connects to.
    fn meet(&self, there: FarSocket, kind: u32) -> BoxFuture<'_, Result<Vec<u8>>>;
    /// connect(2): the other end is made there. EAGAIN: the backlog is full.
    fn attach<'a>(
        &'a self,
        there: FarSocket,
        client: Connecting,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<SocketAttached>>;
    /// Sends a message, for which there is room, from this kernel's end `from` to the other end of its connection. What is lent for it is to
    /// be kept until it was received. Error: that kernel has died.
    fn transmit(&self, to: FarSocket, from: u64, credit: SocketCredit, message: SocketMessage) -> Result<Option<Lent>>;
    /// Asks that end for so much room, where `buffer` is the sender's SO_SNDBUF; what may be sent now, and how many bytes nobody has received there.
    /// ENOBUFS: never so much.
    fn want(&self, to: FarSocket, room: u64, buffer: u64) -> BoxFuture<'_, Result<(SocketCredit, u64)>>;
    /// Tells that end where the other end of its connection is from now on; how many messages it has sent to this kernel. ECONNRESET.
    fn moves(&self, there: FarSocket, to: FarSocket) -> BoxFuture<'_, Result<u64>>;
    /// That end may send more. Nobody waits for the answer.
    fn credit(&self, to: FarSocket, credit: SocketCredit);
    /// This end was shut, closed or named. Nobody waits for the answer.
    fn tell(&self, to: FarSocket, change: SocketChange);
    /// This end is closed. Returns when frames that it has lent were copied, and descriptors that it has sent received.
    fn received(&self, to: FarSocket) -> BoxFuture<'_, ()>;
    /// A file as it can be sent without waiting.
    fn settle<'a>(&'a self, file: &'a Arc<dyn File>) -> BoxFuture<'a, Result<Arc<dyn File>>>;
    /// EAGAIN: no room.
    fn deliver<'a>(
        &'a self,
        there: FarSocket,
        kind: u32,
        message: &'a SocketMessage,
        shield: &'a Shield,
    ) -> BoxFuture<'a, Result<usize>>;
    /// Returns when `there` may have room again: for that datagram, or for a connection.
    fn room(&self, there: FarSocket, datagram: Datagram) -> BoxFuture<'_, Result<()>>;

    /// A part of that kernel's sockets for a list (list.rs); nothing of a dead one.
    fn listed(
        &self,
        of: KernelId,
        protocol: Option<(u8, bool)>,
        from: u64,
    ) -> BoxFuture<'_, (Vec<ListedSocket>, Option<u64>)>;

    /// What other kernels have of a file of this one.
    fn loan_of(&self, file: &Arc<dyn File>) -> Option<SocketLoan>;
    /// How many references the owner of `file` counts for the stand-in here.
    fn references(&self, file: FileRef) -> u64;
    /// Asks `keeper` to look for circles soon: sockets were sent in messages and then closed.
    fn suspect(&self, keeper: KernelId);
    /// A page of the sockets that kernel `of` has found in messages, from position `from` on (circles/survey.rs).
    fn survey(&self, of: KernelId, survey: u64, from: (u32, u32)) -> BoxFuture<'_, Result<SocketGraphPage>>;
    /// Returns when `owner` has heard of all references that this kernel has handed on, received or given back.
    fn flush(&self, owner: KernelId) -> BoxFuture<'_, Result<()>>;
    /// Those of `nodes` in that survey to which somebody may have got a reference since.
    fn gained(&self, of: KernelId, survey: u64, nodes: Vec<u32>) -> BoxFuture<'_, Result<Vec<u32>>>;
    /// Drops the messages that wait in these sockets: they are garbage.
    fn empty(&self, of: KernelId, survey: u64, nodes: Vec<u32>) -> BoxFuture<'_, Result<()>>;
    /// The round is over, and nobody asks about this survey again.
    fn forget_survey(&self, of: KernelId, survey: u64);
}

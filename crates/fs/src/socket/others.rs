//! What sockets of this kernel ask of other kernels: [`OtherKernels`], which [`crate::remote`] implements.

use crate::{
    control::{InternetAddress, InternetEnds, PortClaim, SocketMessage, UnixCredentials, UnixPlace},
    Caller, File, FileRef,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, BoxFuture, KernelId, KernelSet, Shield, Spawner};
use messages::fs::SocketGraphPage;

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

/// The client's end of a new connection, and who listens.
pub type Attached = (Arc<dyn File>, Option<UnixCredentials>);

/// Other kernels answer as [`super::UnixNames`] and [`super::circles`] do here. `keeper` is the kernel that keeps the names.
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
    /// Whether a socket of another kernel still has a port.
    fn holds_port(&self, there: FarSocket, protocol: u8, port: u16) -> BoxFuture<'_, bool>;
    /// Who takes what comes for a port. ECONNREFUSED.
    fn find_port(
        &self,
        keeper: KernelId,
        protocol: u8,
        to: InternetAddress,
        from: InternetAddress,
    ) -> BoxFuture<'_, Result<FarSocket>>;

    /// The name of a datagram socket that one of this kernel connects to.
    fn meet(&self, there: FarSocket, kind: u32) -> BoxFuture<'_, Result<Vec<u8>>>;
    /// connect(2).
    fn attach<'a>(
        &'a self,
        there: FarSocket,
        kind: u32,
        name: Vec<u8>,
        ends: Option<InternetEnds>,
        wants_credentials: bool,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Attached>>;
    /// EAGAIN: no room.
    fn deliver<'a>(
        &'a self,
        there: FarSocket,
        kind: u32,
        message: &'a SocketMessage,
        shield: &'a Shield,
    ) -> BoxFuture<'a, Result<usize>>;
    /// Returns when `there` may have room again.
    fn room(&self, there: FarSocket) -> BoxFuture<'_, Result<()>>;

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

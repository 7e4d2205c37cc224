//! /proc/sysvipc: the System V objects of all kernels.

use super::{
    made::{put, Directory as Names, Made, Text},
    Proc,
};
use ::machine::errno::Result;
use alloc::{sync::Arc, vec::Vec};
use fs::Caller;
use messages::ipc::{Details, IpcKind};

pub(super) fn fill(proc: &Arc<Proc>, names: Names) -> Names {
    names
        .file("shm", Made { source: proc.clone(), make: memory })
        .file("sem", Made { source: proc.clone(), make: semaphores })
        .file("msg", Made { source: proc.clone(), make: queues })
}

async fn memory(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n");
    for status in ipc::service(&proc.system)?.list(IpcKind::Memory).await {
        let Details::Memory { size, attached, resident, attach_time, detach_time, creator, last } = status.details
        else {
            continue;
        };
        let who = &status.permissions;
        put!(
            text,
            "{:10} {:10}  {:4o} {size:21} {:5} {:5}  {attached:5} {:5} {:5} {:5} {:5} {attach_time:10} {detach_time:10} {:10} {:21} {:21}\n",
            who.key, status.id, who.mode, creator.0, last.0, who.uid, who.gid, who.cuid, who.cgid, status.changed, resident * 4096, 0
        );
    }
    Ok(text.0)
}

async fn semaphores(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n");
    for status in ipc::service(&proc.system)?.list(IpcKind::Semaphores).await {
        let Details::Semaphores { count, operated } = status.details else { continue };
        let who = &status.permissions;
        put!(
            text,
            "{:10} {:10}  {:4o} {count:10} {:5} {:5} {:5} {:5} {operated:10} {:10}\n",
            who.key,
            status.id,
            who.mode,
            who.uid,
            who.gid,
            who.cuid,
            who.cgid,
            status.changed
        );
    }
    Ok(text.0)
}

async fn queues(proc: Arc<Proc>, _caller: Caller) -> Result<Vec<u8>> {
    let mut text = Text::default();
    put!(text, "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n");
    for status in ipc::service(&proc.system)?.list(IpcKind::Messages).await {
        let Details::Messages { bytes, count, sent, received, sender, receiver, .. } = status.details else { continue };
        let who = &status.permissions;
        put!(
            text,
            "{:10} {:10}  {:4o}  {bytes:10} {count:10} {:5} {:5} {:5} {:5} {:5} {:5} {sent:10} {received:10} {:10}\n",
            who.key,
            status.id,
            who.mode,
            sender.0,
            receiver.0,
            who.uid,
            who.gid,
            who.cuid,
            who.cgid,
            status.changed
        );
    }
    Ok(text.0)
}

//! The owner's side: messages from stand-ins are done to the file.

use super::{loan, watch::Watch, Remote};
use crate::{
    control,
    file::{self, sigio, Access, Destination, Frames, Patience, Source, NEEDS_BUFFER},
    lease::{Anchored, Lease},
    Base, Caller, File, FileRef, Loaned, Onward, PathAnswer,
};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::future::poll_fn;
use machine::{collections::try_filled, errno::Result, sync::Registration, Errno, KernelId, PAGE_SIZE};
use messages::fs::*;

/// Registers what answers each message of the subject.
pub fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);

    serve.on::<FileRead, _, _>(|remote, _, message| async move { read(&remote, message).await });
    serve.on::<FileWrite, _, _>(|remote, _, message| async move { write(&remote, message).await });
    serve.on::<FileSeek, _, _>(|remote, _, FileSeek { id, offset, whence }| async move {
        remote.exports.get(id)?.seek(offset, whence).await
    });
    serve.on::<FileSetFlags, _, _>(|remote, _, FileSetFlags { id, flags }| async move {
        let file = remote.exports.get(id)?;
        if let Some(flags) = flags {
            file.set_flags(flags).await?;
        }
        file.current_flags().await
    });
    serve.on::<FileSetOwner, _, _>(|remote, _, FileSetOwner { id, caller, change }| async move {
        let file = remote.exports.get(id)?;
        let signaller = remote.signaller().ok_or(Errno::ENOSYS)?;
        let owner = sigio::change(&file, &caller, change, &signaller).await?;
        Ok((owner, file.current_flags().await?))
    });
    serve.on::<FileSignals, _, _>(|remote, _, FileSignals { id, wanted }| async move {
        remote.exports.get(id)?.signals(wanted).await
    });
    serve.on::<FileAttributes, _, _>(|remote, _, FileAttributes { id }| async move {
        remote.exports.get(id)?.attributes().await
    });
    serve.on::<FileSetAttributes, _, _>(|remote, _, FileSetAttributes { id, caller, set }| async move {
        remote.exports.get(id)?.set_attributes(&caller, set).await
    });
    serve.on::<FileXattr, _, _>(|remote, _, FileXattr { id, caller, op }| async move {
        remote.exports.get(id)?.xattr(&caller, op).await
    });
    serve.on::<FileReadDir, _, _>(|remote, _, FileReadDir { id, budget }| async move {
        remote.exports.get(id)?.read_dir(budget as usize).await
    });
    serve.on::<FileIoctl, _, _>(|remote, _, FileIoctl { id, caller, request, mut data }| async move {
        let value = remote.exports.get(id)?.ioctl(&caller, request, &mut data).await?;
        Ok((value, data))
    });
    serve.on::<FileSync, _, _>(|remote, _, FileSync { id, data_only, range }| async move {
        match range {
            Some(range) => remote.exports.get(id)?.sync_range(range).await,
            None => remote.exports.get(id)?.sync(data_only).await,
        }
    });
    serve.on::<FileAllocate, _, _>(|remote, _, FileAllocate { id, mode, offset, len }| async move {
        remote.exports.get(id)?.allocate(mode, offset, len).await
    });
    serve
        .on::<FileSeal, _, _>(|remote, _, FileSeal { id, add }| async move { remote.exports.get(id)?.seal(add).await });
    serve.on::<FileReopen, _, _>(|remote, from, FileReopen { id, caller, flags }| async move {
        let file = remote.exports.get(id)?.reopen(&caller, flags).await?;
        Ok(remote.hand_over(from, &file).await?.send())
    });
    serve.on::<FilePath, _, _>(|remote, _, FilePath { id }| async move {
        match remote.exports.get(id) {
            Ok(file) => file.path().await,
            Err(_) => Vec::new(),
        }
    });
    serve.on::<FileControl, _, _>(|remote, from, message| async move { control(&remote, from, message).await });
    serve.on::<FileObject, _, _>(|remote, from, FileObject { id }| async move {
        let object = remote.exports.get(id)?.object().await?;
        let (id, keep) = (object.id(), !object.is_only_in_memory());
        Ok((remote.hand_object(from, object), id, keep))
    });
    serve.on::<ObjectPages, _, _>(|remote, from, message| async move { pages(&remote, from, message).await });
    serve.on::<RunPath, _, _>(|remote, from, message| async move { answer_path(&remote, from, message).await });
    serve.on::<RootDirectory, _, _>(|remote, from, RootDirectory {}| async move {
        let root = remote.paths.as_ref().ok_or(Errno::ENOSYS)?.root().await?;
        Ok(remote.hand_over(from, &root).await?.send())
    });

    serve.on_to_completion::<FileClosed, _, _>(|remote, from, FileClosed { id, caller, count }| async move {
        if let Ok(file) = remote.exports.get(id) {
            file.closed(&caller).await;
        }
        drop(remote.exports.release(id, from, count));
    });

    serve.on(|remote, from, FileWatch { id }| async move {
        let name = FileRef { owner: remote.me(), id };
        let file = remote.exports.watch(id, from, |file| Watch::start(&remote, file, name, from))?;
        // A socket whose other half is on a third kernel asks there.
        file.watch().await?;
        Ok(file.poll())
    });
    serve.on_sync(|remote, _, FileReady { file, events }| {
        let stand_in = remote.stand_ins.lock().get(&file).and_then(alloc::sync::Weak::upgrade);
        if let Some(stand_in) = stand_in {
            stand_in.hear(events);
        }
    });
    serve.on_sync(|remote, from, NamesRecall { tokens, watched }| remote.names.recall(from, &tokens, watched));
    serve.on_sync(|remote, from, FileRetain { id, holder }| remote.count_given(id, holder, from));
    serve.on_sync(|remote, from, FileUnsent { id, holder }| remote.uncount_given(id, holder, from));
    serve.on_sync(|remote, from, FileArrived { id, giver }| remote.exports.arrived(id, from, giver));
    serve.on_sync(|remote, from, FilesLost { dead }| remote.files_lost(from, dead));
    serve.on_sync(|remote, from, FileRelease { id, count }| drop(remote.exports.release(id, from, count)));
}

/// The file that the sender of a request reads or writes. Through what others wait at (a pipe, a socket) threads talk, and who talks may come here.
fn file_to_transfer(remote: &Remote, id: u64) -> Result<Arc<dyn File>> {
    let file = remote.exports.get(id)?;
    if file.changes().is_some() {
        remote.spawner.note_talk();
    }
    Ok(file)
}

fn access(at: Option<u64>, caller: &Option<Caller>, wait: bool) -> Access<'_> {
    Access { at, requester: caller.as_ref().map(|caller| caller as _), patience: patience(wait) }
}

/// The asker waits there unless this kernel is to wait for it.
fn patience(wait: bool) -> Patience {
    match wait {
        true => Patience::Waits,
        false => Patience::Tries,
    }
}

async fn read(remote: &Remote, message: FileRead) -> Result<ReadReply> {
    let FileRead { id, at, bytes, frames, wait, caller } = message;
    let file = file_to_transfer(remote, id)?;
    let (memory, bytes) = (&*remote.memory, bytes as usize);
    // It may have to ask a third kernel, which is not the waiting that is meant.
    let wait = wait && (at.is_some() || !file.is_elsewhere());
    let access = access(at, &caller, wait);
    match frames.is_empty() {
        true if bytes > INLINE_BYTES => return Err(Errno::EINVAL),
        true => {}
        false => {
            loan::check(memory, &frames, bytes)?;
            match file.read_into(Destination::Frames(Frames::new(memory, &frames, bytes)), access).await {
                Err(NEEDS_BUFFER) => {}
                read => return Ok(ReadReply::InFrames(read? as u32)),
            }
        }
    }
    if wait && caller.is_none() && at.is_none() && file.changes().is_some() {
        return Ok(loan::answer(memory, &frames, read_waiting(&file, bytes).await?));
    }
    let mut buf = try_filled(bytes, 0)?;
    let count = file.read_into(Destination::Kernel(&mut buf), access).await?;
    buf.truncate(count);
    Ok(loan::answer(memory, &frames, buf))
}

/// Reads once there is something, and holds no memory until then.
async fn read_waiting(file: &Arc<dyn File>, bytes: usize) -> Result<Vec<u8>> {
    // Before the file is looked at, so that no change falls in between (poll.rs).
    let mut changes = file.changes().map(Registration::new);
    poll_fn(|context| {
        if let Some(changes) = &mut changes {
            changes.register(context.waker());
        }
        let mut buf = try_filled(bytes, 0)?;
        let read = file.read(&mut buf).as_mut().poll(context)?;
        read.map(|count| {
            buf.truncate(count);
            Ok(buf)
        })
    })
    .await
}

async fn write(remote: &Remote, message: FileWrite) -> Result<u64> {
    let FileWrite { id, at, data, wait, caller } = message;
    let file = file_to_transfer(remote, id)?;
    let access = access(at, &caller, wait);
    let written = write_data(remote, &file, data, access).await?;
    file.delivered().await;
    Ok(written)
}

async fn write_data(remote: &Remote, file: &Arc<dyn File>, data: Data, access: Access<'_>) -> Result<u64> {
    let data = match data {
        Data::Inline(data) => data,
        Data::Frames(frames, bytes) => {
            let (memory, bytes) = (&*remote.memory, bytes as usize);
            loan::check(memory, &frames, bytes)?;
            match file.write_from(Source::Frames(Frames::new(memory, &frames, bytes)), access).await {
                Err(NEEDS_BUFFER) => loan::copy_out(memory, &frames, bytes),
                written => return Ok(written? as u64),
            }
        }
    };
    Ok(file.write_from(Source::Kernel(&data), access).await? as u64)
}

async fn control(remote: &Remote, from: KernelId, message: FileControl) -> Result<(ControlAnswer<Opened>, u32)> {
    let FileControl { id, caller, control, wait, frames, sent } = message;
    // First of all, for the references in it hold counts.
    let mut control = remote.receive_control(control)?;
    let file = file_to_transfer(remote, id)?;
    loan::check(&*remote.memory, &frames, sent as usize)?;
    if let (control::Control::Socket(control::SocketControl::Send { message, .. }), true) = (&mut control, sent > 0) {
        message.bytes = loan::copy_out(&*remote.memory, &frames, sent as usize);
    }
    let delivers = matches!(
        control,
        control::Control::Socket(control::SocketControl::Send { .. } | control::SocketControl::Shutdown { .. })
    );
    let mut answer = file.control_with(&caller, control, patience(wait)).await?;
    if delivers {
        file.delivered().await;
    }
    let mut in_frames = 0;
    if let control::ControlAnswer::Message(message) = &mut answer
        && message.bytes.len() > INLINE_BYTES
        && message.bytes.len() <= frames.len() * PAGE_SIZE
    {
        loan::copy_in(&*remote.memory, &frames, &message.bytes);
        in_frames = core::mem::take(&mut message.bytes).len() as u32;
    }
    Ok((remote.send_answer(from, answer).await?, in_frames))
}

async fn pages(remote: &Remote, from: KernelId, message: ObjectPages) -> Result<ObjectPagesReply> {
    let ObjectPages { id, first, frames, read_ahead } = message;
    loan::check(&*remote.memory, &frames, frames.len() * PAGE_SIZE)?;
    let object = remote.exports.get(id)?.object().await?;
    let mut count = 0;
    for &frame in &frames {
        let index = first.checked_add(u64::from(count)).ok_or(Errno::EFAULT)?;
        match object.lend(index, from, false, read_ahead).await {
            Ok(Loaned::Copy(page)) => remote.memory.copy(page.frame(), frame),
            Ok(Loaned::Own(page)) if count == 0 => return Ok(ObjectPagesReply::Own(remote.pin(page, from))),
            Ok(Loaned::Own(_)) => break,
            Err(errno) if count == 0 => return Err(errno),
            Err(_) => break,
        }
        count += 1;
    }
    Ok(ObjectPagesReply::Copies(count))
}

async fn answer_path(remote: &Arc<Remote>, from: KernelId, message: RunPath) -> PathAnswered {
    let lease = message.keep.then(|| {
        let asked: Weak<Remote> = Arc::downgrade(remote);
        Lease::new(asked, from)
    });
    let reply = run_path(remote, from, message, lease.clone()).await;
    let kept = matches!(reply, Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP));
    let (tokens, lasts) = lease.filter(|_| kept).map(|lease| lease.end()).unwrap_or_default();
    PathAnswered { reply, tokens, lasts }
}

async fn run_path(remote: &Remote, from: KernelId, message: RunPath, lease: Option<Arc<Lease>>) -> Result<PathReply> {
    let RunPath { caller, root, at, to, op, continues, .. } = message;
    // All of them first, for they hold counts.
    let [root, at, to] = [root, at, to].map(|file| file.map(|file| remote.accept(file)).transpose());
    let (root, at, to) = (root?, at?, to?);
    let paths = remote.paths.as_ref().ok_or(Errno::ENOSYS)?;
    let at = match at.or(root.clone()) {
        Some(at) => at,
        // An operation without a path.
        None => paths.root().await?,
    };
    let base =
        Base { to, lease, continues, root_is_elsewhere: root.is_none(), ..Base::new(root.unwrap_or(at.clone()), at) };
    Ok(match paths.run(&caller, &base, op).await? {
        PathAnswer::Done => PathReply::Done,
        PathAnswer::File(file) => {
            let opened = remote.hand_over(from, &file).await?.send();
            // One of a third kernel (a link of /proc): it is to end with what the asker has of it.
            file::close(file).await;
            match base.lease.and_then(|lease| lease.anchored()) {
                Some(Anchored { attributes, quiet, tokens }) => {
                    PathReply::Anchor { file: opened, attributes, quiet, tokens }
                }
                None => PathReply::File(opened),
            }
        }
        PathAnswer::Attributes(attributes) => PathReply::Attributes(*attributes),
        PathAnswer::FileSystem(info) => PathReply::FileSystem(*info),
        PathAnswer::Bytes(bytes) => PathReply::Bytes(bytes),
        PathAnswer::Number(number) => PathReply::Number(number),
        PathAnswer::GoesOn(goes_on) => {
            let Onward { second, at, path, links, tail } = *goes_on.onward;
            let at = match at {
                Some(at) => Some(remote.hand_over(from, &at).await?.send()),
                None => None,
            };
            PathReply::GoesOn { second, at, path, links, tail: tail.map(|tail| tail as u32) }
        }
    })
}

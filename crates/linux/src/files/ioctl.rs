//! ioctl(2): which way each request's argument goes and how large it is. What a request does is the file's.

use super::{sigio, socket::interfaces};
use crate::call::Call;
use alloc::{sync::Arc, vec::Vec};
use fs::{
    block::loops::{request as loops, CONFIGURATION_BYTES, INFO_BYTES},
    control::{Control, ControlAnswer},
    Attributes, File, Kind, OpenFlags, Whence,
};
use linux_raw_sys::ioctl as raw;
use machine::{collections::try_filled, errno::Result, Errno, PAGE_SIZE};

/// What the third argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    /// A number, or nothing.
    Value,
    /// The address of so many bytes that go in.
    In(usize),
    /// The address of so many bytes that come out.
    Out(usize),
    Both(usize),
}

const SHORT: usize = 2;
const INT: usize = 4;
const LONG: usize = 8;
const TERMIOS: usize = 36;
const TERMIO: usize = 18;
const WINSIZE: usize = 8;

/// Requests from before the encoding (`asm-generic/ioctls.h`) are listed; later ones say it themselves.
fn argument(request: u32) -> Argument {
    match request {
        raw::TCGETS => Argument::Out(TERMIOS),
        raw::TCSETS | raw::TCSETSW | raw::TCSETSF => Argument::In(TERMIOS),
        raw::TCGETA => Argument::Out(TERMIO),
        raw::TCSETA | raw::TCSETAW | raw::TCSETAF => Argument::In(TERMIO),
        raw::TIOCGWINSZ => Argument::Out(WINSIZE),
        raw::TIOCSWINSZ => Argument::In(WINSIZE),
        raw::TIOCSTI => Argument::In(1),
        raw::TIOCGPGRP
        | raw::TIOCGSID
        | raw::TIOCOUTQ
        | raw::FIONREAD
        | raw::TIOCGETD
        | raw::TIOCMGET
        | raw::TIOCGSOFTCAR
        | raw::SIOCATMARK
        | raw::FIOGETOWN
        | raw::SIOCGPGRP => Argument::Out(INT),
        raw::TIOCSPGRP
        | raw::TIOCPKT
        | raw::TIOCSETD
        | raw::TIOCMSET
        | raw::TIOCMBIS
        | raw::TIOCMBIC
        | raw::TIOCSSOFTCAR => Argument::In(INT),
        raw::BLKGETSIZE | raw::BLKRAGET | raw::BLKFRAGET => Argument::Out(LONG),
        raw::BLKSSZGET
        | raw::BLKPBSZGET
        | raw::BLKROGET
        | raw::BLKIOMIN
        | raw::BLKIOOPT
        | raw::BLKALIGNOFF
        | raw::BLKDISCARDZEROES => Argument::Out(INT),
        raw::BLKROTATIONAL | raw::BLKSECTGET => Argument::Out(SHORT),
        raw::BLKROSET => Argument::In(INT),
        raw::BLKDISCARD | raw::BLKSECDISCARD | raw::BLKZEROOUT => Argument::In(2 * LONG),
        loops::SET_STATUS64 => Argument::In(INFO_BYTES),
        loops::GET_STATUS64 => Argument::Out(INFO_BYTES),
        loops::CONFIGURE => Argument::In(CONFIGURATION_BYTES),
        // Encoded with size_t, but it is an int.
        raw::BLKBSZGET => Argument::Out(INT),
        raw::BLKBSZSET => Argument::In(INT),
        // Encoded as if its argument were an address.
        raw::TIOCSIG => Argument::Value,
        _ => encoded(request),
    }
}

/// `_IOC`: direction in the top two bits, seen from the program, then 14 bits of size.
fn encoded(request: u32) -> Argument {
    let size = (request >> 16 & 0x3fff) as usize;
    match request >> 30 {
        1 => Argument::In(size),
        2 => Argument::Out(size),
        3 => Argument::Both(size),
        _ => Argument::Value,
    }
}

pub(crate) async fn ioctl(call: &mut Call<'_>) -> Result<u64> {
    let (request, at) = (call.arg(1) as u32, call.pointer(2));
    let file = call.file(0).await?;
    let caller = call.caller();
    match request {
        raw::FIOCLEX | raw::FIONCLEX => {
            call.process().files().set_close_on_exec(call.arg(0) as u32, request == raw::FIOCLEX).await?;
            return Ok(0);
        }
        raw::TIOCGPTPEER => {
            let flags = OpenFlags::from_bits_retain(call.arg(2) as u32);
            match file.control(&caller, Control::PtyPeer(flags)).await {
                Ok(ControlAnswer::File(peer)) => return call.install(peer, flags.contains(OpenFlags::CLOEXEC)).await,
                // No terminal: the file says what that is to it.
                Err(Errno::ENOTTY | Errno::EINVAL) => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(Errno::EIO),
            }
        }
        loops::SET_FD | loops::CONFIGURE => {
            if attach_loop(call, &file, request).await? {
                return Ok(0);
            }
        }
        _ => {
            if let Some(answer) = for_any_file(call, &file, request).await? {
                return Ok(answer);
            }
            if let Some(answer) = interfaces::ioctl(call, &*file, request).await? {
                return Ok(answer);
            }
        }
    }
    let argument = argument(request);
    let (mut data, unreadable): (Vec<u8>, bool) = match argument {
        Argument::Value => (call.arg(2).to_ne_bytes().to_vec(), false),
        Argument::In(size) | Argument::Both(size) => {
            let mut data = try_filled(size, 0)?;
            match call.space().read(at, &mut data).await {
                Ok(()) => (data, false),
                // The file may have an answer that comes first: that it does not know the request.
                Err(_) => (Vec::new(), true),
            }
        }
        Argument::Out(size) => (try_filled(size, 0)?, false),
    };
    let result = call.wait_for(&file, file.ioctl(&caller, request, &mut data)).await?;
    if unreadable {
        return Err(Errno::EFAULT);
    }
    if let Argument::Out(size) | Argument::Both(size) = argument {
        data.truncate(size);
        call.space().write(at, &data).await?;
    }
    Ok(result as u64)
}

/// What every file answers, or every regular one (Linux: do_vfs_ioctl). None: the file is to be asked.
async fn for_any_file(call: &Call<'_>, file: &Arc<dyn File>, request: u32) -> Result<Option<u64>> {
    let at = call.pointer(2);
    let kind = |attributes: &Attributes| Kind::of_mode(attributes.mode);
    match request {
        raw::FIONBIO => {
            let on = call.get::<i32>(at).await? != 0;
            let mut flags = file.current_flags().await?;
            flags.set(OpenFlags::NONBLOCK, on);
            file.set_flags(flags).await?;
        }
        raw::FIOASYNC => {
            let on = call.get::<i32>(at).await? != 0;
            if on != file.current_flags().await?.contains(OpenFlags::ASYNC) {
                sigio::set_async(call, file, on).await?;
            }
        }
        raw::FIOSETOWN | raw::SIOCSPGRP if file.socket().is_some() => {
            let id = call.get(at).await?;
            sigio::set_owner(call, file, id).await?;
        }
        raw::FIOGETOWN | raw::SIOCGPGRP if file.socket().is_some() => {
            call.put(at, &sigio::owner(call, file).await?).await?;
        }
        raw::FIOQSIZE => {
            let attributes = file.attributes().await?;
            match kind(&attributes) {
                Some(Kind::Regular | Kind::Directory | Kind::Symlink) => {
                    call.put(at, &(attributes.blocks * 512)).await?
                }
                _ => return Err(Errno::ENOTTY),
            }
        }
        raw::FIGETBSZ => call.put(at, &file.attributes().await?.block_size).await?,
        // No file system here says where its blocks are, or shares them.
        raw::FS_IOC_FIEMAP => return Err(Errno::EOPNOTSUPP),
        raw::FIBMAP if kind(&file.attributes().await?) == Some(Kind::Regular) => {
            if !call.can(abi::capability::SYS_RAWIO) {
                return Err(Errno::EPERM);
            }
            call.get::<i32>(at).await?;
            return Err(Errno::EINVAL);
        }
        raw::FICLONE => return check_clone(call, file, call.int(2)).await,
        raw::FICLONERANGE => {
            let [source, ..]: [u64; 4] = call.get(at).await?;
            return check_clone(call, file, source as i32).await;
        }
        raw::FIDEDUPERANGE => return check_dedupe(call, file).await,
        // Read before the file has its say, which is that it has none.
        raw::FS_IOC_SETFLAGS => {
            call.get::<u32>(at).await?;
            return Ok(None);
        }
        raw::FIONREAD if file.changes().is_none() => {
            let attributes = file.attributes().await?;
            if kind(&attributes) != Some(Kind::Regular) {
                return Ok(None);
            }
            let left = attributes.size as i64 - file.seek(0, Whence::Current).await? as i64;
            call.put(at, &(left as i32)).await?;
        }
        _ => return Ok(None),
    }
    Ok(Some(0))
}

/// A loop device gets the file of a descriptor. False: it is none, or there is no such descriptor: the file has the answer.
async fn attach_loop(call: &Call<'_>, device: &Arc<dyn File>, request: u32) -> Result<bool> {
    if Kind::of_mode(device.attributes().await?.mode) != Some(Kind::BlockDevice) {
        return Ok(false);
    }
    let (descriptor, configuration) = match request {
        loops::CONFIGURE => {
            let mut configuration = try_filled(CONFIGURATION_BYTES, 0)?;
            if call.space().read(call.pointer(2), &mut configuration).await.is_err() {
                return Ok(false);
            }
            (configuration.first_chunk().map_or(-1, |descriptor| i32::from_ne_bytes(*descriptor)), configuration)
        }
        _ => (call.int(2), Vec::new()),
    };
    let file = match call.opened(descriptor).await {
        Ok((file, _)) => file,
        Err(Errno::EBADF) => return Ok(false),
        Err(error) => return Err(error),
    };
    device.control(&call.caller(), Control::AttachLoop { file, configuration }).await?;
    Ok(true)
}

/// What Linux finds wrong with a clone before it finds that the file system has none.
async fn check_clone(call: &Call<'_>, to: &Arc<dyn File>, source: i32) -> Result<Option<u64>> {
    let (from, flags) = call.opened(source).await?;
    let both = [from.attributes().await?, to.attributes().await?];
    let is = |kind| both.each_ref().map(|attributes| Kind::of_mode(attributes.mode) == Some(kind));
    Err(match to.flags().writable() && flags.readable() && !to.flags().contains(OpenFlags::APPEND) {
        _ if both[0].dev != both[1].dev => Errno::EXDEV,
        _ if is(Kind::Directory).contains(&true) => Errno::EISDIR,
        _ if is(Kind::Regular).contains(&false) => Errno::EINVAL,
        false => Errno::EBADF,
        true => Errno::EOPNOTSUPP,
    })
}

/// The same for FIDEDUPERANGE: `struct file_dedupe_range`, whose third word has a count of ranges in its low 16 bits.
async fn check_dedupe(call: &Call<'_>, from: &Arc<dyn File>) -> Result<Option<u64>> {
    const HEADER: usize = 24;
    let at = call.pointer(2);
    let last: u64 = call.get(at.add(16)).await?;
    let size = HEADER + 32 * usize::from(last as u16);
    if size > PAGE_SIZE {
        return Err(Errno::ENOMEM);
    }
    call.space().read(at, &mut try_filled(size, 0)?).await?;
    if last >> 16 != 0 || !from.flags().readable() {
        return Err(Errno::EINVAL);
    }
    Err(match Kind::of_mode(from.attributes().await?.mode) {
        Some(Kind::Directory) => Errno::EISDIR,
        Some(Kind::Regular) => Errno::EOPNOTSUPP,
        _ => Errno::EINVAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_requests_are_listed_and_new_ones_say_themselves() {
        assert_eq!(argument(raw::TCGETS), Argument::Out(36));
        assert_eq!(argument(raw::TIOCSCTTY), Argument::Value);
        assert_eq!(argument(raw::TCSBRK), Argument::Value);
        assert_eq!(argument(raw::TIOCGPTN), Argument::Out(4));
        assert_eq!(argument(raw::TIOCSPTLCK), Argument::In(4));
        assert_eq!(argument(raw::TCSETS2), Argument::In(44));
        assert_eq!(argument(raw::FIONREAD), Argument::Out(4));
    }
}

//! ioctl(2): which way each request's argument goes and how large it is. What a request does is the file's.

use crate::call::Call;
use alloc::{vec, vec::Vec};
use fs::{
    control::{Control, ControlAnswer},
    Kind, OpenFlags, Whence,
};
use linux_raw_sys::ioctl as raw;
use machine::{errno::Result, Errno};

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

const INT: usize = 4;
const TERMIOS: usize = 36;
const TERMIO: usize = 18;
const WINSIZE: usize = 8;

const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;
const FIDEDUPERANGE: u32 = 0xc018_9436;

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
        | raw::TIOCGSOFTCAR => Argument::Out(INT),
        raw::TIOCSPGRP
        | raw::TIOCPKT
        | raw::TIOCSETD
        | raw::TIOCMSET
        | raw::TIOCMBIS
        | raw::TIOCMBIC
        | raw::TIOCSSOFTCAR => Argument::In(INT),
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
    if file.flags().contains(OpenFlags::PATH) {
        return Err(Errno::EBADF);
    }
    let caller = call.caller();
    match request {
        raw::FIOCLEX | raw::FIONCLEX => {
            call.process().files().set_close_on_exec(call.arg(0) as u32, request == raw::FIOCLEX).await?;
            return Ok(0);
        }
        raw::FIONBIO => {
            let on: i32 = call.get(at).await?;
            let mut flags = file.current_flags().await?;
            flags.set(OpenFlags::NONBLOCK, on != 0);
            file.set_flags(flags).await?;
            return Ok(0);
        }
        // Their argument is encoded as a pointer but is a number, or names other files.
        FICLONE | FICLONERANGE | FIDEDUPERANGE => return Err(Errno::EOPNOTSUPP),
        raw::FIONREAD if file.changes().is_none() => {
            let attributes = file.attributes().await?;
            if attributes.kind() == Kind::Regular {
                let left = attributes.size.saturating_sub(file.seek(0, Whence::Current).await?);
                call.put(at, &(left.min(i32::MAX as u64) as i32)).await?;
                return Ok(0);
            }
        }
        raw::TIOCGPTPEER => {
            let flags = OpenFlags::from_bits_retain(call.arg(2) as u32);
            return match file.control(&caller, Control::PtyPeer(flags)).await? {
                ControlAnswer::File(peer) => call.install(peer, flags.contains(OpenFlags::CLOEXEC)).await,
                _ => Err(Errno::EIO),
            };
        }
        _ => {}
    }
    let argument = argument(request);
    let mut data: Vec<u8> = match argument {
        Argument::Value => call.arg(2).to_ne_bytes().to_vec(),
        Argument::In(size) | Argument::Both(size) => {
            let mut data = vec![0; size];
            call.space().read(at, &mut data).await?;
            data
        }
        Argument::Out(size) => vec![0; size],
    };
    let result = call.wait_for(&file, file.ioctl(&caller, request, &mut data)).await?;
    if let Argument::Out(size) | Argument::Both(size) = argument {
        data.truncate(size);
        call.space().write(at, &data).await?;
    }
    Ok(result as u64)
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

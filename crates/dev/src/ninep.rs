//! 9P over a device that answers requests: virtio-9p (device type 9; the mount tag is in its configuration).
//!
//! The client is `fs::ninep`; this is only its way out. The device matches a reply to its request by the buffers, so
//! any number may be under way and tags are the client's affair. Here it is decided how large a buffer the reply
//! needs, and a reply that is not even a 9P message is kept from the client.

use alloc::{sync::Arc, vec::Vec};

use machine::errno::Result;
use machine::{Errno, Exchange};

/// size[4] type[1] tag[2]
const HEADER: usize = 7;
/// Where Tread and Treaddir have their count: after fid[4] and offset[8].
const COUNT: usize = HEADER + 12;

const TREADDIR: u8 = 40;
const TREAD: u8 = 116;

/// Enough for every reply whose size is not the client's choice: Rreadlink with a target of PATH_MAX bytes is the
/// longest.
const SMALL_REPLY: usize = 8 * 1024;

/// A 9P server behind one device.
pub struct Server {
    tag: Vec<u8>,
    device: Arc<dyn Exchange>,
}

impl Server {
    pub fn new(tag: Vec<u8>, device: Arc<dyn Exchange>) -> Self {
        Server { tag, device }
    }

    /// The mount tag: `root`, `share0`, ...
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }

    /// Sends a T-message and gives the R-message. Dropping the future does not undo the request (see
    /// [`Exchange::exchange`]).
    pub async fn request(&self, message: Vec<u8>) -> Result<Vec<u8>> {
        let Some(room) = reply_room(&message) else {
            return Err(Errno::EINVAL);
        };
        let tag = [message[5], message[6]];
        let mut reply = self.device.exchange(message, room).await?;
        // The device says how much of the buffer it used; the message says how long it is.
        let size = reply
            .first_chunk()
            .map_or(0, |size| u32::from_le_bytes(*size) as usize);
        if size < HEADER || size > reply.len() || reply[5..7] != tag {
            log::error!("9p {}: malformed reply", self.tag.escape_ascii());
            return Err(Errno::EIO);
        }
        reply.truncate(size);
        Ok(reply)
    }
}

/// Room that the reply to `message` may need; None if it is no whole message.
fn reply_room(message: &[u8]) -> Option<usize> {
    let size = u32::from_le_bytes(*message.first_chunk()?) as usize;
    if size < HEADER || size != message.len() {
        return None;
    }
    match message[4] {
        TREAD | TREADDIR => {
            let count = u32::from_le_bytes(*message.get(COUNT..)?.first_chunk()?) as usize;
            // The reply: header, count[4], data. An error (Rlerror) must fit too.
            Some(count.checked_add(HEADER + 4)?.max(64))
        }
        _ => Some(SMALL_REPLY),
    }
}

/// The mount tag in a device's configuration: a length[2] and as many bytes (virtio 1.x has it so in QEMU's
/// `struct virtio_9p_config`).
pub fn mount_tag(configuration: &[u8]) -> Option<Vec<u8>> {
    let length = u16::from_le_bytes(*configuration.first_chunk()?) as usize;
    Some(configuration.get(2..2 + length)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{boxed::Box, vec};
    use core::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };
    use machine::{sync::Lock, BoxFuture};

    /// Answers every request with the same bytes and remembers the room it was given.
    struct Fixed {
        reply: Vec<u8>,
        room: Lock<usize>,
    }

    impl Exchange for Fixed {
        fn exchange(&self, _request: Vec<u8>, room: usize) -> BoxFuture<'_, Result<Vec<u8>>> {
            *self.room.lock() = room;
            let mut reply = self.reply.clone();
            reply.truncate(room);
            Box::pin(core::future::ready(Ok(reply)))
        }
    }

    fn message(kind: u8, tag: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn ask(request: Vec<u8>, reply: Vec<u8>) -> (Result<Vec<u8>>, usize) {
        let device = Arc::new(Fixed {
            reply,
            room: Lock::new(0),
        });
        let server = Server::new(b"root".to_vec(), device.clone());
        let answer = pin!(server.request(request)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(answer) = answer else {
            panic!("the fake answers at once")
        };
        let room = *device.room.lock();
        (answer, room)
    }

    #[test]
    fn a_read_has_room_for_its_count_and_the_header() {
        let mut body = vec![0; 12];
        body.extend_from_slice(&524_288u32.to_le_bytes());
        let (answer, room) = ask(message(TREAD, 7, &body), message(117, 7, &[0, 0, 0, 0]));
        assert_eq!(room, 524_288 + 11);
        assert_eq!(answer.unwrap().len(), 11);
    }

    #[test]
    fn a_reply_is_cut_to_its_own_size() {
        let mut reply = message(111, 3, &[1, 2]);
        reply.extend_from_slice(&[0; 100]);
        assert_eq!(
            ask(message(110, 3, &[]), reply).0.unwrap(),
            message(111, 3, &[1, 2])
        );
    }

    #[test]
    fn a_malformed_reply_is_an_input_output_error() {
        let request = || message(110, 3, &[]);
        let mut long = message(111, 3, &[]);
        long[0] = 200;
        for reply in [
            vec![],
            vec![7, 0, 0],
            message(111, 4, &[]),
            long,
            vec![0; 20],
        ] {
            assert_eq!(
                ask(request(), reply.clone()).0,
                Err(Errno::EIO),
                "{reply:?}"
            );
        }
    }

    #[test]
    fn what_is_no_message_never_reaches_the_device() {
        let mut wrong = message(110, 3, &[]);
        wrong.push(0);
        for request in [vec![], wrong, message(TREAD, 1, &[0; 3])] {
            assert_eq!(ask(request, message(111, 3, &[])), (Err(Errno::EINVAL), 0));
        }
    }

    #[test]
    fn mount_tags() {
        assert_eq!(
            mount_tag(&[4, 0, b'r', b'o', b'o', b't', 0, 0]),
            Some(b"root".to_vec())
        );
        assert_eq!(mount_tag(&[9, 0, b'r']), None);
        assert_eq!(mount_tag(&[]), None);
    }
}

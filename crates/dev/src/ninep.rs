//! 9P over a device that answers requests: virtio-9p (device type 9; the mount tag is in its configuration).
//!
//! The client is `fs::ninep`; this is its way out. The device matches a reply to its request by the buffers, so any
//! number may be under way and tags are the client's affair. What is not a 9P message at all is stopped here, in
//! both directions.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use machine::errno::Result;
use machine::{BoxFuture, Errno, Exchange};

/// size[4] type[1] tag[2]
const HEADER: usize = 7;

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

    async fn request(&self, message: Vec<u8>, room: usize) -> Result<Vec<u8>> {
        if size(&message) != Some(message.len()) {
            return Err(Errno::EINVAL);
        }
        let tag = [message[5], message[6]];
        let mut reply = self.device.exchange(message, room).await?;
        // The device says how much of the buffer it used; the message says how long it is.
        match size(&reply) {
            Some(size) if size <= reply.len() && reply[5..7] == tag => reply.truncate(size),
            _ => {
                log::error!("9p {}: malformed reply", self.tag.escape_ascii());
                return Err(Errno::EIO);
            }
        }
        Ok(reply)
    }
}

impl Exchange for Server {
    fn exchange(&self, request: Vec<u8>, room: usize) -> BoxFuture<'_, Result<Vec<u8>>> {
        Box::pin(self.request(request, room))
    }
}

/// The size that a message says it has; None if it can't be one.
fn size(message: &[u8]) -> Option<usize> {
    let size = u32::from_le_bytes(*message.first_chunk()?) as usize;
    (size >= HEADER && message.len() >= HEADER).then_some(size)
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
    use alloc::vec;
    use core::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };
    use machine::sync::Lock;

    const ROOM: usize = 4096;

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
        let device = Arc::new(Fixed { reply, room: Lock::new(0) });
        let server = Server::new(b"root".to_vec(), device.clone());
        let answer = pin!(server.exchange(request, ROOM)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(answer) = answer else { panic!("the fake answers at once") };
        let room = *device.room.lock();
        (answer, room)
    }

    #[test]
    fn the_room_is_the_clients_choice() {
        let (answer, room) = ask(message(116, 7, &[0; 16]), message(117, 7, &[0, 0, 0, 0]));
        assert_eq!((answer.unwrap().len(), room), (11, ROOM));
    }

    #[test]
    fn a_reply_is_cut_to_its_own_size() {
        let mut reply = message(111, 3, &[1, 2]);
        reply.extend_from_slice(&[0; 100]);
        assert_eq!(ask(message(110, 3, &[]), reply).0.unwrap(), message(111, 3, &[1, 2]));
    }

    #[test]
    fn a_malformed_reply_is_an_input_output_error() {
        let request = || message(110, 3, &[]);
        let mut long = message(111, 3, &[]);
        long[0] = 200;
        for reply in [vec![], vec![7, 0, 0], message(111, 4, &[]), long, vec![0; 20]] {
            assert_eq!(ask(request(), reply.clone()).0, Err(Errno::EIO), "{reply:?}");
        }
    }

    #[test]
    fn what_is_no_message_never_reaches_the_device() {
        let mut wrong = message(110, 3, &[]);
        wrong.push(0);
        for request in [vec![], wrong, vec![5, 0, 0, 0, 1]] {
            assert_eq!(ask(request, message(111, 3, &[])), (Err(Errno::EINVAL), 0));
        }
    }

    #[test]
    fn mount_tags() {
        assert_eq!(mount_tag(&[4, 0, b'r', b'o', b'o', b't', 0, 0]), Some(b"root".to_vec()));
        assert_eq!(mount_tag(&[9, 0, b'r']), None);
        assert_eq!(mount_tag(&[]), None);
    }
}

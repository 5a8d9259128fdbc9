//! One stream of frames, to a daemon or to one who says that he is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::clock::Moment;
use crate::protocol::frame::{BadFrame, Decoder, FRAME_BYTES_MAX, Frame};
use crate::protocol::message::Reply;

/// Bytes that wait to be sent before nothing more is answered.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of memory that a quiet stream keeps.
const QUIET_BYTES_MAX: usize = 16 << 10;

/// How a stream came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The agent dialed it.
    Dialed,
    /// It came in over the agent's own socket.
    Bridged,
}

/// Whether the other side has said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Not yet; it has until then.
    Unknown(Moment),
    /// It is a daemon.
    Daemon,
}

/// A stream that is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<BadFrame> for Broken {
    fn from(_: BadFrame) -> Self {
        Self
    }
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Link {
    /// Tells it from all others, earlier ones too.
    pub(crate) id: u64,
    /// How it came to be.
    pub(crate) origin: Origin,
    /// Who is at its other end.
    pub(crate) peer: Peer,
    /// Something was left undone because too much waited to be sent.
    pub(crate) is_stalled: bool,
    socket: OwnedFd,
    decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
}

impl Link {
    /// Makes a stream of a connected socket that does not block.
    pub(crate) fn new(id: u64, origin: Origin, socket: OwnedFd, greeted_by: Moment) -> Self {
        Self {
            id,
            origin,
            peer: Peer::Unknown(greeted_by),
            is_stalled: false,
            socket,
            decoder: Decoder::default(),
            out: Vec::new(),
            sent: 0,
        }
    }

    /// Tells whether something waits to be sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Tells whether so much waits to be sent that nothing more is answered.
    pub(crate) fn is_full(&self) -> bool {
        WAITING_BYTES_MAX <= self.out.len() - self.sent
    }

    /// Reads once what has arrived.
    pub(crate) fn read(&mut self) -> Result<(), Broken> {
        let mut piece = Vec::with_capacity(READ_BYTES);
        match rustix::io::read(&self.socket, rustix::buffer::spare_capacity(&mut piece)) {
            Ok(0) => Err(Broken),
            Ok(_) => {
                self.decoder.push(&piece);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Broken),
        }
    }

    /// Returns the next frame that has arrived.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame>, Broken> {
        Ok(self.decoder.next()?)
    }

    /// Appends an answer to what is to be sent.
    pub(crate) fn reply(&mut self, reply: &Reply) -> Result<(), Broken> {
        let json = serde_json::to_vec(reply).map_err(|_| Broken)?;
        Ok(Frame::Message(json.into()).put(&mut self.out)?)
    }

    /// Returns where answers of bytes are packed.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends as much as is taken.
    pub(crate) fn send(&mut self) -> Result<(), Broken> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.socket, rest) {
                Ok(written) => self.sent += written,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if FRAME_BYTES_MAX < self.sent {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Gives back the memory of large answers.
    pub(crate) fn rest(&mut self) {
        if self.out.is_empty() && QUIET_BYTES_MAX < self.out.capacity() {
            self.out = Vec::new();
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

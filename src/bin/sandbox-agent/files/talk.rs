//! Hears requests on standard input and answers on standard output.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::pipe;

use crate::clock::{Moment, span};
use crate::protocol::files::{Ask, Say};
use crate::protocol::frame::{BadFrame, Decoder};

/// Bytes of answers that are gathered before they are sent.
const GATHERED_BYTES: usize = 64 << 10;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Milliseconds without a request after which nobody is there any more who could ask: the
/// way to the daemon has broken, and whoever asks again begins anew.
const QUIET_MILLIS_MAX: u64 = 60_000;

/// The streams of the run.
#[derive(Debug)]
pub(super) struct Talk {
    decoder: Decoder,
    out: Vec<u8>,
    /// Becomes readable when the process is to end.
    end: UnixStream,
}

/// There is nobody to talk to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over;

impl From<BadFrame> for Over {
    fn from(_: BadFrame) -> Self {
        Self
    }
}

impl Talk {
    /// Takes the streams, which nobody else reads or writes.
    pub(super) fn begin() -> std::io::Result<Self> {
        let (end, on_end) = UnixStream::pair()?;
        pipe::register(SIGTERM, on_end)?;
        for stream in [stdin(), stdout()] {
            let flags = rustix::fs::fcntl_getfl(stream)?;
            rustix::fs::fcntl_setfl(stream, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self {
            decoder: Decoder::default(),
            out: Vec::new(),
            end,
        })
    }

    /// Waits for the next request; what was said before is sent first.
    pub(super) fn hear(&mut self) -> Result<Ask, Over> {
        loop {
            if let Some(ask) = self.decoder.next_as(Ask::parse)? {
                return Ok(ask);
            }
            self.send()?;
            let mut piece = Vec::with_capacity(READ_BYTES);
            match rustix::io::read(stdin(), rustix::buffer::spare_capacity(&mut piece)) {
                Ok(0) => return Err(Over),
                Ok(_) => self.decoder.push(&piece),
                Err(Errno::AGAIN) => self.wait(stdin(), PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over),
            }
        }
    }

    /// Says something, which is sent with what follows.
    pub(super) fn say(&mut self, say: &Say) -> Result<(), Over> {
        say.put(&mut self.out)?;
        if GATHERED_BYTES <= self.out.len() {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Over> {
        let mut sent = 0;
        while let Some(rest) = self.out.get(sent..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(stdout(), rest) {
                Ok(written) => sent += written,
                Err(Errno::AGAIN) => self.wait(stdout(), PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Waits until a stream is ready, for as long as somebody may be there.
    fn wait(&self, stream: BorrowedFd<'_>, flags: PollFlags) -> Result<(), Over> {
        let until = Moment::read().after(QUIET_MILLIS_MAX);
        let mut fds = [
            PollFd::from_borrowed_fd(stream, flags),
            PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN),
        ];
        let ready = loop {
            match poll(&mut fds, Some(&span(Moment::read(), until))) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let [_, end] = &fds;
        if matches!(ready, Ok(1..)) && end.revents().is_empty() {
            Ok(())
        } else {
            Err(Over)
        }
    }
}

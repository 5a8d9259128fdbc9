//! Joins its own streams to the agent's socket, for an engine that can only exec.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::clock::Moment;
use crate::streams::set_nonblocking;

/// Milliseconds for which a socket is waited for.
const PATIENCE_MILLIS: u64 = 2000;
const REST: Duration = Duration::from_millis(20);
/// Bytes on the way in each direction.
const BUFFER_BYTES: usize = 64 << 10;

/// Joins standard input and output to the socket until either side ends.
///
/// # Errors
/// Says why the agent was not reached.
pub(crate) fn join(path: &Path) -> Result<(), String> {
    let socket = reach(path)?;
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let fds = [socket.as_fd(), stdin, stdout];
    for fd in fds {
        set_nonblocking(fd).map_err(|errno| format!("prepare the streams: {errno}"))?;
    }
    let mut up = Way::new(stdin, socket.as_fd());
    let mut down = Way::new(socket.as_fd(), stdout);
    while up.carry() == Carried::On && down.carry() == Carried::On {
        let mut fds = [up.wants(), down.wants()];
        if let Err(errno) = poll(&mut fds, None)
            && errno != Errno::INTR
        {
            return Err(format!("wait: {errno}"));
        }
    }
    Ok(())
}

fn reach(path: &Path) -> Result<OwnedFd, String> {
    let start = Moment::read();
    loop {
        let why = match dial(path) {
            Ok(socket) => return Ok(socket),
            Err(why) => why,
        };
        if start.after(PATIENCE_MILLIS) < Moment::read() {
            return Err(why);
        }
        std::thread::sleep(REST);
    }
}

fn dial(path: &Path) -> Result<OwnedFd, String> {
    let open = || {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let peer = socket_peercred(&socket)?;
        Ok::<_, Errno>((socket, peer))
    };
    let found = open().map_err(|errno| format!("connect to {}: {errno}", path.display()));
    let (socket, peer) = found?;
    if peer.pid.as_raw_pid() == 1 {
        return Ok(socket);
    }
    // Something in the sandbox has taken the place of the agent's socket.
    Err(format!("{} is not the agent's", path.display()))
}

/// One direction.
struct Way<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    buffer: Vec<u8>,
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    On,
    End,
}

impl<'a> Way<'a> {
    fn new(from: BorrowedFd<'a>, to: BorrowedFd<'a>) -> Self {
        Self {
            from,
            to,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            written: 0,
        }
    }

    /// Returns what it waits for.
    fn wants(&self) -> PollFd<'a> {
        if self.buffer.is_empty() {
            PollFd::from_borrowed_fd(self.from, PollFlags::IN)
        } else {
            PollFd::from_borrowed_fd(self.to, PollFlags::OUT)
        }
    }

    /// Carries what can be carried at once.
    fn carry(&mut self) -> Carried {
        loop {
            if self.buffer.is_empty() {
                let spare = rustix::buffer::spare_capacity(&mut self.buffer);
                match rustix::io::read(self.from, spare) {
                    Ok(1..) => {}
                    Err(Errno::AGAIN | Errno::INTR) => return Carried::On,
                    Ok(0) | Err(_) => return Carried::End,
                }
            }
            let rest = self.buffer.get(self.written..).unwrap_or_default();
            match rustix::io::write(self.to, rest) {
                Ok(written) => self.written += written,
                Err(Errno::AGAIN | Errno::INTR) => return Carried::On,
                Err(_) => return Carried::End,
            }
            if self.written == self.buffer.len() {
                self.buffer.clear();
                self.written = 0;
            }
        }
    }
}

//! The ends of a run's streams that the agent holds.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::launch::Ends;
use crate::protocol::PIECES_MAX;
use crate::protocol::message::{Size, Stdin, Streams};
use crate::protocol::output::Stream;
use crate::tape::{Taken, Tape};
use crate::text;

/// Bytes of one read.
pub(crate) const READ_BYTES: usize = 128 << 10;
/// Bytes of a pipe through which much is written.
const PIPE_BYTES: usize = 256 << 10;
/// What a full pipe of the first size gives in one read.
const PIPE_BYTES_AT_FIRST: usize = 64 << 10;
/// Reads that take what a terminal holds at the end of its run.
const LAST_READS_MAX: usize = 64;
/// The character that ends the input of a terminal.
const END_OF_INPUT: u8 = 4;

/// An end that a run writes to.
#[derive(Debug)]
pub(crate) struct Outlet {
    fd: OwnedFd,
    stream: Stream,
    kind: Kind,
    /// The begin of a character whose rest was not read yet.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    GrownPipe,
    Terminal,
}

/// What a read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// So many bytes.
    Bytes(usize, Taken),
    /// Nothing for now.
    Nothing,
    /// Nobody holds the other end any more.
    End,
}

impl Outlet {
    /// Reads once, at most so many bytes, and keeps what the tape wants.
    pub(crate) fn read(&mut self, most: usize, ring_bytes: usize, tape: &mut Tape) -> Got {
        let mut buffer = Vec::with_capacity(most.min(READ_BYTES) + self.held.len());
        buffer.append(&mut self.held);
        let held = buffer.len();
        let got = rustix::io::read(&self.fd, rustix::buffer::spare_capacity(&mut buffer));
        match got {
            Err(Errno::AGAIN | Errno::INTR) => {
                self.held = buffer;
                Got::Nothing
            }
            // A terminal nobody writes to any more answers with an error.
            Ok(0) | Err(_) => {
                tape.take(self.stream, &buffer, ring_bytes);
                Got::End
            }
            Ok(read) => {
                let (whole, rest) = buffer.split_at(held + read - text::unfinished(&buffer));
                let taken = tape.take(self.stream, whole, ring_bytes);
                self.held = rest.to_vec();
                if PIPE_BYTES_AT_FIRST <= read && self.kind == Kind::Pipe {
                    self.kind = Kind::GrownPipe;
                    fcntl_setpipe_size(&self.fd, PIPE_BYTES).ok();
                }
                Got::Bytes(read, taken)
            }
        }
    }

    /// Takes what can be read without waiting, which is what its run wrote until it
    /// ended; returns the end where somebody may still write to it.
    pub(crate) fn finish(mut self, ring_bytes: usize, tape: &mut Tape) -> Option<OwnedFd> {
        let mut left = match self.kind {
            Kind::Terminal => LAST_READS_MAX * READ_BYTES,
            Kind::Pipe | Kind::GrownPipe => {
                let there = rustix::io::ioctl_fionread(&self.fd).unwrap_or_default();
                usize::try_from(there).unwrap_or(usize::MAX)
            }
        };
        while 0 < left {
            match self.read(left, ring_bytes, tape) {
                Got::Bytes(read, _) => left = left.saturating_sub(read),
                Got::Nothing => break,
                Got::End => return None,
            }
        }
        tape.take(self.stream, &std::mem::take(&mut self.held), ring_bytes);
        Some(self.fd)
    }
}

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An end that a run reads from.
#[derive(Debug)]
pub(crate) struct Inlet {
    fd: OwnedFd,
    kind: Kind,
    queue: VecDeque<Piece>,
}

/// Input that was not taken yet.
#[derive(Debug)]
struct Piece {
    asker: Option<Asker>,
    bytes: Vec<u8>,
    written: usize,
    ends: bool,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The stream.
    pub(crate) link: u64,
    /// The number of the request.
    pub(crate) ask: u64,
}

/// How the input of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// It takes more.
    Yes,
    /// It was ended, or the run does not read it any more.
    No,
}

impl Inlet {
    /// Appends input; `false` where too much waits already.
    pub(crate) fn push(&mut self, asker: Option<Asker>, mut bytes: Vec<u8>, ends: bool) -> bool {
        if PIECES_MAX <= self.queue.len() {
            return false;
        }
        if ends && self.kind == Kind::Terminal {
            bytes.push(END_OF_INPUT);
        }
        self.queue.push_back(Piece {
            asker,
            bytes,
            written: 0,
            ends,
        });
        true
    }

    /// Tells whether something waits to be written.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Tells whether the end of the input is on its way.
    pub(crate) fn is_ending(&self) -> bool {
        self.kind != Kind::Terminal && self.queue.iter().any(|piece| piece.ends)
    }

    /// Writes what is taken, and tells whose input was.
    pub(crate) fn write(&mut self, done: &mut Vec<Asker>) -> Open {
        while let Some(piece) = self.queue.front_mut() {
            let rest = piece.bytes.get(piece.written..).unwrap_or_default();
            if !rest.is_empty() {
                match rustix::io::write(&self.fd, rest) {
                    Ok(written) => piece.written += written,
                    Err(Errno::AGAIN | Errno::INTR) => return Open::Yes,
                    Err(_) => return Open::No,
                }
                continue;
            }
            done.extend(piece.asker);
            let ends = piece.ends;
            self.queue.pop_front();
            if ends && self.kind != Kind::Terminal {
                return Open::No;
            }
        }
        Open::Yes
    }

    /// Takes back what was not written of a request.
    pub(crate) fn cancel(&mut self, asker: Asker) {
        self.queue.retain(|piece| piece.asker != Some(asker));
    }

    /// Returns whose input was not taken.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Asker> {
        self.queue.iter().filter_map(|piece| piece.asker)
    }

    /// Changes the size of a terminal; `false` where it is none.
    pub(crate) fn resize(&self, size: Size) -> bool {
        self.kind == Kind::Terminal && set_size(&self.fd, size).is_ok()
    }
}

impl AsFd for Inlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The ends of all streams of a run that is to be started.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What the agent reads from.
    pub(crate) outlets: Vec<Outlet>,
    /// What it writes to.
    pub(crate) inlet: Option<Inlet>,
    /// What the child gets.
    pub(crate) ends: Ends,
}

/// Makes the streams of a run; `owner` is the user of its terminal, where it is another.
pub(crate) fn open(streams: Streams, stdin: &Stdin, owner: Option<u32>) -> Result<Opened, Errno> {
    match streams {
        Streams::Tty(size) => open_terminal(size, stdin, owner),
        Streams::Merged => {
            let (outlet, out) = outlet(Stream::Out)?;
            let err = out.try_clone().map_err(|_| Errno::MFILE)?;
            with_input(vec![outlet], stdin, out, err)
        }
        Streams::Split => {
            let (of_out, out) = outlet(Stream::Out)?;
            let (of_err, err) = outlet(Stream::Err)?;
            with_input(vec![of_out, of_err], stdin, out, err)
        }
    }
}

fn outlet(stream: Stream) -> Result<(Outlet, OwnedFd), Errno> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    set_nonblocking(&ours)?;
    let outlet = Outlet {
        fd: ours,
        stream,
        kind: Kind::Pipe,
        held: Vec::new(),
    };
    Ok((outlet, theirs))
}

fn with_input(
    outlets: Vec<Outlet>,
    stdin: &Stdin,
    out: OwnedFd,
    err: OwnedFd,
) -> Result<Opened, Errno> {
    let (inlet, input) = match stdin {
        Stdin::Closed => (None, None),
        Stdin::Open | Stdin::Text(_) => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            set_nonblocking(&ours)?;
            (Some(inlet(ours, Kind::Pipe, stdin)), Some(theirs))
        }
    };
    let ends = Ends { input, out, err };
    Ok(Opened {
        outlets,
        inlet,
        ends,
    })
}

fn inlet(fd: OwnedFd, kind: Kind, stdin: &Stdin) -> Inlet {
    let mut inlet = Inlet {
        fd,
        kind,
        queue: VecDeque::new(),
    };
    if let Stdin::Text(text) = stdin {
        inlet.push(None, text.clone().into_bytes(), true);
    }
    inlet
}

fn open_terminal(size: Size, stdin: &Stdin, owner: Option<u32>) -> Result<Opened, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let slave = if let Ok(slave) = rustix::pty::ioctl_tiocgptpeer(&master, flags) {
        slave
    } else {
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(name, flags, Mode::empty())?
    };
    if let Some(owner) = owner {
        // Without the right to give it away it stays as it is; it is inherited open.
        rustix::fs::fchown(&slave, Some(rustix::fs::Uid::from_raw(owner)), None).ok();
    }
    set_size(&master, size)?;
    set_nonblocking(&master)?;
    let clone = |fd: &OwnedFd| fd.try_clone().map_err(|_| Errno::MFILE);
    let (writer, input, err) = (clone(&master)?, clone(&slave)?, clone(&slave)?);
    let outlet = Outlet {
        fd: master,
        stream: Stream::Out,
        kind: Kind::Terminal,
        held: Vec::new(),
    };
    Ok(Opened {
        outlets: vec![outlet],
        inlet: Some(inlet(writer, Kind::Terminal, stdin)),
        ends: Ends {
            input: Some(input),
            out: slave,
            err,
        },
    })
}

fn set_size(master: &OwnedFd, size: Size) -> Result<(), Errno> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(master, size)
}

/// Has reads and writes return at once.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
}

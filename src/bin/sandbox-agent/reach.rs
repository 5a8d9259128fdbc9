//! Makes streams: dials the daemon's socket, and listens on the agent's own.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::clock::Moment;
use crate::processes::look_at;

/// The first rest after a dial that failed; it doubles.
const REST_MILLIS: u64 = 10;
/// The longest rest between two dials.
const REST_MILLIS_MAX: u64 = 1000;
/// Streams that wait to be accepted.
const BACKLOG: i32 = 8;

/// Dials until it is answered, and again when the stream breaks.
#[derive(Debug)]
pub(crate) struct Dialer {
    path: PathBuf,
    watch: Option<OwnedFd>,
    /// When it dials next; never while there is a stream.
    next: Option<Moment>,
    rest_millis: u64,
}

impl Dialer {
    /// Makes one that dials at once.
    pub(crate) fn new(path: PathBuf, now: Moment) -> Self {
        Self {
            watch: None,
            path,
            next: Some(now),
            rest_millis: REST_MILLIS,
        }
    }

    /// Returns when it dials next.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.next
    }

    /// Returns what becomes readable when something changes beside the socket, while
    /// there is no stream.
    pub(crate) fn watch(&self) -> Option<BorrowedFd<'_>> {
        self.next.and(self.watch.as_ref()).map(OwnedFd::as_fd)
    }

    /// Dials once, where it is time.
    pub(crate) fn dial(&mut self, now: Moment) -> Option<OwnedFd> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        // The watch comes first: a socket made after the dial is seen then.
        if self.watch.is_none() {
            self.watch = self.path.parent().and_then(|dir| watch(dir).ok());
        }
        if let Ok(socket) = dial(&self.path) {
            self.next = None;
            Some(socket)
        } else {
            self.rest(now);
            None
        }
    }

    /// Dials again soon: something has changed beside the socket.
    pub(crate) fn changed(&mut self, now: Moment) {
        let mut events = Vec::with_capacity(4096);
        if let Some(watch) = &self.watch {
            while rustix::io::read(watch, rustix::buffer::spare_capacity(&mut events)).is_ok() {
                events.clear();
            }
        }
        self.rest_millis = REST_MILLIS;
        self.next = self.next.map(|next| next.min(now));
    }

    /// Dials again: the stream has broken.
    pub(crate) fn broke(&mut self, now: Moment) {
        self.rest(now);
    }

    /// Has found a daemon; the next rest is short again.
    pub(crate) fn found(&mut self) {
        self.rest_millis = REST_MILLIS;
    }

    fn rest(&mut self, now: Moment) {
        self.next = Some(now.after(self.rest_millis));
        self.rest_millis = (self.rest_millis * 2).min(REST_MILLIS_MAX);
    }
}

fn watch(dir: &Path) -> Result<OwnedFd, Errno> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, dir, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
    Ok(watch)
}

fn dial(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The agent's own socket, for the bridge.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

impl Listener {
    /// Listens at a path, in place of an agent that is gone.
    pub(crate) fn new(path: &Path) -> Result<Self, Errno> {
        let socket = new_socket()?;
        let address = SocketAddrUnix::new(path)?;
        rustix::fs::unlink(path).ok();
        bind(&socket, &address)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).ok();
        listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Accepts a stream, if one waits that comes from outside of the sandbox.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.0, flags).ok()?;
        is_from_outside(&socket).then_some(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells whether the engine has started the process at the other end.
///
/// Such a process has no parent within the sandbox, and one of the sandbox's own always
/// has. Where the agent is not the first process, as on a host, nothing can be told.
fn is_from_outside(socket: &OwnedFd) -> bool {
    if rustix::process::getpid().as_raw_pid() != 1 {
        return true;
    }
    let peer = socket_peercred(socket).ok();
    let process = peer.and_then(|peer| look_at(peer.pid.as_raw_pid()));
    match process {
        Some(process) => process.parent == 0,
        // Where there is no list of processes, nothing can be told either.
        None => look_at(1).is_none(),
    }
}

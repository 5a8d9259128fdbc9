//! Holds the places where agents dial in: a directory and a listener for each session.
//!
//! sandboxd opens nothing in there by a name that a sandbox could have changed: the
//! directories are mounted read-only, and only sandboxd listens. Who dials is a stranger
//! unless its process is the first one of the session's container.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, chmodat, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::arrivals::Arrivals;
use super::berth::{Berth, Expected, Moored};
use super::connection::Connection;
use super::protocol::HOST_SOCKET;
use super::protocol::message::Bounds;
use crate::id::SessionId;
use crate::secret::hex;

/// The name under which a socket is made before it takes its place.
const NEW_SOCKET: &str = "agent.sock.new";
/// Bytes of a session's hash that name its directory.
const NAME_BYTES: usize = 8;

/// The places of all sessions; cheap to clone.
#[derive(Clone, Debug)]
pub struct Dock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    bounds: Bounds,
    arrivals: Arrivals,
    refused: Arc<AtomicU64>,
    apart: Arc<AtomicBool>,
    /// A std mutex: it guards a map, and no await.
    places: Mutex<BTreeMap<SessionId, Place>>,
}

/// The place of one session; its listener ends with it.
#[derive(Debug)]
struct Place {
    /// Which directory it is: device and inode.
    directory: (u64, u64),
    expected: watch::Sender<Option<Expected>>,
    moored: watch::Receiver<Option<Moored>>,
    _listening: JoinSet<()>,
}

impl Dock {
    /// Makes a dock with its directories beneath `root`.
    pub fn new(root: PathBuf, bounds: Bounds, arrivals: Arrivals) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)?;
        Ok(Self(Arc::new(Shared {
            root,
            bounds,
            arrivals,
            refused: Arc::default(),
            apart: Arc::default(),
            places: Mutex::default(),
        })))
    }

    /// Returns the bounds that agents are told.
    pub fn bounds(&self) -> Bounds {
        self.0.bounds
    }

    /// Returns the directory of a session, for its container.
    pub fn directory(&self, session: &SessionId) -> PathBuf {
        self.0.root.join(name(session))
    }

    /// Makes the directory of a session, and listens in it, where either is missing.
    ///
    /// A directory that is there stays the same one, since a container may have it.
    pub fn berth(&self, session: &SessionId) -> io::Result<PathBuf> {
        let path = self.directory(session);
        let directory = directory(&self.0.root, &path)?;
        let seen = identity(&directory)?;
        let mut places = self.places();
        let listens = places
            .get(session)
            .is_some_and(|place| place.directory == seen);
        if listens && has_socket(&directory) {
            return Ok(path);
        }
        let listener = listen(&directory)?;
        let (expected, expectation) = watch::channel(
            places
                .get(session)
                .and_then(|place| place.expected.borrow().clone()),
        );
        let (moor, moored) = watch::channel(None);
        let berth = Berth {
            session: session.clone(),
            bounds: self.0.bounds,
            expected: expectation,
            moored: moor,
            arrivals: self.0.arrivals.clone(),
            refused: Arc::clone(&self.0.refused),
            apart: Arc::clone(&self.0.apart),
        };
        let mut listening = JoinSet::new();
        listening.spawn(berth.listen(listener));
        places.insert(
            session.clone(),
            Place {
                directory: seen,
                expected,
                moored,
                _listening: listening,
            },
        );
        Ok(path)
    }

    /// Says which process may dial: the first one of the session's container.
    ///
    /// The stream of another container of that session ends.
    pub fn expect(&self, session: &SessionId, container: &str, pid: u32) {
        let next = Expected {
            container: container.to_owned(),
            pid,
        };
        if let Some(place) = self.places().get(session) {
            place.expected.send_if_modified(|expected| {
                let changes = expected.as_ref() != Some(&next);
                *expected = Some(next);
                changes
            });
        }
    }

    /// Tells whether it was said who may dial for this container.
    pub fn expects(&self, session: &SessionId, container: &str) -> bool {
        self.places().get(session).is_some_and(|place| {
            let expected = place.expected.borrow();
            expected
                .as_ref()
                .is_some_and(|expected| expected.container == container)
        })
    }

    /// Gives up the place of a session whose container does not run.
    pub fn leave(&self, session: &SessionId) {
        let place = self.places().remove(session);
        self.0.arrivals.forget(session);
        if place.is_some() {
            // What cannot be removed is found again by its name, and costs nothing.
            drop(remove(&self.directory(session)));
        }
    }

    /// Returns the stream of a container, where there is one.
    pub fn connection(&self, session: &SessionId, container: &str) -> Option<Connection> {
        let places = self.places();
        let moored = places.get(session)?.moored.borrow();
        moored
            .as_ref()
            .filter(|moored| moored.container == container)
            .map(|moored| moored.connection.clone())
            .filter(|connection| !connection.is_closed())
    }

    /// Tells whether the agent of a container was ever let in.
    pub fn knew(&self, session: &SessionId, container: &str) -> bool {
        self.places().get(session).is_some_and(|place| {
            let moored = place.moored.borrow();
            moored
                .as_ref()
                .is_some_and(|moored| moored.container == container)
        })
    }

    /// Waits for the stream of a container; for ever where none comes.
    pub async fn dialed(&self, session: &SessionId, container: &str) -> Connection {
        loop {
            let moored = self.places().get(session).map(|place| place.moored.clone());
            let Some(mut moored) = moored else {
                return std::future::pending().await;
            };
            let there = |moored: &Option<Moored>| {
                moored.as_ref().is_some_and(|moored| {
                    moored.container == container && !moored.connection.is_closed()
                })
            };
            if let Ok(moored) = moored.wait_for(there).await
                && let Some(moored) = moored.as_ref()
            {
                return moored.connection.clone();
            }
            // The listener was made again, or the place was given up.
            tokio::task::yield_now().await;
        }
    }

    /// Counts the dialers that were refused.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Tells whether somebody dialed whose process has no number here: the daemon is in a
    /// process namespace of its own, and can tell no agent from a stranger.
    pub fn is_apart(&self) -> bool {
        self.0.apart.load(Ordering::Relaxed)
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<SessionId, Place>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names a session's directory: ids may be longer than what a path has room for.
fn name(session: &SessionId) -> String {
    let hash = Sha256::digest(session.as_str().as_bytes());
    hex(hash.as_slice().get(..NAME_BYTES).unwrap_or_default())
}

/// Opens a session's directory, and makes it where it is missing.
fn directory(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
    };
    if let Ok(directory) = open() {
        return Ok(directory);
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)?;
    match std::fs::DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let directory = open()?;
    // The umask may have taken what the sandbox's user needs.
    let here = openat(
        &directory,
        ".",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::fs::fchmod(&here, Mode::from_raw_mode(0o755))?;
    Ok(directory)
}

fn identity(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let seen = fstat(directory)?;
    Ok((seen.st_dev, seen.st_ino))
}

fn has_socket(directory: &OwnedFd) -> bool {
    statat(directory, HOST_SOCKET, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Listens in a directory. The path is made by its descriptor, since that of a socket has
/// at most 107 bytes; and the socket takes its name when all may dial it.
fn listen(directory: &OwnedFd) -> io::Result<UnixListener> {
    match unlinkat(directory, NEW_SOCKET, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let path = format!("/proc/self/fd/{}/{NEW_SOCKET}", directory.as_raw_fd());
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    chmodat(
        directory,
        NEW_SOCKET,
        Mode::from_raw_mode(0o666),
        AtFlags::empty(),
    )?;
    renameat(directory, NEW_SOCKET, directory, HOST_SOCKET)?;
    UnixListener::from_std(listener)
}

fn remove(path: &Path) -> io::Result<()> {
    let socket = path.join(HOST_SOCKET);
    std::fs::remove_file(socket)?;
    std::fs::remove_dir(path)
}

//! A dock lets in the first process of the expected container, and nobody else.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;

use crate::agent::arrivals::Arrivals;
use crate::agent::connection::Connection;
use crate::agent::dock::Dock;
use crate::agent::testing::{Heard, Scripted, bounds, hello, session};

/// A dock at which session `a` has its place.
struct Place {
    _dir: tempfile::TempDir,
    dock: Dock,
    arrivals: Arrivals,
    directory: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let arrivals = Arrivals::default();
    // No socket could have this path.
    let root = dir.path().join("x".repeat(200));
    let dock = Dock::new(root, bounds(), arrivals.clone()).unwrap();
    let directory = dock.berth(&session("a")).unwrap();
    Place {
        _dir: dir,
        dock,
        arrivals,
        directory,
    }
}

impl Place {
    /// Expects this very process as the first of container `c1`.
    fn expecting(self) -> Self {
        self.dock.expect(&session("a"), "c1", std::process::id());
        self
    }

    /// Dials as the agent that is expected, and is let in.
    async fn let_in(&self) -> (Scripted<UnixStream>, Connection) {
        let mut agent = dial(&self.directory).await;
        agent.introduce(hello()).await;
        let connection = dialed(&self.dock, "a").await;
        (agent, connection)
    }
}

/// Dials as this very process.
async fn dial(directory: &Path) -> Scripted<UnixStream> {
    let directory = std::fs::File::open(directory).unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&directory);
    let path = format!("/proc/self/fd/{descriptor}/agent.sock");
    Scripted::new(UnixStream::connect(path).await.unwrap())
}

async fn dialed(dock: &Dock, id: &str) -> Connection {
    let id = session(id);
    let wait = dock.dialed(&id, "c1");
    tokio::time::timeout(Duration::from_secs(5), wait)
        .await
        .expect("the agent is let in")
}

#[tokio::test]
async fn the_first_process_of_the_container_is_let_in() {
    let place = place().expecting();
    let Place { dock, arrivals, .. } = &place;
    let (_agent, connection) = place.let_in().await;
    let arrival = arrivals.next().await;
    assert_eq!((arrival.session, &*arrival.container), (session("a"), "c1"));
    assert!(arrival.connection.is(&connection));
    assert!(dock.connection(&session("a"), "c2").is_none());
    assert!(dock.connection(&session("a"), "c1").is_some());
}

#[tokio::test]
async fn a_stranger_is_refused_and_counted_and_learns_nothing() {
    let Place {
        dock, directory, ..
    } = &place();
    dock.expect(&session("a"), "c1", 1);
    for _ in 0..3 {
        let mut stranger = dial(directory).await;
        assert!(matches!(stranger.hear().await, Heard::End));
    }
    assert_eq!(dock.refused(), 3);
    assert!(dock.connection(&session("a"), "c1").is_none());
}

#[tokio::test]
async fn of_those_who_dial_before_it_is_known_who_may_the_newest_waits() {
    let Place {
        dock, directory, ..
    } = &place();
    let mut first = dial(directory).await;
    let mut second = dial(directory).await;
    assert!(matches!(first.hear().await, Heard::End));
    dock.expect(&session("a"), "c1", std::process::id());
    second.introduce(hello()).await;
    assert!(!dialed(dock, "a").await.is_closed());
}

#[tokio::test]
async fn the_newest_stream_of_a_session_takes_the_place_of_the_older() {
    let place = place().expecting();
    let Place {
        dock, directory, ..
    } = &place;
    let (_first, old) = place.let_in().await;
    let mut second = dial(directory).await;
    second.introduce(hello()).await;
    old.closed().await;
    let new = dialed(dock, "a").await;
    assert!(!new.is(&old) && !new.is_closed());
}

#[tokio::test]
async fn another_container_ends_the_stream_of_the_one_before() {
    let place = place().expecting();
    let dock = &place.dock;
    let (_agent, old) = place.let_in().await;
    dock.expect(&session("a"), "c2", 1);
    old.closed().await;
    assert!(dock.connection(&session("a"), "c1").is_none());
}

#[tokio::test]
async fn a_directory_stays_the_same_while_its_socket_is_made_again() {
    let Place {
        dock, directory, ..
    } = &place();
    let inode = || std::fs::metadata(directory).unwrap().ino();
    let before = inode();
    dock.berth(&session("a")).unwrap();
    // As after a restart of the daemon, which knows of nothing.
    let root = directory.parent().unwrap().to_path_buf();
    let later = Dock::new(root, bounds(), Arrivals::default()).unwrap();
    assert_eq!(later.berth(&session("a")).unwrap(), *directory);
    later.expect(&session("a"), "c1", std::process::id());
    let mut agent = dial(directory).await;
    agent.introduce(hello()).await;
    dialed(&later, "a").await;
    assert_eq!(inode(), before);
}

#[tokio::test]
async fn the_directory_is_for_all_and_its_parent_for_us() {
    let Place { directory, .. } = &place();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(directory), 0o755);
    assert_eq!(mode(&directory.join("agent.sock")), 0o666);
    assert_eq!(mode(directory.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn who_leaves_leaves_nothing_and_may_come_again() {
    let place = place().expecting();
    let Place {
        dock, directory, ..
    } = &place;
    let (_agent, old) = place.let_in().await;
    dock.leave(&session("a"));
    old.closed().await;
    assert!(!directory.exists());
    assert!(!dock.expects(&session("a"), "c1"));
    assert_eq!(dock.berth(&session("a")).unwrap(), *directory);
}

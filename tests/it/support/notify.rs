//! Stands in for systemd: a socket that collects what a service reports about itself.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const MESSAGE_BYTES_MAX: usize = 4096;

/// A socket to name in `NOTIFY_SOCKET`.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    dir: TempDir,
    socket: UnixDatagram,
    lines: Vec<String>,
}

impl NotifySocket {
    /// Opens a socket under a fresh directory.
    pub(crate) fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let lines = Vec::new();
        Self { dir, socket, lines }
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("notify")
    }

    /// Waits for a line that starts with `prefix` and returns it; earlier ones count.
    ///
    /// Panics with all lines that came when none did `within` that time.
    pub(crate) fn wait_for(&mut self, prefix: &str, within: Duration) -> String {
        let end = Instant::now() + within;
        loop {
            if let Some(line) = self.lines.iter().find(|line| line.starts_with(prefix)) {
                return line.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no {prefix:?} within {within:?}; these came: {:?}",
                self.lines
            );
            self.receive(left);
        }
    }

    /// Counts the lines like this that come in the next so long.
    pub(crate) fn count_for(&mut self, line: &str, span: Duration) -> usize {
        let end = Instant::now() + span;
        let before = self.lines.len();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let came = &self.lines[before..];
                return came.iter().filter(|found| *found == line).count();
            }
            self.receive(left);
        }
    }

    /// Returns how many lines came before the first like this.
    pub(crate) fn place_of(&self, line: &str) -> Option<usize> {
        self.lines.iter().position(|found| found == line)
    }

    fn receive(&mut self, within: Duration) {
        let mut message = [0; MESSAGE_BYTES_MAX];
        self.socket.set_read_timeout(Some(within)).unwrap();
        match self.socket.recv(&mut message) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&message[..length]);
                self.lines.extend(text.lines().map(str::to_owned));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("receive a notification: {error}"),
        }
    }
}

#[test]
fn a_notification_is_found_by_its_first_word() {
    let mut socket = NotifySocket::open();
    let service = UnixDatagram::unbound().unwrap();
    service
        .send_to(b"STATUS=opening the store\nREADY=1\n", socket.path())
        .unwrap();
    let within = Duration::from_secs(5);
    assert_eq!(socket.wait_for("READY=", within), "READY=1");
    assert_eq!(
        socket.wait_for("STATUS=", within),
        "STATUS=opening the store"
    );
}

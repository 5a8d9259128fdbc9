//! Waits in one place for the agent of one session, and lets nobody else in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::arrivals::{Arrival, Arrivals};
use super::connection::{Connection, NoAgent};
use super::protocol::message::Bounds;
use crate::cause::chain;
use crate::id::SessionId;

/// How long nobody is let in after a stranger: a sandbox that dials without end costs the
/// service little, and itself its agent.
const REFUSED_REST: Duration = Duration::from_millis(1);
/// How long nobody is let in when no stream could be taken.
const FAILED_REST: Duration = Duration::from_millis(500);

/// Who may dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// The container.
    pub(super) container: String,
    /// Its first process, on the host.
    pub(super) pid: u32,
}

/// The stream that a session's agent has now.
#[derive(Clone, Debug)]
pub(super) struct Moored {
    pub(super) container: String,
    pub(super) connection: Connection,
}

/// One place, as its listener sees it.
#[derive(Debug)]
pub(super) struct Berth {
    pub(super) session: SessionId,
    pub(super) bounds: Bounds,
    pub(super) expected: watch::Receiver<Option<Expected>>,
    pub(super) moored: watch::Sender<Option<Moored>>,
    pub(super) arrivals: Arrivals,
    pub(super) refused: Arc<AtomicU64>,
    pub(super) apart: Arc<AtomicBool>,
}

/// Somebody who dialed before it was said who may.
struct Early {
    stream: UnixStream,
    pid: u32,
}

/// A stream whose two sides introduce themselves.
type Opening = Pin<Box<dyn Future<Output = (String, Result<Connection, NoAgent>)> + Send>>;

impl Berth {
    /// Lets in whoever may dial, for as long as the place is held.
    ///
    /// At most one waits to be told that it may, one introduces itself, and one is let in:
    /// the newest each.
    pub(super) async fn listen(mut self, listener: UnixListener) {
        let mut early: Option<Early> = None;
        let mut opening: Option<Opening> = None;
        loop {
            tokio::select! {
                came = listener.accept() => match came {
                    Ok((stream, _)) => early = self.judge(stream, &mut opening).await.or(early),
                    Err(error) => {
                        warn!(session = %self.session, %error, "no stream of its agent can be taken");
                        tokio::time::sleep(FAILED_REST).await;
                    }
                },
                changed = self.expected.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    opening = None;
                    self.part();
                    if let Some(Early { stream, pid }) = early.take() {
                        opening = self.admit(stream, pid);
                    }
                }
                (container, opened) = opened(&mut opening) => {
                    opening = None;
                    self.moor(container, opened);
                }
            }
        }
    }

    /// Refuses a stranger; lets the agent in; and returns whoever came too early for either.
    async fn judge(&self, stream: UnixStream, opening: &mut Option<Opening>) -> Option<Early> {
        let pid = stream.peer_cred().ok().and_then(|who| who.pid());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        if pid == 0 {
            self.apart.store(true, Ordering::Relaxed);
        }
        let is_early = self.expected.borrow().is_none();
        // One of another namespace is left without an answer: it would dial again at once.
        if is_early || pid == 0 {
            return Some(Early { stream, pid });
        }
        match self.admit(stream, pid) {
            Some(admitted) => *opening = Some(admitted),
            None => tokio::time::sleep(REFUSED_REST).await,
        }
        None
    }

    /// Begins the introduction of a stream if its process is the one that may dial.
    fn admit(&self, stream: UnixStream, pid: u32) -> Option<Opening> {
        let expected = self.expected.borrow().clone();
        // A process of another namespace has number 0 here.
        let Some(expected) = expected.filter(|expected| expected.pid == pid && 0 < pid) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            debug!(session = %self.session, pid, "a stranger dialed and was refused");
            return None;
        };
        let (session, bounds) = (self.session.clone(), self.bounds);
        Some(Box::pin(async move {
            let opened = Connection::open(stream, &session, bounds).await;
            (expected.container, opened)
        }))
    }

    fn moor(&self, container: String, opened: Result<Connection, NoAgent>) {
        let connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                warn!(session = %self.session, error = %chain(&error), "a sandbox's agent was not let in");
                return;
            }
        };
        self.part();
        debug!(session = %self.session, container, "a sandbox's agent is there");
        let moored = Moored {
            container: container.clone(),
            connection: connection.clone(),
        };
        drop(self.moored.send_replace(Some(moored)));
        self.arrivals.note(Arrival {
            session: self.session.clone(),
            container,
            connection,
        });
    }

    /// Ends the stream of before.
    fn part(&self) {
        if let Some(before) = self.moored.send_replace(None) {
            before.connection.close();
        }
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.part();
    }
}

/// Waits for the introduction to end, for ever where there is none.
async fn opened(opening: &mut Option<Opening>) -> (String, Result<Connection, NoAgent>) {
    match opening {
        Some(opening) => opening.await,
        None => std::future::pending().await,
    }
}

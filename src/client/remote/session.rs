//! Keeps the one session of a sandbox: opened once however many ask, and closed in turn.
//!
//! ```text
//! Closed --first use--> Opening --opened--> Open --stop--> Closing --> Closed
//!    ^                     |  failed          |  the service has ended it
//!    +---------------------+------------------+
//! ```
//!
//! What is under way is one shared future. Whoever waits drives it on, so one that is
//! dropped holds nobody up, and what it began is not begun once more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use super::failure::OperationFailure;
use crate::client::calls::HELD_REPLY_GRACE;
use crate::client::error::{Error, summary};
use crate::client::transport::REPLY_BYTES_MAX;
use crate::client::{Client, CloseFirst, Purge};
use crate::id::SessionId;
use crate::secret::Secret;
use crate::wire::files::ResetTold;
use crate::wire::sessions::CreateSessionRequest;

/// Why a sandbox was reset whose session the service had ended, and which was opened again.
pub const SESSION_ENDED: &str = "session_ended";

/// In JSON, a byte of a file is six at most.
const JSON_BYTES_MAX: usize = 6;

/// What opens the session of a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    /// Calls with the service token.
    pub(super) service: Client,
    pub(super) id: SessionId,
    pub(super) request: CreateSessionRequest,
    pub(super) timeout: Duration,
}

/// A session that is open as far as is known here.
#[derive(Debug)]
pub(super) struct Session {
    /// Calls with the session's token.
    pub(super) client: Client,
    /// How long the service lets an operation run.
    pub(super) ceiling: Duration,
    /// Bytes of the longest reply to an operation.
    pub(super) reply_bytes_max: usize,
}

impl Session {
    /// How long a reply to an operation is waited for that may take so long.
    pub(super) fn patience(&self, asked: Option<Duration>) -> Duration {
        let allowed = asked.unwrap_or(self.ceiling);
        allowed.saturating_add(HELD_REPLY_GRACE)
    }
}

type Opened = Result<Arc<Session>, OperationFailure>;
type Closed = Result<(), OperationFailure>;
type Way<T> = Shared<BoxFuture<'static, T>>;

/// The session of a sandbox.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) opener: Opener,
    // A std mutex: it is held for a look and a change, and never across an await.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    n_stops: u64,
    reset: Option<ResetTold>,
}

#[derive(Debug)]
enum Stage {
    Closed,
    Opening(Way<Opened>),
    Open(Arc<Session>),
    /// With the session that stays where the service does not close it.
    Closing(Way<Closed>, Option<Arc<Session>>),
}

/// What is to be waited for.
enum Wait {
    Opening(Way<Opened>),
    Closing(Way<Closed>),
}

/// What stopping comes to.
enum Stop {
    /// There is nothing to close.
    Needless,
    /// This closes it.
    Begun(Way<Closed>),
    /// Something else is to end first.
    After(Wait),
}

impl Sessions {
    pub(super) fn new(opener: Opener) -> Self {
        Self {
            opener,
            state: Mutex::new(State {
                stage: Stage::Closed,
                n_stops: 0,
                reset: None,
            }),
        }
    }

    /// Returns how often the sandbox was stopped.
    pub(super) fn n_stops(&self) -> u64 {
        self.state().n_stops
    }

    /// Returns the session where one is open; opens none.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        match &self.state().stage {
            Stage::Open(session) => Some(Arc::clone(session)),
            Stage::Closed | Stage::Opening(_) | Stage::Closing(..) => None,
        }
    }

    /// Returns the session, opened now where there is none.
    pub(super) async fn open(&self) -> Opened {
        loop {
            let wait = {
                let mut state = self.state();
                match &state.stage {
                    Stage::Open(session) => return Ok(Arc::clone(session)),
                    Stage::Opening(way) => Wait::Opening(way.clone()),
                    Stage::Closing(way, _) => Wait::Closing(way.clone()),
                    Stage::Closed => {
                        let way = open(self.opener.clone()).boxed().shared();
                        state.stage = Stage::Opening(way.clone());
                        Wait::Opening(way)
                    }
                }
            };
            match wait {
                // Whoever waited for an opening that failed is told why, and does not try
                // one after the other.
                Wait::Opening(way) => return self.opened(way).await,
                Wait::Closing(way) => drop(self.closed(way).await),
            }
        }
    }

    /// Closes the session, and has everything go that the id ever had where that is asked.
    pub(super) async fn stop(&self, purge: Purge) -> Closed {
        self.state().n_stops += 1;
        loop {
            match self.begin_stop(purge) {
                Stop::Needless => return Ok(()),
                Stop::Begun(way) => return self.closed(way).await,
                Stop::After(Wait::Opening(way)) => drop(self.opened(way).await),
                Stop::After(Wait::Closing(way)) => drop(self.closed(way).await),
            }
        }
    }

    fn begin_stop(&self, purge: Purge) -> Stop {
        let mut state = self.state();
        let open = match &state.stage {
            Stage::Opening(way) => return Stop::After(Wait::Opening(way.clone())),
            Stage::Closing(way, _) => {
                return match purge {
                    Purge::No => Stop::Begun(way.clone()),
                    Purge::Yes => Stop::After(Wait::Closing(way.clone())),
                };
            }
            Stage::Open(session) => Some(Arc::clone(session)),
            Stage::Closed => None,
        };
        let id = self.opener.id.clone();
        let way = match (purge, &open) {
            (Purge::No, None) => return Stop::Needless,
            (Purge::No, Some(session)) => close(Arc::clone(session), id).boxed(),
            (Purge::Yes, _) => purge_all(self.opener.clone()).boxed(),
        };
        let way = way.shared();
        state.stage = Stage::Closing(way.clone(), open);
        Stop::Begun(way)
    }

    /// Notes that the service has ended a session; refuses where the sandbox was stopped
    /// since, as it is not to come back by what was on its way.
    pub(super) fn lost(&self, lost: &Arc<Session>, n_stops: u64) -> Result<(), OperationFailure> {
        let mut state = self.state();
        if state.n_stops != n_stops {
            return Err(OperationFailure::Stopped);
        }
        if matches!(&state.stage, Stage::Open(session) if Arc::ptr_eq(session, lost)) {
            state.stage = Stage::Closed;
            state.reset = Some(ResetTold {
                incarnation: None,
                reset_reason: Some(SESSION_ENDED.to_owned()),
            });
        }
        Ok(())
    }

    /// Notes a reset that the service told of.
    pub(super) fn told(&self, reset: ResetTold) {
        if reset.reset_reason.is_some() {
            self.state().reset = Some(reset);
        }
    }

    /// Takes the last reset that was noted.
    pub(super) fn take_reset(&self) -> Option<ResetTold> {
        self.state().reset.take()
    }

    async fn opened(&self, way: Way<Opened>) -> Opened {
        let opened = way.clone().await;
        let mut state = self.state();
        if matches!(&state.stage, Stage::Opening(current) if current.ptr_eq(&way)) {
            state.stage = match &opened {
                Ok(session) => Stage::Open(Arc::clone(session)),
                Err(_) => Stage::Closed,
            };
        }
        opened
    }

    async fn closed(&self, way: Way<Closed>) -> Closed {
        let closed = way.clone().await;
        let mut state = self.state();
        if let Stage::Closing(current, session) = &mut state.stage
            && current.ptr_eq(&way)
        {
            // What the service did not close may be closed, used and lost as before.
            let session = session.take().filter(|_| closed.is_err());
            state.stage = session.map_or(Stage::Closed, Stage::Open);
        }
        closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn open(opener: Opener) -> Opened {
    let failed = |source: Error| OperationFailure::Open {
        id: opener.id.clone(),
        source: Arc::new(source),
    };
    let created = opener.service.open(&opener.request).await.map_err(failed)?;
    let client = opener
        .service
        .clone()
        .with_token(&Secret::new(created.token))
        .map_err(failed)?;
    // The service's ceiling and ours are one agreement: who gives up first takes a slow
    // command for a service that is gone. One that does not tell is given our own.
    let policy = opener.service.policy().await.ok();
    let secs = policy.as_ref().map_or(0, |policy| policy.execute_timeout);
    let ceiling = match secs {
        0 => opener.timeout,
        secs => Duration::from_secs(secs),
    };
    let read_bytes = policy.map_or(0, |policy| policy.max_read_bytes);
    let reply_bytes = usize::try_from(read_bytes)
        .unwrap_or(usize::MAX)
        .saturating_mul(JSON_BYTES_MAX);
    Ok(Arc::new(Session {
        client,
        ceiling,
        reply_bytes_max: reply_bytes.saturating_add(REPLY_BYTES_MAX),
    }))
}

async fn close(session: Arc<Session>, id: SessionId) -> Closed {
    match session.client.close(&id, Purge::No).await {
        Ok(()) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(OperationFailure::service(error)),
    }
}

async fn purge_all(opener: Opener) -> Closed {
    let purged = opener.service.purge(&opener.id, CloseFirst::Yes).await;
    purged.map_err(OperationFailure::service)
}

/// Whether a session's own token was refused because the session is not there any more;
/// nothing was done then.
pub(super) fn is_gone(error: &Error) -> bool {
    let Error::Refused { status, body } = error else {
        return false;
    };
    match status {
        // A token is good for one opening of its session.
        401 | 410 => true,
        404 => body.code == "no_session" || summary(&body.detail).starts_with("No such session"),
        _ => false,
    }
}

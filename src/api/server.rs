//! Accepts connections, as many as may be, and lets them finish when it is time to stop.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::api::edge::{Edge, Stopping};
use crate::api::handover::Handover;
use crate::api::pace::{Limits, Pace, Paced};
use crate::api::room::BodyRoom;
use crate::api::shed::{SHED_MAX, turn_away};
use crate::api::table::TABLE;
use crate::control::Control;

/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes that are buffered of a connection: a body that comes fast is taken in pieces of up to
/// that, and each piece costs a turn of the scheduler.
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// How long accepting rests after it failed, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Bounds of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections open at once, at least 1; further ones wait in the backlog, and are
    /// turned away once there has been no room for a while.
    pub connections_max: usize,
    /// How long all connections are taken before further ones are turned away.
    pub full_timeout: Duration,
    /// Bytes of request bodies held at once, at least those of the largest body.
    pub body_bytes_max: usize,
    /// From the first byte of a request, or the start of a connection, to the end of the headers.
    pub header_timeout: Duration,
    /// Between two requests on one connection.
    pub idle_timeout: Duration,
    /// While a client takes nothing of its reply.
    pub unread_timeout: Duration,
    /// What requests in flight get when the server stops.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            full_timeout: Duration::from_secs(1),
            body_bytes_max: 64 << 20,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            unread_timeout: Duration::from_mins(1),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// How the server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were dropped because the drain time was over.
    pub dropped: usize,
}

/// Serves a service until `shutdown` completes and requests in flight have ended.
///
/// From then on nothing is accepted, idle connections are closed, and requests in
/// flight get the drain time; what is left after that is dropped. Dropping the
/// future drops every connection at once.
pub async fn serve(
    listener: TcpListener,
    control: Control,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    let room = BodyRoom::new(settings.body_bytes_max);
    let edge = Arc::new(Edge::new(TABLE, control, room));
    serve_edge(listener, edge, settings, shutdown).await
}

/// Serves what stands behind an edge.
pub(super) async fn serve_edge(
    listener: TcpListener,
    edge: Arc<Edge>,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    let stop = CancellationToken::new();
    let connections_max = settings.connections_max.clamp(1, Semaphore::MAX_PERMITS);
    let door = Door {
        room: Arc::new(Semaphore::new(connections_max)),
        connections_max,
        full_timeout: settings.full_timeout,
        shedding: Arc::new(Semaphore::new(SHED_MAX)),
        limits: Limits {
            heading: settings.header_timeout,
            waiting: settings.idle_timeout,
            unread: settings.unread_timeout,
        },
        stop: stop.clone(),
        edge,
    };
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut full_since = None;
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => note(ended),
            guest = door.admit(&listener, &mut full_since) => {
                match guest {
                    Guest::Welcome(stream, permit) => {
                        connections.spawn(door.connection(stream, permit));
                    }
                    Guest::Surplus(stream, permit) => {
                        connections.spawn(async move {
                            let _permit = permit;
                            turn_away(stream, connections_max).await;
                        });
                    }
                }
            }
        }
    }
    // Closed first, so that a client that comes now goes elsewhere at once.
    drop(listener);
    stop.cancel();
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            note(ended);
        }
    };
    let in_time = timeout(settings.drain_timeout, all_ended).await;
    let dropped = connections.len();
    if in_time.is_err() {
        warn!(
            dropped,
            "connections were dropped at the end of the drain time"
        );
        connections.shutdown().await;
    }
    Drained { dropped }
}

/// What every connection is served with.
struct Door {
    room: Arc<Semaphore>,
    connections_max: usize,
    full_timeout: Duration,
    /// Places for those that are turned away.
    shedding: Arc<Semaphore>,
    limits: Limits,
    stop: CancellationToken,
    edge: Arc<Edge>,
}

/// Who came, with the place that it takes.
enum Guest {
    /// To be served.
    Welcome(TcpStream, OwnedSemaphorePermit),
    /// To be turned away.
    Surplus(TcpStream, OwnedSemaphorePermit),
}

impl Door {
    /// Waits for room and then for a connection, or for one without room.
    ///
    /// A short rush waits in the backlog. `full_since` is carried from guest to guest:
    /// where there has been no room for long, nobody waits any more.
    async fn admit(&self, listener: &TcpListener, full_since: &mut Option<Instant>) -> Guest {
        let began = *full_since.get_or_insert_with(Instant::now);
        let turning_away = async {
            sleep_until(began + self.full_timeout).await;
            let permit = place(&self.shedding).await;
            (accept(listener).await, permit)
        };
        tokio::select! {
            biased;
            permit = place(&self.room) => {
                *full_since = None;
                Guest::Welcome(accept(listener).await, permit)
            }
            (stream, permit) = turning_away => {
                debug!(connections_max = self.connections_max, "a connection is turned away");
                Guest::Surplus(stream, permit)
            }
        }
    }

    /// Serves one connection to its end.
    fn connection(
        &self,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<> {
        let edge = Arc::clone(&self.edge);
        let stop = self.stop.clone();
        let limits = self.limits;
        async move {
            let _permit = permit;
            if let Err(cause) = stream.set_nodelay(true) {
                debug!(%cause, "failed to turn off delays of a connection");
            }
            let pace = Arc::new(Pace::default());
            let paced = TokioIo::new(Paced::new(stream, Arc::clone(&pace), limits));
            let stopping = Stopping(stop.clone());
            let handover = Handover::new(stop.clone());
            let (turns, place) = (Arc::clone(&pace), handover.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let edge = Arc::clone(&edge);
                let busy = turns.begin();
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(stopping.clone());
                request.extensions_mut().insert(place.clone());
                async move {
                    let reply = edge.answer(request).await;
                    Ok::<_, Infallible>(reply.map(|body| busy.with(body)))
                }
            });
            let served = builder(limits).serve_connection(paced, service);
            let mut connection = pin!(served.with_upgrades());
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(cause) = ended {
                debug!(%cause, "a connection broke off");
            } else if let Some(onward) = handover.take() {
                // It speaks when it likes, and has questions of its own for a silent client.
                let _busy = pace.begin();
                onward.await;
            }
        }
    }
}

async fn place(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(places).acquire_owned().await;
    permit.expect("the semaphore is never closed")
}

/// Accepts the next connection, however often that fails.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client was gone before we came; the next one need not wait.
            Err(cause) if is_of_client(&cause) => debug!(%cause, "a connection broke off"),
            Err(cause) => {
                warn!(%cause, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn builder(limits: Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Paced is stricter and tells a slow head from an idle connection. But only with
        // a deadline of its own does hyper turn to the socket again after a reply.
        .header_read_timeout(limits.waiting + limits.heading)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    builder
}

/// Whether accepting failed for something that the client did.
fn is_of_client(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Notes how a connection's task ended.
fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(cause) = ended
        && cause.is_panic()
    {
        error!(%cause, "a connection panicked");
    }
}

#[cfg(test)]
mod streams;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

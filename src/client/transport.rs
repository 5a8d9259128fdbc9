//! Carries one request to a service and its reply back, within bounds.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::UnixStream;

use super::endpoint::Endpoint;
use super::error::Error;

/// Bytes read of one reply.
pub const REPLY_BYTES_MAX: usize = 32 << 20;
/// Connections that are kept open while nobody uses them.
pub const IDLE_CONNECTIONS_MAX: usize = 8;

// Less than the minute after which the service closes an idle connection, so
// that a request is rarely written into one that is being closed.
const IDLE: Duration = Duration::from_secs(30);
// Finds out that the other end is gone while a long command is waited for.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A pool of connections to one service; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    endpoint: Endpoint,
    pool: Pool,
}

#[derive(Clone, Debug)]
enum Pool {
    Tcp(Client<HttpConnector, Full<Bytes>>),
    Unix(Client<Dialer, Full<Bytes>>),
}

/// A whole reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Transport {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
        let pool = if let Some(path) = endpoint.socket() {
            Pool::Unix(builder.build(Dialer(Arc::from(path))))
        } else {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            connector.set_keepalive(Some(KEEPALIVE));
            Pool::Tcp(builder.build(connector))
        };
        Self { endpoint, pool }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request and waits for the whole reply, at most `deadline`.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        deadline: Duration,
    ) -> Result<Reply, Error> {
        tokio::time::timeout(deadline, self.exchange(request))
            .await
            .unwrap_or(Err(Error::Timeout { after: deadline }))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, Error> {
        let response = match &self.pool {
            Pool::Tcp(client) => client.request(request).await,
            Pool::Unix(client) => client.request(request).await,
        };
        let (head, body) = response
            .map_err(|source| self.unreachable(Box::new(source)))
            .map(Response::into_parts)?;
        let body = Limited::new(body, REPLY_BYTES_MAX)
            .collect()
            .await
            .map_err(|source| {
                if source.is::<LengthLimitError>() {
                    Error::TooLarge {
                        bytes_max: REPLY_BYTES_MAX,
                    }
                } else {
                    self.unreachable(source)
                }
            })?;
        Ok(Reply {
            status: head.status,
            body: body.to_bytes(),
        })
    }

    fn unreachable(&self, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::Unreachable {
            url: self.endpoint.to_string(),
            source,
        }
    }
}

/// Connects to one socket, whatever host a request names.
#[derive(Clone, Debug)]
struct Dialer(Arc<Path>);

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = Arc::clone(&self.0);
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}

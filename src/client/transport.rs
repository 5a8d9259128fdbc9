//! Carries one request to a service and its reply back, within bounds.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode, Uri};
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

/// The body of a request, whole or as it comes.
pub(super) type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// A pool of connections to one service; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    endpoint: Endpoint,
    pool: Pool,
}

#[derive(Clone, Debug)]
enum Pool {
    Tcp(Client<HttpConnector, Sent>),
    Unix(Client<Dialer, Sent>),
}

/// A whole reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// What came of a request whose success has a long body.
#[derive(Debug)]
pub(super) enum Opened {
    /// Its body, as it comes.
    Success(Incoming),
    /// Another reply.
    Other(Reply),
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

    /// Sends a request and waits for the whole reply, within bounds of time and bytes.
    pub(super) async fn send(
        &self,
        request: Request<Sent>,
        (deadline, bytes_max): (Duration, usize),
    ) -> Result<Reply, Error> {
        let exchange = async {
            let (status, body) = self.begin(request).await?;
            self.collect(status, body, bytes_max).await
        };
        tokio::time::timeout(deadline, exchange)
            .await
            .unwrap_or(Err(Error::Timeout { after: deadline }))
    }

    /// Sends a request and waits for the head of a success, or for all of another reply.
    pub(super) async fn open(
        &self,
        request: Request<Sent>,
        (deadline, bytes_max): (Duration, usize),
    ) -> Result<Opened, Error> {
        let exchange = async {
            let (status, body) = self.begin(request).await?;
            if status.is_success() {
                Ok(Opened::Success(body))
            } else {
                let reply = self.collect(status, body, bytes_max).await;
                reply.map(Opened::Other)
            }
        };
        tokio::time::timeout(deadline, exchange)
            .await
            .unwrap_or(Err(Error::Timeout { after: deadline }))
    }

    async fn begin(&self, request: Request<Sent>) -> Result<(StatusCode, Incoming), Error> {
        let response = match &self.pool {
            Pool::Tcp(client) => client.request(request).await,
            Pool::Unix(client) => client.request(request).await,
        };
        response
            .map_err(|source| self.unreachable(Box::new(source)))
            .map(|response| (response.status(), response.into_body()))
    }

    async fn collect(
        &self,
        status: StatusCode,
        body: Incoming,
        bytes_max: usize,
    ) -> Result<Reply, Error> {
        let body = Limited::new(body, bytes_max)
            .collect()
            .await
            .map_err(|source| {
                if source.is::<LengthLimitError>() {
                    Error::TooLarge { bytes_max }
                } else {
                    self.unreachable(source)
                }
            })?;
        Ok(Reply {
            status,
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

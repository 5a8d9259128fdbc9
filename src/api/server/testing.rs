//! A server of a test's own, and who talks to it.

use tokio::io::AsyncWriteExt as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::api::laws::control;
use crate::api::routes::Route;

pub(super) const LONG: Duration = Duration::from_secs(30);

/// A server that serves until it is stopped.
pub(super) struct Served {
    pub(super) address: std::net::SocketAddr,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) ended: JoinHandle<Drained>,
}

pub(super) async fn served(table: &'static [Route], settings: Settings) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let edge = Arc::new(Edge::new(table, control(), BodyRoom::default()));
    let ended = tokio::spawn(serve_edge(listener, edge, settings, async {
        stopped.await.unwrap_or_default();
    }));
    Served {
        address,
        stop,
        ended,
    }
}

impl Served {
    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a text on a connection of its own.
    pub(super) async fn send(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    pub(super) async fn get(&self, path: &str) -> TcpStream {
        self.send(&get(path)).await
    }

    pub(super) async fn stop(self) -> Drained {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap()
    }
}

/// Returns a request as it is sent.
pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

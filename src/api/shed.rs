//! Turns connections away that there is no room for, with a reason.

use std::time::Duration;

use axum::http::header::HeaderValue;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use crate::api::edge::REQUEST_ID_HEADER;
use crate::api::error::Failure;
use crate::id::RequestId;

/// Connections that are turned away at once, each with a descriptor.
pub(crate) const SHED_MAX: usize = 16;
/// The longest that turning one away may take.
const SHED_TIME_MAX: Duration = Duration::from_millis(500);
/// Bytes that are read and dropped at once.
const PIECE_BYTES: usize = 4096;

/// Answers whatever a connection asks with 503 and ends it.
pub(super) async fn turn_away(mut stream: TcpStream, connections_max: usize) {
    let said = async {
        stream.write_all(&reply(connections_max).await).await?;
        stream.shutdown().await?;
        // A socket that is closed with a request in it unread is reset, and the reply lost.
        let mut piece = [0; PIECE_BYTES];
        while 0 < stream.read(&mut piece).await? {}
        Ok::<_, std::io::Error>(())
    };
    match timeout(SHED_TIME_MAX, said).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(cause)) => debug!(%cause, "a connection that was turned away broke off"),
    }
}

/// Writes the reply out, head and body.
async fn reply(connections_max: usize) -> Vec<u8> {
    let limit = u64::try_from(connections_max).unwrap_or(u64::MAX);
    let request_id = RequestId::random();
    let (mut parts, body) = Failure::NoConnection { limit }
        .reply(&request_id)
        .into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let body = body.unwrap_or_default();
    let id = HeaderValue::try_from(request_id.as_str()).expect("a request id is visible");
    parts.headers.insert(REQUEST_ID_HEADER, id);
    let mut bytes = format!("HTTP/1.1 {}\r\n", parts.status).into_bytes();
    for (name, value) in &parts.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    let rest = format!(
        "content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    bytes.extend_from_slice(rest.as_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

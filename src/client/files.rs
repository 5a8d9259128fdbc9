//! The calls for files of any size, as they come.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::Method;
use hyper::body::Frame;
use tokio::sync::mpsc::Receiver;

use super::calls::{Call, Client, Query, Sends};
use super::error::Error;
use super::pieces::ReplyPieces;
use super::transport::Sent;
use crate::id::SessionId;
use crate::wire::files::Uploaded;

/// How long an upload may take: for as long as it makes progress, the service has no
/// bound but that of its bytes.
const UPLOAD_TIME_MAX: Duration = Duration::from_hours(24);

/// The pieces of an upload; an error among them breaks it off.
pub type UploadPieces = Receiver<io::Result<Bytes>>;

impl Client {
    /// Begins to read a file of a session.
    pub async fn download(&self, id: &SessionId, path: &str) -> Result<ReplyPieces, Error> {
        let mut query = Query::default();
        query.add("path", Some(path));
        let call = self.get(query.after(&format!("/sessions/{id}/file")));
        self.pieces(&call).await
    }

    /// Replaces a file of a session by pieces as they come, until their sender is dropped.
    ///
    /// With their number of `bytes`, where that is known, the service refuses too many at once.
    pub async fn upload(
        &self,
        id: &SessionId,
        path: &str,
        pieces: UploadPieces,
        bytes: Option<u64>,
    ) -> Result<Uploaded, Error> {
        let mut query = Query::default();
        query.add("path", Some(path));
        let frames = unfold(pieces, |mut pieces| async {
            let piece = pieces.recv().await?;
            Some((piece.map(Frame::data), pieces))
        });
        let body: Sent = StreamBody::new(frames).boxed_unsync();
        let call = Call {
            method: Method::PUT,
            sends: Sends::Nothing,
            deadline: UPLOAD_TIME_MAX,
            ..self.get(query.after(&format!("/sessions/{id}/file")))
        };
        self.json_of_stream(&call, body, bytes).await
    }
}

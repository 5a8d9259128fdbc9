//! The body of a reply, piece by piece.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::calls::{Call, Client};
use super::error::Error;

/// A file or an archive as it comes; dropping it ends the reading.
#[derive(Debug)]
pub struct ReplyPieces {
    body: Incoming,
    url: String,
}

impl ReplyPieces {
    /// Waits for the next piece; `None` once all of it has come.
    ///
    /// # Errors
    /// The connection broke: what came is not the whole.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|source| Error::Unreachable {
                url: self.url.clone(),
                source: Box::new(source),
            })?;
            if let Ok(piece) = frame.into_data()
                && !piece.is_empty()
            {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Sends a call whose success is read as it comes.
    pub(super) async fn pieces(&self, call: &Call) -> Result<ReplyPieces, Error> {
        Ok(ReplyPieces {
            body: self.open_reply(call).await?,
            url: self.endpoint().to_string(),
        })
    }
}

//! Reads the body of an answer, never more of it than a bound.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::error::{self, Kind};

/// Bytes of the largest answer about one thing.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of the largest listing.
pub(super) const LIST_BYTES_MAX: usize = 64 << 20;
/// Bytes that are read of an error's body.
pub(super) const ERROR_BYTES_MAX: usize = 64 << 10;

/// The body of an answer, piece by piece.
#[derive(Debug)]
pub(super) enum Body {
    /// As it comes over the wire.
    Wire(Incoming),
    /// As a test's engine plays it.
    #[cfg(test)]
    Played(super::testing::Pieces),
}

impl Body {
    /// Waits for the next piece; `None` is the orderly end.
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Kind> {
        let wire = match self {
            Self::Wire(wire) => wire,
            #[cfg(test)]
            Self::Played(pieces) => return pieces.next().await,
        };
        loop {
            let Some(frame) = wire.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| Kind::Closed {
                source: Some(error.into()),
            })?;
            // Trailers carry nothing that is used here.
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
    }

    /// Reads to the end, and fails when that lies beyond `bound`.
    pub(super) async fn whole(mut self, bound: usize) -> Result<Bytes, Kind> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            if bound < whole.len().saturating_add(piece.len()) {
                return Err(Kind::TooLarge { bound });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Reads what an error says: JSON with a `message`, or plain text.
    ///
    /// A body that is cut or too long still gives the words that came.
    pub(super) async fn words(mut self) -> String {
        let mut words = BytesMut::new();
        while let Ok(Some(piece)) = self.piece().await {
            let room = ERROR_BYTES_MAX.saturating_sub(words.len());
            words.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            if room <= piece.len() {
                break;
            }
        }
        words_of(&words)
    }
}

#[derive(serde::Deserialize)]
struct ErrorBody {
    message: String,
}

fn words_of(body: &[u8]) -> String {
    match serde_json::from_slice(body) {
        Ok(ErrorBody { message }) => error::message(&message),
        Err(_) => error::message(&String::from_utf8_lossy(body)),
    }
}

/// Parses an answer, naming what it was about when it makes no sense.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(
    what: &'static str,
    body: &'a [u8],
) -> Result<T, Kind> {
    serde_json::from_slice(body).map_err(|error| Kind::malformed(format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_may_be_json_or_plain_text() {
        assert_eq!(words_of(br#"{"message":"no such thing"}"#), "no such thing");
        assert_eq!(
            words_of(br#"{"cause":"c","message":"m","response":404}"#),
            "m"
        );
        assert_eq!(
            words_of(b"client version 1.10 is too old\n"),
            "client version 1.10 is too old"
        );
        assert_eq!(words_of(b"{\"message\":\"cut"), "{\"message\":\"cut");
        assert_eq!(words_of(b""), "");
    }
}

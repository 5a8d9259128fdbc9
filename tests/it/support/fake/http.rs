//! Reads what the fake engine is asked, and writes its replies as the real one does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::support::fault::Received;

/// The longest body that goes with its length; longer ones go in chunks.
const LENGTH_KNOWN_BYTES_MAX: usize = 2048;
/// The newest and the oldest version of the API that it speaks.
const API: (u32, u32) = (41, 12);

/// What is asked of the engine.
#[derive(Debug)]
pub(super) struct Asked {
    /// Such as `GET`.
    pub(super) method: String,
    /// The segments of the path without version, decoded.
    pub(super) path: Vec<String>,
    /// The query, decoded.
    pub(super) query: BTreeMap<String, String>,
    /// The minor number of the version in the path.
    version: Option<u32>,
    received: Received,
}

/// Whether a connection may carry another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// A status without a body.
    Empty(u16),
    /// JSON.
    Json(u16, Value),
    /// Plain text.
    Text(u16, String),
}

impl Asked {
    pub(super) fn new(received: Received) -> Self {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let mut words = received.line().split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decoded(name), decoded(&value.replace('+', " "))));
        let mut segments: Vec<String> = path.split('/').skip(1).map(decoded).collect();
        let version = segments
            .first()
            .and_then(|first| first.strip_prefix("v1.")?.parse().ok());
        if version.is_some() {
            segments.remove(0);
        }
        Self {
            query: query.collect(),
            path: segments,
            method,
            version,
            received,
        }
    }

    /// Refuses a version that is not spoken.
    pub(super) fn refused_version(&self) -> Option<Reply> {
        let version = self.version?;
        if version < API.1 {
            let text = format!(
                "client version 1.{version} is too old. Minimum supported API version is 1.{}, please upgrade your client to a newer version\n",
                API.1
            );
            return Some(Reply::Text(400, text));
        }
        (API.0 < version).then(|| {
            Reply::error(
                400,
                &format!(
                    "client version 1.{version} is too new. Maximum supported API version is 1.{}",
                    API.0
                ),
            )
        })
    }

    /// Reads the body as JSON, or says why it is none.
    pub(super) fn json(&self) -> Result<Value, Reply> {
        let kind = self.received.header("content-type").unwrap_or_default();
        if !kind.starts_with("application/json") {
            let text = format!("Content-Type specified ({kind}) must be 'application/json'");
            return Err(Reply::error(400, &text));
        }
        serde_json::from_slice(&self.received.body).map_err(|_| Reply::error(500, "unexpected EOF"))
    }

    /// Tells whether a parameter is set and true.
    pub(super) fn flag(&self, name: &str) -> bool {
        let value = self.query.get(name).map_or("", String::as_str);
        !matches!(
            value.to_lowercase().as_str(),
            "" | "0" | "no" | "false" | "none"
        )
    }

    /// Returns the filters: each name with its values.
    pub(super) fn filters(&self) -> Result<BTreeMap<String, Vec<String>>, Reply> {
        let text = self.query.get("filters").map_or("", String::as_str);
        if text.is_empty() {
            return Ok(BTreeMap::new());
        }
        let bad = || Reply::error(500, "invalid character in the filters");
        let all: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|_| bad())?;
        let values = |value: Value| match value {
            Value::Array(list) => list
                .into_iter()
                .map(|item| item.as_str().map(str::to_owned).ok_or_else(bad))
                .collect(),
            // The client of the command line writes a set.
            Value::Object(set) => Ok(set.into_iter().map(|(name, _)| name).collect()),
            _ => Err(bad()),
        };
        all.into_iter()
            .map(|(name, value)| Ok((name, values(value)?)))
            .collect()
    }
}

impl Reply {
    /// An error in the engine's form.
    pub(super) fn error(status: u16, message: &str) -> Self {
        Self::Json(status, json!({ "message": message }))
    }

    /// Writes it; a client that has gone is as good.
    pub(super) fn write(&self, mut to: &UnixStream) -> Kept {
        let (status, kind, body) = match self {
            Self::Empty(status) => (*status, None, String::new()),
            Self::Json(status, value) => (*status, Some("application/json"), format!("{value}\n")),
            Self::Text(status, text) => (*status, Some("text/plain; charset=utf-8"), text.clone()),
        };
        let mut text = head(status, kind);
        if matches!(status, 204 | 304) {
            text.push_str("\r\n");
        } else if body.len() <= LENGTH_KNOWN_BYTES_MAX {
            write!(text, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        } else {
            text.push_str("Transfer-Encoding: chunked\r\n\r\n");
            text.push_str(&chunk(&body));
            text.push_str("0\r\n\r\n");
        }
        match to.write_all(text.as_bytes()) {
            Ok(()) => Kept::Yes,
            Err(_) => Kept::No,
        }
    }
}

/// Writes the head of a reply, up to what tells its length.
pub(super) fn head(status: u16, kind: Option<&str>) -> String {
    let reason = match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        409 => "Conflict",
        501 => "Not Implemented",
        _ => "Internal Server Error",
    };
    let mut head = format!(
        "HTTP/1.1 {status} {reason}\r\nApi-Version: 1.41\r\nDocker-Experimental: false\r\nOstype: linux\r\nServer: Docker/20.10.24 (linux)\r\n"
    );
    if let Some(kind) = kind {
        write!(head, "Content-Type: {kind}\r\n").unwrap();
    }
    head
}

/// Wraps a text as a chunk.
pub(super) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

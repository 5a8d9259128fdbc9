//! Describes one call to the engine: what is asked, and what is allowed to its answer.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;

use super::body::BODY_BYTES_MAX;
use super::path::Path;

/// One request and what is allowed to its answer.
///
/// Has no `Debug`: the body may hold the secrets of an environment.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) method: Method,
    pub(super) path: Path,
    pub(super) body: Bytes,
    pub(super) content: Content,
    pub(super) turns: Turns,
    pub(super) deadline: Duration,
    pub(super) answer_bytes_max: usize,
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// One document.
    Json,
    /// An archive.
    Tar,
}

/// What the connection of a call is after the head of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    /// The body of the answer.
    Body,
    /// A stream both ways.
    Stream,
}

/// A whole answer with a status below 400.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Call {
    fn new(name: &'static str, method: Method, path: Path, deadline: Duration) -> Self {
        Self {
            name,
            method,
            path,
            body: Bytes::new(),
            content: Content::Json,
            turns: Turns::Body,
            deadline,
            answer_bytes_max: BODY_BYTES_MAX,
        }
    }

    pub(super) fn get(name: &'static str, path: Path, deadline: Duration) -> Self {
        Self::new(name, Method::GET, path, deadline)
    }

    pub(super) fn post(name: &'static str, path: Path, deadline: Duration) -> Self {
        Self::new(name, Method::POST, path, deadline)
    }

    pub(super) fn put(name: &'static str, path: Path, deadline: Duration) -> Self {
        Self::new(name, Method::PUT, path, deadline)
    }

    pub(super) fn delete(name: &'static str, path: Path, deadline: Duration) -> Self {
        Self::new(name, Method::DELETE, path, deadline)
    }

    /// Adds a JSON body.
    pub(super) fn json<T: Serialize>(mut self, body: &T) -> Self {
        self.body = serde_json::to_vec(body)
            .expect("request bodies have text keys and serialise without failing")
            .into();
        self
    }

    /// Adds an archive as the body.
    pub(super) fn tar(mut self, archive: Bytes) -> Self {
        self.body = archive;
        self.content = Content::Tar;
        self
    }

    /// Asks for the connection itself, once the answer's head has come.
    pub(super) fn both_ways(mut self) -> Self {
        self.turns = Turns::Stream;
        self
    }

    /// Allows a longer answer.
    pub(super) fn answer_bytes_max(mut self, bound: usize) -> Self {
        self.answer_bytes_max = bound;
        self
    }
}

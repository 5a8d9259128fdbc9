//! Names the things that the controller converges, one at a time each.

use std::fmt;

use crate::id::SessionId;

/// One thing to converge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A session: its container, its workspace and its record.
    Session(SessionId),
    /// An image, by the reference that runtimes name it with.
    Image(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "session {id}"),
            Self::Image(reference) => write!(f, "image {reference}"),
        }
    }
}

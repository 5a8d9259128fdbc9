//! Says what went wrong with a call to the engine, and whether to try again.

use std::error::Error as StdError;
use std::time::Duration;

use super::endpoint::Endpoint;
use super::version::ApiVersion;

/// Characters of an engine's message that are kept.
pub const MESSAGE_CHARS_MAX: usize = 1000;

/// A call that failed; its source says how.
#[derive(Debug, thiserror::Error)]
#[expect(
    clippy::error_impl_error,
    reason = "read as docker::Error, as one reads io::Error"
)]
#[error("{call}")]
pub struct Error {
    call: &'static str,
    #[source]
    kind: Kind,
}

/// How a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Kind {
    /// No connection could be made.
    #[error("the engine at {endpoint} cannot be reached")]
    Unreachable {
        /// Where it was looked for.
        endpoint: Endpoint,
        /// What the operating system said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The deadline passed. What was asked for may still happen.
    #[error("the engine gave no answer within {after:?}")]
    Timeout {
        /// The deadline of this class of call, or the longest silence allowed.
        after: Duration,
    },
    /// The connection ended before the answer did. What was asked for may have happened.
    #[error("the engine closed the connection before the end of its answer")]
    Closed {
        /// What the transport saw, where it saw more than an end.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The engine refused or failed, in a status that is no outcome of the call.
    #[error("the engine answered {status}: {message}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The engine's words, at most [`MESSAGE_CHARS_MAX`] characters.
        message: String,
    },
    /// The engine reported a failure inside an answer that had begun well.
    #[error("the engine reported: {message}")]
    Reported {
        /// The engine's words, at most [`MESSAGE_CHARS_MAX`] characters.
        message: String,
    },
    /// The answer cannot be understood.
    #[error("the engine's answer cannot be understood: {what}")]
    Malformed {
        /// What was wrong with it.
        what: String,
    },
    /// The answer is longer than what is read of it.
    #[error("the engine's answer is longer than {bound} bytes")]
    TooLarge {
        /// The bound that it passed.
        bound: usize,
    },
    /// A stream of output ended inside a frame, so output is missing.
    #[error("the engine's stream ended inside a frame")]
    Truncated,
    /// Engine and daemon share no version of the API.
    #[error(
        "the engine speaks API {server_min} to {server_max}, and this daemon {ours_min} to {ours_max}: upgrade the older of the two"
    )]
    VersionRefused {
        /// The oldest the engine speaks.
        server_min: ApiVersion,
        /// The newest the engine speaks.
        server_max: ApiVersion,
        /// The oldest spoken here.
        ours_min: ApiVersion,
        /// The newest spoken here.
        ours_max: ApiVersion,
    },
    /// The request was not sent, because no engine could have such a name.
    #[error("{what} is no name that an engine could have")]
    Unsendable {
        /// What was wrong with the name.
        what: &'static str,
    },
}

/// Whether the same call is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Later, after looking at the state again: it may be unknown.
    Backoff,
    /// The same call would fail the same way.
    Never,
}

impl Error {
    pub(super) fn new(call: &'static str, kind: Kind) -> Self {
        Self { call, kind }
    }

    /// Returns what was tried, as a fragment: "create a container".
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns how it failed.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Says whether to try again.
    pub fn retry(&self) -> Retry {
        match &self.kind {
            Kind::Unreachable { .. } => Retry::Backoff,
            Kind::Timeout { .. } => Retry::Backoff,
            Kind::Closed { .. } => Retry::Backoff,
            Kind::Truncated => Retry::Backoff,
            Kind::Reported { .. } => Retry::Backoff,
            // An engine that is being upgraded or restarted answers nonsense
            // for a while, and a listing may shrink.
            Kind::Malformed { .. } => Retry::Backoff,
            Kind::TooLarge { .. } => Retry::Backoff,
            Kind::VersionRefused { .. } => Retry::Backoff,
            Kind::Unsendable { .. } => Retry::Never,
            Kind::Status { status, .. } => match status {
                // Conflicts are with a state that passes: paused, being removed.
                408 | 409 | 429 => Retry::Backoff,
                400..500 => Retry::Never,
                _ => Retry::Backoff,
            },
        }
    }

    /// Returns the HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self.kind {
            Kind::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns the engine's own words, where it gave any.
    pub fn message(&self) -> Option<&str> {
        match &self.kind {
            Kind::Status { message, .. } | Kind::Reported { message } => Some(message),
            _ => None,
        }
    }

    /// Tells whether the engine itself says that the thing does not exist.
    ///
    /// A 404 in other words comes from a proxy or a router, and proves nothing.
    pub fn is_missing(&self) -> bool {
        self.status() == Some(404) && self.says("no such")
    }

    /// Tells whether no connection could be made.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind, Kind::Unreachable { .. })
    }

    /// Tells whether the engine's disk is full.
    pub fn is_no_space(&self) -> bool {
        self.says("no space left on device")
    }

    /// Tells whether a start failed because an earlier start was cut off.
    ///
    /// Such a container never starts again, and a process of the earlier try may
    /// still run unseen by the engine. Only a new container helps.
    pub fn is_poisoned_start(&self) -> bool {
        self.says("id already in use")
            || self.says("io.containerd.runtime") && self.says("file exists")
    }

    /// Tells whether the engine's words contain `text`, in any case.
    pub(super) fn says(&self, text: &str) -> bool {
        self.message()
            .is_some_and(|message| message.to_ascii_lowercase().contains(text))
    }
}

/// Makes an engine's words fit for a log line: one line, and not too long.
pub(super) fn message(text: &str) -> String {
    text.trim()
        .chars()
        .take(MESSAGE_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

impl Kind {
    pub(super) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }

    /// Whether the engine on the other side may be another one by now.
    pub(super) fn may_have_restarted(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Closed { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, text: &str) -> Error {
        Error::new(
            "start a container",
            Kind::Status {
                status,
                message: message(text),
            },
        )
    }

    #[test]
    fn an_unknown_state_is_tried_again_and_a_refusal_is_not() {
        for (code, retry) in [
            (400, Retry::Never),
            (403, Retry::Never),
            (404, Retry::Never),
            (408, Retry::Backoff),
            (409, Retry::Backoff),
            (500, Retry::Backoff),
            (501, Retry::Backoff),
            (503, Retry::Backoff),
        ] {
            assert_eq!(status(code, "x").retry(), retry, "{code}");
        }
        let kinds = [
            Kind::Closed { source: None },
            Kind::Truncated,
            Kind::Timeout {
                after: Duration::ZERO,
            },
        ];
        for kind in kinds {
            assert_eq!(Error::new("x", kind).retry(), Retry::Backoff);
        }
    }

    #[test]
    fn an_engine_s_words_are_one_bounded_line() {
        let long = "a\nb\u{1b}".to_owned() + &"é".repeat(2 * MESSAGE_CHARS_MAX);
        let kept = message(&long);
        assert_eq!(kept.chars().count(), MESSAGE_CHARS_MAX);
        assert!(kept.starts_with("a b é"));
    }

    #[test]
    fn a_full_disk_and_a_poisoned_start_are_recognised_by_their_words() {
        assert!(status(500, "write /x: No space left on device").is_no_space());
        assert!(status(500, "id already in use").is_poisoned_start());
        assert!(
            status(
                500,
                "mkdir /run/io.containerd.runtime.v2.task/moby/ab: file exists: unknown"
            )
            .is_poisoned_start()
        );
        assert!(!status(500, "mkdir /x: file exists").is_poisoned_start());
    }

    #[test]
    fn only_the_engine_s_own_words_prove_that_a_thing_is_missing() {
        for words in [
            "No such container: c",
            "No such exec instance: e",
            "no container with name or ID \"c\" found: no such container",
            "No such image: x:latest",
        ] {
            assert!(status(404, words).is_missing(), "{words}");
        }
        assert!(!status(404, "page not found").is_missing());
        assert!(!status(404, "").is_missing());
        assert!(!status(500, "No such container: c").is_missing());
    }

    #[test]
    fn the_chain_reads_as_a_sentence_and_no_link_repeats_another() {
        let error = status(500, "boom");
        assert_eq!(error.to_string(), "start a container");
        assert_eq!(
            error.source().unwrap().to_string(),
            "the engine answered 500: boom"
        );
    }
}

//! Says what failed, what may help, and with which status to end.

use std::io;

use super::args::Verb;
use super::exit::Exit;
use crate::client::{self, Error, InvalidUrl};
use crate::wire::error::ErrorBody;

/// A verb that did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// A call did not succeed.
    #[error("make a call")]
    Call(#[from] Error),
    /// The URL is not one.
    #[error("find the service")]
    Url(#[from] InvalidUrl),
    /// The token's file cannot be read.
    #[error("read the token from {from}")]
    TokenFile {
        from: String,
        #[source]
        source: io::Error,
    },
    /// The token's file holds none.
    #[error("use the token from {from}: {why}")]
    TokenText { from: String, why: &'static str },
    /// Standard input cannot be read for a command.
    #[error("read standard input")]
    Input(#[source] io::Error),
    /// Standard input cannot be sent to a command.
    #[error("send standard input: {0}")]
    InputText(&'static str),
    /// There is no terminal to sit at.
    #[error("sit at a terminal: standard input or output is none")]
    NoTerminal,
    /// The terminal here cannot be used.
    #[error("use the terminal")]
    Terminal(#[source] io::Error),
    /// A reply that makes no sense.
    #[error("understand the reply: {0}")]
    OddReply(&'static str),
    /// A local file cannot be copied.
    #[error("{what} {path}")]
    LocalFile {
        what: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    /// Not exactly one end of a copy is in a session.
    #[error("copy: one of the two has to be in a session, as ID:PATH, and the other not")]
    Ends,
    /// Data cannot be written, or an answer not read.
    #[error("write the output")]
    Stream(#[from] io::Error),
    /// A removal that nobody confirmed.
    #[error("remove what nobody confirmed")]
    NobodyConfirmed,
    /// A removal that somebody refused.
    #[error("remove what was refused")]
    Declined,
}

impl Failure {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Call(error) => Exit::of_error(error),
            Self::TokenFile { .. } | Self::TokenText { .. } => Exit::AUTHENTICATION,
            Self::Url(_)
            | Self::NobodyConfirmed
            | Self::Declined
            | Self::InputText(_)
            | Self::NoTerminal
            | Self::Ends => Exit::USAGE,
            // Whoever read the output wanted no more of it, as head does.
            Self::Stream(source) if source.kind() == io::ErrorKind::BrokenPipe => Exit::OK,
            Self::Stream(_)
            | Self::Input(_)
            | Self::Terminal(_)
            | Self::OddReply(_)
            | Self::LocalFile { .. } => Exit::FAILED,
        }
    }

    /// Returns what failed in a sentence, or nothing where there is none to say.
    pub(super) fn sentence(&self) -> Option<String> {
        Some(match self {
            Self::Call(error) => sentence(error),
            Self::Url(error) => error.to_string(),
            Self::TokenFile { source, .. } => format!("failed to {self}: {source}"),
            Self::TokenText { .. }
            | Self::InputText(_)
            | Self::NoTerminal
            | Self::OddReply(_)
            | Self::Ends => format!("failed to {self}"),
            Self::Input(source) | Self::Terminal(source) | Self::LocalFile { source, .. } => {
                format!("failed to {self}: {source}")
            }
            Self::Stream(source) if source.kind() == io::ErrorKind::BrokenPipe => return None,
            Self::Stream(source) => format!("failed to {self}: {source}"),
            Self::NobodyConfirmed => {
                "nothing is removed without a confirmation, and there is no terminal to ask on"
                    .to_owned()
            }
            Self::Declined => "nothing was removed".to_owned(),
        })
    }

    /// Returns what may help in doing `verb`.
    pub(super) fn hint(&self, verb: &Verb, token: TokenGiven) -> Option<String> {
        match self {
            Self::Call(error) => hint(error, verb, token),
            Self::Url(_) => Some("--url or SANDBOXD_URL says where the service is".to_owned()),
            Self::TokenFile { .. } | Self::TokenText { .. } => {
                Some("--token-file names a file that holds the token and nothing else".to_owned())
            }
            Self::NobodyConfirmed => Some("--yes confirms it".to_owned()),
            Self::InputText(_) => Some("put it into a file of the session first".to_owned()),
            Self::NoTerminal => Some("exec and run need none".to_owned()),
            Self::OddReply(_) => Some("is it a sandboxd that answers there?".to_owned()),
            Self::Declined
            | Self::Stream(_)
            | Self::Input(_)
            | Self::Terminal(_)
            | Self::LocalFile { .. }
            | Self::Ends => None,
        }
    }
}

/// Whether a token was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenGiven {
    Yes,
    No,
}

/// Makes an error of a refusal that came in the midst of a reply.
pub(super) fn refused(body: ErrorBody) -> Error {
    Error::Refused {
        // What was begun with a success has no status of its own any more.
        status: if body.retryable { 503 } else { 410 },
        body: Box::new(body),
    }
}

/// Puts a call that did not succeed into one sentence.
pub(super) fn sentence(error: &Error) -> String {
    match error {
        Error::Refused { status, body } => {
            let detail = client::summary(&body.detail);
            // What the service did wrong is looked up in its log.
            if 500 <= *status && !body.request_id.is_empty() {
                format!("{detail} (status {status}, request {})", body.request_id)
            } else {
                detail
            }
        }
        Error::Unreachable { .. } | Error::Malformed { .. } => {
            format!("failed to {error}: {}", innermost(error))
        }
        Error::Timeout { .. } | Error::TooLarge { .. } | Error::Token => {
            format!("failed to {error}")
        }
    }
}

/// Returns the cause that says something: layers of the transport do not.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn hint(error: &Error, verb: &Verb, token: TokenGiven) -> Option<String> {
    match error {
        Error::Unreachable { .. } => Some(
            "is sandboxd running there? --url or SANDBOXD_URL says where the service is".to_owned(),
        ),
        Error::Timeout { .. } => {
            Some("--timeout SECONDS waits longer; what was asked for may still happen".to_owned())
        }
        Error::Refused { status, body } => refusal_hint(*status, body, verb, token),
        Error::Malformed { .. } => Some("is it a sandboxd that answers there?".to_owned()),
        Error::TooLarge { .. } => None,
        Error::Token => Some("the token is taken from SANDBOXD_TOKEN or --token-file".to_owned()),
    }
}

fn refusal_hint(status: u16, body: &ErrorBody, verb: &Verb, token: TokenGiven) -> Option<String> {
    let hint = match (Exit::of_status(status), verb) {
        (Exit::AUTHENTICATION, _) => match token {
            TokenGiven::No => "give the token in SANDBOXD_TOKEN or with --token-file".to_owned(),
            TokenGiven::Yes => "the token that was sent is not good for this; \
                a session's token ends with its session"
                .to_owned(),
        },
        (Exit::NOT_FOUND, Verb::Release(_)) => {
            "sandboxctl health shows the holds that stand".to_owned()
        }
        (Exit::NOT_FOUND, _) if matches!(body.code.as_str(), "no_run" | "run_lost") => {
            "sandboxctl runs ID shows the runs of a session".to_owned()
        }
        (Exit::NOT_FOUND, _) if body.code == "no_file" => return None,
        (Exit::NOT_FOUND, Verb::Export(_)) => {
            "sandboxctl workspaces shows those that there are".to_owned()
        }
        (Exit::NOT_FOUND, _) => "sandboxctl ls shows the sessions that are open".to_owned(),
        (Exit::CONFLICT, Verb::Hibernate(_)) if body.code == "session_in_use" => {
            "sandboxctl runs ID shows its runs in the background, sandboxctl stop ends one"
                .to_owned()
        }
        (Exit::CONFLICT, Verb::Open(_)) => "--reuse attaches to a session that is open".to_owned(),
        (Exit::CONFLICT, Verb::Import(_)) if body.code == "workspace_not_empty" => {
            "--replace has the archive take the place of those files".to_owned()
        }
        (Exit::CONFLICT, Verb::Import(_)) if body.code == "session_open" => {
            "sandboxctl rm closes it and keeps its files".to_owned()
        }
        (Exit::CONFLICT, Verb::Purge(_)) => "--close closes a session that is open".to_owned(),
        (Exit::CEILING, _) => match &body.ceiling {
            Some(ceiling) => format!(
                "{} of {} is in use ({} of {}): close a session with sandboxctl rm, or raise it",
                ceiling.name, ceiling.scope, ceiling.used, ceiling.limit
            ),
            None => "close a session with sandboxctl rm, or raise the ceiling".to_owned(),
        },
        _ if body.retryable || status == 503 => "the same may succeed later".to_owned(),
        _ => return None,
    };
    Some(hint)
}

//! Makes the agent's request of a run, whoever asks for it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::commands::{Command, Output, Program, Task};
use crate::agent::protocol::frame::FRAME_BYTES_MAX;
use crate::agent::protocol::message::{Attended, Keep, Start, Stdin, Streams, What};
use crate::id::RunId;
use crate::secret::hex;

/// Bytes of input that go with the request; more follows it.
pub const INPUT_ALONG_MAX: usize = 64 << 10;
/// Bytes of what a frame holds beside the words of a request.
const FRAME_SPARE_BYTES: usize = 1 << 10;

/// A run that is to be asked for.
#[derive(Clone, Debug)]
pub struct Wanted<'w> {
    /// Its id.
    pub run: &'w RunId,
    /// Tells this request from another one under the same id.
    pub digest: String,
    /// What is run.
    pub what: What,
    /// Variables over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Where it begins; relative to the work directory.
    pub cwd: Option<String>,
    /// Its user; the sandbox's where `None`.
    pub user: Option<String>,
    /// What it reads.
    pub input: Reads<'w>,
    /// Where it writes.
    pub streams: Streams,
    /// After how long it is ended; at least a millisecond.
    pub timeout: Option<Duration>,
    /// What becomes of its output.
    pub output: Keep,
    /// Whether somebody waits for it.
    pub attended: Attended,
}

/// What a run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads<'w> {
    /// Nothing.
    Nothing,
    /// A text.
    Text(&'w str),
    /// What is sent to it.
    More,
}

/// Makes the request, and what of the input is to follow it.
pub fn start(wanted: Wanted<'_>) -> (Start, Option<&str>) {
    let (stdin, feed) = match wanted.input {
        Reads::Nothing => (Stdin::Closed, None),
        Reads::More => (Stdin::Open, None),
        Reads::Text(text) if text.len() <= INPUT_ALONG_MAX => (Stdin::Text(text.to_owned()), None),
        Reads::Text(text) => (Stdin::Open, Some(text)),
    };
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    let start = Start {
        run: wanted.run.to_string(),
        digest: wanted.digest,
        what: wanted.what,
        env: wanted.env,
        cwd: wanted.cwd,
        user: wanted.user,
        stdin,
        streams: wanted.streams,
        timeout_ms: wanted.timeout.map(millis),
        output: wanted.output,
        attended: wanted.attended,
    };
    (start, feed)
}

/// Tells one request from another: returns 64 hex digits of its text, in which maps are
/// sorted and fields come in one order.
pub fn digest(same: &impl Serialize) -> String {
    let text = serde_json::to_vec(same).expect("a request has text keys and finite numbers");
    hex(&Sha256::digest(text))
}

/// Makes the request for a command, and what of its input is to follow; or says why it
/// cannot be one.
pub(super) fn request<'c>(command: &Command<'c>) -> Result<(Start, Option<&'c str>), String> {
    let Task {
        program,
        env,
        cwd,
        user,
        stdin,
        output,
    } = command.task;
    let (streams, keep) = match output {
        Output::Merged { first } => {
            let first = u64::try_from(*first).unwrap_or(u64::MAX);
            (Streams::Merged, Keep::First(first))
        }
        Output::Split { limit } => {
            let limit = Some(*limit);
            (Streams::Split, Keep::All { limit })
        }
    };
    let left = command.deadline.saturating_duration_since(Instant::now());
    let (start, feed) = start(Wanted {
        run: command.run,
        digest: command.digest.to_owned(),
        what: match program {
            Program::Argv(argv) => What::Argv(argv.clone()),
            Program::Shell(text) => What::Shell(text.clone()),
        },
        env: env.clone(),
        cwd: cwd.clone(),
        user: user.clone(),
        input: stdin.as_deref().map_or(Reads::Nothing, Reads::Text),
        streams,
        timeout: Some(left),
        output: keep,
        attended: Attended::Yes,
    });
    if fits(&start) {
        Ok((start, feed))
    } else {
        Err("argument list too long: write what is large to a file".to_owned())
    }
}

/// Whether a frame holds a request. Escaped, a byte becomes six at most.
fn fits(start: &Start) -> bool {
    let words = match &start.what {
        What::Argv(argv) => argv.iter().map(String::len).sum(),
        What::Shell(text) => text.len(),
    };
    let variables: usize = start
        .env
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let room = FRAME_BYTES_MAX - FRAME_SPARE_BYTES;
    if (words + variables + INPUT_ALONG_MAX) * 6 < room {
        return true;
    }
    serde_json::to_vec(start).is_ok_and(|json| json.len() < room)
}

//! Makes the agent's request of a command.

use tokio::time::Instant;

use super::commands::{Command, Output, Program, Task};
use crate::agent::protocol::frame::FRAME_BYTES_MAX;
use crate::agent::protocol::message::{Attended, Keep, Start, Stdin, Streams, What};

/// Bytes of input that go with the request; more follows it.
const STDIN_BYTES_MAX: usize = 64 << 10;
/// Bytes of what a frame holds beside the words of a request.
const FRAME_SPARE_BYTES: usize = 1 << 10;

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
    let (stdin, feed) = match stdin {
        None => (Stdin::Closed, None),
        Some(text) if text.len() <= STDIN_BYTES_MAX => (Stdin::Text(text.clone()), None),
        Some(text) => (Stdin::Open, Some(text.as_str())),
    };
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
    let left = command
        .deadline
        .saturating_duration_since(Instant::now())
        .as_millis();
    let start = Start {
        run: command.run.to_string(),
        digest: command.digest.to_owned(),
        what: match program {
            Program::Argv(argv) => What::Argv(argv.clone()),
            Program::Shell(text) => What::Shell(text.clone()),
        },
        env: env.clone(),
        cwd: cwd.clone(),
        user: user.clone(),
        stdin,
        streams,
        timeout_ms: Some(u64::try_from(left).unwrap_or(u64::MAX).max(1)),
        output: keep,
        attended: Attended::Yes,
    };
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
    if (words + variables + STDIN_BYTES_MAX) * 6 < room {
        return true;
    }
    serde_json::to_vec(start).is_ok_and(|json| json.len() < room)
}

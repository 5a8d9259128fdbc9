//! Judges whether what an agent answers can be an answer to what it was asked.
//!
//! An agent lives among untrusted code. What it says of a sandbox is its own affair;
//! what would mislead or occupy the daemon is not.

use std::collections::BTreeSet;

use super::protocol::VERSION;
use super::protocol::frame::BadFrame;
use super::protocol::message::{AgentHello, Fetch, Filter, From, Run, Wait};
use super::protocol::output::{OUTPUT_BYTES_MAX, Output, RECORD_HEAD_BYTES, Record, Stream};
use crate::id::RunId;

/// Runs that one agent tells of.
pub const RUNS_MAX: usize = 4096;
/// Characters of an agent's words that are kept.
pub const WORDS_CHARS_MAX: usize = 1024;
/// Bytes of what a record may hold; an answer may have one, however little was asked for.
pub const RECORD_BYTES_MAX: usize = (32 << 10) + 4;
/// Bytes of the text by which an agent tells its lives apart.
const LIFE_BYTES_MAX: usize = 64;
/// Bytes of a digest.
const DIGEST_BYTES_MAX: usize = 128;

/// Why a stream is given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no stream of frames.
    #[error("it sent {0}")]
    Frame(BadFrame),
    /// A message that is none.
    #[error("it sent a message that cannot be read: {0}")]
    Message(String),
    /// A frame that only the daemon sends.
    #[error("it sent a frame of input")]
    Input,
    /// A second introduction, or none at first.
    #[error("it introduced itself out of turn")]
    Hello,
    /// An introduction that cannot be one.
    #[error("it introduced itself with what cannot be so")]
    Introduction,
    /// It speaks another language.
    #[error("it speaks version {0} of the protocol, and this daemon {VERSION}")]
    Version(u32),
    /// An answer to nothing.
    #[error("it answered request {0}, which was not asked or answered before")]
    Unasked(u64),
    /// An answer of another kind than the question.
    #[error("it answered request {0} with what answers another")]
    Kind(u64),
    /// An answer about another run.
    #[error("it answered request {0} with another run")]
    Run(u64),
    /// Records that are not what was asked for.
    #[error("it answered request {0} with output that was not asked for: {1}")]
    Output(u64, &'static str),
    /// More runs than there may be, or one twice.
    #[error("it listed runs that cannot be so")]
    Runs,
    /// It takes nothing of what is written to it.
    #[error("it does not read what is sent to it")]
    Deaf,
}

/// Checks how an agent introduces itself.
pub(super) fn hello(hello: &AgentHello) -> Result<(), Fault> {
    if hello.version != VERSION {
        return Err(Fault::Version(hello.version));
    }
    let plain = hello.life.bytes().all(|byte| byte.is_ascii_graphic());
    if hello.life.is_empty() || LIFE_BYTES_MAX < hello.life.len() || !plain {
        return Err(Fault::Introduction);
    }
    Ok(())
}

/// Checks a list of runs.
pub(super) fn runs(runs: &[Run]) -> Result<(), Fault> {
    let ids: BTreeSet<&str> = runs.iter().map(|run| run.run.as_str()).collect();
    let sound = runs.iter().all(is_sound);
    if RUNS_MAX < runs.len() || ids.len() != runs.len() || !sound {
        return Err(Fault::Runs);
    }
    Ok(())
}

/// Tells whether a run can be as it is told.
pub(super) fn is_sound(run: &Run) -> bool {
    RunId::parse(&run.run).is_ok()
        && run.digest.len() <= DIGEST_BYTES_MAX
        && run.first_seq <= run.next_seq
}

/// Cuts an agent's words to one line that fits a log.
pub(super) fn words(text: &str) -> String {
    text.trim()
        .chars()
        .take(WORDS_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Checks output against what was asked for.
pub(super) fn output(asked: &Fetch, output: &Output) -> Result<(), Fault> {
    let unfit = |why| Fault::Output(output.ask, why);
    size(asked, output).map_err(unfit)?;
    let lowest = gap(asked, output).map_err(unfit)?;
    order(asked, &output.records, lowest).map_err(unfit)?;
    let nothing = output.gap.is_none() && output.records.is_empty() && output.end.is_none();
    // Whoever asks again and again would otherwise be kept busy with nothing.
    if nothing && asked.wait != Wait::No {
        return Err(unfit("nothing, where something was waited for"));
    }
    match &output.end {
        None => Ok(()),
        Some(json) => end(asked, output.ask, json),
    }
}

fn size(asked: &Fetch, output: &Output) -> Result<(), &'static str> {
    let heads = output.records.len().saturating_mul(RECORD_HEAD_BYTES);
    let bytes = output
        .records
        .iter()
        .fold(heads, |sum, one| sum.saturating_add(one.bytes.len()));
    let wanted = usize::try_from(asked.bytes).unwrap_or(usize::MAX);
    let most = wanted.clamp(RECORD_HEAD_BYTES + RECORD_BYTES_MAX, OUTPUT_BYTES_MAX);
    if most < bytes {
        return Err("more bytes than were asked for");
    }
    Ok(())
}

/// Returns the lowest number that a record may have.
fn gap(asked: &Fetch, output: &Output) -> Result<u64, &'static str> {
    let from = match asked.from {
        From::Seq(seq) => seq,
        From::Offset(_) => 0,
    };
    match output.gap {
        None => Ok(from),
        Some((lost, kept)) if from <= lost && lost < kept => Ok(kept),
        Some(_) => Err("a gap that is none"),
    }
}

fn order(asked: &Fetch, records: &[Record], lowest: u64) -> Result<(), &'static str> {
    let mut next = lowest;
    let mut offsets = [0; 2];
    for record in records {
        if record.seq < next {
            return Err("records out of order");
        }
        next = record.seq.saturating_add(1);
        let wanted = match (asked.streams, record.stream) {
            (Filter::Both, _) | (Filter::Out, Stream::Out) | (Filter::Err, Stream::Err) => true,
            (Filter::Out, Stream::Err) | (Filter::Err, Stream::Out) => false,
        };
        if !wanted {
            return Err("records of another stream");
        }
        let [out, err] = &mut offsets;
        let before = match record.stream {
            Stream::Out => out,
            Stream::Err => err,
        };
        let length = u64::try_from(record.bytes.len()).unwrap_or(u64::MAX);
        let after = record.offset.checked_add(length);
        if record.offset < *before || after.is_none() {
            return Err("records whose bytes overlap");
        }
        *before = after.unwrap_or(u64::MAX);
    }
    Ok(())
}

fn end(asked: &Fetch, ask: u64, json: &[u8]) -> Result<(), Fault> {
    let run: Run =
        serde_json::from_slice(json).map_err(|error| Fault::Message(words(&error.to_string())))?;
    if run.run != asked.run || !is_sound(&run) {
        return Err(Fault::Run(ask));
    }
    if run.end.is_none() {
        return Err(Fault::Output(ask, "the end of a run that goes on"));
    }
    Ok(())
}

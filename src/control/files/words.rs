//! Words answers and events as clients of the contract read them.

use super::asked::{Answer, Op};
use crate::cause::chain;
use crate::wire::files::{
    EditResponse, ExistsResponse, GrepResponse, ReadBytesResponse, ReadResponse, WriteResponse,
};
use crate::workspace::{Behind, FileError, Slice, Window};

/// Writes lines as they are read.
pub(in crate::control) fn lines(slice: Slice, window: Window) -> String {
    match slice {
        Slice::PastEnd => "[End of file]".to_owned(),
        Slice::Lines { mut text, behind } => {
            let next = window.offset.saturating_add(window.limit);
            let more = match behind {
                Behind::Nothing => return text,
                Behind::Lines(more) => format!("{more} more lines"),
                Behind::AtLeast(more) => format!("at least {more} more lines"),
            };
            for part in [
                "\n\n[... ",
                &more,
                ". Use offset=",
                &next.to_string(),
                " to read more.]",
            ] {
                text.push_str(part);
            }
            text
        }
    }
}

/// Says that a file is too large.
pub(in crate::control) fn over_limit(bytes: u64, limit: u64) -> String {
    format!("File is {bytes} bytes, over the {limit}-byte read limit")
}

/// Makes the answer to an operation that failed.
pub(super) fn failed(op: &Op, error: &FileError, bytes_max: u64) -> Answer {
    match op {
        Op::Read { path, .. } => {
            let why = why_unread(path, error, bytes_max);
            Answer::Read(ReadResponse {
                content: unread(error, &why),
                error: Some(why),
                ..ReadResponse::default()
            })
        }
        Op::ReadBytes { path } => Answer::Bytes(ReadBytesResponse {
            error: Some(why_unread(path, error, bytes_max)),
            ..ReadBytesResponse::default()
        }),
        Op::Write { path, .. } => Answer::Write(WriteResponse {
            error: Some(unwritten(path, error)),
            ..WriteResponse::default()
        }),
        Op::Edit { path, old, .. } => Answer::Edit(EditResponse {
            error: Some(unedited(path, old, error, bytes_max)),
            ..EditResponse::default()
        }),
        Op::Exists { .. } => Answer::Exists(ExistsResponse::default()),
        Op::Ls { .. } | Op::Glob { .. } => Answer::Entries(Vec::new()),
        Op::Grep { path, .. } => {
            let path = path.as_deref().unwrap_or(".");
            let why = system_words(error);
            Answer::Grep(not_searched(&format!("grep: {path}: {why}")))
        }
    }
}

/// Makes the answer to a search that was not made.
pub(super) fn not_searched(why: &str) -> GrepResponse {
    GrepResponse {
        error: Some(format!("Error: {why}")),
        ..GrepResponse::default()
    }
}

/// Says how an operation ended, as its event has it.
pub(super) fn event(op: &Op, answer: &Answer) -> (bool, String) {
    match answer {
        Answer::Read(read) => {
            let failed = read.content.starts_with("Error:") || read.content.starts_with("[Error");
            (!failed, format!("{} chars", read.content.chars().count()))
        }
        Answer::Bytes(read) => {
            let bytes = decoded_len(&read.content_b64);
            (0 < bytes, format!("{bytes} bytes"))
        }
        Answer::Write(write) => match (&write.error, op) {
            (Some(error), _) => (false, error.clone()),
            (None, Op::Write { bytes, .. }) => (true, format!("{} bytes", bytes.len())),
            (None, _) => (true, String::new()),
        },
        Answer::Edit(edit) => match (&edit.error, edit.occurrences) {
            (Some(error), _) => (false, error.clone()),
            (None, n) => (true, format!("{} replaced", n.unwrap_or_default())),
        },
        Answer::Exists(exists) => {
            let seen = if exists.exists { "found" } else { "missing" };
            (true, seen.to_owned())
        }
        Answer::Entries(entries) => {
            let what = if matches!(op, Op::Glob { .. }) {
                "matches"
            } else {
                "entries"
            };
            (true, format!("{} {what}", entries.len()))
        }
        Answer::Grep(grep) => match &grep.error {
            Some(error) => (false, error.clone()),
            None => (true, format!("{} matches", grep.matches.len())),
        },
    }
}

/// Returns how many bytes a text in base64 stands for.
fn decoded_len(b64: &str) -> usize {
    let padding = b64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (b64.len() / 4 * 3).saturating_sub(padding)
}

fn too_large(bytes: u64, limit: u64) -> String {
    let over = over_limit(bytes, limit);
    format!("{over}. Read a slice with execute() instead, e.g. \"sed -n '1,200p' <path>\".")
}

/// Says why a file was not read.
fn why_unread(path: &str, error: &FileError, bytes_max: u64) -> String {
    match error {
        FileError::NotFound | FileError::NotDirectory | FileError::NameTooLong => {
            format!("File '{path}' not found")
        }
        FileError::IsDirectory => format!("'{path}' is a directory"),
        FileError::TooLarge { bytes, limit } => too_large(*bytes, (*limit).min(bytes_max)),
        FileError::Binary => "[Binary File]".to_owned(),
        other => system_words(other),
    }
}

/// Puts it where clients of the contract expect lines.
fn unread(error: &FileError, why: &str) -> String {
    match error {
        FileError::NotFound | FileError::NotDirectory | FileError::NameTooLong => {
            format!("Error: {why}")
        }
        FileError::IsDirectory | FileError::TooLarge { .. } | FileError::Binary => {
            format!("[Error: {why}]")
        }
        _ => format!("[Error reading file: {why}]"),
    }
}

fn unwritten(path: &str, error: &FileError) -> String {
    match error {
        FileError::NotDirectory => {
            format!("Failed to create directory: a file is in the way of {path}")
        }
        other => format!("Failed to write file: {}", system_words(other)),
    }
}

fn unedited(path: &str, old: &str, error: &FileError, bytes_max: u64) -> String {
    match error {
        FileError::NotFound | FileError::NotDirectory | FileError::NameTooLong => {
            format!("File '{path}' not found")
        }
        FileError::TooLarge { bytes, limit } => too_large(*bytes, (*limit).min(bytes_max)),
        FileError::Binary => "[Binary File]".to_owned(),
        FileError::NoMatch => format!("String '{old}' not found in file"),
        FileError::ManyMatches { count } => format!(
            "String '{old}' found {count} times. Use replace_all=True to replace all, or provide more context."
        ),
        other => format!("Failed to edit file: {}", system_words(other)),
    }
}

/// Says what went wrong, in words that programs know from the system.
fn system_words(error: &FileError) -> String {
    match error {
        FileError::NotFound => "No such file or directory".to_owned(),
        FileError::IsDirectory => "Is a directory".to_owned(),
        FileError::NotDirectory => "Not a directory".to_owned(),
        FileError::Exists => "File exists".to_owned(),
        FileError::Permission => "Permission denied".to_owned(),
        FileError::NameTooLong => "File name too long".to_owned(),
        FileError::NoSpace => "No space left on device".to_owned(),
        FileError::Io(error) => error.to_string(),
        other => chain(other),
    }
}

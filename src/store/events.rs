//! Owns the tree `events`: a log for each session, and one for the service.
//!
//! The key is `session 0x00 seq`, with `seq` in eight big-endian bytes; the service
//! log has the empty session. An id holds no zero byte, so keys sort by session,
//! then by number.

use std::collections::BTreeMap;

use super::codec::{self, CodecError};
use super::error::{Fault, ReadError};
use super::writes::{Tree, Writes};
use crate::id::SessionId;
use crate::session::record::Event;

/// The tree's name.
pub(super) const TREE: &str = "events";

/// Events of the largest page.
pub const EVENTS_PAGE_MAX: usize = 1_000;
/// Stored bytes after which a page takes no further event.
pub const EVENTS_PAGE_BYTES_MAX: usize = 1024 * 1024;

/// A log: of a session, or of the service where `None`.
pub(super) type Log = Option<SessionId>;

/// Which events of a log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The newest so many.
    Newest(usize),
    /// The oldest so many.
    Oldest(usize),
}

/// A page of a log, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    /// Sequence numbers and events.
    pub events: Vec<(u64, Event)>,
    /// The last sequence number given out; 0 when there was none.
    pub latest_seq: u64,
    /// Where retention begins; 0 when nothing is kept.
    pub first_seq: u64,
}

/// Events of the largest look for those that fit.
pub const EVENTS_SCANNED_MAX: usize = 20_000;

/// What a look through a log has found, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Sequence numbers and events that fit.
    pub events: Vec<(u64, Event)>,
    /// The last number that was looked at: the next look goes on behind it.
    pub seen: u64,
    /// The last sequence number given out; 0 when there was none.
    pub latest_seq: u64,
    /// Where retention begins; 0 when nothing is kept.
    pub first_seq: u64,
}

/// How many events a log keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    /// Of one session.
    pub(super) session: u64,
    /// Of the service.
    pub(super) service: u64,
}

impl Retention {
    /// Returns how many of a log are kept; at least one.
    pub(super) fn of(self, log: &Log) -> u64 {
        match log {
            Some(_) => self.session.max(1),
            None => self.service.max(1),
        }
    }
}

/// The numbers that a log holds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) latest: u64,
}

/// Makes the key of one event.
pub(super) fn key(log: Option<&SessionId>, seq: u64) -> Vec<u8> {
    let id = log.map_or("", SessionId::as_str);
    let mut key = Vec::with_capacity(id.len() + 9);
    key.extend_from_slice(id.as_bytes());
    key.push(0);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// Reads the log and the number out of a key.
pub(super) fn parse_key(key: &[u8]) -> Result<(Log, u64), CodecError> {
    let bad = || codec::bad_key(TREE, key);
    let (head, seq) = key.split_last_chunk::<8>().ok_or_else(bad)?;
    let id = head.strip_suffix(b"\0").ok_or_else(bad)?;
    let log = match id {
        [] => None,
        id => {
            let text = std::str::from_utf8(id).map_err(|_| bad())?;
            Some(SessionId::parse(text).map_err(|_| bad())?)
        }
    };
    Ok((log, u64::from_be_bytes(*seq)))
}

/// Writes one event.
pub(super) fn put(
    writes: &mut Writes,
    log: Option<&SessionId>,
    seq: u64,
    event: &Event,
) -> Result<(), CodecError> {
    writes.put(Tree::Events, key(log, seq), codec::encode(event)?);
    Ok(())
}

/// Removes one event.
pub(super) fn remove(writes: &mut Writes, log: Option<&SessionId>, seq: u64) {
    writes.remove(Tree::Events, key(log, seq));
}

/// Finds the ends of every log, without reading what lies between.
pub(super) fn load(tree: &sled::Tree) -> Result<BTreeMap<Log, Span>, Fault> {
    let mut logs = BTreeMap::new();
    let mut from = Vec::new();
    while let Some(entry) = tree.range(from.as_slice()..).next() {
        let (log, first) = parse_key(&entry?.0)?;
        let end = key(log.as_ref(), u64::MAX);
        let Some(entry) = tree.range(from.as_slice()..=end.as_slice()).next_back() else {
            return Err(Fault::Corrupt(
                "a log of events has a first but no last".to_owned(),
            ));
        };
        let (last_log, latest) = parse_key(&entry?.0)?;
        if last_log != log || latest < first {
            return Err(Fault::Corrupt(
                "the logs of events are out of order".to_owned(),
            ));
        }
        logs.insert(log, Span { first, latest });
        // The key after the last that this log can have.
        from = end;
        from.push(0);
    }
    Ok(logs)
}

/// Looks for events that fit after `after`, up to the end of `span`: through the oldest or
/// through the newest. Returns them, oldest first, and the number behind which the next
/// look goes on.
pub(super) fn search(
    tree: &sled::Tree,
    log: Option<&SessionId>,
    span: Span,
    after: u64,
    (page, fits): (Page, &dyn Fn(&Event) -> bool),
) -> Result<(Vec<(u64, Event)>, u64), ReadError> {
    let first = span.first.max(after.saturating_add(1));
    if span.latest < first {
        return Ok((Vec::new(), after));
    }
    // What lies beyond the span is not acknowledged yet.
    let entries = tree.range(key(log, first)..=key(log, span.latest));
    match page {
        Page::Oldest(n) => take(entries, n, fits),
        Page::Newest(n) => {
            let (mut events, _) = take(entries.rev(), n, fits)?;
            events.reverse();
            Ok((events, span.latest))
        }
    }
}

fn take(
    entries: impl Iterator<Item = sled::Result<(sled::IVec, sled::IVec)>>,
    n_wanted: usize,
    fits: &dyn Fn(&Event) -> bool,
) -> Result<(Vec<(u64, Event)>, u64), ReadError> {
    let mut events = Vec::new();
    let mut seen = 0;
    let mut n_bytes = 0;
    for entry in entries.take(EVENTS_SCANNED_MAX) {
        let (key, value) = entry.map_err(|error| ReadError::Engine {
            reason: error.to_string(),
        })?;
        seen = parse_key(&key).map_err(ReadError::Value)?.1;
        let event = codec::decode(&value).map_err(ReadError::Value)?;
        if !fits(&event) {
            continue;
        }
        events.push((seen, event));
        n_bytes += value.len();
        if n_wanted.min(EVENTS_PAGE_MAX) <= events.len() || EVENTS_PAGE_BYTES_MAX <= n_bytes {
            break;
        }
    }
    Ok((events, seen))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_log() -> impl Strategy<Value = Log> {
        proptest::option::of(
            "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
                .prop_map(|text| SessionId::parse(&text).expect("the pattern is the id's own")),
        )
    }

    proptest! {
        #[test]
        fn keys_sort_by_session_and_then_by_number(
            (a, i) in (any_log(), any::<u64>()),
            (b, j) in (any_log(), any::<u64>()),
        ) {
            prop_assert_eq!(
                key(a.as_ref(), i).cmp(&key(b.as_ref(), j)),
                (&a, i).cmp(&(&b, j))
            );
        }

        #[test]
        fn a_key_tells_its_session_and_number(log in any_log(), seq in any::<u64>()) {
            prop_assert_eq!(parse_key(&key(log.as_ref(), seq)).unwrap(), (log, seq));
        }

        #[test]
        fn no_bytes_make_the_reading_of_a_key_panic(bytes: Vec<u8>) {
            if let Ok((log, seq)) = parse_key(&bytes) {
                prop_assert_eq!(key(log.as_ref(), seq), bytes);
            }
        }
    }
}
